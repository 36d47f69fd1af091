"""The picture of docs/reproduction/finetuning.md: what arms reach after so many rows, weighted loss."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from reproduction.finetune.cells import (
    CORRECTED,
    MACRO,
    METRICS,
    MINORITY,
    chosen_rate,
    one_epoch,
    values,
)
from reproduction.finetune.records import Record
from reproduction.finetune.tables import budgets, facts
from reproduction.measures import over_seeds

COLORS = {"random": "#000000", "importance": "#d55e00", "balanced, corrected": "#0072b2"}
MARKERS = {"random": "o", "importance": "s", "balanced, corrected": "^"}
#: On a logarithmic axis: bars that would cover each other stand side by side.
OFFSETS = {"random": 1.0, "importance": 0.945, "balanced, corrected": 1.055}


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw means over seeds with their intervals; those below three seeds have none."""
    rows, lengths = facts()["rows"], budgets(records, "frozen-32")
    # A fixed salt and no date: otherwise every drawing has other bytes.
    with mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        panels = list(figure.subplots(1, 2))
        for axes, metric in zip(panels, (MINORITY, MACRO), strict=True):
            for arm in ("random", *CORRECTED):
                x, means, down, up = [], [], [], []
                for epochs in lengths:
                    wanted = {**one_epoch("frozen-32"), "epochs": epochs}
                    lr = chosen_rate(records, **wanted)
                    found = list(values(records, metric, arm=arm, lr=lr, **wanted).values())
                    if found:
                        each = over_seeds(found)
                        x.append(epochs * OFFSETS[arm])
                        means.append(each.mean)
                        down.append(each.mean - each.low)
                        up.append(each.high - each.mean)
                axes.errorbar(
                    x,
                    means,
                    yerr=[down, up],
                    label=arm,
                    color=COLORS[arm],
                    marker=MARKERS[arm],
                    markersize=4,
                    linewidth=0.8,
                    elinewidth=1.2,
                    capsize=2.5,
                )
            axes.set_xscale("log")
            axes.set_xticks(lengths, [f"{rows * epochs / 1000:.0f}k" for epochs in lengths])
            axes.minorticks_off()
            axes.set_title(METRICS[metric], fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        figure.supxlabel(
            "rows seen in training; bars: 95% interval of the mean over seeds", fontsize=9
        )
        figure.savefig(path, format="svg", metadata={"Date": None})
