"""How selectors and their diagnostics look in a terminal, in a notebook and in a plot."""

from collections.abc import Sequence
from dataclasses import is_dataclass
from html import escape
from typing import Any

import numpy as np

from tailbatch.errors import SelectionError, require
from tailbatch.selection.inputs import FloatArray, IntArray, LabelMatrix

Rows = Sequence[tuple[str, str]]
_MOST_POINTS = 2000  # of a line; more would not be seen


def as_lines(rows: Rows, note: str = "") -> str:
    """Return names and values as aligned lines, a note below.

    Examples
    --------
    >>> print(as_lines([("epoch", "1"), ("effective samples", "8")], "Fine."))
    epoch               1
    effective samples   8
    Fine.
    """
    width = max(20, *(len(name) + 2 for name, _ in rows))
    lines = [f"{name:<{width}}{value}" for name, value in rows]
    return "\n".join([*lines, note] if note else lines)


def as_html(rows: Rows, note: str = "") -> str:
    """Return names and values as a table for a notebook, a note below.

    Examples
    --------
    >>> as_html([("a", "<1")])
    "<table><tr><th style='text-align:left'>a</th><td>&lt;1</td></tr></table>"
    """
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>" + (f"<p>{escape(note)}</p>" if note else "")


def plot_probabilities(probabilities: FloatArray, ax: Any = None) -> Any:
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


def plot_exposure(exposure: FloatArray | None, counts: IntArray | None, ax: Any = None) -> Any:
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


class Shown:
    """What a selector shows of itself."""

    strategy: str
    n_samples: int
    batch_size: int
    seed: int
    max_lag: int
    labels: LabelMatrix | None
    _epoch: int
    _number: int

    def _settings(self) -> dict[str, Any]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def probabilities(self) -> FloatArray:
        """Return each sample's chance to be drawn first, shape (n,)."""
        raise NotImplementedError

    def _rows(self) -> list[tuple[str, str]]:
        labels = "" if self.labels is None else f", {self.labels.shape[1]:,} labels"
        shown = [
            ("strategy", self.strategy),
            ("samples", f"{self.n_samples:,}{labels}"),
            ("batches", f"{len(self):,} of {self.batch_size:,} an epoch"),
            ("next", f"epoch {self._epoch}, batch {self._number}"),
            ("seed", str(self.seed)),
        ]
        if self.max_lag:
            shown.append(("max_lag", str(self.max_lag)))
        own = [(name, _plain(value)) for name, value in self._settings().items()]
        return [*shown, *((name, text) for name, text in own if text)]

    def __repr__(self) -> str:
        """Return what it draws and where it stands, a line each."""
        return as_lines(self._rows())

    def _repr_html_(self) -> str:
        """Return the same as a table for a notebook."""
        return as_html(self._rows())

    def plot(self, ax: Any = None) -> Any:
        """Plot how many times as likely as uniform each sample is now; return matplotlib's axes.

        ``diagnostics().plot()`` shows what was drawn, label by label.

        Parameters
        ----------
        ax
            Axes to draw into; new ones if None.
        """
        return plot_probabilities(self.probabilities(), ax)


def _plain(value: object) -> str:
    """Return a setting as text; empty for what is off, and for arrays, classes and functions."""
    if value is None or value is False:
        return ""
    if isinstance(value, bool | int | float | str | np.number) or (
        is_dataclass(value) and not isinstance(value, type)
    ):
        return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
    return ""
