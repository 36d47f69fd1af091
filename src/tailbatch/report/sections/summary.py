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
from tailbatch.analysis.inference import LEVEL, coverage_text
from tailbatch.analysis.keys import Arm
from tailbatch.metrics import TUNED, metric_facts
from tailbatch.report import panels
from tailbatch.report.export import MISSING, cell_text
from tailbatch.report.section import Block, Brief, FileTable, Section, Story, View, folded

#: Metrics that a terminal has room for.
_BRIEF = ("macro_f", "micro_f", "macro_auc", "minority_macro_f", "minority_average_precision")
_SETTING = ["learner", "arm", "varied"]
_TUNED = "tuned: with the threshold of each label tuned on the validation rows"
_INFERENCE = (
    "Intervals are 95%. On one dataset they are over folds (Student's t with Nadeau and Bengio's "
    "variance, from three folds on), otherwise over datasets (bootstrap-t, from six on). The p-values of "
    "minority average precision, Macro-AUC and Micro-F are corrected for the number of such "
    "claims (Holm); n.s. means not significant at 0.05. The best setting is chosen on validation rows, "
    "so its own p-value needs no correction. Other metrics are shown but not tested."
)
_NOTHING = (
    "There is nothing to compare yet: no dataset has runs of two strategies, models or losses on the "
    "same fold and seed."
)


def summary(story: Story) -> Section:
    """Return the outcome, in words and in numbers."""
    analysis = story.analysis
    evidence, table = analysis.evidence, analysis.overall
    several = analysis.results["learner"].nunique() > 1
    top = analysis.best is None or _is_top(analysis.best, settings(analysis.results))
    first = [headline(analysis.best, several=several, top=top)] if analysis.best else []
    said = [*first, *sentences(table, analysis.baseline).values()]
    late = still_learning(analysis)
    blocks = [Block("lines", said) if said else Block("text", _NOTHING)]
    blocks += [Block("alert", (late, "fairness", "See the checks."))] if late else []
    blocks += [folded(_settings_view(analysis))] if several else []
    blocks += [Block("note", f"{_INFERENCE}{_coverage(table)}")] if said else []
    counts = what_ran(evidence.runs)
    if "strategies" in counts:  # a model without batches has none
        counts["strategies"] = with_batches(evidence.runs)["strategy"].nunique()
    blocks += [Block("facts", [(name, f"{count:,}") for name, count in counts.items()])]
    if len(evidence.absent):
        text = f"{len(evidence.absent):,} of the planned runs are missing."
        blocks += [Block("alert", (text, "missing", "See which."))]
    blocks += [Block("changes", _changes(analysis))] if len(table) else []
    return Section(
        id="summary",
        title="Summary",
        short="Summary",
        blocks=tuple(blocks),
        tables=(
            FileTable(
                "overall", table, f"Change against the baseline in percent{_averaged(analysis)}"
            ),
            FileTable("runs", evidence.runs),
        ),
        figures={"gains": partial(panels.gains_figure, table, story.looks)} if len(table) else {},
        brief=_brief(analysis, tuple([*first, *filter(None, [late])])),
    )


def _coverage(overall: pd.DataFrame) -> str:
    """Say how well the intervals over datasets hold, where the table has some."""
    datasets = overall.loc[overall["low"].notna(), "datasets"].max() if len(overall) else 0
    text = coverage_text(datasets)
    return f" Of the interval over datasets: {text[0].lower()}{text[1:]}" if text else ""


def headline(best: Best, *, several: bool = False, top: bool = True) -> str:
    """Return which setting is best for rare labels, by how much, and whether that is significant.

    With `several` learners compared, the setting's learner is named, too. If it is not at the `top` of
    the test rows, too, the headline says that the validation rows chose it.
    """
    learners = {best.setting.learner, *([best.reference.learner] if best.reference else [])}

    def name(setting: Setting) -> str:
        if not setting.arm.draws_batches:
            return str(setting.learner)
        named = several or len(learners) > 1
        return f"{setting.learner} with {setting.arm} batches" if named else str(setting.arm)

    metric = metric_facts(best.metric)
    text = f"Best{' for rare labels' if metric.minority else ''}: {name(best.setting)}, "
    text += f"{metric.title} {best.value:.4f}"
    if best.gain is None or best.reference is None:
        return text
    percent, low, high = best.gain[:3]
    if percent == low == high == 0:
        same = f"{name(best.setting)} and {name(best.reference)} are the same on every fold"
        return f"{text.partition(':')[0]}: no difference. {same}, {metric.title} {best.value:.4f}"
    known = np.isfinite([low, high]).all()
    interval = f" (95% interval {signed(low)} to {signed(high)})" if known else " (no interval)"
    text += f", {signed(percent)}%{interval} against {name(best.reference)}"
    if percent < 0 or not top:  # chosen on validation rows, and not the best on test rows
        text = f"{text[:4]} on the validation rows{text[4:]} on the test rows"
    if not best.tested:
        return f"{text}: not tested, which takes three folds or six datasets"
    verdict = "significant" if best.significant else "not significant, so it may be chance"
    p = "< 0.001" if best.gain.p < 0.0005 else f"= {best.gain.p:.3f}"
    return f"{text}: {verdict} (p {p})"


def _is_top(best: Best, table: pd.DataFrame) -> bool:
    """Return whether no setting has a better mean on the test rows than the best one."""
    rows = table[table["metric"] == best.metric]
    same = (rows["learner"] == best.setting.learner) & (rows["arm"] == best.setting.arm)
    return bool((same & rows["best"]).any() or not rows["best"].any())


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
        return f"{signed(percent)}% (no interval)"
    return f"{signed(percent)}% [{signed(low)}, {signed(high)}]"


def signed(percent: float) -> str:
    """Return a change with its sign and one digit; what rounds to zero is positive.

    Examples
    --------
    >>> signed(-2.34), signed(-0.01)
    ('-2.3', '+0.0')
    """
    return f"{round(percent, 1) + 0.0:+.1f}"


def _averaged(analysis: Analysis) -> str:
    """Return over what the changes are averaged, for the end of a sentence.

    On one dataset with one learner that is nothing.
    """
    drawing = with_batches(analysis.results)
    learners, datasets = drawing["learner"].nunique(), analysis.overall["datasets"].max()
    over = [f"{learners} models"] if learners > 1 else []
    over += [f"{datasets} datasets"] if datasets > 1 else []
    return f", averaged over {' and '.join(over)}" if over else ""


def _changes(analysis: Analysis) -> list[dict[str, Any]]:
    """Return each arm's table of all metrics, with the intervals as positions on one common axis."""
    overall, baseline = analysis.overall, analysis.baseline
    ends = np.array([0.0, *overall[["low", "high", "percent"]].to_numpy(dtype=float).ravel()])
    ends = ends[np.isfinite(ends)]
    low, width = ends.min(), max(float(np.ptp(ends)), 1e-9)

    def position(value: float) -> str:
        return f"{4 + 92 * (value - low) / width:.1f}"

    views = []
    for arm, group in _best_first(overall):
        caption = f"{arm} against {baseline}: change{_averaged(analysis)}"
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
        "percent": MISSING if pd.isna(row["percent"]) else f"{signed(row['percent'])}%",
        "interval": f"{signed(row['low'])} to {signed(row['high'])}" if known else MISSING,
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


def _by_setting(analysis: Analysis) -> bool:
    """Return whether settings are listed: on one dataset, or if no strategy has a baseline."""
    datasets = {(data.name, data.digest) for data in analysis.results["data"]}
    return len(datasets) == 1 or (len(datasets) > 1 and analysis.overall.empty)


def _brief_metrics(analysis: Analysis) -> list[str]:
    shown = [name for name in analysis.metrics if name.removeprefix(TUNED) in _BRIEF]
    return sorted(shown, key=lambda name: _BRIEF.index(name.removeprefix(TUNED)))


def _brief(analysis: Analysis, said: tuple[str, ...]) -> Brief:
    """Return one row per setting if `_by_setting`, else per arm: its change from the baseline."""
    metrics = _brief_metrics(analysis)
    table = analysis.overall
    if _by_setting(analysis):
        return _settings_brief(settings(analysis.results), metrics, said)
    rows = [
        ((str(arm), False), *_cells(group, metrics, _percent))
        for arm, group in table.groupby("arm", sort=False)
    ]
    caption = f"change against {analysis.baseline}{_averaged(analysis)}, positive is better"
    if table["low"].notna().any():
        caption += f"; 95% intervals over {'datasets' if table['datasets'].max() > 1 else 'folds'}"
        caption += f". {text}" if (text := coverage_text(table["datasets"].max())) else ""
    header = ("strategy", *(metric_facts(name).title for name in metrics)) if rows else ()
    return Brief(header, tuple(rows), caption + _tuned_note(metrics), said)


def _settings_brief(table: pd.DataFrame, metrics: list[str], said: tuple[str, ...]) -> Brief:
    """Return one row per setting: its means, the best marked."""
    drawing = with_batches(table)
    several = drawing["learner"].nunique() > 1
    rows = []
    for (learner, arm, varied), group in table.groupby(_SETTING, sort=False):
        name = [str(learner)] if several or not arm.draws_batches else []
        name += [str(arm)] if arm.draws_batches else []
        rows.append((("\n".join([*name, *varied]), False), *_cells(group, metrics, _mean)))
    first = "strategy" if len(drawing) else "model"
    header = ("model\nstrategy" if several else first, *(metric_facts(m).title for m in metrics))
    caption = _means_over(table)
    caption += "; * best of its column on test rows" if table["best"].any() else ""
    if 0 < len(drawing) < len(table):
        caption += "; below: models without batches"
    return Brief(header, tuple(rows), caption + _tuned_note(metrics), said)


def _settings_view(analysis: Analysis) -> View:
    """Return the table of `_settings_brief` for the page."""
    table, metrics = settings(analysis.results), _brief_metrics(analysis)
    rows = []
    for (learner, arm, varied), group in table.groupby(_SETTING, sort=False):
        cells = _cells(group, metrics, _mean)
        texts = [text.removeprefix("*").replace("\n", " ") for text, _ in cells]
        marked = [
            f"★ {text}" if best else text for text, (_, best) in zip(texts, cells, strict=True)
        ]
        rows.append([str(learner), ", ".join([cell_text(arm), *varied]), *marked])
    header = [("Model", False), ("Strategy", False)]
    header += [(metric_facts(name).title, True) for name in metrics]
    caption = _means_over(table) + (
        "; ★ best of its column on test rows" if table["best"].any() else ""
    )
    return View(f"Every setting: {caption}{_tuned_note(metrics)}", header, rows)


def _means_over(table: pd.DataFrame) -> str:
    datasets = table["datasets"].max()
    if datasets > 1:
        return f"mean over {datasets} datasets"
    intervals = table["low"].notna().any()
    return (
        "mean ± half of its 95% interval over folds" if intervals else "mean over folds and seeds"
    )


def _tuned_note(metrics: list[str]) -> str:
    return f"; {_TUNED}" if any(name.startswith(TUNED) for name in metrics) else ""


def settings(results: pd.DataFrame) -> pd.DataFrame:
    """Return the means of each learner and arm, over datasets if there are several.

    ``varied`` are other settings that differ between runs, ``best`` marks the best mean of a metric.
    Settings that ran on fewer datasets than others are left out; over datasets there is no interval.
    Learners without batches come last.

    Examples
    --------
    >>> from tailbatch.analysis.keys import Dataset, Learner
    >>> results = pd.DataFrame({"data": Dataset("scene"), "arm": [Arm("none"), Arm("random")],
    ...                         "learner": [Learner("forest"), Learner("mlp")], "metric": "macro_f",
    ...                         "mean": [0.2, 0.3], "low": np.nan, "high": np.nan})
    >>> settings(results)[["learner", "best"]].astype(str).values.tolist()
    [['mlp', 'True'], ['forest', 'False']]
    """
    table = results.assign(
        name=[(data.name, data.digest) for data in results["data"]],
        varied=[tuple(f"{what} {value}" for what, value in d.setting) for d in results["data"]],
        datasets=1,
    )
    if table["name"].nunique() > 1:
        groups = table.groupby([*_SETTING, "metric"], sort=False)
        means = groups.agg(mean=("mean", "mean"), datasets=("name", "nunique")).reset_index()
        table = means[means["datasets"] == means["datasets"].max()].assign(low=np.nan, high=np.nan)
    rows = zip(*(table[name] for name in _SETTING), strict=True)
    keys = [(not arm.draws_batches, learner, arm, varied) for learner, arm, varied in rows]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return with_best(table.iloc[order], ["metric"])


def _cells(
    group: pd.DataFrame, metrics: list[str], cell: Callable[[pd.Series], tuple[str, bool]]
) -> list[tuple[str, bool]]:
    rows = group.set_index("metric")
    return [cell(rows.loc[name]) if name in rows.index else (MISSING, False) for name in metrics]


def _mean(row: pd.Series) -> tuple[str, bool]:
    text = f"{'*' if row['best'] else ''}{row['mean']:.4f}"
    if pd.notna(row["low"]):
        text += f"\n±{(row['high'] - row['low']) / 2:.4f}"
    return text, bool(row["best"])


def _percent(row: pd.Series) -> tuple[str, bool]:
    text = MISSING if pd.isna(row["percent"]) else f"{signed(row['percent'])}%"
    text += "" if pd.isna(row["low"]) else f"\n[{signed(row['low'])}, {signed(row['high'])}]"
    return text, False
