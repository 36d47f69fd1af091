"""Tables of results: means with intervals, and each arm against the baseline.

Every function takes frames with keys (see `tailbatch.analysis.keys`) and returns a frame.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tailbatch.analysis.gains import FEWEST_FOLDS, PAIR, gain_sign, percent_change, sign
from tailbatch.analysis.keys import CELL, Arm, Cell, by_label
from tailbatch.metrics import METRICS
from tailbatch.stats import Interval, bootstrap_interval, holm, wilcoxon

#: The six metrics of the paper, in its order.
PAPER_METRICS = ("macro_f", "micro_f", "macro_auc", "ranking_loss", "hamming_loss", "one_error")
_FEWEST = 6  # pairs below which Wilcoxon's p-value cannot fall under 0.05


def shown_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the metrics of the result tables: the paper's six, then those over minority labels.

    Examples
    --------
    >>> shown_metrics(pd.DataFrame({"one_error": [0.1], "macro_f": [0.5], "coverage": [2.0]}))
    ['macro_f', 'one_error']
    """
    minority = [name for name, metric in METRICS.items() if metric.minority]
    return [
        name for name in (*PAPER_METRICS, *minority) if name in runs and runs[name].notna().any()
    ]


def baseline_arm(arms: Iterable[Arm]) -> Arm:
    """Return the arm that the others are compared with: random, else the first in order.

    Examples
    --------
    >>> str(baseline_arm([Arm("adaptive"), Arm("random")]))
    'random'
    """
    return min(set(arms))


def with_batches(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of arms that draw batches, which all but the tables of results are about.

    Examples
    --------
    >>> table = pd.DataFrame({"arm": [Arm("random"), Arm("none")]})
    >>> [str(arm) for arm in with_batches(table)["arm"]]
    ['random']
    """
    return table[np.array([arm.draws_batches for arm in table["arm"]], dtype=bool)]


def primary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of each strategy's primary arm: its own pressure where tried."""
    return runs[np.array([arm.is_primary for arm in runs["arm"]], dtype=bool)]


def paired(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose fold and seed all primary arms of their cell have.

    So compared means are over the same folds, initial weights and warm-ups, also where one arm ran
    with more seeds, or lost a run.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [0, 1, 0], "seed": 0,
    ...                      "arm": [Arm("random"), Arm("random"), Arm("adaptive")]})
    >>> paired(runs)["fold"].tolist()
    [0, 0]
    """
    main = primary(runs)
    arms = main.groupby(CELL)["arm"].nunique().rename("arms")
    shared = main.groupby(PAIR)["arm"].nunique().rename("here").reset_index().merge(arms, on=CELL)
    shared = shared.loc[shared["here"] == shared["arms"], PAIR]
    return runs.merge(shared, on=PAIR)


@dataclass(frozen=True, eq=False)
class PairedRuns:
    """The paired runs of one dataset and model.

    Attributes
    ----------
    arms
        For each primary arm, in order, its runs' metrics: (pairs, metrics), rows aligned.
    grid
        How the pairs are laid out: (folds, seeds), or (pairs,) where some seed lacks some fold.
    folds
        (pairs,) the fold of each pair.
    """

    arms: dict[Arm, np.ndarray]
    grid: tuple[int, ...]
    folds: np.ndarray


def cells(runs: pd.DataFrame, metrics: list[str]) -> dict[Cell, PairedRuns]:
    """Return the paired runs of each dataset and model as arrays.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [1, 0, 0, 1], "seed": 0,
    ...                      "arm": [Arm("random")] * 2 + [Arm("adaptive")] * 2,
    ...                      "macro_f": [0.2, 0.1, 0.3, 0.4]})
    >>> (found,) = cells(runs, ["macro_f"]).values()
    >>> {str(arm): values.ravel().tolist() for arm, values in found.arms.items()}, found.grid
    ({'random': [0.1, 0.2], 'adaptive': [0.3, 0.4]}, (2, 1))
    """
    # A few columns of a wide frame, which pandas would copy again and again.
    compared = paired(primary(runs[[*PAIR, "arm", *metrics]])).drop_duplicates([*PAIR, "arm"])
    compared = compared.sort_values(["fold", "seed"], kind="stable")
    values = compared[metrics].to_numpy(dtype=np.float64)
    places = compared.groupby([*CELL, "arm"], sort=False).indices
    arms: dict[Cell, dict[Arm, np.ndarray]] = {}
    for data, learner, arm in sorted(places):
        arms.setdefault(Cell(data, learner), {})[arm] = places[data, learner, arm]
    found = {}
    for cell, rows in arms.items():
        folds, seeds = compared[["fold", "seed"]].to_numpy()[next(iter(rows.values()))].T
        grid = len(np.unique(folds)), len(np.unique(seeds))
        blocks = {arm: values[at] for arm, at in rows.items()}
        found[cell] = PairedRuns(
            blocks, grid if np.prod(grid) == len(folds) else (len(folds),), folds
        )
    return found


def results(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row a cell, arm and metric: the mean over paired runs and its interval (Table 2).

    Columns ``mean``, ``low``, ``high`` (95% bootstrap over folds and seeds, missing below three
    folds), ``runs``, and ``best``: whether no arm of the cell has a better mean, and some a worse one.
    """
    rows = []
    for at, cell in cells(runs, metrics).items():
        for arm, block in cell.arms.items():
            for metric, values in zip(metrics, block.T, strict=True):
                there = ~np.isnan(values)
                if there.any():
                    known = values[there]
                    ends = _interval(known, cell.folds[there], cell.grid)
                    rows.append(
                        (at.dataset, at.learner, arm, metric, known.mean(), *ends, len(known))
                    )
    table = pd.DataFrame(rows, columns=[*CELL, "arm", "metric", "mean", "low", "high", "runs"])
    return with_best(table, [*CELL, "metric"])


def with_best(table: pd.DataFrame, within: list[str]) -> pd.DataFrame:
    """Return a table of means with ``best``: none of those it stands `within` is better, some is worse.

    Examples
    --------
    >>> means = pd.DataFrame({"metric": "macro_f", "mean": [0.2, 0.3]})
    >>> with_best(means, ["metric"])["best"].tolist()
    [False, True]
    """
    # Compared as printed, so that two equal numbers are never told apart by a mark.
    score = table["mean"].round(4) * table["metric"].map(sign)
    scores = score.groupby([table[name] for name in within])
    return table.assign(best=(score == scores.transform("max")) & (score > scores.transform("min")))


def comparisons(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row a cell, arm and metric: the arm against the baseline on the same folds and seeds.

    ``gain`` is positive where the arm is better, whichever way the metric runs; ``low`` and ``high``
    are its 95% bootstrap interval, missing below three folds; ``percent`` is the gain in percent of the
    baseline's mean; ``outcome`` is win, tie or loss of the means as printed, to four digits.
    """
    rows = []
    for at, (folds, grid), arm, metric, base, values in _pairs(runs, metrics):
        gains = sign(metric) * (values - base)
        percent = 100 * gains.mean() / abs(base.mean()) if base.mean() else np.nan
        outcome = {1: "win", 0: "tie", -1: "loss"}[gain_sign(base.mean(), values.mean(), metric)]
        row = (at.dataset, at.learner, arm, metric, base.mean(), values.mean(), gains.mean())
        rows.append((*row, *_interval(gains, folds, grid), percent, len(gains), outcome))
    columns = ["baseline_mean", "mean", "gain", "low", "high", "percent", "pairs", "outcome"]
    return pd.DataFrame(rows, columns=[*CELL, "arm", "metric", *columns])


_Layout = tuple[np.ndarray, tuple[int, ...]]
_Pair = tuple[Cell, _Layout, Arm, str, np.ndarray, np.ndarray]


def _pairs(runs: pd.DataFrame, metrics: list[str]) -> Iterator[_Pair]:
    """Yield cell, folds and grid, arm, metric, and the values of the baseline and the arm."""
    found = cells(runs, metrics)
    base = min((arm for cell in found.values() for arm in cell.arms), default=None)
    for at, cell in found.items():
        if base is None or base not in cell.arms:
            continue
        for arm in cell.arms:
            for place, metric in enumerate(metrics):
                before, after = cell.arms[base][:, place], cell.arms[arm][:, place]
                known = ~np.isnan(before) & ~np.isnan(after)
                if arm != base and known.any():
                    layout = cell.folds[known], cell.grid
                    yield at, layout, arm, metric, before[known], after[known]


def _interval(values: np.ndarray, folds: np.ndarray, grid: tuple[int, ...]) -> Interval:
    """Return the bootstrap interval of a mean over folds and seeds, laid out as a grid where they are."""
    if len(np.unique(folds)) < FEWEST_FOLDS:
        return Interval(np.nan, np.nan)
    return bootstrap_interval(values.reshape(grid) if np.prod(grid) == len(values) else values)


def overall(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row an arm and metric over all cells: wins, ties, losses, change in percent, p-value.

    ``percent`` is the change of the average over cells, positive where it is for the better, with its
    95% interval from the spread over folds and seeds within each cell (missing where the baseline is 0,
    and where no cell has three folds).
    ``p`` is Wilcoxon's signed-rank test over the cells' means (missing below six cells, where it cannot
    fall under 0.05), ``p_holm`` the same after Holm's correction over the arm's metrics.
    """
    pairs: dict[tuple[Arm, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    most: dict[tuple[Arm, str], int] = {}
    for _, (folds, _), arm, metric, base, values in _pairs(runs, metrics):
        pairs.setdefault((arm, metric), []).append((values, base))
        most[arm, metric] = max(most.get((arm, metric), 0), len(np.unique(folds)))
    rows = []
    for arm, metric in sorted(pairs, key=lambda key: key[0]):
        means = [(base.mean(), values.mean()) for values, base in pairs[arm, metric]]
        before, after = np.array(means).T
        signs = [gain_sign(*both, metric) for both in means]
        row: dict[str, object] = {"arm": arm, "metric": metric, "cells": len(means)}
        row |= {"win": signs.count(1), "tie": signs.count(0), "loss": signs.count(-1)}
        row |= {"baseline_mean": before.mean(), "mean": after.mean()}
        change = percent_change(pairs[arm, metric], metric, most[arm, metric])
        row |= dict(zip(("percent", "low", "high"), change, strict=True))
        row["p"] = wilcoxon(after, before).p_value if len(means) >= _FEWEST else np.nan
        rows.append(row)
    columns = ["arm", "metric", "cells", "win", "tie", "loss", "baseline_mean", "mean"]
    table = pd.DataFrame(rows, columns=[*columns, "percent", "low", "high", "p"])
    return table.assign(p_holm=table.groupby("arm")["p"].transform(adjusted))


def adjusted(p_values: pd.Series) -> pd.Series:
    """Return p-values after Holm's correction; missing ones stay missing and do not count.

    Examples
    --------
    >>> adjusted(pd.Series([0.01, np.nan, 0.04])).tolist()
    [0.02, nan, 0.04]
    """
    known = p_values.dropna()
    return pd.Series(holm(known.to_numpy()), known.index).reindex(p_values.index)


def tuned(runs: pd.DataFrame, *, by: str = "validation_macro_auc") -> pd.DataFrame:
    """Return the runs of the tuned comparison: as many tries for the baseline as for a strategy.

    In each cell and fold, a strategy that ran with several pressures keeps the one with the best
    validation value; the baseline keeps, chosen in the same way, the best of as many seeds. Only cells
    where the baseline has that many seeds are there. The test results choose nothing. `runs` holds the
    baseline and one other strategy.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": 0, "seed": [0, 1, 0, 0],
    ...     "strategy": ["random", "random", "adaptive", "adaptive"],
    ...     "arm": [Arm("random")] * 2 + [Arm("adaptive", 2.0), Arm("adaptive")],
    ...     "validation_macro_auc": [0.6, 0.7, 0.8, 0.9], "macro_f": [0.1, 0.2, 0.3, 0.4]})
    >>> tuned(runs)[["arm", "macro_f"]].astype(str).values.tolist()
    [['adaptive (best of 2)', '0.4'], ['random (best of 2)', '0.2']]
    """
    if by not in runs or runs.empty:
        return runs.iloc[:0]
    base = baseline_arm(runs["arm"]).strategy
    place = [*CELL, "fold"]
    # One try is a pressure of the strategy's first seed, or a seed of the baseline.
    first = runs["seed"] == runs.groupby([*place, "strategy"])["seed"].transform("min")
    tries = runs[(runs["strategy"] == base) | first].sort_values("seed", kind="stable")
    pressures = tries["arm"].map(lambda arm: arm.pressure)
    tries = tries.assign(pressure=pressures).drop_duplicates(
        [*place, "strategy", "pressure", "seed"]
    )
    tried = tries[tries["strategy"] != base].groupby(place).size().rename("tries").reset_index()
    tries = tries.merge(tried[tried["tries"] > 1], on=place)
    tries = tries[tries.groupby([*place, "strategy"]).cumcount() < tries["tries"]]
    enough = tries.groupby([*place, "strategy"])["seed"].transform("size") == tries["tries"]
    both = tries[enough].groupby(place)["strategy"].transform("nunique") == 2
    best = tries[enough][both].sort_values(by, ascending=False, kind="stable")
    best = by_label(best.drop_duplicates([*place, "strategy"]), [*place, "strategy"])
    arms = [
        replace(arm.usual or Arm(arm.strategy), best_of=count, usual=arm.usual)
        for arm, count in zip(best["arm"], best["tries"], strict=True)
    ]
    # Chosen by fold: the seed is a result of the choice, no longer a part of the pairing.
    return best.drop(columns=["tries", "pressure"]).assign(arm=arms, seed=0)


def tuned_by_strategy(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tuned comparison of each strategy that has one, see `tuned`."""
    found: dict[str, pd.DataFrame] = {}
    if runs.empty:
        return found
    base = baseline_arm(primary(runs)["arm"]).strategy
    for strategy in runs["strategy"].unique():
        chosen = tuned(runs[runs["strategy"].isin([base, strategy])])
        if strategy != base and len(chosen):
            found[strategy] = chosen
    return found
