"""The pictures of the evaluation, drawn from the records: the same bytes for the same records."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reproduction.cells import cells_of, within
from reproduction.text import (
    ADAPTIVE,
    ARMS,
    BALANCED,
    MINORITY,
    PAPER_MODELS,
    TITLES,
    learner_name,
)

from tailbatch.analysis.gains import gain
from tailbatch.analysis.inference import sign

_COLORS = {BALANCED: "#7f7f7f", ADAPTIVE: "#d55e00", MINORITY: "#0072b2"}
_MODELS = dict(
    zip(PAPER_MODELS, ("#0072b2", "#d55e00", "#7f7f7f", "#009e73", "#cc79a7"), strict=True)
)
_METRICS = ("macro_auc", "minority_average_precision")


def draw_results(kinds: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Draw the README's figure: change against random by kind of data and model, with intervals."""
    with _picture(path, columns=len(_METRICS), height=1 + 0.4 * len(kinds)) as (figure, panels):
        for axes, metric in zip(panels, _METRICS, strict=True):
            _intervals(axes, kinds, metric)
            axes.set_yticks([])
        names = [name.replace(", ", "\n", 1) for name in kinds]
        panels[0].set_yticks(range(len(kinds)), names)
        for axes in panels:
            axes.invert_yaxis()
        _legend_above(figure, panels[0])
        figure.supxlabel(
            "change against random batches, % (right is better; 95% intervals)", fontsize=9
        )


def _intervals(axes: Axes, kinds: Mapping[str, pd.DataFrame], metric: str) -> None:
    for offset, (arm, color) in zip((-0.22, 0.0, 0.22), _COLORS.items(), strict=True):
        changes = [(row, gain(runs, arm, metric)) for row, runs in enumerate(kinds.values())]
        known = [(row + offset, change) for row, change in changes if change is not None]
        axes.errorbar(
            [change.percent for _, change in known],
            [row for row, _ in known],
            xerr=np.nan_to_num(
                [
                    [change.percent - change.low for _, change in known],
                    [change.high - change.percent for _, change in known],
                ]
            ),
            fmt="o",
            color=color,
            markersize=4,
            capsize=2,
            label=ARMS[arm],
        )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(TITLES[metric], fontsize=9)


def draw_imbalance(kinds: Mapping[str, pd.DataFrame], ratios: pd.Series, path: Path) -> None:
    """Draw the change in minority average precision of each cell against MeanIR of its dataset."""
    metric, steps = "minority_average_precision", (-30, -10, 0, 10, 30, 100, 300)
    with _picture(path, columns=len(kinds), height=2.8) as (figure, panels):
        for axes, (name, runs) in zip(panels, kinds.items(), strict=True):
            for arm, color in _COLORS.items():
                known = [
                    (ratios[data], change.percent)
                    for (data, learner) in cells_of(runs)
                    if (change := gain(within(runs, data, learner), arm, metric))
                ]
                axes.scatter(
                    [ratio for ratio, _ in known],
                    [percent for _, percent in known],
                    s=14,
                    color=color,
                    alpha=0.75,
                    linewidths=0,
                    label=ARMS[arm],
                )
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_xscale("log")
            axes.set_xlim(1, 200)
            axes.set_xticks([1, 10, 100], ["1", "10", "100"])
            axes.minorticks_off()
            # Linear up to 10%, logarithmic beyond: most cells change little, some change manifold.
            axes.set_yscale("symlog", linthresh=10)
            axes.set_ylim(-50, 1000)
            axes.set_yticks(steps, [f"{step}" if axes is panels[0] else "" for step in steps])
            lines = (
                name.replace(" (", "\n(").replace(", ", ",\n", 1).replace("paper's ", "paper's\n")
            )
            axes.set_title(lines, fontsize=9)
        panels[0].set_ylabel("minority AP against random, %")
        _legend_above(figure, panels[0])
        figure.supxlabel("MeanIR of the dataset", fontsize=9)


def draw_printed(directions: pd.DataFrame, path: Path) -> None:
    """Draw what adaptive changes, ours against the printed, a point for each dataset and model."""
    metrics = ("macro_auc", "macro_f")
    run = directions.dropna(subset="ours_adaptive")
    with _picture(path, columns=len(metrics), height=3.4) as (figure, panels):
        for axes, metric in zip(panels, metrics, strict=True):
            for model, color in _MODELS.items():
                some = run[(run["metric"] == metric) & (run["model"].str.casefold() == model.model)]
                theirs, ours = (
                    100 * sign(metric) * (some[after] - some[before])
                    for after, before in (("adaptive", "random"), ("ours_adaptive", "ours_random"))
                )
                axes.scatter(theirs, ours, s=18, color=color, label=learner_name(model))
            axes.axhline(0, color="black", linewidth=0.8)
            axes.axvline(0, color="black", linewidth=0.8)
            axes.axline((0, 0), slope=1, color="black", linewidth=0.8, linestyle=":")
            axes.set_title(TITLES[metric], fontsize=9)
        panels[0].set_ylabel("ours")
        _legend_above(figure, panels[0])
        figure.supxlabel(
            "printed: adaptive minus random in points of 100 (above 0 is better; dotted: the same)",
            fontsize=9,
        )


@contextmanager
def _picture(path: Path, *, columns: int, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """Hand out empty panels, then write them as SVG."""
    # A fixed salt and no date: otherwise every drawing has other bytes.
    with mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, height), layout="constrained")
        panels = list(figure.subplots(1, columns, squeeze=False)[0])
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels
        figure.savefig(path, format="svg", metadata={"Date": None})


def _legend_above(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
