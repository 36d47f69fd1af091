"""What a selector is made of, in short: for processes to agree on, and for saved states to name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import as_array

_MOST_SHOWN = 60  # characters of a value in a message


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


def described(settings: Mapping[str, object]) -> str:
    """Return settings as JSON: plain values as they are, arrays and objects by a digest.

    Examples
    --------
    >>> described({"selection_pressure": 16.0, "score": described})
    '{"score": "tailbatch.selection.digest.described", "selection_pressure": 16.0}'
    """
    return json.dumps(
        {name: _description(value) for name, value in settings.items()}, sort_keys=True
    )


def refuse_other_settings(saved: object, own: str) -> None:
    """Refuse a saved state whose settings, as `described`, are not a selector's own.

    Examples
    --------
    >>> refuse_other_settings(described({"power": 1}), described({"power": 0.5}))
    Traceback (most recent call last):
    ...
    tailbatch.errors.SelectionError: the state was saved with power 1, this selector has 0.5: ...
    """
    if isinstance(saved, str) and saved == own:
        return
    try:
        before = json.loads(saved) if isinstance(saved, str) else None
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise SelectionError(
            "the saved state does not say its 'settings': it is not a state of this selector"
        )
    now = json.loads(own)
    # What can be read comes first.
    names = sorted(
        before.keys() | now.keys(), key=lambda name: ("digest" in str(now.get(name)), name)
    )
    refuse_other_values({name: (before.get(name), now.get(name)) for name in names})


def refuse_other_values(pairs: Mapping[str, tuple[object, object]]) -> None:
    """Refuse pairs of a saved value and a selector's own that are not equal, naming them."""
    other = [
        f"with {name} {_shown(saved)}, this selector has {_shown(own)}"
        for name, (saved, own) in pairs.items()
        if saved != own
    ]
    if other:
        raise SelectionError(
            f"the state was saved {', '.join(other)}: make the selector as it was when the state "
            "was saved"
        )


def _description(value: Any) -> bool | int | float | str | None:
    """Return a setting as a plain value; what is none is named by its digest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return _description(value.item())
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    name = type(value).__qualname__
    if is_dataclass(value):
        parts = (f"{f.name}={_shown(_description(getattr(value, f.name)))}" for f in fields(value))
        return f"{name}({', '.join(parts)})"
    if hasattr(value, "shape"):
        name = " x ".join(map(str, value.shape)) + " values"
    return f"{name}, digest {digest_of(value)[:16]}"


def _shown(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 16.0 and 16 are one setting
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _feed(digest: Any, value: Any) -> None:
    if hasattr(value, "detach"):
        value = as_array(value)
    if isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value))
    elif sparse.issparse(value):
        places = (part.astype(np.int64) for part in (value.indptr, value.indices))
        _feed(digest, (value.shape, *places, value.data))
    elif isinstance(value, Mapping):
        _feed(digest, sorted(value.items()))
    elif isinstance(value, list | tuple):
        digest.update(f"sequence {len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif value is None or isinstance(value, bool | int | float | str | np.generic):
        digest.update(f"value {value!r}".encode())
    elif isinstance(value, partial):
        _feed(digest, (value.func, value.args, value.keywords))
    elif hasattr(value, "__qualname__"):
        digest.update(f"function {value.__module__} {value.__qualname__}".encode())
    else:
        digest.update(f"object {type(value).__qualname__}".encode())
        _feed(digest, getattr(value, "__dict__", {}))
