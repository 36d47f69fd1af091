"""Strategies that prefer samples the model is undecided about, by its latest predictions."""

import os
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.base import LawSettings, label_matrix, whole_number
from tailbatch.selection.inputs import LabelMatrix, in_fixed_order, last_of_each
from tailbatch.selection.laws import LowScoreLaw
from tailbatch.selection.loss_driven import LossDrivenSelector, LossSettings, Schedule

_MOST_DECISIONS = 15  # bits of a non-negative int16


def predictions_of(losses: FloatArray, Y: LabelMatrix, index: IntArray, who: str) -> FloatArray:
    """Return the probabilities (b, q) behind the binary cross-entropy of the samples `index`.

    ``exp(-bce_ij)`` for a positive and ``1 - exp(-bce_ij)`` for a negative. Losses that do not come
    label by label are refused.

    Examples
    --------
    >>> predictions_of(np.log([[4.0, 4.0]]), np.array([[True, False]]), np.array([0]), "boundary")
    array([[0.25, 0.75]])
    """
    expected = (len(index), Y.shape[1])
    if losses.shape != expected:
        raise SelectionError(
            f"{who} needs the loss of each label, shape {expected}, got {losses.shape}; hand over "
            'binary_cross_entropy_with_logits(..., reduction="none") as it is'
        )
    rows, right = Y[index], np.exp(-losses)
    return np.where(rows if isinstance(rows, np.ndarray) else rows.toarray(), right, 1 - right)


def binary_entropy(p: FloatArray) -> FloatArray:
    """Return the entropy in bits of a yes or no with probability p: 0 at 0 and 1, 1 at one half.

    Examples
    --------
    >>> binary_entropy(np.array([0.0, 0.5, 1.0]))
    array([0., 1., 0.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.where((p <= 0) | (p >= 1), 0.0, entropy)


def check_memory(who: str, n_bytes: int, instead: str) -> None:
    """Refuse a history that does not fit into this machine's memory.

    Examples
    --------
    >>> check_memory("uncertainty", 10**18, "window=2")
    Traceback (most recent call last):
    ...
    tailbatch.errors.SelectionError: uncertainty would keep 1,000,000,000.0 GB of predictions, ...
    """
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
    Y
        Label matrix (n, q) of the training rows.
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
        **settings: Unpack[LossSettings],
    ) -> None:
        self._Y = label_matrix(Y)
        settings.setdefault("labels", self._Y)
        super().__init__(
            self._Y.shape[0], law=LowScoreLaw(), selection_pressure=selection_pressure, **settings
        )

    def score(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the mean distance of each sample's predictions from one half."""
        distances = np.abs(predictions_of(losses, self._Y, index, "boundary") - 0.5)
        return np.asarray(in_fixed_order(distances).mean(axis=1))

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "Y": sparse.csr_array(self._Y)}


class RecencySelector(LossDrivenSelector):
    """Draws samples whose recent predictions keep changing most often (Recency Bias).

    ``p_i`` is proportional to ``s_e^(-Q_i / n)`` with ``Q_i = ceil(n (1 - U_i))`` and U_i the mean over
    labels of the entropy of the last decisions (Song et al., CIKM 2020). A decision is positive if the
    predicted probability is at least 0.5.

    Parameters
    ----------
    Y
        Label matrix (n, q) of the training rows.
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
        **settings: Unpack[LawSettings],
    ) -> None:
        self._Y = label_matrix(Y)
        self._window = whole_number("window", window, least=1)
        if self._window > _MOST_DECISIONS:
            raise SelectionError(f"window must be at most {_MOST_DECISIONS}, got {window}")
        check_memory("recency", 2 * self._Y.shape[0] * self._Y.shape[1], "boundary or minority")
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
        certainty = 1 - in_fixed_order(binary_entropy(share)).mean(axis=1)
        return np.asarray(np.maximum(certainty, 0.0))

    def _after(
        self, losses: FloatArray, index: IntArray
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]]:
        """Return the decisions of samples, and how many there are, with these losses included."""
        positive = predictions_of(losses, self._Y, index, "recency") >= 0.5
        kept = self._decisions[index] & ((1 << (self._window - 1)) - 1)
        decisions = ((kept << 1) | positive).astype(np.int16)
        return decisions, np.minimum(self._seen[index] + 1, self._window).astype(np.uint8)

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        super()._learn(losses, index)
        last = last_of_each(index) if self.corrected else slice(None)
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
