"""Checked labels and scores, and the positions of the relevant entries among the others."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tailbatch.data.labels import LabelMatrix, checked_labels
from tailbatch.errors import DataError
from tailbatch.seeds import BoolArray, IntArray

FloatArray: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.float32]
Keys: TypeAlias = npt.NDArray[Any]  # int32 for float32 scores, int64 for float64

BLOCK_ENTRIES = 2**17  # sorted at a time, so that they fit in the processor's cache


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The positions of the relevant entries in each group of scores, one value per relevant entry.

    Parameters
    ----------
    shape
        Number of groups, and of entries in each.
    group
        The entry's group, ascending.
    above, tied
        Number of entries of the group that score higher, and that score the same (including itself).
    relevant_above, relevant_tied
        The same, counting only relevant entries.
    """

    shape: tuple[int, int]
    group: IntArray
    above: IntArray
    tied: IntArray
    relevant_above: IntArray
    relevant_tied: IntArray

    @property
    def relevant(self) -> npt.NDArray[np.float64]:
        """Number of relevant entries of each group."""
        return self.total(np.ones(len(self.group)))

    def total(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Sum values of relevant entries within each group."""
        totals = np.bincount(self.group, weights=values, minlength=self.shape[0])
        return totals.astype(np.float64, copy=False)

    def precision(self) -> npt.NDArray[np.float64]:
        """Share of relevant entries among those that score at least as high."""
        hits = self.relevant_above + self.relevant_tied
        return np.asarray(hits / (self.above + self.tied))

    def average_precision(self) -> npt.NDArray[np.float64]:
        """Mean precision at the relevant entries of each group; ``nan`` without any."""
        # Ties rank above the relevant entry, as in scikit-learn.
        mean = np.full(self.shape[0], np.nan)
        relevant = self.relevant
        np.divide(self.total(self.precision()), relevant, out=mean, where=relevant > 0)
        return mean

    def auc(self, *, tie: float) -> npt.NDArray[np.float64]:
        """Share of (relevant, irrelevant) pairs in the right order, a tie counting `tie`; or ``nan``."""
        # The Mann-Whitney form. For each relevant entry: all irrelevant ones, minus those above it, minus
        # the lost part of those tied with it.
        relevant = self.relevant
        irrelevant = self.shape[1] - relevant
        above = self.above - self.relevant_above
        tied = self.tied - self.relevant_tied
        wins = self.total(irrelevant[self.group] - above - (1 - tie) * tied)
        area = np.full(self.shape[0], np.nan)
        np.divide(wins, relevant * irrelevant, out=area, where=relevant * irrelevant > 0)
        return area


class Scored:
    """Checked labels and scores, sorted once for several metrics.

    Every metric of scores accepts it in place of the scores. Both are (n, q), scores in [0, 1].

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 1]], dtype=bool)
    >>> scored = Scored(Y, np.array([[0.9, 0.2], [0.1, 0.7]]))
    >>> scored.by_row.above.tolist()  # no label of its row scores higher
    [0, 0]
    """

    def __init__(self, Y: LabelMatrix, scores: npt.ArrayLike) -> None:
        self.labels = dense_labels(Y)
        self.values = _checked_scores(scores, self.labels.shape)

    @classmethod
    def of(cls, Y: LabelMatrix, scores: "Scores") -> "Scored":
        """Return scores with their sorts, computed now unless they already exist."""
        return scores if isinstance(scores, Scored) else cls(Y, scores)

    @cached_property
    def by_row(self) -> _Ranking:
        """Labels ranked within each row."""
        return _rank(self.labels, self.values)

    @cached_property
    def by_label(self) -> _Ranking:
        """Rows ranked within each label."""
        return _rank(self.labels.T, self.values.T)

    @cached_property
    def together(self) -> _Ranking:
        """All (row, label) cells ranked as one group."""
        return _rank(self.labels.reshape(1, -1), self.values.reshape(1, -1))


Scores: TypeAlias = FloatArray | Scored


def dense_labels(Y: LabelMatrix) -> BoolArray:
    """Return checked labels as a dense boolean array."""
    labels = checked_labels(Y)
    return labels if isinstance(labels, np.ndarray) else labels.toarray()


def _checked_scores(scores: npt.ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return scores in float32 or float64, or name the first one outside [0, 1]."""
    values = np.asarray(scores)
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if values.shape != shape:
        raise DataError(f"scores have shape {values.shape}, the labels {shape}")
    if not (values.min() >= 0 and values.max() <= 1):
        row, label = np.argwhere(~((values >= 0) & (values <= 1)))[0].tolist()
        raise DataError(
            f"scores must lie in [0, 1], got {values[row, label]} in row {row}, label {label} "
            "(logits need a sigmoid)"
        )
    return values


def _rank(labels: BoolArray, scores: FloatArray) -> _Ranking:
    """Rank the entries of each row of the two arrays, a block of rows at a time."""
    n_groups, size = labels.shape
    step = max(1, BLOCK_ENTRIES // size)
    blocks = [
        _rank_block(labels[start : start + step], scores[start : start + step], start)
        for start in range(0, n_groups, step)
    ]
    columns = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return _Ranking((n_groups, size), *columns)


def _rank_block(labels: BoolArray, scores: FloatArray, start: int) -> tuple[IntArray, ...]:
    """Return the columns of a `_Ranking` whose first group has number `start`.

    Most entries are irrelevant, so everything after the sort works only on the relevant ones.
    """
    size = labels.shape[1]
    # Keys ascend within each group, and their lowest bit says whether the entry is relevant.
    keys = sorted_keys(labels, scores).ravel()
    at = np.flatnonzero((keys.astype(np.uint8) & 1).view(bool))
    group, position = np.divmod(at, size)
    # Relevant entries of one group with equal scores are adjacent: a run. All of a run's entries have the
    # same counts, so they are computed once per run, at its first entry, and repeated at the end.
    key = keys[at]
    begins = np.ones(len(at), dtype=bool)
    begins[1:] = (key[1:] != key[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(begins)
    length = np.diff(first, append=len(at))
    ties = _irrelevant_ties(keys, size, at[first])
    # Within a tie irrelevant entries come first, so all that follows a run scores strictly higher.
    above = size - (position[first] + length)
    # Relevant entries up to the end of a run's group, minus those up to the end of the run.
    relevant_so_far = np.cumsum(np.bincount(group, minlength=len(labels)))
    relevant_above = relevant_so_far[group[first]] - (first + length)
    runs = (above, ties + length, relevant_above, length)
    return start + group, *(np.repeat(column, length) for column in runs)


def sorted_keys(labels: BoolArray, scores: FloatArray) -> Keys:
    """Return integers that order each row by score, relevant entries last among equals.

    The bits of floats from 0 to 1, read as integers, sort in the same order and leave the top two bits
    free. So score and relevance fit into one integer, 2 * bits + relevance, and one integer sort replaces
    an argsort of the scores and a gather of the labels, which take several times as long.
    """
    values = np.add(
        scores, 0, order="C"
    )  # a copy to work in; -0 + 0 is 0, so zeros have equal bits
    keys: Keys = values.view(np.int32 if values.dtype == np.float32 else np.int64)
    keys += keys
    keys += np.ascontiguousarray(labels).view(np.int8)
    keys.sort(axis=1)
    return keys


def _irrelevant_ties(keys: Keys, size: int, first: IntArray) -> IntArray:
    """Return how many irrelevant entries directly before each run have the same score."""
    # Relevance is the lowest bit: an irrelevant entry with the same score has the next lower key.
    same = (first % size > 0) & (keys[first - 1] == keys[first] - 1)
    ties = np.zeros(len(first), dtype=np.int64)
    if same.any():  # rare for a network's scores, and the search is expensive
        # Cut all entries, relevant or not, into stretches of equal score within a group. Irrelevant
        # entries come first, so their number is the distance from the start of the stretch to the run.
        score = keys >> 1
        begins = np.ones(len(keys), dtype=bool)
        begins[1:] = score[1:] != score[:-1]
        begins[::size] = True
        starts = np.flatnonzero(begins)
        ties = first - starts[np.searchsorted(starts, first, side="right") - 1]
    return ties
