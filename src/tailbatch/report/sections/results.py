"""Fairness, means, tests and tuned comparisons; then labels, missing runs, and how to repeat all."""

import tomllib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailbatch.analysis.comparisons import baseline_arm, overall, sign
from tailbatch.analysis.comparisons import results as means
from tailbatch.analysis.curves import labels_by_name
from tailbatch.analysis.keys import CELL, Arm, by_label
from tailbatch.metrics import metric_facts
from tailbatch.report.figures import Look, plain_text
from tailbatch.report.section import (
    Block,
    Chart,
    FileTable,
    Section,
    Story,
    Switch,
    View,
    cell_text,
)
from tailbatch.report.sections.summary import sentences

_CHECKED = "What must agree between compared runs"
# The check's title, and the kind of value that must be the same.
_SAME = {
    "warm_up_digest": ("Weights at the end of the warm-up", "digest"),
    "steps": ("Number of training steps", "number"),
    "drawn_samples": ("Number of drawn samples", "number"),
    "dataset_digest": ("Content of the dataset", "digest"),
    "versions": ("Versions of the packages", "list"),
    "max_lag": ("Lag between drawing and observing", "number"),
}


def _fairness(story: Story) -> Section:
    """Return the checks and their verdicts."""
    table = _in_words(story.analysis.fairness, story.analysis.baseline)
    text = (
        "For one dataset, model, fold and seed, all strategies share the rows, the initial weights and "
        "the warm-up, and take the same number of steps and samples. The records were checked for this:"
    )
    return Section(
        id="fairness",
        title="How fair the comparison is",
        short="Fairness",
        blocks=(Block("text", text), Block("table", View.of(table, _CHECKED))),
        tables=(FileTable("fairness", table, _CHECKED),),
    )


def _in_words(checks: pd.DataFrame, baseline: Arm | None) -> pd.DataFrame:
    """Return the checks of `tailbatch.analysis.tables` as text."""
    columns = checks[["check", "verdict", "count", "total"]]
    rows = [_check_row(baseline, *row) for row in columns.itertuples(index=False)]
    return pd.DataFrame(rows, columns=["check", "verdict", "detail"])


def _check_row(
    baseline: Arm | None, check: str, verdict: str, count: int, total: int
) -> tuple[str, str, str]:
    if check in _SAME:
        title, kind = _SAME[check]
        detail = f"the same {kind} in {count:,} of {total:,} groups of compared runs"
        return title, verdict, detail if total else "no two runs to compare"
    if check == "folds":
        detail = "the same for every strategy"
        if count:
            detail = f"{count:,} runs without a partner are left out of the comparisons"
        return "Folds and seeds of the compared means", verdict, detail if total else "no runs"
    late = f"of {total:,} runs of {baseline} were best in their last epochs"
    detail = (
        f"{count:,} {late}, so they were still learning, and a gain may only be faster learning: to find "
        "out, use a higher learning rate or more epochs"
    )
    if not total:
        detail = "no best epochs"
    elif verdict == "cannot be told":
        detail = (
            f"the runs of {baseline} have one evaluation, from which it cannot be told, or a cosine "
            "schedule, whose last epoch is meant to be the best"
        )
    elif verdict == "agrees":
        detail = f"only {count:,} {late}" if count else f"none {late}"
    return "End of the training and end of learning", verdict, detail


_TEXT = (
    "Means over folds and seeds on test rows, at the best validation epoch. Below each mean is its 95% "
    "interval over folds (Student's t with Nadeau and Bengio's variance), if there are three folds or "
    "more. A star marks the best of a dataset. The number of runs links to their names."
)


def _results(story: Story) -> Section:
    """Return one table per model, and all comparisons as files."""
    analysis = story.analysis
    absent = analysis.evidence.absent
    grids = _result_grids(analysis.results, analysis.metrics, story.traces.ids, absent)
    tables: tuple[FileTable, ...] = ()
    if len(analysis.results):
        reading, bold = _wide_results(analysis.results, analysis.metrics)
        caption = (
            "Means over folds and seeds ± half of the 95% interval; the best strategy of each dataset "
            "in bold"
        )
        tables = (FileTable("results", analysis.results, caption, reading, bold),)
    caption = "Each strategy against the baseline on the same folds and seeds"
    return Section(
        id="results",
        title="Results",
        short="Results",
        blocks=(Block("text", _TEXT), Block("open", grids)) if grids else (),
        tables=(*tables, FileTable("comparisons", analysis.comparisons, caption)),
    )


def _wide_results(results: pd.DataFrame, metrics: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the result table as the paper prints it, and which of its cells are best."""
    keys = ["learner", "data", "arm"]
    # The longer side: the other one may be cut at what the metric can take.
    half = np.maximum(results["high"] - results["mean"], results["mean"] - results["low"])
    ends = [f" ± {width:.4f}" if np.isfinite(width) else "" for width in half]
    texts = [cell_text(mean) + end for mean, end in zip(results["mean"], ends, strict=True)]
    table = results.assign(text=texts).pivot(index=keys, columns="metric", values=["text", "best"])
    table = table.loc[sorted(table.index)]
    titles = {
        name: f"{metric_facts(name).title} {'↑' if sign(name) > 0 else '↓'}" for name in metrics
    }
    means = table["text"][metrics].rename(columns=titles).reset_index()
    best = table["best"][metrics].eq(True).rename(columns=titles).reset_index()
    best[keys] = False
    return means, best


def _result_grids(
    results: pd.DataFrame,
    metrics: list[str],
    traces: Mapping[tuple[Any, ...], str],
    absent: pd.DataFrame | None = None,
) -> list[dict[str, Any]]:
    """Return one table per model: datasets and strategies down, metrics across (Table 2)."""
    columns = [*CELL, "arm", "metric", "mean", "low", "high", "runs", "best"]
    # By learner, dataset, arm and metric: mean, low, high, number of runs, and whether it is best.
    values: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    for data, learner, arm, metric, *rest in results[columns].itertuples(index=False):
        values.setdefault((learner, data, arm), {})[metric] = rest
    lost: dict[tuple[Any, ...], int] = {}
    if absent is not None and len(absent):
        lost = absent.groupby(["learner", "data", "arm"]).size().to_dict()
    for key in lost:
        if key[-1].is_primary:
            values.setdefault(key, {})
    titles = [
        {"title": metric_facts(name).title, "higher": metric_facts(name).higher_is_better}
        for name in metrics
    ]
    grids: dict[Any, dict[Any, list[dict[str, Any]]]] = {}
    # Learners without batches have only that arm, and come after those that draw batches.
    for key in sorted(values, key=lambda key: (not key[-1].draws_batches, *key)):
        learner, data, arm = key
        row = _row(values[key], metrics, lost.get(key, 0))
        row |= {"arm": cell_text(arm), "trace": traces.get((data, learner, arm), "")}
        grids.setdefault(learner, {}).setdefault(data, []).append(row)
    return [
        {
            "learner": str(learner),
            "caption": f"{learner} on {len(by_data)} dataset{'s' * (len(by_data) != 1)}",
            "metrics": titles,
            "groups": [(str(data), rows) for data, rows in by_data.items()],
        }
        for learner, by_data in grids.items()
    ]


def _row(values: Mapping[str, list[Any]], metrics: list[str], missing: int) -> dict[str, Any]:
    count = max((runs for *_, runs, _ in values.values()), default=0)
    lost = f", {missing} missing" if missing else ""
    return {
        "runs": f"{count} {'run' if count == 1 else 'runs'}{lost}",
        "short": bool(missing),
        "cells": [_cell(*values[name]) if name in values else None for name in metrics],
    }


def _cell(mean: float, low: float, high: float, runs: int, best: bool) -> dict[str, Any]:
    return {
        "mean": cell_text(mean),
        "best": best,
        "interval": "" if np.isnan(low) else f"{low:.3f}\N{EN DASH}{high:.3f}",
    }


_TESTS = {
    "learner": "Model",
    "arm": "Strategy",
    "metric": "Metric",
    "datasets": "Datasets",
    "outcome": "Outcome",
    "p": "p",
    "p_holm": "p (Holm)",
}


def _luck(story: Story) -> Section:
    """Return the tests and the critical-difference diagrams."""
    tests, ranks = story.analysis.wilcoxon, story.analysis.ranks
    charts = _rank_charts(ranks.dropna(subset="critical_difference"))
    blocks: list[Block] = []
    if len(tests):
        caption = "Wilcoxon's signed-rank test over the datasets, by model and metric"
        blocks += [View.of(tests, caption, _TESTS).block()]
    if charts:
        caption = (
            "Mean ranks over datasets, averaged over models first; rank 1 is best. A thick bar joins "
            "strategies that do not differ significantly in the Nemenyi test."
        )
        choice = Switch(
            "ranks", "Metric", tuple((name, metric_facts(name).title) for name in charts)
        )
        numbers = View.of(ranks, "Mean ranks over datasets")
        blocks += [Block("chart", Chart("ranks", "Mean ranks", caption, (choice,)))]
        blocks += [Block("folded", ("The ranks in numbers", numbers))]
    return Section(
        id="tests",
        title="More than chance?",
        short="Chance?",
        blocks=tuple(blocks),
        tables=(
            FileTable("wilcoxon", tests, "Wilcoxon's signed-rank test over the datasets"),
            FileTable("ranks", ranks, "Mean ranks over datasets"),
        ),
        figures={"ranks": partial(_ranks_figure, charts, story.looks)} if charts else {},
        data={"ranks": {name: _plain(chart) for name, chart in charts.items()}},
    )


def _rank_charts(ranks: pd.DataFrame) -> dict[str, Any]:
    """Return, from `mean_ranks`, what the critical-difference diagrams show, by metric."""
    return {
        metric: {
            "arms": [[row.arm, round(row.mean_rank, 3)] for row in group.itertuples()],
            "critical": round(group["critical_difference"].iloc[0], 3),
            "groups": _alike(group["mean_rank"].to_numpy(), group["critical_difference"].iloc[0]),
        }
        for metric, group in ranks.groupby("metric", sort=False)
    }


def _plain(chart: dict[str, Any]) -> dict[str, Any]:
    return chart | {"arms": [[str(arm), rank] for arm, rank in chart["arms"]]}


def _alike(ranks: np.ndarray, distance: float) -> list[list[float]]:
    """Return the ends of the longest stretches of sorted ranks that span at most `distance`.

    Examples
    --------
    >>> _alike(np.array([1.0, 1.5, 2.0, 3.5]), 0.6)
    [[1.0, 1.5], [1.5, 2.0]]
    """
    stretches: list[list[float]] = []
    for low in ranks:
        high = ranks[ranks <= low + distance].max()
        if high > low and (not stretches or high > stretches[-1][1]):
            stretches.append([round(float(low), 3), round(float(high), 3)])
    return stretches


_TUNED = (
    "For each dataset, model and fold, the pressure with the best validation Macro-AUC is compared with "
    "the baseline's best of as many seeds, chosen in the same way. Test results are not used to choose."
)


def _tuned(story: Story) -> Section:
    """Return the tuned comparison of each strategy that has one."""
    metrics = story.analysis.metrics
    blocks: list[Block] = []
    for strategy, chosen in story.analysis.tuned.items():
        said = sentences(overall(chosen, metrics), baseline_arm(chosen["arm"]))
        blocks += [Block("strong", f"{sentence}.") for sentence in said.values()]
        ids = story.tuned_traces[strategy].ids
        blocks += [Block("grids", _result_grids(means(chosen, metrics), metrics, ids))]
    return Section(
        id="tuned",
        title="With a tuned pressure",
        short="Tuned",
        blocks=(Block("text", _TUNED), *blocks) if blocks else (),
    )


def _ranks_figure(charts: Mapping[str, Any], looks: Mapping[Arm, Look]) -> Figure:
    """Draw a critical-difference diagram for each metric."""
    arms = max(len(chart["arms"]) for chart in charts.values())
    rows = -(-len(charts) // 2)
    height = (0.75 + 0.17 * arms) * rows
    figure = Figure(figsize=(9, height), dpi=150)
    margins = {"left": 0.03, "right": 0.97, "bottom": 0.02, "top": 1 - 0.3 / height, "hspace": 0.5}
    grid = figure.subplots(rows, 2, squeeze=False, gridspec_kw=margins).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, (metric, chart) in zip(grid, charts.items(), strict=False):
        _ranks(axes, chart, looks)
        title = f"{metric_facts(metric).title} (critical difference {chart['critical']:.2f})"
        axes.set_title(title, fontsize=9, pad=14)
    return figure


def _ranks(axes: Axes, chart: Mapping[str, Any], looks: Mapping[Arm, Look]) -> None:
    """Draw arms at their mean ranks, and bars over those that do not differ significantly."""
    count = max(2, len(chart["arms"]))
    depth = len(chart["groups"]) + len(chart["arms"]) + 1
    axes.set_xlim(0.8, count + 0.2)
    axes.set_ylim(depth, -0.5)
    axes.plot([1, count], [0, 0], color="0.2", linewidth=1)
    for rank in range(1, count + 1):
        axes.plot([rank, rank], [-0.3, 0], color="0.2", linewidth=1)
        axes.text(rank, -0.5, str(rank), ha="center", va="bottom", fontsize=8)
    for turn, (low, high) in enumerate(chart["groups"], start=1):
        ends = [low - 0.02 * count, high + 0.02 * count]
        axes.plot(ends, [turn * 0.8] * 2, color="0.2", linewidth=3, solid_capstyle="round")
    for turn, (arm, rank) in enumerate(chart["arms"], start=1):
        y = len(chart["groups"]) * 0.8 + turn
        style = looks[arm].drawn(line=False)
        axes.plot([rank, rank], [0, y], color=style["color"], linewidth=1)
        axes.plot([rank], [0], linestyle="none", **style)
        left = rank <= (count + 1) / 2
        text = f" {plain_text(str(arm))}  {rank:.2f} "
        axes.text(rank, y, text, ha="left" if left else "right", va="center", fontsize=8)


_TITLES = {"arm": "Strategy", "kind": "Labels", "labels": "Number", "gain": "Gain"}
_TITLES |= {"improved": "Share improved", "exposure": "Exposure"}
_CELLS = {"data": "Dataset", "learner": "Model"}
_NAMED = {"label": "Label", "positives": "Training rows", "minority": "Minority"}
_BY_NAME = "Average precision of each label, rarest first"
_MOST_LABELS = 600  # rows on the page; the file has all


def _minority(story: Story) -> Section:
    """Return the mean gain over minority and over other labels, and every label by name."""
    table, labels = story.analysis.minority, labels_by_name(story.analysis.labels)
    text = (
        "Average precision of single labels against the baseline. A label is a minority label if it is "
        "rarer than the geometric mean and the median of the labels with five rows or more; in the "
        "paper's preparations, if its imbalance ratio is above the mean of the dataset."
    )
    caption = "Mean change of average precision, share of labels that improve, and exposure"
    # Means over folds, which are read as whole rows; the CSV file has them as they are.
    reading = labels.assign(positives=labels["positives"].round().astype("Int64"))
    blocks: tuple[Block, ...] = ()
    if table["gain"].notna().any():
        blocks = (Block("text", text), View.of(table, caption, _TITLES).block())
    if len(labels) and len(labels) <= _MOST_LABELS:
        several = {name: title for name, title in _CELLS.items() if labels[name].nunique() > 1}
        arms = {arm: str(arm) for arm in labels if isinstance(arm, Arm)}
        blocks += (View.of(reading, _BY_NAME, several | _NAMED | arms).block(),)
    return Section(
        id="minority",
        title="Minority labels",
        short="Minority labels",
        blocks=blocks,
        tables=(
            FileTable("minority", table, "Gains over minority and other labels"),
            FileTable("labels-by-name", labels, _BY_NAME, reading),
        ),
    )


_RUN = [*CELL, "arm", "fold", "seed"]
_MISSING = {**_CELLS, "arm": "Strategy", "fold": "Fold", "seed": "Seed", "reason": "Reason"}


def _missing(story: Story) -> Section:
    """Return the planned runs without a record."""
    absent = story.analysis.evidence.absent
    blocks: tuple[Block, ...] = ()
    tables: tuple[FileTable, ...] = ()
    if len(absent):
        tried = by_label(absent.assign(reason=absent["reason"].replace("", "not run yet")), _RUN)
        text = "Planned runs without a record. Means are over folds and seeds that all strategies have."
        blocks = (Block("text", text), View.of(tried, "Runs without a record", _MISSING).block())
        kept = absent[[*_RUN, "digest", "reason"]]
        tables = (FileTable("missing", kept, "Planned runs without a record"),)
    return Section(
        id="missing",
        title="Failed and missing runs",
        short="Missing runs",
        blocks=blocks,
        tables=tables,
    )


def _unread(story: Story) -> Section:
    """Return the runs whose array file is damaged or missing."""
    table = story.analysis.unread
    text = (
        "The array file of these runs is damaged or missing, so they are not in the charts drawn from "
        "it: volatility, sample losses, correlation of losses. All their other results are here."
    )
    caption = "Runs whose arrays could not be read"
    titles = _MISSING | {"digest": "Run"}
    return Section(
        id="unread",
        title="Runs without their arrays",
        short="Unread arrays",
        blocks=(Block("text", text), View.of(table, caption, titles).block()) if len(table) else (),
        tables=(FileTable("unread", table, caption),),
    )


def _reproduce(story: Story) -> Section:
    """Return how to repeat the runs, and which runs are behind each row."""
    blocks: list[Block] = []
    if story.studies:
        entries = [e for text in story.studies.values() for e in tomllib.loads(text)["datasets"]]
        files = sorted({entry["path"] for entry in entries if isinstance(entry, dict)})
        beside = f" ({', '.join(files)} must be there too)" if files else ""
        these = "This command repeats" if len(story.studies) == 1 else "These commands repeat"
        how = (
            "Each mean above is over the runs listed below. A run's name is a digest of everything that "
            "defines it; repeating it gives the same record, except for times. "
            f"{these} all of them, from the folder of this page{beside}:"
        )
        again = [
            f"tailbatch study run {story.files}/{name} --store again" for name in story.studies
        ]
        one = (
            "To repeat one row of a table, reduce the lists in a copy of the study file to its dataset, "
            "model and strategy."
        )
        commands = Block("commands", [*again, "tailbatch report again --out again.html"])
        blocks = [Block("text", how), commands, Block("text", one)]
    behind = [story.traces, *story.tuned_traces.values()]
    entries = [entry for traced in behind for entry in traced.entries]
    rest = " beside it, as CSV, LaTeX and Markdown, PDF and PNG."
    folder = "The tables and figures of this page are in the folder ", story.files, rest
    return Section(
        id="reproduce",
        title="How to reproduce a number",
        short="Reproduce",
        blocks=(*blocks, Block("folder", folder), Block("traces", entries)),
    )


SECTIONS = (_fairness, _results, _luck, _tuned)
BY_RUN = (_minority, _missing, _unread, _reproduce)
