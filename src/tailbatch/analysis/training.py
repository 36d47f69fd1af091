"""Facts about the training of runs: how long it took, what the selector drew, which runs exist."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from tailbatch.analysis.curves import epochs_to_lowest
from tailbatch.analysis.fairness import still_learning
from tailbatch.analysis.gains import PAIR, pairs
from tailbatch.analysis.keys import CELL, Arm
from tailbatch.results import RunSpec
from tailbatch.results.frames import Evidence

_WEIGHT_LEVELS = {"q05": 0.05, "median": 0.5, "q95": 0.95, "q99": 0.99}


def learning_speed(evidence: Evidence, arms: Iterable[Arm], baseline: Arm) -> pd.DataFrame:
    """Return how fast each arm learns, one row per arm that has pairs with the baseline.

    ``reached`` of ``pairs`` reach the baseline's lowest training loss, after ``epochs`` percent of its
    epochs (median over those); ``volatility`` is the median ratio to the baseline's, ``best_epoch`` the
    median epoch of the best validation score.
    """
    rows, best = {}, best_epochs(evidence.runs)
    for arm in arms:
        needed = epochs_to_lowest(evidence, arm, baseline)
        if len(needed):
            reached = needed[needed < np.inf]
            both = pairs(evidence.runs, arm, baseline, "volatility")
            volatility = (both["value"] / both["before"]).median()
            rows[arm] = (len(reached), len(needed), reached.median(), volatility, best[arm])
    columns = ["reached", "pairs", "epochs", "volatility", "best_epoch"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def late_by_rate(runs: pd.DataFrame, rates: Sequence[str], metric: str) -> pd.DataFrame:
    """Return, for each learner and rate of its arms, the runs that were still learning at the end.

    ``late`` of ``runs`` were; ``score`` is the mean of the validation `metric` over the ``pairs`` of
    dataset and fold that ran at all rates. Values without runs are missing.
    """
    keys = ["learner", "rate"]
    rated = runs.assign(rate=[arm.rate for arm in runs["arm"]], late=still_learning(runs))
    counts = rated.groupby(keys)["late"].agg(late="sum", runs="size")
    scores = rated.pivot_table(f"validation_{metric}", ["learner", "data", "fold"], "rate")
    scores = scores.reindex(columns=list(rates)).dropna().stack().groupby(level=keys)
    every = pd.MultiIndex.from_product([sorted(set(runs["learner"])), rates], names=keys)
    return counts.reindex(every).join(scores.agg(pairs="size", score="mean"))


def better_at_the_higher_rate(runs: pd.DataFrame, metric: str) -> tuple[int, int]:
    """Return how often the higher of two rates has the better `metric`, and the pairs compared."""
    rated = runs.assign(
        rate=[float(str(arm.rate)) for arm in runs["arm"]],
        strategy=[arm.strategy for arm in runs["arm"]],
    )
    wide = rated.pivot_table(metric, [*CELL, "fold", "strategy"], "rate").dropna()
    low, high = sorted(wide.columns)
    return int((wide[high] > wide[low]).sum()), len(wide)


def selector_state(runs: pd.DataFrame, arm: Arm) -> pd.DataFrame:
    """Return the final diagnostics of an arm's selector: medians by dataset.

    ``sample_share`` is the effective sample size over the training rows.
    """
    mine = runs[runs["arm"] == arm]
    rows = mine["drawn_samples"] / mine["plan_epochs"]
    columns = ["sample_share", "effective_pressure", "distinct_share"]
    said = mine.assign(sample_share=mine["effective_sample_size"] / rows)
    return said.groupby("data")[columns].median()


def runs_and_folds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return how many runs and folds each cell has."""
    return runs.groupby(CELL).agg(runs=("digest", "size"), folds=("fold", "nunique"))


def seconds_an_epoch(runs: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean seconds that an epoch took, by model, dataset and batch size.

    Examples
    --------
    >>> runs = pd.DataFrame({"model": ["mlp"] * 2, "dataset": ["scene"] * 2, "plan_batch_size": 128,
    ...                      "seconds": [10.0, 30.0], "plan_epochs": 10})
    >>> seconds_an_epoch(runs).tolist()
    [2.0]
    """
    each = runs["seconds"] / runs["plan_epochs"]
    return each.groupby([runs[name] for name in ("model", "dataset", "plan_batch_size")]).mean()


def hours_of(specs: Iterable[RunSpec], seconds: "pd.Series[float]") -> tuple[float, int]:
    """Return the hours that runs would take by measured `seconds_an_epoch`, and how many it is known for.

    Examples
    --------
    >>> measured = pd.Series({("mlp", "scene", 128): 36.0})
    >>> specs = [RunSpec(dataset=name, dataset_digest="", model="mlp", strategy="random")
    ...          for name in ("scene", "yeast")]
    >>> hours_of(specs, measured)
    (1.0, 1)
    """
    known = seconds.to_dict()
    keys = [((spec.model, spec.dataset, spec.plan.batch_size), spec.plan.epochs) for spec in specs]
    found = [known[key] * epochs for key, epochs in keys if key in known]
    return sum(found) / 3600, len(found)


def same_warm_ups(runs: pd.DataFrame) -> tuple[int, int]:
    """Return how many groups of compared runs share one digest of their weights, and the total."""
    plain = runs[runs["strategy_options"] == "{}"]
    digests = plain.groupby(PAIR)["warm_up_digest"].nunique()
    return int((digests == 1).sum()), len(digests)


def weight_quantiles(weights: np.ndarray) -> dict[str, float]:
    """Return the distribution of selection weights: their number, quantiles, maximum, and share above 2.

    Examples
    --------
    >>> weight_quantiles(np.array([1.0, 1.0, 4.0]))["above_two"]
    0.3333333333333333
    """
    levels = {name: float(np.quantile(weights, at)) for name, at in _WEIGHT_LEVELS.items()}
    largest = {"largest": float(weights.max()), "above_two": float((weights > 2).mean())}
    return {"rows": len(weights), **levels, **largest}


def best_epochs(runs: pd.DataFrame) -> "pd.Series[float]":
    """Return the median epoch of the best validation score, by arm."""
    return runs.groupby("arm")["best_epoch"].median()


def best_rate(runs: pd.DataFrame, column: str) -> float:
    """Return the learning rate whose runs have the highest mean of a column; of equal ones the lowest.

    Examples
    --------
    >>> runs = pd.DataFrame({"plan_lr": [0.01, 0.03], "validation_macro_f": [0.4, 0.5]})
    >>> best_rate(runs, "validation_macro_f")
    0.03
    """
    return float(runs.groupby("plan_lr")[column].mean().idxmax())
