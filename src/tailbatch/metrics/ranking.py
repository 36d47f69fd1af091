"""Metrics of the order in which scores put labels or rows.

They all follow from the positions of the relevant entries (`Ranking`), so one sort serves them all,
and equal scores count the same whatever the order of the labels.
"""

import numpy as np
import numpy.typing as npt

from tailbatch.data.dataset import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.scored import BoolArray, Ranking, Scores, dense_labels, scored


def ranking_loss(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean share of (relevant, irrelevant) label pairs of a row in the wrong order.

    Examples
    --------
    >>> Y = np.array([[1, 0, 0]], dtype=bool)
    >>> ranking_loss(Y, np.array([[0.5, 0.5, 0.1]]))
    0.5
    """
    ranks = scored(Y, scores).by_row
    relevant = ranks.relevant
    # A pair is wrong if the irrelevant label scores as high or higher: count, for each relevant label,
    # all labels at or above it, minus the relevant ones among them.
    wrong = ranks.total(ranks.above + ranks.tied - ranks.relevant_above - ranks.relevant_tied)
    pairs = relevant * (ranks.shape[1] - relevant)
    return float(np.mean(wrong / np.maximum(pairs, 1)))


def one_error(Y: LabelMatrix, scores: Scores) -> float:
    """Return the share of rows whose top label is irrelevant.

    Examples
    --------
    >>> one_error(np.array([[1, 0, 0]], dtype=bool), np.array([[0.5, 0.5, 0.1]]))
    0.5
    """
    return 1 - precision_at_k(Y, scores, k=1)


def one_error_legacy(Y: LabelMatrix, scores: Scores) -> float:
    """Return the one error as the paper's code computes it: the first of equal labels is on top.

    Examples
    --------
    >>> one_error_legacy(np.array([[1, 0, 0]], dtype=bool), np.array([[0.5, 0.5, 0.1]]))
    0.0
    """
    case = scored(Y, scores)
    top = case.values.argmax(axis=1)
    return float(np.mean(~case.labels[np.arange(len(top)), top]))


def coverage(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean number of top labels needed to cover all relevant ones.

    Examples
    --------
    >>> coverage(np.array([[1, 0, 1]], dtype=bool), np.array([[0.9, 0.5, 0.1]]))
    3.0
    """
    ranks = scored(Y, scores).by_row
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
    ranks = scored(Y, scores).by_row
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
    ranks = scored(Y, scores).by_row
    k = _places(k, ranks)
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
    ranks = scored(Y, scores).by_row
    k = _places(k, ranks)
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
    return _auc(scored(Y, scores).by_label, tie=0.5)


def macro_auc(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean AUC over labels with both classes; see `scored_labels` for how many.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 0], [0, 0]], dtype=bool)
    >>> macro_auc(Y, np.array([[0.5, 0.5], [0.5, 0.1], [0.1, 0.1]]))
    0.75
    """
    return _mean_where_known(auc_by_label(Y, scores))


def macro_auc_legacy(Y: LabelMatrix, scores: Scores) -> float:
    """Return Macro-AUC as the paper's code computes it: a tie is a success, a missing class is 0.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 0], [0, 0]], dtype=bool)
    >>> macro_auc_legacy(Y, np.array([[0.5, 0.5], [0.5, 0.1], [0.1, 0.1]]))
    0.5
    """
    return float(np.nan_to_num(_auc(scored(Y, scores).by_label, tie=1)).mean())


def scored_labels(Y: LabelMatrix) -> int:
    """Return the number of labels with both classes, those that `macro_auc` averages.

    Examples
    --------
    >>> scored_labels(np.array([[1, 0, 1], [0, 0, 1]], dtype=bool))
    1
    """
    labels = dense_labels(Y)
    return int(np.count_nonzero(labels.any(axis=0) & ~labels.all(axis=0)))


def average_precision_by_label(Y: LabelMatrix, scores: Scores) -> npt.NDArray[np.float64]:
    """Return each label's average precision, ``nan`` for a label without positives.

    Examples
    --------
    >>> Y = np.array([[0, 0], [1, 0]], dtype=bool)
    >>> average_precision_by_label(Y, np.array([[0.9, 0.5], [0.5, 0.1]])).tolist()
    [0.5, nan]
    """
    return _average_precision(scored(Y, scores).by_label)


def macro_average_precision(Y: LabelMatrix, scores: Scores) -> float:
    """Return the mean average precision over labels with a positive.

    Examples
    --------
    >>> Y = np.array([[0, 0], [1, 0]], dtype=bool)
    >>> macro_average_precision(Y, np.array([[0.9, 0.5], [0.5, 0.1]]))
    0.5
    """
    return _mean_where_known(average_precision_by_label(Y, scores))


def micro_average_precision(Y: LabelMatrix, scores: Scores) -> float:
    """Return the average precision over all (row, label) cells together.

    Examples
    --------
    >>> Y = np.array([[0, 0], [1, 0]], dtype=bool)
    >>> round(micro_average_precision(Y, np.array([[0.9, 0.5], [0.5, 0.1]])), 3)
    0.333
    """
    return float(_average_precision(scored(Y, scores).together)[0])


def minority_average_precision(Y: LabelMatrix, scores: Scores, minority: BoolArray) -> float:
    """Return the mean average precision over minority labels with a positive.

    Examples
    --------
    >>> Y = np.array([[1, 0], [1, 1]], dtype=bool)
    >>> minority_average_precision(Y, np.array([[0.9, 0.5], [0.5, 0.1]]), np.array([False, True]))
    0.5
    """
    return _mean_where_known(average_precision_by_label(Y, scores)[minority])


def _places(k: int, ranks: Ranking) -> int:
    if k < 1:
        raise DataError(f"k must be at least 1, got {k}")
    return min(k, ranks.shape[1])


def _auc(ranks: Ranking, *, tie: float) -> npt.NDArray[np.float64]:
    # The Mann-Whitney form of AUC: the share of (positive, negative) pairs in which the positive scores
    # higher, where a tie counts `tie`. For each positive: all negatives, minus those above it, minus the
    # lost part of those tied with it.
    relevant = ranks.relevant
    irrelevant = ranks.shape[1] - relevant
    above = ranks.above - ranks.relevant_above
    tied = ranks.tied - ranks.relevant_tied
    wins = ranks.total(irrelevant[ranks.group] - above - (1 - tie) * tied)
    area = np.full(ranks.shape[0], np.nan)
    np.divide(wins, relevant * irrelevant, out=area, where=relevant * irrelevant > 0)
    return area


def _average_precision(ranks: Ranking) -> npt.NDArray[np.float64]:
    # Precision is taken at each positive, with ties ranked above it (as in scikit-learn).
    mean = np.full(ranks.shape[0], np.nan)
    np.divide(ranks.total(ranks.precision()), ranks.relevant, out=mean, where=ranks.relevant > 0)
    return mean


def _mean_where_known(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
