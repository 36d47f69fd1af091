"""Figures; each is drawn from a table of facts and written as PDF, PNG or SVG."""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tailbatch.errors import TailbatchError
from tailbatch.files import replacing
from tailbatch.report.description import Description
from tailbatch.report.style import PALETTE, Look

MINORITY = "#c1440e"
MAJORITY = "#7a8ca5"
FORMATS = (".png", ".svg", ".pdf")
_PRINT = 300  # dots per inch, as journals require


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


def draw_style(look: Look, *, line: bool = True) -> dict[str, Any]:
    """Return how matplotlib draws a look, with or without its line."""
    style: dict[str, Any] = {
        "color": PALETTE[look.color][0],
        "marker": look.marker,
        "markersize": 4,
    }
    if line:
        style["linestyle"] = (0, look.dash) if look.dash else "-"
    return style


def tidy(axes: Axes) -> None:
    """Leave out the frame and small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.minorticks_off()
