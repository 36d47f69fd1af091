"""A short name for what a selector is made of, so that processes can tell whether theirs agree."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse


def digest_of(*values: object) -> str:
    """Return a hexadecimal digest of plain values, arrays, functions and simple objects.

    Functions count by their name, objects by their class and attributes.

    Examples
    --------
    >>> digest_of({"weights": np.ones(3)}) == digest_of({"weights": np.ones(3)})
    True
    >>> digest_of(np.ones(3)) == digest_of(np.ones(3, dtype=np.float32))
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value))
    elif sparse.issparse(value):
        _feed(digest, (value.shape, value.indptr, value.indices, value.data))
    elif isinstance(value, Mapping):
        _feed(digest, sorted(value.items()))
    elif isinstance(value, list | tuple):
        digest.update(f"sequence {len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif value is None or isinstance(value, bool | int | float | str | np.generic):
        digest.update(f"value {value!r}".encode())
    elif hasattr(value, "__qualname__"):
        digest.update(f"function {value.__module__} {value.__qualname__}".encode())
    else:
        digest.update(f"object {type(value).__qualname__}".encode())
        _feed(digest, vars(value))
