"""Settings by name: nested ones such as ``model__latent``, and a suggestion for those there are not."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Self

from sklearn.base import BaseEstimator

from tailbatch.errors import ModelError, TrainingError, closest, did_you_mean
from tailbatch.losses import LOSSES, loss_table
from tailbatch.losses.base import refuse_weights
from tailbatch.metrics import METRICS
from tailbatch.models import MODELS, MultiLabelModel
from tailbatch.registry import check_known
from tailbatch.results import TrainingPlan
from tailbatch.selection import STRATEGIES

NESTED = ("model__", "loss__", "strategy__", "plan__")
"""What the names of nested settings begin with."""

PLANNED = ("epochs", "batch_size", "lr", "weight_decay", "warm_up_epochs")
"""Fields of the training plan that are settings of the classifier, and nowhere else."""

_PLAN = tuple(field.name for field in fields(TrainingPlan))


class NestedSettings(BaseEstimator):  # type: ignore[misc] # no stubs
    """Scikit-learn's parameters, with nested ones that the constructor takes as ``**model__options``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, nested ones such as ``model__latent`` included."""
        params: dict[str, Any] = super().get_params(deep=deep)
        return params | {key: vars(self)[key] for key in vars(self) if key.startswith(NESTED)}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, nested ones such as ``model__latent`` included."""
        nested = {key: value for key, value in params.items() if key.startswith(NESTED)}
        plain = {key: value for key, value in params.items() if key not in nested}
        for key in plain:
            if key not in self._get_param_names():
                raise ValueError(self._unknown(key))
        super().set_params(**plain)
        self._set_nested(nested)
        return self

    def _set_nested(self, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            if not key.startswith(NESTED):
                raise TypeError(self._unknown(key))
            setattr(self, key, value)

    def _nested(self, prefix: str) -> dict[str, Any]:
        settings = self.get_params(deep=False)
        return {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}

    def _unknown(self, name: str) -> str:
        """Return what to say of a setting that does not exist."""
        own = list(self._get_param_names())
        guess = _suggestion(name, own, getattr(self, "model", "mlp"))
        return (
            f"{type(self).__name__} has no setting {name!r}"
            + (f"; did you mean {guess!r}?" if guess else ".")
            + f" Nested settings begin with {', '.join(NESTED)}"
        )


def check_plan_fields(names: Iterable[str]) -> None:
    """Raise unless the training plan has these fields, and they are no settings of the classifier.

    Examples
    --------
    >>> check_plan_fields(["patience"])
    Traceback (most recent call last):
    ...
    tailbatch.errors.TrainingError: the training plan has no field 'patience'; did you mean ...
    """
    for name in names:
        if name in PLANNED:
            raise TrainingError(f"plan__{name} is the setting {name}: write {name}=... instead")
        if name not in _PLAN:
            raise TrainingError(
                f"the training plan has no field {name!r}{did_you_mean(name, _PLAN)}"
            )


def check_best_by(name: object) -> None:
    """Raise unless the epoch is chosen by a metric there is.

    Examples
    --------
    >>> check_best_by("macro_auk")
    Traceback (most recent call last):
    ...
    tailbatch.errors.TrainingError: unknown plan__best_by 'macro_auk'; did you mean 'macro_auc'? ...
    """
    check_known("plan__best_by", name, METRICS, error=TrainingError)


def check_weighable(
    model: object, loss: object, strategy: object, options: Mapping[str, Any], sample_weight: object
) -> None:
    """Raise if samples are to be weighted, by draws or by the user, and the objective compares them.

    `tailbatch.losses.base.refuse_weights` says so in training as well, but after a warm-up.

    Examples
    --------
    >>> check_weighable("mlp", "two_way", "hard", {}, None)
    >>> check_weighable("mlp", "two_way", "hard", {"corrected": True}, None)
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: two_way cannot be trained with corrected selection or weights of ...
    """
    maker = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
    weights = sample_weight
    if options.get("corrected") or getattr(maker, "corrected", False) is True:
        weights = maker
    kinds = [MODELS[model] if isinstance(model, str) else model]
    kinds.append(LOSSES[loss_table(loss)[0]] if isinstance(loss, str | Mapping) else loss)
    for kind in kinds:
        if getattr(kind, "compares_samples", ""):
            refuse_weights(kind, weights)


def _suggestion(name: str, own: list[str], model: object) -> str | None:
    """Return the setting that a wrong name probably means, if there is one."""
    known = {field: f"plan__{field}" for field in _PLAN}
    known |= {option: f"model__{option}" for option in _hyperparameters(model)}
    known |= {setting: setting for setting in own}
    near = name if name in known else closest(name, known)
    return known[near] if near else None


def _hyperparameters(model: object) -> list[str]:
    try:
        kind = MODELS[model] if isinstance(model, str) else model
    except ModelError:
        return []
    if not (isinstance(kind, type) and issubclass(kind, MultiLabelModel)):
        return []
    return list(inspect.signature(kind).parameters)[2:]
