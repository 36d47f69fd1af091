"""From an estimator's settings to a training: plan, loss, model, selector, trainer."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailbatch.data import Parts
from tailbatch.errors import DataError, ModelError, TrainingError
from tailbatch.estimator.history import EpochTable
from tailbatch.estimator.settings import PLANNED, check_plan_fields
from tailbatch.losses import Loss, LossLike, loss_table
from tailbatch.metrics import METRICS
from tailbatch.models import MultiLabelModel, make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Trainer, Training, check_scheduler

if TYPE_CHECKING:
    from tailbatch.estimator.classifier import TailbatchClassifier

PRESSURES = (2.0, 8.0, 16.0, 64.0)
"""What ``selection_pressure="auto"`` tries, as in the paper."""


class TrainingRows(NamedTuple):
    """What a training is made from."""

    parts: Parts
    sample_weight: NDArray[np.float64] | None
    positive_weights: NDArray[np.float64] | None
    """(q,) what `class_weight` says."""
    seed: int


class Attempt(NamedTuple):
    """A training and what it was trained with."""

    pressure: float | str | None
    model: MultiLabelModel
    training: Training


def plan_of(classifier: "TailbatchClassifier") -> TrainingPlan:
    """Return the training plan that an estimator's settings ask for."""
    nested = classifier._nested("plan__")
    check_plan_fields(nested)
    given = {name: getattr(classifier, name) for name in PLANNED}
    # A pass over all training rows for numbers that are read only where asked for.
    given["training_loss_every"] = 0
    try:
        budget = {name: nested[name] for name in ("steps",) if name in nested}
        if nested.get("early_stopping") is not None:
            nested.setdefault("evaluate_every", 1)  # nothing can be stopped by one evaluation
        plan = replace(TrainingPlan.suited_to(classifier.model, **given | budget), **nested)
    except TypeError as error:
        raise TrainingError(f"a setting of the training plan does not fit: {error}") from error
    if plan.scheduler is not None:
        check_scheduler(plan)
    return plan


def best_training(
    classifier: "TailbatchClassifier",
    rows: TrainingRows,
    plan: TrainingPlan,
    start: MultiLabelModel | None,
) -> Attempt:
    """Train with the pressure asked for, or with each of `PRESSURES`, and keep the best.

    Parameters
    ----------
    classifier
        Whose settings to use.
    rows, plan
        What to train on, and how.
    start
        A model whose weights to start from; None starts from new ones.
    """
    if classifier.selection_pressure != "auto":
        return _train(classifier, rows, plan, start, classifier.selection_pressure)
    if rows.parts.validation.n_samples == 0:
        raise DataError(
            'selection_pressure="auto" needs validation rows: set validation_fraction above 0'
        )
    attempts = (_train(classifier, rows, plan, start, pressure) for pressure in PRESSURES)
    return max(attempts, key=lambda attempt: _validation_score(attempt, plan.best_by))


def _train(
    classifier: "TailbatchClassifier",
    rows: TrainingRows,
    plan: TrainingPlan,
    start: MultiLabelModel | None,
    pressure: Any,
) -> Attempt:
    train, seed = rows.parts.train, rows.seed
    model = make_model(
        classifier.model,
        train,
        seed=seed,
        loss=_loss(classifier, rows.positive_weights),
        **classifier._nested("model__"),
    )
    if start is not None:
        _start_from(start, model)
    selector = make_selector(
        classifier.strategy,
        train.Y,
        X=train.X,
        batch_size=plan.batch_size,
        selection_pressure=pressure,
        warm_up_epochs=plan.warm_up_epochs,
        epochs=plan.n_epochs(train.n_samples),
        seed=seed,
        loss=model.loss,
        **classifier._nested("strategy__"),
    )
    table = [EpochTable(plan.best_by)] if classifier.verbose else []
    trainer = Trainer(
        plan,
        seed=seed,
        device=classifier.device,
        callbacks=(*classifier.callbacks, *table),
        checkpoint=_checkpoint(classifier, pressure),
        metrics=(),
    )
    training = trainer.fit(model, rows.parts, selector, sample_weight=rows.sample_weight)
    return Attempt(pressure, model, training)


def _loss(
    classifier: "TailbatchClassifier", positive_weights: NDArray[np.float64] | None
) -> LossLike | None:
    """Return the loss with its nested options; a ready one as a copy, since it may learn, too."""
    loss, options = classifier.loss, classifier._nested("loss__")
    if positive_weights is not None:
        if options or loss not in (None, "bce"):
            raise ModelError(
                "class_weight weights the positives of binary cross-entropy, and "
                f"loss={loss!r:.60} has weights of its own: leave one of them out"
            )
        return {"name": "weighted_bce", "weights": positive_weights.tolist()}
    if not options:
        return copy.deepcopy(loss) if isinstance(loss, Loss) else loss
    if not isinstance(loss, str | Mapping):
        raise ModelError(
            f"loss__{min(options)} needs a loss by name, such as loss='weighted_bce', "
            f"got loss={loss!r:.60}"
        )
    name, given = loss_table(loss)
    return {"name": name, **given, **options}


def _checkpoint(classifier: "TailbatchClassifier", pressure: float | None) -> Path | None:
    if classifier.checkpoint_folder is None:
        return None
    name = f"training-{pressure:g}" if classifier.selection_pressure == "auto" else "training"
    return Path(classifier.checkpoint_folder) / f"{name}.safetensors"


def _start_from(earlier: MultiLabelModel, model: MultiLabelModel) -> None:
    """Give a model the weights of an earlier one; its loss stays its own, made for the new rows."""
    weights = {
        name: value for name, value in earlier.state_dict().items() if not name.startswith("loss.")
    }
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    for name, value in weights.items():
        if shapes.get(name) != value.shape:
            raise ModelError(
                f"warm_start continues with the model of the earlier fit, whose {name} has shape "
                f"{tuple(value.shape)}: keep features, labels and model, or set warm_start=False"
            )
    model.load_state_dict(weights, strict=False)


def _validation_score(attempt: Attempt, best_by: str) -> float:
    """Return how good an attempt is; higher is better."""
    score = attempt.training.best.validation[best_by]
    if math.isnan(score):
        return -math.inf
    return score if METRICS[best_by].higher_is_better else -score
