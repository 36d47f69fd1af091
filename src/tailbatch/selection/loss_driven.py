"""Strategies that follow the losses: a score of each sample, a law over scores, a pressure schedule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Literal, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.imbalance import mean_imbalance_ratio
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.base import OwnPressure, Selector, _LawSettings
from tailbatch.selection.inputs import (
    LabelMatrix,
    _as_array,
    _check_finite,
    _in_fixed_order,
    _last_of_each,
)
from tailbatch.selection.laws import LossLaw, QuantizationLaw, RankLaw

Schedule: TypeAlias = Callable[[int, int | None], float]
"""From the epoch (0 is the first after warm-up) and the number of epochs to the pressure."""

Score: TypeAlias = Callable[[FloatArray, IntArray], FloatArray]
"""From losses (b,) or (b, q) of the samples `index` to scores (b,), finite and >= 0."""

_LARGEST_PRESSURE = 64  # the paper's largest; beyond it nothing was tried
_ROWS_AT_ONCE = 1 << 18


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
        _check_pressure(self.pressure)

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
        _check_pressure(self.start)
        _check_pressure(self.end)

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


def _as_schedule(
    pressure: float | Schedule | str | tuple[float, float], Y: LabelMatrix | None = None
) -> Schedule:
    """Return a schedule: constant for a number, annealed for a pair of numbers.

    ``"imbalance"`` is MeanIR of the labels, at most 64: the more imbalanced they are, the higher the
    pressure, and nearly balanced labels get nearly uniform batches.
    """
    if callable(pressure):
        return pressure
    if isinstance(pressure, tuple) and len(pressure) == 2:
        return Geometric(*pressure)
    if Y is not None and pressure == "imbalance":
        ratio = mean_imbalance_ratio(Y)
        return Constant(1.0 if np.isnan(ratio) else min(ratio, _LARGEST_PRESSURE))
    return Constant(_check_pressure(pressure))


def _check_pressure(pressure: object) -> float:
    """Return a selection pressure as a float, or say what is wrong with it."""
    if not isinstance(pressure, int | float | np.number):
        raise SelectionError(
            f'selection_pressure must be a number, a schedule or "imbalance", got {pressure!r} '
            "(for instance 16, or Geometric(64, 1))"
        )
    value = float(pressure)
    if not (isfinite(value) and value >= 1):
        raise SelectionError(
            f"selection_pressure must be finite and >= 1, got {pressure} (1 draws uniformly)"
        )
    return value


class _LossSettings(_LawSettings, total=False):
    """Keyword settings of every `LossDrivenSelector`."""

    initial_losses: npt.ArrayLike | None
    reference_renewal: Literal["batch", "epoch"]


def mean_loss(losses: FloatArray, index: IntArray) -> FloatArray:
    """Return the loss of each sample, averaged over labels where it comes per label.

    Examples
    --------
    >>> mean_loss(np.array([[1.0, 3.0], [0.0, 1.0]]), np.array([7, 2]))
    array([2. , 0.5])
    """
    return losses if losses.ndim == 1 else _in_fixed_order(losses).mean(axis=1)


class LossDrivenSelector(Selector):
    """Draws samples by their losses: a score of each, a law over scores, and a pressure schedule.

    Parameters
    ----------
    score
        Function from a batch's losses and indices to scores (b,), finite and >= 0; the mean loss by
        default. A saved state knows a function by its name and an object by its class and
        attributes, which must not change. A subclass may override the method `score` instead.
    law
        `RankLaw` (the default) or `QuantizationLaw`, for this selector alone.
    selection_pressure
        s_e: a number from 1 (uniform), a schedule such as ``Geometric(64, 1)``, or its two numbers.
    initial_losses
        Known losses (n,) or (n, q) at the start, NaN where a sample has none.
    reference_renewal
        ``"batch"`` renews the law after every batch; ``"epoch"`` only at the start of each epoch,
        as the authors' script does.

    Examples
    --------
    Draw samples with a large worst label more often:

    >>> class WorstLabel(LossDrivenSelector):
    ...     strategy = "worst_label"
    ...
    ...     def score(self, losses, index):
    ...         return losses.max(axis=1)
    >>> selector = WorstLabel(4, batch_size=4)
    >>> for index in selector:
    ...     selector.observe([[0.1, 0.2 * i] for i in index])
    >>> selector.probabilities().argmax()
    np.int64(3)
    """

    strategy: str = "loss_driven"
    default_pressure: ClassVar[OwnPressure] = 16.0
    needs_losses = True
    _law: LossLaw

    def __init__(
        self,
        n_samples: int,
        *,
        score: Score = mean_loss,
        law: LossLaw | None = None,
        selection_pressure: float | Schedule | tuple[float, float] = 16,
        initial_losses: npt.ArrayLike | None = None,
        reference_renewal: Literal["batch", "epoch"] = "batch",
        **settings: Unpack[_LawSettings],
    ) -> None:
        if reference_renewal not in ("batch", "epoch"):
            raise SelectionError(
                f"reference_renewal must be 'batch' or 'epoch', got {reference_renewal!r}"
            )
        law = law or RankLaw()
        super().__init__(n_samples, law=law, **settings)
        self._score = score
        self._schedule = _as_schedule(selection_pressure)
        self._pressure(0)  # a schedule that lacks something should say so now
        law.reset(self._first_scores(initial_losses, self.n_samples))
        # Scores held back until the next epoch, infinite for samples without one.
        self._held = np.full(self.n_samples, np.inf) if reference_renewal == "epoch" else None

    def score(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return scores (b,), finite and >= 0, for losses (b,) or (b, q) of the samples `index`.

        The higher, the more often a sample is drawn. A strategy of your own overrides this method.
        """
        return self._score(losses, index)

    def _pressure(self, epoch: int) -> float:
        return _check_pressure(self._schedule(epoch, self._own_epochs))

    def _first_scores(self, initial_losses: npt.ArrayLike | None, n_samples: int) -> FloatArray:
        """Return the scores of losses known at the start; infinite where there are none."""
        scores = np.full(n_samples, np.inf)  # the score of a sample without losses
        if initial_losses is None:
            return scores
        losses = _as_array(initial_losses)
        if losses.ndim not in (1, 2) or len(losses) != n_samples:
            raise SelectionError(
                f"initial_losses must have one row for each of the {n_samples} samples, "
                f"got shape {losses.shape}"
            )
        # In pieces, so that n = 10^8 needs no second array of n indices or losses.
        for start in range(0, n_samples, _ROWS_AT_ONCE):
            piece = _in_fixed_order(losses[start : start + _ROWS_AT_ONCE])
            known = ~np.isnan(piece) if piece.ndim == 1 else ~np.isnan(piece).any(axis=1)
            index = start + np.flatnonzero(known)
            if len(index):
                _check_finite(piece[known], index, what="initial loss")
                scores[index] = self._scores(piece[known], index)
        return scores

    def _scores(self, losses: FloatArray, index: IntArray) -> FloatArray:
        scores = np.asarray(self.score(losses, index), dtype=np.float64)
        if scores.shape != index.shape:
            raise SelectionError(
                f"the score must return one value for each of the {len(index)} samples, "
                f"got shape {scores.shape}"
            )
        _check_finite(scores, index, what="score")
        return scores

    def _start_epoch(self, epoch: int) -> None:
        if self._held is not None:
            known = np.flatnonzero(np.isfinite(self._held))
            self._law.update(known, self._held[known])
            self._held[:] = np.inf
        self._law.start_epoch()

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        scores = self._scores(losses, index)
        if self.corrected:
            last = _last_of_each(index)
            index, scores = index[last], scores[last]
        if self._held is None:
            self._law.update(index, scores)
        else:
            self._held[index] = scores
        return None

    def _settings(self) -> dict[str, Any]:
        constant = isinstance(self._schedule, Constant)
        return {
            **super()._settings(),
            "score": self._score,
            "selection_pressure": self._pressure(0) if constant else self._schedule,
            # A constant pressure does not ask for the number of epochs: more may follow.
            "epochs": None if constant else self._epochs,
            "reference_renewal": "batch" if self._held is None else "epoch",
        }

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        # Infinite is the score of a sample that has no loss yet.
        held = {} if self._held is None else {"held": (self._held, np.inf)}
        cap = np.array([self._law.cap])
        return {"scores": (self._law.scores, np.inf), "cap": (cap, np.inf), **held}

    def _restore(self, loaded: Mapping[str, npt.NDArray[Any]]) -> None:
        super()._restore(loaded)
        self._law.reset(self._law.scores, cap=float(loaded["cap"][0]))


class HardSelector(LossDrivenSelector):
    """Probabilities from the rank of the plain loss (Eq. 3; Loshchilov and Hutter's law).

    Parameters
    ----------
    selection_pressure
        s_e: how much likelier the highest loss is than the lowest. A number or a schedule.

    Examples
    --------
    >>> selector = HardSelector(4, batch_size=2, selection_pressure=16, initial_losses=[4, 1, 2, 3])
    >>> (selector.probabilities() * 15).round(3).tolist()
    [8.0, 1.0, 2.0, 4.0]
    """

    strategy: str = "hard"
    place = 3

    def __init__(
        self,
        n_samples: int,
        *,
        selection_pressure: float | Schedule = 16,
        **settings: Unpack[_LossSettings],
    ) -> None:
        super().__init__(n_samples, selection_pressure=selection_pressure, **settings)


class WeightedLoss:
    """The score ``w_i * loss_i`` (Eq. 5), for weights (n,) or one number for all samples.

    Examples
    --------
    >>> WeightedLoss(np.array([1.0, 3.0]))(np.array([0.5]), np.array([1]))
    array([1.5])
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        try:
            given = weights if isinstance(weights, np.ndarray) else _as_array(weights)
            self.weights: FloatArray = given.astype(np.float64)
        except (TypeError, ValueError):
            raise SelectionError(
                f"weights must be one number or n_samples of them, got {weights!r:.60}"
            ) from None
        if self.weights.ndim > 1:
            raise SelectionError(
                f"weights must be one number or have shape (n_samples,), got {self.weights.shape}"
            )
        wrong = ~(np.isfinite(self.weights) & (self.weights >= 0))
        if wrong.any():
            raise SelectionError(
                f"weights must be finite and >= 0, got {self.weights[wrong].flat[0]} "
                "(1 leaves a sample's loss as it is)"
            )

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the weighted loss of each sample, averaged over labels."""
        weights = self.weights if self.weights.ndim == 0 else self.weights[index]
        return np.asarray(weights * mean_loss(losses, index))


class AdaptiveSelector(LossDrivenSelector):
    """Probabilities from the quantization index of the weighted loss (Eq. 5 to 7).

    Parameters
    ----------
    weights
        Selection weights (n,) of the training rows (`imbalance.selection_weights`), or one number
        together with `n_samples`. They change what is drawn, never the training loss.
    n_samples
        n, needed only if `weights` is one number.
    selection_pressure
        s_e: how much likelier the highest loss is than a loss of 0. A number or a schedule.
    cap_quantile
        For instance 0.95: replace the largest loss by this quantile, so that one outlier does not
        flatten the law; see `QuantizationLaw`.

    Examples
    --------
    >>> selector = AdaptiveSelector([1.0, 1.0, 2.0], batch_size=3, selection_pressure=8)
    >>> for index in selector:
    ...     selector.observe([1.0, 1.0, 1.0])
    >>> selector.probabilities()
    array([0.25, 0.25, 0.5 ])
    """

    strategy: str = "adaptive"
    place = 4
    _law: QuantizationLaw

    def __init__(
        self,
        weights: npt.ArrayLike,
        *,
        n_samples: int | None = None,
        selection_pressure: float | Schedule = 16,
        cap_quantile: float | None = None,
        **settings: Unpack[_LossSettings],
    ) -> None:
        score = WeightedLoss(weights)
        if score.weights.ndim:
            if n_samples not in (None, len(score.weights)):
                raise SelectionError(
                    f"there are {len(score.weights)} weights for n_samples={n_samples}"
                )
            n_samples = len(score.weights)
        if n_samples is None:
            raise SelectionError("weights is one number: give n_samples= as well")
        super().__init__(
            n_samples,
            score=score,
            law=QuantizationLaw(cap_quantile=cap_quantile),
            selection_pressure=selection_pressure,
            **settings,
        )
        self._weights = score.weights

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "score": WeightedLoss, "weights": self._weights}
