"""Named random streams from one seed, and the types of arrays; the host's random state is never touched.

A stream is named by its purpose and by counters such as (epoch, batch). The same name gives the
same numbers no matter what was drawn elsewhere, so resumed and parallel runs agree bit for bit.
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
"""An array of row numbers or counts."""

_WORD = 2**64
_Words: TypeAlias = NDArray[np.uint64] | np.uint64
_LOW = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)


def stream(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Return the generator named by (seed, purpose, counters).

    Parameters
    ----------
    seed
        The one seed of a run, any integer from 0.
    purpose
        What the numbers are for, for instance ``"folds"`` or ``"selection"``.
    *counters
        At most two integers from 0 to 2^64 - 1, for instance epoch and batch number. They are the
        upper words of Philox's counter, so each stream has its own 2^128 blocks.

    Examples
    --------
    >>> stream(0, "folds").integers(100, size=3).tolist()
    [12, 13, 28]
    >>> a, b = stream(0, "batches", 2, 7), stream(0, "batches", 2, 7)
    >>> bool((a.random(5) == b.random(5)).all())
    True
    """
    key, counter = philox_words(seed, purpose, *counters)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))


def philox_words(
    seed: int, purpose: str, *counters: int
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.uint64]], np.ndarray[tuple[int], np.dtype[np.uint64]]
]:
    """Return Philox's key (2 words) and counter (4 words) for a stream; see `stream`."""
    _check_name(seed, counters)
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    words = [0, 0, *([0] * (2 - len(counters))), *counters]
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64), np.array(words, dtype=np.uint64)


def row_uniforms(seed: int, purpose: str, rows: IntArray, epoch: int = 0) -> FloatArray:
    """Return two uniform numbers in [0, 1) for each row, (2, b), which depend on nothing but their name.

    Philox4x32 with ten rounds (Salmon et al., SC 2011), for many counters at once: NumPy's own Philox
    would have to be moved to each row by itself.

    Parameters
    ----------
    seed, purpose
        As for `stream`.
    rows
        Row numbers (b,), any 64-bit integers.
    epoch
        Each epoch has other numbers.

    Examples
    --------
    >>> one, more = (row_uniforms(0, "rows", np.array(rows), epoch=3) for rows in ([7], [5, 7]))
    >>> bool((one[:, 0] == more[:, 1]).all())
    True
    """
    _check_name(seed, (epoch,))
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    key = np.frombuffer(digest, dtype="<u4").astype(np.uint64)
    row, high = rows.astype(np.uint64), np.uint64(32)
    words = (row & _LOW, row >> high, np.uint64(epoch) & _LOW, np.uint64(epoch) >> high)
    a, b, c, d = _philox(words, key)
    eleven = np.uint64(11)  # 53 bits are left, all that a float holds
    pairs = np.stack([((a << high) | b) >> eleven, ((c << high) | d) >> eleven])
    return pairs * 2.0**-53


def _philox(
    words: tuple[_Words, _Words, _Words, _Words], key: NDArray[np.uint64]
) -> tuple[_Words, _Words, _Words, _Words]:
    """Return ten rounds of Philox4x32 on four 32-bit words, each held in 64 bits."""
    a, b, c, d = words
    high = np.uint64(32)
    for number in range(10):
        first, second = (key + np.uint64(number) * _WEYL) & _LOW
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (right >> high) ^ b ^ first, right & _LOW
        c, d = (left >> high) ^ d ^ second, left & _LOW
    return a, b, c, d


def integer_seed(seed: int, purpose: str, *counters: int) -> int:
    """Return a 63-bit integer for libraries that take an integer seed, such as torch.

    Examples
    --------
    >>> integer_seed(0, "model") == integer_seed(0, "model")
    True
    >>> integer_seed(0, "model") == integer_seed(0, "model", 1)
    False
    """
    _check_name(seed, counters)
    # A digest is as independent as a generator's first draw and takes a twentieth of the time.
    name = f"{seed}/{purpose}/{'/'.join(map(str, counters))}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 1


def _check_name(seed: int, counters: tuple[int, ...]) -> None:
    if seed < 0:
        raise ValueError(f"seed must be a whole number from 0, got {seed}")
    if len(counters) > 2 or min(counters, default=0) < 0 or max(counters, default=0) >= _WORD:
        raise ValueError(f"a stream takes at most two counters from 0 to 2^64 - 1, got {counters}")
