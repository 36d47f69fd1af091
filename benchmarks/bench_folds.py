"""Iterative stratification of 100,000 rows with 100 labels, against `iterative-stratification`."""

from statistics import mean

import numpy as np
import numpy.typing as npt
from iterstrat.ml_stratifiers import MultilabelStratifiedKFold

from benchmarks.harness import interleaved, publish, table
from tailbatch.data.folds import stratified_folds

N_FOLDS = 5
SEEDS = range(3)
Labels = npt.NDArray[np.bool_]
Rows = list[npt.NDArray[np.int64]]


def imbalanced_labels(n: int = 100_000, q: int = 100) -> Labels:
    """Return labels of decreasing frequency that co-occur by topic."""
    rng = np.random.default_rng(0)
    frequency = 0.2 / np.arange(1, q + 1) ** 0.9
    by_topic = np.minimum(frequency * rng.choice([0.2, 4.0], size=(20, q), p=[0.8, 0.2]), 0.9)
    return np.asarray(rng.random((n, q)) < by_topic[rng.integers(20, size=n)])


def ours(Y: Labels, seed: int) -> Rows:
    folds = stratified_folds(Y, n_folds=N_FOLDS, seed=seed)
    return [np.concatenate([fold.validation, fold.test]) for fold in folds]


def theirs(Y: Labels, seed: int) -> Rows:
    peer = MultilabelStratifiedKFold(n_splits=N_FOLDS, shuffle=True, random_state=seed)
    return [held_out for _, held_out in peer.split(Y, Y)]


def deviation(Y: Labels, parts: Rows) -> float:
    """Return the mean absolute deviation of the parts' label proportions from the whole's."""
    return float(np.mean([np.abs(Y[rows].mean(axis=0) - Y.mean(axis=0)) for rows in parts]))


def main() -> None:
    Y = imbalanced_labels()
    seconds = interleaved({"ours": lambda: ours(Y, 0), "theirs": lambda: theirs(Y, 0)}, rounds=3)
    ours_mad = mean(deviation(Y, ours(Y, seed)) for seed in SEEDS)
    theirs_mad = mean(deviation(Y, theirs(Y, seed)) for seed in SEEDS)
    ratio = seconds["theirs"] / seconds["ours"]
    rows = [
        ["iterative-stratification, 5 folds", f"{seconds['theirs']:.2f}", "1", f"{theirs_mad:.2e}"],
        [
            "tailbatch, 5 folds, each then halved",
            f"{seconds['ours']:.2f}",
            f"{ratio:.1f} (target: 3)",
            f"{ours_mad:.2e} (target: not above)",
        ],
    ]
    header = ["100,000 rows, 100 labels", "seconds", "times faster", "mean abs. deviation"]
    publish(
        "folds",
        "## Folds\n\nDeviation of label proportions in the held-out folds from the whole "
        "data, mean of three seeds.\n\n" + table(header, rows),
    )


if __name__ == "__main__":
    main()
