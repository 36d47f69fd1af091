"""Every table of a report, worked out once from the evidence."""

from dataclasses import dataclass

import pandas as pd

from tailbatch.report.curves import (
    batch_size_panel,
    convergence,
    loss_agreement,
    loss_density,
    mean_curves,
    pressure_panel,
    sample_losses,
)
from tailbatch.report.evidence import Evidence
from tailbatch.report.fairness import fairness
from tailbatch.report.labels import label_facts, minority_gains
from tailbatch.report.published import beside_published, printed, printed_facts, printed_tests
from tailbatch.report.significance import mean_ranks, wilcoxon_by_model
from tailbatch.report.tables import (
    PAPER_METRICS,
    baseline_arm,
    comparisons,
    overall,
    primary,
    results,
    sentences,
    shown_metrics,
    tuned,
)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The tables of a report, each a frame that may be empty; see the functions that make them."""

    evidence: Evidence
    metrics: list[str]
    baseline: str
    fairness: pd.DataFrame
    results: pd.DataFrame
    comparisons: pd.DataFrame
    overall: pd.DataFrame
    sentences: dict[str, str]
    wilcoxon: pd.DataFrame
    ranks: pd.DataFrame
    tuned: dict[str, pd.DataFrame]
    published: pd.DataFrame
    datasets: pd.DataFrame
    curves: pd.DataFrame
    convergence: pd.DataFrame
    labels: pd.DataFrame
    minority: pd.DataFrame
    pressures: pd.DataFrame
    batch_sizes: pd.DataFrame
    losses: pd.DataFrame
    density: pd.DataFrame
    agreement: pd.DataFrame


def analyze(evidence: Evidence) -> Analysis:
    """Work out every table; the six metrics of the paper decide the sentences."""
    runs = evidence.runs
    metrics = shown_metrics(runs)
    baseline = baseline_arm(primary(runs)["arm"]) if len(runs) else ""
    summary = overall(runs, metrics)
    counted = summary[summary["metric"].isin(PAPER_METRICS)] if len(summary) else summary
    means = results(runs, metrics)
    pairs = comparisons(runs, metrics)
    curves = mean_curves(evidence)
    labels = label_facts(evidence)
    losses = sample_losses(evidence)
    where = runs.drop_duplicates("data").set_index("data") if len(runs) else runs
    settings = {data: (row["dataset"], row["preparation"]) for data, row in where.iterrows()}
    return Analysis(
        evidence=evidence,
        metrics=metrics,
        baseline=baseline,
        fairness=fairness(evidence),
        results=means,
        comparisons=pairs,
        overall=summary,
        sentences=sentences(counted if len(counted) else summary, baseline),
        wilcoxon=wilcoxon_by_model(pairs, printed_tests()),
        ranks=mean_ranks(means, metrics),
        tuned=_tuned(runs, baseline),
        published=beside_published(
            means, settings, pd.concat([printed("results"), printed("adac")])
        ),
        datasets=printed_facts(evidence.datasets, printed("datasets")),
        curves=curves,
        convergence=convergence(curves, runs),
        labels=labels,
        minority=minority_gains(labels),
        pressures=pressure_panel(evidence, metrics),
        batch_sizes=batch_size_panel(runs),
        losses=losses,
        density=loss_density(losses),
        agreement=loss_agreement(evidence),
    )


def _tuned(runs: pd.DataFrame, baseline: str) -> dict[str, pd.DataFrame]:
    """Return the tuned comparison of each strategy that has one."""
    found = {}
    for strategy in runs.get("strategy", pd.Series(dtype=str)).unique():
        chosen = tuned(runs[runs["strategy"].isin([baseline, strategy])])
        if strategy != baseline and len(chosen):
            found[strategy] = chosen
    return found
