"""Names that follow from their place: ten million of them take no memory until they are asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

_LAST_DIGITS = np.arange(10**4)[:, None] // 10 ** np.arange(3, -1, -1) % 10 + ord("0")
_SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class NumberedNames(Sequence[str]):
    """The names ``feature_5``, ``feature_6`` and so on; equal to the tuple of them.

    Parameters
    ----------
    prefix
        What stands before the number.
    numbers
        The numbers, in steps of 1.

    Examples
    --------
    >>> names = NumberedNames("feature_", range(1, 10_000_001))
    >>> names[41], len(names), names[:2]
    ('feature_42', 10000000, ('feature_1', 'feature_2'))
    >>> NumberedNames("label_", range(2))
    ('label_0', 'label_1')
    """

    prefix: str
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(f"{self.prefix}{number}" for number in self.numbers[place])
        return f"{self.prefix}{self.numbers[place]}"

    def __iter__(self) -> Iterator[str]:
        return (f"{self.prefix}{number}" for number in self.numbers)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberedNames) and self.prefix == other.prefix:
            return self.numbers == other.numbers
        if not isinstance(other, tuple | NumberedNames):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        if len(self) <= _SHOWN:
            return repr(tuple(self))
        return f"({self[0]!r}, {self[1]!r}, ..., {self[-1]!r})"


def framed(names: Sequence[str]) -> Iterator[bytes]:
    r"""Yield the names as bytes, each after its length in eight bytes, in pieces of any size.

    Examples
    --------
    >>> b"".join(framed(("a", "bc")))
    b'\x01\x00\x00\x00\x00\x00\x00\x00a\x02\x00\x00\x00\x00\x00\x00\x00bc'
    >>> b"".join(framed(NumberedNames("a", range(1)))) == b"".join(framed(("a0",)))
    True
    """
    if isinstance(names, NumberedNames):
        yield from _framed_numbers(names)
        return
    for name in names:
        encoded = name.encode()
        yield len(encoded).to_bytes(8, "little") + encoded


def _framed_numbers(names: NumberedNames) -> Iterator[bytes]:
    """Spell numbers that differ in their last four digits together, a row of bytes for each."""
    start, stop = names.numbers.start, names.numbers.stop
    while start < stop:
        upper, lower = divmod(start, len(_LAST_DIGITS))
        end = min(stop, start - lower + len(_LAST_DIGITS))
        if upper == 0:  # shorter ones, each with a length of its own
            yield from framed(tuple(f"{names.prefix}{number}" for number in range(start, end)))
        else:
            text = f"{names.prefix}{upper}".encode()
            head = (len(text) + 4).to_bytes(8, "little") + text
            rows = np.empty((end - start, len(head) + 4), dtype=np.uint8)
            rows[:, :-4] = np.frombuffer(head, np.uint8)
            rows[:, -4:] = _LAST_DIGITS[lower : lower + end - start]
            yield rows.tobytes()
        start = end
