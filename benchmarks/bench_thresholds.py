"""Tuned thresholds against 0.5: Macro-F on test rows, and the shrinkage that validation rows choose.

Scores come from logistic regression, as they are (``plain``) and shifted as a loss would that weights
positives with the root of, or all of, negatives over positives (``root``, ``full``). Datasets are looked
for as everywhere (``TAILBATCH_DATA``); those named in ``DATASETS`` and not found are left out, saying so.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from benchmarks.harness import publish, table
from tailbatch.classical import Logistic
from tailbatch.data import LabelMatrix, load_dataset, prepare, stratified_folds, stratified_split
from tailbatch.errors import DataError
from tailbatch.metrics import SHRINKAGE, decide, macro_f, tune_thresholds

DATASETS = (
    *("flags", "emotions", "yeast", "scene", "debtags", "enron", "llog-f", "yahoo-arts"),
    *("yahoo-business", "tmc2007-500"),
)
N_FOLDS = 2  # of the five that are held out
SHRINKAGES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
POWERS = {"plain": 0.0, "root": 0.5, "full": 1.0}

FloatArray = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """Labels and scores of some rows."""

    labels: npt.NDArray[np.bool_]
    scores: FloatArray

    def macro_f(self, thresholds: npt.ArrayLike) -> float:
        """Return Macro-F with these thresholds."""
        return macro_f(self.labels, decide(self.scores, thresholds))


def scored_folds(dataset: str) -> Iterator[tuple[Rows, Rows, FloatArray]]:
    """Yield each fold's validation and test rows, and negatives over positives in training."""
    prepared = prepare(load_dataset(dataset))
    for fold in stratified_folds(prepared.dataset.Y, n_folds=5, seed=0)[:N_FOLDS]:
        parts = prepared.split(fold)
        learned = Logistic(C=1.0).learn(parts, seed=0)
        positives = _dense(parts.train.Y).sum(axis=0)
        ratio = (parts.train.n_samples - positives + 0.5) / (positives + 0.5)
        validation = Rows(_dense(parts.validation.Y), learned.validation)
        yield validation, Rows(_dense(parts.test.Y), learned.test), ratio


def _dense(Y: LabelMatrix) -> npt.NDArray[np.bool_]:
    return Y if isinstance(Y, np.ndarray) else np.asarray(Y.toarray(), dtype=bool)


def weighted(rows: Rows, ratio: FloatArray, power: float) -> Rows:
    """Return the rows with scores as a loss with positive weights ratio^power gives them."""
    logits = logit(rows.scores.clip(1e-9, 1 - 1e-9))
    return rows._replace(scores=expit(logits + power * np.log(ratio)))


def cross_validated(rows: Rows, shrinkage: float) -> float:
    """Return Macro-F on each half of the validation rows with thresholds from the other half."""
    halves = stratified_split(rows.labels, validation=0.5, test=0, seed=0)
    places = (halves.train, halves.validation)
    first, second = (Rows(rows.labels[at], rows.scores[at]) for at in places)
    found = [
        there.macro_f(tune_thresholds(here.labels, here.scores, shrinkage=shrinkage))
        for here, there in ((first, second), (second, first))
    ]
    return float(np.mean(found))


def measured(dataset: str) -> dict[str, dict[str, float]]:
    """Return, for each kind of scores, Macro-F by rule: ``0.5``, ``test k`` and ``validation k``."""
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in POWERS}
    for validation, test, ratio in scored_folds(dataset):
        for kind, power in POWERS.items():
            seen, unseen = weighted(validation, ratio, power), weighted(test, ratio, power)
            row = {"0.5": unseen.macro_f(0.5)}
            for k in SHRINKAGES:
                tuned = tune_thresholds(seen.labels, seen.scores, shrinkage=k)
                row[f"test {k:g}"] = unseen.macro_f(tuned)
                row[f"validation {k:g}"] = cross_validated(seen, k)
            for name, value in row.items():
                found[kind].setdefault(name, []).append(value)
    return {kind: {k: float(np.mean(v)) for k, v in rows.items()} for kind, rows in found.items()}


def main() -> None:
    everything: dict[str, dict[str, dict[str, float]]] = {}
    for dataset in os.environ.get("DATASETS", " ".join(DATASETS)).split():
        try:
            everything[dataset] = measured(dataset)
        except DataError as error:
            print(f"left out: {error}")
    columns = ["0.5", "test 0", f"test {SHRINKAGE:g}"]
    rows = [
        [f"{dataset}, {kind}", *(f"{found[name]:.4f}" for name in columns)]
        for dataset, kinds in everything.items()
        for kind, found in kinds.items()
    ]
    choice = []
    for k in SHRINKAGES:
        per_kind = [[each[kind] for each in everything.values()] for kind in POWERS]
        chosen = np.mean([each[f"validation {k:g}"] for some in per_kind for each in some])
        below = [sum(each[f"test {k:g}"] < each["0.5"] for each in some) for some in per_kind]
        test = np.mean([each[f"test {k:g}"] for some in per_kind for each in some])
        counts = " / ".join(map(str, below)) + f" of {len(everything)}"
        choice.append([f"{k:g}", f"{chosen:.4f}", f"{test:.4f}", counts])
    publish(
        "thresholds",
        "## Tuned thresholds\n\nMacro-F on test rows, mean over folds: thresholds of 0.5, of each "
        f"label's own best, and shrunken ({SHRINKAGE:g}, the default). Scores: logistic regression, "
        "plain, and weighted by the root of and by all of negatives over positives.\n\n"
        + table(["scores", "0.5", "own best", "shrunken"], rows)
        + "\n\nMean over datasets and kinds of scores; the test rows choose nothing.\n\n"
        + table(
            [
                "shrinkage",
                "Macro-F, cross-validated on validation rows",
                "Macro-F, test",
                "datasets below 0.5 on test (plain / root / full; at most a quarter)",
            ],
            choice,
        ),
    )


if __name__ == "__main__":
    main()
