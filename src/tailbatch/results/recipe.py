"""The settings that the estimator, ``tailbatch fit`` and ``compare`` train with where none are named."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailbatch.results.spec import TrainingPlan


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One set of defaults; change `RECIPE` and every door follows.

    Parameters
    ----------
    plan
        How to train. `TrainingPlan`'s own defaults are the paper's.
    loss
        A name, or a table with a name and options; None is the model's own.
    hyperparameters
        What differs from a model's own defaults, by the model's name.
    scale
        How features are scaled, as for `tailbatch.data.fit_scaling`.
    thresholds
        A probability, or ``"tuned"``.
    validation_fraction
        Share of the rows that chooses the epoch.

    Examples
    --------
    >>> RECIPE.plan.lr
    0.001
    """

    plan: TrainingPlan
    loss: str | Mapping[str, Any] | None = None
    hyperparameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scale: bool | str = True
    thresholds: float | str = 0.5
    validation_fraction: float = 0.1

    @property
    def epochs(self) -> int | None:
        """The number of epochs; None where the plan counts steps."""
        return None if self.plan.steps else self.plan.epochs

    def settings_of(self, model: object) -> Mapping[str, Any]:
        """Return the hyperparameters of a model; none for one that is not named here."""
        return self.hyperparameters.get(model, {}) if isinstance(model, str) else {}


RECIPE = Recipe(plan=TrainingPlan(lr=1e-3))
"""The default. At the paper's rate of 1e-4 most models are still learning after 100 epochs, and whatever
shows them the rare labels sooner looks good (see docs/reproduction.md)."""


def default_lr(models: Iterable[object]) -> float:
    """Return the learning rate at which `models` train where none is named; the same for all.

    Examples
    --------
    >>> default_lr(["mlp", "dela"]), default_lr(["mlp", "mpvae"])
    (0.001, 0.001)
    """
    return RECIPE.plan.lr
