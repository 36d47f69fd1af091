"""One run from data to record."""

import logging
import math
import platform
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from tailbatch.classical import CLASSICAL, make_classical
from tailbatch.data import MultiLabelDataset, Parts
from tailbatch.data.preparation import is_whole
from tailbatch.imbalance import label_counts, selection_weights
from tailbatch.metrics import (
    METRICS,
    auc_by_label,
    average_precision_by_label,
    decide,
    evaluate,
    f_by_label,
    tune_thresholds,
)
from tailbatch.models import MultiLabelModel, make_model, seeded
from tailbatch.registry import qualified_name
from tailbatch.results import RunRecord, RunSpec
from tailbatch.selection import Geometric, Selector, make_selector, strategy_settings
from tailbatch.study.sources import Custom, Source, parts_of
from tailbatch.training import Callback, LabeledRows, Rows, Trainer, Training, score_rows

_PACKAGES = ("tailbatch", "torch", "numpy", "scipy", "scikit-learn")

_log = logging.getLogger(__name__)
_weights: dict[tuple[str, ...], np.ndarray] = {}


def run(
    spec: RunSpec,
    *,
    source: Source | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
    callbacks: Sequence[Callback] = (),
) -> tuple[RunRecord, dict[str, np.ndarray]]:
    """Do a run on one thread; return its record and its bulky arrays, as ``store.add`` takes them.

    Everything but times and machine facts is a function of the spec alone, bit for bit, whichever
    process does it and however often it is interrupted.

    Parameters
    ----------
    spec
        What to do.
    source
        Where the dataset is; by default the dataset of that name in the catalog.
    checkpoint, checkpoint_every
        File to save to and, if it exists, to resume from; and the epochs between two checkpoints.
    callbacks
        Listeners to the training.

    Examples
    --------
    >>> from tailbatch.data import load_dataset
    >>> from tailbatch.results import TrainingPlan
    >>> digest = load_dataset("debtags").digest
    >>> record, _ = run(RunSpec(dataset="debtags", dataset_digest=digest, plan=TrainingPlan(epochs=1)))
    >>> 0 < record.test["macro_auc"] < 1
    True
    """
    with _one_thread():
        parts = parts_of(spec, source or Source(spec.dataset))
        if spec.model in CLASSICAL:
            return _without_batches(spec, parts), {}
        model = make_model(
            spec.model,
            parts.train,
            seed=spec.seed,
            loss=spec.loss and {"name": spec.loss, **spec.loss_options},
            **spec.hyperparameters,
        )
        selector = _selector(spec, parts.train, model.loss)
        trainer = Trainer(
            spec.plan,
            seed=spec.seed,
            callbacks=callbacks,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )
        training = trainer.fit(model, parts, selector)
        return _record(spec, parts, model, training), _arrays(spec, parts, model, training)


def _selector(spec: RunSpec, train: MultiLabelDataset, loss: object) -> Selector:
    pressure = spec.selection_pressure
    return make_selector(
        spec.strategy,
        train.Y,
        X=train.X,
        batch_size=spec.plan.batch_size,
        selection_pressure=Geometric(*pressure) if isinstance(pressure, tuple) else pressure,
        warm_up_epochs=spec.plan.warm_up_epochs,
        seed=spec.seed,
        epochs=spec.plan.n_epochs(train.n_samples),
        loss=loss,
        **{**_weight_option(spec, train), **spec.strategy_options},
    )


def _weight_option(spec: RunSpec, train: MultiLabelDataset) -> dict[str, Any]:
    """Return the selection weights if the strategy takes them, computed once per fold."""
    if "weights" not in strategy_settings(spec.strategy) or "weights" in spec.strategy_options:
        return {}
    fold = (spec.dataset_digest, spec.preparation, str(spec.n_folds), str(spec.fold))
    if fold not in _weights:
        _weights.clear()  # runs of one fold follow each other
        _weights[fold] = selection_weights(train.X, train.Y)
    return {"weights": _weights[fold]}


def _without_batches(spec: RunSpec, parts: Parts) -> RunRecord:
    """Return the record of a learner without epochs: its scores, and the settings it chose."""
    start = time.perf_counter()
    learned = make_classical(spec.model, spec.hyperparameters).learn(parts, seed=spec.seed)
    return _scored_record(
        spec,
        parts,
        learned.validation,
        learned.test,
        history=(),
        best_epoch=0,
        warm_up_digest="",
        diagnostics={"chosen": learned.chosen},
        seconds=time.perf_counter() - start,
    )


def _record(spec: RunSpec, parts: Parts, model: MultiLabelModel, training: Training) -> RunRecord:
    return _scored_record(
        spec,
        parts,
        _scores(model, parts.validation),
        _scores(model, parts.test),
        exposure=training.label_exposure,
        history=tuple(asdict(epoch) for epoch in training.epochs),
        best_epoch=training.best_epoch,
        warm_up_digest=training.warm_up_digest,
        diagnostics=_diagnostics(spec, parts.train, training),
        max_lag=training.diagnostics.lag,
        seconds=training.epochs[-1].seconds,
    )


def _scored_record(
    spec: RunSpec,
    parts: Parts,
    on_validation: np.ndarray,
    on_test: np.ndarray,
    *,
    exposure: np.ndarray | None = None,
    **facts: Any,
) -> RunRecord:
    """Return the record of scores; `facts` are its other fields."""
    thresholds = tune_thresholds(parts.validation.Y, on_validation)
    # Benchmark data is measured as the paper's script does it, too.
    names = None if is_whole(spec.preparation) else METRICS
    measured = partial(_metrics, minority=parts.minority, thresholds=thresholds, only=names)
    return RunRecord(
        spec=spec,
        validation=measured(parts.validation, on_validation),
        test=measured(parts.test, on_test),
        labels=_labels(parts, on_test, exposure),
        **facts,
        versions={
            **{name: version(name) for name in _PACKAGES},
            "python": platform.python_version(),
        },
        machine={"system": platform.system(), "processor": platform.machine()},
    )


def _scores(model: MultiLabelModel, rows: MultiLabelDataset) -> np.ndarray:
    return score_rows(model.predict_proba, Rows(rows.X, model=model))


def _metrics(
    rows: MultiLabelDataset,
    scores: np.ndarray,
    *,
    minority: np.ndarray,
    thresholds: np.ndarray,
    only: Collection[str] | None,
) -> dict[str, float]:
    """Return the metrics, and with tuned thresholds those that depend on them."""
    decided = [name for name, metric in METRICS.items() if metric.needs == "predictions"]
    tuned = evaluate(rows.Y, scores, minority=minority, thresholds=thresholds, only=decided)
    return evaluate(rows.Y, scores, minority=minority, only=only) | {
        f"tuned_{name}": value for name, value in tuned.items()
    }


def _labels(
    parts: Parts, scores: np.ndarray, exposure: np.ndarray | None
) -> tuple[dict[str, Any], ...]:
    n_labels = parts.train.n_labels
    columns = {
        "name": parts.train.label_names,
        "positives": label_counts(parts.train.Y).tolist(),
        "minority": parts.minority.tolist(),
        "f": f_by_label(parts.test.Y, decide(scores)).tolist(),
        "auc": auc_by_label(parts.test.Y, scores).tolist(),
        "average_precision": average_precision_by_label(parts.test.Y, scores).tolist(),
        "exposure": [None] * n_labels if exposure is None else exposure.tolist(),
    }
    return tuple(
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    )


def _diagnostics(spec: RunSpec, train: MultiLabelDataset, training: Training) -> dict[str, Any]:
    """Return the selector's final diagnostics, and the budget that compared runs share."""
    said = asdict(training.diagnostics)
    # The selector does not know which labels the preparation counts as minority labels.
    said["minority_share"] = training.epochs[-1].minority_share
    del said["label_exposure"], said["label_counts"]  # already kept with the labels
    epochs, steps = len(training.epochs), training.epochs[-1].steps
    batches = math.ceil(train.n_samples / spec.plan.batch_size)
    # A budget in steps may cut the last epoch short.
    drawn = steps // batches * train.n_samples + steps % batches * spec.plan.batch_size
    if spec.strategy_options.get("full_batches"):
        warm_up = min(epochs, spec.plan.warm_up_epochs)
        batch_size = min(spec.plan.batch_size, train.n_samples)
        drawn = warm_up * train.n_samples + (epochs - warm_up) * steps // epochs * batch_size
    budget = {**said, "steps": steps, "drawn_samples": drawn}
    # The name alone does not let anyone else repeat such a run.
    own = {each.field: qualified_name(each.code) for each in Custom.of(spec) if not each.registered}
    return budget | {"unregistered": own} if own else budget


def _arrays(
    spec: RunSpec, parts: Parts, model: MultiLabelModel, training: Training
) -> dict[str, np.ndarray]:
    """Return batch objectives and, if requested, every training sample's losses."""
    arrays = {"batch_objectives": training.batch_objectives}
    if training.sample_losses:
        counts = parts.train.Y[:, np.flatnonzero(parts.minority)].sum(axis=1)
        arrays["minority_counts"] = np.asarray(counts).ravel()
        arrays |= {f"sample_losses_{epoch}": v for epoch, v in training.sample_losses.items()}
        own = training.sample_objectives
        arrays |= {f"sample_objectives_{epoch}": v for epoch, v in own.items()}
        arrays |= _losses_of_both_kinds(spec, parts.train, model)
    return {
        name: values.astype(np.float32 if values.dtype.kind == "f" else np.int16)
        for name, values in arrays.items()
    }


def _losses_of_both_kinds(
    spec: RunSpec, train: MultiLabelDataset, model: MultiLabelModel
) -> dict[str, np.ndarray]:
    """Return each sample's BCE and its share of the model's own loss, at the best epoch (Figure 6)."""
    losses, objectives = [], []
    with torch.no_grad(), seeded(spec.seed, "evaluation", 0):
        for x, y in LabeledRows(train, model=model).chunks(spec.plan.batch_size):
            step = model.step(x, y)
            losses.append(bce(step.logits, y, reduction="none").mean(1).numpy())
            objectives.append(step.sample_objective.numpy())
    return {
        "sample_losses_best": np.concatenate(losses),
        "sample_objectives_best": np.concatenate(objectives),
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: sums depend on the number of threads, and runs share the processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
