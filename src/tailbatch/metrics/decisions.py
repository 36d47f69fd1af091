"""Metrics of yes-or-no predictions, the thresholds behind them, and all metrics of single labels."""

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from tailbatch.data.dataset import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.ranking import auc_by_label, average_precision_by_label
from tailbatch.metrics.scored import BLOCK_ENTRIES, FloatArray, Scored, dense_labels, sorted_keys
from tailbatch.seeds import BoolArray

SHRINKAGE = 20.0
"""Number of positives at which a label's own threshold has weight one half (see `tune_thresholds`),
chosen on validation rows with ``benchmarks/bench_thresholds.py``."""

_GRID = np.linspace(-6, 3, 37)  # logits of the candidates for the common threshold
_WINDOW = np.full(5, 1 / 5)  # averages neighbors on the grid
_TINY = 1e-6  # a threshold of 0 or 1 has no logit


def decide(scores: FloatArray, thresholds: npt.ArrayLike = 0.5) -> BoolArray:
    """Return the predicted labels: those that score above the threshold, one for all or one per label.

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
    threshold b and the best common one c are averaged in logits, weighted by its number of positives p:

        logit t = (p logit b + shrinkage logit c) / (p + shrinkage)

    A label's own best threshold is midway between two neighboring scores; the highest of equally good
    ones is used.

    Parameters
    ----------
    Y, scores
        (n, q) labels, and scores in [0, 1].
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
    if not 0 <= shrinkage < np.inf:
        raise DataError(f"shrinkage must be a number from 0, got {shrinkage}")
    case = Scored(Y, scores)
    labels, values = case.labels, case.values
    step = max(1, BLOCK_ENTRIES // len(labels))  # labels at a time
    blocks = [slice(start, start + step) for start in range(0, labels.shape[1], step)]
    best = np.concatenate([_best_thresholds(labels[:, at].T, values[:, at].T) for at in blocks])
    if shrinkage == 0:
        return best
    positives = np.count_nonzero(labels, axis=0)
    own = logit(best.clip(_TINY, 1 - _TINY))
    common = logit(_common_threshold(labels, values))
    return np.asarray(expit((positives * own + shrinkage * common) / (positives + shrinkage)))


def _common_threshold(labels: BoolArray, values: FloatArray) -> float:
    """Return the one threshold for all labels with the best Macro-F on these rows.

    Thresholds from 0.002 to 0.95 are tried, evenly spaced in logits; each is averaged with its two
    neighbors on either side to reduce noise. Of equally good ones, the nearest to 0.5 is used; labels
    without positives are ignored.
    """
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
    return _f(Y, predictions, axis=0)


def macro_f(Y: LabelMatrix, predictions: BoolArray, only: BoolArray | None = None) -> float:
    """Return the mean F over labels, or over some of them; ``nan`` if there are none.

    Examples
    --------
    >>> Y, predictions = np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool)
    >>> macro_f(Y, predictions, np.array([False, True]))
    0.0
    """
    each = f_by_label(Y, predictions)
    chosen = each if only is None else each[only]
    return float(chosen.mean()) if chosen.size else float("nan")


def micro_f(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return F over all (row, label) cells together.

    Examples
    --------
    >>> micro_f(np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool))
    0.5
    """
    return float(_f(Y, predictions, axis=None))


def example_f(Y: LabelMatrix, predictions: BoolArray) -> float:
    """Return the mean F over rows.

    Examples
    --------
    >>> example_f(np.eye(2, dtype=bool), np.array([[1, 0], [1, 0]], dtype=bool))
    0.5
    """
    return float(_f(Y, predictions, axis=1).mean())


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


def by_label(
    Y: LabelMatrix, scores: FloatArray, thresholds: npt.ArrayLike = 0.5
) -> dict[str, npt.NDArray[np.float64]]:
    r"""Return each label's number of positives and how well it is predicted, (q,) each.

    Takes labels and scores in [0, 1], both (n, q), and one threshold or one per label, above which a
    label is predicted. Precision is :math:`TP / (TP + FP)`, nan if a label is never predicted; recall is
    :math:`TP / (TP + FN)`, nan without positives, as are AP and AUC.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    >>> table = by_label(Y, np.array([[0.9, 0.2], [0.3, 0.8], [0.7, 0.4]]))
    >>> table["support"].tolist(), table["precision"].tolist(), table["recall"].tolist()
    ([2.0, 2.0], [1.0, 1.0], [1.0, 0.5])
    """
    case = Scored(Y, scores)
    decided = decide(case.values, thresholds)
    hits = (case.labels & decided).sum(axis=0)
    positives = case.labels.sum(axis=0)
    with np.errstate(invalid="ignore"):
        precision, recall = hits / decided.sum(axis=0), hits / positives
    return {
        "support": positives.astype(np.float64),
        "average_precision": average_precision_by_label(case.labels, case),
        "auc": auc_by_label(case.labels, case),
        "precision": precision,
        "recall": recall,
        "f": f_by_label(case.labels, decided),
        "threshold": np.broadcast_to(np.asarray(thresholds, np.float64), precision.shape).copy(),
    }


def _checked(Y: LabelMatrix, predictions: BoolArray) -> tuple[BoolArray, BoolArray]:
    labels, decided = dense_labels(Y), dense_labels(predictions)
    if labels.shape != decided.shape:
        raise DataError(f"predictions have shape {decided.shape}, the labels {labels.shape}")
    return labels, decided


def _f(Y: LabelMatrix, predictions: BoolArray, axis: int | None) -> npt.NDArray[np.float64]:
    labels, decided = _checked(Y, predictions)
    hits = np.count_nonzero(labels & decided, axis=axis)
    both = np.count_nonzero(labels, axis=axis) + np.count_nonzero(decided, axis=axis)
    return np.asarray(2 * hits / np.maximum(both, 1))
