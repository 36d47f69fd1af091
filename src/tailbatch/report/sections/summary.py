"""The outcome: a sentence per strategy, what was run, and the change of every metric."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.analysis import Analysis
from tailbatch.analysis.best import Best, Setting
from tailbatch.analysis.comparisons import claimed, with_batches, with_best
from tailbatch.analysis.fairness import what_ran
from tailbatch.analysis.inference import LEVEL
from tailbatch.analysis.keys import Arm
from tailbatch.metrics import TUNED, metric_facts
from tailbatch.report import panels
from tailbatch.report.export import MISSING, cell_text
from tailbatch.report.section import Block, Brief, FileTable, Section, Story

#: Metrics that a terminal has room for.
_BRIEF = ("macro_f", "micro_f", "macro_auc", "minority_macro_f", "minority_average_precision")
_TUNED = "tuned: with the threshold of each label tuned on the validation rows"
_INFERENCE = (
    "Intervals are 95%. On one dataset they are over folds (Student's t with Nadeau and Bengio's "
    "variance, from three folds on), otherwise over datasets (bootstrap, from six on). The p-values of "
    "minority average precision, Macro-AUC and Micro-F are corrected for the number of such "
    "claims (Holm); n.s. means not significant at 0.05. The best setting is chosen on validation rows, "
    "so its own p-value needs no correction. Other metrics are shown but not tested."
)
_NOTHING = (
    "There is nothing to compare yet: no dataset and model has runs of two strategies on the same fold "
    "and seed."
)


def summary(story: Story) -> Section:
    """Return the outcome, in words and in numbers."""
    analysis = story.analysis
    evidence, table = analysis.evidence, analysis.overall
    first = [headline(analysis.best)] if analysis.best else []
    said = sentences(table, analysis.baseline)
    late = still_learning(analysis)
    blocks = [Block("lines", [*first, *said.values()]) if said else Block("text", _NOTHING)]
    blocks += [Block("alert", (late, "fairness", "See the checks."))] if late else []
    blocks += [Block("note", _INFERENCE)] if said else []
    counts = what_ran(evidence.runs).items()
    blocks += [Block("facts", [(name, f"{count:,}") for name, count in counts])]
    if len(evidence.absent):
        text = f"{len(evidence.absent):,} of the planned runs are missing."
        blocks += [Block("alert", (text, "missing", "See which."))]
    blocks += [Block("changes", _changes(table, analysis.baseline))] if len(table) else []
    return Section(
        id="summary",
        title="Summary",
        short="Summary",
        blocks=tuple(blocks),
        tables=(
            FileTable("overall", table, "Change against the baseline in percent, over datasets"),
            FileTable("runs", evidence.runs),
        ),
        figures={"gains": partial(panels.gains_figure, table, story.looks)} if len(table) else {},
        brief=_brief(analysis, tuple([*first, *filter(None, [late])])),
    )


def headline(best: Best) -> str:
    """Return which setting is best for rare labels, by how much, and whether that is significant."""
    several = best.reference is not None and best.reference.learner != best.setting.learner

    def name(setting: Setting) -> str:
        if not setting.arm.draws_batches:
            return str(setting.learner)
        return f"{setting.learner} with {setting.arm} batches" if several else str(setting.arm)

    metric = metric_facts(best.metric)
    text = f"Best{' for rare labels' if metric.minority else ''}: {name(best.setting)}, "
    text += f"{metric.title} {best.value:.4f}"
    if best.gain is None or best.reference is None:
        return text
    text += f", {_interval(*best.gain[:3])} against {name(best.reference)}"
    if best.gain.percent < 0:  # chosen on validation rows, and worse on test rows
        text = f"{text[:4]} on the validation rows{text[4:]} on the test rows"
    if not best.tested:
        return f"{text}: not tested, which takes three folds or six datasets"
    verdict = "significant" if best.significant else "not significant, so it may be chance"
    return f"{text}: {verdict} (p = {best.gain.p:.3f})"


def still_learning(analysis: Analysis) -> str:
    """Return a warning if most runs of the baseline were best in their last epochs, else nothing."""
    checks = analysis.fairness.set_index("check")
    if "learned" not in checks.index or checks.loc["learned", "verdict"] != "differs":
        return ""
    late, total = checks.loc["learned", ["count", "total"]]
    return (
        f"Still learning at the end: {late} of {total} runs of {analysis.baseline} were best in their "
        "last epochs, so a gain may only be faster learning. Train longer, or at a higher learning rate."
    )


def sentences(overall: pd.DataFrame, baseline: Arm | None) -> dict[Arm, str]:
    """Return one quotable sentence per arm, from `comparisons.overall`.

    The claims come first, in the order in which they were listed; arms are sorted by their gain in the
    first claim, largest first.

    Examples
    --------
    >>> table = pd.DataFrame({"arm": [Arm("adaptive")] * 2, "metric": ["macro_auc", "macro_f"],
    ...                       "cells": 6, "win": [6, 3], "tie": [0, 1], "loss": [0, 2],
    ...                       "percent": [2.1, 0.1], "low": [0.9, -0.2], "high": [3.4, 0.4],
    ...                       "p_holm": [0.01, np.nan]})
    >>> sentences(table, Arm("random"))[Arm("adaptive")]
    'adaptive against random: Macro-AUC +2.1% [+0.9, +3.4]; better in 9 of 12 comparisons (1 tie)'
    """
    said = {}
    for arm, group in _best_first(overall):
        wins, ties, total = group["win"].sum(), group["tie"].sum(), group["cells"].sum()
        rows = group.set_index("metric")
        claims = [
            f"{metric_facts(name).title} {_change(rows.loc[name])}" for name in claimed(rows.index)
        ]
        count = f"better in {wins} of {total} comparisons"
        count += f" ({ties} tie{'s' if ties > 1 else ''})" if ties else ""
        said[arm] = f"{arm} against {baseline}: {'; '.join([*claims, count])}"
    return said


def _best_first(overall: pd.DataFrame) -> list[tuple[Arm, pd.DataFrame]]:
    """Return the rows of each arm, sorted by gain in the first claim, largest first."""
    groups = dict(tuple(overall.groupby("arm", sort=False)))
    first = claimed(list(overall["metric"].unique()))[:1]
    gains = {
        arm: rows.loc[rows["metric"].isin(first), "percent"].sum() for arm, rows in groups.items()
    }
    return [(arm, groups[arm]) for arm in sorted(groups, key=lambda arm: -gains[arm])]


def _change(row: pd.Series) -> str:
    if pd.isna(row["percent"]):
        return f"{row['mean']:.4f} against {row['baseline_mean']:.4f}"
    text = _interval(row["percent"], row["low"], row["high"])
    return text + (", n.s." if row["p_holm"] >= LEVEL else "")


def _interval(percent: float, low: float, high: float) -> str:
    if not np.isfinite([low, high]).all():
        return f"{percent:+.1f}% (no interval)"
    return f"{percent:+.1f}% [{low:+.1f}, {high:+.1f}]"


def _changes(overall: pd.DataFrame, baseline: Arm | None) -> list[dict[str, Any]]:
    """Return each arm's table of all metrics, with the intervals as positions on one common axis."""
    ends = np.array([0.0, *overall[["low", "high", "percent"]].to_numpy(dtype=float).ravel()])
    ends = ends[np.isfinite(ends)]
    low, width = ends.min(), max(float(np.ptp(ends)), 1e-9)

    def position(value: float) -> str:
        return f"{4 + 92 * (value - low) / width:.1f}"

    views = []
    for arm, group in _best_first(overall):
        caption = f"{arm} against {baseline}: change of the average over datasets"
        rows = [_change_row(row, position) for _, row in group.iterrows()]
        views.append({"arm": str(arm), "caption": f"{caption}; positive is better", "rows": rows})
    return views


def _change_row(row: pd.Series, position: Callable[[float], str]) -> dict[str, Any]:
    known = bool(np.isfinite([row["percent"], row["low"], row["high"]]).all())
    tone = ("good" if row["percent"] > 0 else "bad") if row["p_holm"] < LEVEL else ""
    ends = {"zero": 0.0, "at": row["percent"], "low": row["low"], "high": row["high"]}
    return {
        "metric": metric_facts(row["metric"]).title,
        **{name: int(row[name]) for name in ("win", "tie", "loss")},
        "tone": tone,
        "percent": MISSING if pd.isna(row["percent"]) else f"{row['percent']:+.1f}%",
        "interval": f"{row['low']:+.1f} to {row['high']:+.1f}" if known else MISSING,
        "bar": {name: position(value) for name, value in ends.items()} if known else None,
        "p": p_text(row["p_holm"]),
    }


def p_text(p: float) -> str:
    """Return a p-value as text.

    Examples
    --------
    >>> p_text(0.00001), p_text(0.0314), p_text(float("nan"))
    ('< 0.0001', '0.0314', '\N{EN DASH}')
    """
    return "< 0.0001" if p < 0.0001 else cell_text(float(p))


def _brief(analysis: Analysis, said: tuple[str, ...]) -> Brief:
    """Return one row per arm: its means if there is one cell, else its change from the baseline.

    Learners without batches are listed below the strategies of the learner that has them.
    """
    drawing = with_batches(analysis.results)
    one = analysis.results["data"].nunique() == 1 and drawing["learner"].nunique() <= 1
    table, cell = (with_beside(analysis.results), _mean) if one else (analysis.overall, _percent)
    shown = [name for name in analysis.metrics if name.removeprefix(TUNED) in _BRIEF]
    metrics = sorted(shown, key=lambda name: _BRIEF.index(name.removeprefix(TUNED)))
    metrics = metrics if len(table) else []
    rows = []
    for name, group in table.groupby("name" if one else "arm", sort=False):
        by_metric = group.set_index("metric")
        cells = (cell(by_metric.loc[metric]) for metric in metrics if metric in by_metric.index)
        rows.append(((str(name), False), *cells))
    intervals = table["low"].notna().any()
    if one:
        what = "mean and 95% interval over folds" if intervals else "mean over folds and seeds"
        caption = f"{what}; best in bold"
        caption += "; below: models without batches" if len(drawing) < len(table) else ""
    else:
        caption = f"change against {analysis.baseline}, positive is better"
        caption += "; 95% intervals over datasets" if intervals else ""
    caption += f"; {_TUNED}" if any(name.startswith(TUNED) for name in metrics) else ""
    header = ("strategy", *(metric_facts(name).title for name in metrics))
    return Brief(header, tuple(rows), caption, said)


def with_beside(results: pd.DataFrame) -> pd.DataFrame:
    """Return the means of one dataset with a ``name`` each: arms, then learners without batches."""
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
        least, most = metric_facts(row.name).range
        low, high = np.clip([row["low"], row["high"]], least, most)
        text += f"\n[{low:.3f}, {high:.3f}]"
    return text, bool(row["best"])


def _percent(row: pd.Series) -> tuple[str, bool]:
    text = f"{row['percent']:+.1f}%"
    text += "" if pd.isna(row["low"]) else f"\n[{row['low']:+.1f}, {row['high']:+.1f}]"
    return text, False
