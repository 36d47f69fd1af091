"""Everything that compares runs, computed once: frames in, frames out; needs no torch."""

from dataclasses import dataclass

from tailbatch.errors import require_installed

require_installed("pandas", extra="cli")

import pandas as pd

from tailbatch.analysis.comparisons import (
    baseline_arm,
    between_models,
    comparisons,
    overall,
    primary,
    results,
    shown_metrics,
)
from tailbatch.analysis.curves import (
    convergence,
    loss_density,
    mean_curves,
    pressure_panel,
    sample_losses,
)
from tailbatch.analysis.fairness import fairness_checks, with_epochs
from tailbatch.analysis.keys import CELL, Arm, Cell, Dataset, Learner, by_label, named
from tailbatch.analysis.labels import label_facts, minority_gains
from tailbatch.analysis.verdicts import (
    Best,
    best_setting,
    mean_ranks,
    tuned_by_strategy,
    wilcoxon_by_model,
)
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
    evidence = with_epochs(named(evidence))
    runs = evidence.runs
    metrics = shown_metrics(runs)
    means = results(runs, metrics)
    pairs = comparisons(runs, metrics)
    learners = between_models(runs)
    curves = mean_curves(evidence)
    labels = label_facts(evidence)
    losses = sample_losses(evidence)
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
        curves=curves,
        convergence=convergence(curves, runs),
        labels=labels,
        minority=minority_gains(labels),
        pressures=pressure_panel(evidence, metrics),
        losses=losses,
        density=loss_density(losses),
        unread=_unread(evidence),
    )


def _unread(evidence: Evidence) -> pd.DataFrame:
    """Return the runs whose array file is damaged or missing, and the reason."""
    names = [*CELL, "arm", "fold", "seed", "digest"]
    if evidence.unread.empty:
        return pd.DataFrame(columns=[*names, "reason"])
    return by_label(evidence.runs[names].merge(evidence.unread, on="digest"), names)
