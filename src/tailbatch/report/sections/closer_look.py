"""One dataset and model at a time: learning curves, single labels, sample losses, pressures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tailbatch.analysis import Analysis
from tailbatch.analysis.curves import MEASURES
from tailbatch.analysis.keys import CELL, Arm, Dataset, Learner
from tailbatch.metrics import METRICS, TUNED, metric_facts
from tailbatch.report.figures import GROUP_NAMES, GROUPS, Look, plain_text, shown_arms, tidy
from tailbatch.report.section import Block, Chart, FileTable, Section, Story, Switch

_AXES = {"number": "epoch", "steps": "batch", "seconds": "second"}
_MOST = 4  # datasets side by side, as in the paper
_POINTS = 40  # of a curve
_MOST_LABELS = 400  # dots in one chart; more would overlap, and bloat the page
_CONVERGENCE = {
    "lowest_loss": "Lowest training loss",
    "lowest_epoch": "at epoch",
    "seconds_to_target": "Seconds to the baseline's lowest",
    "time_change": "Change of that time, %",
    "peak_auc": "Peak validation Macro-AUC",
    "peak_epoch": "at epoch",
    "volatility": "Volatility of batch losses",
}


def closer_look(story: Story) -> Section:
    """Return the charts of one dataset and model, and the tables behind them."""
    analysis = story.analysis
    data = _data(analysis)
    return Section(
        id="explore",
        title="A closer look",
        short="A closer look",
        blocks=tuple(_blocks(story, data)) if data["cells"] else (),
        tables=(
            FileTable("convergence", analysis.convergence, "How fast each strategy learns"),
            FileTable("pressures", analysis.pressures, "Metrics by selection pressure"),
            FileTable("curves", analysis.curves),
            FileTable("labels", analysis.labels),
            FileTable("sample-losses", analysis.losses),
            FileTable("sample-loss-density", analysis.density),
        ),
        figures=_figures(story),
        data=data,
    )


def _blocks(story: Story, data: dict[str, Any]) -> Iterator[Block]:
    analysis, baseline = story.analysis, story.analysis.baseline
    names = [tuple(sorted({cell[kind] for cell in data["cells"]})) for kind in ("data", "learner")]
    yield Block("pickers", (*names, story.files))
    if data["measures"]:
        axes = (("number", "epoch"), ("steps", "batch"), ("seconds", "second"))
        measures = tuple((str(at), measure["title"]) for at, measure in enumerate(data["measures"]))
        chart = Chart(
            "curves",
            "Learning curves",
            "Means over the compared runs. The training loss is measured over all training rows, in "
            "evaluation mode.",
            (Switch("axis", "Against", axes), Switch("measure", "Show", measures)),
            numbers="How fast each strategy learns",
        )
        yield Block("chart", chart)
    if len(analysis.labels):
        gain = (
            f"Change of a label's average precision against {baseline}, rare labels on the left. "
            "Filled: minority labels."
        )
        often = (
            "How often a label is drawn, relative to its share of the training rows (1 is equal)."
        )
        charts = (
            Chart("gain", "Gain of each label", gain),
            Chart("exposure", "Exposure of each label", often),
        )
        yield Block("row", charts)
    if len(analysis.density):
        epochs = tuple((f"{epoch:g}",) * 2 for epoch in sorted(analysis.density["epoch"].unique()))
        compared = (("numbers", "numbers of minority labels"), ("arms", "strategies"))
        chart = Chart(
            "losses",
            "Losses of samples with minority labels",
            "Density of the training samples' losses (BCE), smoothed. Numbers of minority labels are "
            "compared under the first strategy shown; strategies are compared over all samples with a "
            "minority label.",
            (Switch("loss-epoch", "After epoch", epochs), Switch("loss-view", "Compare", compared)),
            key=True,
        )
        yield Block("chart", chart)
    if len(analysis.pressures):
        metrics = [(name, metric_facts(name).title) for name in analysis.metrics]
        shown = (*metrics, ("training_bce", "Training loss"))
        chart = Chart(
            "pressure",
            "Selection pressure",
            "Means over the folds and seeds that all pressures share; the dashed line is "
            f"{baseline}.",
            (Switch("pressure-metric", "Show", shown),),
        )
        yield Block("chart", chart)


def _data(analysis: Analysis) -> dict[str, Any]:
    """Return the data of the page's charts, as plain values with few digits."""
    curves, convergence = analysis.curves, analysis.convergence
    measures = {
        name: title
        for name, title in MEASURES.items()
        if name in curves and curves[name].notna().any()
    }
    facts = {name: title for name, title in _CONVERGENCE.items() if name in convergence}
    shown = {data: _labels(group) for data, group in analysis.labels.groupby("data", sort=False)}
    cells = _Cells()
    columns = ["number", "steps", "seconds", *measures]
    for cell, arm, values in cells.by_arm(curves, columns):
        cell["curves"][str(arm)] = _columns(values[_evenly(len(values), _POINTS)], columns)
    for cell, arm, values in cells.by_arm(convergence, list(facts)):
        cell["convergence"][str(arm)] = [_short(value) for value in values[0]]
    for cell, data, group in cells.of(analysis.labels):
        cell |= _label_values(group, shown[data]["names"])
    for cell, _, group in cells.of(analysis.pressures):
        cell["pressure"] = {name: _pressure(rows) for name, rows in group.groupby("strategy")}
    for cell, _, group in cells.of(analysis.density):
        cell["density"] = {f"{epoch:g}": _density(rows) for epoch, rows in group.groupby("epoch")}
    return {
        "groups": [[name, asdict(look)] for name, look in zip(GROUP_NAMES, GROUPS, strict=True)],
        "measures": [{"key": name, "title": title} for name, title in measures.items()],
        "convergence": {"header": ["Strategy", *facts.values()]},
        "labels": {str(data): values for data, values in shown.items()},
        "cells": cells.entries(),
    }


class _Cells:
    """One entry per dataset and model, filled from one table after another."""

    def __init__(self) -> None:
        self._found: dict[tuple[Dataset, Learner], dict[str, Any]] = {}

    def by_arm(
        self, table: pd.DataFrame, columns: list[str]
    ) -> Iterator[tuple[dict[str, Any], Arm, np.ndarray]]:
        # Sliced from one array, which is much faster than a frame for each group.
        values = table[columns].to_numpy(dtype=np.float64)
        places = table.groupby([*CELL, "arm"], sort=False).indices
        for data, learner, arm in sorted(places, key=lambda key: key[2]):
            yield self._entry(data, learner), arm, values[places[data, learner, arm]]

    def of(self, table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], Dataset, pd.DataFrame]]:
        for (data, learner), group in table.groupby(CELL, sort=False):
            yield self._entry(data, learner), data, group

    def _entry(self, data: Dataset, learner: Learner) -> dict[str, Any]:
        empty = {"data": str(data), "learner": str(learner), "curves": {}, "convergence": {}}
        return self._found.setdefault((data, learner), empty)

    def entries(self) -> list[dict[str, Any]]:
        return [self._found[key] for key in sorted(self._found)]


def _evenly(count: int, most: int) -> np.ndarray:
    """Return at most `most` of `count` places, evenly spaced, including the first and last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round()).astype(int)


def _columns(rows: np.ndarray, names: list[str]) -> dict[str, list[Any]]:
    """Return the columns of a curve; one that was never measured is left out."""
    return {
        name: [_short(value) for value in column]
        for name, column in zip(names, rows.T, strict=True)
        if not np.isnan(column).all()
    }


def _labels(group: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a dataset's labels, commonest first; the same for all of its models and arms."""
    once = group.drop_duplicates("label")
    order = once.sort_values("positives", ascending=False, kind="stable")
    shown = order.iloc[_evenly(len(order), _MOST_LABELS)]
    return {
        "names": shown["label"].tolist(),
        "positives": [_short(value) for value in shown["positives"]],
        "minority": [int(value) for value in shown["minority"]],
    }


def _label_values(group: pd.DataFrame, names: list[str]) -> dict[str, dict[str, list[Any]]]:
    """Return gain and exposure of the labels `names`, by arm, if the arm has values."""
    facts: dict[str, dict[str, list[Any]]] = {"gain": {}, "exposure": {}}
    arms = dict(tuple(group.groupby("arm", sort=False)))
    for arm in sorted(arms):
        values = arms[arm].set_index("label").reindex(names)
        for kind, by_arm in facts.items():
            if values[kind].notna().any():
                by_arm[str(arm)] = [_short(value, 3) for value in values[kind]]
    return facts


def _density(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the densities of one epoch: the common grid, and the heights by arm and group."""
    groups: dict[Arm, dict[str, list[Any]]] = {}
    for (arm, name), some in rows.groupby(["arm", "minority_labels"], sort=False):
        groups.setdefault(arm, {})[name] = [_short(value, 3) for value in some["density"]]
    grid = [_short(value, 3) for value in rows["loss"].unique()]
    return {"loss": grid, "arms": {str(arm): groups[arm] for arm in sorted(groups)}}


def _pressure(rows: pd.DataFrame) -> dict[str, Any]:
    metrics = [name for name in rows if name not in (*CELL, "strategy", "pressure")]
    tried = rows[rows["pressure"].notna()].sort_values("pressure")
    plain = rows[rows["pressure"].isna()]
    return {
        "pressure": tried["pressure"].tolist(),
        **{name: [_short(value) for value in tried[name]] for name in metrics},
        "baseline": {name: _short(plain[name].mean()) for name in metrics},
    }


def _figures(story: Story) -> dict[str, Callable[[], Figure]]:
    """Return the figures; a store with many datasets and models gets those of one of them."""
    analysis, shown = story.analysis, story.looks
    lines = _one_model(analysis.curves)
    drawn = {
        "convergence": ("training_bce", "number", "steps", "seconds"),
        "validation": ("validation_macro_auc", "number"),
    }
    figures: dict[str, Callable[[], Figure]] = {
        name: partial(curves_figure, lines, shown, measure, MEASURES[measure], *axes)
        for name, (measure, *axes) in drawn.items()
        if measure in lines and lines[measure].notna().any()
    }
    if analysis.labels[["gain", "exposure"]].notna().any(axis=None):
        figures["labels"] = partial(_labels_figure, _one_model(analysis.labels), shown)
    if len(analysis.density):
        figures["sample-losses"] = partial(_density_figure, _one_cell(analysis.density), shown)
    if len(analysis.pressures) and analysis.baseline:
        cell = _one_cell(analysis.pressures)
        figures["pressures"] = partial(_pressure_figure, cell, shown, analysis.baseline)
    return figures


def _one_model(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first model by name."""
    learners = table["learner"].unique()
    return table[table["learner"] == min(learners)] if len(learners) else table


def _one_cell(table: pd.DataFrame) -> pd.DataFrame:
    rows = _one_model(table)
    return rows[rows["data"] == min(rows["data"])]


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
    layout = {"left": 0.75 / width, "right": 1 - 0.1 / width, "wspace": 0.28, "hspace": 0.5}
    layout |= {"bottom": 0.5 / height, "top": 1 - 0.35 / height}
    shape = len(axes_of), len(names)
    grid = figure.subplots(*shape, squeeze=False, sharey="col", gridspec_kw=layout)
    for column, data in enumerate(names):
        lines = curves[curves["data"] == data]
        for row, axis in enumerate(axes_of):
            axes = grid[row][column]
            for arm, line in _arms(lines, looks):
                known = line.dropna(subset=measure)
                every = max(1, len(known) // 6)
                style = looks[arm].drawn() | {"markevery": every, "label": plain_text(str(arm))}
                axes.plot(known[axis], known[measure], linewidth=1.4, **style)
            axes.set_xlabel(_AXES[axis])
            tidy(axes)
        grid[0][column].set_title(plain_text(str(data)), fontsize=9)
    grid[0][0].legend(frameon=False, fontsize=7)
    figure.supylabel(title, fontsize=9, x=0.01)
    return figure


def _labels_figure(labels: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
    """Draw each label's gain and exposure against its positives, from `labels.label_facts`."""
    titles = {"gain": "change of average precision", "exposure": "drawn / expected"}
    # A single strategy has no gain.
    titles = {kind: title for kind, title in titles.items() if labels[kind].notna().any()}
    figure = Figure(figsize=(4.5 * len(titles), 3.6), dpi=150, layout="constrained")
    grid = figure.subplots(1, len(titles), squeeze=False)[0]
    for axes, (kind, title) in zip(grid, titles.items(), strict=True):
        for arm, rows in _arms(labels.dropna(subset=kind), looks):
            style = looks[arm].drawn(line=False) | {"markersize": 3, "alpha": 0.6}
            counts = rows["positives"].clip(lower=1)  # the axis is logarithmic
            axes.plot(counts, rows[kind], linestyle="none", label=plain_text(str(arm)), **style)
        axes.axhline(0 if kind == "gain" else 1, color="0.4", linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlabel("positives of the label")
        axes.set_ylabel(title)
        tidy(axes)
        axes.legend(frameon=False, fontsize=8)
    return figure


def _density_figure(density: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
    """Draw the densities of sample losses of one dataset and model, one column per epoch."""
    epochs = sorted(density["epoch"].unique())
    arms = [arm for arm, _ in _arms(density, looks)]
    rows = 2 if len(arms) > 1 else 1
    figure = Figure(figsize=(4.2 * len(epochs), 2.9 * rows), dpi=150, layout="constrained")
    grid = figure.subplots(rows, len(epochs), squeeze=False)
    for column, epoch in enumerate(epochs):
        some = density[density["epoch"] == epoch]
        numbers = some[(some["arm"] == arms[0]) & (some["minority_labels"] != "any")]
        for name, line in numbers.groupby("minority_labels"):
            text, look = GROUP_NAMES[int(str(name))], GROUPS[int(str(name))]
            grid[0][column].plot(line["loss"], line["density"], label=text, **_line(look))
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
    return look.drawn() | {"markevery": 8, "linewidth": 1.4}


def _pressure_figure(pressures: pd.DataFrame, looks: Mapping[Arm, Look], baseline: Arm) -> Figure:
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
            style = first[strategy].drawn() | {"label": plain_text(strategy)}
            axes.plot(tried["pressure"], tried[name], **style)
            plain = group.loc[group["pressure"].isna(), name]
        axes.axhline(plain.mean(), **looks[baseline].drawn() | {"marker": None})
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


def _short(value: float, digits: int = 4) -> float | int | None:
    """Return a number with few significant digits for the page; None if it is missing."""
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
