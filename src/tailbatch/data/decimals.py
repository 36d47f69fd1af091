"""Decimal text to numbers, many at once and correctly rounded, as fast as NumPy can.

Eight digits are eight bytes, and eight bytes are one 64-bit word: a handful of word operations
turns the digits of all numbers of a block into integers together. A decimal ``12.375`` is then
``12375 / 10^3``. Both are exact in float64 while the digits stay below 2^53, and IEEE division
rounds once, so the quotient is the float nearest to the text (Clinger 1990, the "fast path").
Other spellings (exponents, longer digits) go through `float`, which rounds correctly too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_PAD = b" " * 16
_MINUS, _DOT, _ZERO = np.frombuffer(b"-.0", np.uint8)
_ZEROS = np.uint64(0x3030303030303030)
_PAIRS = np.uint64(0x000000FF000000FF)
_POWERS = 10.0 ** np.arange(17)
_EXACT = np.uint64(1 << 53)
_IS_PART = np.isin(np.arange(256), list(b"0123456789+-eE"))


class Decimals(NamedTuple):
    """The numbers of a text, and the bytes between them."""

    numbers: NDArray[np.float64]
    separators: NDArray[np.uint8]  # every byte that is no part of a number, in order
    follows_number: NDArray[np.bool_]  # whether a number stands before the separator


def parse_decimals(text: bytes) -> Decimals:
    r"""Return the numbers in `text` and what separates them.

    Every byte but ``0-9+-.eE`` separates, and the text must end with such a one. A ValueError
    says that what lies between separators is no number.

    Examples
    --------
    >>> found = parse_decimals(b"{3 -0.25,17 5e-1}\n")
    >>> found.numbers.tolist(), found.separators.tobytes()
    ([3.0, -0.25, 17.0, 0.5], b'{ , }\n')
    >>> found.follows_number.tolist()
    [False, True, True, True, True, False]
    """
    padded = _PAD + text
    codes = np.frombuffer(padded, np.uint8)
    is_plain = not any(mark in text for mark in (b"e", b"E", b"+"))
    is_part = (codes - _ZERO < 10) | (codes == _MINUS) if is_plain else _IS_PART[codes]
    marks = np.flatnonzero(~is_part)[len(_PAD) - 1 :]
    is_dot = codes[marks] == _DOT
    kept = np.flatnonzero(~is_dot)
    ends = marks[kept]
    follows_number = np.diff(ends) > 1
    numbers = _parse_plain(padded, marks, is_dot, kept, follows_number) if is_plain else None
    if numbers is None:
        between = zip(ends[:-1][follows_number] + 1, ends[1:][follows_number], strict=True)
        numbers = np.array([float(padded[start:end]) for start, end in between])
    return Decimals(numbers, codes[ends[1:]], follows_number)


def _parse_plain(
    padded: bytes,
    marks: NDArray[np.int64],
    is_dot: NDArray[np.bool_],
    kept: NDArray[np.int64],
    follows_number: NDArray[np.bool_],
) -> NDArray[np.float64] | None:
    """Parse numbers that are all of the form ``-12.375``, or return None.

    `marks` are the positions of dots and separators, `kept` says which of them are separators.
    """
    bare_ends, before = marks[kept], kept[1:] - 1
    has_dot = is_dot[before]
    n_decimals = np.where(has_dot, bare_ends[1:] - marks[before] - 1, 0)
    # Without its dot a number is an integer; all that follows moves down by one byte.
    bare = padded.translate(None, b".") if is_dot.any() else padded
    bare_ends[1:] -= np.cumsum(has_dot)
    n_digits = np.diff(bare_ends) - 1
    bare_ends = bare_ends[1:]
    if not follows_number.all():
        bare_ends, n_digits = bare_ends[follows_number], n_digits[follows_number]
        n_decimals = n_decimals[follows_number]
    if not len(bare_ends):
        return np.empty(0)
    codes = np.frombuffer(bare, np.uint8)
    is_negative = codes[bare_ends - n_digits] == _MINUS
    n_digits -= is_negative
    if not (
        n_digits.min() > 0
        and n_digits.max() <= 16
        and np.count_nonzero(has_dot) == np.count_nonzero(is_dot)
        and np.count_nonzero(is_negative) == np.count_nonzero(codes == _MINUS)
    ):
        return None
    integers = _integers(bare, bare_ends, n_digits)
    if integers.max() > _EXACT:
        return None
    numbers = integers / _POWERS[n_decimals]
    return np.where(is_negative, -numbers, numbers)


def _integers(
    padded: bytes, ends: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the integers of up to 16 digits that end before `ends`."""
    # A window at every byte: word i is the eight bytes from i on.
    windows: NDArray[np.uint64] = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    result = _eight_digits(windows.take(ends - 8), np.minimum(lengths, 8))
    long = np.flatnonzero(lengths > 8)
    if len(long):
        upper = _eight_digits(windows.take(ends[long] - 16), lengths[long] - 8)
        result[long] += upper * np.uint64(10**8)
    return result


def _eight_digits(words: NDArray[np.uint64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Turn eight ASCII bytes, first byte lowest, into the integer their last `lengths` spell.

    Works in place: the words come fresh from memory, and stay in the processor's cache.
    """
    # Bytes before the number become zero digits; then digits are joined in twos, fours and eight.
    shift = np.uint64(64) - np.uint64(8) * lengths.astype(np.uint64)
    words ^= _ZEROS
    words >>= shift
    words <<= shift
    pairs = words >> np.uint64(8)
    words *= np.uint64(10)
    words += pairs
    pairs = words >> np.uint64(16)
    words &= _PAIRS
    words *= np.uint64(0x000F424000000064)  # 10^6 and 10^2
    pairs &= _PAIRS
    pairs *= np.uint64(0x0000271000000001)  # 10^4 and 1
    words += pairs
    words >>= np.uint64(32)
    return words
