"""The outcome: a sentence per strategy, what was run, and the change of every metric."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tailbatch.analysis import Analysis
from tailbatch.analysis.comparisons import (
    LEVEL,
    adjusted,
    claimed,
    coverage_text,
    with_batches,
    with_best,
)
from tailbatch.analysis.keys import Arm, Learner
from tailbatch.analysis.tables import Best
from tailbatch.metrics import TUNED, metric_facts
from tailbatch.report.figures import Look, plain_text, tidy
from tailbatch.report.section import (
    MISSING,
    Block,
    Brief,
    FileTable,
    Section,
    Story,
    View,
    cell_text,
)
from tailbatch.stats import FEWEST_DATASETS

#: Metrics that a terminal has room for.
_BRIEF = ("macro_f", "micro_f", "macro_auc", "minority_macro_f", "minority_average_precision")
_COUNTED = {
    "datasets": "dataset",
    "models": "model",
    "strategies": "strategy",
    "folds": "fold",
    "seeds": "seed",
}
_SETTING = ["learner", "arm", "varied"]
_BY_DATASET = {"data": "Dataset", "learner": "Model", "arm": "Compared", "metric": "Metric"}
_BY_DATASET |= {"percent": "Change, %", "pairs": "Pairs", "p": "p (Holm)"}
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


def _summary(story: Story) -> Section:
    """Return the outcome, in words and in numbers."""
    analysis = story.analysis
    evidence, table = analysis.evidence, analysis.overall
    several = analysis.results["learner"].nunique() > 1
    first = _headlines(analysis)
    # One sentence per strategy, then one per model: how it compares with the first one.
    models = list(sentences(analysis.models, analysis.first_model).values())
    said = [*first, *sentences(table, analysis.baseline).values(), *models]
    late = _still_learning(analysis)
    blocks = [Block("lines", said) if said else Block("text", _NOTHING)]
    blocks += [Block("alert", (late, "fairness", "See the checks."))] if late else []
    blocks += [_settings_view(analysis).block()] if several else []
    blocks += [Block("note", f"{_INFERENCE}{_coverage(analysis)}")] if said else []
    blocks += [Block("facts", _what_ran(evidence.runs))]
    if len(evidence.absent):
        text = f"{len(evidence.absent):,} of the planned runs are missing."
        blocks += [Block("alert", (text, "missing", "See which."))]
    over = _averaged(analysis)
    changed = _changes(table, str(analysis.baseline), over) if len(table) else []
    if len(analysis.models):
        averaged = _averaged(analysis, models=False)
        changed += _changes(analysis.models, str(analysis.first_model), averaged)
    blocks += [Block("changes", changed)] if changed else []
    blocks += [by_dataset.block()] if (by_dataset := _tests_by_dataset(analysis)) else []
    return Section(
        id="summary",
        title="Summary",
        short="Summary",
        blocks=tuple(blocks),
        tables=(
            FileTable("overall", table, f"Change against the baseline in percent{over}"),
            FileTable("models", analysis.models, "Change against the first model in percent"),
            FileTable("runs", evidence.runs),
        ),
        figures={"gains": partial(_gains_figure, table, story.looks)} if len(table) else {},
        brief=_brief(analysis, (*first, *models, *filter(None, [late]))),
    )


def _what_ran(runs: pd.DataFrame) -> list[tuple[str, str]]:
    counts = {"runs": len(runs)}
    for name, column in _COUNTED.items():
        # A model without batches has no strategy.
        rows = with_batches(runs) if column == "strategy" and "arm" in runs else runs
        counts |= {name: rows[column].nunique()} if column in rows else {}
    return [(name, f"{count:,}") for name, count in counts.items()]


def _headlines(analysis: Analysis) -> list[str]:
    if analysis.best is None:
        return []
    several = analysis.results["learner"].nunique() > 1
    top = _is_top(analysis.best, _settings(analysis.results))
    table = analysis.overall
    rows = table[(table["metric"] == analysis.best.metric) & table["significant"]]
    clear = [str(arm) for arm in rows.loc[rows["percent"] > 0, "arm"]]
    return [_headline(analysis.best, several=several, top=top, clear=clear)]


def _tests_by_dataset(analysis: Analysis) -> View | None:
    """Return the test on each dataset, where there are several but too few for one over datasets."""
    both = pd.concat([analysis.comparisons, analysis.models_by_dataset])
    both = both[both["metric"].isin(claimed(analysis.metrics)) & both["p"].notna()]
    if not 1 < both["data"].nunique() < FEWEST_DATASETS:
        return None
    corrected = both.assign(p=adjusted(both["p"]))
    caption = (
        "Tests on each dataset: change in percent, and p-values corrected for all of this table"
    )
    return View.of(corrected, caption, _BY_DATASET)


def _coverage(analysis: Analysis) -> str:
    """Say how well the intervals over datasets hold, where a table has some."""
    tables = pd.concat([analysis.overall, analysis.models])
    datasets = tables.loc[tables["low"].notna(), "datasets"].max()
    text = coverage_text(0 if pd.isna(datasets) else int(datasets))
    return f" Of the interval over datasets: {text[0].lower()}{text[1:]}" if text else ""


def _headline(
    best: Best, *, several: bool = False, top: bool = True, clear: Sequence[str] = ()
) -> str:
    """Return what to do for rare labels: the setting that is clearly better, or else nothing new."""
    setting, reference = best.setting, best.reference
    several = several or setting.learner != reference.learner
    metric = metric_facts(best.metric)
    rare = " for rare labels" if metric.minority else ""
    name, other = (_setting_name(*each, several) for each in (setting, reference))
    measured = f"{metric.title} {best.value:.4f}, {_against(best, other)}"
    if best.gain[:3] == (0, 0, 0):
        same = f"{name} and {other} are the same on every fold"
        return f"No difference{rare}: {same}, {metric.title} {best.value:.4f}"
    if not best.tested:
        return (
            f"Too little ran to say what is best{rare}: a test takes three folds of a dataset, or six "
            f"datasets. Chosen on the validation rows: {name}, {measured}"
        )
    if best.significant:
        seen = " on the validation rows" if not top else ""
        return f"Best{seen}{rare}: {name}, {measured}: significant"
    chosen = f"hosen on the validation rows: {name}, {measured}, not significant"
    if setting.learner != reference.learner:
        return f"No model is clearly better{rare}. C{chosen}"
    keep = min(setting.arm, reference.arm)  # the baseline, whether it was chosen or not
    if clear:
        return f"Clearly better{rare} than {keep}: {', '.join(clear)}; but c{chosen}"
    return f"Keep {keep} batches: no strategy is clearly better{rare}. C{chosen}"


def _setting_name(learner: Learner, arm: Arm, several: bool) -> str:
    if not arm.draws_batches:
        return str(learner)
    return f"{learner} with {arm} batches" if several else str(arm)


def _against(best: Best, other: str) -> str:
    """Return the gain on the test rows, with its interval and p-values as far as there are any."""
    change = f"{_signed(best.gain.percent)}%" if best.by_dataset else _interval(*best.gain[:3])
    text = f"{change} against {other} on the test rows"
    if best.by_dataset:
        each = [f"{name} {_signed(gain.percent)}% ({_p(p)})" for name, gain, p in best.by_dataset]
        return f"{text}; by dataset {', '.join(each)}"
    return text if pd.isna(best.gain.p) else f"{text} ({_p(best.gain.p)})"


def _p(p: float) -> str:
    return "no test" if pd.isna(p) else "p < 0.001" if p < 0.0005 else f"p = {p:.3f}"


def _is_top(best: Best, table: pd.DataFrame) -> bool:
    """Return whether no setting has a better mean on the test rows than the best one."""
    rows = table[table["metric"] == best.metric]
    same = (rows["learner"] == best.setting.learner) & (rows["arm"] == best.setting.arm)
    return bool((same & rows["best"]).any() or not rows["best"].any())


def _still_learning(analysis: Analysis) -> str:
    """Return a warning if most runs of the baseline were best in their last epochs, else nothing."""
    checks = analysis.fairness.set_index("check")
    if "learned" not in checks.index or checks.loc["learned", "verdict"] != "differs":
        return ""
    late, total = checks.loc["learned", ["count", "total"]]
    return (
        f"Still learning at the end: {late} of {total} runs of {analysis.baseline} were best in their "
        "last epochs, so a gain may only be faster learning. Train longer, or at a higher learning rate."
    )


def sentences(overall: pd.DataFrame, baseline: Arm | str | None) -> dict[Arm, str]:
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
        return f"{_signed(percent)}% (no interval)"
    return f"{_signed(percent)}% [{_signed(low)}, {_signed(high)}]"


def _signed(percent: float) -> str:
    """Return a change with its sign and one digit; what rounds to zero is positive."""
    return f"{round(percent, 1) + 0.0:+.1f}"


def _averaged(analysis: Analysis, *, models: bool = True) -> str:
    """Return over what the changes are averaged, for the end of a sentence."""
    drawing, table = with_batches(analysis.results), analysis.overall if models else analysis.models
    learners, datasets = drawing["learner"].nunique(), table["datasets"].max()
    over = [f"{learners} models"] if learners > 1 and models else []
    over += [f"{datasets} datasets"] if datasets > 1 else []
    return f", averaged over {' and '.join(over)}" if over else ""


def _changes(overall: pd.DataFrame, baseline: str, averaged: str) -> list[dict[str, Any]]:
    """Return each arm's table of all metrics, with the intervals as positions on one common axis."""
    ends = np.array([0.0, *overall[["low", "high", "percent"]].to_numpy(dtype=float).ravel()])
    ends = ends[np.isfinite(ends)]
    low, width = ends.min(), max(float(np.ptp(ends)), 1e-9)

    def position(value: float) -> str:
        return f"{4 + 92 * (value - low) / width:.1f}"

    views = []
    for arm, group in _best_first(overall):
        caption = f"{arm} against {baseline}: change{averaged}"
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
        "percent": MISSING if pd.isna(row["percent"]) else f"{_signed(row['percent'])}%",
        "interval": f"{_signed(row['low'])} to {_signed(row['high'])}" if known else MISSING,
        "bar": {name: position(value) for name, value in ends.items()} if known else None,
        "p": "< 0.0001" if row["p_holm"] < 0.0001 else cell_text(float(row["p_holm"])),
    }


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
        return _settings_brief(_settings(analysis.results), metrics, said)
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
    table, metrics = _settings(analysis.results), _brief_metrics(analysis)
    rows = []
    for (learner, arm, varied), group in table.groupby(_SETTING, sort=False):
        marked = [
            text.replace("*", "★ ").replace("\n", " ") for text, _ in _cells(group, metrics, _mean)
        ]
        rows.append([str(learner), ", ".join([cell_text(arm), *varied]), *marked])
    header = [("Model", False), ("Strategy", False)]
    header += [(metric_facts(name).title, True) for name in metrics]
    best = "; ★ best of its column on test rows" if table["best"].any() else ""
    caption = f"Every setting: {_means_over(table)}{best}{_tuned_note(metrics)}"
    return View(caption, header, rows)


def _means_over(table: pd.DataFrame) -> str:
    if (datasets := table["datasets"].max()) > 1:
        return f"mean over {datasets} datasets"
    if table["low"].notna().any():
        return "mean ± half of its 95% interval over folds"
    return "mean over folds and seeds"


def _tuned_note(metrics: list[str]) -> str:
    return f"; {_TUNED}" if any(name.startswith(TUNED) for name in metrics) else ""


def _settings(results: pd.DataFrame) -> pd.DataFrame:
    """Return the means of each learner and arm, over datasets if there are several."""
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
        # The longer side: the other one may be cut at what the metric can take.
        text += f"\n±{max(row['high'] - row['mean'], row['mean'] - row['low']):.4f}"
    return text, bool(row["best"])


def _percent(row: pd.Series) -> tuple[str, bool]:
    text = MISSING if pd.isna(row["percent"]) else f"{_signed(row['percent'])}%"
    text += "" if pd.isna(row["low"]) else f"\n[{_signed(row['low'])}, {_signed(row['high'])}]"
    return text, False


def _gains_figure(overall: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
    """Draw each arm's change in percent and its interval, by metric, from `comparisons.overall`."""
    metrics, arms = overall["metric"].unique(), overall["arm"].unique()
    figure = Figure(figsize=(7, 0.9 + 0.5 * len(metrics)), dpi=150, layout="constrained")
    axes = figure.subplots()
    for turn, (arm, group) in enumerate(overall.groupby("arm", sort=False)):
        places = [list(metrics).index(name) for name in group["metric"]]
        shift = (turn - (len(arms) - 1) / 2) * 0.6 / len(arms)
        ends = np.abs(group[["low", "high"]].to_numpy(dtype=float).T - group["percent"].to_numpy())
        axes.errorbar(
            group["percent"],
            np.array(places) + shift,
            xerr=ends,  # NaN, where there is no interval, draws none
            label=plain_text(str(arm)),
            linestyle="none",
            capsize=3,
            **looks[arm].drawn(line=False),
        )
    axes.axvline(0, color="0.4", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(metrics)), [metric_facts(name).title for name in metrics])
    axes.invert_yaxis()
    axes.set_xlabel("change against the baseline in percent, positive is better")
    tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


SECTIONS = (_summary,)
