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

# In front of the text: every window of 16 bytes that ends in the text lies inside the padded bytes, and
# the last byte acts as the separator before the first number.
_PAD = b" " * 16
_MINUS, _DOT, _ZERO = np.frombuffer(b"-.0", np.uint8)
_ZEROS = np.uint64(0x3030303030303030)  # eight times the code of "0"
_PAIRS = np.uint64(0x000000FF000000FF)  # selects two of the four two-digit numbers in a word
_POWERS = 10.0 ** np.arange(17)
_EXACT = np.uint64(1 << 53)  # integers up to here are exact in float64
_IS_PART = np.isin(np.arange(256), list(b"0123456789+-eE"))
_IN_EXPONENT = np.isin(np.arange(256), list(b"+eE"))


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
    has_exponents = any(mark in text for mark in (b"e", b"E", b"+"))
    # Two comparisons are faster than a table lookup; unsigned codes below "0" wrap to large values.
    is_part = _IS_PART[codes] if has_exponents else (codes - _ZERO < 10) | (codes == _MINUS)
    # Positions of dots and separators, from the last byte of the padding on; `kept` are the separators.
    marks = np.flatnonzero(~is_part)[len(_PAD) - 1 :]
    kept = np.flatnonzero(codes[marks] != _DOT)
    ends = marks[kept]
    # Between two separators that are not adjacent there is a number.
    follows_number = np.diff(ends) > 1
    numbers, is_plain = _parse_plain(padded, marks, kept, follows_number)
    starts, stops = ends[:-1], ends[1:]
    if not follows_number.all():
        starts, stops = starts[follows_number], stops[follows_number]
    if has_exponents:
        # A byte of an exponent belongs to the number with the first stop behind it.
        is_plain[np.searchsorted(stops, np.flatnonzero(_IN_EXPONENT[codes]))] = False
    # The rest is rare: Python's float parses it, or raises the ValueError.
    for odd in np.flatnonzero(~is_plain).tolist():
        numbers[odd] = float(padded[starts[odd] + 1 : stops[odd]])
    return Decimals(numbers, codes[ends[1:]], follows_number)


def _parse_plain(
    padded: bytes,
    marks: NDArray[np.int64],
    kept: NDArray[np.int64],
    follows_number: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Parse numbers of the form ``-12.375``; also return which of them are of that form.

    `marks` are the positions of dots and separators, `kept` says which of them are separators. What is
    not of that form gets a meaningless number, which the caller replaces.
    """
    # Between consecutive separators, `kept` jumps by one plus the number of dots in between.
    bare_ends, n_dots = marks[kept], np.diff(kept) - 1
    is_negative = np.frombuffer(padded, np.uint8)[bare_ends[:-1] + 1] == _MINUS
    # Without its dot a number is an integer, and all that follows moves forward by one byte. The digits
    # behind the dot, the mark just before the separator, give the power of ten to divide by.
    n_decimals = np.where(n_dots == 1, bare_ends[1:] - marks[kept[1:] - 1] - 1, 0)
    bare = padded.translate(None, b".") if n_dots.any() else padded
    bare_ends[1:] -= np.cumsum(n_dots)
    n_digits = np.diff(bare_ends) - 1
    bare_ends = bare_ends[1:]
    if not follows_number.all():
        bare_ends, n_digits = bare_ends[follows_number], n_digits[follows_number]
        n_decimals, n_dots = n_decimals[follows_number], n_dots[follows_number]
        is_negative = is_negative[follows_number]
    n_digits -= is_negative
    integers = _integers(bare, bare_ends, np.minimum(n_digits, 16))
    is_plain = (n_dots < 2) & (n_digits > 0) & (n_digits <= 16) & (integers <= _EXACT)
    # A minus sign that is not the first byte of its number makes that number odd ("1-2", "--1").
    is_sign = np.frombuffer(bare, np.uint8) == _MINUS
    if np.count_nonzero(is_sign) != np.count_nonzero(is_negative):
        first = bare_ends - n_digits - 1  # where the sign is, if there is one
        inside = np.setdiff1d(np.flatnonzero(is_sign), first[is_negative])
        is_plain[np.searchsorted(bare_ends, inside)] = False
    numbers = integers / _POWERS[np.minimum(n_decimals, 16)]
    return np.where(is_negative, -numbers, numbers), is_plain


def _integers(
    padded: bytes, ends: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the integers of up to 16 digits that end before `ends`."""
    # An overlapping view with a window at every byte: word i is the eight bytes from i on. Taking the
    # words before `ends` copies only what is needed.
    windows: NDArray[np.uint64] = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    result = _eight_digits(windows.take(ends - 8), np.minimum(lengths, 8))
    long = np.flatnonzero(lengths > 8)
    if len(long):
        upper = _eight_digits(windows.take(ends[long] - 16), lengths[long] - 8)
        result[long] += upper * np.uint64(10**8)
    return result


def _eight_digits(words: NDArray[np.uint64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Turn eight ASCII bytes, first byte lowest, into the integer their last `lengths` spell.

    Works in place: the words were just copied and stay in the processor's cache.
    """
    # XOR turns ASCII digits into 0 to 9. Shifting down and up again clears the bytes before the number,
    # which are the low ones. Then neighbors are joined in parallel: eight digits become four two-digit
    # numbers (every other byte; no byte exceeds 99), and two multiplications weight and add those four.
    shift = (64 - 8 * lengths.astype(np.uint8)).astype(np.uint64)
    words ^= _ZEROS
    words >>= shift
    words <<= shift
    pairs = words >> np.uint64(8)
    words *= np.uint64(10)
    words += pairs
    pairs = words >> np.uint64(16)
    words &= _PAIRS
    # Each product's upper half is the sum of two two-digit numbers times their powers of ten; the carries
    # of the lower half cannot reach it, since every term is below 2^32.
    words *= np.uint64(0x000F424000000064)  # 10^6 and 10^2
    pairs &= _PAIRS
    pairs *= np.uint64(0x0000271000000001)  # 10^4 and 1
    words += pairs
    words >>= np.uint64(32)
    return words
