"""Checkpoints: a training's whole state in one safetensors file, and what must agree to continue it.

The tensors are the file's tensors; everything else is JSON in its header, so nothing that is read can
execute code. The JSON begins with a seal: the SHA-256 of the whole file, computed with zeros in place of
the seal. Any changed bit is therefore detected before anything in the file is used.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tailbatch.errors import TrainingError
from tailbatch.files import replacing
from tailbatch.losses import LOSSES, Loss
from tailbatch.training.progress import Progress

VERSION = 2
# Raised by values of the wrong kind, when a readable file was made for something else.
MALFORMED = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
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
    """Write the SHA-256 of a checkpoint into the space reserved for it."""
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
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _flatten(item, tensors) for key, item in value.items()}
        return {_ITEMS: [[key, _flatten(item, tensors)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_flatten(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_flatten(item, tensors) for item in value]
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


# ---- a training's state --------------------------------------------------------------------------


def save_training(path: Path, progress: Progress) -> None:
    """Write a checkpoint from which `resume_training` continues bit for bit."""
    save_checkpoint(path, {"settings": _settings(progress), **progress.state_dict()})


def resume_training(path: Path, progress: Progress) -> None:
    """Continue from a checkpoint of the same training; another is refused, and changes nothing."""
    state = load_checkpoint(path)
    try:
        _refuse_other_settings(state["settings"], _settings(progress))
        _refuse_other_weights(state["model"], progress.model)
        if state["best_weights"]:
            _refuse_other_weights(state["best_weights"], progress.model)
        progress.load_state_dict(state)
        _refuse_other_shapes(progress.optimizer)
        # The caller's objects come last: whatever was refused has not changed them.
        progress.selector.load_state_dict(state["selector"])
        progress.model.load_state_dict(state["model"])
    except MALFORMED as error:
        raise TrainingError(
            f"{path} belongs to a different training run ({error}): choose another folder, or remove it"
        ) from error


def _settings(progress: Progress) -> dict[str, Any]:
    """Return what two trainings must share for one to continue the other."""
    model, weight, part = progress.model, progress.sample_weight, progress.part
    return {
        "seed": progress.seed,
        "model": model.name,
        **model.hyperparameters,
        **_loss_settings(model.loss),
        **asdict(progress.plan),
        "data": progress.parts.train.digest,
        "sample_weight": None if weight is None else hashlib.sha256(weight.tobytes()).hexdigest(),
        "part": None if part is None else hashlib.sha256(part.cpu().numpy().tobytes()).hexdigest(),
    }


def _loss_settings(loss: nn.Module | None) -> dict[str, Any]:
    """Return a loss's name and options; the name of a custom loss is that of its class."""
    if loss is None:
        return {"loss": None}
    kind = type(loss)
    is_known = isinstance(loss, Loss) and loss.name in LOSSES and LOSSES[loss.name] is kind
    name = loss.name if is_known else f"{kind.__module__}.{kind.__qualname__}"
    options = loss.options if isinstance(loss, Loss) else {}
    return {"loss": name, **{f"loss__{key}": _plain(value) for key, value in options.items()}}


def _plain(value: Any) -> Any:
    """Return an option as values that a checkpoint holds and that compare; functions by name."""
    if hasattr(value, "tolist"):  # an array, a tensor or one of their numbers
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return getattr(value, "__qualname__", type(value).__qualname__)


def _refuse_other_settings(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in wanted | saved:  # in this order, so that a loss is named before its options
        if saved.get(name) != wanted.get(name):
            raise ValueError(f"its {name} is {saved.get(name)}, this one's is {wanted.get(name)}")


def _refuse_other_weights(saved: dict[str, Tensor], model: nn.Module) -> None:
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    for name in shapes.keys() | saved.keys():
        if name not in saved or name not in shapes or saved[name].shape != shapes[name]:
            raise ValueError(f"its weights {name!r} do not fit the model")


def _refuse_other_shapes(optimizer: torch.optim.Optimizer) -> None:
    """Raise if the moments' shapes do not match the weights; torch itself never checks this."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            # A moment has one number per weight, or one that is shared along an axis.
            fits = value.ndim == parameter.ndim and all(
                m in (1, w) for m, w in zip(value.shape, parameter.shape, strict=True)
            )
            if name not in ("step", "decay") and not fits:
                raise ValueError(
                    f"its {name} has shape {tuple(value.shape)}, the weight {tuple(parameter.shape)}"
                )
