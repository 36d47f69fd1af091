"""Tests over datasets: Wilcoxon's by model and metric, and mean ranks with critical differences."""

import numpy as np
import pandas as pd

from tailbatch.analysis.comparisons import adjusted, with_batches
from tailbatch.analysis.keys import CELL
from tailbatch.metrics import METRICS
from tailbatch.stats import critical_difference, friedman, wilcoxon


def wilcoxon_by_model(
    comparisons: pd.DataFrame, printed: pd.DataFrame, *, level: float = 0.05
) -> pd.DataFrame:
    """Return one row a model, arm and metric: the signed-rank test over its datasets (Table 3).

    `comparisons` are ours, from `comparisons.comparisons`; `printed` are the paper's tests, from
    `published.printed_tests`.

    ``outcome`` is win or loss where ``p`` is below `level`, else tie; ``effect`` is the rank-biserial
    correlation, positive where the arm is better; ``p_holm`` is corrected over the metrics of a model.
    Where the paper prints a test of the adaptive strategy, its outcome and p-value stand beside, and
    ``table_p``, the p-value that follows from its printed means.
    """
    rows = []
    keys = ["learner", "arm", "metric"]
    for (learner, arm, metric), group in comparisons.groupby(keys, sort=False):
        if len(group) < 2:
            continue  # one dataset is no test over datasets
        test = wilcoxon(group["mean"], group["baseline_mean"])
        effect = test.rank_biserial * (1 if METRICS[metric].higher_is_better else -1)
        outcome = "tie" if test.p_value >= level else "win" if effect > 0 else "loss"
        rows.append((learner, arm, metric, len(group), outcome, effect, test.p_value))
    table = pd.DataFrame(rows, columns=[*keys, "datasets", "outcome", "effect", "p"])
    table["p_holm"] = table.groupby(["learner", "arm"])["p"].transform(adjusted)
    theirs = printed.assign(model=printed["model"].str.casefold(), strategy="adaptive")
    theirs = theirs.rename(columns={"outcome": "printed_outcome", "p_value": "printed_p"})
    known = ["model", "strategy"]
    table["model"] = [each.published_name for each in table["learner"]]
    table["strategy"] = [each.strategy if each.is_primary else "" for each in table["arm"]]
    beside = table.merge(theirs.drop(columns="follows"), on=[*known, "metric"], how="left")
    return beside.drop(columns=known)


def mean_ranks(results: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row a metric and arm: its mean rank over the cells that all arms have.

    ``friedman_p`` is Friedman's test that all rank alike, ``critical_difference`` what two mean ranks
    must differ by after Nemenyi. Empty for fewer than three arms or two cells.
    """
    rows = []
    results = with_batches(results)
    for metric in metrics:
        some = results[results["metric"] == metric]
        wide = some.pivot_table(index=CELL, columns="arm", values="mean", sort=False).dropna()
        if wide.shape[1] < 3 or len(wide) < 2:
            continue
        test = friedman(wide.to_numpy(), higher_is_better=METRICS[metric].higher_is_better)
        distance = critical_difference(wide.shape[1], test.n_blocks)
        for place in np.argsort(test.mean_ranks, kind="stable"):
            cells = (metric, wide.columns[place], test.mean_ranks[place], test.n_blocks)
            rows.append((*cells, distance, test.p_value))
    columns = ["metric", "arm", "mean_rank", "cells", "critical_difference", "friedman_p"]
    return pd.DataFrame(rows, columns=columns)


def alike(ranks: np.ndarray, distance: float) -> list[list[float]]:
    """Return the ends of the longest stretches of sorted ranks that are no further apart than `distance`.

    Examples
    --------
    >>> alike(np.array([1.0, 1.5, 2.0, 3.5]), 0.6)
    [[1.0, 1.5], [1.5, 2.0]]
    """
    found: list[list[float]] = []
    for low in ranks:
        high = ranks[ranks <= low + distance].max()
        if high > low and (not found or high > found[-1][1]):
            found.append([round(float(low), 3), round(float(high), 3)])
    return found
