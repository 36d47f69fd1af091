"""Stores of made-up runs: quick to write, the same each time, and as large as wanted."""

import hashlib
import itertools

import numpy as np

from tailbatch.results import (
    DatasetFacts,
    ResultStore,
    RunFailure,
    RunRecord,
    RunSpec,
    StudyPlan,
    TrainingPlan,
)

METRICS = (
    "macro_f",
    "micro_f",
    "macro_auc",
    "ranking_loss",
    "hamming_loss",
    "one_error",
    "minority_macro_f",
    "minority_average_precision",
)
LOSSES = ("ranking_loss", "hamming_loss", "one_error")
#: How much better than random each strategy is, as a share of what is left to gain.
SKILL = {"random": 0.0, "uniform": -0.01, "hard": 0.02, "adaptive": 0.08, "chain": 0.06}


def make_specs(
    datasets=("scene", "yeast"),
    models=("mlp", "dela"),
    strategies=("random", "hard", "adaptive"),
    pressures=(16.0,),
    folds=3,
    random_seeds=1,
    epochs=12,
    batch_sizes=(128,),
):
    """Return the grid, folds innermost, as a study has it."""
    specs = []
    for dataset, model, batch_size in itertools.product(datasets, models, batch_sizes):
        keeps = tuple(epoch for epoch in (3, epochs) if epoch <= epochs)
        plan = TrainingPlan(epochs=epochs, batch_size=batch_size, sample_loss_epochs=keeps)
        for strategy in strategies:
            plain = strategy in ("random", "uniform")
            tries = [(None, seed) for seed in range(random_seeds)] if plain else []
            tries = tries or [(pressure, 0) for pressure in pressures]
            specs += [
                RunSpec(
                    dataset=dataset,
                    dataset_digest=f"{len(dataset):04x}",
                    preparation="paper",
                    n_folds=max(2, folds),
                    fold=fold,
                    model=model,
                    strategy=strategy,
                    selection_pressure=pressure,
                    seed=seed,
                    plan=plan,
                )
                for (pressure, seed), fold in itertools.product(tries, range(folds))
            ]
    return specs


def make_record(spec, *, labels=12, label_names=None):
    """Return a made-up record: plausible curves that depend on the spec alone."""
    rng = np.random.default_rng(int(spec.digest[:12], 16))
    shared = np.random.default_rng([len(spec.dataset), len(spec.model), spec.fold, spec.seed])
    skill = SKILL.get(spec.strategy, 0.0) + rng.normal(0, 0.01)
    level = 0.3 + 0.4 * shared.random()
    scores = {}
    for place, metric in enumerate(METRICS):
        value = level + (1 - level) * (skill + 0.03 * place)
        scores[metric] = float(1 - value if metric in LOSSES else value)
    history = _history(spec, skill, level, rng)
    return RunRecord(
        spec=spec,
        validation={name: value * 0.99 for name, value in scores.items()},
        test=scores,
        history=history,
        best_epoch=len(history) - 1 or 1,
        warm_up_digest=f"{spec.dataset}-{spec.model}-{spec.fold}-{spec.seed}",
        labels=_labels(spec, skill, labels, label_names),
        diagnostics={"steps": history[-1]["steps"], "drawn_samples": 1000 * len(history)},
        seconds=history[-1]["seconds"],
        versions={"tailbatch": "0.1.0", "numpy": "2.4.0"},
    )


def _history(spec, skill, level, rng):
    numbers = np.arange(1, spec.plan.epochs + 1)
    loss = 0.2 + 0.5 * np.exp(-numbers * (0.08 + skill / 4)) + rng.normal(0, 0.002, len(numbers))
    auc = level + 0.3 * (1 - np.exp(-numbers * (0.1 + skill / 2)))
    slow = 1.0 if spec.strategy == "random" else 1.1
    return tuple(
        {
            "number": int(number),
            "steps": int(number) * 20,
            "seconds": float(number * 0.31 * slow),
            "lr": 1e-4,
            "batch_objective": float(loss[at] * 1.2),
            "training_objective": float(loss[at] * 1.1),
            "training_bce": float(loss[at]),
            "validation": {metric: float(auc[at]) for metric in METRICS},
            "minority_share": 0.2 + skill * 3,
            "distinct_share": 0.7,
        }
        for at, number in enumerate(numbers)
    )


def _labels(spec, skill, count, names):
    rng = np.random.default_rng([count, spec.fold])
    positives = np.sort((10 ** rng.uniform(0.7, 3.2, count)).astype(int))[::-1]
    rare = positives < np.median(positives)
    return tuple(
        {
            "name": names[at] if names else f"label {at}",
            "positives": int(positives[at]),
            "minority": bool(rare[at]),
            "average_precision": float(
                0.4 + rng.normal(0, 0.02) + skill * (2 if rare[at] else 0.2)
            ),
            "f": 0.4,
            "exposure": 1.0 + (skill * 8 if rare[at] else -skill),
        }
        for at in range(count)
    )


def make_arrays(spec, samples=60):
    """Return made-up arrays: batch objectives, and sample losses at the epochs the plan keeps."""
    rng = np.random.default_rng(int(spec.digest[:12], 16))
    counts = rng.integers(0, 4, samples)
    arrays = {"batch_objectives": 0.5 + rng.normal(0, 0.05, spec.plan.epochs * 20)}
    arrays["minority_counts"] = counts
    for epoch in spec.plan.sample_loss_epochs:
        losses = rng.gamma(2.0, 0.1 + 0.05 * counts) / epoch**0.3
        arrays[f"sample_losses_{epoch}"] = losses
        arrays[f"sample_objectives_{epoch}"] = losses * 2 + rng.normal(0, 0.1, samples)
    return arrays


def make_store(path, specs, *, lost=(), failed=(), arrays=True, **facts):
    """Write a store in which the runs at `lost` were never tried and those at `failed` failed."""
    store = ResultStore(path)
    for place, spec in enumerate(specs):
        if place in failed:
            store.keep_failure(RunFailure(spec=spec, message="the loss is no longer a number"))
        elif place not in lost:
            store.add(make_record(spec, **facts), make_arrays(spec) if arrays else None)
    store.keep_study(StudyPlan(name="made-up", specs=tuple(specs), title="Made-up runs"))
    for name in sorted({spec.dataset for spec in specs}):
        measured = {
            "n_samples": 2407,
            "n_features": 294,
            "n_labels": 6,
            "label_cardinality": 1.074,
            "label_density": 0.179,
            "mean_imbalance_ratio": 1.254,
        }
        kept = DatasetFacts(
            name=name, path="", size=1, modified=1, digest="ab", facts={"paper": measured}
        )
        store.keep_dataset(kept, hashlib.md5(name.encode()).hexdigest())
    return store
