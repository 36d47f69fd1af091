"""Strategies by the model's latest predictions: near the boundary, changing, or uncertain."""

import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.base import Selector, _LawSettings, _whole_number, label_matrix
from tailbatch.selection.drawing import StaticLaw
from tailbatch.selection.inputs import (
    LabelMatrix,
    _check_per_label,
    _in_fixed_order,
    _last_of_each,
)
from tailbatch.selection.laws import LowScoreLaw
from tailbatch.selection.loss_driven import (
    Constant,
    LossDrivenSelector,
    Schedule,
    _as_schedule,
    _check_pressure,
    _LossSettings,
)

_MOST_DECISIONS = 15  # bits of a non-negative int16
_CELLS_AT_ONCE = 1 << 20


def _predictions_of(losses: FloatArray, Y: LabelMatrix, index: IntArray, who: str) -> FloatArray:
    """Return the probabilities (b, q) behind the binary cross-entropy of the samples `index`.

    ``exp(-bce_ij)`` for a positive and ``1 - exp(-bce_ij)`` for a negative.
    """
    _check_per_label(who, losses, (len(index), Y.shape[1]))
    rows, right = Y[index], np.exp(-losses)
    return np.where(rows if isinstance(rows, np.ndarray) else rows.toarray(), right, 1 - right)


def _binary_entropy(p: FloatArray) -> FloatArray:
    """Return the entropy in bits of a yes or no with probability p: 0 at 0 and 1, 1 at one half."""
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.where((p <= 0) | (p >= 1), 0.0, entropy)


def _check_memory(who: str, n_bytes: int, instead: str) -> None:
    """Refuse a history that does not fit into this machine's memory."""
    memory = _physical_memory()
    if n_bytes > memory:
        raise SelectionError(
            f"{who} would keep {n_bytes / 1e9:,.1f} GB of predictions, and this machine has "
            f"{memory / 1e9:,.1f} GB of memory: use {instead}"
        )


def _physical_memory() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # a system that does not tell
        return float("inf")


class BoundarySelector(LossDrivenSelector):
    """Draws samples near the decision boundary most often (Ada-Boundary).

    ``p_i`` is proportional to ``s_e^(-Q_i / n)`` with ``Q_i = ceil(n d_i / max(d))`` and
    ``d_i = mean over labels of |p_ij - 0.5|`` (Song et al., ECML PKDD 2020).

    Parameters
    ----------
    selection_pressure
        s_e: how much likelier a sample on the boundary is than the one farthest away.
    **settings
        As for `LossDrivenSelector`. `observe` takes per-label losses (b, q) only.

    Examples
    --------
    >>> selector = BoundarySelector([[1], [0]], batch_size=2, selection_pressure=4)
    >>> for index in selector:
    ...     selector.observe(np.log([[2.0], [1.0]])[index])
    >>> selector.probabilities()
    array([0.8, 0.2])
    """

    strategy: str = "boundary"
    place = 11

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule = 16,
        **settings: Unpack[_LossSettings],
    ) -> None:
        self._Y = label_matrix(Y)
        settings.setdefault("labels", self._Y)
        super().__init__(
            self._Y.shape[0], law=LowScoreLaw(), selection_pressure=selection_pressure, **settings
        )

    def score(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the mean distance of each sample's predictions from one half."""
        distances = np.abs(_predictions_of(losses, self._Y, index, self.strategy) - 0.5)
        return np.asarray(_in_fixed_order(distances).mean(axis=1))

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "Y": sparse.csr_array(self._Y)}


class RecencySelector(LossDrivenSelector):
    """Draws samples whose recent predictions keep changing most often (Recency Bias).

    ``p_i`` is proportional to ``s_e^(-Q_i / n)`` with ``Q_i = ceil(n (1 - U_i))`` and U_i the mean over
    labels of the entropy of the last decisions (Song et al., CIKM 2020). A decision is positive if the
    predicted probability is at least 0.5.

    Parameters
    ----------
    selection_pressure
        s_e: how much likelier a sample of highest entropy is than one of none. By default it falls
        from 100 to 1.
    window
        How many of a sample's latest predictions count, from 1 to 15: ``2 n q`` bytes.
    **settings
        As for `Selector`. `observe` takes per-label losses (b, q) only.

    Examples
    --------
    >>> Y = [[1], [1], [1], [1]]
    >>> selector = RecencySelector(Y, batch_size=4, selection_pressure=4)
    >>> for losses in ([0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 3.0]):
    ...     for index in selector:
    ...         selector.observe(np.array(losses)[index][:, None])
    >>> selector.probabilities().round(3).tolist()  # the last sample's prediction has flipped
    [0.143, 0.143, 0.143, 0.571]
    """

    strategy: str = "recency"
    default_pressure = (100.0, 1.0)
    place = 10

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule | tuple[float, float] = (100, 1),
        window: int = 10,
        **settings: Unpack[_LawSettings],
    ) -> None:
        self._Y = label_matrix(Y)
        self._window = _whole_number("window", window, least=1)
        if self._window > _MOST_DECISIONS:
            raise SelectionError(f"window must be at most {_MOST_DECISIONS}, got {window}")
        _check_memory("recency", 2 * self._Y.shape[0] * self._Y.shape[1], "boundary or minority")
        settings.setdefault("labels", self._Y)
        # The decisions of a sample about a label are the bits of one number, the latest one lowest.
        self._decisions: npt.NDArray[np.int16] = np.zeros(self._Y.shape, dtype=np.int16)
        self._seen: npt.NDArray[np.uint8] = np.zeros(self._Y.shape[0], dtype=np.uint8)
        super().__init__(
            self._Y.shape[0],
            law=LowScoreLaw(largest=1.0),
            selection_pressure=selection_pressure,
            **settings,
        )

    def score(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return one minus the entropy of each sample's decisions, these losses included."""
        decisions, seen = self._after(losses, index)
        share = np.bitwise_count(decisions) / seen[:, None]
        certainty = 1 - _in_fixed_order(_binary_entropy(share)).mean(axis=1)
        return np.asarray(np.maximum(certainty, 0.0))

    def _after(
        self, losses: FloatArray, index: IntArray
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]]:
        """Return the decisions of samples, and how many there are, with these losses included."""
        positive = _predictions_of(losses, self._Y, index, self.strategy) >= 0.5
        kept = self._decisions[index] & ((1 << (self._window - 1)) - 1)
        decisions = ((kept << 1) | positive).astype(np.int16)
        return decisions, np.minimum(self._seen[index] + 1, self._window).astype(np.uint8)

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        super()._learn(losses, index)
        last = _last_of_each(index) if self.corrected else slice(None)
        rows = index[last]
        self._decisions[rows], self._seen[rows] = self._after(losses[last], rows)
        return None

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "window": self._window, "Y": sparse.csr_array(self._Y)}

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        return {
            **super()._memory(),
            "decisions": (self._decisions, 2**self._window - 1),
            "seen": (self._seen, self._window),
        }


def _uncertainty_law(scores: FloatArray, pressure: float) -> FloatArray:
    """Return probabilities (n,) by the size of the scores, high ones most likely.

    ``w`` is the score scaled to [0, 1] by the smallest and the largest, ``Q_i = ceil((1 - w_i) n)``, and
    p_i is proportional to ``s_e^(-Q_i / n)``. A sample without a score (NaN) has w = 1.
    """
    n = len(scores)
    known = scores[~np.isnan(scores)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    if low == high:
        return np.full(n, 1 / n)
    w = np.where(np.isnan(scores), 1.0, (scores - low) / (high - low))
    log_weights = -np.ceil((1 - w) * n) / n * math.log(pressure)
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


class _WindowSelector(Selector):
    """Probabilities from the last predictions of all samples, renewed at the start of each epoch.

    A strategy defines `_renewed`. Between renewals the law is fixed, so a draw is one bisection.
    """

    needs_losses = True
    warm_up_by_default = 10

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule | tuple[float, float] = (8, 1),
        window: int = 5,
        **settings: Unpack[_LawSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        n, q = labels.shape
        window = _whole_number("window", window, least=2)
        _check_memory(self.strategy, 2 * n * q * window, "a smaller window, boundary or minority")
        self._schedule = _as_schedule(selection_pressure)
        super().__init__(n, law=StaticLaw(np.ones(n)), **settings)
        self._pressure(0)  # a schedule that lacks something should say so now
        self._Y = labels
        # The last predictions of each sample for each label. The newest comes last, so that rows can
        # be read without knowing when they were written.
        self._predictions = np.zeros((n, window, q), dtype=np.float16)
        self._seen = np.zeros(n, dtype=np.uint8)
        self._weights: FloatArray = np.full(n, 1 / n)

    @abstractmethod
    def _renewed(self, epoch: int) -> FloatArray:
        """Return the probabilities of an epoch from the window, shape (n,)."""

    def _pressure(self, epoch: int) -> float:
        return _check_pressure(self._schedule(epoch, self._own_epochs))

    def _start_epoch(self, epoch: int) -> None:
        self._set_law(self._renewed(epoch))

    def _set_law(self, probabilities: FloatArray) -> None:
        self._weights, self._law = probabilities, StaticLaw(probabilities)

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        predicted = _predictions_of(losses, self._Y, index, self.strategy)
        last = _last_of_each(index) if self.corrected else slice(None)
        self._take_in(index[last], predicted[last])
        return None

    def _take_in(self, index: IntArray, predicted: FloatArray) -> None:
        window = self._predictions
        window[index, :-1] = window[index, 1:]
        window[index, -1] = predicted
        self._seen[index] = np.minimum(self._seen[index] + 1, window.shape[1])

    def _latest(self, rows: slice | IntArray) -> FloatArray:
        return self._predictions[rows, -1].astype(np.float64)

    def _uncertainty(self, rows: slice) -> FloatArray:
        """Return ``u_ij = (mean over t of |p_ij^t - p_ij^(t-1)| + H2(p_ij)) / 2`` from 0 to 1, (m, q)."""
        values = self._predictions[rows].astype(np.float64)
        length, seen = values.shape[1], self._seen[rows].astype(np.int64)
        known = np.arange(1, length) > length - seen[:, None]
        steps = np.abs(np.diff(values, axis=1)) * known[:, :, None]
        changes = steps.sum(axis=1) / np.maximum(seen - 1, 1)[:, None]
        return np.asarray(np.clip((changes + _binary_entropy(self._latest(rows))) / 2, 0.0, 1.0))

    def _pieces(self) -> list[slice]:
        """Return slices of the samples whose predictions fit into little memory."""
        n, length, q = self._predictions.shape
        size = max(_CELLS_AT_ONCE // (length * q), 1)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def _settings(self) -> dict[str, Any]:
        constant = isinstance(self._schedule, Constant)
        settings = super()._settings()
        del settings["law_weights"]  # of the epoch, and not a setting
        return {
            **settings,
            "selection_pressure": self._pressure(0) if constant else self._schedule,
            "epochs": None if constant else self._epochs,
            "window": self._predictions.shape[1],
            "Y": sparse.csr_array(self._Y),  # the same labels, dense or sparse, are one setting
        }

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        return {
            "law_weights": (self._weights, 1),
            "predictions": (self._predictions, 1),
            "seen": (self._seen, self._predictions.shape[1]),
        }

    def _restore(self, loaded: Mapping[str, npt.NDArray[Any]]) -> None:
        super()._restore(loaded)
        self._set_law(self._weights)


class UncertaintySelector(_WindowSelector):
    """Samples of uncertain predictions are drawn most often (arXiv 2412.16521).

    The score of a sample is the sum over labels of u, the mean of how much its last predictions changed
    and of the entropy of the latest. At the start of each epoch, ``p_i`` becomes proportional to
    ``s_e^(-Q_i / n)`` with ``Q_i = ceil((1 - w_i) n)`` and w the score scaled to [0, 1].

    Parameters
    ----------
    selection_pressure
        s_e; it falls from 8 to 1 by default, after a warm-up of 10 epochs in trainings of 100.
    window
        T, how many predictions of each sample are kept, from 2; in float16, ``2 n T q`` bytes.
    **settings
        As for `Selector`. `observe` takes per-label losses (b, q) only.

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
        return _uncertainty_law(self._scores(), self._pressure(epoch))

    def _scores(self) -> FloatArray:
        """Return the score of each sample, NaN where it was never seen."""
        scores: FloatArray = np.full(self.n_samples, np.nan)
        for rows in self._pieces():
            u = self._uncertainty(rows)
            scores[rows] = np.where(self._seen[rows] > 0, u.sum(axis=1), np.nan)
        return scores
