"""Tables of results, each arm against the baseline, and the one method of inference behind all of them.

Frames of runs carry the keys of `tailbatch.analysis.keys`. From paired differences:

- On one dataset: Nadeau and Bengio's corrected t over its folds, from three folds on.
- On one fixed split: Student's t over the seeds, from three seeds on. It says how far another seed
  would change the result, not how far other rows would.
- Over datasets the dataset is the unit: its learners are averaged first, then datasets are
  bootstrapped (see `bootstrap_change`), and Wilcoxon's test is over their means, from six datasets on.
- Otherwise there is only an estimate. No variance is borrowed from elsewhere.

Holm's correction is over a list of claims that is fixed in code, not chosen by p-value.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tailbatch.analysis.keys import CELL, PAIR, Arm, Cell, Dataset
from tailbatch.metrics import METRICS, TUNED
from tailbatch.stats import (
    FEWEST_DATASETS,
    FEWEST_FOLDS,
    Equivalence,
    Estimate,
    bootstrap_change,
    corrected_t,
    detectable,
    fold_error,
    holm,
    practical_equivalence,
    wilcoxon,
)

#: The six metrics of the paper, in its order.
PAPER_METRICS = ("macro_f", "micro_f", "macro_auc", "ranking_loss", "hamming_loss", "one_error")
#: The claims of a summary about each arm, fixed before any test: rare, all and frequent labels.
#: Holm's correction is over these.
CLAIMS = ("minority_average_precision", "macro_auc", "micro_f")
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


class _Pairs(NamedTuple):
    """The paired values of one cell: folds, the arm's values, and the baseline's on the same rows."""

    folds: np.ndarray
    value: np.ndarray
    before: np.ndarray


def measured(runs: pd.DataFrame) -> set[str]:
    """Return the metrics with a value in every run of a dataset, unless the dataset has none at all.

    A metric that only some folds of a dataset have says nothing about the others.
    """
    names = [name for name in runs if name.removeprefix(TUNED) in METRICS]
    dataset = runs["data" if "data" in runs else "dataset"]
    shares = runs[names].notna().groupby(dataset, sort=False).mean()
    return {name for name in names if shares[name].isin((0, 1)).all() and shares[name].any()}


def claimed(metrics: Sequence[str]) -> list[str]:
    """Return the metrics that a summary makes claims about: those of `CLAIMS`, or else the first metric.

    Examples
    --------
    >>> claimed(["macro_f", "micro_f", "macro_auc"]), claimed(["macro_f"])
    (['macro_auc', 'micro_f'], ['macro_f'])
    """
    both = [name for claim in CLAIMS for name in (claim, f"{TUNED}{claim}")]
    return [name for name in both if name in metrics] or list(metrics[:1])


def baseline_arm(arms: Iterable[Arm]) -> Arm:
    """Return the arm that the others are compared with: random, or else the first in order.

    Examples
    --------
    >>> str(baseline_arm([Arm("adaptive"), Arm("random")]))
    'random'
    """
    return min(set(arms))


def with_batches(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of arms that draw batches, the subject of all tables except the results."""
    return table[np.array([arm.draws_batches for arm in table["arm"]], dtype=bool)]


def primary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of each strategy's primary arm: its default pressure, if tried."""
    return runs[np.array([arm.is_primary for arm in runs["arm"]], dtype=bool)]


def paired(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose fold and seed all primary arms of their cell have.

    Compared means are then over the same folds, initial weights and warm-ups, even if one arm ran with
    more seeds, or a run is missing.
    """
    main = primary(runs)
    arms = main.groupby(CELL)["arm"].nunique().rename("arms")
    shared = main.groupby(PAIR)["arm"].nunique().rename("here").reset_index().merge(arms, on=CELL)
    shared = shared.loc[shared["here"] == shared["arms"], PAIR]
    return runs.merge(shared, on=PAIR)


@dataclass(frozen=True, eq=False)
class _PairedRuns:
    """Paired runs of one cell: (pairs, metrics) by primary arm, and (pairs,) folds of the rows."""

    arms: dict[Arm, np.ndarray]
    folds: np.ndarray


def _cells(runs: pd.DataFrame, metrics: list[str]) -> dict[Cell, _PairedRuns]:
    """Return the paired runs of each dataset and model as arrays."""
    # Only a few columns: pandas would copy the wide frame repeatedly.
    compared = paired(primary(runs[[*PAIR, "arm", *metrics]])).drop_duplicates([*PAIR, "arm"])
    compared = compared.sort_values(["fold", "seed"], kind="stable")
    values = compared[metrics].to_numpy(dtype=np.float64)
    places = compared.groupby([*CELL, "arm"], sort=False).indices
    arms: dict[Cell, dict[Arm, np.ndarray]] = {}
    for data, learner, arm in sorted(places):
        arms.setdefault(Cell(data, learner), {})[arm] = places[data, learner, arm]
    folds = compared["fold"].to_numpy()
    return {
        cell: _PairedRuns(
            {arm: values[at] for arm, at in rows.items()}, folds[next(iter(rows.values()))]
        )
        for cell, rows in arms.items()
    }


def results(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row per cell, arm and metric: the mean over paired runs and its interval (Table 2).

    Columns ``mean``, ``low``, ``high`` (95%, corrected t over folds, missing below three), ``runs``, and
    ``best``: whether no arm of the cell has a better mean, and at least one a worse mean.
    """
    rows, ratio = [], held_out_ratio(runs)
    for at, cell in _cells(runs, metrics).items():
        for arm, block in cell.arms.items():
            for metric, values in zip(metrics, block.T, strict=True):
                known = ~np.isnan(values)
                if known.any():
                    _, *ends, _ = _over_folds(cell.folds[known], values[known], ratio)
                    ends = _in_range(metric, *ends)
                    mean, count = values[known].mean(), int(known.sum())
                    rows.append((at.dataset, at.learner, arm, metric, mean, *ends, count))
    table = pd.DataFrame(rows, columns=[*CELL, "arm", "metric", "mean", "low", "high", "runs"])
    return with_best(table, [*CELL, "metric"])


def with_best(table: pd.DataFrame, within: list[str]) -> pd.DataFrame:
    """Return a table of means with ``best``: in its group `within`, none is better and some are worse.

    Examples
    --------
    >>> means = pd.DataFrame({"metric": "macro_f", "mean": [0.2, 0.3]})
    >>> with_best(means, ["metric"])["best"].tolist()
    [False, True]
    """
    # Compared as printed, so that equal numbers always have equal marks.
    score = table["mean"].round(4) * table["metric"].map(sign)
    scores = score.groupby([table[name] for name in within])
    return table.assign(best=(score == scores.transform("max")) & (score > scores.transform("min")))


def comparisons(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row per cell, arm and metric: the arm against the baseline on the same folds and seeds.

    ``gain`` is positive if the arm is better, whether higher or lower is better; ``low`` and ``high``
    are its 95% interval and ``p`` its p-value (corrected t over folds, missing below three);
    ``percent`` is the gain in percent of the baseline's mean; ``outcome`` is win, tie or loss of the
    means as printed, to four digits.
    """
    rows, ratio = [], held_out_ratio(runs)
    for at, arm, metric, (folds, values, base) in _pairs(runs, metrics):
        gains = sign(metric) * (values - base)
        percent = 100 * gains.mean() / abs(base.mean()) if base.mean() else np.nan
        outcome = {1: "win", 0: "tie", -1: "loss"}[gain_sign(base.mean(), values.mean(), metric)]
        row = (at.dataset, at.learner, arm, metric, base.mean(), values.mean(), gains.mean())
        rows.append((*row, *_over_folds(folds, gains, ratio)[1:], percent, len(gains), outcome))
    columns = ["baseline_mean", "mean", "gain", "low", "high", "p", "percent", "pairs", "outcome"]
    return pd.DataFrame(rows, columns=[*CELL, "arm", "metric", *columns])


def _pairs(runs: pd.DataFrame, metrics: list[str]) -> Iterator[tuple[Cell, Arm, str, _Pairs]]:
    """Yield cell, arm, metric, and the values of the arm and the baseline."""
    paired_cells = _cells(runs, metrics)
    base = min((arm for cell in paired_cells.values() for arm in cell.arms), default=None)
    for at, cell in paired_cells.items():
        if base is None or base not in cell.arms:
            continue
        for arm in cell.arms:
            for column, metric in enumerate(metrics):
                before, after = cell.arms[base][:, column], cell.arms[arm][:, column]
                known = ~np.isnan(before) & ~np.isnan(after)
                if arm != base and known.any():
                    yield at, arm, metric, _Pairs(cell.folds[known], after[known], before[known])


def overall(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row per arm and metric over all cells: the change in percent, and its significance.

    ``win``, ``tie`` and ``loss`` count cells. ``percent`` is the change of the average over datasets,
    positive if it is an improvement, with its 95% interval and ``p`` (see `change`). Of the
    `claimed` metrics, ``p_holm`` is corrected over all claims of all arms, ``significant`` says whether
    it is below 0.05, ``detectable`` is the change that such a test finds with a power of 80%, and
    ``worse``, ``equal`` and ``better`` are the probabilities of `practical_equivalence`.
    """
    values: dict[tuple[Arm, str], dict[Cell, _Pairs]] = {}
    for at, arm, metric, pair in _pairs(runs, metrics):
        values.setdefault((arm, metric), {})[at] = pair
    rows, ratio = [], held_out_ratio(runs)
    for arm, metric in sorted(values, key=lambda key: key[0]):
        here = values[arm, metric]
        after, before = np.array(list(dataset_means(here).values())).T
        signs = [gain_sign(b.mean(), a.mean(), metric) for _, a, b in here.values()]
        row = {"arm": arm, "metric": metric, "cells": len(here), "datasets": len(after)}
        row |= {"win": signs.count(1), "tie": signs.count(0), "loss": signs.count(-1)}
        row |= {"baseline_mean": before.mean(), "mean": after.mean()}
        row |= zip(("percent", "low", "high", "p"), change(here, metric, ratio), strict=True)
        if metric in claimed(metrics):
            row["detectable"] = detectable_change(here, ratio)
            row |= equivalence(here, metric, ratio)._asdict()
        rows.append(row)
    columns = ["arm", "metric", "cells", "datasets", "win", "tie", "loss", "baseline_mean", "mean"]
    columns += ["percent", "low", "high", "p", "detectable", "worse", "equal", "better"]
    table = pd.DataFrame(rows, columns=columns)
    p_holm = adjusted(table["p"].where(table["metric"].isin(claimed(metrics))))
    return table.assign(p_holm=p_holm, significant=p_holm < LEVEL)


def adjusted(p_values: pd.Series) -> pd.Series:
    """Return p-values after Holm's correction; missing ones stay missing and do not count.

    Examples
    --------
    >>> adjusted(pd.Series([0.01, np.nan, 0.04])).tolist()
    [0.02, nan, 0.04]
    """
    known = p_values.dropna()
    return pd.Series(holm(known.to_numpy()), known.index).reindex(p_values.index)


# ---- inference


def sign(metric: str) -> int:
    """Return 1 if higher is better, else -1.

    Examples
    --------
    >>> sign("macro_f"), sign("validation_ranking_loss"), sign("tuned_macro_f")
    (1, -1, 1)
    """
    return 1 if METRICS[_plain(metric)].higher_is_better else -1


def _plain(metric: str) -> str:
    return metric.removeprefix("validation_").removeprefix(TUNED)


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


def _over_folds(folds: np.ndarray, values: np.ndarray, ratio: float) -> Estimate:
    """Return the mean over folds with its corrected interval; the seeds of a fold are averaged first."""
    return corrected_t(_by_fold(folds, values)[1], test_to_train=ratio)


def _by_fold(folds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    names, places = np.unique(folds, return_inverse=True)
    return names, np.bincount(places, values) / np.bincount(places)


def dataset_means(cells: Mapping[Cell, _Pairs]) -> dict[Dataset, tuple[float, float]]:
    """Return the arm's and the baseline's mean on each dataset, averaged over its learners."""
    means: dict[Dataset, list[tuple[float, float]]] = {}
    for cell, (_, value, before) in cells.items():
        means.setdefault(_unit(cell), []).append((value.mean(), before.mean()))
    return {data: tuple(np.mean(rows, axis=0).tolist()) for data, rows in means.items()}


def _unit(cell: Cell) -> Dataset:
    """Return the dataset of a cell without other varying settings, so that it counts once."""
    return Dataset(cell.dataset.name)


def _fold_differences(cells: Mapping[Cell, _Pairs]) -> dict[Dataset, np.ndarray]:
    """Return each dataset's differences by fold, averaged over its learners on their common folds."""
    by_data: dict[Dataset, list[dict[Any, float]]] = {}
    for cell, (folds, value, before) in cells.items():
        differences = zip(*_by_fold(folds, value - before), strict=True)
        by_data.setdefault(_unit(cell), []).append(dict(differences))
    averages = {}
    for data, rows in by_data.items():
        shared = sorted(set.intersection(*map(set, rows)))
        averages[data] = np.array([np.mean([one[fold] for one in rows]) for fold in shared])
    return averages


def change(cells: Mapping[Cell, _Pairs], metric: str, ratio: float) -> Estimate:
    """Return the improvement of the average over datasets in percent, missing if the baseline is 0.

    Interval and p-value are as described in the module; `ratio` is that of `held_out_ratio`.

    Examples
    --------
    >>> from tailbatch.analysis.keys import Learner
    >>> cell = Cell(Dataset("scene"), Learner("mlp"))
    >>> values = {cell: _Pairs(np.arange(2), np.array([0.2, 0.4]), np.array([0.1, 0.3]))}
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
    values = _in_range(metric, base * (1 + low), base * (1 + high))
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


def _in_range(metric: str, *ends: float) -> list[float]:
    """Return the ends of an interval of a metric, cut at the values that it can take."""
    least, most = METRICS[_plain(metric)].range
    return [float(end) for end in np.clip(ends, least, most)]


def detectable_change(cells: Mapping[Cell, _Pairs], ratio: float) -> float:
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


def equivalence(cells: Mapping[Cell, _Pairs], metric: str, ratio: float) -> Equivalence:
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


def _matched(runs: pd.DataFrame, arm: Arm, baseline: Arm, metric: str) -> list[tuple[Any, ...]]:
    """Return each pair of runs, not as a frame: a page needs thousands, and merging is slow.

    A pair is cell, fold and seed, then the value of the arm and that of the baseline.
    """
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
) -> dict[Cell, _Pairs]:
    """Return the values of an arm and the baseline on the folds and seeds both have, by cell."""
    groups: dict[Cell, list[tuple[Any, ...]]] = {}
    for data, learner, fold, _, value, before in _matched(runs, arm, baseline, metric):
        groups.setdefault(Cell(data, learner), []).append((fold, value, before))
    return {cell: _Pairs(*np.array(groups[cell], dtype=np.float64).T) for cell in sorted(groups)}
