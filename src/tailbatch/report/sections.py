"""What each section of the page shows, from the tables of the analysis."""

from typing import Any

import pandas as pd

from tailbatch.metrics import METRICS
from tailbatch.report.analysis import Analysis
from tailbatch.report.charts import category_chart, chart_data
from tailbatch.report.curves import agreement_panels, batch_size_panels
from tailbatch.report.export import MISSING
from tailbatch.report.fairness import what_ran
from tailbatch.report.published import printed_p_note, printed_tests
from tailbatch.report.significance import rank_charts
from tailbatch.report.style import arm_order
from tailbatch.report.tables import CELL, PAPER_METRICS, baseline_arm, overall, results, sentences
from tailbatch.report.views import View, overall_views, result_grids, traces, view


def sections(analysis: Analysis) -> dict[str, Any]:
    """Return everything the template shows; a section without data is empty and not shown."""
    evidence = analysis.evidence
    entries, ids = traces(evidence.runs)
    charts = _charts(analysis)
    tuned, tuned_entries = _tuned(analysis)
    shown: dict[str, Any] = {
        "subtitle": _subtitle(evidence.runs),
        "sentences": _headline(analysis.sentences),
        "facts": [(name, f"{count:,}") for name, count in what_ran(evidence.runs).items()],
        "absent": f"{len(evidence.absent):,}" if len(evidence.absent) else "",
        "overalls": overall_views(analysis.overall, analysis.baseline),
        "fairness": view(analysis.fairness, "What must agree between compared runs"),
        "results": result_grids(analysis.results, analysis.metrics, evidence.absent, ids),
        "tests": _tests(analysis.wilcoxon),
        "printed_note": _printed_note(analysis.wilcoxon),
        "ranks": [(name, METRICS[name].title) for name in charts["ranks"]],
        "ranks_table": view(_titled(analysis.ranks), "Mean ranks over datasets and models"),
        "tuned": tuned,
        "published": _published(analysis.published),
        "explore": _explore(analysis, charts),
        "baseline": analysis.baseline,
        "plain_sections": _plain_sections(analysis, charts["panels"]),
        "traces": entries + tuned_entries,
        "charts": charts,
    }
    return shown | {"contents": _contents(shown)}


def _contents(shown: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the sections that are there, for the list of contents."""
    fixed = [
        ("summary", "Summary", True),
        ("fairness", "Fairness", True),
        ("results", "Results", shown["results"]),
        ("tests", "Luck?", shown["tests"] or shown["ranks"]),
        ("tuned", "Tuned", shown["tuned"]),
        ("published", "Published", shown["published"]),
        ("explore", "A closer look", shown["explore"]),
    ]
    there = [(place, text) for place, text, some in fixed if some]
    there += [(section["id"], section["short"]) for section in shown["plain_sections"]]
    return [*there, ("reproduce", "Reproduce")]


def _subtitle(runs: pd.DataFrame) -> str:
    if runs.empty:
        return "No run has finished."
    strategies = ", ".join(sorted(runs["strategy"].unique(), key=arm_order))
    epochs = " or ".join(str(value) for value in sorted(runs["plan_epochs"].unique()))
    return f"Comparing {strategies}: {epochs} epochs, test results at the best validation epoch."


def _headline(said: dict[str, str]) -> list[str]:
    """Return the sentences, the paper's own strategy first."""
    return [said[arm] for arm in sorted(said, key=lambda arm: (arm != "adaptive", arm_order(arm)))]


def _titled(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its metrics called as people call them."""
    if "metric" not in table:
        return table
    return table.assign(metric=[METRICS[name].title for name in table["metric"]])


def _tests(table: pd.DataFrame) -> View | None:
    if table.empty:
        return None
    caption = "Wilcoxon's signed-rank test over the datasets, by model and metric"
    titles = {
        "learner": "Model",
        "arm": "Strategy",
        "metric": "Metric",
        "datasets": "Datasets",
        "outcome": "Outcome",
        "p": "p",
        "p_holm": "p (Holm)",
        "printed_outcome": "Printed outcome",
        "printed_p": "Printed p",
        "table_p": "p of the printed means",
    }
    return view(_titled(table), caption, titles)


def _printed_note(table: pd.DataFrame) -> str:
    """Return what is odd about the paper's p-values, where some of them are shown."""
    return printed_p_note(printed_tests()) if table["printed_p"].notna().any() else ""


def _tuned(analysis: Analysis) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the tuned comparisons, and the runs behind them."""
    views: list[dict[str, Any]] = []
    behind: list[dict[str, Any]] = []
    for strategy, chosen in analysis.tuned.items():
        summary = overall(chosen, analysis.metrics)
        counted = summary[summary["metric"].isin(PAPER_METRICS)] if len(summary) else summary
        entries, ids = traces(chosen, f"tuned-{len(views)}")
        table = results(chosen, analysis.metrics)
        grids = result_grids(table, analysis.metrics, pd.DataFrame(), ids)
        said = sentences(counted, baseline_arm(chosen["arm"]))
        views.append({"strategy": strategy, "sentences": list(said.values()), "tables": grids})
        behind += entries
    return views, behind


def _published(table: pd.DataFrame) -> dict[str, Any] | None:
    if table.empty:
        return None
    told = table[table["agrees"].notna()]
    same = int(told["agrees"].astype(bool).sum())
    by_metric = table.assign(agrees=table["agrees"].astype(float)).groupby("metric", sort=False)
    summary = by_metric.agg(
        pairs=("difference", "size"), difference=("difference", "mean"), agrees=("agrees", "mean")
    ).reset_index()
    shares = summary["agrees"]
    summary["agrees"] = [MISSING if pd.isna(share) else f"{share:.0%}" for share in shares]
    summary_titles = {
        "metric": "Metric",
        "pairs": "Pairs",
        "difference": "Mean of ours - printed",
        "agrees": "Same direction",
    }
    titles = {
        "data": "Dataset",
        "learner": "Model",
        "metric": "Metric",
        "baseline": "From",
        "arm": "to",
        "ours_baseline": "Ours, from",
        "ours": "to",
        "printed_baseline": "Printed, from",
        "printed": "to",
        "difference": "Ours - printed",
        "agrees": "Same direction",
        "note": "Note",
    }
    return {
        "sentence": f"Of the {len(told)} comparisons that the paper prints and that are no tie, "
        f"{same} go the same way here. Our means are {table['difference'].abs().mean():.4f} away "
        "from the printed ones on average.",
        "summary": view(_titled(summary), "Ours beside the paper's, by metric", summary_titles),
        "table": view(_titled(table), "Every comparison, ours and printed", titles),
    }


def _charts(analysis: Analysis) -> dict[str, Any]:
    runs = analysis.evidence.runs
    drawn = chart_data(
        arms=runs["arm"].unique().tolist(),
        baseline=analysis.baseline,
        curves=analysis.curves,
        convergence=analysis.convergence,
        labels=analysis.labels,
        pressures=analysis.pressures,
        density=analysis.density,
    )
    panels = {
        "agreement": agreement_panels(analysis.agreement),
        "batch-size": batch_size_panels(analysis.batch_sizes),
    }
    return drawn | {
        "ranks": rank_charts(analysis.ranks),
        "panels": {
            f"{place}-{turn}": category_chart(panel)
            for place, some in panels.items()
            for turn, panel in enumerate(some)
            if len(panel.categories) > 1
        },
    }


def _explore(analysis: Analysis, charts: dict[str, Any]) -> dict[str, Any] | None:
    cells = charts["cells"]
    if not cells:
        return None
    pressures = [(name, METRICS[name].title) for name in analysis.metrics]
    return {
        "data": sorted({cell["data"] for cell in cells}),
        "learners": sorted({cell["learner"] for cell in cells}),
        "measures": [(str(at), each["title"]) for at, each in enumerate(charts["measures"])],
        "labels": len(analysis.labels) > 0,
        "epochs": [(f"{epoch:g}",) * 2 for epoch in sorted(analysis.density["epoch"].unique())],
        "pressures": [*pressures, ("training_bce", "Training loss")]
        if len(analysis.pressures)
        else [],
    }


def _plain_sections(analysis: Analysis, panels: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sections that are a sentence and a table, as far as there is data for them."""
    batch_sizes = analysis.batch_sizes.rename(columns={"plan_batch_size": "batch_size"})
    everything = [
        _section(
            "minority",
            "Minority labels",
            "Does it help the minority labels?",
            "Average precision of single labels against the baseline. A label is a minority label "
            "where its imbalance ratio is above the mean of the dataset.",
            view(
                analysis.minority if analysis.minority["gain"].notna().any() else pd.DataFrame(),
                "Mean change of average precision, share of labels that improve, and exposure",
                {
                    "arm": "Strategy",
                    "kind": "Labels",
                    "labels": "Number",
                    "gain": "Gain",
                    "improved": "Share improved",
                    "exposure": "Exposure",
                },
            ),
        ),
        _section(
            "agreement",
            "Two losses",
            "Model loss and BCE",
            "Pearson's correlation, over the training samples, of each sample's BCE and its share of "
            "the model's own loss, after the named epochs.",
            view(
                analysis.agreement,
                "Correlation of the two losses, mean over runs",
                {
                    "learner": "Model",
                    "arm": "Strategy",
                    "epoch": "Epoch",
                    "runs": "Runs",
                    "loss_correlation": "Correlation",
                },
            ),
        ),
        _section(
            "batch-size",
            "Batch size",
            "Batch size",
            "Macro-AUC on test rows, all else being equal.",
            view(
                batch_sizes,
                "Macro-AUC by batch size",
                {
                    "dataset": "Dataset",
                    "learner": "Model",
                    "arm": "Strategy",
                    "batch_size": "Batch size",
                    "macro_auc": "Macro-AUC",
                },
            ),
        ),
        _section(
            "datasets",
            "Datasets",
            "Datasets, printed and measured",
            "What the paper prints of each dataset, and what the file that was used gives.",
            view(analysis.datasets, "Facts of the datasets"),
        ),
        _missing(analysis.evidence.absent),
    ]
    for section in everything:
        drawn = {place: panel["title"] for place, panel in panels.items()}
        prefix = f"{section['id']}-"
        section["panels"] = [each for each in drawn.items() if each[0].startswith(prefix)]
    return [section for section in everything if section["table"].rows]


def _section(place: str, short: str, title: str, text: str, table: View) -> dict[str, Any]:
    return {"id": place, "short": short, "title": title, "text": text, "table": table}


def _missing(absent: pd.DataFrame) -> dict[str, Any]:
    titles = {
        "data": "Dataset",
        "learner": "Model",
        "arm": "Strategy",
        "fold": "Fold",
        "seed": "Seed",
        "reason": "Reason",
    }
    if len(absent):
        tried = absent["reason"].replace("", "not run yet")
        absent = absent.assign(reason=tried).sort_values([*CELL, "arm", "fold", "seed"])
    return _section(
        "missing",
        "Missing runs",
        "Failed and missing runs",
        "Runs that a study wants and that left no record. Comparisons use the folds and seeds that "
        "all strategies have.",
        view(absent, "Runs without a record", titles),
    )
