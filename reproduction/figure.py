"""The pictures of the evaluation, drawn from the records: the same bytes for the same records."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reproduction.text import PAPER_MODELS, TITLES, learner_name

from tailbatch.analysis import Arm
from tailbatch.analysis.gains import gain
from tailbatch.analysis.inference import sign

_RANDOM_AND_SELECTED = "#7f7f7f", "#d55e00"
#: The steps of the ladder, short enough for an axis.
_STEPS = (
    "paper's\nprotocol",
    "sum over\nlabels",
    "rate\n1e-3",
    "prior\nbias",
    "weighted\nloss",
    "epoch by\nMacro-AP",
)
_MODELS = dict(
    zip(PAPER_MODELS, ("#0072b2", "#d55e00", "#7f7f7f", "#009e73", "#cc79a7"), strict=True)
)
_METRICS = ("minority_average_precision", "macro_average_precision")


def draw_results(runs: pd.DataFrame, arms: Mapping[Arm, str], path: Path) -> None:
    """Draw the README's figure: change against random at convergence by strategy, with intervals."""
    with picture(path, columns=len(_METRICS), height=0.9 + 0.3 * len(arms)) as (figure, panels):
        for axes, metric in zip(panels, _METRICS, strict=True):
            for row, arm in enumerate(arms):
                change = gain(runs, arm, metric)
                if change is None:
                    continue
                reach = [change.percent - change.low], [change.high - change.percent]
                axes.errorbar(
                    change.percent,
                    row,
                    xerr=np.nan_to_num(reach),
                    fmt="o",
                    color=_RANDOM_AND_SELECTED[1],
                    markersize=4,
                    capsize=2,
                )
            axes.axvline(0, color="black", linewidth=0.8)
            axes.set_title(TITLES[metric], fontsize=9)
            axes.set_yticks([])
        panels[0].set_yticks(range(len(arms)), list(arms.values()))
        for axes in panels:
            axes.set_ylim(len(arms) - 0.5, -0.5)
        figure.supxlabel(
            "change against random batches at convergence, % (right is better; 95% intervals)",
            fontsize=9,
        )


def draw_ladder(levels: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Draw what random and adaptive batches reach on each step: metric, then arm, then values."""
    with picture(path, columns=len(levels), height=3.2) as (_, panels):
        for axes, (metric, arms) in zip(panels, levels.items(), strict=True):
            for color, (name, values) in zip(_RANDOM_AND_SELECTED, arms.items(), strict=True):
                axes.plot(
                    range(len(values)), values, marker="o", markersize=4, color=color, label=name
                )
            axes.set_title(TITLES[metric], fontsize=9)
            axes.set_ylim(bottom=0)
            axes.set_xticks(range(len(_STEPS)), _STEPS, fontsize=7)
        panels[0].legend(loc="lower right", frameon=False)


def draw_printed(directions: pd.DataFrame, path: Path) -> None:
    """Draw what adaptive changes, ours against the printed, a point for each dataset and model."""
    metrics = ("macro_auc", "macro_f")
    run = directions.dropna(subset="ours_adaptive")
    with picture(path, columns=len(metrics), height=3.4) as (figure, panels):
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
        legend_above(figure, panels[0])
        figure.supxlabel(
            "printed: adaptive minus random in points of 100 (above 0 is better; dotted: the same)",
            fontsize=9,
        )


@contextmanager
def picture(path: Path, *, columns: int, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """Hand out empty panels, then write them as SVG."""
    # A fixed salt and no date: otherwise every drawing has other bytes.
    with mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, height), layout="constrained")
        panels = list(figure.subplots(1, columns, squeeze=False)[0])
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels
        figure.savefig(path, format="svg", metadata={"Date": None})


def legend_above(figure: Figure, axes: Axes) -> None:
    """Put the legend of some axes above the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
