"""The paper's AdaC: each sample of a batch is drawn near the labels of the one before."""

from collections.abc import Iterator
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.imbalance import label_cooccurrence, label_counts
from tailbatch.seeds import IntArray
from tailbatch.selection.base import label_matrix
from tailbatch.selection.drawing import _enumerate_batch
from tailbatch.selection.inputs import LabelMatrix
from tailbatch.selection.loss_driven import AdaptiveSelector, Schedule, _LossSettings

# Row numbers kept in ready-made unions of label columns: 200 MB with 32-bit row numbers.
UNION_ENTRIES = 50_000_000
# Blocks of candidates without a new sample before the rows of a chain are written down.
PATIENCE = 32
# Rows of a chain, as a multiple of a block of candidates, up to which writing them down is cheaper.
PROPOSE_ABOVE = 2
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 1024


class ChainSelector(AdaptiveSelector):
    """Adaptive selection that follows label correlations from sample to sample (AdaC).

    The first sample comes from the adaptive law P. Of each sample's labels the rarest, l_j, names
    the next step: the ``ceil(Card)`` labels that occur most with l_j (the matrix A) make up L_c, and
    the next sample comes from P restricted to the rows D_c with a label of L_c that are not in the
    batch. A sample without labels, or an empty D_c, is followed by a draw from P over all rows
    not in the batch. `probabilities` shows P.

    Parameters
    ----------
    weights
        Selection weights (n,), or one number for all rows.
    selection_pressure, cap_quantile
        As for `AdaptiveSelector`.
    **settings
        As for `LossDrivenSelector`, but without importance weights: the chance of a sample depends
        on the one before, so those of P would be wrong.

    Examples
    --------
    >>> Y = [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]]
    >>> selector = ChainSelector(1.0, Y, batch_size=4)
    >>> sorted(next(iter(selector)).tolist())
    [0, 1, 2, 3]
    """

    strategy: str = "chain"
    place = 5
    _uncorrectable = (
        "chain has no importance weights and cannot be corrected: a sample's chance depends on "
        "the one before it, so no weight of its own undoes it; use adaptive for them"
    )

    def __init__(
        self,
        weights: npt.ArrayLike,
        Y: object,
        *,
        selection_pressure: float | Schedule = 16,
        cap_quantile: float | None = None,
        **settings: Unpack[_LossSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(
            weights,
            n_samples=labels.shape[0],
            selection_pressure=selection_pressure,
            cap_quantile=cap_quantile,
            **settings,
        )
        self._Y = labels
        self._chains = _LabelChains(labels)
        self._taken = np.zeros(self.n_samples, dtype=bool)  # rows of the batch being drawn

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "Y": sparse.csr_array(self._Y)}

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        rng, pressure = self._streams.at(epoch, number), self._pressure(epoch)
        block = int(min(max(4 * pressure, _SMALLEST_BLOCK), _LARGEST_BLOCK))
        batch = self._law.draw(1, pressure, rng, block=block).tolist()
        # The law does not change within a batch, so the draws that may follow a label are
        # independent of the steps that use them: those left over serve the label's next step.
        followers: dict[int, Iterator[int]] = {-1: iter(())}
        try:
            while len(batch) < size:
                self._taken[batch[-1]] = True
                label = int(self._chains.rarest[batch[-1]])
                if label not in followers:
                    followers[label] = self._followers(label, block, pressure, rng)
                follower = next(followers[label], None)
                if follower is None:
                    (follower,) = self._law.draw(
                        1, pressure, rng, taken=batch, block=block
                    ).tolist()
                batch.append(follower)
        finally:
            self._taken[batch] = False
        return np.array(batch, dtype=np.int64)

    def _followers(
        self, label: int, block: int, pressure: float, rng: np.random.Generator
    ) -> Iterator[int]:
        """Draw from P restricted to the label's D_c and not in the batch, until no row is left."""
        size = self._chains.size(label)
        fruitless = 0 if size > PROPOSE_ABOVE * block else PATIENCE
        while fruitless < PATIENCE:
            fruitless += 1
            uniforms, others = rng.random((2, block))
            places = (uniforms * size).astype(np.int64)
            rows = self._chains.rows_at(label, places)
            accepted = np.flatnonzero(self._law.passes(rows, self._law.bars(others, pressure)))
            for place, row in zip(places[accepted].tolist(), rows[accepted].tolist(), strict=True):
                if not self._taken[row] and self._chains.is_first(label, place, row):
                    fruitless = 0
                    yield row
        rows = self._chains.rows(label)
        rows = rows[~self._taken[rows]]
        order = _enumerate_batch(self._law.log_weights_of(rows, pressure), len(rows), rng)
        # Rows drawn by other labels meanwhile fall away; the order of the rest is still a draw.
        yield from (row for row in rows[order].tolist() if not self._taken[row])


class _LabelChains:
    """For each sample its rarest label, and for each label the rows D_c that may follow it.

    ``rarest`` is each sample's label of largest IRLbl (ties: the lower index), -1 without labels.
    ``companions`` is L_c of each label: at most ``ceil(Card)`` labels of largest A (ties: the lower
    index), the label itself if it occurs with no other.
    """

    def __init__(self, Y: LabelMatrix) -> None:
        counts = label_counts(Y)
        self.rarest = _rarest_labels(Y, counts)
        # Card rounded up, in integers: a float of 2.0000000001 would not do.
        cardinality = -(-int(counts.sum()) // Y.shape[0])
        cooccurrence = sparse.csr_array(label_cooccurrence(Y))
        self._columns, self._by_row = sparse.csc_array(Y), sparse.csr_array(Y)
        self.companions: list[IntArray] = []
        self._sizes: list[int] = []  # entries in the columns of each label's companions
        for label in range(len(counts)):
            self.companions.append(_companions(cooccurrence, label, cardinality))
            self._sizes.append(int(counts[self.companions[label]].sum()))
        self._unions: dict[int, IntArray] = {}
        self._spans: dict[int, tuple[IntArray, IntArray]] = {}
        # Smallest first, so that as many labels as possible have their rows ready.
        total = 0
        for label in np.argsort(self._sizes, kind="stable").tolist():
            total += self._sizes[label]
            if total <= UNION_ENTRIES:
                self._unions[label] = self._union(label)
            else:
                self._spans[label] = self._span(label)

    def size(self, label: int) -> int:
        """Return the number of places of a label: its rows, or its companions' columns in a row."""
        return len(self._unions[label]) if label in self._unions else self._sizes[label]

    def rows(self, label: int) -> IntArray:
        """Return the rows with at least one companion of `label`, ascending."""
        return self._unions[label] if label in self._unions else self._union(label)

    def rows_at(self, label: int, places: IntArray) -> IntArray:
        """Return the rows at places from 0 to `size`; without a ready union some come up twice."""
        if label in self._unions:
            return self._unions[label][places]
        offsets, ends = self._spans[label]
        return np.asarray(
            self._columns.indices[places + offsets[np.searchsorted(ends, places, side="right")]]
        )

    def is_first(self, label: int, place: int, row: int) -> bool:
        """Say whether this place is the first that holds the row, so that each row counts once."""
        if label in self._unions:
            return True
        column = np.searchsorted(self._spans[label][1], place, side="right")
        own = self._by_row.indices[self._by_row.indptr[row] : self._by_row.indptr[row + 1]].tolist()
        return not any(earlier in own for earlier in self.companions[label][:column].tolist())

    def _span(self, label: int) -> tuple[IntArray, IntArray]:
        """Return what leads from a place to the columns' entries, and where each column ends."""
        companions = self.companions[label]
        starts = self._columns.indptr[companions].astype(np.int64)
        sizes = self._columns.indptr[companions + 1] - starts
        ends = np.cumsum(sizes)
        return starts - (ends - sizes), ends

    def _union(self, label: int) -> IntArray:
        rows = self._columns[:, self.companions[label]].indices
        if len(rows) < self._columns.shape[0] // 16:
            return np.unique(rows)
        # Marking many rows is far faster than sorting them.
        marked = np.zeros(self._columns.shape[0], dtype=bool)
        marked[rows] = True
        return np.flatnonzero(marked).astype(rows.dtype)


def _rarest_labels(Y: LabelMatrix, counts: IntArray) -> IntArray:
    """Return each row's label with the fewest positives, which has the largest IRLbl (Eq. 1)."""
    by_rarity = np.argsort(counts, kind="stable")
    place = np.argsort(by_rarity)
    first = np.full(Y.shape[0], len(counts))
    rows, labels = Y.nonzero()
    np.minimum.at(first, rows, place[labels])
    return np.asarray(np.append(by_rarity, -1)[first])


def _companions(cooccurrence: sparse.csr_array, label: int, cardinality: int) -> IntArray:
    """Return the labels that occur most with `label`, or itself if there is none."""
    start, end = cooccurrence.indptr[label], cooccurrence.indptr[label + 1]
    labels, strength = cooccurrence.indices[start:end], cooccurrence.data[start:end]
    strongest = labels[np.lexsort((labels, -strength))][:cardinality].astype(np.int64)
    return strongest if len(strongest) else np.array([label])
