"""What was run, and whether the compared runs differ only in the arm."""

from typing import Any

import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, primary
from tailbatch.analysis.keys import CELL, PAIR

#: Columns of the runs' frame that must agree between runs of one cell, fold and seed.
_SAME = ("warm_up_digest", "steps", "drawn_samples", "dataset_digest", "versions", "max_lag")


def fairness_checks(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per check: what must agree, whether it does, and in how many comparisons.

    Checks are the columns `_SAME`, then ``folds``: whether all primary arms of a cell have the same folds
    and seeds, and ``learned``: whether the baseline had finished learning; if not, a gain may only be
    faster learning. ``verdict`` is ``agrees``, ``differs``, ``not recorded`` or ``cannot be told``;
    ``count`` of ``total`` are groups of compared runs that agree, runs without a partner, or runs of the
    baseline that were best in their last epochs.

    Examples
    --------
    >>> from tailbatch.analysis.keys import Arm
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": 0, "seed": 0,
    ...                      "arm": [Arm("random"), Arm("adaptive")], "warm_up_digest": ["ab", "ab"]})
    >>> fairness_checks(runs).values.tolist()[0]
    ['warm_up_digest', 'agrees', 1, 1]
    """
    checks: list[tuple[str, str, int, int]] = [_agreement(runs, column) for column in _SAME]
    rows: list[tuple[Any, ...]] = [*checks, _folds(runs), _learned(runs)]
    return pd.DataFrame(rows, columns=["check", "verdict", "count", "total"])


def _agreement(runs: pd.DataFrame, column: str) -> tuple[str, str, int, int]:
    """Compare the values of one column within each dataset, model, fold and seed."""
    if column not in runs:
        return column, "not recorded", 0, 0
    known = runs[runs[column].notna() & (runs[column] != "")]
    groups = known.groupby(PAIR)[column].agg(["size", "nunique"])
    groups = groups[groups["size"] > 1]
    same = int((groups["nunique"] == 1).sum())
    verdict = "agrees" if same == len(groups) else "differs"
    return column, verdict if len(groups) else "not recorded", same, len(groups)


def _folds(runs: pd.DataFrame) -> tuple[str, str, int, int]:
    main = primary(runs)
    arms = main.groupby(CELL)["arm"].transform("nunique")
    here = main.groupby(PAIR)["arm"].transform("nunique")
    verdict = "agrees" if len(main) else "not recorded"
    return "folds", verdict, int((arms != here).sum()), len(main)


def still_learning(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return which runs were best in their last epochs, the last 5% of all.

    Under a cosine the rate ends at zero, so that the last epoch is meant to be the best.

    Examples
    --------
    >>> still_learning(pd.DataFrame({"best_epoch": [95, 96], "plan_epochs": 100})).tolist()
    [False, True]
    """
    late = runs["best_epoch"] > 0.95 * runs.get("epochs", runs["plan_epochs"])
    return late & (runs["plan_schedule"] != "cosine") if "plan_schedule" in runs else late


def _best_epoch_tells(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return of which runs the best epoch can tell whether they were still learning.

    It takes several evaluations, and a rate that does not end at zero, as under a cosine.
    """
    tells = runs["plan_epochs"] != 1
    if {"plan_evaluate_every", "steps"} <= set(runs):
        # Where the steps were not counted, nothing speaks against it.
        tells &= ~(runs["plan_evaluate_every"] >= pd.to_numeric(runs["steps"]))
    return tells & (runs["plan_schedule"] != "cosine") if "plan_schedule" in runs else tells


def _learned(runs: pd.DataFrame) -> tuple[str, str, int, int]:
    if runs.empty or not {"best_epoch", "plan_epochs"} <= set(runs):
        return "learned", "not recorded", 0, 0
    baseline = runs[runs["arm"] == baseline_arm(runs["arm"])]
    late = still_learning(baseline[_best_epoch_tells(baseline)])
    if late.empty:
        return "learned", "cannot be told", 0, len(baseline)
    return "learned", "agrees" if late.mean() <= 0.5 else "differs", int(late.sum()), len(late)
