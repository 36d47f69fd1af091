"""Metrics with missing labels: each uses only the known ones."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from tailbatch.metrics.scored import BoolArray, FloatArray

Averages: TypeAlias = Literal["labels", "rows", "cells"]
"""The units that a metric averages over."""


class Known:
    """Labels, scores and predictions (n, q), and which labels are known.

    A metric is applied to parts in which every label is known, and averaged over them: to the known
    rows of each label, to groups of rows with the same known labels, or to all known cells as one label.

    Examples
    --------
    >>> from tailbatch.metrics import hamming_loss
    >>> Y = np.array([[1, 0], [0, 0]], dtype=bool)
    >>> known = Known(Y, Y.astype(float), ~Y, np.array([[True, False], [False, False]]))
    >>> known.measure(hamming_loss, "predictions", "cells")
    1.0
    """

    def __init__(
        self, labels: BoolArray, scores: FloatArray, predictions: BoolArray, known: BoolArray
    ) -> None:
        self._labels, self._known = labels, known
        self._values = {"scores": scores, "predictions": predictions}

    def measure(
        self,
        metric: Callable[..., float],
        needs: str,
        averages: Averages,
        minority: BoolArray | None = None,
    ) -> float:
        """Return a metric over the known labels; ``nan`` if none are left.

        Parameters
        ----------
        metric
            A function of labels and scores or predictions, and of a mask of minority labels if `minority`
            is given.
        needs
            ``"scores"`` or ``"predictions"``.
        averages
            The units that the metric averages over.
        minority
            (q,) the labels to average over; None means all.
        """
        values = self._values[needs]
        if averages == "cells":
            return metric(self._labels[self._known][:, None], values[self._known][:, None])
        if averages == "labels":
            return self._over_labels(metric, values, minority)
        return self._over_rows(metric, values)

    def _over_labels(
        self, metric: Callable[..., float], values: Any, minority: BoolArray | None
    ) -> float:
        extra = () if minority is None else (np.array([True]),)
        results = []
        for label in (
            np.arange(len(self._known.T)) if minority is None else np.flatnonzero(minority)
        ):
            rows = self._known[:, label]
            if rows.any():
                column = slice(label, label + 1)
                results.append(metric(self._labels[rows, column], values[rows, column], *extra))
        return _mean([(result, 1) for result in results])

    def _over_rows(self, metric: Callable[..., float], values: Any) -> float:
        patterns, pattern_of = np.unique(self._known, axis=0, return_inverse=True)
        results = []
        for number, columns in enumerate(patterns):
            if columns.any():
                rows = np.flatnonzero(pattern_of.ravel() == number)
                part = np.ix_(rows, np.flatnonzero(columns))
                results.append((metric(self._labels[part], values[part]), len(rows)))
        return _mean(results)


def _mean(results: list[tuple[float, int]]) -> float:
    """Return the weighted mean of values, leaving out undefined ones."""
    known = [(value, count) for value, count in results if not np.isnan(value)]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else float("nan")
