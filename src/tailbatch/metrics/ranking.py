"""Metrics of scores: of the order in which they put labels or rows, and of their calibration.

Those of order all follow from the positions of the relevant entries, so one sort serves them all, and
the order of labels with equal scores makes no difference.
"""

import numpy as np
import numpy.typing as npt

from tailbatch.data.dataset import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.scored import Scored, Scores
from tailbatch.seeds import BoolArray


def ranking_loss(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean share of (relevant, irrelevant) label pairs of a row in the wrong order.

    Examples
    --------
    >>> Y = np.array([[1, 0, 0]], dtype=bool)
    >>> ranking_loss(Y, np.array([[0.5, 0.5, 0.1]]))
    0.5
    """
    ranks = Scored.of(Y, scores).by_row
    relevant = ranks.relevant
    # A pair is wrong if the irrelevant label scores as high or higher: count, for each relevant label,
    # all labels at or above it, minus the relevant ones among them.
    wrong = ranks.total(ranks.above + ranks.tied - ranks.relevant_above - ranks.relevant_tied)
    pairs = relevant * (ranks.shape[1] - relevant)
    return float(np.mean(wrong / np.maximum(pairs, 1)))


def one_error(Y: LabelMatrix, scores: Scores, *, legacy: bool = False) -> float:
    """Return the share of rows whose top label is irrelevant.

    `legacy` is the reading of the paper's code: the first of equal labels is on top.

    Examples
    --------
    >>> Y, scores = np.array([[1, 0, 0]], dtype=bool), np.array([[0.5, 0.5, 0.1]])
    >>> one_error(Y, scores), one_error(Y, scores, legacy=True)
    (0.5, 0.0)
    """
    if not legacy:
        return 1 - precision_at_k(Y, scores, k=1)
    case = Scored.of(Y, scores)
    top = case.values.argmax(axis=1)
    return float(np.mean(~case.labels[np.arange(len(top)), top]))


def coverage(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean number of top labels needed to cover all relevant ones.

    Examples
    --------
    >>> coverage(np.array([[1, 0, 1]], dtype=bool), np.array([[0.9, 0.5, 0.1]]))
    3.0
    """
    ranks = Scored.of(Y, scores).by_row
    # Ties count as read first, the pessimistic order. Rows without relevant labels keep depth 0.
    depth = np.zeros(ranks.shape[0])
    np.maximum.at(depth, ranks.group, ranks.above + ranks.tied)
    return float(depth.mean())


def label_ranking_average_precision(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean over rows of the mean precision at each relevant label.

    Examples
    --------
    >>> label_ranking_average_precision(np.array([[0, 1]], dtype=bool), np.array([[0.9, 0.5]]))
    0.5
    """
    ranks = Scored.of(Y, scores).by_row
    relevant = ranks.relevant
    mean = ranks.total(ranks.precision()) / np.maximum(relevant, 1)
    return float(np.mean(np.where(relevant > 0, mean, 1)))


def precision_at_k(Y: LabelMatrix, scores: Scores, k: int) -> float:
    """Return the share of relevant labels among the k best (all q, if fewer).

    Examples
    --------
    >>> precision_at_k(np.array([[1, 0, 0]], dtype=bool), np.array([[0.5, 0.9, 0.1]]), k=2)
    0.5
    """
    ranks = Scored.of(Y, scores).by_row
    k = _places(k, ranks.shape[1])
    # k - above of the top k places are left for `tied` equal labels, filled at random: each label's
    # chance of getting one is the expected number of hits it adds.
    chance = np.clip((k - ranks.above) / ranks.tied, 0, 1)
    return min(
        float(chance.sum()) / (k * ranks.shape[0]), 1.0
    )  # rounding: three thirds may exceed 1


def ndcg_at_k(Y: LabelMatrix, scores: Scores, k: int) -> float:
    """Return the discounted gain of the k best labels over the best possible one.

    Examples
    --------
    >>> ndcg_at_k(np.array([[1, 0, 0]], dtype=bool), np.array([[0.9, 0.5, 0.1]]), k=3)
    1.0
    """
    ranks = Scored.of(Y, scores).by_row
    k = _places(k, ranks.shape[1])
    discount = np.cumsum(1 / np.log2(np.arange(2, k + 2)))
    up_to = np.concatenate([[0.0], discount])  # up_to[i]: total discount of the first i places
    # Tied labels share the places above + 1 to above + tied: each gains their mean discount, where
    # places beyond k count 0.
    bottom = np.minimum(ranks.above + ranks.tied, k)
    gain = (up_to[bottom] - up_to[np.minimum(ranks.above, k)]) / ranks.tied
    # The best order puts all relevant labels first. One hit already has discount 1, so the maximum
    # below only avoids 0 / 0 for rows without relevant labels.
    best = up_to[np.minimum(ranks.relevant, k).astype(np.int64)]
    return min(float(np.mean(ranks.total(gain) / np.maximum(best, 1))), 1.0)


def auc_by_label(Y: LabelMatrix, scores: Scores) -> npt.NDArray[np.float64]:
    """Return each label's area under the ROC curve, ``nan`` where a class is missing.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 0], [0, 0]], dtype=bool)
    >>> auc_by_label(Y, np.array([[0.5, 0.5], [0.5, 0.1], [0.1, 0.1]])).tolist()
    [0.75, nan]
    """
    return Scored.of(Y, scores).by_label.auc(tie=0.5)


def macro_auc(Y: LabelMatrix, scores: Scores, *, legacy: bool = False) -> float:
    """Return the mean AUC over labels with both classes; ``nan`` if there is none.

    `legacy` is the reading of the paper's code: a tie is a success, a label with one class counts 0.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 0], [0, 0]], dtype=bool)
    >>> scores = np.array([[0.5, 0.5], [0.5, 0.1], [0.1, 0.1]])
    >>> macro_auc(Y, scores), macro_auc(Y, scores, legacy=True)
    (0.75, 0.5)
    """
    if legacy:
        return float(np.nan_to_num(Scored.of(Y, scores).by_label.auc(tie=1)).mean())
    return _mean_where_known(auc_by_label(Y, scores))


def average_precision_by_label(Y: LabelMatrix, scores: Scores) -> npt.NDArray[np.float64]:
    """Return each label's average precision, ``nan`` for a label without positives.

    Examples
    --------
    >>> Y = np.array([[0, 0], [1, 0]], dtype=bool)
    >>> average_precision_by_label(Y, np.array([[0.9, 0.5], [0.5, 0.1]])).tolist()
    [0.5, nan]
    """
    return Scored.of(Y, scores).by_label.average_precision()


def macro_average_precision(Y: LabelMatrix, scores: Scores, only: BoolArray | None = None) -> float:
    """Return the mean average precision over labels with a positive, or over some of them.

    Examples
    --------
    >>> Y = np.array([[0, 0], [1, 0]], dtype=bool)
    >>> macro_average_precision(Y, np.array([[0.9, 0.5], [0.5, 0.1]]))
    0.5
    """
    each = average_precision_by_label(Y, scores)
    return _mean_where_known(each if only is None else each[only])


def micro_average_precision(Y: LabelMatrix, scores: Scores) -> float:
    """Return the average precision over all (row, label) cells together.

    Examples
    --------
    >>> Y = np.array([[0, 0], [1, 0]], dtype=bool)
    >>> round(micro_average_precision(Y, np.array([[0.9, 0.5], [0.5, 0.1]])), 3)
    0.333
    """
    return float(Scored.of(Y, scores).together.average_precision()[0])


def expected_calibration_error(Y: LabelMatrix, scores: Scores, *, bins: int = 15) -> float:
    """Return the mean gap between score and share of positives, over bins of all (row, label) cells.

    ECE = sum over bins of |sum of (score - label) in the bin| / number of cells. The bins hold about
    the same number of cells; equal scores share a bin.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 0]], dtype=bool)
    >>> expected_calibration_error(Y, np.array([[0.5, 0.1], [0.5, 0.1]]))
    0.05
    """
    if bins < 1:
        raise DataError(f"bins must be at least 1, got {bins}")
    case = Scored.of(Y, scores)
    labels, values = case.labels.ravel(), case.values.ravel()
    # The edges are scores, and a score belongs to the bin that ends with it, so ties stay together.
    edges = np.quantile(values, np.arange(1, bins) / bins, method="lower")
    excess = np.bincount(np.searchsorted(edges, values), weights=values - labels)
    return float(np.abs(excess).sum() / len(values))


def _places(k: int, n_labels: int) -> int:
    if k < 1:
        raise DataError(f"k must be at least 1, got {k}")
    return min(k, n_labels)


def _mean_where_known(values: npt.NDArray[np.floating]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
