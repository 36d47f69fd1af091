"""Everything that compares runs, computed once: frames in, frames out; needs no torch."""

from dataclasses import dataclass, replace

from tailbatch.errors import require_installed

require_installed("pandas", extra="cli")

import pandas as pd

from tailbatch.analysis.comparisons import (
    PAPER_METRICS,
    baseline_arm,
    comparisons,
    overall,
    primary,
    results,
)
from tailbatch.analysis.curves import curve_tables
from tailbatch.analysis.fairness import fairness_checks
from tailbatch.analysis.keys import CELL, Arm, Cell, Dataset, Learner, by_label, named
from tailbatch.analysis.labels import label_facts, minority_gains
from tailbatch.analysis.verdicts import (
    Best,
    best_setting,
    mean_ranks,
    tuned_by_strategy,
    wilcoxon_by_model,
)
from tailbatch.data.preparation import is_whole
from tailbatch.metrics import METRICS, TUNED
from tailbatch.results.frames import Evidence

__all__ = ["Analysis", "Arm", "Cell", "Dataset", "Learner", "analyze"]


@dataclass(frozen=True, eq=False)
class Analysis:
    """The tables of a report as frames, which may be empty; see the functions that make them."""

    evidence: Evidence
    metrics: list[str]
    baseline: Arm | None
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
        best=best_setting(runs, metrics),
        fairness=fairness_checks(runs),
        results=means,
        comparisons=pairs,
        overall=overall(runs, metrics),
        models=overall(learners, metrics),
        models_by_dataset=comparisons(learners, metrics),
        wilcoxon=wilcoxon_by_model(pairs),
        ranks=mean_ranks(means, metrics),
        tuned=tuned_by_strategy(runs),
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
