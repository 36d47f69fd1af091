"""Tables of results: means with intervals, and each arm against the baseline.

Every function takes frames with keys (see `tailbatch.analysis.keys`) and returns a frame.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailbatch.analysis.inference import (
    LEVEL,
    Pairs,
    change,
    dataset_means,
    detectable_change,
    equivalence,
    gain_sign,
    held_out_ratio,
    in_range,
    over_folds,
    sign,
)
from tailbatch.analysis.keys import CELL, PAIR, Arm, Cell
from tailbatch.metrics import METRICS, TUNED
from tailbatch.stats import holm

#: The six metrics of the paper, in its order.
PAPER_METRICS = ("macro_f", "micro_f", "macro_auc", "ranking_loss", "hamming_loss", "one_error")
#: The claims of a summary about each arm, fixed before any test: rare, all and frequent labels.
#: Holm's correction is over these.
CLAIMS = ("minority_average_precision", "macro_auc", "micro_f")


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
                    _, *ends, _ = over_folds(cell.folds[known], values[known], ratio)
                    ends = in_range(metric, *ends)
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
        rows.append((*row, *over_folds(folds, gains, ratio)[1:], percent, len(gains), outcome))
    columns = ["baseline_mean", "mean", "gain", "low", "high", "p", "percent", "pairs", "outcome"]
    return pd.DataFrame(rows, columns=[*CELL, "arm", "metric", *columns])


def _pairs(runs: pd.DataFrame, metrics: list[str]) -> Iterator[tuple[Cell, Arm, str, Pairs]]:
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
                    yield at, arm, metric, Pairs(cell.folds[known], after[known], before[known])


def overall(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row per arm and metric over all cells: the change in percent, and its significance.

    ``win``, ``tie`` and ``loss`` count cells. ``percent`` is the change of the average over datasets,
    positive if it is an improvement, with its 95% interval and ``p`` (see `inference.change`). Of the
    `claimed` metrics, ``p_holm`` is corrected over all claims of all arms, ``significant`` says whether
    it is below 0.05, ``detectable`` is the change that such a test finds with a power of 80%, and
    ``worse``, ``equal`` and ``better`` are the probabilities of `practical_equivalence`.
    """
    values: dict[tuple[Arm, str], dict[Cell, Pairs]] = {}
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
