"""Tests over datasets: Wilcoxon's by model and metric, and mean ranks with critical differences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from tailbatch import stats
from tailbatch.analysis.comparisons import adjusted, results, with_batches
from tailbatch.analysis.gains import Gain, gain, paired_values
from tailbatch.analysis.inference import (
    LEVEL,
    detectable_change,
    equivalence,
    held_out_ratio,
    sign,
)
from tailbatch.analysis.keys import CELL, Arm
from tailbatch.stats import Equivalence


def wilcoxon_by_model(
    comparisons: pd.DataFrame, printed: pd.DataFrame, *, level: float = LEVEL
) -> pd.DataFrame:
    """Return one row per model, arm and metric: the signed-rank test over its datasets (Table 3).

    `comparisons` are ours, from `comparisons.comparisons`; `printed` are the paper's tests, from
    `published.printed_tests`.

    ``outcome`` is win or loss if ``p`` is below `level`, else tie; ``effect`` is the rank-biserial
    correlation, positive if the arm is better; ``p_holm`` is corrected over the metrics of a model.
    If the paper prints a test of the adaptive strategy, its outcome and p-value are included, and
    ``table_p``, the p-value that follows from its printed means.
    """
    rows = []
    keys = ["learner", "arm", "metric"]
    for (learner, arm, metric), group in comparisons.groupby(keys, sort=False):
        if len(group) < stats.FEWEST_DATASETS:
            continue
        test = stats.wilcoxon(group["mean"], group["baseline_mean"])
        effect = test.rank_biserial * sign(metric)
        outcome = "tie" if test.p_value >= level else "win" if effect > 0 else "loss"
        rows.append((learner, arm, metric, len(group), outcome, effect, test.p_value))
    table = pd.DataFrame(rows, columns=[*keys, "datasets", "outcome", "effect", "p"])
    table["p_holm"] = table.groupby(["learner", "arm"])["p"].transform(adjusted)
    theirs = printed.assign(model=printed["model"].str.casefold(), strategy="adaptive")
    theirs = theirs.rename(columns={"outcome": "printed_outcome", "p_value": "printed_p"})
    known = ["model", "strategy"]
    table["model"] = [learner.published_name for learner in table["learner"]]
    table["strategy"] = [arm.strategy if arm.is_primary else "" for arm in table["arm"]]
    beside = table.merge(theirs.drop(columns="follows"), on=[*known, "metric"], how="left")
    return beside.drop(columns=known)


class Claim(NamedTuple):
    """A claim to test: its name, where it is made, and the arm said to beat a baseline in a metric."""

    name: str
    runs: pd.DataFrame
    arm: Arm
    baseline: Arm
    metric: str


class Tested(NamedTuple):
    """A tested claim: its gain, its p-value after Holm's correction over all claims, and two checks.

    ``detectable`` is the change in percent that the test would probably have detected; ``next`` holds
    the probabilities that the next dataset is worse, practically equal or better.
    """

    gain: Gain
    p_holm: float
    detectable: float = math.nan
    next: Equivalence = Equivalence(math.nan, math.nan, math.nan)

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value is below 0.05; without a test it is not."""
        return self.p_holm < LEVEL


def decide(claims: Iterable[Claim]) -> dict[tuple[str, str], Tested]:
    """Return each claim by name and metric, all tested together; one without a pair is left out."""
    made: dict[tuple[str, str], Tested] = {}
    for name, runs, arm, baseline, metric in claims:
        change = gain(runs, arm, metric, baseline)
        if change is not None:
            cells, ratio = paired_values(runs, arm, metric, baseline), held_out_ratio(runs)
            checks = detectable_change(cells, ratio), equivalence(cells, metric, ratio)
            made[name, metric] = Tested(change, change.p, *checks)
    p_holm = adjusted(pd.Series([claim.p_holm for claim in made.values()], dtype=float))
    return {
        key: claim._replace(p_holm=p) for (key, claim), p in zip(made.items(), p_holm, strict=True)
    }


def out_of_reach(tested: Mapping[tuple[str, str], Tested]) -> list[tuple[str, str]]:
    """Return the claims that could not be significant, whatever their values: too few datasets.

    Over n datasets Wilcoxon's p-value is at least 2 / 2^n. Holm's correction multiplies the smallest of
    m p-values by m or more, so m claims on at most n datasets stay at m 2 / 2^n or above. Claims on fewer
    datasets than that test needs are left out.

    Examples
    --------
    >>> made = Tested(Gain(1.0, 0.5, 2.0, 0.03125, 6, 6, 6), 0.0625)
    >>> out_of_reach({("one", "macro_f"): made})
    []
    >>> out_of_reach({("one", "macro_f"): made, ("two", "macro_f"): made})
    [('one', 'macro_f'), ('two', 'macro_f')]
    """
    sizes = {key: claim.gain.datasets for key, claim in tested.items()}
    sizes = {key: n for key, n in sizes.items() if n >= stats.FEWEST_DATASETS}
    up_to = {n: sum(size <= n for size in sizes.values()) for n in sizes.values()}
    least = {n: max(up_to[m] * 2 / 2**m for m in up_to if m >= n) for n in up_to}
    return [key for key, n in sizes.items() if least[n] >= LEVEL]


def mean_ranks(means: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return one row per metric and arm: its mean rank over datasets, averaged over learners first.

    Only cells with all arms count. ``friedman_p`` is from Friedman's test that all arms rank equally,
    ``critical_difference`` is the difference of mean ranks that is significant after Nemenyi; both are
    missing for two arms or one dataset.
    """
    rows = []
    means = with_batches(means)
    for metric in metrics:
        some = means[means["metric"] == metric]
        wide = some.pivot_table(index=CELL, columns="arm", values="mean", sort=False).dropna()
        blocks = wide.groupby([data.name for data, _ in wide.index], sort=False).mean()
        if blocks.shape[1] < 2 or not len(blocks):
            continue
        ranks, tests = stats.mean_ranks(sign(metric) * blocks.to_numpy()), (np.nan, np.nan)
        if blocks.shape[1] > 2 and len(blocks) > 1:
            distance = stats.critical_difference(blocks.shape[1], len(blocks))
            tests = distance, stats.friedman(sign(metric) * blocks.to_numpy()).p_value
        for column in np.argsort(ranks, kind="stable"):
            rows.append((metric, blocks.columns[column], ranks[column], len(blocks), *tests))
    columns = ["metric", "arm", "mean_rank", "datasets", "critical_difference", "friedman_p"]
    return pd.DataFrame(rows, columns=columns)


def validation_ranks(runs: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return each arm's mean rank on validation rows, by metric, and over all of them as ``mean``."""
    names = {f"validation_{name}": name for name in metrics}
    ranks = mean_ranks(results(runs, list(names)), list(names))
    table = ranks.pivot(index="arm", columns="metric", values="mean_rank")
    table = table[[name for name in names if name in table]].rename(columns=names)
    return table.assign(mean=table.mean(axis=1))


def alike(ranks: np.ndarray, distance: float) -> list[list[float]]:
    """Return the ends of the longest stretches of sorted ranks that span at most `distance`.

    Examples
    --------
    >>> alike(np.array([1.0, 1.5, 2.0, 3.5]), 0.6)
    [[1.0, 1.5], [1.5, 2.0]]
    """
    stretches: list[list[float]] = []
    for low in ranks:
        high = ranks[ranks <= low + distance].max()
        if high > low and (not stretches or high > stretches[-1][1]):
            stretches.append([round(float(low), 3), round(float(high), 3)])
    return stretches
