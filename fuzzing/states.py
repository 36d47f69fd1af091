"""Selector states, checkpoints and model folders."""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuzzing.rule import Finding, accepted, scratch, written
from tailbatch.data import MultiLabelDataset, Parts
from tailbatch.estimator import TailbatchClassifier
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import STRATEGIES, Selector, make_selector, strategy_settings
from tailbatch.training.checkpoints import _seal, load_checkpoint
from tailbatch.training.progress import Progress

N_SAMPLES, BATCH = 11, 4

_OPTIONS: list[dict[str, Any]] = [
    *({"strategy": strategy} for strategy in STRATEGIES),
    {"strategy": "adaptive", "max_lag": 2},
    {"strategy": "hard", "reference_renewal": "epoch"},
    {"strategy": "adaptive", "cap_quantile": 0.5},
    {"strategy": "adaptive", "corrected": True, "max_lag": 1},
    {"strategy": "importance", "score": "gradient"},
]


@cache
def _data() -> MultiLabelDataset:
    rng = np.random.default_rng(0)
    return MultiLabelDataset.from_arrays(
        rng.random((N_SAMPLES, 3)), rng.random((N_SAMPLES, 2)) > 0.5
    )


def selector_at(which: int, batches: int) -> Selector:
    """Return a selector of some kind after some batches; the last one is pending."""
    options = dict(_OPTIONS[which % len(_OPTIONS)])
    if options["strategy"] in ("adaptive", "chain"):
        options["weights"] = 1.0
    if "X" in strategy_settings(options["strategy"]):
        options["X"] = _data().X
    selector = make_selector(Y=_data().Y, batch_size=BATCH, warm_up_epochs=1, epochs=3, **options)
    draw(selector, batches)
    return selector


def draw(selector: Selector, batches: int) -> None:
    """Draw and observe, and leave the last batch pending."""
    while True:
        for index in selector:
            if not ((index >= 0) & (index < N_SAMPLES)).all():
                raise Finding(f"the batch {index} is out of range")
            batches -= 1
            if batches <= 0:
                return
            selector.importance_weights(index)
            selector.observe(np.column_stack([index % 5, index % 3]) + 0.1, index)


@cache
def _selector(which: int, batches: int) -> tuple[Selector, dict[str, Any], dict[str, Any]]:
    """Return a selector, its state, and a later state; every other one contains tensors."""
    later = selector_at(which, batches + 1)
    saved = later.state_dict()
    selector = selector_at(which, 2)
    selector.load_state_dict(selector.state_dict())
    return selector, selector.state_dict(), saved


def check_selector(data: bytes) -> None:
    """Load a modified state: the bytes choose the selector, then one change after another."""
    edits = iter(data)
    which, batches = next(edits, 0), next(edits, 0) % 7
    selector, start, saved = _selector(which % len(_OPTIONS), batches)
    state: dict[Any, Any] = {key: copy.copy(value) for key, value in saved.items()}
    for key, kind, size in zip(edits, edits, edits, strict=False):
        name = sorted(state)[key % len(state)] if state else "epoch"
        if kind == 0:
            state.pop(name, None)
        else:
            state[name] = _odd_value(kind, size, state.get(name))
    selector.load_state_dict(start)

    def load() -> bool:
        selector.load_state_dict(state)
        return True

    if accepted(load) is None:
        if not _equal(start, selector.state_dict()):
            raise Finding("a refused state has changed the selector")
        return
    accepted(lambda: draw(selector, 4))
    selector.diagnostics()


_SCALARS: list[Any] = [
    0, 1, 2, 3, -1, 7, 2**31, 2**63, 10**30, 0.5, -0.5, float("nan"), float("inf"), None, "", "1", b"1",
    [], [1], [[1]], {}, True, "random", object(),
]  # fmt: skip
_DTYPES = ["i1", "i4", "i8", "u8", "f4", "f8", "c16", "?", "U3", "M8[s]", "O"]
_FILLS: list[Callable[[int], Any]] = [
    lambda n: np.zeros(n), lambda n: np.arange(n), lambda n: -np.arange(n), lambda n: np.full(n, np.nan),
    lambda n: np.full(n, np.inf), lambda n: np.full(n, 1e300), lambda n: np.full(n, 2),
]  # fmt: skip


def _odd_value(kind: int, size: int, old: Any) -> Any:
    """Return a scalar, an array or a tensor chosen by two bytes."""
    if kind < 64:
        return _SCALARS[size % len(_SCALARS)]
    if kind < 96 and isinstance(old, torch.Tensor):
        old = old.numpy()
    if kind < 96 and isinstance(old, np.ndarray) and old.ndim == 1 and old.dtype.kind in "if":
        changed = old.copy()
        changed[size % max(len(old), 1) :][:1] = (-1, 100, 1, 0)[kind % 4]
        return changed
    length = (N_SAMPLES, 0, 1, BATCH, 3, 2 * BATCH, N_SAMPLES + 1)[size % 7]
    with np.errstate(all="ignore"):
        array = _FILLS[size // 7 % len(_FILLS)](length)
        if kind < 128:
            return array.astype(_DTYPES[kind % len(_DTYPES)])
    if kind < 160:
        return array.reshape(1, -1) if kind % 2 else array.sum()
    dtypes = (torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int8)
    tensor = torch.from_numpy(np.nan_to_num(array)).to(dtypes[kind % len(dtypes)])
    return tensor.to_sparse() if kind > 240 else tensor.requires_grad_(tensor.is_floating_point())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        one, other = one.numpy(), other.numpy()
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    return bool(one == other)


def training() -> Progress:
    """Return a small training that has not started."""
    data = _data()
    return Progress(
        TrainingPlan(epochs=3, batch_size=BATCH, warm_up_epochs=1, scheduler="ExponentialLR",
                     scheduler_options={"gamma": 0.5}),
        make_model("mlp", data, seed=0, hidden=(3,)),
        Parts(data, data, data),
        selector_at(4, 0),
        seed=0,
        device=torch.device("cpu"),
    )  # fmt: skip


def _sealed(name: str, data: bytes) -> Path:
    """Return a file with these bytes and a valid seal, so that the check does not end at the seal."""
    path = written(name, data)
    accepted(lambda: load_checkpoint(path))
    accepted(lambda: _seal(path))
    return path


def check_checkpoint(data: bytes) -> None:
    """Read a checkpoint, and resume training from it."""
    path = _sealed("checkpoint.safetensors", data)
    state = accepted(lambda: load_checkpoint(path))
    if state is not None and "settings" in state:
        accepted(lambda: training().resume(path))


def check_model(data: bytes) -> None:
    """Read the folder of a fitted classifier, and predict with it."""
    _sealed("classifier.safetensors", data)
    classifier = accepted(lambda: TailbatchClassifier.load(scratch(), device="cpu"))
    if classifier is not None:
        for X in _features(classifier.n_features_in_):
            scores = classifier.predict_proba(X)
            if not np.isfinite(scores).all():
                raise Finding("scores that are no numbers")
            classifier.predict(X)


def _features(width: int) -> Iterator[np.ndarray]:
    yield np.zeros((2, width))
    yield np.linspace(0, 1, 2 * width).reshape(2, width)
