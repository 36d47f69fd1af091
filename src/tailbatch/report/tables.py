"""Tables of results: means with intervals, paired comparisons, and what they say in one sentence.

Every function takes frames and returns a frame. A *cell* is one dataset with one model; its *arms*
are the strategies that ran in it (see `tailbatch.report.evidence.named`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tailbatch.metrics import METRICS
from tailbatch.report.style import arm_order
from tailbatch.stats import (
    Change,
    Interval,
    bootstrap_interval,
    holm,
    relative_change,
    wilcoxon,
)

#: The six metrics of the paper, in its order.
PAPER_METRICS = ("macro_f", "micro_f", "macro_auc", "ranking_loss", "hamming_loss", "one_error")
CELL = ["data", "learner"]
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


def baseline_arm(arms: Iterable[str]) -> str:
    """Return the arm that the others are compared with: random, else the first in order.

    Examples
    --------
    >>> baseline_arm(["adaptive", "random"]), baseline_arm(["chain", "adaptive"])
    ('random', 'adaptive')
    """
    return min(arms, key=arm_order)


def primary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of each strategy's primary arm: its default pressure where tried."""
    return runs[runs["arm"] == runs["strategy"]]


def paired(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose fold and seed all primary arms of their cell have.

    So compared means are over the same folds, initial weights and warm-ups, also where one arm ran
    with more seeds, or lost a run.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [0, 1, 0], "seed": 0,
    ...                      "arm": ["random", "random", "adaptive"]})
    >>> paired(runs.assign(strategy=runs["arm"]))["fold"].tolist()
    [0, 0]
    """
    keys = [*CELL, "fold", "seed"]
    main = primary(runs)
    arms = main.groupby(CELL)["arm"].nunique().rename("arms")
    shared = main.groupby(keys)["arm"].nunique().rename("here").reset_index().merge(arms, on=CELL)
    shared = shared.loc[shared["here"] == shared["arms"], keys]
    return runs.merge(shared, on=keys)


@dataclass(frozen=True, eq=False)
class Cell:
    """The paired runs of one dataset and model.

    Attributes
    ----------
    arms
        For each primary arm, in order, its runs' metrics: (pairs, metrics), rows aligned.
    grid
        How the pairs are laid out: (folds, seeds), or (pairs,) where some seed lacks some fold.
    """

    arms: dict[str, np.ndarray]
    grid: tuple[int, ...]


def cells(runs: pd.DataFrame, metrics: list[str]) -> dict[tuple[str, str], Cell]:
    """Return the paired runs of each dataset and model as arrays.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [1, 0, 0, 1], "seed": 0,
    ...                      "arm": ["random", "random", "adaptive", "adaptive"],
    ...                      "macro_f": [0.2, 0.1, 0.3, 0.4]})
    >>> found = cells(runs.assign(strategy=runs["arm"]), ["macro_f"])["scene", "mlp"]
    >>> {arm: values.ravel().tolist() for arm, values in found.arms.items()}, found.grid
    ({'random': [0.1, 0.2], 'adaptive': [0.3, 0.4]}, (2, 1))
    """
    compared = paired(primary(runs)).drop_duplicates([*CELL, "arm", "fold", "seed"])
    compared = compared.sort_values([*CELL, "fold", "seed"], kind="stable")
    found = {}
    for key, rows in compared.groupby(CELL):
        groups = dict(tuple(rows.groupby("arm")))
        arms = {
            arm: groups[arm][metrics].to_numpy(dtype=np.float64)
            for arm in sorted(groups, key=arm_order)
        }
        pairs = len(rows) // len(arms)
        grid = rows["fold"].nunique(), rows["seed"].nunique()
        found[key] = Cell(arms, grid if np.prod(grid) == pairs else (pairs,))
    return found


def results(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row a cell, arm and metric: the mean over paired runs and its interval (Table 2).

    Columns ``mean``, ``low``, ``high`` (95% bootstrap over folds and seeds, missing for a single
    run), ``runs``, and ``best``: whether no arm of the cell has a better mean, and some a worse one.
    """
    rows = []
    for key, cell in cells(runs, metrics).items():
        for arm, block in cell.arms.items():
            for metric, values in zip(metrics, block.T, strict=True):
                known = values[~np.isnan(values)]
                if len(known):
                    low, high = _interval(known, cell.grid)
                    rows.append((*key, arm, metric, known.mean(), low, high, len(known)))
    table = pd.DataFrame(rows, columns=[*CELL, "arm", "metric", "mean", "low", "high", "runs"])
    # Compared as printed, so that two equal numbers are never told apart by a mark.
    score = table["mean"].round(4) * table["metric"].map(_sign)
    scores = score.groupby([table[name] for name in (*CELL, "metric")])
    return table.assign(best=(score == scores.transform("max")) & (score > scores.transform("min")))


def comparisons(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row a cell, arm and metric: the arm against the baseline on the same folds and seeds.

    ``gain`` is positive where the arm is better, whichever way the metric runs; ``low`` and ``high``
    are its 95% bootstrap interval; ``percent`` is the gain in percent of the baseline's mean;
    ``outcome`` is win, tie or loss of the means as printed, to four digits.
    """
    rows = []
    for key, grid, arm, metric, base, values in _pairs(runs, metrics):
        gains = _sign(metric) * (values - base)
        percent = 100 * gains.mean() / abs(base.mean()) if base.mean() else np.nan
        outcome = {1: "win", 0: "tie", -1: "loss"}[gain_sign(base.mean(), values.mean(), metric)]
        row = (*key, arm, metric, base.mean(), values.mean(), gains.mean(), *_interval(gains, grid))
        rows.append((*row, percent, len(gains), outcome))
    columns = ["baseline_mean", "mean", "gain", "low", "high", "percent", "pairs", "outcome"]
    return pd.DataFrame(rows, columns=[*CELL, "arm", "metric", *columns])


_Pair = tuple[tuple[str, str], tuple[int, ...], str, str, np.ndarray, np.ndarray]


def _pairs(runs: pd.DataFrame, metrics: list[str]) -> Iterator[_Pair]:
    """Yield cell, grid, arm, metric, and the baseline's and the arm's values of the same runs."""
    found = cells(runs, metrics)
    names = {arm for cell in found.values() for arm in cell.arms}
    base = baseline_arm(names) if names else ""
    for key, cell in found.items():
        for arm in cell.arms if base in cell.arms else ():
            for place, metric in enumerate(metrics):
                before, after = cell.arms[base][:, place], cell.arms[arm][:, place]
                known = ~np.isnan(before) & ~np.isnan(after)
                if arm != base and known.any():
                    yield key, cell.grid, arm, metric, before[known], after[known]


def _interval(values: np.ndarray, grid: tuple[int, ...]) -> Interval:
    """Return the bootstrap interval of a mean over folds and seeds, laid out as a grid where they are."""
    return bootstrap_interval(values.reshape(grid) if np.prod(grid) == len(values) else values)


def overall(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row an arm and metric over all cells: wins, ties, losses, change in percent, p-value.

    ``percent`` is the change of the average over cells, positive where it is for the better, with its
    95% interval from the spread over folds and seeds within each cell (missing where the baseline is 0).
    ``p`` is Wilcoxon's signed-rank test over the cells' means (missing below six cells, where it cannot
    fall under 0.05), ``p_holm`` the same after Holm's correction over the arm's metrics.
    """
    pairs: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for _, _, arm, metric, base, values in _pairs(runs, metrics):
        pairs.setdefault((arm, metric), []).append((values, base))
    rows = []
    for arm, metric in sorted(pairs, key=lambda key: arm_order(key[0])):
        means = [(base.mean(), values.mean()) for values, base in pairs[arm, metric]]
        before, after = np.array(means).T
        signs = [gain_sign(*both, metric) for both in means]
        row = {"arm": arm, "metric": metric, "cells": len(means)}
        row |= {"win": signs.count(1), "tie": signs.count(0), "loss": signs.count(-1)}
        row |= {"baseline_mean": before.mean(), "mean": after.mean()}
        with np.errstate(divide="ignore", invalid="ignore"):  # a baseline of 0 has no percent
            row |= _percent(relative_change(pairs[arm, metric]), metric)
        row["p"] = wilcoxon(after, before).p_value if len(means) >= _FEWEST else np.nan
        rows.append(row)
    columns = ["arm", "metric", "cells", "win", "tie", "loss", "baseline_mean", "mean"]
    table = pd.DataFrame(rows, columns=[*columns, "percent", "low", "high", "p"])
    return table.assign(p_holm=table.groupby("arm")["p"].transform(adjusted))


def _percent(change: Change, metric: str) -> dict[str, float]:
    """Return a change in percent; for a metric where low is good, its ends change places."""
    sign = _sign(metric)
    low, high = sorted((100 * sign * change.low, 100 * sign * change.high))
    if not np.isfinite(change.estimate):
        return {"percent": np.nan, "low": np.nan, "high": np.nan}
    return {"percent": 100 * sign * change.estimate, "low": low, "high": high}


def adjusted(p_values: pd.Series) -> pd.Series:
    """Return p-values after Holm's correction; missing ones stay missing and do not count.

    Examples
    --------
    >>> adjusted(pd.Series([0.01, np.nan, 0.04])).tolist()
    [0.02, nan, 0.04]
    """
    known = p_values.dropna()
    return pd.Series(holm(known.to_numpy()), known.index).reindex(p_values.index)


def sentences(table: pd.DataFrame, baseline: str, *, metric: str = "macro_f") -> dict[str, str]:
    """Return one sentence an arm that a person can quote, from `overall`.

    Examples
    --------
    >>> table = pd.DataFrame({"arm": "adaptive", "metric": ["macro_f", "micro_f"], "cells": 6,
    ...                       "win": [6, 3], "tie": [0, 1], "loss": [0, 2], "percent": [2.1, 0.1],
    ...                       "low": [0.9, -0.2], "high": [3.4, 0.4]})
    >>> sentences(table, "random")["adaptive"]
    'adaptive beats random on 9 of 12 comparisons (1 tie); Macro-F +2.1% [+0.9, +3.4]'
    """
    said = {}
    for arm, group in table.groupby("arm", sort=False):
        wins, ties, total = group["win"].sum(), group["tie"].sum(), group["cells"].sum()
        verb = "beats" if 2 * wins > total else "is ahead of"
        text = f"{arm} {verb} {baseline} on {wins} of {total} comparisons"
        text += f" ({ties} tie{'s' if ties > 1 else ''})" if ties else ""
        row = group[group["metric"] == metric]
        row = (row if len(row) else group).iloc[0]
        said[str(arm)] = f"{text}; {METRICS[row['metric']].title} {_change(row)}"
    return said


def _change(row: pd.Series) -> str:
    if pd.isna(row["percent"]):
        return f"{row['mean']:.4f} against {row['baseline_mean']:.4f}"
    text = f"{row['percent']:+.1f}%"
    if not np.isfinite([row["low"], row["high"]]).all():
        return f"{text} (no interval)"
    text += f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    return text + (", which may be chance" if row["low"] <= 0 <= row["high"] else "")


def tuned(runs: pd.DataFrame, *, by: str = "validation_macro_auc") -> pd.DataFrame:
    """Return the runs of the tuned comparison: as many tries for the baseline as for a strategy.

    In each cell and fold, a strategy that ran with several pressures keeps the one with the best
    validation value; the baseline keeps, chosen in the same way, the best of as many seeds. Only cells
    where the baseline has that many seeds are there. The test results choose nothing. `runs` holds the
    baseline and one other strategy.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": 0, "seed": [0, 1, 0, 0],
    ...     "strategy": ["random", "random", "adaptive", "adaptive"], "arm": "",
    ...     "selection_pressure": ["", "", "2", "16"], "validation_macro_auc": [0.6, 0.7, 0.8, 0.9],
    ...     "macro_f": [0.1, 0.2, 0.3, 0.4]})
    >>> tuned(runs)[["arm", "macro_f"]].values.tolist()
    [['adaptive (best of 2)', 0.4], ['random (best of 2)', 0.2]]
    """
    if by not in runs or runs.empty:
        return runs.iloc[:0]
    base = baseline_arm(runs["strategy"])
    place = [*CELL, "fold"]
    # One try is a pressure of the strategy's first seed, or a seed of the baseline.
    first = runs["seed"] == runs.groupby([*place, "strategy"])["seed"].transform("min")
    tries = runs[(runs["strategy"] == base) | first].sort_values("seed", kind="stable")
    tries = tries.drop_duplicates([*place, "strategy", "selection_pressure", "seed"])
    tried = tries[tries["strategy"] != base].groupby(place).size().rename("tries").reset_index()
    tries = tries.merge(tried[tried["tries"] > 1], on=place)
    tries = tries[tries.groupby([*place, "strategy"]).cumcount() < tries["tries"]]
    enough = tries.groupby([*place, "strategy"])["seed"].transform("size") == tries["tries"]
    both = tries[enough].groupby(place)["strategy"].transform("nunique") == 2
    best = tries[enough][both].sort_values(by, ascending=False, kind="stable")
    best = best.drop_duplicates([*place, "strategy"]).sort_values([*place, "strategy"])
    names = best["strategy"] + " (best of " + best.pop("tries").astype(str) + ")"
    # Chosen by fold: the seed is a result of the choice, no longer a part of the pairing.
    return best.assign(arm=names, strategy=names, seed=0)


def gain_sign(before: float, after: float, metric: str) -> int:
    """Return 1 where `after` is the better value as printed, to four digits, -1 where worse, else 0.

    Examples
    --------
    >>> gain_sign(0.2, 0.1, "one_error"), gain_sign(0.2, 0.1, "macro_f")
    (1, -1)
    >>> gain_sign(0.2, 0.20001, "macro_f")
    0
    """
    return int(_sign(metric) * np.sign(round(after, 4) - round(before, 4)))


def _sign(metric: str) -> int:
    return 1 if METRICS[metric].higher_is_better else -1
