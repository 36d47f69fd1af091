"""Decimal text to numbers, many at once and correctly rounded, as fast as NumPy can.

Eight digits are eight bytes, and eight bytes are one 64-bit word: a handful of word operations
turns the digits of all numbers of a block into integers together. A decimal ``12.375`` is then
``12375 / 10^3``. Both are exact in float64 while the digits stay below 2^53, and IEEE division
rounds once, so the quotient is the float nearest to the text (Clinger 1990, the "fast path").
Other spellings (exponents, longer digits) go through `float`, which rounds correctly too.
"""

import numpy as np
from numpy.typing import NDArray

_PAD = b" " * 16
_ZERO, _NINE, _DOT, _MINUS = np.frombuffer(b"09.-", np.uint8)
_ZEROS = np.uint64(0x3030303030303030)
_PAIRS = np.uint64(0x000000FF000000FF)
_TEN: NDArray[np.uint64] = 10 ** np.arange(19, dtype=np.uint64)
_EXACT = np.uint64(1 << 53)
_SEPARATORS = bytes.maketrans(b"{},", b"   ")


def parse_decimals(text: bytes) -> NDArray[np.float64]:
    r"""Return the numbers in `text`, which commas, braces and white space separate.

    Raises ValueError where something is no decimal number (`nan` and `inf` are none here).

    Examples
    --------
    >>> parse_decimals(b"{3 -0.25,17 5e-1}\n{4 12.375}").tolist()
    [3.0, -0.25, 17.0, 0.5, 4.0, 12.375]
    """
    numbers = _parse_plain(text)
    if numbers is not None:
        return numbers
    if text.translate(None, b"0123456789+-.eE{}, \t\r\n"):
        raise ValueError("not a decimal number")
    tokens = text.translate(_SEPARATORS).split()
    return np.fromiter(map(float, tokens), np.float64, len(tokens))


def _parse_plain(text: bytes) -> NDArray[np.float64] | None:
    """Parse numbers of the form ``-12.375``, or return None if there are others."""
    padded = _PAD + text + b" "
    codes = np.frombuffer(padded, np.uint8)
    is_digit = (codes >= _ZERO) & (codes <= _NINE)
    edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
    starts, ends = edges[0::2], edges[1::2]
    before = codes[starts - 1]
    is_fraction, is_negative = before == _DOT, before == _MINUS
    fractions = np.flatnonzero(is_fraction)
    if not (
        len(starts)
        and len(fractions) == np.count_nonzero(codes == _DOT)
        and np.count_nonzero(is_negative) == np.count_nonzero(codes == _MINUS)
        and not is_fraction[0]
        and not is_fraction[fractions - 1].any()
        and (ends[fractions - 1] == starts[fractions] - 1).all()
        and not is_digit[starts[is_negative] - 2].any()
        and not text.translate(None, b"0123456789-.{}, \t\r\n")
    ):
        return None
    lengths = ends - starts
    if lengths.max() > 16:
        return None
    digits = _digits(padded, ends, lengths)
    wholes = np.flatnonzero(~is_fraction)
    scale = np.zeros(len(starts), np.int64)
    scale[fractions - 1] = lengths[fractions]
    scale = scale[wholes]
    if (lengths[wholes] + scale).max() > 18:
        return None
    mantissa = digits[wholes] * _TEN[scale]
    mantissa[scale > 0] += digits[fractions]
    if mantissa.max() > _EXACT:
        return None
    numbers = mantissa / _TEN[scale]
    return np.negative(numbers, out=numbers, where=is_negative[wholes])


def _digits(
    padded: bytes, ends: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the integers of up to 16 digits that end before `ends`."""
    # A window at every byte: word i is the eight bytes from i on.
    windows: NDArray[np.uint64] = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    result = _eight_digits(windows.take(ends - 8), np.minimum(lengths, 8))
    long = np.flatnonzero(lengths > 8)
    upper = _eight_digits(windows.take(ends[long] - 16), lengths[long] - 8)
    result[long] += upper * _TEN[8]
    return result


def _eight_digits(words: NDArray[np.uint64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the integers spelled by the last `lengths` of eight ASCII bytes, first byte lowest."""
    # Bytes before the number become zero digits; then digits are joined in twos, fours and eight.
    shift = ((8 - lengths) * 8).astype(np.uint64)
    digits = (words ^ _ZEROS) >> shift << shift
    pairs = digits * _TEN[1] + (digits >> np.uint64(8))
    upper = (pairs & _PAIRS) * np.uint64(0x000F424000000064)  # 10^6 and 10^2
    lower = (pairs >> np.uint64(16) & _PAIRS) * np.uint64(0x0000271000000001)  # 10^4 and 1
    joined: NDArray[np.uint64] = (upper + lower) >> np.uint64(32)
    return joined
