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
