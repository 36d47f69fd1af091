"""The numbers that the page's script draws, as plain values with few digits."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.report.curves import MEASURES, Panel, short, thinned
from tailbatch.report.style import GROUP_NAMES, GROUPS, arm_order, looks, shown_arms
from tailbatch.report.tables import CELL

_MOST_LABELS = 400  # dots in one chart; more hide each other, and fill the page

_CONVERGENCE = {
    "lowest_loss": "Lowest training loss",
    "lowest_epoch": "at epoch",
    "seconds_to_target": "Seconds to the baseline's lowest",
    "time_change": "Change of that time, %",
    "peak_auc": "Peak validation Macro-AUC",
    "peak_epoch": "at epoch",
    "volatility": "Volatility of batch losses",
}


def chart_data(
    *,
    arms: list[str],
    baseline: str,
    curves: pd.DataFrame,
    convergence: pd.DataFrame,
    labels: pd.DataFrame,
    pressures: pd.DataFrame,
    density: pd.DataFrame,
) -> dict[str, Any]:
    """Return what the page's charts show, from the tables of `curves` and `labels`."""
    measures = {
        name: title
        for name, title in MEASURES.items()
        if name in curves and curves[name].notna().any()
    }
    facts = {name: title for name, title in _CONVERGENCE.items() if name in convergence}
    shown = {data: _labels(group) for data, group in labels.groupby("data", sort=False)}
    cells = _Cells()
    for cell, arm, values in cells.by_arm(curves, ["number", "steps", "seconds", *measures]):
        cell["curves"][arm] = _columns(thinned(values), ["number", "steps", "seconds", *measures])
    for cell, arm, values in cells.by_arm(convergence, list(facts)):
        cell["convergence"][arm] = [short(value) for value in values[0]]
    for cell, group in cells.of(labels):
        cell |= _label_values(group, shown[cell["data"]]["names"])
    for cell, group in cells.of(pressures):
        cell["pressure"] = {name: _pressure(rows) for name, rows in group.groupby("strategy")}
    for cell, group in cells.of(density):
        cell["density"] = {f"{epoch:g}": _density(rows) for epoch, rows in group.groupby("epoch")}
    return {
        "baseline": baseline,
        "looks": {
            arm: {**asdict(look), "shown": arm in shown_arms(arms)}
            for arm, look in looks(arms, baseline).items()
        },
        "groups": [[name, asdict(look)] for name, look in zip(GROUP_NAMES, GROUPS, strict=True)],
        "measures": [{"key": name, "title": title} for name, title in measures.items()],
        "convergence": {"header": ["Strategy", *facts.values()]},
        "labels": shown,
        "cells": cells.entries(),
    }


class _Cells:
    """One entry a dataset and model, filled by one table after the other."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, Any]] = {}

    def by_arm(
        self, table: pd.DataFrame, columns: list[str]
    ) -> Iterator[tuple[dict[str, Any], str, np.ndarray]]:
        """Yield each cell, arm, and its rows: (rows, columns), sliced from one array."""
        values = table[columns].to_numpy(dtype=np.float64)
        places = table.groupby([*CELL, "arm"], sort=False).indices
        for data, learner, arm in sorted(places, key=lambda key: arm_order(key[2])):
            yield self._entry(data, learner), arm, values[places[data, learner, arm]]

    def of(self, table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
        for (data, learner), group in table.groupby(CELL, sort=False):
            yield self._entry(data, learner), group

    def _entry(self, data: str, learner: str) -> dict[str, Any]:
        empty = {"data": data, "learner": learner, "curves": {}, "convergence": {}}
        return self._found.setdefault((data, learner), empty)

    def entries(self) -> list[dict[str, Any]]:
        return [self._found[key] for key in sorted(self._found)]


def _by_arm(group: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return sorted(group.groupby("arm", sort=False), key=lambda item: arm_order(item[0]))


def _columns(rows: np.ndarray, names: list[str]) -> dict[str, list[Any]]:
    """Return the columns of a curve; one that was never measured is left out."""
    return {
        name: [short(value) for value in column]
        for name, column in zip(names, rows.T, strict=True)
        if not np.isnan(column).all()
    }


def _labels(group: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a dataset's labels, commonest first, the same for all of its models and arms."""
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
    """Return gain and exposure of the labels called `names`, by arm, where it has values."""
    found: dict[str, dict[str, list[Any]]] = {"gain": {}, "exposure": {}}
    for arm, rows in _by_arm(group):
        values = rows.set_index("label").reindex(names)
        for kind, arms in found.items():
            if values[kind].notna().any():
                arms[arm] = [short(value, 3) for value in values[kind]]
    return found


def _density(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the densities of one epoch: the common grid, and by arm and group their heights."""
    groups: dict[str, dict[str, list[Any]]] = {}
    for (arm, name), some in rows.groupby(["arm", "minority_labels"], sort=False):
        groups.setdefault(arm, {})[name] = [short(value, 3) for value in some["density"]]
    grid = [short(value, 3) for value in rows["loss"].unique()]
    return {"loss": grid, "arms": {arm: groups[arm] for arm in sorted(groups, key=arm_order)}}


def category_chart(panel: Panel) -> dict[str, Any]:
    """Return a chart over names as the page draws it."""
    values = {arm: [short(value) for value in line] for arm, line in panel.values.items()}
    return {"title": panel.title, "categories": panel.categories, "values": values}


def _pressure(rows: pd.DataFrame) -> dict[str, Any]:
    metrics = [name for name in rows if name not in (*CELL, "strategy", "pressure")]
    tried = rows[rows["pressure"].notna()].sort_values("pressure")
    plain = rows[rows["pressure"].isna()]
    return {
        "pressure": tried["pressure"].tolist(),
        **{name: [short(value) for value in tried[name]] for name in metrics},
        "baseline": {name: short(plain[name].mean()) for name in metrics},
    }
