"""D2ACE: uncertain samples early, hard ones later, more of both for labels that vary."""

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.imbalance import nearest_neighbors
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.base import _LawSettings, _whole_number
from tailbatch.selection.inputs import LabelMatrix, _as_array
from tailbatch.selection.loss_driven import Schedule
from tailbatch.selection.rivals.predictions import _check_memory, _uncertainty_law, _WindowSelector

_OLD = 0.3  # share of its earlier value that a flip keeps


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
        **settings: Unpack[_LawSettings],
    ) -> None:
        super().__init__(Y, selection_pressure=selection_pressure, window=window, **settings)
        n, q = self._Y.shape
        _check_memory(self.strategy, 2 * n * q * (window + 1), "a smaller window, or minority")
        self._betas = _checked_share("beta_start", beta_start), _checked_share("beta_end", beta_end)
        if self._betas[0] != self._betas[1] and self._epochs is None:
            raise SelectionError(
                "beta_start and beta_end differ, which needs the number of epochs: give epochs="
            )
        k = min(_whole_number("k", k, least=1), n - 1)
        features = sparse.csr_array(X) if sparse.issparse(X) else _as_array(X)
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
        before, seen = self._latest(index), self._seen[index] > 0
        super()._take_in(index, predicted)
        change = np.abs(self._latest(index) - before)
        self._flips[index] = np.where(
            seen[:, None], (1 - _OLD) * change + _OLD * self._flips[index], 0.0
        )

    def _renewed(self, epoch: int) -> FloatArray:
        pressure, beta = self._pressure(epoch), self.beta(epoch)
        by_uncertainty = _uncertainty_law(self._scores(self._uncertainty), pressure)
        by_hardness = _uncertainty_law(self._scores(self._hardness), pressure)
        return np.asarray(beta * by_uncertainty + (1 - beta) * by_hardness)

    def _hardness(self, rows: slice) -> FloatArray:
        missed = np.abs(self._latest(rows) - self._by_row[rows].toarray())
        return np.asarray(missed * (1 - self._flips[rows].astype(np.float64)))

    def _scores(self, metric: Callable[[slice], FloatArray]) -> FloatArray:
        """Return the score of each sample by a metric (m, q) of rows; NaN where it was never seen."""
        q = self._Y.shape[1]
        seen = self._seen > 0
        count = max(int(np.count_nonzero(seen)), 1)
        total, squares, at_labels = np.zeros(q), np.zeros(q), []
        for rows in self._pieces():
            m = metric(rows) * seen[rows, None]
            total += m.sum(axis=0)
            squares += np.square(m).sum(axis=0)
            at_labels.append(self._by_row[rows].multiply(m))
        mean = total / count
        v = np.exp((mean + np.sqrt(np.maximum(squares / count - mean**2, 0.0))) / 2)
        C = _label_similarity(sparse.csr_array(sparse.vstack(at_labels)))
        scores: FloatArray = np.full(self.n_samples, np.nan)
        for rows in self._pieces():
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
