"""The means of every setting, tests, tuned comparisons, and the runs that are missing."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, overall
from tailbatch.analysis.comparisons import results as means
from tailbatch.analysis.inference import sign
from tailbatch.analysis.keys import CELL, by_label
from tailbatch.analysis.verdicts import alike
from tailbatch.metrics import metric_facts
from tailbatch.report import panels
from tailbatch.report.export import cell_text
from tailbatch.report.section import (
    Block,
    Chart,
    FileTable,
    Section,
    Story,
    Switch,
    folded,
    titled,
    view,
)
from tailbatch.report.sections.summary import sentences

_TEXT = (
    "Means over folds and seeds on test rows, at the best validation epoch. Below each mean is its 95% "
    "interval over folds (Student's t with Nadeau and Bengio's variance), if there are three folds or "
    "more. A star marks the best of a dataset. The number of runs links to their names."
)


def results(story: Story) -> Section:
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
    """Return the result table as the paper prints it, and which of its cells are best.

    Examples
    --------
    >>> from tailbatch.analysis import Arm
    >>> long = pd.DataFrame({"data": "scene", "learner": "mlp", "arm": [Arm("random"), Arm("adaptive")],
    ...                      "metric": "macro_f", "mean": [0.5, 0.6], "low": [np.nan, 0.5],
    ...                      "high": [np.nan, 0.7], "best": [False, True]})
    >>> wide, best = _wide_results(long, ["macro_f"])
    >>> wide["Macro-F ↑"].tolist(), best["Macro-F ↑"].tolist()
    (['0.5000', '0.6000 ± 0.1000'], [False, True])
    """
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
    """Return one table per model: datasets and strategies down, metrics across (Table 2).

    An arm whose runs are all missing also has a row, without numbers.
    """
    columns = [*CELL, "arm", "metric", "mean", "low", "high", "runs", "best"]
    # By learner, dataset, arm and metric: mean, low, high, number of runs, and whether it is best.
    values: dict[Any, dict[Any, dict[Any, dict[str, list[Any]]]]] = {}
    for data, learner, arm, metric, *rest in results[columns].itertuples(index=False):
        values.setdefault(learner, {}).setdefault(data, {}).setdefault(arm, {})[metric] = rest
    lost: dict[tuple[Any, ...], int] = {}
    if absent is not None and len(absent):
        lost = absent.groupby([*CELL, "arm"]).size().to_dict()
    for data, learner, arm in lost:
        if arm.is_primary:
            values.setdefault(learner, {}).setdefault(data, {}).setdefault(arm, {})
    titles = [
        {"title": metric_facts(name).title, "higher": metric_facts(name).higher_is_better}
        for name in metrics
    ]
    grids = []
    # Learners without batches have only that arm, and come after those that draw batches.
    last = {
        learner
        for learner, some in values.items()
        if not all(arm.draws_batches for arms in some.values() for arm in arms)
    }
    for learner in sorted(values, key=lambda key: (key in last, key)):
        groups = [
            (
                str(data),
                [
                    _row(
                        cell_text(arm),
                        values[learner][data][arm],
                        metrics,
                        lost.get((data, learner, arm), 0),
                    )
                    | {"trace": traces.get((data, learner, arm), "")}
                    for arm in sorted(values[learner][data])
                ],
            )
            for data in sorted(values[learner])
        ]
        caption = f"{learner} on {len(groups)} {'dataset' if len(groups) == 1 else 'datasets'}"
        grids += [
            {"learner": str(learner), "caption": caption, "metrics": titles, "groups": groups}
        ]
    return grids


def _row(
    arm: str, values: Mapping[str, list[Any]], metrics: list[str], missing: int
) -> dict[str, Any]:
    count = max((runs for *_, runs, _ in values.values()), default=0)
    return {
        "arm": arm,
        "runs": f"{count} {'run' if count == 1 else 'runs'}"
        + (f", {missing} missing" if missing else ""),
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


def luck(story: Story) -> Section:
    """Return the tests and the critical-difference diagrams."""
    tests, ranks = story.analysis.wilcoxon, story.analysis.ranks
    charts = _rank_charts(ranks.dropna(subset="critical_difference"))
    blocks: list[Block] = []
    if len(tests):
        caption = "Wilcoxon's signed-rank test over the datasets, by model and metric"
        blocks += [folded(view(titled(tests), caption, _TESTS))]
    if charts:
        caption = (
            "Mean ranks over datasets, averaged over models first; rank 1 is best. A thick bar joins "
            "strategies that do not differ significantly in the Nemenyi test."
        )
        choice = Switch(
            "ranks", "Metric", tuple((name, metric_facts(name).title) for name in charts)
        )
        numbers = view(titled(ranks), "Mean ranks over datasets")
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
        figures={"ranks": partial(panels.ranks_figure, charts, story.looks)} if charts else {},
        data={"ranks": {name: _plain(chart) for name, chart in charts.items()}},
    )


def _rank_charts(ranks: pd.DataFrame) -> dict[str, Any]:
    """Return, from `mean_ranks`, what the critical-difference diagrams show, by metric."""
    return {
        metric: {
            "arms": [[row.arm, round(row.mean_rank, 3)] for row in group.itertuples()],
            "critical": round(group["critical_difference"].iloc[0], 3),
            "groups": alike(group["mean_rank"].to_numpy(), group["critical_difference"].iloc[0]),
        }
        for metric, group in ranks.groupby("metric", sort=False)
    }


def _plain(chart: dict[str, Any]) -> dict[str, Any]:
    return chart | {"arms": [[str(arm), rank] for arm, rank in chart["arms"]]}


_TUNED = (
    "For each dataset, model and fold, the pressure with the best validation Macro-AUC is compared with "
    "the baseline's best of as many seeds, chosen in the same way. Test results are not used to choose."
)


def tuned(story: Story) -> Section:
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


_RUN = [*CELL, "arm", "fold", "seed"]
_MISSING = {
    "data": "Dataset",
    "learner": "Model",
    "arm": "Strategy",
    "fold": "Fold",
    "seed": "Seed",
    "reason": "Reason",
}


def missing(story: Story) -> Section:
    """Return the planned runs without a record."""
    absent = story.analysis.evidence.absent
    blocks: tuple[Block, ...] = ()
    tables: tuple[FileTable, ...] = ()
    if len(absent):
        tried = by_label(absent.assign(reason=absent["reason"].replace("", "not run yet")), _RUN)
        text = (
            "Planned runs without a record. Comparisons use only the folds and seeds that all strategies "
            "have."
        )
        blocks = (Block("text", text), folded(view(tried, "Runs without a record", _MISSING)))
        kept = absent[[*_RUN, "digest", "reason"]]
        tables = (FileTable("missing", kept, "Planned runs without a record"),)
    return Section(
        id="missing",
        title="Failed and missing runs",
        short="Missing runs",
        blocks=blocks,
        tables=tables,
    )


def unread(story: Story) -> Section:
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
        blocks=(Block("text", text), folded(view(table, caption, titles))) if len(table) else (),
        tables=(FileTable("unread", table, caption),),
    )
