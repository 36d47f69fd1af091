"""The README's figure: each strategy's change against random, with its interval."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from reproduction.gains import gain
from reproduction.text import ARMS, TITLES

_METRICS = {
    "minority_average_precision": "#0072b2",
    "macro_f": "#d55e00",
    "macro_auc": "#7f7f7f",
}


def draw(runs: pd.DataFrame, path: Path) -> None:
    """Write the figure as SVG, the same bytes for the same records."""
    # A fixed salt and no date: otherwise every drawing has other bytes.
    with mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        arms = [arm for arm in ARMS if gain(runs, arm, "macro_f")]
        for offset, (metric, color) in zip((-0.22, 0.0, 0.22), _METRICS.items(), strict=True):
            found = [(place, gain(runs, arm, metric)) for place, arm in enumerate(arms)]
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
                label=TITLES[metric],
            )
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(arms)), [ARMS[arm] for arm in arms])
        axes.invert_yaxis()
        axes.set_xlabel("change against random batches, % (right is better; 95% intervals)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="best")
        figure.savefig(path, format="svg", metadata={"Date": None})
