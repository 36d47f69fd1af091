"""Paired differences between two ways to choose batches, and how sure they are.

A *cell* is one dataset with one learner. Two arms are compared on the folds and seeds that both have,
so each pair shares its rows, initial weights and warm-up.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from tailbatch.metrics import METRICS
from tailbatch.report.evidence import Evidence
from tailbatch.stats import Change, relative_change, wilcoxon

CELL = ["data", "learner"]
_PAIR = [*CELL, "fold", "seed"]


def facts_of(evidence: Evidence) -> pd.DataFrame:
    """Return what the prepared datasets are like, by name."""
    facts = evidence.datasets[evidence.datasets["preparation"] == "paper"]
    return facts.drop_duplicates("dataset").set_index("dataset")


class Gain(NamedTuple):
    """An arm against another: percent, positive is better, with a 95% interval; cells and pairs."""

    percent: float
    low: float
    high: float
    better_cells: int
    cells: int
    pairs: int

    def __str__(self) -> str:
        """Return the percentage and its interval, for a table; a single pair has no interval."""
        if math.isnan(self.low):
            return f"{self.percent:+.1f}"
        return f"{self.percent:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def sign(metric: str) -> int:
    """Return 1 where more is better, else -1; a metric with tuned thresholds is like its plain one."""
    name = metric.removeprefix("validation_").removeprefix("tuned_")
    return 1 if METRICS[name].higher_is_better else -1


def pairs(runs: pd.DataFrame, arm: str, baseline: str, metric: str) -> pd.DataFrame:
    """Return one row a pair of runs: the cell, ``value`` of the arm and ``before`` of the baseline."""
    # A few columns of a wide frame, which pandas would copy as a whole.
    narrow = pd.DataFrame({column: runs[column] for column in ("arm", *_PAIR, metric)})
    columns = {
        name: narrow[narrow["arm"] == name].drop(columns="arm").drop_duplicates(_PAIR)
        for name in (arm, baseline)
    }
    both = columns[arm].merge(columns[baseline], on=_PAIR, suffixes=("", "_before"))
    return both.rename(columns={metric: "value", f"{metric}_before": "before"}).dropna()


def gain(runs: pd.DataFrame, arm: str, metric: str, baseline: str = "random") -> Gain | None:
    """Return by how many percent an arm changes the average over cells; None without a pair.

    Runs vary within each cell, the cells are kept: the interval speaks of these datasets and models,
    not of others.
    """
    both = pairs(runs, arm, baseline, metric)
    cells = [
        (rows["value"].to_numpy(), rows["before"].to_numpy()) for _, rows in both.groupby(CELL)
    ]
    if not cells or not sum(before.mean() for _, before in cells):
        return None
    better = sum(sign(metric) * (value.mean() - before.mean()) > 0 for value, before in cells)
    return Gain(*_signed(relative_change(cells), sign(metric)), better, len(cells), len(both))


def _signed(change: Change, direction: int) -> tuple[float, float, float]:
    ends = sorted((100 * direction * change.low, 100 * direction * change.high))
    return 100 * direction * change.estimate, ends[0], ends[1]


def signed_rank_p(runs: pd.DataFrame, arm: str, metric: str, baseline: str) -> float:
    """Return Wilcoxon's p-value over the cells' means; NaN below two cells."""
    means = pairs(runs, arm, baseline, metric).groupby(CELL)[["value", "before"]].mean()
    if len(means) < 2:
        return float("nan")
    return float(wilcoxon(means["value"], means["before"]).p_value)


def gains_by_dataset(runs: pd.DataFrame, arm: str, metric: str, baseline: str) -> pd.Series:
    """Return the mean gain in points on each dataset, over its learners and folds."""
    both = pairs(runs, arm, baseline, metric)
    return (sign(metric) * (both["value"] - both["before"])).groupby(both["data"]).mean()


def rank_correlation(first: pd.Series, second: pd.Series) -> float:
    """Return Spearman's correlation over the shared index; NaN below three entries."""
    both = pd.concat([first, second], axis=1).dropna()
    if len(both) < 3:
        return float("nan")
    return float(both.rank().corr().to_numpy()[0, 1])


def where_all_ran(runs: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """Return the runs of these arms in the cells and folds that all of them have."""
    some = runs[runs["arm"].isin(arms)].drop_duplicates([*_PAIR, "arm"])
    return some[some.groupby(_PAIR)["arm"].transform("size") == len(arms)]


def mean_rank(runs: pd.DataFrame, arms: list[str], metric: str) -> dict[str, float]:
    """Return each arm's mean rank (1 is best) over the folds that all have; cells count alike."""
    shared = where_all_ran(runs, arms)
    wide = shared.pivot(index=_PAIR, columns="arm", values=metric).dropna()
    if not len(wide):
        return {}
    ranks = (-sign(metric) * wide).rank(axis=1)
    by_cell = ranks.groupby(level=CELL).mean()
    return {arm: float(np.mean(by_cell[arm])) for arm in arms}
