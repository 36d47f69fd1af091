"""Paired differences between two arms.

A *cell* is one dataset with one learner. Two arms are compared on the folds and seeds that both have,
so each pair shares its rows, initial weights and warm-up. For significance, see `inference`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tailbatch.analysis.inference import Pairs, change, dataset_means, held_out_ratio, sign
from tailbatch.analysis.keys import CELL, Arm, Cell

#: Columns that a pair of runs shares.
PAIR = [*CELL, "fold", "seed"]
_RANDOM = Arm("random")


class Gain(NamedTuple):
    """An arm compared with another: percent, positive is better, with a 95% interval and a p-value."""

    percent: float
    low: float
    high: float
    p: float
    better_cells: int
    cells: int
    datasets: int

    def __str__(self) -> str:
        """Return the percentage and its interval, for a table."""
        if math.isnan(self.low):
            return f"{self.percent:+.1f}"
        return f"{self.percent:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def pairs(runs: pd.DataFrame, arm: Arm, baseline: Arm, metric: str) -> pd.DataFrame:
    """Return one row per pair of runs: the cell, ``value`` of the arm and ``before`` of the baseline.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [0, 0, 1], "seed": 0,
    ...                      "arm": [Arm("random"), Arm("hard"), Arm("hard")],
    ...                      "macro_f": [0.1, 0.2, 0.3]})
    >>> pairs(runs, Arm("hard"), Arm("random"), "macro_f")[["value", "before"]].values.tolist()
    [[0.2, 0.1]]
    """
    return pd.DataFrame(_matched(runs, arm, baseline, metric), columns=[*PAIR, "value", "before"])


def _matched(runs: pd.DataFrame, arm: Arm, baseline: Arm, metric: str) -> list[tuple[Any, ...]]:
    """Return the rows of `pairs` without a frame: a page needs thousands, and merging is slow."""
    values = runs[metric].to_numpy(dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    arms = runs["arm"].to_numpy()
    columns = [runs[name].to_numpy() for name in PAIR]

    def first_of(which: Arm) -> dict[tuple[Any, ...], float]:
        first: dict[tuple[Any, ...], float] = {}
        for row in known:
            if arms[row] == which:
                first.setdefault(tuple(column[row] for column in columns), values[row])
        return first

    before = first_of(baseline)
    return [(*key, value, before[key]) for key, value in first_of(arm).items() if key in before]


def gain(runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM) -> Gain | None:
    """Return the change in percent of the average over datasets; None without a pair.

    Examples
    --------
    >>> from tailbatch.analysis import Dataset, Learner
    >>> runs = pd.DataFrame({"data": Dataset("scene"), "learner": Learner("mlp"), "fold": 0,
    ...                      "seed": 0, "arm": [Arm("random"), Arm("hard")], "macro_f": [0.2, 0.3]})
    >>> str(gain(runs, Arm("hard"), "macro_f"))
    '+50.0'
    """
    cells = paired_values(runs, arm, metric, baseline)
    if not cells:
        return None
    estimate = change(cells, metric, held_out_ratio(runs))
    if math.isnan(estimate.mean):
        return None
    better = sum(
        sign(metric) * (value.mean() - before.mean()) > 0 for _, value, before in cells.values()
    )
    return Gain(*estimate, better, len(cells), len(dataset_means(cells)))


def level(runs: pd.DataFrame, arm: Arm, metric: str) -> float:
    """Return an arm's average over datasets, the learners of each averaged first; NaN without runs.

    Examples
    --------
    >>> from tailbatch.analysis import Dataset, Learner
    >>> runs = pd.DataFrame({"data": [Dataset("scene"), Dataset("yeast")], "learner": Learner("mlp"),
    ...                      "fold": 0, "seed": 0, "arm": Arm("random"), "macro_f": [0.2, 0.3]})
    >>> level(runs, Arm("random"), "macro_f")
    0.25
    """
    means = dataset_means(paired_values(runs, arm, metric, arm))
    return float(np.mean([value for value, _ in means.values()])) if means else math.nan


def paired_values(
    runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM
) -> dict[Cell, Pairs]:
    """Return the values of an arm and the baseline on the folds and seeds both have, by cell."""
    groups: dict[Cell, list[tuple[Any, ...]]] = {}
    for data, learner, fold, _, value, before in _matched(runs, arm, baseline, metric):
        groups.setdefault(Cell(data, learner), []).append((fold, value, before))
    return {cell: Pairs(*np.array(groups[cell], dtype=np.float64).T) for cell in sorted(groups)}


def gains_by_dataset(
    runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM
) -> pd.Series:
    """Return the mean gain in points on each dataset, averaged over its learners."""
    means = dataset_means(paired_values(runs, arm, metric, baseline))
    points = {data: sign(metric) * (value - before) for data, (value, before) in means.items()}
    return pd.Series(points.values(), pd.Index(list(points), dtype=object), dtype=float)


def rank_correlation(first: pd.Series, second: pd.Series) -> float:
    """Return Spearman's correlation over the shared index; NaN below three entries.

    Examples
    --------
    >>> rank_correlation(pd.Series([1, 2, 3]), pd.Series([3, 2, 1]))
    -1.0
    """
    both = pd.concat([first, second], axis=1).dropna()
    if len(both) < 3:
        return float("nan")
    return float(both.rank().corr().to_numpy()[0, 1])


def where_all_ran(runs: pd.DataFrame, arms: Sequence[Arm]) -> pd.DataFrame:
    """Return the runs of these arms in the cells and folds that all of them have.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [0, 0, 1], "seed": 0,
    ...                      "arm": [Arm("random"), Arm("hard"), Arm("hard")]})
    >>> where_all_ran(runs, [Arm("random"), Arm("hard")])["fold"].tolist()
    [0, 0]
    """
    some = runs[runs["arm"].isin(list(arms))].drop_duplicates([*PAIR, "arm"])
    return some[some.groupby(PAIR)["arm"].transform("size") == len(arms)]
