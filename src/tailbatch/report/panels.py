"""Figures of a study for papers and slides; each is drawn from a table and from nothing else."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailbatch.metrics import METRICS
from tailbatch.report.figures import plain_text
from tailbatch.report.style import PALETTE, Look

_AXES = {"number": "epoch", "steps": "batch", "seconds": "second"}
_MOST = 4  # datasets side by side, as in the paper


def gains_figure(overall: pd.DataFrame, looks: Mapping[str, Look]) -> Figure:
    """Draw each arm's change in percent and its interval, by metric, from `tables.overall`."""
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
            xerr=np.nan_to_num(ends),
            label=plain_text(str(arm)),
            linestyle="none",
            capsize=3,
            **_style(looks[str(arm)], line=False),
        )
    axes.axvline(0, color="0.4", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(metrics)), [METRICS[name].title for name in metrics])
    axes.invert_yaxis()
    axes.set_xlabel("change against the baseline in percent, positive is better")
    _tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def curves_figure(
    curves: pd.DataFrame, looks: Mapping[str, Look], measure: str, title: str, *axes_of: str
) -> Figure:
    """Draw a measure of one model by epoch, batch or second, one column a dataset (Figures 3 and 4).

    The first four datasets are drawn; `axes_of` names the rows: number, steps, seconds.
    """
    names = list(curves["data"].unique())[:_MOST]
    width, height = 2.6 * len(names) + 0.6, 1.9 * len(axes_of) + 0.5
    figure = Figure(figsize=(width, height), dpi=150)
    # Laid out by hand: matplotlib's own layout takes as long as drawing all panels once more.
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
                style = _style(looks[arm]) | {"markevery": every, "label": plain_text(arm)}
                axes.plot(known[axis], known[measure], linewidth=1.4, **style)
            axes.set_xlabel(_AXES[axis])
            _tidy(axes)
        grid[0][column].set_title(plain_text(data), fontsize=9)
    grid[0][0].legend(frameon=False, fontsize=7)
    figure.supylabel(title, fontsize=9, x=0.01)
    return figure


def labels_figure(labels: pd.DataFrame, looks: Mapping[str, Look]) -> Figure:
    """Draw each label's gain and exposure against its positives, from `labels.label_facts`."""
    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    titles = {"gain": "change of average precision", "exposure": "drawn / expected"}
    for axes, (kind, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        for arm, rows in _arms(labels.dropna(subset=kind), looks):
            style = _style(looks[arm], line=False) | {"markersize": 3, "alpha": 0.6}
            axes.plot(
                rows["positives"], rows[kind], linestyle="none", label=plain_text(arm), **style
            )
        axes.axhline(0 if kind == "gain" else 1, color="0.4", linestyle=":", linewidth=1)
        axes.set_xscale("symlog")
        axes.set_xlabel("positives of the label")
        axes.set_ylabel(title)
        _tidy(axes)
        axes.legend(frameon=False, fontsize=8)
    return figure


def losses_figure(losses: pd.DataFrame, looks: Mapping[str, Look]) -> Figure:
    """Draw quantiles of sample losses by number of minority labels, one panel an epoch (Figures 1, 5).

    The losses are of one dataset and model.
    """
    epochs = sorted(losses["epoch"].unique())
    figure = Figure(figsize=(4.2 * len(epochs), 3.4), dpi=150, layout="constrained")
    for axes, epoch in zip(figure.subplots(1, len(epochs), squeeze=False)[0], epochs, strict=True):
        rows = losses[losses["epoch"] == epoch]
        arms = list(_arms(rows, looks))
        for turn, (arm, group) in enumerate(arms):
            group = group.sort_values("minority_labels")
            at = group["minority_labels"] + (turn - (len(arms) - 1) / 2) * 0.7 / len(arms)
            color = PALETTE[looks[arm].color][0]
            axes.vlines(at, group["q05"], group["q95"], color=color, linewidth=1)
            axes.vlines(at, group["q25"], group["q75"], color=color, linewidth=4)
            style = _style(looks[arm], line=False)
            axes.plot(at, group["q50"], linestyle="none", label=plain_text(arm), **style)
        axes.set_title(f"epoch {epoch:g}", fontsize=9)
        axes.set_xlabel("minority labels of a sample (3: three and more)")
        axes.set_xticks(sorted(rows["minority_labels"].unique()))
        _tidy(axes)
        axes.legend(frameon=False, fontsize=8)
    return figure


def pressure_figure(pressures: pd.DataFrame, looks: Mapping[str, Look], baseline: str) -> Figure:
    """Draw each metric by selection pressure, the baseline dashed, for one cell (Figure 7)."""
    names = [name for name in pressures if name in METRICS or name == "training_bce"]
    names = [name for name in names if pressures[name].notna().any()]
    columns = 3
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(9, 2.5 * rows), dpi=150)
    place = {"left": 0.06, "right": 0.99, "bottom": 0.6 / (2.5 * rows), "top": 1 - 0.12 / rows}
    place |= {"wspace": 0.25, "hspace": 0.35}
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=place).ravel()
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(panels, names, strict=False):
        for strategy, group in pressures.groupby("strategy"):
            tried = group[group["pressure"].notna()].sort_values("pressure")
            axes.plot(
                tried["pressure"],
                tried[name],
                label=plain_text(strategy),
                **_style(looks[strategy]),
            )
            plain = group.loc[group["pressure"].isna(), name]
        axes.axhline(plain.mean(), **_style(looks[baseline]) | {"marker": None})
        axes.set_xscale("log")
        axes.set_xticks(tried["pressure"], [f"{value:g}" for value in tried["pressure"]])
        axes.set_title(METRICS[name].title if name in METRICS else "Training loss", fontsize=9)
        _tidy(axes)
    panels[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("selection pressure", fontsize=9)
    return figure


def _arms(table: pd.DataFrame, looks: Mapping[str, Look]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the primary arms and their rows, in the order of the looks."""
    groups = {str(arm): rows for arm, rows in table.groupby("arm", sort=False)}
    for arm in looks:
        if arm in groups and " " not in arm:
            yield arm, groups[arm]


def _style(look: Look, *, line: bool = True) -> dict[str, Any]:
    style: dict[str, Any] = {
        "color": PALETTE[look.color][0],
        "marker": look.marker,
        "markersize": 4,
    }
    if line:
        style["linestyle"] = (0, look.dash) if look.dash else "-"
    return style


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.minorticks_off()
