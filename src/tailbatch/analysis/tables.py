"""Every table of a report: which setting is best, whether the comparison was fair, tests and ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tailbatch import stats
from tailbatch.analysis.comparisons import (
    LEVEL,
    PAPER_METRICS,
    Gain,
    adjusted,
    baseline_arm,
    claimed,
    comparisons,
    gain,
    overall,
    paired,
    primary,
    results,
    sign,
    with_batches,
)
from tailbatch.analysis.curves import curve_tables, label_facts, minority_gains
from tailbatch.analysis.keys import CELL, PAIR, Arm, Learner, by_label, named
from tailbatch.data.preparation import is_whole
from tailbatch.metrics import METRICS, TUNED
from tailbatch.results.frames import Evidence
from tailbatch.stats import FEWEST_DATASETS

_BEST, _REFERENCE = Arm("best"), Arm("reference")
#: Columns of the runs' frame that must agree between runs of one cell, fold and seed.
_SAME = ("warm_up_digest", "steps", "drawn_samples", "dataset_digest", "versions", "max_lag")


class _Setting(NamedTuple):
    """A learner and an arm."""

    learner: Learner
    arm: Arm


class Best(NamedTuple):
    """The best setting by a metric, its test value, and its gain over a reference setting.

    On two to five datasets there is no test over datasets; ``by_dataset`` then has the name, the gain
    and the p-value, corrected by Holm, on each of them.
    """

    setting: _Setting
    metric: str
    value: float
    reference: _Setting
    gain: Gain
    by_dataset: tuple[tuple[str, Gain, float], ...] = ()

    @property
    def tested(self) -> bool:
        """Whether there are enough folds or datasets for a test."""
        return not any(pd.isna(p) for p in self._p_values)

    @property
    def significant(self) -> bool:
        """Whether it is better than the reference with p < 0.05, on every dataset if tested on each.

        It was chosen on validation rows, so nothing is corrected for the choice.
        """
        gains = [each.percent for _, each, _ in self.by_dataset] or [self.gain.percent]
        return all(p < LEVEL for p in self._p_values) and all(percent > 0 for percent in gains)

    @property
    def _p_values(self) -> list[float]:
        return [p for *_, p in self.by_dataset] or [self.gain.p]


@dataclass(frozen=True, eq=False)
class Analysis:
    """The tables of a report as frames, which may be empty; see the functions that make them."""

    evidence: Evidence
    metrics: list[str]
    baseline: Arm | None
    first_model: Arm | None
    best: Best | None
    fairness: pd.DataFrame
    results: pd.DataFrame
    comparisons: pd.DataFrame
    overall: pd.DataFrame
    models: pd.DataFrame
    models_by_dataset: pd.DataFrame
    wilcoxon: pd.DataFrame
    ranks: pd.DataFrame
    tuned: dict[str, pd.DataFrame]
    curves: pd.DataFrame
    convergence: pd.DataFrame
    labels: pd.DataFrame
    minority: pd.DataFrame
    pressures: pd.DataFrame
    losses: pd.DataFrame
    density: pd.DataFrame
    unread: pd.DataFrame


def analyze(evidence: Evidence) -> Analysis:
    """Compute every table of the runs in a store or an archive.

    Examples
    --------
    >>> from tailbatch.results.frames import gather
    >>> analyze(gather([])).overall.empty
    True
    """
    evidence = _with_epochs(named(evidence))
    runs = evidence.runs
    metrics = _shown_metrics(runs)
    means = results(runs, metrics)
    pairs = comparisons(runs, metrics)
    learners = _between_models(runs)
    labels = label_facts(evidence)
    return Analysis(
        evidence=evidence,
        metrics=metrics,
        baseline=baseline_arm(primary(runs)["arm"]) if len(runs) else None,
        first_model=baseline_arm(learners["arm"]) if len(learners) else None,
        best=_best_setting(runs, metrics),
        fairness=_fairness_checks(runs),
        results=means,
        comparisons=pairs,
        overall=overall(runs, metrics),
        models=overall(learners, metrics),
        models_by_dataset=comparisons(learners, metrics),
        wilcoxon=_wilcoxon_by_model(pairs),
        ranks=_mean_ranks(means, metrics),
        tuned=_tuned_by_strategy(runs),
        labels=labels,
        minority=minority_gains(labels),
        unread=_unread(evidence),
        **curve_tables(evidence, metrics),
    )


def _unread(evidence: Evidence) -> pd.DataFrame:
    """Return the runs whose array file is damaged or missing, and the reason."""
    names = [*CELL, "arm", "fold", "seed", "digest"]
    if evidence.unread.empty:
        return pd.DataFrame(columns=[*names, "reason"])
    return by_label(evidence.runs[names].merge(evidence.unread, on="digest"), names)


def _shown_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the metrics of the result tables: the paper's six, then those over minority labels.

    Of F, runs on data that is not the paper's show the value with thresholds tuned on validation rows:
    few rows of a rare label reach a probability of 0.5.
    """
    minority = [name for name, metric in METRICS.items() if metric.minority]
    own = "preparation" in runs and all(map(is_whole, runs["preparation"].unique()))
    names: list[str] = []
    for name in (*PAPER_METRICS, *minority):
        tuned = f"{TUNED}{name}"
        better = own and name.endswith("_f") and tuned in runs
        names.append(tuned if better and runs[tuned].notna().all() else name)
    return [name for name in names if name in runs and runs[name].notna().any()]


def _between_models(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that compare learners: each learner is an arm, the first one the baseline.

    A learner is represented by its runs with the baseline's batches, or without batches; those that draw
    batches come first. Empty if there is only one.
    """
    if runs.empty:
        return runs
    base = baseline_arm(primary(runs)["arm"])
    plain = runs[[arm == base or not arm.draws_batches for arm in runs["arm"]]]
    last = {
        learner: not arm.draws_batches
        for learner, arm in zip(plain["learner"], plain["arm"], strict=True)
    }
    if len(last) < 2:
        return runs[:0]
    order = sorted(last, key=lambda learner: (last[learner], learner))
    arms = {learner: Arm(str(learner), None, place=turn) for turn, learner in enumerate(order)}
    return plain.assign(
        arm=[arms[learner] for learner in plain["learner"]], learner=[Learner("")] * len(plain)
    )


def _with_epochs(evidence: Evidence) -> Evidence:
    """Return the evidence whose runs say how many ``epochs`` ran; a minimum of steps can add some."""
    runs = evidence.runs
    ran = evidence.curves.groupby("digest", observed=True)["number"].max().reindex(runs["digest"])
    ran = ran.reset_index(drop=True).set_axis(runs.index)
    return replace(evidence, runs=runs.assign(epochs=ran.fillna(runs["plan_epochs"]).astype(int)))


# ---- fairness


def _fairness_checks(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per check: what must agree, whether it does, and in how many comparisons.

    Checks are the columns `_SAME`, then ``folds``: whether all primary arms of a cell have the same folds
    and seeds, and ``learned``: whether the baseline had finished learning; if not, a gain may only be
    faster learning. ``verdict`` is ``agrees``, ``differs``, ``not recorded`` or ``cannot be told``;
    ``count`` of ``total`` are groups of compared runs that agree, runs without a partner, or runs of the
    baseline that were best in their last epochs.
    """
    checks: list[tuple[str, str, int, int]] = [_agreement(runs, column) for column in _SAME]
    rows: list[tuple[Any, ...]] = [*checks, _folds(runs), _learned(runs)]
    return pd.DataFrame(rows, columns=["check", "verdict", "count", "total"])


def _agreement(runs: pd.DataFrame, column: str) -> tuple[str, str, int, int]:
    """Compare the values of one column within each dataset, model, fold and seed."""
    if column not in runs:
        return column, "not recorded", 0, 0
    known = runs[runs[column].notna() & (runs[column] != "")]
    groups = known.groupby(PAIR)[column].agg(["size", "nunique"])
    groups = groups[groups["size"] > 1]
    same = int((groups["nunique"] == 1).sum())
    verdict = "agrees" if same == len(groups) else "differs"
    return column, verdict if len(groups) else "not recorded", same, len(groups)


def _folds(runs: pd.DataFrame) -> tuple[str, str, int, int]:
    main = primary(runs)
    arms = main.groupby(CELL)["arm"].transform("nunique")
    here = main.groupby(PAIR)["arm"].transform("nunique")
    verdict = "agrees" if len(main) else "not recorded"
    return "folds", verdict, int((arms != here).sum()), len(main)


def still_learning(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return which runs were best in their last epochs, the last 5% of all.

    Under a cosine the rate ends at zero, so that the last epoch is meant to be the best.

    Examples
    --------
    >>> still_learning(pd.DataFrame({"best_epoch": [95, 96], "plan_epochs": 100})).tolist()
    [False, True]
    """
    late = runs["best_epoch"] > 0.95 * runs.get("epochs", runs["plan_epochs"])
    return late & (runs["plan_schedule"] != "cosine") if "plan_schedule" in runs else late


def _best_epoch_tells(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return of which runs the best epoch can tell whether they were still learning.

    It takes several evaluations, and a rate that does not end at zero, as under a cosine.
    """
    tells = runs["plan_epochs"] != 1
    if {"plan_evaluate_every", "steps"} <= set(runs):
        # Where the steps were not counted, nothing speaks against it.
        tells &= ~(runs["plan_evaluate_every"] >= pd.to_numeric(runs["steps"]))
    return tells & (runs["plan_schedule"] != "cosine") if "plan_schedule" in runs else tells


def _learned(runs: pd.DataFrame) -> tuple[str, str, int, int]:
    if runs.empty or not {"best_epoch", "plan_epochs"} <= set(runs):
        return "learned", "not recorded", 0, 0
    baseline = runs[runs["arm"] == baseline_arm(runs["arm"])]
    late = still_learning(baseline[_best_epoch_tells(baseline)])
    if late.empty:
        return "learned", "cannot be told", 0, len(baseline)
    return "learned", "agrees" if late.mean() <= 0.5 else "differs", int(late.sum()), len(late)


# ---- verdicts


def _best_setting(runs: pd.DataFrame, metrics: list[str]) -> Best | None:
    """Return the setting with the best mean over datasets of the first claimed metric all runs have.

    It is chosen by validation rows if they are recorded, else by test rows. The reference is the baseline
    arm with the same learner; for the baseline arm itself, the runner-up. None if no two settings ran on
    the same datasets, or where the reference is 0.
    """
    if runs.empty or not metrics:
        return None
    compared = paired(primary(runs))
    # A metric that some runs lack, as where no label is rare, would compare different datasets.
    whole = [name for name in claimed(metrics) if compared[name].notna().all()]
    if not whole:
        return None
    metric = whole[0]
    ranked = _ranked(compared, metric)
    if len(ranked) < 2:
        return None
    settings, first = list(ranked), next(iter(ranked))
    plain = _Setting(first.learner, baseline_arm(compared["arm"]))
    reference = plain if first != plain and plain in settings else settings[1]
    both = pd.concat(
        compared[(compared["learner"] == learner) & (compared["arm"] == arm)].assign(
            learner=lambda rows: [first.learner] * len(rows),
            arm=lambda rows, role=role: [role] * len(rows),
        )
        for (learner, arm), role in ((first, _BEST), (reference, _REFERENCE))
    )
    change = gain(both, _BEST, metric, _REFERENCE)
    if change is None:
        return None
    each = _by_dataset(both, metric) if 1 < change.datasets < FEWEST_DATASETS else ()
    return Best(first, metric, ranked[first], reference, change, each)


def _ranked(compared: pd.DataFrame, metric: str) -> dict[_Setting, float]:
    """Return each setting's mean on test rows, the best on validation rows first."""
    seen = compared.get(f"validation_{metric}", compared[metric])
    seen = seen if seen.notna().all() else compared[metric]
    names = [data.name for data in compared["data"]]
    values = compared.assign(score=sign(metric) * seen, value=compared[metric], name=names)
    by = ["learner", "arm"]
    cells = values.groupby([*by, "name"])[["score", "value"]].mean()
    counts = cells.groupby(level=by).size()
    # Settings that ran on fewer datasets than others cannot be compared with them.
    order = cells.groupby(level=by).mean()[counts == counts.max()]
    order = order.sort_values("score", ascending=False, kind="stable")
    return {_Setting(*key): float(value) for key, value in order["value"].items()}


def _by_dataset(both: pd.DataFrame, metric: str) -> tuple[tuple[str, Gain, float], ...]:
    names = pd.Series([data.name for data in both["data"]], both.index)
    gains: Sequence[tuple[str, Gain]] = [
        (name, change)
        for name in sorted(set(names))
        if (change := gain(both[names == name], _BEST, metric, _REFERENCE)) is not None
    ]
    p_values = adjusted(pd.Series([change.p for _, change in gains], dtype=float))
    return tuple((name, change, p) for (name, change), p in zip(gains, p_values, strict=True))


def _wilcoxon_by_model(comparisons: pd.DataFrame, *, level: float = LEVEL) -> pd.DataFrame:
    """Return one row per model, arm and metric: the signed-rank test over its datasets.

    ``outcome`` is win or loss if ``p`` is below `level`, else tie; ``effect`` is the rank-biserial
    correlation, positive if the arm is better; ``p_holm`` is corrected over the metrics of a model.
    """
    rows = []
    keys = ["learner", "arm", "metric"]
    for (learner, arm, metric), group in comparisons.groupby(keys, sort=False):
        if len(group) < FEWEST_DATASETS:
            continue
        test = stats.wilcoxon(group["mean"], group["baseline_mean"])
        effect = test.rank_biserial * sign(metric)
        outcome = "tie" if test.p_value >= level else "win" if effect > 0 else "loss"
        rows.append((learner, arm, metric, len(group), outcome, effect, test.p_value))
    table = pd.DataFrame(rows, columns=[*keys, "datasets", "outcome", "effect", "p"])
    return table.assign(p_holm=table.groupby(["learner", "arm"])["p"].transform(adjusted))


def _mean_ranks(means: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return one row per metric and arm: its mean rank over datasets, averaged over learners first.

    Only cells with all arms count. ``friedman_p`` tests that all arms rank equally, a difference of
    ``critical_difference`` is significant after Nemenyi; both are missing for two arms or one dataset.
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


def _tuned(runs: pd.DataFrame, *, by: str = "validation_macro_auc") -> pd.DataFrame:
    """Return the runs of the tuned comparison: the baseline gets as many tries as a strategy.

    In each cell and fold, a strategy that ran with several pressures keeps the one with the best
    validation value; the baseline keeps the best of as many seeds. Only cells where the baseline has that
    many are included. Test results are not used to choose.
    """
    if by not in runs or runs.empty:
        return runs.iloc[:0]
    base = baseline_arm(runs["arm"]).strategy
    fold_keys = [*CELL, "fold"]
    # One try is a pressure of the strategy's first seed, or a seed of the baseline.
    first = runs["seed"] == runs.groupby([*fold_keys, "strategy"])["seed"].transform("min")
    tries = runs[(runs["strategy"] == base) | first].sort_values("seed", kind="stable")
    pressures = tries["arm"].map(lambda arm: arm.pressure)
    tries = tries.assign(pressure=pressures).drop_duplicates(
        [*fold_keys, "strategy", "pressure", "seed"]
    )
    tried = tries[tries["strategy"] != base].groupby(fold_keys).size().rename("tries").reset_index()
    tries = tries.merge(tried[tried["tries"] > 1], on=fold_keys)
    tries = tries[tries.groupby([*fold_keys, "strategy"]).cumcount() < tries["tries"]]
    enough = tries.groupby([*fold_keys, "strategy"])["seed"].transform("size") == tries["tries"]
    both = tries[enough].groupby(fold_keys)["strategy"].transform("nunique") == 2
    best = tries[enough][both].sort_values(by, ascending=False, kind="stable")
    best = by_label(best.drop_duplicates([*fold_keys, "strategy"]), [*fold_keys, "strategy"])
    arms = [
        replace(arm.usual or Arm(arm.strategy), best_of=count, usual=arm.usual)
        for arm, count in zip(best["arm"], best["tries"], strict=True)
    ]
    # Chosen by fold: the seed results from the choice and is no longer part of the pairing.
    return best.drop(columns=["tries", "pressure"]).assign(arm=arms, seed=0)


def _tuned_by_strategy(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tuned comparison of each strategy that has one, see `_tuned`."""
    by_strategy: dict[str, pd.DataFrame] = {}
    if runs.empty:
        return by_strategy
    base = baseline_arm(primary(runs)["arm"]).strategy
    for strategy in runs["strategy"].unique():
        chosen = _tuned(runs[runs["strategy"].isin([base, strategy])])
        if strategy != base and len(chosen):
            by_strategy[strategy] = chosen
    return by_strategy
