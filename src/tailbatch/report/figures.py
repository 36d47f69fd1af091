"""Figures, and how arms look in all of them and on the page; written as PDF, PNG or SVG."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tailbatch.analysis.keys import Arm
from tailbatch.errors import TailbatchError
from tailbatch.files import replacing
from tailbatch.report.description import Description

MINORITY = "#c1440e"
MAJORITY = "#7a8ca5"
FORMATS = (".png", ".svg", ".pdf")
_PRINT = 300  # dots per inch, as journals require


@dataclass(frozen=True)
class Look:
    """The look of one arm: its place in the palette, its dashes and its marker."""

    color: int
    dash: tuple[int, ...]
    marker: str

    def drawn(self, *, line: bool = True) -> dict[str, Any]:
        """Return how matplotlib draws it, with or without its line."""
        style = {"color": PALETTE[self.color][0], "marker": self.marker, "markersize": 4}
        return style | ({"linestyle": (0, self.dash) if self.dash else "-"} if line else {})


#: Colors on light and dark backgrounds: gray, then Okabe and Ito's, which color-blind readers can tell
#: apart, darkened or lightened for contrast.
PALETTE = (
    ("#5f6670", "#a7afba"),
    ("#0072b2", "#5cb3e8"),
    ("#c2500a", "#f08a4b"),
    ("#008060", "#3cc4a0"),
    ("#a8568a", "#e19ac6"),
    ("#9a6700", "#e6b54a"),
    ("#3f51a3", "#93a2ee"),
    ("#7d4b2a", "#c99e7f"),
)
#: Places in the palette of strategies that most reports compare; the first color is the baseline's.
_COLORS = {
    "adaptive": 1,
    "hard": 2,
    "chain": 3,
    "minority": 4,
    "balanced": 5,
    "uniform": 6,
    "importance": 7,
}
# Dashes and markers distinguish the lines without color.
_DASHES = ((5, 4), (), (8, 3), (2, 3), (8, 3, 2, 3), (12, 3), (4, 2, 1, 2), (1, 2))
_MARKERS = "os^DvPXh"

#: Looks and names of samples with no, one, two, and three or more minority labels.
GROUPS = tuple(Look(color, _DASHES[color], _MARKERS[color]) for color in (0, 5, 2, 4))
GROUP_NAMES = ("no minority label", "1 minority label", "2 minority labels", "3 and more")


def looks(arms: Iterable[Arm], baseline: Arm | None) -> dict[Arm, Look]:
    """Return a look for each arm, in order; the baseline is the gray, dashed one.

    Primary arms of well-known strategies keep their colors from one report to the next.

    Examples
    --------
    >>> [look.marker for look in looks([Arm("adaptive"), Arm("random")], Arm("random")).values()]
    ['o', 's']
    """
    ordered = sorted(set(arms))
    places = {
        arm: _COLORS[arm.strategy] for arm in ordered if arm.is_primary and arm.strategy in _COLORS
    }
    places |= {arm: 0 for arm in ordered if arm == baseline}
    free = [color for color in range(1, len(PALETTE)) if color not in places.values()]
    free = free or list(range(1, len(PALETTE)))
    others = [arm for arm in ordered if arm not in places]
    places |= {arm: free[turn % len(free)] for turn, arm in enumerate(others)}
    return {arm: Look(places[arm], _DASHES[places[arm]], _MARKERS[places[arm]]) for arm in ordered}


def shown_arms(arms: Iterable[Arm]) -> list[Arm]:
    """Return the arms that figures show: one per strategy, or all arms of a single strategy.

    Examples
    --------
    >>> arms = [Arm("random"), Arm("adaptive"), Arm("adaptive", 64.0)]
    >>> [str(arm) for arm in shown_arms(arms)], [str(arm) for arm in shown_arms(arms[1:])]
    (['random', 'adaptive'], ['adaptive', 'adaptive 64'])
    """
    ordered = sorted(set(arms))
    primary = [arm for arm in ordered if arm.is_primary]
    return primary if len(primary) > 1 else ordered


def label_frequencies(facts: Description) -> Figure:
    """Draw how often each label occurs, commonest first, rare labels in another color.

    The scale is logarithmic; a label without positives has no bar.
    """
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    for is_minority, color in ((False, MAJORITY), (True, MINORITY)):
        bars = [
            (rank, label.positives)
            for rank, label in enumerate(facts.labels, start=1)
            if label.is_minority == is_minority and label.positives
        ]
        kind = "rare labels" if is_minority else "other labels"
        if bars:
            ranks, positives = zip(*bars, strict=True)
            width = 0.85 if facts.n_labels <= 100 else 1.0  # thin gaps would flicker
            axes.bar(ranks, positives, width=width, color=color, label=f"{len(bars)} {kind}")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)  # so that a single positive is visible
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel("rows with the label")
    axes.set_xlim(0.3, facts.n_labels + 0.7)
    axes.set_title(
        f"{plain_text(facts.name)}: {facts.n_samples:,} rows, {facts.n_labels:,} labels, "
        f"MeanIR {facts.mean_imbalance_ratio:.2f}",
        loc="left",
    )
    if facts.n_labels <= 30:
        names = [plain_text(label.name) for label in facts.labels]
        axes.set_xticks(range(1, facts.n_labels + 1), names, rotation=60, ha="right", fontsize=8)
    else:
        axes.set_xlabel("label, commonest first")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG (300 dpi), SVG or PDF; the same figure gives the same bytes."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise TailbatchError(f"a picture is written as .png, .svg or .pdf, got {path}")
    # Matplotlib puts the time and random identifiers into a file unless told otherwise.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
    # Text in a PDF stays text: journals reject outlines.
    with (
        rc_context({"svg.hashsalt": "tailbatch", "pdf.fonttype": 42}),
        replacing(path) as temporary,
    ):
        figure.savefig(temporary, metadata=metadata, dpi=_PRINT)


def plain_text(name: str, longest: int = 28) -> str:
    """Return a name that matplotlib draws literally: a dollar sign would start a formula."""
    shown = "".join(c if c.isprintable() else "?" for c in name).replace("$", r"\$")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def tidy(axes: Axes) -> None:
    """Leave out the frame and small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.minorticks_off()
