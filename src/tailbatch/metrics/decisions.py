"""Metrics of yes-or-no predictions, and the thresholds behind them."""

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from tailbatch.data.dataset import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.scored import (
    BLOCK_ENTRIES,
    BoolArray,
    FloatArray,
    checked_scores,
    dense_labels,
    sorted_keys,
)

SHRINKAGE = 20.0
"""Number of positives at which a label's own threshold has weight one half (see `tune_thresholds`),
chosen on validation rows with ``benchmarks/bench_thresholds.py``."""

_GRID = np.linspace(-6, 3, 37)  # logits of the candidates for the common threshold
_WINDOW = np.full(5, 1 / 5)  # averages neighbors on the grid
_TINY = 1e-6  # a threshold of 0 or 1 has no logit


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


def tune_thresholds(
    Y: LabelMatrix, scores: FloatArray, *, shrinkage: float = SHRINKAGE
) -> npt.NDArray[np.float64]:
    """Return a threshold for each label, tuned for F on these (validation) rows.

    With few positives, the threshold with the best F is mostly chance. So each label's own best
    threshold b and the best common one c (`common_threshold`) are averaged in logits, weighted by its
    number of positives p:

        logit t = (p logit b + shrinkage logit c) / (p + shrinkage)

    A label's own best threshold is midway between two neighboring scores; the highest of equally good
    ones is used.

    Parameters
    ----------
    Y
        (n, q) labels.
    scores
        (n, q) scores in [0, 1].
    shrinkage
        At least 0. With 0, each label gets its own best threshold, or 0.5 if it has no positives.

    Examples
    --------
    >>> Y = np.array([[1, 0], [1, 0], [0, 0]], dtype=bool)
    >>> scores = np.array([[0.4, 0.9], [0.3, 0.9], [0.1, 0.9]])
    >>> tune_thresholds(Y, scores, shrinkage=0).tolist()
    [0.2, 0.5]
    >>> tune_thresholds(Y, scores).round(3).tolist()
    [0.184, 0.182]
    """
    labels = dense_labels(Y)
    values = checked_scores(scores, labels.shape)
    if not 0 <= shrinkage < np.inf:
        raise DataError(f"shrinkage must be a number from 0, got {shrinkage}")
    best = _own_thresholds(labels, values)
    if shrinkage == 0:
        return best
    positives = np.count_nonzero(labels, axis=0)
    own = logit(best.clip(_TINY, 1 - _TINY))
    common = logit(common_threshold(labels, values))
    return np.asarray(expit((positives * own + shrinkage * common) / (positives + shrinkage)))


def common_threshold(Y: LabelMatrix, scores: FloatArray) -> float:
    """Return the one threshold for all labels with the best Macro-F on these rows.

    Thresholds from 0.002 to 0.95 are tried, evenly spaced in logits; each is averaged with its two
    neighbors on either side to reduce noise. Of equally good ones, the nearest to 0.5 is used; labels
    without positives are ignored.

    Examples
    --------
    >>> Y = np.array([[1], [1], [0], [0]], dtype=bool)
    >>> round(common_threshold(Y, np.array([[0.4], [0.3], [0.1], [0.1]])), 3)
    0.182
    """
    labels = dense_labels(Y)
    values = checked_scores(scores, labels.shape)
    curve = _macro_f_curve(labels, values, expit(_GRID))
    smooth = np.convolve(np.pad(curve, len(_WINDOW) // 2, mode="edge"), _WINDOW, mode="valid")
    by_distance = np.argsort(np.abs(_GRID), kind="stable")
    # Rounded, because sums of the same numbers in a different order may differ in the last digit.
    return float(expit(_GRID[by_distance[smooth[by_distance].round(12).argmax()]]))


def _macro_f_curve(
    labels: BoolArray, scores: FloatArray, limits: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the mean F at each common threshold over the labels that have a positive."""
    some = labels.any(axis=0)
    q, steps = np.count_nonzero(some), len(limits) + 1
    # A score above k of the ascending thresholds is a positive at the first k of them.
    above = np.searchsorted(limits, scores[:, some]) + steps * np.arange(q)

    def predicted(cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        counts = np.bincount(cells, minlength=q * steps).reshape(q, steps)
        return counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]

    hits, decided = predicted(above[labels[:, some]]), predicted(above.ravel())
    f = 2 * hits / (labels[:, some].sum(axis=0)[:, None] + decided)
    return np.asarray(f.sum(axis=0) / max(q, 1))


def _own_thresholds(labels: BoolArray, values: FloatArray) -> npt.NDArray[np.float64]:
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
    f[ordered == below] = -1  # no threshold separates equal scores
    best = n - 1 - f[:, ::-1].argmax(axis=1)
    rows = np.arange(n_labels)
    low, high = below[rows, best], ordered[rows, best]
    middle = low + (high - low) / 2
    middle = np.where(middle < high, middle, low)  # neighboring floats have no middle
    return np.where(f[rows, best] > 0, middle, 0.5)


def f_by_label(Y: LabelMatrix, predictions: BoolArray) -> npt.NDArray[np.float64]:
    """Return each label's F = 2 TP / (2 TP + FP + FN), 0 without positives and predictions.

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
    """Return the share of rows with every label correct.

    Examples
    --------
    >>> subset_accuracy(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], dtype=bool))
    0.5
    """
    labels, decided = _checked(Y, predictions)
    return float(np.mean((labels == decided).all(axis=1)))


def _checked(Y: LabelMatrix, predictions: BoolArray) -> tuple[BoolArray, BoolArray]:
    labels, decided = dense_labels(Y), dense_labels(predictions)
    if labels.shape != decided.shape:
        raise DataError(f"predictions have shape {decided.shape}, the labels {labels.shape}")
    return labels, decided


def _f(labels: BoolArray, decided: BoolArray, axis: int | None) -> npt.NDArray[np.float64]:
    hits = np.count_nonzero(labels & decided, axis=axis)
    both = np.count_nonzero(labels, axis=axis) + np.count_nonzero(decided, axis=axis)
    return np.asarray(2 * hits / np.maximum(both, 1))
