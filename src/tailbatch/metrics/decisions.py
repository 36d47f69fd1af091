"""Metrics of yes-or-no predictions, and the thresholds that make them."""

import numpy as np
import numpy.typing as npt

from tailbatch.data.dataset import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.scored import (
    BLOCK_ENTRIES,
    BoolArray,
    FloatArray,
    checked_labels,
    checked_scores,
    sorted_keys,
)


def decide(scores: FloatArray, thresholds: npt.ArrayLike = 0.5) -> BoolArray:
    """Return the predicted labels: those that score above the threshold.

    Parameters
    ----------
    scores
        (n, q) scores in [0, 1].
    thresholds
        One for all labels, or one per label, in [0, 1].

    Examples
    --------
    >>> decide(np.array([[0.5, 0.4], [0.6, 0.1]]), [0.5, 0.3]).tolist()
    [[False, True], [True, False]]
    """
    limits = np.asarray(thresholds, dtype=np.float64)
    if limits.ndim and limits.shape != scores.shape[1:]:
        raise DataError(
            f"thresholds must be one number or one per label ({scores.shape[1]}), "
            f"got shape {limits.shape}"
        )
    if not ((limits >= 0) & (limits <= 1)).all():
        raise DataError(f"thresholds must lie in [0, 1], got {limits.tolist()}")
    return np.asarray(scores > limits)


def tune_thresholds(Y: LabelMatrix, scores: FloatArray) -> npt.NDArray[np.float64]:
    """Return for each label the threshold with the best F on these (validation) rows.

    Thresholds lie midway between two neighboring scores. Of equally good ones the highest is
    taken; a label without positives keeps 0.5.

    Parameters
    ----------
    Y
        (n, q) labels.
    scores
        (n, q) scores in [0, 1].

    Examples
    --------
    >>> Y = np.array([[1, 0], [1, 0], [0, 0]], dtype=bool)
    >>> tune_thresholds(Y, np.array([[0.4, 0.9], [0.3, 0.9], [0.1, 0.9]])).tolist()
    [0.2, 0.5]
    """
    labels = checked_labels(Y)
    values = checked_scores(scores, labels.shape)
    step = max(1, BLOCK_ENTRIES // len(labels))
    return np.concatenate(
        [
            _best_thresholds(labels[:, start : start + step].T, values[:, start : start + step].T)
            for start in range(0, labels.shape[1], step)
        ]
    )


def _best_thresholds(labels: BoolArray, scores: FloatArray) -> npt.NDArray[np.float64]:
    """Return the best threshold of each row of the two arrays."""
    n_labels, n = labels.shape
    keys = sorted_keys(labels, scores)
    ordered = (keys >> 1).view(scores.dtype).astype(np.float64)  # ascending scores
    below = np.concatenate([np.zeros((n_labels, 1)), ordered[:, :-1]], axis=1)
    # Column c stands for predicting the entries from c on.
    hits = np.cumsum((keys & 1)[:, ::-1], axis=1)[:, ::-1]
    positives = hits[:, :1]
    f = 2 * hits / (positives + np.arange(n, 0, -1))
    f[ordered == below] = -1  # equal scores cannot be told apart
    best = n - 1 - f[:, ::-1].argmax(axis=1)
    rows = np.arange(n_labels)
    low, high = below[rows, best], ordered[rows, best]
    middle = low + (high - low) / 2
    middle = np.where(middle < high, middle, low)  # neighboring floats have no middle
    return np.where(f[rows, best] > 0, middle, 0.5)


def f_by_label(Y: LabelMatrix, predictions: BoolArray) -> npt.NDArray[np.float64]:
    """Return each label's F = 2 TP / (2 TP + FP + FN), 0 where nothing is there or predicted.

    Examples
    --------
    >>> Y, predictions = np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool)
    >>> f_by_label(Y, predictions).round(3).tolist()
    [0.667, 0.0]
    """
    labels, decided = _checked(Y, predictions)
    return _f(labels, decided, axis=0)


def macro_f(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return the mean F over labels.

    Examples
    --------
    >>> macro_f(np.eye(2, dtype=bool), np.eye(2, dtype=bool))
    1.0
    """
    return float(f_by_label(Y, predictions).mean())


def minority_macro_f(Y: LabelMatrix, predictions: BoolArray, minority: BoolArray) -> float:
    """Return the mean F over minority labels; ``nan`` if there are none.

    Examples
    --------
    >>> Y, predictions = np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool)
    >>> minority_macro_f(Y, predictions, np.array([False, True]))
    0.0
    """
    chosen = f_by_label(Y, predictions)[minority]
    return float(chosen.mean()) if chosen.size else float("nan")


def micro_f(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return F over all (row, label) cells together.

    Examples
    --------
    >>> micro_f(np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool))
    0.5
    """
    labels, decided = _checked(Y, predictions)
    return float(_f(labels, decided, axis=None))


def example_f(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return the mean F over rows.

    Examples
    --------
    >>> example_f(np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool))
    0.5
    """
    labels, decided = _checked(Y, predictions)
    return float(_f(labels, decided, axis=1).mean())


def hamming_loss(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return the share of wrong (row, label) cells.

    Examples
    --------
    >>> hamming_loss(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], dtype=bool))
    0.25
    """
    labels, decided = _checked(Y, predictions)
    return float(np.mean(labels != decided))


def subset_accuracy(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return the share of rows with every label right.

    Examples
    --------
    >>> subset_accuracy(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], dtype=bool))
    0.5
    """
    labels, decided = _checked(Y, predictions)
    return float(np.mean((labels == decided).all(axis=1)))


def _checked(Y: LabelMatrix, predictions: BoolArray) -> tuple[BoolArray, BoolArray]:
    labels, decided = checked_labels(Y), checked_labels(predictions)
    if labels.shape != decided.shape:
        raise DataError(f"predictions have shape {decided.shape}, the labels {labels.shape}")
    return labels, decided


def _f(labels: BoolArray, decided: BoolArray, axis: int | None) -> npt.NDArray[np.float64]:
    hits = np.count_nonzero(labels & decided, axis=axis)
    both = np.count_nonzero(labels, axis=axis) + np.count_nonzero(decided, axis=axis)
    return np.asarray(2 * hits / np.maximum(both, 1))
