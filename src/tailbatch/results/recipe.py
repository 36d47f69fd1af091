"""The default training settings of the estimator, ``tailbatch fit`` and ``compare``."""

from dataclasses import dataclass, replace
from typing import Any

from tailbatch.results.spec import TrainingPlan

DEFAULT_MODEL = "ensemble"
"""The default model."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One set of defaults, the same for every entry point.

    Parameters
    ----------
    plan
        How to train. `TrainingPlan`'s own defaults are the paper's.
    scale
        How features are scaled, as for `tailbatch.data.fit_scaling`.

    Examples
    --------
    >>> recipe_of("ensemble").plan.optimizer, recipe_of("dela").plan.optimizer
    ('adam_mini', 'adam')
    """

    plan: TrainingPlan
    scale: str

    def plan_with(self, **changes: Any) -> TrainingPlan:
        """Return the plan with other settings; None leaves one as it is.

        An explicit number of epochs or steps is exact, on small data too. Of few epochs at most a tenth
        is warm-up, so that selection has epochs to work in.

        Examples
        --------
        >>> recipe_of("ensemble").plan_with(epochs=2, lr=None).n_epochs(n_samples=128)
        2
        >>> recipe_of("mlp").plan_with(epochs=2).warm_up_epochs
        0
        """
        given = {name: value for name, value in changes.items() if value is not None}
        if isinstance(epochs := given.get("epochs"), int):
            given.setdefault("warm_up_epochs", min(self.plan.warm_up_epochs, epochs // 10))
        if given.keys() & {"epochs", "steps"}:
            given.setdefault("min_steps", None)
        return replace(self.plan, **given)


SOUND = Recipe(
    plan=TrainingPlan(
        epochs=5,
        min_steps=1000,
        lr=1e-2,
        optimizer="adam_mini",
        weight_decay=0.03,
        schedule="cosine",
        warm_up_epochs=0,
        best_by="macro_average_precision",
        # At the end only: on a few validation positives the best epoch is luck, and the last one of a
        # cosine was as good or better on the development rows, and steadier from fold to fold.
        evaluate_every=1_000_000,
    ),
    scale="auto",
)
"""The best settings on validation rows of the development datasets, with random batches
(docs/training.md)."""

PAPER = Recipe(plan=TrainingPlan(lr=1e-3), scale="minmax")
"""The paper's plan, for its own models and for custom modules, with a learning rate at which they
converge: at the paper's 1e-4 most are still learning after 100 epochs."""


def recipe_of(*models: object) -> Recipe:
    """Return the settings for models that are trained the same way: names, classes or functions.

    They are the default model's if it is among the models, or if no model is a network.

    Examples
    --------
    >>> recipe_of("mlp", "dela").plan.lr, recipe_of("mlp", "ensemble").plan.lr
    (0.001, 0.01)
    """
    return PAPER if models and DEFAULT_MODEL not in models else SOUND
