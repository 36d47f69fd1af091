"""What came out: a sentence for each strategy, what ran, and the change of every metric."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.analysis import Analysis
from tailbatch.analysis.comparisons import PAPER_METRICS, with_batches, with_best
from tailbatch.analysis.fairness import what_ran
from tailbatch.analysis.keys import Arm
from tailbatch.metrics import METRICS
from tailbatch.report import panels
from tailbatch.report.export import MISSING, cell_text
from tailbatch.report.section import Block, Brief, FileTable, Section, Story

#: Metrics that a terminal has room for.
_BRIEF = ("macro_f", "micro_f", "macro_auc", "minority_macro_f", "minority_average_precision")
_NOTHING = (
    "There is nothing to compare yet: no dataset and model has runs of two strategies on the same fold "
    "and seed."
)


def summary(story: Story) -> Section:
    """Return what came out, in words and in numbers."""
    analysis = story.analysis
    evidence, table = analysis.evidence, analysis.overall
    said = headlines(table, analysis.baseline)
    # The paper's own strategy comes first.
    order = sorted(said, key=lambda arm: (not _is_adaptive(arm), arm))
    lines = Block("lines", [said[arm] for arm in order])
    blocks = [lines if said else Block("text", _NOTHING)]
    counts = what_ran(evidence.runs).items()
    blocks += [Block("facts", [(name, f"{count:,}") for name, count in counts])]
    if len(evidence.absent):
        text = f"{len(evidence.absent):,} of the wanted runs are not here."
        blocks += [Block("alert", (text, "missing", "See which."))]
    blocks += [Block("changes", _changes(table, analysis.baseline))] if len(table) else []
    return Section(
        id="summary",
        title="Summary",
        short="Summary",
        blocks=tuple(blocks),
        tables=(
            FileTable("overall", table, "Change against the baseline in percent, over all cells"),
            FileTable("runs", evidence.runs),
        ),
        figures={"gains": partial(panels.gains_figure, table, story.looks)} if len(table) else {},
        brief=_brief(analysis, tuple(said.values())),
    )


def _is_adaptive(arm: Arm) -> bool:
    return arm.strategy == "adaptive" and arm.is_primary and arm.best_of is None


def headlines(overall: pd.DataFrame, baseline: Arm | None) -> dict[Arm, str]:
    """Return one sentence an arm; the six metrics of the paper decide them where they are there."""
    counted = overall[overall["metric"].isin(PAPER_METRICS)]
    return sentences(counted if len(counted) else overall, baseline)


def sentences(
    table: pd.DataFrame, baseline: Arm | None, *, metric: str = "macro_f"
) -> dict[Arm, str]:
    """Return one sentence an arm that a person can quote, from `comparisons.overall`.

    Examples
    --------
    >>> table = pd.DataFrame({"arm": [Arm("adaptive")] * 2, "metric": ["macro_f", "micro_f"], "cells": 6,
    ...                       "win": [6, 3], "tie": [0, 1], "loss": [0, 2], "percent": [2.1, 0.1],
    ...                       "low": [0.9, -0.2], "high": [3.4, 0.4]})
    >>> sentences(table, Arm("random"))[Arm("adaptive")]
    'adaptive beats random on 9 of 12 comparisons (1 tie); Macro-F +2.1% [+0.9, +3.4]'
    """
    said = {}
    for arm, group in table.groupby("arm", sort=False):
        wins, ties, total = group["win"].sum(), group["tie"].sum(), group["cells"].sum()
        verb = "beats" if 2 * wins > total else "is ahead of"
        text = f"{arm} {verb} {baseline} on {wins} of {total} comparisons"
        text += f" ({ties} tie{'s' if ties > 1 else ''})" if ties else ""
        row = group[group["metric"] == metric]
        row = (row if len(row) else group).iloc[0]
        said[arm] = f"{text}; {METRICS[row['metric']].title} {_change(row)}"
    return said


def _change(row: pd.Series) -> str:
    if pd.isna(row["percent"]):
        return f"{row['mean']:.4f} against {row['baseline_mean']:.4f}"
    text = f"{row['percent']:+.1f}%"
    if not np.isfinite([row["low"], row["high"]]).all():
        return f"{text} (no interval)"
    text += f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    return text + (", which may be chance" if row["low"] <= 0 <= row["high"] else "")


def _changes(overall: pd.DataFrame, baseline: Arm | None) -> list[dict[str, Any]]:
    """Return each arm's table of all metrics, with the intervals as positions on one common axis."""
    ends = np.array([0.0, *overall[["low", "high", "percent"]].to_numpy(dtype=float).ravel()])
    ends = ends[np.isfinite(ends)]
    low, width = ends.min(), max(float(np.ptp(ends)), 1e-9)

    def place(value: float) -> str:
        return f"{4 + 92 * (value - low) / width:.1f}"

    views = []
    groups = dict(tuple(overall.groupby("arm", sort=False)))
    for arm in sorted(groups, key=lambda arm: not _is_adaptive(arm)):
        caption = f"{arm} against {baseline}: change of the average over all datasets and models"
        rows = [_change_row(row, place) for _, row in groups[arm].iterrows()]
        views.append({"arm": str(arm), "caption": f"{caption}; positive is better", "rows": rows})
    return views


def _change_row(row: pd.Series, place: Callable[[float], str]) -> dict[str, Any]:
    known = bool(np.isfinite([row["percent"], row["low"], row["high"]]).all())
    sure = known and not row["low"] <= 0 <= row["high"]
    tone = ("good" if row["percent"] > 0 else "bad") if sure else ""
    ends = {"zero": 0.0, "at": row["percent"], "low": row["low"], "high": row["high"]}
    return {
        "metric": METRICS[row["metric"]].title,
        **{name: int(row[name]) for name in ("win", "tie", "loss")},
        "tone": tone,
        "percent": MISSING if pd.isna(row["percent"]) else f"{row['percent']:+.1f}%",
        "interval": f"{row['low']:+.1f} to {row['high']:+.1f}" if known else MISSING,
        "bar": {name: place(value) for name, value in ends.items()} if known else None,
        "p": p_text(row["p_holm"]),
    }


def p_text(p: float) -> str:
    """Return a p-value as people print it.

    Examples
    --------
    >>> p_text(0.00001), p_text(0.0314), p_text(float("nan"))
    ('< 0.0001', '0.0314', '\N{EN DASH}')
    """
    return "< 0.0001" if p < 0.0001 else cell_text(float(p))


def _brief(analysis: Analysis, said: tuple[str, ...]) -> Brief:
    """Return one row an arm: its means where there is one cell, else its change on the baseline.

    Learners without batches stand below the strategies of the one that has them.
    """
    drawing = with_batches(analysis.results)
    one = analysis.results["data"].nunique() == 1 and drawing["learner"].nunique() <= 1
    table, cell = (with_beside(analysis.results), _mean) if one else (analysis.overall, _percent)
    metrics = [name for name in _BRIEF if name in analysis.metrics] if len(table) else []
    rows = []
    for name, group in table.groupby("name" if one else "arm", sort=False):
        found = group.set_index("metric")
        cells = (cell(found.loc[metric]) for metric in metrics if metric in found.index)
        rows.append(((str(name), False), *cells))
    intervals = table["low"].notna().any()
    if one:
        what = "mean and 95% bootstrap interval" if intervals else "mean"
        caption = f"{what} over folds and seeds; best in bold"
        caption += "; below: models without batches" if len(drawing) < len(table) else ""
    else:
        caption = f"change against {analysis.baseline}, positive is better"
        caption += "; 95% intervals" if intervals else ""
    header = ("strategy", *(METRICS[name].title for name in metrics))
    return Brief(header, tuple(rows), caption, said)


def with_beside(results: pd.DataFrame) -> pd.DataFrame:
    """Return the means of one dataset with a ``name`` each: arms first, then learners without batches."""
    drawing = with_batches(results)
    beside = results.drop(drawing.index)
    table = pd.concat(
        [
            drawing.assign(name=drawing["arm"].map(str)),
            beside.assign(name=beside["learner"].map(str)),
        ]
    )
    return with_best(table, ["metric"])


def _mean(row: pd.Series) -> tuple[str, bool]:
    text = f"{row['mean']:.4f}"
    if pd.notna(row["low"]):
        text += f"\n[{row['low']:.3f}, {row['high']:.3f}]"
    return text, bool(row["best"])


def _percent(row: pd.Series) -> tuple[str, bool]:
    text = f"{row['percent']:+.1f}%"
    text += "" if pd.isna(row["low"]) else f"\n[{row['low']:+.1f}, {row['high']:+.1f}]"
    return text, False
