"""The paper's AdaC: each sample of a batch is drawn near the labels of the one before."""

from typing import Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.imbalance import label_cooccurrence, label_counts
from tailbatch.selection.adaptive import AdaptiveSelector
from tailbatch.selection.drawing import draw_batch, enumerate_batch
from tailbatch.selection.inputs import FloatArray, IntArray, LabelMatrix, label_matrix
from tailbatch.selection.loss_driven import LossSettings
from tailbatch.selection.schedule import Schedule

# Row numbers kept in ready-made unions of label columns: 200 MB with 32-bit row numbers.
UNION_ENTRIES = 50_000_000
# Blocks of candidates without a new sample before the rows of a chain are written down.
PATIENCE = 32
_SMALLEST_BLOCK, _LARGEST_BLOCK = 32, 256


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
    Y
        Label matrix (n, q) of the training rows.
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

    def __init__(
        self,
        weights: npt.ArrayLike,
        Y: object,
        *,
        selection_pressure: float | Schedule = 16,
        cap_quantile: float | None = None,
        **settings: Unpack[LossSettings],
    ) -> None:
        if settings.get("importance") or settings.get("importance_beta") is not None:
            raise SelectionError("chain has no importance weights: use adaptive for them")
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(
            weights,
            n_samples=labels.shape[0],
            selection_pressure=selection_pressure,
            cap_quantile=cap_quantile,
            **settings,
        )
        self._chains = LabelChains(labels)
        self._taken = np.zeros(self.n_samples, dtype=bool)  # rows of the batch being drawn

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        rng, pressure = self._streams.at(epoch, number), self._pressure(epoch)
        batch = draw_batch(self._law, 1, pressure, rng).tolist()
        # Two candidates for each one expected to be accepted make most steps succeed at once.
        block = int(min(max(2 * pressure, _SMALLEST_BLOCK), _LARGEST_BLOCK))
        try:
            for pairs in rng.random((size - 1, block, 2)):
                self._taken[batch[-1]] = True
                follower = self._follow(batch[-1], pairs, pressure, rng)
                if follower is None:
                    follower = int(draw_batch(self._law, 1, pressure, rng, taken=batch)[0])
                batch.append(follower)
        finally:
            self._taken[batch] = False
        return np.array(batch, dtype=np.int64)

    def _follow(
        self, seed_sample: int, pairs: FloatArray, pressure: float, rng: np.random.Generator
    ) -> int | None:
        """Return a draw from P restricted to the seed sample's D_c; None if there is no row."""
        label = int(self._chains.rarest[seed_sample])
        if label < 0:
            return None
        if self._chains.size(label) > 2 * len(pairs):
            for _ in range(PATIENCE):
                rows, copies = self._chains.candidates(label, pairs[:, 0])
                weights = np.exp(self._law.log_weights_of(rows, pressure))
                new = (pairs[:, 1] * copies < weights) & ~self._taken[rows]
                first = int(new.argmax())
                if new[first]:
                    return int(rows[first])
                pairs = rng.random(pairs.shape)
        rows = self._chains.rows(label)
        rows = rows[~self._taken[rows]]
        if not len(rows):
            return None
        return int(rows[enumerate_batch(self._law.log_weights_of(rows, pressure), 1, rng)[0]])


class LabelChains:
    """For each sample its rarest label, and for each label the rows D_c that may follow it.

    Parameters
    ----------
    Y
        Label matrix (n, q).

    Attributes
    ----------
    rarest
        Each sample's label of largest IRLbl (ties: the lower index), -1 without labels, shape (n,).
    companions
        L_c of each label: at most ``ceil(Card)`` labels of largest A (ties: the lower index), the
        label itself if it occurs with no other.

    Examples
    --------
    >>> chains = LabelChains(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=bool))
    >>> chains.rarest.tolist(), [labels.tolist() for labels in chains.companions]
    ([0, 1, 2, 0], [[1], [2, 0], [1]])
    >>> chains.rows(2).tolist()
    [1, 2]
    """

    def __init__(self, Y: LabelMatrix) -> None:
        counts = label_counts(Y)
        self.rarest = _rarest_labels(Y, counts)
        # Card rounded up, in integers: a float of 2.0000000001 would not do.
        cardinality = -(-int(counts.sum()) // Y.shape[0])
        cooccurrence = sparse.csr_array(label_cooccurrence(Y))
        self.companions = [
            _companions(cooccurrence, label, cardinality) for label in range(len(counts))
        ]
        self._columns, self._by_row = sparse.csc_array(Y), sparse.csr_array(Y)
        self._sizes = [int(counts[labels].sum()) for labels in self.companions]
        self._unions: dict[int, IntArray] = {}
        # Smallest first, so that as many labels as possible have their rows ready.
        ascending = np.argsort(self._sizes, kind="stable")
        total = np.cumsum(np.array(self._sizes)[ascending])
        for label in ascending[total <= UNION_ENTRIES].tolist():
            self._unions[label] = self._union(label)

    def size(self, label: int) -> int:
        """Return how many rows follow a label, counting those with several companions again."""
        return len(self._unions[label]) if label in self._unions else self._sizes[label]

    def rows(self, label: int) -> IntArray:
        """Return the rows with at least one companion of `label`, ascending."""
        return self._unions[label] if label in self._unions else self._union(label)

    def candidates(self, label: int, uniforms: FloatArray) -> tuple[IntArray, IntArray | int]:
        """Return a row for each uniform number, and how many numbers lead to that row.

        A row drawn from the columns of all companions in one comes up once for each companion that
        it has; keeping it with one over that number makes every row equally likely.
        """
        place = (uniforms * self.size(label)).astype(np.int64)
        if label in self._unions:
            return self._unions[label][place], 1
        companions = self.companions[label]
        starts = self._columns.indptr[companions].astype(np.int64)
        ends = np.cumsum(self._columns.indptr[companions + 1] - starts)
        column = np.searchsorted(ends, place, side="right")
        within = place - np.concatenate(([0], ends[:-1]))[column]
        rows: IntArray = self._columns.indices[starts[column] + within]
        return rows, self._count_companions(rows, companions)

    def _count_companions(self, rows: IntArray, companions: IntArray) -> IntArray:
        starts = self._by_row.indptr[rows].astype(np.int64)
        sizes = self._by_row.indptr[rows + 1] - starts
        first = np.cumsum(sizes) - sizes
        entries = np.arange(sizes.sum()) + np.repeat(starts - first, sizes)
        found = np.isin(self._by_row.indices[entries], companions)
        return np.asarray(np.add.reduceat(found, first, dtype=np.int64))

    def _union(self, label: int) -> IntArray:
        columns = self._columns
        parts = [
            columns.indices[columns.indptr[companion] : columns.indptr[companion + 1]]
            for companion in self.companions[label]
        ]
        return np.unique(np.concatenate(parts))


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
