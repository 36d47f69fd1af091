"""Figures of a study for papers and slides; each is drawn from one table alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailbatch.analysis.keys import Arm
from tailbatch.metrics import METRICS, TUNED, metric_facts
from tailbatch.report.figures import plain_text
from tailbatch.report.style import GROUP_NAMES, GROUPS, PALETTE, Look, shown_arms

_AXES = {"number": "epoch", "steps": "batch", "seconds": "second"}
_MOST = 4  # datasets side by side, as in the paper


def gains_figure(overall: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
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
            **draw_style(looks[arm], line=False),
        )
    axes.axvline(0, color="0.4", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(metrics)), [metric_facts(name).title for name in metrics])
    axes.invert_yaxis()
    axes.set_xlabel("change against the baseline in percent, positive is better")
    tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def curves_figure(
    curves: pd.DataFrame, looks: Mapping[Arm, Look], measure: str, title: str, *axes_of: str
) -> Figure:
    """Draw a measure of one model by epoch, batch or second, one column per dataset (Figures 3 and 4).

    The first four datasets are drawn; `axes_of` names the rows: number, steps, seconds.
    """
    names = list(curves["data"].unique())[:_MOST]
    width, height = 2.6 * len(names) + 0.6, 1.9 * len(axes_of) + 0.5
    figure = Figure(figsize=(width, height), dpi=150)
    # Laid out by hand: matplotlib's layout takes as long as drawing all panels a second time.
    inches = {"left": 0.75 / width, "right": 1 - 0.1 / width}
    inches |= {"bottom": 0.5 / height, "top": 1 - 0.35 / height}
    grid = figure.subplots(
        len(axes_of),
        len(names),
        squeeze=False,
        sharey="col",
        gridspec_kw={**inches, "wspace": 0.28, "hspace": 0.5},
    )
    for column, data in enumerate(names):
        lines = curves[curves["data"] == data]
        for row, axis in enumerate(axes_of):
            axes = grid[row][column]
            for arm, line in _arms(lines, looks):
                known = line.dropna(subset=measure)
                every = max(1, len(known) // 6)
                style = draw_style(looks[arm]) | {"markevery": every, "label": plain_text(str(arm))}
                axes.plot(known[axis], known[measure], linewidth=1.4, **style)
            axes.set_xlabel(_AXES[axis])
            tidy(axes)
        grid[0][column].set_title(plain_text(str(data)), fontsize=9)
    grid[0][0].legend(frameon=False, fontsize=7)
    figure.supylabel(title, fontsize=9, x=0.01)
    return figure


def labels_figure(labels: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
    """Draw each label's gain and exposure against its positives, from `labels.label_facts`."""
    titles = {"gain": "change of average precision", "exposure": "drawn / expected"}
    # A single strategy has no gain.
    titles = {kind: title for kind, title in titles.items() if labels[kind].notna().any()}
    figure = Figure(figsize=(4.5 * len(titles), 3.6), dpi=150, layout="constrained")
    grid = figure.subplots(1, len(titles), squeeze=False)[0]
    for axes, (kind, title) in zip(grid, titles.items(), strict=True):
        for arm, rows in _arms(labels.dropna(subset=kind), looks):
            style = draw_style(looks[arm], line=False) | {"markersize": 3, "alpha": 0.6}
            counts = rows["positives"].clip(lower=1)  # the axis is logarithmic
            axes.plot(counts, rows[kind], linestyle="none", label=plain_text(str(arm)), **style)
        axes.axhline(0 if kind == "gain" else 1, color="0.4", linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlabel("positives of the label")
        axes.set_ylabel(title)
        tidy(axes)
        axes.legend(frameon=False, fontsize=8)
    return figure


def density_figure(density: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
    """Draw the densities of sample losses of one dataset and model, one column per epoch.

    The upper row has the first arm by number of minority labels (Figure 1); if there are several arms,
    the lower row compares them over all samples with a minority label (Figure 5).
    """
    epochs = sorted(density["epoch"].unique())
    arms = [arm for arm, _ in _arms(density, looks)]
    rows = 2 if len(arms) > 1 else 1
    figure = Figure(figsize=(4.2 * len(epochs), 2.9 * rows), dpi=150, layout="constrained")
    grid = figure.subplots(rows, len(epochs), squeeze=False)
    for column, epoch in enumerate(epochs):
        some = density[density["epoch"] == epoch]
        numbers = some[(some["arm"] == arms[0]) & (some["minority_labels"] != "any")]
        for name, line in numbers.groupby("minority_labels"):
            style = GROUPS[int(str(name))]
            text = GROUP_NAMES[int(str(name))]
            grid[0][column].plot(line["loss"], line["density"], label=text, **_line(style))
        grid[0][column].set_title(f"epoch {epoch:g}, {plain_text(str(arms[0]))}", fontsize=9)
        for arm, line in _arms(some[some["minority_labels"] == "any"], looks) if rows > 1 else ():
            grid[1][column].plot(line["loss"], line["density"], label=str(arm), **_line(looks[arm]))
            grid[1][column].set_title(f"epoch {epoch:g}, samples with minority labels", fontsize=9)
    for axes in grid.ravel():
        axes.set_xlabel("loss of a sample (BCE)")
        axes.set_ylim(bottom=0)
        tidy(axes)
        axes.legend(frameon=False, fontsize=8)
    grid[0][0].set_ylabel("density", fontsize=9)
    return figure


def _line(look: Look) -> dict[str, Any]:
    return draw_style(look) | {"markevery": 8, "linewidth": 1.4}


def ranks_figure(charts: Mapping[str, Any], looks: Mapping[Arm, Look]) -> Figure:
    """Draw a critical-difference diagram for each metric, from `sections.luck.rank_charts`."""
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
        style = draw_style(looks[arm], line=False)
        axes.plot([rank, rank], [0, y], color=style["color"], linewidth=1)
        axes.plot([rank], [0], linestyle="none", **style)
        left = rank <= (count + 1) / 2
        text = f" {plain_text(str(arm))}  {rank:.2f} "
        axes.text(rank, y, text, ha="left" if left else "right", va="center", fontsize=8)


def pressure_figure(pressures: pd.DataFrame, looks: Mapping[Arm, Look], baseline: Arm) -> Figure:
    """Draw each metric by selection pressure, the baseline dashed, for one cell (Figure 7)."""
    # Sorted, so that the first arm of a strategy is its primary one.
    first = {arm.strategy: looks[arm] for arm in sorted(looks, reverse=True)}
    names = [name for name in pressures if name.removeprefix(TUNED) in {*METRICS, "training_bce"}]
    names = [name for name in names if pressures[name].notna().any()]
    columns = 3
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(9, 2.5 * rows), dpi=150)
    margins = {"left": 0.06, "right": 0.99, "bottom": 0.6 / (2.5 * rows), "top": 1 - 0.12 / rows}
    margins |= {"wspace": 0.25, "hspace": 0.35}
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=margins).ravel()
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(panels, names, strict=False):
        for strategy, group in pressures.groupby("strategy"):
            tried = group[group["pressure"].notna()].sort_values("pressure")
            axes.plot(
                tried["pressure"],
                tried[name],
                label=plain_text(strategy),
                **draw_style(first[strategy]),
            )
            plain = group.loc[group["pressure"].isna(), name]
        axes.axhline(plain.mean(), **draw_style(looks[baseline]) | {"marker": None})
        axes.set_xscale("log")
        axes.set_xticks(tried["pressure"], [f"{value:g}" for value in tried["pressure"]])
        title = "Training loss" if name == "training_bce" else metric_facts(name).title
        axes.set_title(title, fontsize=9)
        tidy(axes)
    panels[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("selection pressure", fontsize=9)
    return figure


def _arms(table: pd.DataFrame, looks: Mapping[Arm, Look]) -> Iterator[tuple[Arm, pd.DataFrame]]:
    """Yield the arms to show and their rows, in the order of the looks."""
    groups = dict(tuple(table.groupby("arm", sort=False)))
    for arm in shown_arms(looks):
        if arm in groups:
            yield arm, groups[arm]


def draw_style(look: Look, *, line: bool = True) -> dict[str, Any]:
    """Return how matplotlib draws a look, with or without its line."""
    style: dict[str, Any] = {
        "color": PALETTE[look.color][0],
        "marker": look.marker,
        "markersize": 4,
    }
    if line:
        style["linestyle"] = (0, look.dash) if look.dash else "-"
    return style


def tidy(axes: Axes) -> None:
    """Leave out the frame and small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.minorticks_off()
