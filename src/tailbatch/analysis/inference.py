"""Inference from paired differences: the one method behind page, report and terminal.

- On one dataset: Nadeau and Bengio's corrected t over its folds, from three folds on.
- On one fixed split: Student's t over the seeds, from three seeds on. It says how far another seed
  would change the result, not how far other rows would.
- Over datasets the dataset is the unit: its learners are averaged first, then datasets are
  bootstrapped (see `bootstrap_change`), and Wilcoxon's test is over their means, from six datasets on.
- Otherwise there is only an estimate. No variance is borrowed from elsewhere.

Holm's correction is over a list of claims that is fixed in code, not chosen by p-value.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tailbatch.analysis.keys import PAIR, Arm, Cell, Dataset
from tailbatch.metrics import METRICS
from tailbatch.stats import (
    FEWEST_DATASETS,
    FEWEST_FOLDS,
    Equivalence,
    Estimate,
    bootstrap_change,
    corrected_t,
    detectable,
    fold_error,
    practical_equivalence,
    wilcoxon,
)

#: A corrected p-value below this is significant.
LEVEL = 0.05
#: Differences of at most this size are practically equal.
REGION = 0.01
#: Simulations behind a coverage; its standard error is at most 0.5%.
SIMULATIONS = 2000
# By the number of datasets: how often the 95% interval contains the true change if gains are normal,
# exponential and lognormal; tests/ground/test_stats.py simulates them.
_COVERAGE = {
    6: (0.983, 0.974, 0.957),
    8: (0.980, 0.970, 0.950),
    12: (0.986, 0.978, 0.962),
    16: (0.986, 0.979, 0.955),
}
_RANDOM = Arm("random")
_FOLDS = 5  # of a cross-validation, if the runs do not say


class Pairs(NamedTuple):
    """The paired values of one cell: folds, the arm's values, and the baseline's on the same rows."""

    folds: np.ndarray
    value: np.ndarray
    before: np.ndarray


def sign(metric: str) -> int:
    """Return 1 if higher is better, else -1.

    Examples
    --------
    >>> sign("macro_f"), sign("validation_ranking_loss"), sign("tuned_macro_f")
    (1, -1, 1)
    """
    return 1 if METRICS[_plain(metric)].higher_is_better else -1


def _plain(metric: str) -> str:
    return metric.removeprefix("validation_").removeprefix("tuned_")


def gain_sign(before: float, after: float, metric: str) -> int:
    """Return 1 if `after` is better as printed, to four digits, -1 if it is worse, and 0 otherwise.

    Examples
    --------
    >>> gain_sign(0.2, 0.1, "one_error"), gain_sign(0.2, 0.20001, "macro_f")
    (1, 0)
    """
    return int(sign(metric) * np.sign(round(after, 4) - round(before, 4)))


def held_out_ratio(runs: pd.DataFrame) -> float:
    """Return test rows over training rows of a fold: half of the held-out part is for testing."""
    folds = runs["n_folds"].min() if len(runs) and "n_folds" in runs else _FOLDS
    return 1 / (2 * (int(folds) - 1))


def over_folds(folds: np.ndarray, values: np.ndarray, ratio: float) -> Estimate:
    """Return the mean over folds with its corrected interval; the seeds of a fold are averaged first.

    Examples
    --------
    >>> over_folds(np.array([0, 0, 1]), np.array([1.0, 3.0, 4.0]), 0.125).mean
    3.0
    """
    return corrected_t(_by_fold(folds, values)[1], test_to_train=ratio)


def _by_fold(folds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    names, places = np.unique(folds, return_inverse=True)
    return names, np.bincount(places, values) / np.bincount(places)


def dataset_means(cells: Mapping[Cell, Pairs]) -> dict[Dataset, tuple[float, float]]:
    """Return the arm's and the baseline's mean on each dataset, averaged over its learners."""
    means: dict[Dataset, list[tuple[float, float]]] = {}
    for cell, (_, value, before) in cells.items():
        means.setdefault(_unit(cell), []).append((value.mean(), before.mean()))
    averages = {data: np.mean(rows, axis=0).tolist() for data, rows in means.items()}
    return {data: (value, before) for data, (value, before) in averages.items()}


def _unit(cell: Cell) -> Dataset:
    """Return the dataset of a cell without other varying settings, so that it counts once."""
    return Dataset(cell.dataset.name)


def _fold_differences(cells: Mapping[Cell, Pairs]) -> dict[Dataset, np.ndarray]:
    """Return each dataset's differences by fold, averaged over its learners on their common folds."""
    by_data: dict[Dataset, list[dict[Any, float]]] = {}
    for cell, (folds, value, before) in cells.items():
        differences = zip(*_by_fold(folds, value - before), strict=True)
        by_data.setdefault(_unit(cell), []).append(dict(differences))
    return {
        data: np.array(
            [
                np.mean([one[fold] for one in rows])
                for fold in sorted(set.intersection(*map(set, rows)))
            ]
        )
        for data, rows in by_data.items()
    }


def change(cells: Mapping[Cell, Pairs], metric: str, ratio: float) -> Estimate:
    """Return the improvement of the average over datasets in percent, missing if the baseline is 0.

    Interval and p-value are as described in the module; `ratio` is that of `held_out_ratio`.

    Examples
    --------
    >>> from tailbatch.analysis.keys import Learner
    >>> cell = Cell(Dataset("scene"), Learner("mlp"))
    >>> values = {cell: Pairs(np.arange(2), np.array([0.2, 0.4]), np.array([0.1, 0.3]))}
    >>> [round(number, 6) for number in change(values, "macro_f", 0.125)]
    [50.0, nan, nan, nan]
    """
    after, before = np.array(list(dataset_means(cells).values())).T
    base = before.mean()
    if not base:
        return Estimate(np.nan, np.nan, np.nan, np.nan)
    factor = 100 * sign(metric)
    percent = float(factor * (after.mean() / base - 1))
    if len(after) == 1:
        (differences,) = _fold_differences(cells).values()
        known = corrected_t(differences, test_to_train=ratio) if len(differences) else None
        if known is None or math.isnan(known.low):
            return Estimate(percent, np.nan, np.nan, np.nan)
        half, p_value = (known.high - known.low) / 2 / abs(base), known.p_value
        low, high = after.mean() / base - 1 - half, after.mean() / base - 1 + half
    else:
        low, high = bootstrap_change(after, before)
        enough = len(after) >= FEWEST_DATASETS
        p_value = wilcoxon(after, before).p_value if enough else np.nan
    values = in_range(metric, base * (1 + low), base * (1 + high))
    low, high = sorted(factor * (value / base - 1) for value in values)
    return Estimate(percent, low, high, p_value)


def coverage_text(n: int) -> str:
    """Say how often the interval over about `n` datasets contains the true change; empty below six."""
    sizes = [size for size in _COVERAGE if size <= n]
    if not sizes:
        return ""
    normal, exponential, lognormal = (f"{share:.0%}" for share in _COVERAGE[sizes[-1]])
    return (
        f"Simulated with {sizes[-1]} datasets, it contains the true change in {normal} (normal gains), "
        f"{exponential} (exponential) and {lognormal} (lognormal) of cases."
    )


def in_range(metric: str, *ends: float) -> list[float]:
    """Return the ends of an interval of a metric, cut at the values that it can take.

    Examples
    --------
    >>> in_range("macro_auc", 0.93, 1.04), in_range("ranking_loss", -0.02, 0.1)
    ([0.93, 1.0], [0.0, 0.1])
    """
    least, most = METRICS[_plain(metric)].range
    return [float(end) for end in np.clip(ends, least, most)]


def detectable_change(cells: Mapping[Cell, Pairs], ratio: float) -> float:
    """Return the change in percent that the test over these cells would detect with a power of 80%."""
    after, before = np.array(list(dataset_means(cells).values())).T
    if not before.mean() or 1 < len(after) < FEWEST_DATASETS:
        return np.nan
    if len(after) > 1:
        least = detectable(after - before)
    else:
        (differences,) = _fold_differences(cells).values()
        least = detectable(differences, test_to_train=ratio)
    return float(100 * least / abs(before.mean()))


def equivalence(cells: Mapping[Cell, Pairs], metric: str, ratio: float) -> Equivalence:
    """Return the probabilities that the next dataset is worse, equal or better, by more than `REGION`.

    They come from cells with three or more folds, and are missing below three such datasets.
    """
    precise = {at: pair for at, pair in cells.items() if len(set(pair.folds)) >= FEWEST_FOLDS}
    known = [
        values for values in _fold_differences(precise).values() if len(values) >= FEWEST_FOLDS
    ]
    means = [sign(metric) * values.mean() for values in known]
    errors = [fold_error(values, test_to_train=ratio) for values in known]
    return practical_equivalence(means, errors, region=REGION)


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


def paired_values(
    runs: pd.DataFrame, arm: Arm, metric: str, baseline: Arm = _RANDOM
) -> dict[Cell, Pairs]:
    """Return the values of an arm and the baseline on the folds and seeds both have, by cell."""
    groups: dict[Cell, list[tuple[Any, ...]]] = {}
    for data, learner, fold, _, value, before in _matched(runs, arm, baseline, metric):
        groups.setdefault(Cell(data, learner), []).append((fold, value, before))
    return {cell: Pairs(*np.array(groups[cell], dtype=np.float64).T) for cell in sorted(groups)}
