"""Schedules: how strongly each epoch prefers samples of high score."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from tailbatch.errors import SelectionError
from tailbatch.imbalance import mean_imbalance_ratio
from tailbatch.selection.inputs import LabelMatrix, check_pressure

Schedule: TypeAlias = Callable[[int, int | None], float]
"""From the epoch (0 is the first after warm-up) and the number of epochs to the pressure."""

OwnPressure: TypeAlias = float | tuple[float, float] | Literal["imbalance"] | None
"""A strategy's pressure where none is named: a number, (start, end), MeanIR, or None without one."""

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
        share = _share_of_epochs(self, epoch, epochs)
        # At the end itself, which a rounded power may miss.
        return float(self.end if share >= 1 else self.start * (self.end / self.start) ** share)


@dataclass(frozen=True)
class Linear:
    """From `start` in the first epoch to `end` in the last, by the same amount each epoch.

    For the `mix` of importance sampling: ``Linear(0.3, 1)`` selects early and ends on plain shuffled
    epochs. The number of epochs as for `Geometric`.

    Examples
    --------
    >>> [round(Linear(0.4, 1)(epoch, 4), 6) for epoch in range(5)]
    [0.4, 0.6, 0.8, 1.0, 1.0]
    """

    start: float
    end: float

    def __call__(self, epoch: int, epochs: int | None) -> float:
        """Return the value of an epoch, counted from 0 after the warm-up."""
        share = _share_of_epochs(self, epoch, epochs)
        return float(self.end if share >= 1 else self.start + (self.end - self.start) * share)


def _share_of_epochs(schedule: object, epoch: int, epochs: int | None) -> float:
    """Return how far an epoch is on the way from the first to the last, 1 or more at the end."""
    if epochs is None:
        raise SelectionError(f"{schedule} needs the number of epochs: give epochs= to the selector")
    return epoch / max(epochs - 1, 1)


def imbalance_pressure(Y: LabelMatrix) -> float:
    """Return a pressure as high as the labels are imbalanced: MeanIR, at most 64.

    The pressure grows with the imbalance, so nearly balanced labels get nearly uniform batches.

    Examples
    --------
    >>> imbalance_pressure(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    1.5
    """
    ratio = mean_imbalance_ratio(Y)
    return 1.0 if np.isnan(ratio) else min(ratio, _LARGEST_PRESSURE)


def as_schedule(
    pressure: float | Schedule | str | tuple[float, float], Y: LabelMatrix | None = None
) -> Schedule:
    """Return a schedule: constant for a number or ``"imbalance"``, annealed for a pair of numbers.

    Examples
    --------
    >>> as_schedule(4), as_schedule("imbalance", np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    (Constant(pressure=4.0), Constant(pressure=1.5))
    >>> as_schedule((64, 1))
    Geometric(start=64, end=1)
    """
    if callable(pressure):
        return pressure
    if isinstance(pressure, tuple) and len(pressure) == 2:
        return Geometric(*pressure)
    if Y is not None and pressure == "imbalance":
        return Constant(imbalance_pressure(Y))
    return Constant(check_pressure(pressure))
