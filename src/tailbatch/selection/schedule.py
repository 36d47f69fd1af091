"""Pressure schedules: how strongly each epoch prefers samples of high score."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tailbatch.errors import SelectionError
from tailbatch.imbalance import mean_imbalance_ratio
from tailbatch.selection.inputs import LabelMatrix, check_pressure

Schedule: TypeAlias = Callable[[int, int | None], float]
"""From the epoch (0 is the first after warm-up) and the number of epochs to the pressure."""

_LARGEST_PRESSURE = 64  # the paper's largest; beyond it nothing was tried


@dataclass(frozen=True)
class Constant:
    """The same selection pressure in every epoch, as in the paper.

    Examples
    --------
    >>> Constant(16)(epoch=3, epochs=None)
    16.0
    """

    pressure: float

    def __post_init__(self) -> None:
        check_pressure(self.pressure)

    def __call__(self, epoch: int, epochs: int | None) -> float:
        """Return the pressure."""
        return float(self.pressure)


@dataclass(frozen=True)
class Geometric:
    """From `start` in the first epoch to `end` in the last, by the same factor each epoch.

    It has to know how many epochs there are after the warm-up: give ``epochs=`` to the selector
    (`make_selector` takes the whole number of epochs and subtracts the warm-up). A single epoch
    runs at `start`; epochs beyond the last stay at `end`.

    Examples
    --------
    >>> [round(Geometric(64, 1)(epoch, 4), 6) for epoch in range(5)]
    [64.0, 16.0, 4.0, 1.0, 1.0]
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        check_pressure(self.start)
        check_pressure(self.end)

    def __call__(self, epoch: int, epochs: int | None) -> float:
        """Return the pressure of an epoch, counted from 0 after the warm-up."""
        if epochs is None:
            raise SelectionError(f"{self} needs the number of epochs: give epochs= to the selector")
        last = max(epochs - 1, 1)
        if epoch >= last:
            return float(self.end)
        return float(self.start * (self.end / self.start) ** (epoch / last))


def imbalance_pressure(Y: LabelMatrix) -> float:
    """Return a pressure as high as the labels are imbalanced: MeanIR, at most 64.

    The likeliest sample then is drawn as many times as often as the least likely one as the most
    frequent label is more frequent than the others, so nearly balanced labels get nearly uniform
    batches.

    Examples
    --------
    >>> imbalance_pressure(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    1.5
    """
    ratio = mean_imbalance_ratio(Y)
    return 1.0 if np.isnan(ratio) else min(ratio, _LARGEST_PRESSURE)


def as_schedule(pressure: float | Schedule | str, Y: LabelMatrix | None = None) -> Schedule:
    """Return a schedule; a number is a constant one, and so is ``"imbalance"`` where Y is known.

    Examples
    --------
    >>> as_schedule(4), as_schedule("imbalance", np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    (Constant(pressure=4.0), Constant(pressure=1.5))
    """
    if callable(pressure):
        return pressure
    if Y is not None and pressure == "imbalance":
        return Constant(imbalance_pressure(Y))
    return Constant(check_pressure(pressure))
