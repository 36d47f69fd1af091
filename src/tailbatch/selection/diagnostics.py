"""What a selector has been doing: figures worked out only when somebody looks."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.imbalance import minority_labels
from tailbatch.selection.inputs import FloatArray, LabelMatrix

_ROWS_AT_ONCE = 65536


@dataclass(frozen=True)
class SelectionDiagnostics:
    """A look at a selector: how far from uniform it draws, and what it drew this epoch.

    Attributes
    ----------
    epoch, batches
        The epoch under way (or next) and the batches drawn in it.
    effective_sample_size
        ``1 / sum p_i^2``: from 1 to n, n when the law is uniform.
    effective_pressure
        ``max p_i / min p_i``: what the selection pressure comes to with the losses at hand.
    distinct_share
        Share of the n samples drawn at least once this epoch.
    label_exposure
        For each label, its share of this epoch's draws over its share of the rows; 1 is what a
        shuffled epoch gives. NaN for a label without positives or before the first draw; None
        when the selector does not know the labels.
    minority_share
        Share of this epoch's draws that carry a minority label; None as above.
    seconds
        Time spent drawing and observing since the selector was made.
    lag
        Most batches that were pending when another one was drawn.
    dropped_batches
        Batches whose losses never came because their epoch was left early.

    Examples
    --------
    >>> from tailbatch.selection import UniformSelector
    >>> selector = UniformSelector(8, batch_size=4, labels=[[1, 0]] * 4 + [[0, 1]] * 4)
    >>> _ = list(selector)
    >>> report = selector.diagnostics()
    >>> report.effective_sample_size, report.effective_pressure, report.lag
    (8.0, 1.0, 0)
    """

    epoch: int
    batches: int
    effective_sample_size: float
    effective_pressure: float
    distinct_share: float
    label_exposure: FloatArray | None
    minority_share: float | None
    seconds: float
    lag: int
    dropped_batches: int


def label_exposure(labels: LabelMatrix, times_drawn: npt.NDArray[np.int32]) -> FloatArray:
    """Return each label's share of the draws over its share of the rows, shape (q,).

    Examples
    --------
    >>> label_exposure(np.array([[True, False], [False, True]]), np.array([3, 1], np.int32))
    array([1.5, 0.5])
    """
    drawn = _labels_drawn(labels, times_drawn) / max(int(times_drawn.sum()), 1)
    rows = _labels_drawn(labels, np.ones_like(times_drawn)) / labels.shape[0]
    known = (rows > 0) & bool(times_drawn.any())
    exposure: FloatArray = np.full(len(rows), np.nan)
    np.divide(drawn, rows, out=exposure, where=known)
    return exposure


def minority_share(labels: LabelMatrix, times_drawn: npt.NDArray[np.int32]) -> float:
    """Return the share of the draws whose sample carries a minority label; 0 without draws."""
    minority = minority_labels(labels)
    rows = np.asarray(labels[:, np.flatnonzero(minority)].sum(axis=1)).ravel() > 0
    return float(times_drawn[rows].sum()) / max(int(times_drawn.sum()), 1)


def _labels_drawn(labels: LabelMatrix, times_drawn: npt.NDArray[np.int32]) -> FloatArray:
    if sparse.issparse(labels):
        return np.asarray(labels.T.astype(np.float64) @ times_drawn)
    # In pieces: NumPy would otherwise copy the whole label matrix as floats.
    starts = range(0, len(labels), _ROWS_AT_ONCE)
    pieces = [slice(start, start + _ROWS_AT_ONCE) for start in starts]
    counts = [times_drawn[rows].astype(np.float64) @ labels[rows] for rows in pieces]
    return np.asarray(np.sum(counts, axis=0))
