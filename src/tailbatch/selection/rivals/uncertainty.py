"""Laws renewed once an epoch from the last predictions: uncertainty, and D2ACE."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.imbalance import nearest_neighbors
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.base import LawSettings, Selector, label_matrix, whole_number
from tailbatch.selection.drawing import StaticLaw
from tailbatch.selection.inputs import LabelMatrix, as_array, last_of_each
from tailbatch.selection.loss_driven import Constant, Schedule, as_schedule, check_pressure
from tailbatch.selection.rivals.doubt import binary_entropy, check_memory, predictions_of

_CELLS_AT_ONCE = 1 << 20
_OLD = 0.3  # share of its earlier value that a flip keeps


class _PredictionWindow:
    """The last predictions of each sample for each label, in float16: ``2 n length q`` bytes."""

    def __init__(self, n_samples: int, n_labels: int, length: int) -> None:
        # The newest comes last, so that rows can be read without knowing when they were written.
        self.values = np.zeros((n_samples, length, n_labels), dtype=np.float16)
        self.seen = np.zeros(n_samples, dtype=np.uint8)

    def add(self, index: IntArray, predicted: FloatArray) -> None:
        self.values[index, :-1] = self.values[index, 1:]
        self.values[index, -1] = predicted
        self.seen[index] = np.minimum(self.seen[index] + 1, self.values.shape[1])

    def latest(self, rows: slice | IntArray) -> FloatArray:
        return self.values[rows, -1].astype(np.float64)

    def changes(self, rows: slice | IntArray) -> FloatArray:
        """Return the mean absolute difference of successive predictions, 0 before there are two."""
        values = self.values[rows].astype(np.float64)
        length = values.shape[1]
        seen = self.seen[rows].astype(np.int64)
        known = np.arange(1, length) > length - seen[:, None]
        steps = np.abs(np.diff(values, axis=1)) * known[:, :, None]
        return np.asarray(steps.sum(axis=1) / np.maximum(seen - 1, 1)[:, None])

    def pieces(self) -> list[slice]:
        """Return slices of the samples whose predictions fit into little memory."""
        n, length, q = self.values.shape
        size = max(_CELLS_AT_ONCE // (length * q), 1)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _uncertainties(changes: FloatArray, latest: FloatArray) -> FloatArray:
    """Return ``u_ij = (mean over t of |p_ij^t - p_ij^(t-1)| + H2(p_ij)) / 2``, from 0 to 1, (m, q)."""
    return np.clip((changes + binary_entropy(latest)) / 2, 0.0, 1.0)


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
        **settings: Unpack[LawSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        n, q = labels.shape
        window = whole_number("window", window, least=2)
        check_memory(self.strategy, 2 * n * q * window, "a smaller window, boundary or minority")
        self._schedule = as_schedule(selection_pressure)
        super().__init__(n, law=StaticLaw(np.ones(n)), **settings)
        self._pressure(0)  # a schedule that lacks something should say so now
        self._Y, self._length = labels, window
        self._window = _PredictionWindow(n, q, window)
        self._weights: FloatArray = np.full(n, 1 / n)

    @abstractmethod
    def _renewed(self, epoch: int) -> FloatArray:
        """Return the probabilities of an epoch from the window, shape (n,)."""

    def _pressure(self, epoch: int) -> float:
        return check_pressure(self._schedule(epoch, self._own_epochs))

    def _start_epoch(self, epoch: int) -> None:
        self._set_law(self._renewed(epoch))

    def _set_law(self, probabilities: FloatArray) -> None:
        self._weights, self._law = probabilities, StaticLaw(probabilities)

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        predicted = predictions_of(losses, self._Y, index, self.strategy)
        last = last_of_each(index) if self.corrected else slice(None)
        self._take_in(index[last], predicted[last])
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

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        return {
            "law_weights": (self._weights, 1),
            "predictions": (self._window.values, 1),
            "seen": (self._window.seen, self._length),
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
    Y
        Label matrix (n, q) of the training rows.
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
        for rows in self._window.pieces():
            u = _uncertainties(self._window.changes(rows), self._window.latest(rows))
            scores[rows] = np.where(self._window.seen[rows] > 0, u.sum(axis=1), np.nan)
        return scores


class D2ACESelector(_WindowSelector):
    """Uncertain samples early, hard ones later, more of both for labels that vary (arXiv 2605.09400).

    Two metrics m of each sample and label: the uncertainty u of `UncertaintySelector`, and the hardness
    ``h_ij = |p_ij - y_ij| (1 - f_ij)``, where f_ij follows how much the prediction flips,
    ``f = 0.7 |p^t - p^(t-1)| + 0.3 f``. For each of them::

        score_i = sum_j v_j m_ij (1 + y_ij S_ij),    S = Z C^T,    v_j = exp((mean_j + std_j) / 2)

    where C is the cosine similarity of the columns of m * Y, its rows scaled to sum to 1, Z_ij says
    whether row i or one of its neighbors has label j, and mean and std are those of m_ij over i. The
    law of `UncertaintySelector` makes p^u and p^h of the scores; a sample is drawn with probability
    ``beta p^u_i + (1 - beta) p^h_i``. All of it is renewed at the start of each epoch.

    Parameters
    ----------
    Y
        Label matrix (n, q) of the training rows.
    X
        Their features (n, d), for the neighbors.
    k
        Number of neighbors; fewer where there are not so many rows.
    beta_start, beta_end
        The share of p^u falls from one to the other over the first two thirds of the epochs after the
        warm-up (epochs 10 to 70 of the paper's 100).
    selection_pressure, window, **settings
        As for `UncertaintySelector`.

    Examples
    --------
    >>> selector = D2ACESelector(
    ...     [[1], [1], [0]], [[0.0], [1.0], [2.0]], batch_size=3, selection_pressure=4, epochs=2
    ... )
    >>> for _ in range(2):
    ...     for index in selector:
    ...         selector.observe(np.log([[2.0], [1.0], [1.0]])[index])
    >>> selector.probabilities().argmax()
    np.int64(0)
    """

    strategy: str = "d2ace"
    default_pressure = (8.0, 1.0)
    place = 13

    def __init__(
        self,
        Y: object,
        X: object,
        *,
        k: int = 6,
        beta_start: float = 0.7,
        beta_end: float = 0.3,
        selection_pressure: float | Schedule | tuple[float, float] = (8, 1),
        window: int = 5,
        **settings: Unpack[LawSettings],
    ) -> None:
        super().__init__(Y, selection_pressure=selection_pressure, window=window, **settings)
        n, q = self._Y.shape
        check_memory(self.strategy, 2 * n * q * (window + 1), "a smaller window, or minority")
        self._betas = _checked_share("beta_start", beta_start), _checked_share("beta_end", beta_end)
        if self._betas[0] != self._betas[1] and self._epochs is None:
            raise SelectionError(
                "beta_start and beta_end differ, which needs the number of epochs: give epochs="
            )
        k = min(whole_number("k", k, least=1), n - 1)
        features = sparse.csr_array(X) if sparse.issparse(X) else as_array(X)
        if features.ndim != 2 or features.shape[0] != n:
            raise SelectionError(
                f"X must have one row for each of the {n} samples, got {features.shape}"
            )
        none: IntArray = np.empty((n, 0), dtype=np.int64)
        near = nearest_neighbors(features, np.arange(n), k) if k else none
        self._by_row = sparse.csr_array(self._Y, dtype=np.float64)
        self._context = _label_context(self._Y, near)
        self._flips: npt.NDArray[np.float16] = np.zeros((n, q), dtype=np.float16)

    def beta(self, epoch: int) -> float:
        """Return the share of draws by uncertainty in an epoch, counted from 0 after the warm-up."""
        start, end = self._betas
        epochs = self._own_epochs
        if start == end or epochs is None:
            return start
        share = min(epoch / max(2 * epochs / 3, 1), 1.0)
        return start + (end - start) * share

    def _take_in(self, index: IntArray, predicted: FloatArray) -> None:
        before, seen = self._window.latest(index), self._window.seen[index] > 0
        super()._take_in(index, predicted)
        change = np.abs(self._window.latest(index) - before)
        self._flips[index] = np.where(
            seen[:, None], (1 - _OLD) * change + _OLD * self._flips[index], 0.0
        )

    def _renewed(self, epoch: int) -> FloatArray:
        pressure, beta = self._pressure(epoch), self.beta(epoch)
        by_uncertainty = _uncertainty_law(self._scores(self._uncertainty), pressure)
        by_hardness = _uncertainty_law(self._scores(self._hardness), pressure)
        return np.asarray(beta * by_uncertainty + (1 - beta) * by_hardness)

    def _uncertainty(self, rows: slice) -> FloatArray:
        return _uncertainties(self._window.changes(rows), self._window.latest(rows))

    def _hardness(self, rows: slice) -> FloatArray:
        missed = np.abs(self._window.latest(rows) - self._by_row[rows].toarray())
        return np.asarray(missed * (1 - self._flips[rows].astype(np.float64)))

    def _scores(self, metric: Callable[[slice], FloatArray]) -> FloatArray:
        """Return the score of each sample by a metric (m, q) of rows; NaN where it was never seen."""
        q = self._Y.shape[1]
        seen = self._window.seen > 0
        count = max(int(np.count_nonzero(seen)), 1)
        total, squares, at_labels = np.zeros(q), np.zeros(q), []
        for rows in self._window.pieces():
            m = metric(rows) * seen[rows, None]
            total += m.sum(axis=0)
            squares += np.square(m).sum(axis=0)
            at_labels.append(self._by_row[rows].multiply(m))
        mean = total / count
        v = np.exp((mean + np.sqrt(np.maximum(squares / count - mean**2, 0.0))) / 2)
        C = _label_similarity(sparse.csr_array(sparse.vstack(at_labels)))
        scores: FloatArray = np.full(self.n_samples, np.nan)
        for rows in self._window.pieces():
            weighted = metric(rows) * v
            correlated = self._by_row[rows].toarray() * (self._context[rows] @ C.T)
            scores[rows] = (weighted * (1 + correlated)).sum(axis=1)
        scores[~seen] = np.nan
        return scores

    def _settings(self) -> dict[str, Any]:
        start, end = self._betas
        return {
            **super()._settings(),
            "beta_start": start,
            "beta_end": end,
            "epochs": self._epochs,
            "neighbors": self._context,
        }

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        return {**super()._memory(), "flips": (self._flips, 1)}


def _checked_share(name: str, value: object) -> float:
    if isinstance(value, int | float | np.number) and 0 <= value <= 1:
        return float(value)
    raise SelectionError(f"{name} must lie in [0, 1], got {value!r}")


def _label_similarity(values: sparse.csr_array) -> FloatArray:
    """Return C (q, q): cosine similarity of the columns of m * Y, each row scaled to sum to 1.

    A column of zeros is similar to none, and its row is 0.
    """
    product = np.asarray((values.T @ values).toarray(), dtype=np.float64)
    size = np.sqrt(product.diagonal())
    size[size == 0] = 1.0
    cosine = product / size[:, None] / size
    total = cosine.sum(axis=1, keepdims=True)
    return np.asarray(cosine / np.where(total == 0, 1.0, total))


def _label_context(Y: LabelMatrix, neighbors: IntArray) -> sparse.csr_array:
    """Return Z (n, q): 1 where a row or one of its neighbors (n, k) has the label."""
    n, k = neighbors.shape
    own = np.column_stack([np.arange(n), neighbors])
    places = np.arange(n + 1) * (k + 1)
    near = sparse.csr_array((np.ones(own.size), own.ravel(), places), shape=(n, n))
    context = near @ sparse.csr_array(Y, dtype=np.float64)
    context.data[:] = 1.0
    return context
