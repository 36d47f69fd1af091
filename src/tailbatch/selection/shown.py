"""What a selector has been doing, and how that looks in a terminal, a notebook and a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError, require
from tailbatch.imbalance import label_counts, rare_labels
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.inputs import LabelMatrix

Rows = Sequence[tuple[str, str]]
_MOST_POINTS = 2000  # of a line; more would not be seen
_ROWS_AT_ONCE = 65536
_LITTLE = 0.05  # a gain within this is called little


def _as_lines(rows: Rows, note: str = "") -> str:
    """Return names and values as aligned lines, a note below."""
    width = max(20, *(len(name) + 2 for name, _ in rows))
    lines = [f"{name:<{width}}{value}" for name, value in rows]
    return "\n".join([*lines, note] if note else lines)


def _as_html(rows: Rows, note: str = "") -> str:
    """Return names and values as a table for a notebook, a note below."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>" + (f"<p>{escape(note)}</p>" if note else "")


def _plot_probabilities(probabilities: FloatArray, ax: Any = None) -> Any:
    """Plot how many times as likely as uniform each sample is, in ascending order; return the axes."""
    n = len(probabilities)
    place = np.unique(np.linspace(0, n - 1, min(n, _MOST_POINTS)).astype(np.int64))
    times = np.sort(probabilities)[place] * n
    ax = _axes(ax)
    ax.plot((place + 1) / n, times)
    ax.axhline(1, color="gray", ls=":", label="uniform")
    ax.set(xlabel="share of the samples, the likeliest last", ylabel="times as likely as uniform")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend()
    return ax


def _plot_exposure(exposure: FloatArray | None, counts: IntArray | None, ax: Any = None) -> Any:
    """Plot each label's exposure against its number of rows; return the axes."""
    if exposure is None or counts is None:
        raise SelectionError(
            "this selector does not know the labels: make it with labels=Y, or with make_selector"
        )
    if not np.isfinite(exposure).any():
        raise SelectionError("no batch of this epoch has been drawn yet: plot at its end")
    ax = _axes(ax)
    ax.plot(counts, exposure, "o", alpha=0.6)
    ax.axhline(1, color="gray", ls=":", label="a shuffled epoch")
    ax.set(xlabel="rows with the label", ylabel="label exposure", xscale="log")
    # The usual margin is a share of the spread of the points, and from 0 on that may be nothing.
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.1 * float(np.nanmax(exposure))))
    ax.legend()
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    pyplot: Any = require("matplotlib.pyplot", extra="cli")
    return pyplot.subplots(layout="constrained")[1]


@dataclass(frozen=True, repr=False)
class SelectionDiagnostics:
    """A look at a selector: how far from uniform it draws, and what it drew this epoch.

    It prints as a small table, in a terminal and in a notebook, and ends with a sentence on whether
    selection pays here. The gain looks at the logits only, so it is a forecast, not a proof.

    Attributes
    ----------
    epoch, batches
        The current epoch (or the next one) and the batches drawn in it.
    effective_sample_size
        ``1 / sum p_i^2``: from 1 to n, n if all samples are equally likely.
    effective_pressure
        ``max p_i / min p_i``: what the selection pressure comes to with these losses.
    distinct_share
        Share of the n samples drawn at least once this epoch.
    label_exposure
        Each label's share of this epoch's draws over its share of the rows; 1 in a shuffled epoch,
        NaN without positives or draws, None if the selector does not know the labels.
    minority_share
        Share of this epoch's draws that carry a rare label (`tailbatch.imbalance.rare_labels`), or None.
    seconds
        Time spent drawing and observing since the selector was made.
    lag, dropped_batches
        Most batches pending at a draw, and those whose losses never came because an epoch was left.
    batch_size
        Samples in a batch.
    gain
        How many uniform draws one draw is worth: second moment of the estimated gradient with
        uniform draws over that with these, from recent losses. None unless draws are corrected.
    heaviest_share
        Mean share of a batch's weight that its heaviest sample has, or None.
    label_counts
        How many rows each label has, or None.

    Examples
    --------
    >>> from tailbatch.selection import UniformSelector
    >>> selector = UniformSelector(8, batch_size=4, labels=[[1, 0]] * 4 + [[0, 1]] * 4)
    >>> _ = list(selector)
    >>> report = selector.diagnostics()
    >>> report.effective_sample_size, report.effective_pressure, report.lag
    (8.0, 1.0, 0)
    >>> print(report)
    epoch               1, 0 batches drawn
    effective samples   8
    effective pressure  1
    distinct samples    88%
    minority share      0%
    ...
    """

    epoch: int
    batches: int
    effective_sample_size: float
    effective_pressure: float
    distinct_share: float
    label_exposure: FloatArray | None
    minority_share: float | None
    seconds: float
    lag: int
    dropped_batches: int
    batch_size: int = 0
    gain: float | None = None
    heaviest_share: float | None = None
    label_counts: IntArray | None = None

    @classmethod
    def of(
        cls,
        probabilities: FloatArray,
        times_drawn: npt.NDArray[np.int32],
        labels: LabelMatrix | None,
        **counts: Any,
    ) -> "SelectionDiagnostics":
        """Make it from a selector's probabilities and what it drew this epoch."""
        return cls(
            effective_sample_size=float(1 / np.square(probabilities).sum()),
            effective_pressure=float(probabilities.max() / probabilities.min()),
            distinct_share=np.count_nonzero(times_drawn) / len(times_drawn),
            label_exposure=None if labels is None else label_exposure(labels, times_drawn),
            minority_share=None if labels is None else _minority_share(labels, times_drawn),
            label_counts=None if labels is None else label_counts(labels),
            **counts,
        )

    @property
    def effective_batch_size(self) -> float | None:
        """How many uniform draws a batch is worth."""
        return None if self.gain is None else self.gain * self.batch_size

    @property
    def verdict(self) -> str:
        """A sentence on whether selection pays on this data; empty where that is not measured."""
        worth = self.effective_batch_size
        if self.gain is None or worth is None:
            return ""
        compared = f"{self.batch_size} drawn are worth {worth:.0f} drawn uniformly"
        if self.gain > 1 + _LITTLE:
            return f"Selection pays: {compared}."
        if self.gain < 1 - _LITTLE:
            return f"Selection costs: {compared}; draw more uniformly (a larger mix, a lower pressure)."
        return f"Selection changes little: {compared}."

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values as text, in the order of the printed table."""
        shown = [
            ("epoch", f"{self.epoch}, {_batches(self.batches)} drawn"),
            ("effective samples", f"{self.effective_sample_size:,.0f}"),
            ("effective pressure", f"{self.effective_pressure:.3g}"),
            ("distinct samples", f"{self.distinct_share:.0%}"),
        ]
        if self.minority_share is not None:
            shown.append(("minority share", f"{self.minority_share:.0%}"))
        if self.label_exposure is not None and np.isfinite(self.label_exposure).any():
            least, most = np.nanmin(self.label_exposure), np.nanmax(self.label_exposure)
            shown.append(("label exposure", f"{least:.2f} to {most:.2f}"))
        if self.effective_batch_size is not None:
            shown.append(("effective batch", f"{self.effective_batch_size:.0f}"))
        if self.heaviest_share is not None:
            shown.append(("heaviest draw", f"{self.heaviest_share:.1%} of the weight"))
        lost = f", {_batches(self.dropped_batches)} dropped" if self.dropped_batches else ""
        return [*shown, ("seconds", f"{self.seconds:.3g}"), ("lag", f"{self.lag}{lost}")]

    def __repr__(self) -> str:
        """Return the table as lines, with the verdict where there is one."""
        return _as_lines(self.rows(), self.verdict)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return _as_html(self.rows(), self.verdict)

    def plot(self, ax: Any = None) -> Any:
        """Plot each label's exposure against its number of rows; return matplotlib's axes.

        Parameters
        ----------
        ax
            Axes to draw into; new ones if None.
        """
        return _plot_exposure(self.label_exposure, self.label_counts, ax)


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def label_exposure(labels: LabelMatrix, times_drawn: npt.NDArray[np.int32]) -> FloatArray:
    """Return each label's share of the draws over its share of the rows, shape (q,).

    Examples
    --------
    >>> label_exposure(np.array([[True, False], [False, True]]), np.array([3, 1], np.int32))
    array([1.5, 0.5])
    """
    drawn = _labels_drawn(labels, times_drawn) / max(int(times_drawn.sum()), 1)
    rows = _labels_drawn(labels, np.ones_like(times_drawn)) / labels.shape[0]
    known = (rows > 0) & bool(times_drawn.any())
    exposure: FloatArray = np.full(len(rows), np.nan)
    np.divide(drawn, rows, out=exposure, where=known)
    return exposure


def _minority_share(labels: LabelMatrix, times_drawn: npt.NDArray[np.int32]) -> float:
    """Return the share of the draws whose sample carries a rare label; 0 without draws."""
    minority = rare_labels(labels)
    rows = np.asarray(labels[:, np.flatnonzero(minority)].sum(axis=1)).ravel() > 0
    return float(times_drawn[rows].sum()) / max(int(times_drawn.sum()), 1)


def _labels_drawn(labels: LabelMatrix, times_drawn: npt.NDArray[np.int32]) -> FloatArray:
    if sparse.issparse(labels):
        return np.asarray(labels.T.astype(np.float64) @ times_drawn)
    # In pieces: NumPy would otherwise copy the whole label matrix as floats.
    starts = range(0, len(labels), _ROWS_AT_ONCE)
    pieces = [slice(start, start + _ROWS_AT_ONCE) for start in starts]
    counts = [times_drawn[rows].astype(np.float64) @ labels[rows] for rows in pieces]
    return np.asarray(np.sum(counts, axis=0))
