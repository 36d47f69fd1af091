"""What held-out scores decide: thresholds for an objective, probabilities, and how sure both are."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from tailbatch.data.labels import LabelMatrix
from tailbatch.errors import DataError
from tailbatch.metrics.decisions import SHRINKAGE, f_by_label, tune_thresholds
from tailbatch.metrics.scored import FloatArray, Scored, dense_labels
from tailbatch.seeds import BoolArray, stream

Floats = npt.NDArray[np.float64]

_SLOPES = 0.1, 10.0  # a slope outside is chance, and one below 0 would turn the order around
_OFFSET_INFORMATION = 5.0  # positives (nearly) at which an offset is half its own
_NEWTON_STEPS, _SMALL_CHANGE = 25, 1e-5
_DRAWS = 1000
_OBJECTIVE = re.compile(r"(precision|recall)\s*>=\s*(\d*\.?\d+)")


@dataclass(frozen=True, eq=False)
class Calibration:
    """A map from logits to the logits of probabilities: one slope, and an offset for each label.

    z' = slope z + offset_j. The slope is above 0, so the order of the rows within a label stays.

    Examples
    --------
    >>> Calibration(0.5, np.array([0.0, 1.0]))(np.array([[2.0, 2.0]]))
    array([[1., 2.]])
    """

    slope: float
    offsets: Floats

    def __call__(self, logits: FloatArray) -> Floats:
        """Return the logits (n, q) of calibrated probabilities."""
        return np.asarray(self.slope * logits.astype(np.float64) + self.offsets)

    @classmethod
    def fit(cls, Y: LabelMatrix, logits: FloatArray, known: BoolArray | None = None) -> Self:
        """Return the map that is likeliest for held-out rows, by Newton's method.

        Each label's offset is pulled to the common one, as hard as a few positives pull it away.

        Parameters
        ----------
        Y, logits
            (n, q) labels and logits of rows that the model has not seen.
        known
            (n, q) which cells count; None for all.
        """
        z, labels = logits.astype(np.float64), dense_labels(Y)
        counts = np.ones(z.shape) if known is None else known.astype(np.float64)
        slope, common, own = 1.0, 0.0, np.zeros(z.shape[1])
        for _ in range(_NEWTON_STEPS):
            before = slope, common
            error, information = _residuals(slope * z + common + own, labels, counts)
            pull = information.sum(0) + _OFFSET_INFORMATION
            own = own + np.clip((error.sum(0) - _OFFSET_INFORMATION * own) / pull, -1, 1)
            error, information = _residuals(slope * z + common + own, labels, counts)
            tilted = information * z
            hessian = np.array(
                [[(tilted * z).sum(), tilted.sum()], [tilted.sum(), information.sum()]]
            )
            gradient = np.array([(error * z).sum(), error.sum()])
            step = np.linalg.solve(hessian + 1e-6 * np.eye(2), gradient).clip(-0.5, 0.5)
            slope, common = float(np.clip(slope + step[0], *_SLOPES)), float(common + step[1])
            if max(abs(slope - before[0]), abs(common - before[1])) < _SMALL_CHANGE:
                break
        return cls(slope, common + own)


def _residuals(logits: Floats, labels: BoolArray, counts: Floats) -> tuple[Floats, Floats]:
    """Return y - p and p (1 - p) of the cells that count, (n, q)."""
    p = expit(logits)
    return counts * (labels - p), counts * p * (1 - p)


def thresholds_for(
    Y: LabelMatrix, probabilities: FloatArray, objective: str = "f1"
) -> npt.NDArray[np.float64]:
    """Return the probability above which each label is predicted, (q,), for an objective.

    ``"f1"`` is `tune_thresholds`. ``"precision>=0.9"`` predicts as many rows as it may, and
    ``"recall>=0.8"`` as few. Precision and recall are estimated from the positives among the rows above,
    and the fewer positives P a label has, the more from what its probabilities expect:

        w (positives above) + (1 - w) (sum of the probabilities above),    w = P / (P + 20)

    Parameters
    ----------
    Y, probabilities
        (n, q) labels and calibrated probabilities of held-out rows.
    objective
        The same for all labels.

    Examples
    --------
    >>> Y = np.array([[1], [1], [0], [1], [0], [0]], dtype=bool)
    >>> p = np.array([[0.9], [0.8], [0.5], [0.4], [0.1], [0.1]])
    >>> thresholds_for(Y, p, "precision>=0.8").round(2), thresholds_for(Y, p, "recall>=0.9").round(2)
    (array([0.65]), array([0.25]))
    """
    kind, level = parse_objective(objective)
    if kind == "f1":
        return tune_thresholds(Y, probabilities)
    case = Scored(Y, probabilities)
    return np.array(
        [
            _threshold(case.labels[:, j], case.values[:, j].astype(np.float64), kind, level)
            for j in range(case.labels.shape[1])
        ]
    )


def parse_objective(objective: object) -> tuple[str, float]:
    """Return what an objective is about and the level to reach, or say what objectives there are.

    Examples
    --------
    >>> parse_objective("recall>=0.8"), parse_objective("f1")
    (('recall', 0.8), ('f1', 0.0))
    """
    if objective == "f1":
        return "f1", 0.0
    found = _OBJECTIVE.fullmatch(objective.strip()) if isinstance(objective, str) else None
    if found is None or not 0 < float(found[2]) < 1:
        raise DataError(
            'objective must be "f1", or a level between 0 and 1 such as "precision>=0.9" or '
            f'"recall>=0.8", got {objective!r:.60}'
        )
    return found[1], float(found[2])


def _threshold(labels: BoolArray, scores: Floats, kind: str, level: float) -> float:
    """Return the threshold of one label (n,) that keeps a precision or recall."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    positives = int(labels.sum())
    share = positives / (positives + SHRINKAGE)
    hits = share * np.cumsum(labels[order]) + (1 - share) * np.cumsum(ordered)
    below = np.append(ordered[1:], 0.0)
    ends = below < ordered  # no threshold separates equal scores
    if kind == "precision":
        good = np.flatnonzero(ends & (hits >= level * np.arange(1, len(hits) + 1)))
        if not good.size:  # nothing can be promised, so nothing is predicted
            return float((1 + ordered[0]) / 2)
        last = good[-1]
    else:
        last = np.flatnonzero(ends & (hits >= level * hits[-1]))[0] if ends.any() else 0
    return float(np.clip((ordered[last] + below[last]) / 2, 1e-9, 1 - 1e-9))


def f_intervals(
    Y: LabelMatrix, predictions: BoolArray, *, level: float = 0.95, seed: int = 0
) -> tuple[Floats, Floats]:
    """Return the ends of an interval of each label's F, (q,) each, by a stratified bootstrap of rows.

    Drawing a label's positives and negatives anew, each as many as there are, makes the numbers of hits
    and of false alarms binomial; so they are drawn. nan without positives.

    Examples
    --------
    >>> Y = np.arange(100)[:, None] < 10
    >>> low, high = f_intervals(Y, np.arange(100)[:, None] < 8)
    >>> low.round(1), high.round(1)
    (array([0.7]), array([1.]))
    """
    labels, decided = dense_labels(Y), dense_labels(predictions)
    positives, n = labels.sum(axis=0), len(labels)
    hits = (labels & decided).sum(axis=0)
    alarms, negatives = decided.sum(axis=0) - hits, n - positives
    draws = stream(seed, "f intervals")
    size = _DRAWS, len(hits)
    drawn = draws.binomial(positives, hits / np.maximum(positives, 1), size)
    false = draws.binomial(negatives, alarms / np.maximum(negatives, 1), size)
    f = 2 * drawn / np.maximum(positives + drawn + false, 1)
    low, high = np.quantile(f, [(1 - level) / 2, (1 + level) / 2], axis=0)
    some = positives > 0
    return np.where(some, low, np.nan), np.where(some, high, np.nan)


def cross_tuned_f(
    Y: LabelMatrix, probabilities: FloatArray, part: npt.NDArray[np.int64], objective: str = "f1"
) -> tuple[BoolArray, Floats]:
    """Return each part's decisions (n, q) by the thresholds of the other parts, and each label's F.

    Thresholds look best on the rows that chose them; this is what to expect of new rows.

    Examples
    --------
    >>> Y = np.tile(np.eye(2, dtype=bool), (6, 1))
    >>> decided, f = cross_tuned_f(Y, np.where(Y, 0.9, 0.1), np.repeat([0, 1, 2], 4))
    >>> f
    array([1., 1.])
    """
    labels = dense_labels(Y)
    decided = np.zeros(labels.shape, dtype=bool)
    for number in np.unique(part):
        inside = part == number
        limits = thresholds_for(labels[~inside], probabilities[~inside], objective)
        decided[inside] = probabilities[inside] > limits
    return decided, f_by_label(labels, decided)
