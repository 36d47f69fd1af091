"""How the default was chosen: ``python -m benchmarks.default_search``.

``run`` tries every arm on the training rows of the first fold of `benchmarks.default_estimator`, cut into
three inner folds, and adds the average precision of the pooled inner held-out rows to
``default_search.json``; what is there is not tried again. Without a command the file is shown. No row of
the fold's held-out part, and no dataset of `default_estimator.KEPT_BACK`, takes part. Arms that change
something else are to be compared with "all rows", which they include; "another seed" shows the noise.
The second round starts from what the first one chose, "chosen".

``study STORE`` shows what ``default_search.toml``, run into that store, found on validation rows.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from benchmarks.default_estimator import held_out
from tailbatch import TailbatchClassifier
from tailbatch.data import stratified_folds
from tailbatch.files import replacing
from tailbatch.imbalance import minority_labels
from tailbatch.metrics import average_precision_by_label
from tailbatch.metrics.scored import dense_labels
from tailbatch.results import ResultStore
from tailbatch.results.frames import read_store

RECORDS = Path(__file__).parent / "default_search.json"
#: Few rows of measurements, where trees are strong; then words.
DENSE = ("emotions", "yeast", "scene", "cal500")
WORDS = ("debtags", "enron", "llog-f", "bibtex")
WIDE = ("yahoo-arts", "rcv1subset1")


@dataclass(frozen=True)
class Arm:
    """A change of the estimator's settings, or of what it is given."""

    settings: dict[str, Any] = field(default_factory=dict)
    bins: int = 0
    """Dense features are replaced by a piecewise linear encoding with as many bins; 0 leaves them."""
    during: Callable[[], AbstractContextManager[Any]] = nullcontext
    seed: int = 0


#: What the default was before this search.
BEFORE = {"model__input_dropout": 0.2, "weight_decay": 0.03}
ALL = BEFORE | {"validation_fraction": 0}
BASE, CHOSEN = "before", "chosen"
#: The defaults of today, on all rows.
ROUND_TWO: dict[str, Any] = {"validation_fraction": 0}
ARMS = {
    BASE: Arm(BEFORE),
    "another seed": Arm(BEFORE, seed=100),
    "all rows": Arm(ALL),
    "bins 8": Arm(ALL, bins=8),
    "bins 32": Arm(ALL, bins=32),
    "300 steps": Arm(ALL | {"plan__min_steps": 300}),
    "3000 steps": Arm(ALL | {"plan__min_steps": 3000}),
    "decay 0.3": Arm(ALL | {"weight_decay": 0.3}),
    "decay 1": Arm(ALL | {"weight_decay": 1.0}),
    "hidden 512": Arm(ALL | {"model__hidden": 512}),
    "rate 3e-3": Arm(ALL | {"lr": 3e-3}),
    "no linear": Arm(ALL | {"model__linear": False}),
    "input dropout 0.5": Arm(ALL | {"model__input_dropout": 0.5}),
    "input dropout 0.5, decay 0.3": Arm(ALL | {"model__input_dropout": 0.5, "weight_decay": 0.3}),
    "adamw 1e-3": Arm(ALL | {"plan__optimizer": "adamw", "lr": 1e-3}),
    "momentum": Arm(
        BEFORE, during=lambda: patch("tailbatch.training.trainer._SPARSE_GRADIENTS", 0)
    ),
    CHOSEN: Arm(ROUND_TWO),
    "maxabs": Arm(ROUND_TWO | {"scale": "maxabs"}),
    "members 8": Arm(ROUND_TWO | {"model__members": 8}),
    "2000 steps": Arm(ROUND_TWO | {"plan__min_steps": 2000}),
    "dropout 0.3": Arm(ROUND_TWO | {"model__dropout": 0.3}),
    "weighted loss": Arm(ROUND_TWO | {"loss": "weighted_bce"}),
}


def encoded(X: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return how far each value is through each bin of its feature, from 0 to 1: (n, d * bins)."""
    low, high = edges[:-1].T, edges[1:].T  # (d, bins)
    width = np.where(high > low, high - low, 1)
    through = np.clip((X[:, :, None] - low) / width, 0, 1)
    return np.asarray(through.reshape(len(X), -1))


def measured(name: str, arm: Arm) -> dict[str, float]:
    """Return the metrics of the pooled inner held-out rows, and the seconds of a fit."""
    rows, _ = held_out(name, 0)
    scores, truth, seconds = [], [], []
    for number, inner in enumerate(stratified_folds(rows.Y, n_folds=3, seed=1)):
        start = time.process_time()
        train = rows.take(inner.train)
        test = rows.take(np.sort([*inner.validation, *inner.test]))
        features = [train.X, test.X]
        if arm.bins and isinstance(train.X, np.ndarray):
            edges = np.quantile(train.X, np.linspace(0, 1, arm.bins + 1), axis=0)
            features = [encoded(X, edges) for X in features]
        with arm.during():
            classifier = TailbatchClassifier(random_state=arm.seed + number, **arm.settings)
            classifier.fit(features[0], train.Y)
            scores.append(classifier.predict_proba(features[1]))
        seconds.append(time.process_time() - start)
        truth.append(dense_labels(test.Y))
    precision = average_precision_by_label(np.concatenate(truth), np.concatenate(scores))
    return {
        "macro_ap": round(float(np.nanmean(precision)), 5),
        "minority_ap": round(float(np.nanmean(precision[minority_labels(rows.Y)])), 5),
        "seconds": round(float(np.mean(seconds)), 2),
    }


def read() -> list[dict[str, Any]]:
    """Return what was measured so far."""
    return json.loads(RECORDS.read_text()) if RECORDS.exists() else []


def run(datasets: list[str], arms: list[str]) -> None:
    """Measure what the records do not have yet."""
    torch.set_num_threads(1)
    for arm in arms:
        for name in datasets:
            if any(row["arm"] == arm and row["dataset"] == name for row in read()):
                continue
            row = {"arm": arm, "dataset": name, **measured(name, ARMS[arm])}
            with replacing(RECORDS) as temporary:
                lines = ",\n".join(json.dumps(each) for each in [*read(), row])
                temporary.write_text(f"[\n{lines}\n]\n")
            print(row, flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Return each arm's gain on its round's base in percent, by dataset: Macro-AP / minority AP."""
    records = pd.DataFrame(rows).set_index(["arm", "dataset"])
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        first = list(ARMS).index(arm) < list(ARMS).index(CHOSEN)
        values, base = records.loc[arm], records.loc[BASE if first else CHOSEN]
        gains = 100 * (values / base.loc[values.index] - 1)
        cells = [f"{n} {g.macro_ap:+.1f}/{g.minority_ap:+.1f}" for n, g in gains.iterrows()]
        mean = gains.mean()
        lines.append(
            f"{arm:18} mean {mean.macro_ap:+.1f}/{mean.minority_ap:+.1f}: " + ", ".join(cells)
        )
    return "\n".join(lines)


def study_table(runs: pd.DataFrame) -> str:
    """Return Macro-AP / minority AP on validation rows by setting: means over the datasets of all."""
    setting = [
        ", ".join(
            [f"rate {lr:g}", *(f"{name} {value}" for name, value in json.loads(given).items())]
        )
        for given, lr in zip(runs["hyperparameters"], runs["plan_lr"], strict=True)
    ]
    metrics = ["validation_macro_average_precision", "validation_minority_average_precision"]
    values = runs.assign(setting=setting).pivot(index="dataset", columns="setting", values=metrics)
    values = values.dropna()
    means = values.mean().unstack(0).sort_values(metrics[0], ascending=False)
    lines = [f"{name:32} {row.iloc[0]:.4f} / {row.iloc[1]:.4f}" for name, row in means.iterrows()]
    return "\n".join([f"validation rows of {', '.join(values.index)}:", *lines])


def main() -> None:
    """Run the search, or show it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.default_search", description=__doc__
    )
    parser.add_argument("command", choices=["run", "table", "study"], nargs="?", default="table")
    parser.add_argument("store", type=Path, nargs="?", help="for study")
    parser.add_argument("--datasets", nargs="+", default=[*DENSE, *WORDS, *WIDE])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    given = parser.parse_args()
    if given.command == "study":
        if given.store is None:
            parser.error("study needs the store that default_search.toml ran into")
        sys.stdout.write(study_table(read_store(ResultStore(given.store)).runs) + "\n")
        return
    if given.command == "run":
        run(given.datasets, given.arms)
    sys.stdout.write(table(read()) + "\n")


if __name__ == "__main__":
    main()
