"""Checkpoints: nested values, arrays and tensors in one safetensors file.

The tensors are the file's tensors; everything else is JSON in its header, so nothing that is read can
execute code. The JSON begins with a seal: the SHA-256 of the whole file, computed with zeros in place of
the seal. Any changed bit is therefore detected before anything in the file is used.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tailbatch.errors import TrainingError
from tailbatch.files import replacing

VERSION = 2
MALFORMED = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
"""Raised by values of the wrong kind, when a readable file was made for something else."""

_HEADER = "tailbatch"
_BLANK = "0" * 64
_MARK = rb'{"__metadata__":{"tailbatch":"{\"seal\": \"'
_LENGTH = 8  # bytes of a safetensors file before its header
_SEAL_AT = _LENGTH + len(_MARK)
_TENSOR, _ARRAY, _ITEMS, _TUPLE = "$tensor", "$array", "$items", "$tuple"


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a nested state of plain values, arrays and tensors, replacing the file atomically.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "checkpoint.safetensors"
    >>> save_checkpoint(path, {"step": 3, "moments": {0: torch.ones(2)}, "seen": np.arange(2)})
    >>> load_checkpoint(path)
    {'step': 3, 'moments': {0: tensor([1., 1.])}, 'seen': array([0, 1])}
    """
    tensors: dict[str, Tensor] = {}
    plain = _flatten(dict(state), tensors)
    header = {_HEADER: json.dumps({"seal": _BLANK, "version": VERSION, "state": plain})}
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=header)
        except SafetensorError as error:
            raise _system_error(error, path) from error
        _seal(temporary)


def _seal(path: Path) -> None:
    seals = _seals(path)
    if seals is None:
        raise TrainingError(f"{path} has no place for a seal: it is not a checkpoint")
    with path.open("r+b") as file:
        file.seek(_SEAL_AT)
        file.write(seals[1])


def _seals(path: Path) -> tuple[bytes, bytes] | None:
    """Return the seal a file carries and the one it should carry; None without space for one."""
    with path.open("rb") as file:
        head, sealed = file.read(_SEAL_AT), file.read(len(_BLANK))
        if head[_LENGTH:] != _MARK or len(sealed) != len(_BLANK):
            return None
        digest = hashlib.sha256(head + _BLANK.encode())
        return sealed, hashlib.file_digest(file, lambda: digest).hexdigest().encode()


def _system_error(error: SafetensorError, path: Path) -> Exception:
    """Return the system error that the library only quotes, so that a full disk is reported as one."""
    quoted = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(number := int(quoted[1]), os.strerror(number), str(path)) if quoted else error


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote; anything else is an error that names the file."""
    seals = _seals(path)
    if seals is not None and seals[0] != seals[1]:
        raise TrainingError(
            f"{path} is damaged: its content does not match its SHA-256. Restore it from a copy, or "
            "remove it and start over"
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            if header["version"] != VERSION:
                raise TrainingError(
                    f"{path} is a checkpoint of version {header['version']}, this package reads "
                    f"version {VERSION}: resume with the version that wrote it, or start over"
                )
            if seals is None:
                raise ValueError("it has no seal")
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        state = _restore(header["state"], tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrainingError(
            f"{path} is not a checkpoint of this package ({type(error).__name__}): "
            "remove it and start over"
        ) from error
    if not isinstance(state, dict):
        raise TrainingError(f"{path} holds no training state: remove it and start over")
    return state


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Move arrays and tensors into `tensors`, leaving JSON values and references behind."""
    if isinstance(value, np.ndarray):
        return {_ARRAY: _flatten(torch.from_numpy(np.ascontiguousarray(value)), tensors)[_TENSOR]}
    if isinstance(value, Tensor):
        name = f"t{len(tensors)}"
        # Clones, because tensors that share memory cannot be stored under two names.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        items = [[key, _flatten(item, tensors)] for key, item in value.items()]
        named = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(items) if named else {_ITEMS: items}
    if isinstance(value, tuple | list):
        listed = [_flatten(item, tensors) for item in value]
        return {_TUPLE: listed} if isinstance(value, tuple) else listed
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TrainingError(f"a checkpoint holds plain values and arrays, not a {type(value).__name__}")


def _restore(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Undo `_flatten`."""
    if isinstance(value, list):
        return [_restore(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _ARRAY in value:
        return tensors[value[_ARRAY]].numpy()
    if _TUPLE in value:
        return tuple(_restore(item, tensors) for item in value[_TUPLE])
    if _ITEMS in value:
        return {key: _restore(item, tensors) for key, item in value[_ITEMS]}
    return {key: _restore(item, tensors) for key, item in value.items()}
