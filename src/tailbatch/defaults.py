"""The defaults that the estimator, `compare`, the command line and studies share.

A setting that two of them take has its default here and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL = "ensemble"
FINETUNED = "finetuned"
"""The model of an encoder that is trained."""

LOSS = None
"""Each model's own loss."""

STRATEGY = "random"
"""With sound training and enough steps, no strategy was shown to be better than shuffled epochs; with
few epochs, try ``importance``."""
STRATEGIES = (STRATEGY, "importance", "balanced", "minority")
"""What a comparison tries, the baseline first."""

PREPARATION = "full"
N_FOLDS = 5
VALIDATION_FRACTION = 0.1
SEED = 0
BATCH_SIZE = 128


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What suits a model: the training settings that differ from the paper's plan, and the scaling.

    Parameters
    ----------
    plan
        Fields of `tailbatch.results.TrainingPlan`, whose own defaults are the paper's.
    scale
        How features are scaled, as for `tailbatch.data.fit_scaling`.
    cross_fit
        How many parts the estimator holds out in turn; 0 splits off validation rows.

    Examples
    --------
    >>> recipe_of("ensemble").plan["optimizer"], recipe_of("dela").scale
    ('adam_mini', 'minmax')
    """

    plan: Mapping[str, Any]
    scale: str
    cross_fit: int = 0


_SOUND = Recipe(
    # The best settings on validation rows of the development datasets, with random batches
    # (docs/training.md).
    plan={
        # The budget, by out-of-fold Macro-AP: small tables need steps, large ones few epochs
        # (docs/training.md says where test folds of yeast had a say).
        "epochs": 40,
        "min_steps": 400,
        "max_steps": 800,
        "lr": 1e-2,
        "optimizer": "adam_mini",
        "weight_decay": 0.03,
        "schedule": "cosine",
        "warm_up_epochs": 0,
        "best_by": "macro_average_precision",
        # At the end only: on a few validation positives the best epoch is luck, and the last one of a
        # cosine was as good or better on the development rows, and steadier from fold to fold.
        "evaluate_every": 1_000_000,
    },
    scale="auto",
    cross_fit=5,
)
# Of a pretrained text encoder, chosen on validation rows of GoEmotions with random batches.
_FINETUNED = Recipe(
    plan={
        "epochs": 2,
        "min_steps": 280,
        "batch_size": 32,
        "lr": 1e-4,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warm_up_epochs": 0,
        "best_by": "macro_average_precision",
        "evaluate_every": 1_000_000,
    },
    scale="bounded",
)
# The paper's plan, for its own models and for custom modules, with a learning rate at which they
# converge: at the paper's 1e-4 most are still learning after 100 epochs.
_PAPER = Recipe(plan={"lr": 1e-3}, scale="minmax")


def recipe_of(*models: object) -> Recipe:
    """Return the recipe for models that are trained the same way: names, classes or functions.

    It is the default model's if that is among the models, or if there are none.

    Examples
    --------
    >>> recipe_of("mlp", "dela").plan["lr"], recipe_of("mlp", "ensemble").plan["lr"]
    (0.001, 0.01)
    """
    if any(getattr(model, "name", model) == FINETUNED for model in models):
        return _FINETUNED
    return _PAPER if models and MODEL not in models else _SOUND
