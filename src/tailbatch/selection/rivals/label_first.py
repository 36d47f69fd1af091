"""Strategies that choose labels first, then rows that carry them."""

from typing import Any, Unpack

import numpy as np
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.imbalance import label_counts
from tailbatch.seeds import FloatArray, IntArray, stream
from tailbatch.selection.base import Selector, _LawSettings, _whole_number, label_matrix
from tailbatch.selection.drawing import StaticLaw
from tailbatch.selection.inputs import LabelMatrix
from tailbatch.selection.rarity import _rarity

_PATIENCE = 32  # fruitless proposals before the rows of a label are written down


def _class_aware_probabilities(Y: LabelMatrix, floor: float) -> FloatArray:
    """Return each row's chance if a label is drawn first, then one of its rows, shape (n,).

    ``p_i = (1 - floor n_0 / n) / q' * sum over the labels j of i of 1 / n_j``, where q' labels have
    rows and n_0 rows have no label; those have ``p_i = floor / n``.
    """
    n = Y.shape[0]
    counts = label_counts(Y)
    with np.errstate(divide="ignore"):
        share = np.where(counts > 0, 1 / counts, 0.0) / np.count_nonzero(counts)
    p: FloatArray = np.asarray(sparse.csr_array(Y) @ share)
    without = _rows_without_labels(Y)
    p *= 1 - floor * len(without) / n
    p[without] = floor / n
    return p


class _LabelCycle:
    """Labels that have rows, in a shuffled cycle: all once in random order, then all in a new order."""

    def __init__(self, Y: LabelMatrix, seed: int) -> None:
        self.labels: IntArray = np.flatnonzero(label_counts(Y))
        self._seed = seed
        self._latest: tuple[int, int, IntArray] = -1, -1, self.labels

    def at(self, epoch: int, start: int, size: int) -> IntArray:
        """Return `size` labels of an epoch's cycles from place `start` on."""
        q = len(self.labels)
        first = start // q
        cycles = [self._cycle(epoch, first + i) for i in range(-(-(start % q + size) // q))]
        return np.concatenate([self.labels[:0], *cycles])[start % q : start % q + size]

    def _cycle(self, epoch: int, number: int) -> IntArray:
        if self._latest[:2] != (epoch, number):
            order = stream(self._seed, "label cycle", epoch, number).permutation(self.labels)
            self._latest = epoch, number, order
        return self._latest[2]


class _RowsOfLabels:
    """Draws rows of a label in proportion to fixed weights (n,) of the rows, none of them twice."""

    def __init__(self, Y: LabelMatrix, weights: FloatArray) -> None:
        columns = sparse.csc_array(Y)
        self._rows, self._starts = columns.indices, columns.indptr
        self._total: FloatArray = np.concatenate(([0.0], np.cumsum(weights[self._rows])))
        self._weights = weights

    def propose(self, labels: IntArray, uniforms: FloatArray) -> IntArray:
        """Return a row for each label and uniform number."""
        start, end = self._starts[labels], self._starts[labels + 1]
        low, high = self._total[start], self._total[end]
        place = self._total.searchsorted(low + uniforms * (high - low), side="right") - 1
        return np.asarray(self._rows[np.clip(place, start, end - 1)])

    def draw(self, label: int, taken: dict[int, None], rng: np.random.Generator) -> int | None:
        """Return a row of the label that is not taken; None where all of them are."""
        rows = self._rows[self._starts[label] : self._starts[label + 1]]
        if len(rows) > 2 * len(taken):
            wanted = np.full(_PATIENCE, label)
            for row in self.propose(wanted, rng.random(_PATIENCE)).tolist():
                if row not in taken:
                    return int(row)
        left = [row for row in rows.tolist() if row not in taken]
        if not left:
            return None
        total = np.cumsum(self._weights[left])
        place = total.searchsorted(rng.random() * total[-1], side="right")
        return int(left[min(int(place), len(left) - 1)])


class ClassAwareSelector(Selector):
    """Every label equally often: labels in a shuffled cycle, for each a random row that carries it.

    Class-aware sampling as in Distribution-Balanced Loss (Wu et al., ECCV 2020). A row that is in the
    batch already is not drawn again; where all rows of a label are, any other row comes. Rows without
    labels, which the paper leaves out, keep a chance of ``floor / n`` for each draw.

    Parameters
    ----------
    floor
        Chance of a row without labels relative to a shuffled epoch, above 0 and at most 1.
    **settings
        As for `Selector`. Corrected draws are independent, without the cycle.

    Examples
    --------
    >>> selector = ClassAwareSelector([[1, 0], [1, 0], [1, 0], [0, 1]], batch_size=2)
    >>> selector.probabilities().round(3).tolist()
    [0.167, 0.167, 0.167, 0.5]
    >>> all(3 in batch for batch in selector)  # the only row of the second label
    True
    """

    strategy: str = "class_aware"
    place = 8
    warm_up_by_default = 0

    def __init__(self, Y: object, *, floor: float = 1.0, **settings: Unpack[_LawSettings]) -> None:
        labels = _labels_with_rows(Y)
        settings.setdefault("labels", labels)
        if not (isinstance(floor, int | float | np.number) and 0 < floor <= 1):
            raise SelectionError(
                f"floor must be above 0 and at most 1, got {floor!r} (1 draws rows without labels as "
                "often as a shuffled epoch does; 0 would never draw them)"
            )
        law = StaticLaw(_class_aware_probabilities(labels, float(floor)))
        super().__init__(labels.shape[0], law=law, **settings)
        self._Y, self._floor, self._cycle = labels, float(floor), _LabelCycle(labels, self.seed)
        self._of_labels = _RowsOfLabels(labels, np.ones(self.n_samples))
        self._without = _rows_without_labels(labels)

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        if self.corrected:
            return super()._draw(size, epoch, number)
        rng = self._streams.at(epoch, number)
        labels = self._cycle.at(epoch, number * self.batch_size, size)
        share = self._floor * len(self._without) / self.n_samples
        apart, uniforms = rng.random((2, size))
        rows = self._of_labels.propose(labels, uniforms)
        none = apart < share
        rows[none] = self._without[(uniforms[none] * len(self._without)).astype(np.int64)]
        taken: dict[int, None] = {}
        for label, row, unlabeled in zip(
            labels.tolist(), rows.tolist(), none.tolist(), strict=True
        ):
            found: int | None = row
            if row in taken:
                found = self._another(None if unlabeled else label, taken, rng)
            if found is None:  # all rows of the label are taken: any other one
                others = self._law.draw(1, 1.0, rng, taken=list(taken), block=_PATIENCE)
                found = int(others[0])
            taken[found] = None
        return np.fromiter(taken, dtype=np.int64, count=size)

    def _another(
        self, label: int | None, taken: dict[int, None], rng: np.random.Generator
    ) -> int | None:
        if label is not None:
            return self._of_labels.draw(label, taken, rng)
        left = [row for row in self._without.tolist() if row not in taken]
        return left[int(rng.random() * len(left))] if left else None

    def _settings(self) -> dict[str, Any]:
        return {
            **super()._settings(),
            "floor": self._floor,
            "Y": sparse.csr_array(self._Y),  # the same labels, dense or sparse, are one setting
        }


class CoverageSelector(Selector):
    """Batches in which each of some labels has positives enough, for pairwise and class-wise losses.

    Labels take turns in a shuffled cycle, `labels_per_batch` of them in each batch. For each, rows that
    carry it are drawn until it has `positives` of them, those drawn for the labels before included; one
    with fewer rows brings them all. The rest of the batch comes from all rows. Draws are without
    replacement, in proportion to ``IRLbl^power`` as for `BalancedSelector`.

    Parameters
    ----------
    positives
        How many rows of each chosen label a batch has at least.
    labels_per_batch
        How many labels a batch covers. None: as many as fit in half of it.
    power
        0 draws rows alike, and above 0 those with rare labels more often.
    **settings
        As for `Selector`, without importance weights: what a batch needs depends on its labels.

    Notes
    -----
    `probabilities` are those of one draw of a batch, taken at random, as if rows drawn for one label
    never served another.

    Examples
    --------
    >>> Y = np.repeat(np.eye(3, dtype=bool), [90, 8, 2], axis=0)
    >>> selector = CoverageSelector(Y, batch_size=12, positives=2, labels_per_batch=3)
    >>> all((Y[batch].sum(axis=0) >= 2).all() for batch in list(selector)[:-1])
    True
    """

    strategy: str = "coverage"
    place = 9
    warm_up_by_default = 0
    _uncorrectable = (
        "coverage has no importance weights and cannot be corrected: which rows a batch needs "
        "depends on the others in it; use balanced or class_aware for them"
    )

    def __init__(
        self,
        Y: object,
        *,
        positives: int = 2,
        labels_per_batch: int | None = None,
        power: float = 0.0,
        **settings: Unpack[_LawSettings],
    ) -> None:
        labels = _labels_with_rows(Y)
        settings.setdefault("labels", labels)
        weights = _rarity(labels, power)
        super().__init__(labels.shape[0], law=StaticLaw(weights), **settings)
        self._Y, self._power, self._cycle = labels, power, _LabelCycle(labels, self.seed)
        self._by_row = sparse.csr_array(labels)
        self._of_labels = _RowsOfLabels(labels, weights)
        self._positives = _whole_number("positives", positives, least=1)
        self._covered = self._checked_cover(labels_per_batch)

    def _checked_cover(self, labels_per_batch: int | None) -> int:
        known = len(self._cycle.labels)
        if labels_per_batch is None:
            return min(known, self.batch_size // 2 // self._positives)
        covered = _whole_number("labels_per_batch", labels_per_batch, least=1)
        if covered > known:
            raise SelectionError(
                f"labels_per_batch={covered} is more than the {known} labels that have rows"
            )
        needed = covered * self._positives
        if needed > self.batch_size:
            raise SelectionError(
                f"{covered} labels with {self._positives} positives each need a batch of {needed} "
                f"rows, and batch_size is {self.batch_size}: raise it, or ask for fewer"
            )
        if needed == self.batch_size and len(_rows_without_labels(self._Y)):
            raise SelectionError(
                f"{needed} rows for labels fill the whole batch, so rows without labels would never be "
                "drawn: raise batch_size, or ask for fewer"
            )
        return covered

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        rng = self._streams.at(epoch, number)
        taken: dict[int, None] = {}
        have: dict[int, int] = {}
        for label in self._cycle.at(epoch, number * self._covered, self._covered).tolist():
            while have.get(label, 0) < self._positives and len(taken) < size:
                row = self._of_labels.draw(label, taken, rng)
                if row is None:
                    break
                taken[row] = None
                start, end = self._by_row.indptr[row : row + 2]
                for own in self._by_row.indices[start:end].tolist():
                    have[own] = have.get(own, 0) + 1
        covering = list(taken)
        missing = size - len(covering)
        if not missing:
            return np.array(covering, dtype=np.int64)
        rest = self._law.draw(missing, 1.0, rng, taken=covering)
        return np.concatenate([np.array(covering, dtype=np.int64), rest])

    def _probabilities(self, epoch: int) -> FloatArray:
        weights = _rarity(self._Y, self._power)
        of_labels = np.asarray(self._by_row.T @ weights)  # total weight of each label's rows
        with np.errstate(divide="ignore"):
            share = np.where(of_labels > 0, 1 / of_labels, 0.0) / len(self._cycle.labels)
        for_labels = weights * np.asarray(self._by_row @ share)
        covering = self._covered * self._positives / self.batch_size
        return np.asarray(covering * for_labels + (1 - covering) * super()._probabilities(epoch))

    def _settings(self) -> dict[str, Any]:
        return {
            **super()._settings(),
            "positives": self._positives,
            "labels_per_batch": self._covered,
            "power": self._power,
            "Y": self._by_row,
        }


def _labels_with_rows(Y: object) -> LabelMatrix:
    labels = label_matrix(Y)
    if not labels.sum():
        raise SelectionError("Y has no positive label, so there is none to draw first: use random")
    return labels


def _rows_without_labels(Y: LabelMatrix) -> IntArray:
    return np.flatnonzero(np.asarray(Y.sum(axis=1)).ravel() == 0)
