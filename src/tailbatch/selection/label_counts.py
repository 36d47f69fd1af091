"""How often labels occur in rows that pass by, and the labels of rows in any form."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from tailbatch.data.labels import checked_labels
from tailbatch.errors import SelectionError, did_you_mean
from tailbatch.imbalance import label_counts
from tailbatch.seeds import FloatArray, IntArray, row_uniforms
from tailbatch.selection.inputs import _as_array

_SAMPLE = 4096  # label sets that the mean norm is taken from: it is then known to about 1%
_AT_ONCE = 1000


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How often each label occurs in how many rows; counts of parts add up with ``+``.

    Made by `count_labels`. At most 4,096 of the rows' label sets are kept, chosen at random, because
    counts alone do not tell how labels come together.

    Parameters
    ----------
    counts
        Positives (q,) of each label.
    n_samples
        Rows that were counted.
    names
        The labels' names, where rows list names; None where labels are columns.
    shards
        Rows of each shard that was counted under its name.
    sample, ranks
        The label sets that were kept, (k, q), and the random numbers (k,) that chose them.

    Examples
    --------
    >>> first, second = count_labels([["bug"], []]), count_labels([["bug", "crash"]])
    >>> both = first + second
    >>> both.names, both.counts.tolist(), both.n_samples
    (('bug', 'crash'), [2, 1], 3)
    """

    counts: IntArray
    n_samples: int
    names: tuple[str, ...] | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    sample: sparse.csr_array | None = None
    ranks: FloatArray = field(default_factory=lambda: np.empty(0))

    def __add__(self, other: "LabelCounts") -> "LabelCounts":
        names = self.names
        if names is not None and other.names is not None:
            names = tuple(dict.fromkeys([*names, *other.names]))
        elif (self.names, len(self.counts)) != (other.names, len(other.counts)):
            raise SelectionError(
                f"counts of {_told(other)} cannot be added to counts of {_told(self)}: count all parts "
                "in the same way, with the same names="
            )
        one, two = self._widened(names), other._widened(names)
        ranks = np.concatenate([one.ranks, two.ranks])
        kept = np.argsort(ranks, kind="stable")[:_SAMPLE]
        return LabelCounts(
            one.counts + two.counts,
            self.n_samples + other.n_samples,
            names,
            {
                name: self.shards.get(name, 0) + other.shards.get(name, 0)
                for name in [*self.shards, *other.shards]
            },
            sparse.vstack([one.sample, two.sample], format="csr")[kept],
            ranks[kept],
        )

    def _widened(self, names: tuple[str, ...] | None) -> "LabelCounts":
        """Return the counts with the labels `names`, some of which are new at the end or elsewhere."""
        if self.sample is None:  # counts that somebody else made
            return replace(self, sample=_empty(0, len(self.counts)))._widened(names)
        if names == self.names or names is None or self.names is None:
            return self
        place = {name: column for column, name in enumerate(names)}
        columns = np.array([place[name] for name in self.names], dtype=np.int64)
        counts = np.zeros(len(names), dtype=np.int64)
        counts[columns] = self.counts
        cells = self.sample.data, columns[self.sample.indices], self.sample.indptr
        sample = sparse.csr_array(cells, (self.sample.shape[0], len(names)))
        return replace(self, counts=counts, names=names, sample=sample)

    def label_sets(self) -> sparse.csr_array:
        """Return label sets (k, q) that stand for those of all rows.

        Where none were kept, they are made of the counts as if labels did not depend on each other.
        """
        if self.sample is not None and self.sample.shape[0]:
            return self.sample
        rng, share = np.random.default_rng(0), self.counts / self.n_samples
        sizes = rng.binomial(_SAMPLE, share)
        rows = [rng.choice(_SAMPLE, size, replace=False) for size in sizes]
        columns = np.repeat(np.arange(len(share)), sizes)
        cells = np.ones(len(columns), dtype=np.bool_), (np.concatenate(rows), columns)
        return sparse.csr_array(cells, (_SAMPLE, len(share)))


def count_labels(
    labels: Iterable[Any], *, names: Sequence[str] | None = None, shard: str = ""
) -> LabelCounts:
    """Count the labels of rows that pass by, in one pass.

    Parameters
    ----------
    labels
        A matrix (n, q), dense or sparse; or any iterable of rows or of matrices. A row is a list of
        names, or q zeros and ones.
    names
        All labels' names, if rows list names and no others are allowed; by default those that occur.
    shard
        Name of the part that these rows are. A selector then notices when the part changes.

    Examples
    --------
    >>> counts = count_labels(iter([[1, 0, 0], [1, 0, 1]]), shard="part-0")
    >>> counts.counts.tolist(), counts.n_samples, counts.shards
    ([2, 0, 1], 2, {'part-0': 2})
    """
    given = None if names is None else tuple(names)
    total: LabelCounts | None = None
    first = 0
    for rows in _batches(labels):
        known = given if given is not None else _names_in(rows)
        Y = _label_rows(rows, known)
        place = np.arange(first, first + Y.shape[0])
        ranks = row_uniforms(0, f"label sets of {shard}", place)[0]
        first += Y.shape[0]
        some = np.sort(np.argsort(ranks, kind="stable")[:_SAMPLE])
        part = LabelCounts(
            label_counts(Y),
            Y.shape[0],
            known,
            {shard: Y.shape[0]} if shard else {},
            Y[some],
            ranks[some],
        )
        total = part if total is None else total + part
    if total is not None:
        return total
    if given is None:
        raise SelectionError("there are no rows to count labels of: give at least one, or names=")
    return LabelCounts(np.zeros(len(given), dtype=np.int64), 0, given)


# ---- labels in any form ----------------------------------------------------------------------


def _batches(labels: Iterable[Any]) -> Iterator[Any]:
    """Yield labels in batches: matrices as they are, rows by the thousand."""
    if _is_matrix(labels):
        yield labels
        return
    rows: list[Any] = []
    for item in labels:
        if _is_matrix(item):
            yield item
            continue
        rows.append(item)
        if len(rows) == _AT_ONCE:
            yield rows
            rows = []
    if rows:
        yield rows


def _is_matrix(labels: Any) -> bool:
    shape = getattr(labels, "shape", ())
    return len(shape) == 2


def _names_in(rows: Any) -> tuple[str, ...] | None:
    """Return the names that rows list, sorted; None where labels are columns."""
    if not _lists_names(rows):
        return None
    return tuple(sorted({name for row in rows for name in _checked_row(row)}))


def _lists_names(rows: Any) -> bool:
    if _is_matrix(rows):
        return False
    first: Any = next((row for row in rows if row is None or _is_matrix(row) or len(row)), [])
    return not _is_matrix(first) and (first is None or all(isinstance(name, str) for name in first))


def _checked_row(row: Any) -> Any:
    if row is None or isinstance(row, str):
        raise SelectionError(
            f"a row's labels must be a list of names, got {row!r:.60} (an empty list is a row without "
            "labels)"
        )
    return row


def _label_rows(
    rows: Any, names: tuple[str, ...] | None, q: int | None = None, stand_in: int | None = None
) -> sparse.csr_array:
    """Return the labels of a batch as CSR of booleans, (b, q), columns as in the counts."""
    lists = not _is_matrix(rows) and _lists_names(rows)
    if lists and names is not None:
        return _named_rows(rows, names, stand_in)
    if lists and any(map(len, rows)):
        raise SelectionError(
            "rows list names of labels, and the counts know columns only: count with "
            "count_labels(rows) of such lists"
        )
    if not _is_matrix(rows) and len(rows) and _is_matrix(rows[0]):
        rows = sparse.vstack(rows, format="csr")
    given = _as_array(rows) if hasattr(rows, "detach") else rows
    Y = sparse.csr_array(checked_labels(given, error=SelectionError))
    if q is None or Y.shape[1] == q:
        return Y
    if stand_in is None or Y.shape[1] < q:
        raise SelectionError(
            f"a row has {Y.shape[1]} labels and the counts have {q}: give the counts of these labels"
            + ("" if Y.shape[1] < q else ", or unknown='common'")
        )
    row, column = Y.nonzero()
    return _cells(row, np.where(column < q, column, stand_in), (Y.shape[0], q))


def _named_rows(rows: Any, names: tuple[str, ...], stand_in: int | None) -> sparse.csr_array:
    place = {name: column for column, name in enumerate(names)}
    sizes = [len(_checked_row(row)) for row in rows]
    try:
        columns = [place[name] for row in rows for name in row]
    except KeyError as error:
        if stand_in is None:
            raise SelectionError(
                f"the counts do not know the label {error.args[0]!r}"
                f"{did_you_mean(error.args[0], names)}; count again, or give unknown='common'"
            ) from None
        columns = [place.get(name, stand_in) for row in rows for name in row]
    row = np.repeat(np.arange(len(sizes)), sizes)
    return _cells(row, np.array(columns, dtype=np.int64), (len(sizes), len(names)))


def _cells(row: IntArray, column: IntArray, shape: tuple[int, int]) -> sparse.csr_array:
    """Return labels at these cells; one that is listed twice counts once."""
    Y = sparse.csr_array((np.ones(len(row), dtype=np.bool_), (row, column)), shape)
    Y.sum_duplicates()
    return Y


def _empty(n: int, q: int) -> sparse.csr_array:
    return sparse.csr_array((n, q), dtype=np.bool_)


def _told(counts: LabelCounts) -> str:
    kind = "columns" if counts.names is None else "named labels"
    return f"{len(counts.counts)} {kind}"
