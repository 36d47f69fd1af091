"""The README's figure: change against random by kind of data and model, with intervals."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reproduction.gains import gain
from reproduction.text import ARMS, TITLES

_COLORS = {"balanced": "#7f7f7f", "adaptive": "#d55e00", "minority": "#0072b2"}
_METRICS = ("macro_auc", "minority_average_precision")


def draw(kinds: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Write the figure as SVG, the same bytes for the same records."""
    # A fixed salt and no date: otherwise every drawing has other bytes.
    with mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        panels = figure.subplots(1, len(_METRICS), sharey=True)
        for axes, metric in zip(panels, _METRICS, strict=True):
            _panel(axes, kinds, metric)
        names = [name.replace(", ", "\n", 1) for name in kinds]
        panels[0].set_yticks(range(len(kinds)), names)
        panels[0].invert_yaxis()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        figure.supxlabel(
            "change against random batches, % (right is better; 95% intervals)", fontsize=9
        )
        figure.savefig(path, format="svg", metadata={"Date": None})


def _panel(axes: Axes, kinds: Mapping[str, pd.DataFrame], metric: str) -> None:
    for offset, (arm, color) in zip((-0.22, 0.0, 0.22), _COLORS.items(), strict=True):
        found = [(place, gain(runs, arm, metric)) for place, runs in enumerate(kinds.values())]
        known = [(place + offset, each) for place, each in found if each is not None]
        axes.errorbar(
            [each.percent for _, each in known],
            [place for place, _ in known],
            xerr=[
                [each.percent - each.low for _, each in known],
                [each.high - each.percent for _, each in known],
            ],
            fmt="o",
            color=color,
            markersize=4,
            capsize=2,
            label=ARMS[arm],
        )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(TITLES[metric], fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
