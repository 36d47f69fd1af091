"""The pictures of the evaluation, drawn from the records: the same bytes for the same records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reproduction.text import PAPER_MODELS, TITLES, learner_name

from tailbatch.analysis import Arm
from tailbatch.analysis.comparisons import Gain, gain, sign

_RANDOM_AND_SELECTED = "#7f7f7f", "#d55e00"
_BY_METRIC = "#d55e00", "#0072b2"
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
    """Draw the change against random at convergence by strategy, with intervals."""
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
            axes.spines["left"].set_visible(False)  # the line at zero is the axis
            axes.set_ylim(len(arms) - 0.5, -0.5)
            axes.margins(x=0.06)
        panels[0].set_yticks(range(len(arms)), list(arms.values()))
        panels[0].tick_params(axis="y", length=0)
        figure.supxlabel(
            "change against random batches at convergence, % (right is better; 95% intervals)",
            fontsize=9,
        )


def draw_ladder(
    levels: Mapping[str, Sequence[float]], changes: Mapping[str, Sequence[Gain | None]], path: Path
) -> None:
    """Draw each step's minority AP by arm, and what adaptive changes on it by metric, with intervals."""
    with picture(path, columns=2, height=3.6) as (_, (left, right)):
        for color, marker, (name, values) in zip(
            _RANDOM_AND_SELECTED, ("o", "s"), levels.items(), strict=True
        ):
            left.plot(
                range(len(values)), values, marker=marker, markersize=5, color=color, label=name
            )
        left.set_ylim(0, 1.15 * max(map(max, levels.values())))
        left.set_title(f"{TITLES[_METRICS[0]]}, mean over datasets", fontsize=9)
        left.legend(loc="lower right", frameon=False)
        for shift, color, marker, (metric, gains) in zip(
            (-0.12, 0.12), _BY_METRIC, ("s", "D"), changes.items(), strict=True
        ):
            known = [(step + shift, gain) for step, gain in enumerate(gains) if gain is not None]
            reach = [(gain.percent - gain.low, gain.high - gain.percent) for _, gain in known]
            right.errorbar(
                [place for place, _ in known],
                [gain.percent for _, gain in known],
                yerr=np.nan_to_num(np.transpose(reach)),
                fmt=marker,
                color=color,
                markersize=4.5,
                capsize=2.5,
                label=TITLES[metric],
            )
        right.axhline(0, color="black", linewidth=0.8)
        right.set_title("adaptive against random, %, with 95% intervals", fontsize=9)
        right.margins(y=0.08)
        right.legend(loc="upper right", frameon=False)
        for axes in (left, right):
            axes.set_xlim(-0.4, len(_STEPS) - 0.6)
            axes.set_xticks(range(len(_STEPS)), _STEPS, fontsize=8)


def draw_printed(directions: pd.DataFrame, path: Path) -> None:
    """Draw what adaptive changes, ours against the printed, a point for each dataset and model."""
    metrics = ("macro_auc", "macro_f")
    run = directions.dropna(subset="ours_adaptive")
    with picture(path, columns=len(metrics), height=4.6) as (figure, panels):
        for axes, metric in zip(panels, metrics, strict=True):
            values = [0.0]
            for (model, color), marker in zip(_MODELS.items(), "osD^v", strict=True):
                some = run[(run["metric"] == metric) & (run["model"].str.casefold() == model.model)]
                theirs, ours = (
                    100 * sign(metric) * (some[after] - some[before])
                    for after, before in (("adaptive", "random"), ("ours_adaptive", "ours_random"))
                )
                axes.scatter(
                    theirs, ours, s=22, marker=marker, color=color, label=learner_name(model)
                )
                values += [*theirs, *ours]
            axes.axhline(0, color="black", linewidth=0.8)
            axes.axvline(0, color="black", linewidth=0.8)
            axes.axline((0, 0), slope=1, color="black", linewidth=0.8, linestyle=":", label="equal")
            room = 0.06 * (max(values) - min(values))
            ends = min(values) - room, max(values) + room
            axes.set(xlim=ends, ylim=ends, aspect="equal")
            axes.set_title(f"{TITLES[metric]}: adaptive minus random, points of 100", fontsize=9)
            axes.set_xlabel("printed (right is better)")
            axes.set_ylabel("ours (up is better)")
        legend_above(figure, panels[0])


@contextmanager
def picture(path: Path, *, columns: int, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """Hand out empty panels, then write them as SVG."""
    with _style():
        figure = Figure(figsize=(8, height), layout="constrained")
        panels = list(figure.subplots(1, columns, squeeze=False)[0])
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels
        figure.savefig(path, format="svg", metadata={"Date": None})


def _style() -> AbstractContextManager[None]:
    # A fixed salt, and no date where a figure is saved: otherwise every drawing has other bytes.
    return mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9})


def write_drawn(draw: Callable[[], Figure], path: Path) -> None:
    """Write a chart of the report as SVG."""
    with _style():
        draw().savefig(path, format="svg", metadata={"Date": None})


def legend_above(figure: Figure, axes: Axes) -> None:
    """Put the legend of some axes above the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
