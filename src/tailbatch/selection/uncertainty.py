"""Selection by uncertainty, renewed once an epoch: predictions that change or are near one half."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np
from scipy import sparse

from tailbatch.selection.drawing import StaticLaw, normalized
from tailbatch.selection.inputs import (
    FloatArray,
    IntArray,
    check_pressure,
    label_matrix,
    last_of_each,
    state_array,
    whole_number,
)
from tailbatch.selection.loss_driven import LawSelector, LawSettings
from tailbatch.selection.predictions import (
    PredictionWindow,
    binary_entropy,
    check_memory,
    checked_label_losses,
    predictions_of,
)
from tailbatch.selection.schedule import Constant, Schedule, as_schedule


def uncertainties(changes: FloatArray, latest: FloatArray) -> FloatArray:
    """Return the uncertainty of each prediction, from 0 to 1, shape (m, q).

    ``u_ij = (mean over t of |p_ij^t - p_ij^(t-1)| + H2(p_ij)) / 2``, the entropy H2 in bits.

    Parameters
    ----------
    changes
        Mean absolute difference of successive predictions in the window, shape (m, q).
    latest
        The latest predicted probabilities, shape (m, q).

    Examples
    --------
    >>> uncertainties(np.array([[0.2]]), np.array([[0.5]]))
    array([[0.6]])
    """
    return np.clip((changes + binary_entropy(latest)) / 2, 0.0, 1.0)


def uncertainty_law(scores: FloatArray, pressure: float) -> FloatArray:
    """Return probabilities (n,) by the size of the scores, high ones most likely.

    ``w`` is the score scaled to [0, 1] by the smallest and the largest, ``Q_i = ceil((1 - w_i) n)``, and
    p_i is proportional to ``s_e^(-Q_i / n)``. A sample without a score (NaN) has w = 1.

    Examples
    --------
    >>> uncertainty_law(np.array([3.0, 1.0, np.nan, 2.0]), pressure=16).round(3)
    array([0.432, 0.027, 0.432, 0.108])
    """
    n = len(scores)
    known = scores[~np.isnan(scores)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    if low == high:
        return np.full(n, 1 / n)
    w = np.where(np.isnan(scores), 1.0, (scores - low) / (high - low))
    return normalized(-np.ceil((1 - w) * n) / n * math.log(pressure))


class WindowSelector(LawSelector):
    """Probabilities from the last predictions of all samples, renewed at the start of each epoch.

    A strategy fills in `_renewed`. Between renewals the law is fixed, so a draw is one bisection.

    Parameters
    ----------
    Y
        Label matrix (n, q) of the training rows.
    selection_pressure
        s_e: a number from 1, a schedule, or the first and the last pressure of a geometric one.
    window
        T, how many predictions of each sample are kept, from 2; in float16, ``2 n T q`` bytes.
    epochs
        Number of epochs after the warm-up, for schedules.
    **settings
        As for `LawSelector`. `observe` takes per-label losses (b, q) only.
    """

    needs_losses = True
    warm_up_by_default = 10

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule | tuple[float, float] = (8, 1),
        window: int = 5,
        epochs: int | None = None,
        **settings: Unpack[LawSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        n, q = labels.shape
        window = whole_number("window", window, least=2)
        check_memory(self.strategy, 2 * n * q * window, "a smaller window, boundary or minority")
        self._schedule = as_schedule(selection_pressure)
        self._epochs = None if epochs is None else whole_number("epochs", epochs, least=1)
        self._pressure(0)  # a schedule that lacks something should say so now
        super().__init__(StaticLaw(np.ones(n)), **settings)
        self._Y, self._length = labels, window
        self._window = PredictionWindow(n, q, window)
        self._weights: FloatArray = np.full(n, 1 / n)

    @abstractmethod
    def _renewed(self, epoch: int) -> FloatArray:
        """Return the probabilities of an epoch from the window, shape (n,)."""

    def _pressure(self, epoch: int) -> float:
        return check_pressure(self._schedule(epoch, self._epochs))

    def _start_epoch(self, epoch: int) -> None:
        self._set_law(self._renewed(epoch))

    def _set_law(self, probabilities: FloatArray) -> None:
        self._weights, self._law = probabilities, StaticLaw(probabilities)

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        checked_label_losses(losses, index, self._Y.shape[1], self.strategy)
        if self.corrected:
            last = last_of_each(index)
            losses, index = losses[last], index[last]
        self._take_in(index, predictions_of(losses, self._Y, index))
        return None

    def _take_in(self, index: IntArray, predicted: FloatArray) -> None:
        self._window.add(index, predicted)

    def _settings(self) -> dict[str, Any]:
        constant = isinstance(self._schedule, Constant)
        settings = super()._settings()
        del settings["law_weights"]  # of the epoch, and not a setting
        return {
            **settings,
            "selection_pressure": self._pressure(0) if constant else self._schedule,
            "epochs": None if constant else self._epochs,
            "window": self._length,
            "Y": sparse.csr_array(self._Y),  # the same labels, dense or sparse, are one setting
        }

    def _own_state(self) -> dict[str, Any]:
        return {"law_weights": self._weights.copy(), **self._window.state()}

    def _own_loader(self, state: Mapping[str, Any]) -> Callable[[], None]:
        weights = state_array(state, "law_weights", np.float64, self.n_samples, most=1)
        window = self._window.loaded(state)

        def commit() -> None:
            self._set_law(weights)
            self._window = window

        return commit


class UncertaintySelector(WindowSelector):
    """Samples of uncertain predictions are drawn most often (arXiv 2412.16521).

    The score of a sample is the sum over labels of its `uncertainties`; `uncertainty_law` makes
    probabilities of the scores at the start of each epoch.

    Parameters
    ----------
    Y, selection_pressure, window, epochs, **settings
        As for `WindowSelector`. The pressure falls from 8 to 1 by default, and `make_selector` adds a
        warm-up of 10 epochs, as in the paper's trainings of 100.

    Notes
    -----
    The paper multiplies the uncertainties by a matrix I of mutual information between labels, then adds
    up over labels: ``w_i = sum_j (U I)_ij = sum_k u_ik sum_j I_kj``. Its rows are scaled to sum to 1, so
    the matrix drops out, and it is not computed here.

    Examples
    --------
    >>> selector = UncertaintySelector([[1], [1]], batch_size=2, selection_pressure=4)
    >>> for _ in range(2):
    ...     for index in selector:
    ...         selector.observe(np.log([[2.0], [1.0]])[index])
    >>> selector.probabilities()
    array([0.8, 0.2])
    """

    strategy: str = "uncertainty"
    default_pressure = (8.0, 1.0)
    place = 12

    def _renewed(self, epoch: int) -> FloatArray:
        return uncertainty_law(self._scores(), self._pressure(epoch))

    def _scores(self) -> FloatArray:
        """Return the score of each sample, NaN where it was never seen."""
        scores: FloatArray = np.full(self.n_samples, np.nan)
        for rows in self._window.pieces():
            u = uncertainties(self._window.changes(rows), self._window.latest(rows))
            scores[rows] = np.where(self._window.seen[rows] > 0, u.sum(axis=1), np.nan)
        return scores
