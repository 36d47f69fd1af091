"""The five networks of the paper and a plain baseline: an objective and label scores each.

`make_model` is the front door; `README.md` in this folder says when to use which.
"""

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeGuard

import torch
from torch import Tensor

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.models.base import ModuleFactory, MultiLabelModel, Step, seeded, wrap
from tailbatch.models.c2ae import C2AE
from tailbatch.models.clif import CLIF
from tailbatch.models.dela import DELA
from tailbatch.models.mlp import MLP
from tailbatch.models.mpvae import MPVAE
from tailbatch.models.paca import PACA

__all__ = [
    "C2AE",
    "CLIF",
    "DELA",
    "MLP",
    "MODELS",
    "MPVAE",
    "PACA",
    "ModuleFactory",
    "MultiLabelModel",
    "Step",
    "check_hyperparameters",
    "make_model",
    "restore_model",
    "seeded",
    "wrap",
]

MODELS: dict[str, type[MultiLabelModel]] = {
    model.name: model for model in (MLP, C2AE, MPVAE, PACA, CLIF, DELA)
}
"""Every model by name."""


def make_model(
    model: str | type[MultiLabelModel] | ModuleFactory,
    train: MultiLabelDataset,
    *,
    seed: int = 0,
    preset: str | None = None,
    **hyperparameters: object,
) -> MultiLabelModel:
    """Build a model for training rows; the same seed gives the same weights.

    Parameters
    ----------
    model
        A name in `MODELS`, a `MultiLabelModel` class, or a function of (n_features, n_labels,
        **hyperparameters) that returns a module from features to logits (see `wrap`).
    train
        The training rows; no other row is ever looked at.
    seed
        Of the initial weights; torch's own random state is left as it was.
    preset
        A name in the model's ``presets``, such as ``"reference"``.
    **hyperparameters
        See the model's class; they win over the preset.

    Examples
    --------
    >>> import numpy as np
    >>> train = MultiLabelDataset.from_arrays(np.eye(4), np.eye(4, 2, dtype=bool))
    >>> make_model("dela", train, latent=8).hyperparameters["latent"]
    8
    >>> make_model("dela", train, latnet=8)
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: dela has no hyperparameter 'latnet'; did you mean 'latent'? ...
    """
    with seeded(seed, "model"):
        kind = _find(model)
        if _is_model_class(kind):
            settings = {**_preset(kind, preset), **hyperparameters}
            _check_names(kind, settings)
            return kind.for_dataset(train, **settings)
        if preset is not None:
            raise ModelError(f"preset {preset!r} is for named models; a factory has none")
        return wrap(kind(train.n_features, train.n_labels, **hyperparameters))


def check_hyperparameters(model: str, hyperparameters: Mapping[str, object]) -> None:
    """Raise unless a named model can be built with these, a preset among them; nothing is allocated.

    Examples
    --------
    >>> check_hyperparameters("mlp", {"objective": "weighted_bce"})
    >>> check_hyperparameters("mlp", {"objective": "weighted"})
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: objective must be one of bce, weighted_bce, asymmetric; got 'weighted'
    """
    kind, settings = _find(model), dict(hyperparameters)
    preset = settings.pop("preset", None)
    if not _is_model_class(kind) or not isinstance(preset, str | None):
        raise ModelError(f"a preset is a name, got {preset!r}")
    settings = {**_preset(kind, preset), **settings}
    _check_names(kind, settings)
    try:
        with seeded(0, "model"), torch.device("meta"):
            kind(1, 1, **settings)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ModelError(f"{model} cannot be built with {settings}: {error}") from None


def restore_model(
    model: str | type[MultiLabelModel] | ModuleFactory,
    n_features: int,
    n_labels: int,
    hyperparameters: Mapping[str, object],
    state: Mapping[str, Tensor],
) -> MultiLabelModel:
    """Rebuild a trained model from its shape, hyperparameters and state, without the data.

    A named model takes the tensors of `state` as they are and allocates none of its own, so
    hyperparameters that claim a giant model cost nothing and fail on the first shape.

    Examples
    --------
    >>> model = CLIF(4, 3, hidden=8)
    >>> again = restore_model("clif", 4, 3, model.hyperparameters, model.state_dict())
    >>> torch.equal(again.predict_proba(torch.eye(4)), model.predict_proba(torch.eye(4)))
    True
    """
    kind = _find(model)
    try:
        if _is_model_class(kind):
            _check_names(kind, hyperparameters)
            with torch.device("meta"):
                built: MultiLabelModel = kind(n_features, n_labels, **hyperparameters)
        else:
            with seeded(0, "model"):
                built = wrap(kind(n_features, n_labels, **hyperparameters))
        built.load_state_dict(state, assign=_is_model_class(kind))
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ModelError(f"the stored model cannot be rebuilt: {error}") from None
    return built


def _find(
    model: str | type[MultiLabelModel] | ModuleFactory,
) -> type[MultiLabelModel] | ModuleFactory:
    if not isinstance(model, str):
        return model
    if model not in MODELS:
        raise ModelError(f"unknown model {model!r}{_nearest(model, MODELS)}")
    return MODELS[model]


def _is_model_class(kind: object) -> TypeGuard[type[MultiLabelModel]]:
    return isinstance(kind, type) and issubclass(kind, MultiLabelModel)


def _preset(kind: type[MultiLabelModel], preset: str | None) -> Mapping[str, object]:
    if preset is None:
        return {}
    if preset not in kind.presets:
        raise ModelError(f"{kind.name} has no preset {preset!r}{_nearest(preset, kind.presets)}")
    return kind.presets[preset]


def _check_names(kind: type[MultiLabelModel], hyperparameters: Mapping[str, object]) -> None:
    known = list(inspect.signature(kind).parameters)[2:]
    for name in hyperparameters:
        if name not in known:
            raise ModelError(f"{kind.name} has no hyperparameter {name!r}{_nearest(name, known)}")


def _nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return f"{guess} There are: {', '.join(known)}"
