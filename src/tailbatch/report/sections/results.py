"""The means of every dataset, model and strategy, as the paper prints them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.analysis.inference import sign
from tailbatch.analysis.keys import CELL
from tailbatch.metrics import metric_facts
from tailbatch.report.export import cell_text
from tailbatch.report.section import Block, FileTable, Section, Story

_TEXT = (
    "Means over folds and seeds on test rows, at the best validation epoch. Below each mean is its 95% "
    "interval over folds (Student's t with Nadeau and Bengio's variance), if there are three folds or "
    "more. A star marks the best of a dataset. The number of runs links to their names."
)


def results(story: Story) -> Section:
    """Return one table per model, and all comparisons as files."""
    analysis = story.analysis
    absent = analysis.evidence.absent
    grids = result_grids(analysis.results, analysis.metrics, story.traces.ids, absent)
    tables: tuple[FileTable, ...] = ()
    if len(analysis.results):
        reading, bold = wide_results(analysis.results, analysis.metrics)
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


def wide_results(results: pd.DataFrame, metrics: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the result table as the paper prints it, and which of its cells are best.

    Examples
    --------
    >>> from tailbatch.analysis import Arm
    >>> long = pd.DataFrame({"data": "scene", "learner": "mlp", "arm": [Arm("random"), Arm("adaptive")],
    ...                      "metric": "macro_f", "mean": [0.5, 0.6], "low": [np.nan, 0.5],
    ...                      "high": [np.nan, 0.7], "best": [False, True]})
    >>> wide, best = wide_results(long, ["macro_f"])
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


def result_grids(
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
