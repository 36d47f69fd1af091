"""One dataset and model at a time: learning curves, single labels, sample losses, pressures."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tailbatch.analysis import Analysis
from tailbatch.analysis.curves import MEASURES
from tailbatch.analysis.keys import CELL, Arm, Dataset, Learner
from tailbatch.metrics import metric_facts
from tailbatch.report import panels
from tailbatch.report.section import (
    Block,
    Chart,
    FileTable,
    Section,
    Story,
    Switch,
    short,
)
from tailbatch.report.style import GROUP_NAMES, GROUPS

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
        )
        often = (
            "How often a label is drawn, relative to its share of the training rows (1 is equal)."
        )
        charts = (
            Chart("gain", "Gain of each label", f"{gain}Filled: minority labels."),
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
            (
                Switch("loss-epoch", "After epoch", epochs),
                Switch("loss-view", "Compare", compared),
            ),
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
        cell["curves"][str(arm)] = _columns(_thinned(values), columns)
    for cell, arm, values in cells.by_arm(convergence, list(facts)):
        cell["convergence"][str(arm)] = [short(value) for value in values[0]]
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
        """Yield each cell, arm, and its rows: (rows, columns), sliced from one array."""
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


def _thinned(rows: np.ndarray, points: int = 40) -> np.ndarray:
    """Return at most `points` rows, evenly spaced, including the first and last.

    Examples
    --------
    >>> _thinned(np.arange(1, 101), points=4).tolist()
    [1, 34, 67, 100]
    """
    places = np.linspace(0, len(rows) - 1, min(points, len(rows))).round().astype(int)
    return np.asarray(rows[places])


def _columns(rows: np.ndarray, names: list[str]) -> dict[str, list[Any]]:
    """Return the columns of a curve; one that was never measured is left out."""
    return {
        name: [short(value) for value in column]
        for name, column in zip(names, rows.T, strict=True)
        if not np.isnan(column).all()
    }


def _labels(group: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a dataset's labels, commonest first; the same for all of its models and arms."""
    once = group.drop_duplicates("label")
    order = once.sort_values("positives", ascending=False, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_LABELS)).round())
    shown = order.iloc[places.astype(int)]
    return {
        "names": shown["label"].tolist(),
        "positives": [short(value) for value in shown["positives"]],
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
                by_arm[str(arm)] = [short(value, 3) for value in values[kind]]
    return facts


def _density(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the densities of one epoch: the common grid, and the heights by arm and group."""
    groups: dict[Arm, dict[str, list[Any]]] = {}
    for (arm, name), some in rows.groupby(["arm", "minority_labels"], sort=False):
        groups.setdefault(arm, {})[name] = [short(value, 3) for value in some["density"]]
    grid = [short(value, 3) for value in rows["loss"].unique()]
    return {"loss": grid, "arms": {str(arm): groups[arm] for arm in sorted(groups)}}


def _pressure(rows: pd.DataFrame) -> dict[str, Any]:
    metrics = [name for name in rows if name not in (*CELL, "strategy", "pressure")]
    tried = rows[rows["pressure"].notna()].sort_values("pressure")
    plain = rows[rows["pressure"].isna()]
    return {
        "pressure": tried["pressure"].tolist(),
        **{name: [short(value) for value in tried[name]] for name in metrics},
        "baseline": {name: short(plain[name].mean()) for name in metrics},
    }


def _figures(story: Story) -> dict[str, Callable[[], Figure]]:
    """Return the figures; a store with many datasets and models gets those of one of them."""
    analysis, shown = story.analysis, story.looks
    lines = _one_model(analysis.curves)
    drawn = {
        "convergence": ("training_bce", "number", "steps", "seconds"),
        "validation": ("validation_macro_auc", "number"),
    }
    figures: dict[str, Callable[[], Figure]] = {}
    for name, (measure, *axes) in drawn.items():
        if measure in lines and lines[measure].notna().any():
            of = (lines, shown, measure, MEASURES[measure], *axes)
            figures[name] = partial(panels.curves_figure, *of)
    if analysis.labels[["gain", "exposure"]].notna().any(axis=None):
        figures["labels"] = partial(panels.labels_figure, _one_model(analysis.labels), shown)
    if len(analysis.density):
        figures["sample-losses"] = partial(
            panels.density_figure, _one_cell(analysis.density), shown
        )
    if len(analysis.pressures) and analysis.baseline:
        cell = _one_cell(analysis.pressures)
        figures["pressures"] = partial(panels.pressure_figure, cell, shown, analysis.baseline)
    return figures


def _one_model(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first model by name."""
    learners = table["learner"].unique()
    return table[table["learner"] == min(learners)] if len(learners) else table


def _one_cell(table: pd.DataFrame) -> pd.DataFrame:
    rows = _one_model(table)
    return rows[rows["data"] == min(rows["data"])]
