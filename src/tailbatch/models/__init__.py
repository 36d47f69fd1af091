"""The models: the paper's five networks, a plain MLP and the default ensemble.

`make_model` is the main entry point; `README.md` in this folder says when to use which.
"""

import inspect
from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError, did_you_mean
from tailbatch.losses import LossLike, empty_loss
from tailbatch.losses.base import named_notice
from tailbatch.models.base import ModuleFactory, MultiLabelModel, Step, over_samples, seeded
from tailbatch.models.c2ae import C2AE
from tailbatch.models.clif import CLIF
from tailbatch.models.dela import DELA
from tailbatch.models.ensemble import Ensemble
from tailbatch.models.finetuned import FineTuned
from tailbatch.models.mlp import MLP
from tailbatch.models.mpvae import MPVAE
from tailbatch.models.paca import PACA
from tailbatch.models.prior import set_prior_bias
from tailbatch.models.sparse_linear import SparseLinear, own_gradients
from tailbatch.models.wrapped import CrossFitted, wrap
from tailbatch.registry import Registry

__all__ = [
    "C2AE",
    "CLIF",
    "DELA",
    "MLP",
    "MODELS",
    "MPVAE",
    "PACA",
    "CrossFitted",
    "Ensemble",
    "FineTuned",
    "ModuleFactory",
    "MultiLabelModel",
    "SparseLinear",
    "Step",
    "check_hyperparameters",
    "make_model",
    "over_samples",
    "own_gradients",
    "register_model",
    "restore_model",
    "seeded",
    "set_prior_bias",
    "wrap",
]

MODELS: Registry[type[MultiLabelModel] | ModuleFactory] = Registry(
    "model", "tailbatch.models", ModelError
)
"""Every model by name; models of other packages come from entry points."""

_Kind = TypeVar("_Kind", bound=type[MultiLabelModel])


def register_model(kind: _Kind) -> _Kind:
    """Register a custom model class under its ``name``, to use wherever a model is named.

    A package does the same for all its users with an entry point in the group ``tailbatch.models``.

    Examples
    --------
    >>> import numpy as np
    >>> @register_model
    ... class Shallow(MLP):
    ...     name = "shallow"
    >>> train = MultiLabelDataset.from_arrays(np.eye(4), np.eye(4, 2, dtype=bool))
    >>> make_model("shallow", train, hidden=[]).name
    'shallow'
    >>> MODELS.remove("shallow")
    """
    if not _is_model_class(kind):
        raise ModelError(
            f"a model is a subclass of tailbatch.models.MultiLabelModel, got {kind!r:.80}; a function "
            "that builds a module needs no registration: pass it directly"
        )
    if kind.name == MultiLabelModel.name:
        raise ModelError(f"{kind.__name__} has no name of its own: set its class attribute name")
    MODELS.add(kind.name, kind)
    return kind


def make_model(
    model: str | type[MultiLabelModel] | ModuleFactory,
    train: MultiLabelDataset,
    *,
    seed: int = 0,
    preset: str | None = None,
    loss: LossLike | None = None,
    **hyperparameters: Any,
) -> MultiLabelModel:
    """Build a model for training rows; the same seed gives the same weights.

    Parameters
    ----------
    model
        A name in `MODELS`, a `MultiLabelModel` class, or a function of (n_features, n_labels,
        **hyperparameters) that returns a module from features to logits (see `wrap`).
    train
        The training rows; no other rows are ever used.
    seed
        Seed of the initial weights; torch's random state is not changed.
    preset
        A name in the model's ``presets``, such as ``"reference"``.
    loss
        The training loss: a name such as ``"weighted_bce"``, a table, or a custom loss, see
        `tailbatch.losses.make_loss`; None is the model's own, usually binary cross-entropy.
    **hyperparameters
        See the model's class; they override the preset.

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
    with seeded(seed, "model"), named_notice(train.label_names):
        kind = _find(model)
        if _is_model_class(kind):
            settings = hyperparameters
            if preset is not None:
                settings = {**_preset(kind, preset), **settings}
            _check_names(kind, settings)
            chosen = {} if loss is None else {"loss": loss}
            built = kind.for_dataset(train, **chosen, **settings)
            if train.missing is not None:
                built.mask_missing_labels()
            return built
        if preset is not None:
            raise ModelError(f"preset {preset!r} is for named models; a factory has none")
        module = kind(train.n_features, train.n_labels, **hyperparameters)
        if loss is None and isinstance(module, MultiLabelModel):
            return wrap(module, missing=train.missing)
        return wrap(module, loss=loss, Y=train.Y, missing=train.missing)


def check_hyperparameters(
    model: str,
    hyperparameters: Mapping[str, Any],
    loss: str | Mapping[str, Any] | None = None,
) -> None:
    """Raise unless a named model can be built with these settings or preset, and takes the loss.

    Nothing is allocated.

    Examples
    --------
    >>> check_hyperparameters("mlp", {"hidden": [8]}, "weighted_bce")
    >>> check_hyperparameters("c2ae", {}, "weighted_bce")
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: c2ae takes no loss, 'weighted_bce' or other: it ranks pairs of labels ...
    """
    kind, settings = _find(model), dict(hyperparameters)
    if not _is_model_class(kind):
        _check_call(model, kind, settings)
        return
    preset = settings.pop("preset", None)
    if not isinstance(preset, str | None):
        raise ModelError(f"a preset is a name, got {preset!r}")
    if preset is not None:
        settings = {**_preset(kind, preset), **settings}
    _check_names(kind, settings)
    try:
        with seeded(0, "model"), torch.device("meta"):
            built = kind(1, 1, **settings)
            if loss is not None:
                built.use_loss(empty_loss(loss))
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ModelError(f"{model} cannot be built with {settings}: {error}") from None


def _check_call(model: str, kind: ModuleFactory, settings: Mapping[str, Any]) -> None:
    """Raise unless a function that builds modules can be called with these settings."""
    try:
        inspect.signature(kind).bind(1, 1, **settings)
    except TypeError as error:
        raise ModelError(f"{model} cannot be called with {dict(settings)}: {error}") from None


def restore_model(
    model: str | type[MultiLabelModel] | ModuleFactory,
    n_features: int,
    n_labels: int,
    hyperparameters: Mapping[str, Any],
    state: Mapping[str, Tensor],
    loss: Mapping[str, Any] | None = None,
) -> MultiLabelModel:
    """Rebuild a trained model from its shape, hyperparameters and state, without the data.

    A named model uses the tensors of `state` directly and allocates none of its own, so hyperparameters
    of a giant model cost nothing and fail on the first shape. `loss` is the table of the loss it was
    trained with, if that was not its own.

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
        if loss is not None:
            built.use_loss(empty_loss(loss, n_labels))
        built.load_state_dict(state, assign=_is_model_class(kind))
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ModelError(f"the stored model cannot be rebuilt: {error}") from None
    return built


def _find(
    model: str | type[MultiLabelModel] | ModuleFactory,
) -> type[MultiLabelModel] | ModuleFactory:
    return MODELS[model] if isinstance(model, str) else model


def _is_model_class(kind: object) -> TypeGuard[type[MultiLabelModel]]:
    return isinstance(kind, type) and issubclass(kind, MultiLabelModel)


def _preset(kind: type[MultiLabelModel], preset: str) -> Mapping[str, object]:
    if preset not in kind.presets:
        raise ModelError(
            f"{kind.name} has no preset {preset!r}{did_you_mean(preset, kind.presets)}"
        )
    return kind.presets[preset]


def _check_names(kind: type[MultiLabelModel], hyperparameters: Mapping[str, object]) -> None:
    known = list(inspect.signature(kind).parameters)[2:]
    for name in hyperparameters:
        if name == "objective" and name not in known:
            raise ModelError(
                f"{kind.name} has no hyperparameter 'objective': the training loss is a separate "
                "setting, loss='weighted_bce'"
            )
        if name not in known:
            raise ModelError(
                f"{kind.name} has no hyperparameter {name!r}{did_you_mean(name, known)}"
            )


for _kind in (MLP, Ensemble, C2AE, MPVAE, PACA, CLIF, DELA):
    register_model(_kind)
