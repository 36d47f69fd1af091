"""Sparse rows, one-hot columns and numbered names: what stays small however large it looks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, hstack

#: A column of text or nominal values becomes at most this many columns.
MAX_LEVELS = 10_000
#: More different values than this are free text where few of them occur twice.
FEW_LEVELS = 1_000
#: Arrays of up to this many cells (128 MiB) are dense, whatever they hold.
MAX_DENSE_CELLS = 1 << 24


class _CsrBuilder:
    """Append blocks of sparse rows and end with a CSR array.

    Bytes are appended to `bytearray` buffers, which grow in place, and the array uses them as they
    are: the peak of memory is little more than the result.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.n_rows = 0
        self._dtype = np.dtype(dtype)
        self._counts, self._columns, self._values = bytearray(), bytearray(), bytearray()

    def append(self, counts: NDArray[Any], columns: NDArray[Any], values: NDArray[Any]) -> None:
        """Append rows, given entries per row and each entry's column and value."""
        self.n_rows += len(counts)
        self._counts += counts.astype(np.int64, copy=False).tobytes()
        self._columns += columns.astype(np.int32, copy=False).tobytes()
        self._values += values.astype(self._dtype, copy=False).tobytes()

    def build(self, n_columns: int) -> csr_array:
        """Return the rows so far, with sorted columns."""
        indptr = np.zeros(self.n_rows + 1, dtype=np.int64)
        np.cumsum(np.frombuffer(self._counts, np.int64), out=indptr[1:])
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # the type of the columns, else SciPy copies both
        values = np.frombuffer(self._values, self._dtype)
        columns = np.frombuffer(self._columns, np.int32)
        result = csr_array((values, columns, indptr), shape=(self.n_rows, n_columns))
        result.sort_indices()
        return result


class _OneHot(NamedTuple):
    """A column for each value of a nominal one, kept as the place of the one in each row."""

    codes: NDArray[np.int32]  # -1: the row has none
    n_levels: int

    def csr(self) -> csr_array:
        """Return the indicators, (n, k)."""
        is_set = self.codes >= 0
        indptr = np.concatenate([[0], np.cumsum(is_set)]).astype(np.int32)
        indices = self.codes[is_set]
        shape = (len(self.codes), self.n_levels)
        return csr_array((np.ones(len(indices)), indices, indptr), shape=shape)


Block: TypeAlias = _OneHot | NDArray[np.float64] | csr_array
"""Columns side by side: one-hot, numbers (n, k), or CSR."""


def _side_by_side(blocks: Sequence[Block], n_rows: int) -> Any:
    """Join blocks of columns: CSR where one of them is, or where most of it would be zeros."""
    widths = [part.n_levels if isinstance(part, _OneHot) else part.shape[1] for part in blocks]
    n_one_hot = sum(part.n_levels - 1 for part in blocks if isinstance(part, _OneHot))
    # Large, and most of it would be zeros of one-hot columns.
    is_large = n_rows * sum(widths) > MAX_DENSE_CELLS and 2 * n_one_hot > sum(widths)
    if is_large or any(isinstance(part, csr_array) for part in blocks):
        parts = [part.csr() if isinstance(part, _OneHot) else csr_array(part) for part in blocks]
        return hstack(parts, format="csr")
    if len(blocks) == 1 and isinstance(blocks[0], np.ndarray):
        return blocks[0]
    X, start, rows = np.zeros((n_rows, sum(widths))), 0, np.arange(n_rows)
    for part, width in zip(blocks, widths, strict=True):
        if isinstance(part, _OneHot):
            is_set = part.codes >= 0
            X[rows[is_set], start + part.codes[is_set]] = 1
        else:
            X[:, start : start + width] = part
        start += width
    return X


_LAST_DIGITS = np.arange(10**4)[:, None] // 10 ** np.arange(3, -1, -1) % 10 + ord("0")
_SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class NumberedNames(Sequence[str]):
    """The names ``feature_5``, ``feature_6`` and so on; equal to the tuple of them."""

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
        return map(self.prefix.__add__, map(str, self.numbers))

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


def _framed(names: Sequence[str]) -> Iterator[bytes]:
    """Yield the names as bytes, each after its length in eight bytes, in pieces of any size."""
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
            yield from _framed(tuple(f"{names.prefix}{number}" for number in range(start, end)))
        else:
            text = f"{names.prefix}{upper}".encode()
            head = (len(text) + 4).to_bytes(8, "little") + text
            rows = np.empty((end - start, len(head) + 4), dtype=np.uint8)
            rows[:, :-4] = np.frombuffer(head, np.uint8)
            rows[:, -4:] = _LAST_DIGITS[lower : lower + end - start]
            yield rows.tobytes()
        start = end


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs more than once, if any."""
    if len(set(names)) == len(names):
        return None
    counts = Counter(names)
    return next(name for name in names if counts[name] > 1)
