"""What a model predicted for each sample lately, read off the losses that were observed."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import FloatArray, IntArray, LabelMatrix, dense_rows, state_array

_CELLS_AT_ONCE = 1 << 20


def predicted_probabilities(losses: FloatArray, labels: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the probabilities behind the binary cross-entropy of each label, shape (b, q).

    ``exp(-bce_ij)`` for a positive and ``1 - exp(-bce_ij)`` for a negative.

    Examples
    --------
    >>> predicted_probabilities(np.log([[4.0, 4.0]]), np.array([[True, False]]))
    array([[0.25, 0.75]])
    """
    right = np.exp(-losses)
    return np.where(labels, right, 1 - right)


def binary_entropy(p: FloatArray) -> FloatArray:
    """Return the entropy of a yes or no of probability p, in bits: 0 for 0 and 1, 1 for one half.

    Examples
    --------
    >>> binary_entropy(np.array([0.0, 0.5, 1.0]))
    array([0., 1., 0.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.where((p <= 0) | (p >= 1), 0.0, entropy)


def checked_label_losses(losses: FloatArray, index: IntArray, n_labels: int, who: str) -> None:
    """Refuse losses that do not come label by label."""
    expected = (len(index), n_labels)
    if losses.shape != expected:
        raise SelectionError(
            f"{who} needs the loss of each label, shape {expected}, got {losses.shape}; hand over "
            'binary_cross_entropy_with_logits(..., reduction="none") as it is'
        )


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


class PredictionWindow:
    """The last predictions of each sample for each label, in float16: ``2 n window q`` bytes.

    Parameters
    ----------
    n_samples, n_labels
        n and q.
    length
        How many predictions of each sample are kept.

    Examples
    --------
    >>> window = PredictionWindow(2, 1, length=3)
    >>> for p in (0.5, 1.0):
    ...     window.add(np.array([1]), np.array([[p]]))
    >>> window.changes(slice(1, 2)).tolist(), window.latest(slice(1, 2)).tolist()
    ([[0.5]], [[1.0]])
    """

    def __init__(self, n_samples: int, n_labels: int, length: int) -> None:
        # The newest comes last, so that rows can be read without knowing when they were written.
        self._values = np.zeros((n_samples, length, n_labels), dtype=np.float16)
        self.seen = np.zeros(n_samples, dtype=np.uint8)

    def add(self, index: IntArray, predicted: FloatArray) -> None:
        """Take in predictions (b, q) of distinct samples."""
        self._values[index, :-1] = self._values[index, 1:]
        self._values[index, -1] = predicted
        self.seen[index] = np.minimum(self.seen[index] + 1, self._values.shape[1])

    def latest(self, rows: slice | IntArray) -> FloatArray:
        """Return the latest predictions of some samples, shape (m, q)."""
        return self._values[rows, -1].astype(np.float64)

    def changes(self, rows: slice | IntArray) -> FloatArray:
        """Return the mean absolute difference of successive predictions, 0 before there are two."""
        values = self._values[rows].astype(np.float64)
        length = values.shape[1]
        seen = self.seen[rows].astype(np.int64)
        known = np.arange(1, length) > length - seen[:, None]
        steps = np.abs(np.diff(values, axis=1)) * known[:, :, None]
        return np.asarray(steps.sum(axis=1) / np.maximum(seen - 1, 1)[:, None])

    def pieces(self) -> list[slice]:
        """Return slices of the samples whose predictions fit into little memory."""
        n, length, q = self._values.shape
        size = max(_CELLS_AT_ONCE // (length * q), 1)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def state(self) -> dict[str, Any]:
        """Return a copy of what is kept, as flat arrays."""
        return {"predictions": self._values.ravel().copy(), "seen": self.seen.copy()}

    def loaded(self, state: Mapping[str, Any]) -> "PredictionWindow":
        """Return a window as it was saved."""
        n, length, q = self._values.shape
        values = state_array(state, "predictions", np.float16, n * length * q, most=1)
        other = PredictionWindow.__new__(PredictionWindow)
        other._values = values.reshape(n, length, q)
        other.seen = state_array(state, "seen", np.uint8, n, most=length)
        return other


def predictions_of(losses: FloatArray, Y: LabelMatrix, index: IntArray) -> FloatArray:
    """Return the probabilities (b, q) behind the losses of the samples `index`."""
    return predicted_probabilities(losses, dense_rows(Y, index))
