"""Whether scores are probabilities: how far they are from the observed label frequencies."""

import numpy as np
import numpy.typing as npt

from tailbatch.data.dataset import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.scored import Scores, scored


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
    case = scored(Y, scores)
    return _gap(case.labels.ravel(), case.values.ravel(), bins)


def calibration_error_by_label(
    Y: LabelMatrix, scores: Scores, *, bins: int = 15
) -> npt.NDArray[np.float64]:
    """Return each label's expected calibration error, over bins of its own scores.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 0]], dtype=bool)
    >>> calibration_error_by_label(Y, np.array([[0.5, 0.1], [0.5, 0.1]])).tolist()
    [0.0, 0.1]
    """
    case = scored(Y, scores)
    pairs = zip(case.labels.T, case.values.T, strict=True)
    return np.array([_gap(labels, values, bins) for labels, values in pairs])


def _gap(labels: npt.NDArray[np.bool_], values: npt.NDArray[np.floating], bins: int) -> float:
    if bins < 1:
        raise DataError(f"bins must be at least 1, got {bins}")
    # The edges are scores, and a score belongs to the bin that ends with it, so ties stay together.
    edges = np.quantile(values, np.arange(1, bins) / bins, method="lower")
    excess = np.bincount(np.searchsorted(edges, values), weights=values - labels)
    return float(np.abs(excess).sum() / len(values))
