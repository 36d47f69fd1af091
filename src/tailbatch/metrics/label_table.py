"""How well each label is predicted: the metrics of single labels, side by side."""

import numpy as np
import numpy.typing as npt

from tailbatch.data.dataset import LabelMatrix
from tailbatch.metrics.decisions import decide, f_by_label
from tailbatch.metrics.ranking import auc_by_label, average_precision_by_label
from tailbatch.metrics.scored import FloatArray, Scored


def by_label(
    Y: LabelMatrix, scores: FloatArray, thresholds: npt.ArrayLike = 0.5
) -> dict[str, npt.NDArray[np.float64]]:
    r"""Return each label's number of positives and how well it is predicted, (q,) each.

    Precision is :math:`TP / (TP + FP)`, nan if a label is never predicted; recall is
    :math:`TP / (TP + FN)`, nan without positives, as are AP and AUC.

    Parameters
    ----------
    Y
        (n, q) labels.
    scores
        (n, q) scores in [0, 1].
    thresholds
        One for all labels, or one per label; a label is predicted if its score is above it.

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
