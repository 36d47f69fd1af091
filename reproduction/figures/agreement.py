"""Whether a model's own loss and the BCE agree on which samples are hard (Figure 6)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tailbatch.analysis import Arm
from tailbatch.report.figures import Look, plain_text, tidy
from tailbatch.results.frames import Evidence


@dataclass(frozen=True)
class Panel:
    """A categorical chart: for each arm one value per category."""

    title: str
    categories: list[str]
    values: dict[Arm, list[float]]


def panels(agreement: pd.DataFrame) -> list[Panel]:
    """Return one panel per epoch: the correlation by model, from `loss_agreement`."""
    names = ["Best epoch" if epoch == "best" else f"Epoch {epoch}" for epoch in agreement["epoch"]]
    made = []
    for title, group in agreement.assign(panel=names).groupby("panel", sort=False):
        wide = group.pivot_table(index="learner", columns="arm", values="loss_correlation")
        arms = {arm: wide[arm].tolist() for arm in sorted(wide)}
        made.append(Panel(str(title), [str(name) for name in wide.index], arms))
    return made


def loss_agreement(evidence: Evidence) -> pd.DataFrame:
    """Return Pearson's correlation of a sample's BCE and its own loss, by model, arm, epoch (Figure 6).

    Means over runs; ``epoch`` is a number or ``"best"``, the best epoch.
    """
    keys = ["learner", "arm", "epoch"]
    if evidence.correlations.empty:
        return pd.DataFrame(columns=[*keys, "runs", "loss_correlation"])
    rows = evidence.correlations.merge(evidence.runs[["learner", "arm", "digest"]], on="digest")
    means = rows.groupby(keys)["loss_correlation"].agg(runs="size", loss_correlation="mean")
    # Numbers in order, the best epoch last.
    ordered = means.reset_index().sort_values("epoch", key=lambda epoch: epoch.str.zfill(9))
    return ordered.sort_values(
        keys[:2], key=lambda column: column.map(str), kind="stable"
    ).reset_index(drop=True)


def draw(agreement: pd.DataFrame, looks: Mapping[Arm, Look]) -> Figure:
    """Draw the correlations side by side, one chart per epoch, from `loss_agreement`."""
    shown = panels(agreement)
    width = sum(max(2.6, 0.55 * len(panel.categories) + 1) for panel in shown)
    figure = Figure(figsize=(width, 3.2), dpi=150, layout="constrained")
    grid = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, panel in zip(grid, shown, strict=True):
        places = np.arange(len(panel.categories))
        for turn, (arm, values) in enumerate(panel.values.items()):
            # Side by side, so that markers do not overlap. Nothing lies between two categories: no line.
            at = places + 0.12 * (turn - (len(panel.values) - 1) / 2)
            style = looks[arm].drawn(line=False) | {"linestyle": "none", "markersize": 6}
            axes.plot(at, values, label=plain_text(str(arm)), **style)
        names = [plain_text(name, 16) for name in panel.categories]
        axes.set_xticks(places, names, rotation=30, ha="right")
        axes.set_xlim(-0.4, len(names) - 0.6)
        axes.set_title(panel.title, fontsize=9)
        tidy(axes)
    grid[0].set_ylabel("Pearson correlation", fontsize=9)
    grid[0].legend(frameon=False, fontsize=8)
    return figure
