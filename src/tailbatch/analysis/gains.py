"""Paired differences between two arms, and how sure they are.

A *cell* is one dataset with one learner. Two arms are compared on the folds and seeds that both have,
so each pair shares its rows, initial weights and warm-up.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tailbatch.analysis.keys import CELL, Arm, Cell
from tailbatch.metrics import METRICS
from tailbatch.stats import relative_change, wilcoxon

#: Folds below which there is no interval: two say next to nothing about how folds vary.
FEWEST_FOLDS = 3
#: Columns that a pair of runs shares.
PAIR = [*CELL, "fold", "seed"]
_RANDOM = Arm("random")


class Gain(NamedTuple):
    """An arm against another: percent, positive is better, with a 95% interval; cells and pairs."""

    percent: float
    low: float
    high: float
    better_cells: int
    cells: int
    pairs: int

    def __str__(self) -> str:
        """Return the percentage and its interval, for a table; below three folds there is none."""
        if math.isnan(self.low):
            return f"{self.percent:+.1f}"
        return f"{self.percent:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def sign(metric: str) -> int:
    """Return 1 where more is better, else -1; a metric with tuned thresholds is like its plain one.

    Examples
    --------
    >>> sign("macro_f"), sign("validation_ranking_loss"), sign("tuned_macro_f")
    (1, -1, 1)
    """
    name = metric.removeprefix("validation_").removeprefix("tuned_")
    return 1 if METRICS[name].higher_is_better else -1


def gain_sign(before: float, after: float, metric: str) -> int:
    """Return 1 where `after` is the better value as printed, to four digits, -1 where worse, else 0.

    Examples
    --------
    >>> gain_sign(0.2, 0.1, "one_error"), gain_sign(0.2, 0.1, "macro_f")
    (1, -1)
    >>> gain_sign(0.2, 0.20001, "macro_f")
    0
    """
    return int(sign(metric) * np.sign(round(after, 4) - round(before, 4)))


def pairs(runs: pd.DataFrame, arm: Arm, baseline: Arm, metric: str) -> pd.DataFrame:
    """Return one row a pair of runs: the cell, ``value`` of the arm and ``before`` of the baseline.

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
    """Return the rows of `pairs` without a frame: a page asks for thousands, and merging takes long."""
    values = runs[metric].to_numpy(dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    arms = runs["arm"].to_numpy()
    columns = [runs[name].to_numpy() for name in PAIR]

    def first_of(which: Arm) -> dict[tuple[Any, ...], float]:
        found: dict[tuple[Any, ...], float] = {}
        for at in known:
            if arms[at] == which:
                found.setdefault(tuple(column[at] for column in columns), values[at])
        return found

    before = first_of(baseline)
    return [(*key, value, before[key]) for key, value in first_of(arm).items() if key in before]


_Values = tuple[np.ndarray, np.ndarray]


def percent_change(cells: Sequence[_Values], metric: str, folds: int) -> tuple[float, float, float]:
    """Return by how many percent the average over cells changes for the better, with its interval.

    Runs vary within each cell, the cells are kept: the interval speaks of these datasets and models,
    not of others. There is none where no cell has three folds, and nothing where the baseline is 0.

    Parameters
    ----------
    cells
        For each cell the arm's values and the baseline's, of the same folds and seeds.
    metric
        Which way is good.
    folds
        The most folds that a cell has.

    Examples
    --------
    >>> cells = [(np.array([0.2, 0.4]), np.array([0.1, 0.3]))]
    >>> [round(each, 6) for each in percent_change(cells, "macro_f", folds=2)]
    [50.0, nan, nan]
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a baseline of 0 has no percent
        change = relative_change(cells)
    factor = 100 * sign(metric)
    if not np.isfinite(change.estimate):
        return np.nan, np.nan, np.nan
    if folds < FEWEST_FOLDS:
        return factor * change.estimate, np.nan, np.nan
    low, high = sorted((factor * change.low, factor * change.high))
    return factor * change.estimate, low, high


def gain(runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM) -> Gain | None:
    """Return by how many percent an arm changes the average over cells; None without a pair.

    Examples
    --------
    >>> from tailbatch.analysis import Dataset, Learner
    >>> runs = pd.DataFrame({"data": Dataset("scene"), "learner": Learner("mlp"), "fold": 0,
    ...                      "seed": 0, "arm": [Arm("random"), Arm("hard")], "macro_f": [0.2, 0.3]})
    >>> str(gain(runs, Arm("hard"), "macro_f"))
    '+50.0'
    """
    groups: dict[Cell, list[tuple[Any, ...]]] = {}
    matched = _matched(runs, arm, baseline, metric)
    for data, learner, *rest in matched:
        groups.setdefault(Cell(data, learner), []).append(tuple(rest))
    ordered = [np.array(groups[cell], dtype=np.float64).T for cell in sorted(groups)]
    cells = [(value, before) for _, _, value, before in ordered]
    if not cells or not sum(before.mean() for _, before in cells):
        return None
    better = sum(sign(metric) * (value.mean() - before.mean()) > 0 for value, before in cells)
    folds = max(len(np.unique(folds)) for folds, *_ in ordered)
    return Gain(*percent_change(cells, metric, folds), better, len(cells), len(matched))


def signed_rank_p(runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM) -> float:
    """Return Wilcoxon's p-value over the cells' means; NaN below two cells."""
    means = pairs(runs, arm, baseline, metric).groupby(CELL)[["value", "before"]].mean()
    if len(means) < 2:
        return float("nan")
    return float(wilcoxon(means["value"], means["before"]).p_value)


def gains_by_dataset(
    runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM
) -> pd.Series:
    """Return the mean gain in points on each dataset, over its learners and folds."""
    both = pairs(runs, arm, baseline, metric)
    return (sign(metric) * (both["value"] - both["before"])).groupby(both["data"]).mean()


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


def mean_rank(runs: pd.DataFrame, arms: Sequence[Arm], metric: str) -> dict[Arm, float]:
    """Return each arm's mean rank (1 is best) over the folds that all have; cells count alike."""
    shared = where_all_ran(runs, arms)
    wide = shared.pivot(index=PAIR, columns="arm", values=metric).dropna()
    if not len(wide):
        return {}
    ranks = (-sign(metric) * wide).rank(axis=1)
    by_cell = ranks.groupby(level=CELL).mean()
    return {arm: float(np.mean(by_cell[arm])) for arm in arms}


def mean_ranks(runs: pd.DataFrame, arms: Sequence[Arm], metrics: Sequence[str]) -> pd.DataFrame:
    """Return each arm's mean rank on validation rows, by metric, and over all of them as ``mean``."""
    found = {name: mean_rank(runs, arms, f"validation_{name}") for name in metrics}
    columns = {name: [ranks[arm] for arm in arms] for name, ranks in found.items() if ranks}
    table = pd.DataFrame(columns, index=pd.Index(list(arms), dtype=object))
    # Summed in order, so that the last digit does not depend on how pandas sums.
    return table.assign(mean=[sum(row) / len(columns) for row in table.to_numpy()])
