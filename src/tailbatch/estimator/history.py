"""The epochs of a fit, as a table that is printed, a page shows, and a plot."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tailbatch.errors import require
from tailbatch.metrics import METRICS
from tailbatch.training import Callback, Epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN_EPOCHS = 10  # epochs that the repr shows at most


class History(tuple[Epoch, ...]):
    """The epochs of a training, a tuple of `tailbatch.training.Epoch` with a readable repr and a plot.

    Examples
    --------
    >>> numbers = {"training_objective": None, "training_bce": None, "minority_share": None}
    >>> History(
    ...     [
    ...         Epoch(number=n, steps=5 * n, seconds=0.1 * n, lr=0.01, batch_objective=1 / n,
    ...               validation={"macro_auc": 0.5 + n / 10}, distinct_share=1.0, **numbers)
    ...         for n in (1, 2)
    ...     ],
    ...     best_epoch=2,
    ...     best_by="macro_auc",
    ... )
    epoch     loss  Macro-AUC    seconds
    -----  -------  -----------  -------
        1   1.0000     0.6000        0.1
        2   0.5000     0.7000 *      0.2
    """

    best_epoch: int
    best_by: str

    def __new__(cls, epochs: Iterable[Epoch], *, best_epoch: int, best_by: str) -> "History":
        """Make a history of epochs.

        Parameters
        ----------
        epochs
            One record per epoch.
        best_epoch
            The number of the epoch whose weights were kept.
        best_by
            The validation metric that chose it.
        """
        # A tuple takes its items in __new__, so the two attributes are set here as well.
        history = super().__new__(cls, epochs)
        history.best_epoch, history.best_by = best_epoch, best_by
        return history

    def __getnewargs_ex__(self) -> tuple[tuple[tuple[Epoch, ...]], dict[str, Any]]:
        """Return what a copy or an unpickled one is made of."""
        return (tuple(self),), {"best_epoch": self.best_epoch, "best_by": self.best_by}

    def __repr__(self) -> str:
        table = EpochTable(self.best_by)  # the same lines as verbose=1 prints
        lines = [*table.head()]
        for epoch in self._shown():
            lines.append("..." if epoch is None else table.line(epoch, self._is_best(epoch)))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        table = EpochTable(self.best_by)
        head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
        rows = []
        for epoch in self._shown():
            values = ["..."] if epoch is None else table.values(epoch, self._is_best(epoch))
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
            rows.append(f"<tr>{cells}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def _is_best(self, epoch: Epoch) -> bool:
        return epoch.number == self.best_epoch

    def _shown(self) -> Iterator[Epoch | None]:
        """Yield the first and last epochs and the best one, with None where some are left out."""
        numbers = {*range(1, _SHOWN_EPOCHS // 2 + 1), self.best_epoch}
        numbers |= set(range(len(self) - _SHOWN_EPOCHS // 2 + 1, len(self) + 1))
        last = 0
        for number in sorted(numbers & set(range(1, len(self) + 1))):
            if number > last + 1:
                yield None
            yield self[number - 1]
            last = number

    def plot(self, ax: "Axes | None" = None) -> "tuple[Axes, Axes | None]":
        """Plot the loss and the validation metric by epoch, and mark the epoch that was kept.

        Needs matplotlib.

        Parameters
        ----------
        ax
            Where to plot; None makes a new figure.

        Returns
        -------
        tuple
            The axes of the loss and, sharing the epochs, those of the metric; None for the latter where
            there were no validation rows.
        """
        if ax is None:
            left = require("matplotlib.pyplot", extra="cli").subplots(layout="constrained")[1]
        else:
            left = ax
        left.plot(
            [epoch.number for epoch in self],
            [epoch.batch_objective for epoch in self],
            color="C0",
            marker="o" if len(self) == 1 else None,
            label="loss of the batches",
        )
        left.xaxis.get_major_locator().set_params(integer=True)
        if len(self) == 1:  # one point in the middle of an axis of fractions says little
            left.set_xlim(0, 2)
            if (loss := self[0].batch_objective) > 0:
                left.set_ylim(0, 1.25 * loss)
        left.set_xlabel("epoch")
        left.set_ylabel("loss of the batches", color="C0")
        scored = [epoch for epoch in self if self.best_by in epoch.validation]
        if not scored:
            return left, None
        title = f"validation {METRICS[self.best_by].title}"
        right = left.twinx()
        scores = [epoch.validation[self.best_by] for epoch in scored]
        # A line through one point is nothing, and a point at the end of the axis is cut.
        right.plot(
            [epoch.number for epoch in scored],
            scores,
            color="C1",
            marker="o" if len(scored) == 1 else None,
            clip_on=False,
            label=title,
        )
        if (limits := _limits(scores, METRICS[self.best_by].range)) is not None:
            right.set_ylim(*limits)
        right.set_ylabel(title, color="C1")
        right.axvline(self.best_epoch, color="0.6", linestyle=":", label="epoch that was kept")
        return left, right


def _limits(
    scores: Sequence[float], most: tuple[float | None, float | None]
) -> tuple[float, float] | None:
    """Return the ends of an axis that shows these scores and no values that the metric cannot have.

    Examples
    --------
    >>> _limits([0.75], (0, 1)), _limits([0.5, 1.0], (0, 1))
    ((0.65, 0.85), (0.475, 1))
    """
    known = [score for score in scores if math.isfinite(score)]
    if not known:
        return None
    low, high = min(known), max(known)
    room = 0.05 * (high - low) or 0.1
    low, high = low - room, high + room
    return (
        low if most[0] is None else max(low, most[0]),
        high if most[1] is None else min(high, most[1]),
    )


class EpochTable(Callback):
    """Prints a line per epoch: loss, validation metric, a star where it is the best so far, seconds.

    Parameters
    ----------
    best_by
        The metric that chooses the epoch.
    """

    def __init__(self, best_by: str) -> None:
        self._best_by = best_by
        self._best = math.nan
        title = METRICS[best_by].title
        self.columns: Sequence[str] = ("epoch", "loss", title, "seconds")
        self._widths = (5, 7, max(len(title) + 2, 8), 7)

    def on_epoch(self, epoch: Epoch) -> None:
        """Print the epoch, below a header if it is the first."""
        if epoch.number == 1:  # of this training, or of the next pressure
            self._best = math.nan
            sys.stdout.write("".join(f"{line}\n" for line in self.head()))
        sys.stdout.write(f"{self.line(epoch, self._is_best(epoch))}\n")
        sys.stdout.flush()

    def head(self) -> tuple[str, str]:
        """Return the two lines above the epochs."""
        names = [
            name.ljust(width) if number == 2 else name.rjust(width)
            for number, (name, width) in enumerate(zip(self.columns, self._widths, strict=True))
        ]
        return "  ".join(names), "  ".join("-" * width for width in self._widths)

    def line(self, epoch: Epoch, is_best: bool) -> str:
        """Return an epoch as a line of the table."""
        cells = zip(self.values(epoch, is_best), self._widths, strict=True)
        return "  ".join(value.rjust(width) for value, width in cells)

    def values(self, epoch: Epoch, is_best: bool) -> tuple[str, str, str, str]:
        """Return an epoch's values as texts."""
        score = epoch.validation.get(self._best_by)
        mark = " *" if is_best else "  "
        return (
            str(epoch.number),
            f"{epoch.batch_objective:.4f}",
            "" if score is None else f"{score:.4f}{mark}",
            f"{epoch.seconds:.1f}",
        )

    def _is_best(self, epoch: Epoch) -> bool:
        """Whether no earlier epoch was better, as the training decides it."""
        score = epoch.validation.get(self._best_by, math.nan)
        if math.isnan(score):
            return False
        sign = 1 if METRICS[self._best_by].higher_is_better else -1
        if math.isnan(self._best) or sign * score >= sign * self._best:
            self._best = score
            return True
        return False
