"""Selectors that draw from a law, and the three parts of those that follow the losses."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, Unpack

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.selection.base import Selector, Settings
from tailbatch.selection.drawing import (
    BatchStreams,
    Law,
    des_raj_weights,
    draw_batch,
    draw_independent,
    normalized,
    tempered_weights,
)
from tailbatch.selection.inputs import (
    FloatArray,
    IntArray,
    as_array,
    check_finite,
    check_pressure,
    in_fixed_order,
    last_of_each,
    state_array,
    whole_number,
)
from tailbatch.selection.loss_law import LossLaw, unseen
from tailbatch.selection.schedule import Constant, OwnPressure, Schedule, as_schedule

_ROWS_AT_ONCE = 1 << 18


class LawSettings(Settings, total=False):
    """Keyword settings of every `LawSelector`."""

    full_batches: bool
    corrected: bool
    importance: Literal["des_raj"] | None
    importance_beta: float | None


class LossSettings(LawSettings, total=False):
    """Keyword settings of every `LossDrivenSelector`."""

    epochs: int | None
    initial_losses: npt.ArrayLike | None
    reference_renewal: Literal["batch", "epoch"]


class Score(Protocol):
    """From a batch's losses to the scores that the law looks at."""

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return scores (b,), finite and >= 0, for losses (b,) or (b, q) of the samples `index`."""


def mean_loss(losses: FloatArray, index: IntArray) -> FloatArray:
    """Return the loss of each sample, averaged over labels where it comes per label.

    Examples
    --------
    >>> mean_loss(np.array([[1.0, 3.0], [0.0, 1.0]]), np.array([7, 2]))
    array([2. , 0.5])
    """
    return losses if losses.ndim == 1 else in_fixed_order(losses).mean(axis=1)


class LawSelector(Selector):
    """Independent batches, each drawn from a law: without replacement, or corrected.

    Parameters
    ----------
    law
        How likely each sample is.
    full_batches
        Fill up the last batch of an epoch, as the authors' script does.
    corrected
        Draw each sample of a batch independently, so that it may be there twice, with the weight
        ``1 / (n p_i)``: training on `mean` then has the same expected gradient as shuffled epochs. The
        weights cost no O(n) a batch.
    importance
        ``"des_raj"`` makes `importance_weights` unbiased for a mean over all samples, without
        replacement. It needs the normalized law, hence O(n) a batch.
    importance_beta
        Between 0 and 1: weights proportional to ``p_i^-beta`` instead, which are biased because a
        batch is drawn without replacement. O(n) a batch as well.
    **settings
        As for `Selector`.
    """

    strategy: str = "law"

    def __init__(
        self,
        law: Law,
        *,
        full_batches: bool = False,
        corrected: bool = False,
        importance: Literal["des_raj"] | None = None,
        importance_beta: float | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(law.n_samples, **settings)
        if importance not in (None, "des_raj"):
            raise SelectionError(f"importance must be None or 'des_raj', got {importance!r}")
        if importance_beta is not None and not 0 < importance_beta < 1:
            raise SelectionError(f"importance_beta must lie between 0 and 1, got {importance_beta}")
        if importance is not None and importance_beta is not None:
            raise SelectionError("give importance or importance_beta, not both")
        if corrected and (importance is not None or importance_beta is not None):
            raise SelectionError(
                "corrected draws are independent and have weights of their own: leave out importance "
                "and importance_beta, which are for draws without replacement"
            )
        self.corrected = bool(corrected)
        self._law = law
        self._full_batches = full_batches
        self._des_raj = importance is not None
        self._beta = importance_beta
        self._streams = BatchStreams(self.seed)

    def _pressure(self, epoch: int) -> float:
        return 1.0

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        rng = self._streams.at(epoch, number)
        draw = draw_independent if self.corrected else draw_batch
        return draw(self._law, size, self._pressure(epoch), rng)

    def _probabilities(self, epoch: int) -> FloatArray:
        return normalized(self._law.log_weights(self._pressure(epoch)))

    def _size(self, epoch: int, number: int) -> int:
        if self._full_batches:
            return min(self.batch_size, self.n_samples)
        return super()._size(epoch, number)

    def _importance(self, index: IntArray, epoch: int) -> FloatArray | None:
        if self.corrected:
            chances = self._law.chances(index, self._pressure(epoch))
            return np.asarray(1 / (len(index) * self.n_samples * chances))
        if self._des_raj:
            return des_raj_weights(self._probabilities(epoch)[index], self.n_samples)
        if self._beta is not None:
            return tempered_weights(self._probabilities(epoch)[index], self._beta)
        return super()._importance(index, epoch)

    def _settings(self) -> dict[str, Any]:
        return {
            **self._law.settings(),
            "full_batches": self._full_batches,
            "corrected": self.corrected,
            "importance": "des_raj" if self._des_raj else None,
            "importance_beta": self._beta,
        }


class LossDrivenSelector(LawSelector):
    """A strategy of three parts: a score of each sample, a law over scores, a pressure schedule.

    Parameters
    ----------
    n_samples
        n, the number of training samples.
    score
        Function from a batch's losses and indices to scores (b,), finite and >= 0. A saved state
        knows a function by its name and an object by its class and attributes, which must not change.
    law
        `RankLaw` or `QuantizationLaw`; it belongs to this selector from now on.
    selection_pressure
        s_e: a number from 1 (uniform), a schedule such as ``Geometric(64, 1)``, or its two numbers.
    epochs
        Number of epochs after the warm-up, for schedules that need it.
    initial_losses
        Known losses (n,) or (n, q) at the start, NaN where a sample has none.
    reference_renewal
        ``"batch"`` renews the law after every batch; ``"epoch"`` only at the start of each epoch,
        as the authors' script does.
    **settings
        As for `LawSelector`.

    Examples
    --------
    Draw samples with a large worst label more often:

    >>> from tailbatch.selection import QuantizationLaw
    >>> def worst_label(losses, index):
    ...     return losses.max(axis=1)
    >>> selector = LossDrivenSelector(
    ...     4, score=worst_label, law=QuantizationLaw(), selection_pressure=16, batch_size=4
    ... )
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
        score: Score,
        law: LossLaw,
        selection_pressure: float | Schedule | tuple[float, float],
        epochs: int | None = None,
        initial_losses: npt.ArrayLike | None = None,
        reference_renewal: Literal["batch", "epoch"] = "batch",
        **settings: Unpack[LawSettings],
    ) -> None:
        if reference_renewal not in ("batch", "epoch"):
            raise SelectionError(
                f"reference_renewal must be 'batch' or 'epoch', got {reference_renewal!r}"
            )
        self._score = score
        self._epochs = None if epochs is None else whole_number("epochs", epochs, least=1)
        self._schedule = as_schedule(selection_pressure)
        self._pressure(0)  # a schedule that lacks something should say so now
        n_samples = whole_number("n_samples", n_samples, least=1)
        law.reset(self._first_scores(initial_losses, n_samples))
        super().__init__(law, **settings)
        # Scores that wait for the next epoch, infinite where there is none.
        self._held = unseen(n_samples) if reference_renewal == "epoch" else None

    def _pressure(self, epoch: int) -> float:
        return check_pressure(self._schedule(epoch, self._epochs))

    def _first_scores(self, initial_losses: npt.ArrayLike | None, n_samples: int) -> FloatArray:
        """Return the scores of losses known at the start; infinite where there are none."""
        scores = unseen(n_samples)
        if initial_losses is None:
            return scores
        losses = as_array(initial_losses)
        if losses.ndim not in (1, 2) or len(losses) != n_samples:
            raise SelectionError(
                f"initial_losses must have one row for each of the {n_samples} samples, "
                f"got shape {losses.shape}"
            )
        # In pieces, so that n = 10^8 needs no second array of n indices or losses.
        for start in range(0, n_samples, _ROWS_AT_ONCE):
            piece = in_fixed_order(losses[start : start + _ROWS_AT_ONCE])
            known = ~np.isnan(piece) if piece.ndim == 1 else ~np.isnan(piece).any(axis=1)
            index = start + np.flatnonzero(known)
            if len(index):
                check_finite(piece[known], index, what="initial loss")
                scores[index] = self._scores(piece[known], index)
        return scores

    def _scores(self, losses: FloatArray, index: IntArray) -> FloatArray:
        scores = np.asarray(self._score(losses, index), dtype=np.float64)
        if scores.shape != index.shape:
            raise SelectionError(
                f"the score must return one value for each of the {len(index)} samples, "
                f"got shape {scores.shape}"
            )
        check_finite(scores, index, what="score")
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
            last = last_of_each(index)
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

    def _own_state(self) -> dict[str, Any]:
        held = {} if self._held is None else {"held": self._held.copy()}
        return {"scores": self._law.scores.copy(), "cap": np.array([self._law.cap]), **held}

    def _own_loader(self, state: Mapping[str, Any]) -> Callable[[], None]:
        # Infinite is the score of a sample that has no loss yet.
        scores = state_array(state, "scores", np.float64, self.n_samples, most=np.inf)
        cap = state_array(state, "cap", np.float64, 1, most=np.inf)
        held = None
        if self._held is not None:
            held = state_array(state, "held", np.float64, self.n_samples, most=np.inf)

        def commit() -> None:
            self._law.reset(scores, cap=float(cap[0]))
            self._held = held

        return commit
