"""What only the pages here compute: speed, rates, claims, intervals over seeds, ways to train."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailbatch.analysis.comparisons import (
    LEVEL,
    Gain,
    adjusted,
    dataset_means,
    detectable_change,
    equivalence,
    gain,
    held_out_ratio,
    paired_values,
)
from tailbatch.analysis.keys import CELL, PAIR, Arm, Learner
from tailbatch.analysis.tables import still_learning
from tailbatch.errors import DataError
from tailbatch.results import RunSpec
from tailbatch.results.frames import Evidence
from tailbatch.stats import FEWEST_DATASETS, Equivalence, Estimate, corrected_t

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


def pairs(runs: pd.DataFrame, arm: Arm, baseline: Arm, metric: str) -> pd.DataFrame:
    """Return one row per pair of runs: ``value`` of the arm and ``before`` of the baseline.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": [0, 0, 1], "seed": 0,
    ...                      "arm": [Arm("random"), Arm("hard"), Arm("hard")],
    ...                      "macro_f": [0.1, 0.2, 0.3]})
    >>> pairs(runs, Arm("hard"), Arm("random"), "macro_f").values.tolist()
    [[0.2, 0.1]]
    """
    cells = paired_values(runs, arm, metric, baseline).values()
    rows = [row for _, values, before in cells for row in zip(values, before, strict=True)]
    return pd.DataFrame(rows, columns=["value", "before"])


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


def level(runs: pd.DataFrame, arm: Arm, metric: str) -> float:
    """Return an arm's average over datasets, the learners of each averaged first; NaN without runs.

    Examples
    --------
    >>> from tailbatch.analysis import Dataset, Learner
    >>> runs = pd.DataFrame({"data": [Dataset("scene"), Dataset("yeast")], "learner": Learner("mlp"),
    ...                      "fold": 0, "seed": 0, "arm": Arm("random"), "macro_f": [0.2, 0.3]})
    >>> level(runs, Arm("random"), "macro_f")
    0.25
    """
    means = dataset_means(paired_values(runs, arm, metric, arm))
    return float(np.mean([value for value, _ in means.values()])) if means else math.nan


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
    sizes = {key: n for key, n in sizes.items() if n >= FEWEST_DATASETS}
    up_to = {n: sum(size <= n for size in sizes.values()) for n in sizes.values()}
    least = {n: max(up_to[m] * 2 / 2**m for m in up_to if m >= n) for n in up_to}
    return [key for key, n in sizes.items() if least[n] >= LEVEL]


def steps_to_match(baseline: pd.Series, other: pd.Series) -> tuple[float, float, float]:
    """Return the baseline's best value, its steps, and the fewest steps after which another is as good.

    Parameters
    ----------
    baseline, other
        A metric for which higher is better, by steps spent. The last number is infinite where the
        other never gets there.

    Examples
    --------
    >>> steps_to_match(pd.Series({100: 0.2, 300: 0.5, 900: 0.4}), pd.Series({100: 0.3, 200: 0.5}))
    (0.5, 300.0, 200.0)
    """
    best, steps = baseline.max(), baseline.idxmax()
    enough = other.index[other >= best]
    return float(best), float(steps), float(min(enough, default=np.inf))


def epochs_to_lowest(evidence: Evidence, arm: Arm, baseline: Arm) -> pd.Series:
    """Return for each pair of runs the epochs to the baseline's lowest training loss.

    In percent of the baseline's own, infinite if the arm never reaches it; indexed by cell, fold and
    seed.
    """
    runs = evidence.runs.loc[evidence.runs["arm"].isin([arm, baseline]), [*PAIR, "arm", "digest"]]
    curves = evidence.curves[["digest", "number", "training_bce"]].dropna(subset="training_bce")
    curves = curves.merge(runs, on="digest")
    plain = curves[curves["arm"] == baseline]
    lowest = plain.loc[plain.groupby(PAIR)["training_bce"].idxmin()]
    lowest = lowest.rename(columns={"number": "its_number", "training_bce": "lowest"})
    mine = curves[curves["arm"] == arm].merge(lowest[[*PAIR, "its_number", "lowest"]], on=PAIR)
    reached = mine["number"].where(mine["training_bce"] <= mine["lowest"], np.inf)
    return (100 * reached / mine["its_number"]).groupby([mine[name] for name in PAIR]).min()


def label_pairs(evidence: Evidence, arm: Arm, baseline: Arm) -> pd.DataFrame:
    """Return one row per label of a pair of runs: its facts for the arm, and ``gain`` over the baseline.

    Labels without an average precision in either run are left out.
    """
    keys = [*PAIR, "label"]
    runs = evidence.runs.loc[evidence.runs["arm"].isin([arm, baseline]), [*PAIR, "arm", "digest"]]
    labels = evidence.labels.merge(runs, on="digest")
    after, before = (
        labels[labels["arm"] == compared].drop_duplicates(keys) for compared in (arm, baseline)
    )
    both = after.merge(before[[*keys, "average_precision"]], on=keys, suffixes=("", "_before"))
    gain = both["average_precision"] - both.pop("average_precision_before")
    return both.assign(gain=gain, minority=both["minority"] >= 0.5).dropna(subset="gain")


def over_seeds(values: npt.ArrayLike) -> Estimate:
    """Return the mean over the seeds of one split, with Student's interval from three seeds on.

    Parameters
    ----------
    values
        (k,) one value per seed.

    Examples
    --------
    >>> [round(number, 3) for number in over_seeds([0.2, 0.3, 0.4])]
    [0.3, 0.052, 0.548, 0.035]
    >>> over_seeds([0.2, 0.4]).low
    nan
    """
    return corrected_t(values, test_to_train=0)


def change_over_seeds(values: npt.ArrayLike, baseline: npt.ArrayLike) -> Estimate:
    """Return by how many percent the mean over seeds changes: 100 (r - 1), r = mean(a) / mean(b).

    The interval is Student's over the seeds, from three on, with the variance of a ratio by the delta
    method: that of the mean of a_s - r b_s, over mean(b)^2. So it includes the noise of the baseline,
    and what both runs of a seed share cancels. The p-value is that of no change, and falls below 0.05
    where the interval excludes zero. Unlike in `change`, more is positive for every metric.

    Parameters
    ----------
    values, baseline
        (k,) paired values a and b, one pair per seed. The change is missing if the mean of b is 0.

    Examples
    --------
    >>> [round(number, 2) for number in change_over_seeds([0.23, 0.22, 0.26], [0.20, 0.22, 0.24])]
    [7.58, -10.31, 25.46, 0.21]
    >>> round(change_over_seeds([0.22, 0.24], [0.20, 0.22]).mean, 2)
    9.52
    """
    after, before = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if after.ndim != 1 or after.shape != before.shape or not after.size:
        raise DataError(f"paired seeds need one shape (k,), got {after.shape} and {before.shape}")
    base = before.mean()
    if not base:
        return Estimate(np.nan, np.nan, np.nan, np.nan)
    ratio = after.mean() / base
    # One number per seed: their mean is the change, and they vary as the delta method says.
    return corrected_t(100 * (ratio - 1 + (after - ratio * before) / base), test_to_train=0)


def median_over_seeds(values: npt.ArrayLike) -> float:
    """Return the median over seeds, for seconds: a busy machine makes a few of them much longer.

    Examples
    --------
    >>> median_over_seeds([0.2, 0.3, 9.0])
    0.3
    """
    return float(np.median(np.asarray(values, dtype=np.float64)))


def compare_rates(runs: pd.DataFrame, rates: Sequence[str]) -> pd.DataFrame:
    """Return runs for comparing learning rates, one per run: the rate belongs to the arm.

    Examples
    --------
    >>> runs = pd.DataFrame({"arm": [Arm("random")], "learner": [Learner("mlp", rate=0.001)]})
    >>> keyed = compare_rates(runs, ["1e-3"])
    >>> str(keyed["arm"][0]), str(keyed["learner"][0])
    ('random at 1e-3', 'mlp')
    """
    pairs = zip(runs["arm"], rates, strict=True)
    return runs.assign(
        arm=[replace(arm, rate=rate) for arm, rate in pairs],
        learner=[replace(learner, rate=None) for learner in runs["learner"]],
    )


def compare_ways(runs: pd.DataFrame, way: str) -> pd.DataFrame:
    """Return runs for comparing ways to train one model: settings, loss and rate belong to the arm.

    Examples
    --------
    >>> learner = Learner("mlp", '{"prior_bias": false}', rate=0.001)
    >>> keyed = compare_ways(pd.DataFrame({"arm": [Arm("random")], "learner": [learner]}), "zero bias")
    >>> str(keyed["arm"][0]), str(keyed["learner"][0])
    ('random at zero bias', 'mlp')
    """
    return runs.assign(
        arm=[replace(arm, rate=way) for arm in runs["arm"]],
        learner=[Learner(learner.model) for learner in runs["learner"]],
    )
