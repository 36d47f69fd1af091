"""What becomes of the columns of an ARFF file, and their rows gathered into a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.dataset import Features, IntArray
from tailbatch.data.labels import LabelMatrix, stored_labels
from tailbatch.data.sparse import CsrBuilder, is_better_sparse
from tailbatch.errors import DataError

#: Absent values of sparse rows that are not zero may become at most this many stored ones.
MAX_IMPLIED_ONES = 1 << 28

BINARY = {"0": 0.0, "1": 1.0}
TRUTH = {"false": 0.0, "true": 1.0}

Kind = Literal["numeric", "nominal", "string", "date"]


@dataclass(frozen=True, eq=False)
class AttributeType:
    """The declared type of a column; columns of the same type share one object."""

    kind: Kind
    values: tuple[str, ...] = ()

    @cached_property
    def is_binary(self) -> bool:
        """Whether the declared values are 0 and 1 (or one of them), in either order."""
        return self.kind == "nominal" and set(self.values) <= BINARY.keys()

    @cached_property
    def is_number(self) -> bool:
        """Whether every value is written as the number it becomes."""
        return self.kind == "numeric" or self.is_binary

    @cached_property
    def is_one_hot(self) -> bool:
        """Whether there is a column for each value."""
        return self.kind == "nominal" and not self.is_binary and len(self.values) != 2

    @cached_property
    def starts_with_one(self) -> bool:
        """Whether the first declared value stands for 1."""
        return self.values[:1] != () and self.values[0].lower() in ("1", "true")

    @cached_property
    def suffixes(self) -> tuple[str, ...]:
        """What is added to the name for each column it becomes; strings and dates become none."""
        if self.is_number:
            return ("",)
        return tuple(f"={value}" for value in self.values[0 if self.is_one_hot else 1 :])

    def codes(self, *, as_label: bool) -> dict[str, float] | None:
        """Return the number each nominal value stands for, in the order they are declared."""
        if self.kind != "nominal":
            return None
        if as_label or self.is_binary:
            meaning = BINARY | TRUTH
            return {value.lower(): meaning[value.lower()] for value in self.values}
        return {value: float(code) for code, value in enumerate(self.values)}


class Layout:
    """What becomes of each attribute: feature columns, a label, or nothing.

    A numeric attribute or one with two values is one feature column, a nominal one with k > 2 (or
    a single) value is k columns, ``color=red`` and so on; strings and dates are left out.

    Parameters
    ----------
    names, types
        Of the declared columns.
    labels
        Positions of the labels among them, in the order wanted.
    """

    def __init__(
        self, names: Sequence[str], types: Sequence[AttributeType], labels: Sequence[int]
    ) -> None:
        self.names = names
        self.types = types
        self.labels = np.array(labels, dtype=np.int64)
        self.is_label = np.zeros(len(names), dtype=np.bool_)
        self.is_label[self.labels] = True
        distinct = list(set(types))  # few, and each column only has the number of its type
        number = {declared: place for place, declared in enumerate(distinct)}
        which = np.array([number[declared] for declared in types])
        self.is_one_hot = np.array([item.is_one_hot for item in distinct])[which] & ~self.is_label
        self.must_be_binary = np.array([item.is_binary for item in distinct])[which] | self.is_label
        widths = np.where(
            self.is_label, 0, np.array([len(item.suffixes) for item in distinct])[which]
        )
        self.is_feature = widths > 0
        self.n_features = int(widths.sum())
        self.n_one_hot = int(widths[self.is_one_hot].sum())
        #: The feature column or the first of several, or the label's number.
        self.target = (np.cumsum(widths) - widths).astype(np.int32)
        self.target[self.labels] = np.arange(len(labels))
        #: What a sparse row does not mention is 0 or the first nominal value; where is that a one?
        starts_with_one = np.array([item.starts_with_one for item in distinct])[which]
        self.absent = (self.must_be_binary & starts_with_one).astype(np.float64)
        #: Whether blocks of rows can be read at once.
        self.only_numbers = all(item.is_number for item in distinct)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The name of each feature column."""
        if self.only_numbers:
            return tuple(compress(self.names, self.is_feature.tolist()))
        return tuple(
            self.names[position] + suffix
            for position in np.flatnonzero(self.is_feature).tolist()
            for suffix in self.types[position].suffixes
        )

    @cached_property
    def codes(self) -> list[dict[str, float] | None]:
        """For each nominal attribute the numbers of its values."""
        pairs = list(zip(self.types, self.is_label.tolist(), strict=True))
        codes = {pair: pair[0].codes(as_label=pair[1]) for pair in set(pairs)}
        return [codes[pair] for pair in pairs]

    @cached_property
    def implied(self) -> IntArray:
        """Attributes that make a one of what a sparse row does not mention."""
        return np.flatnonzero(self.is_one_hot | (self.absent == 1))


class SparseRows(NamedTuple):
    """Entries of a block of sparse rows, by row."""

    counts: IntArray  # entries per row
    columns: NDArray[np.int32]
    values: NDArray[np.float64]


class Collector:
    """Gather blocks of rows into features and labels.

    Parameters
    ----------
    path
        The file, for messages.
    layout
        What becomes of each attribute.
    is_sparse
        Whether rows are sparse; the features then are too.
    """

    def __init__(self, path: Path, layout: Layout, *, is_sparse: bool) -> None:
        self.path = path
        self.layout = layout
        self.is_sparse = is_sparse
        self._dense = bytearray()  # grows in place, like the buffers of a CsrBuilder
        self._sparse = CsrBuilder(np.float64)
        self._labels = CsrBuilder(np.bool_)
        self._n_implied = 0
        self.filled: dict[str, int] = {}  # missing values of each attribute

    def add_dense(self, rows: NDArray[np.float64]) -> None:
        """Append dense rows, (rows, attributes)."""
        layout = self.layout
        if layout.n_one_hot:
            # One value in each row says where the one is; its zeros are not worth the memory.
            n, width = rows.shape
            columns = np.tile(np.arange(width, dtype=np.int32), n)
            self._append(SparseRows(np.full(n, width), columns, rows.ravel()))
            return
        self._dense += rows[:, layout.is_feature].tobytes()
        Y = rows[:, layout.labels] != 0
        self._labels.append(Y.sum(axis=1), np.nonzero(Y)[1], Y[Y])

    def add_sparse(self, rows: SparseRows) -> None:
        """Append sparse rows."""
        self._append(self._with_implied(rows) if len(self.layout.implied) else rows)

    def _append(self, rows: SparseRows) -> None:
        layout = self.layout
        counts, columns, values = rows
        target = layout.target[columns]
        if layout.n_one_hot:
            codes = layout.is_one_hot[columns]
            # A missing value is marked in the first of its columns.
            missing = np.isnan(values[codes])
            target[codes] += np.where(missing, 0, values[codes]).astype(np.int32)
            values[codes] = np.where(missing, np.nan, 1)
        is_set = values != 0
        kept = layout.is_feature[columns] & is_set
        self._sparse.append(_kept_per_row(counts, kept), target[kept], values[kept])
        kept = layout.is_label[columns] & is_set
        self._labels.append(_kept_per_row(counts, kept), target[kept], is_set[kept])

    def _with_implied(self, rows: SparseRows) -> SparseRows:
        """Add the entries that rows leave out though they are no zeros: first nominal values."""
        n = len(rows.counts)
        row = np.repeat(np.arange(n), rows.counts)
        implied = self.layout.implied
        self._n_implied += n * len(implied)
        if self._n_implied > MAX_IMPLIED_ONES:
            raise DataError(
                f"{self.path}: the first values of {len(implied):,} nominal attributes, which "
                f"sparse rows leave out, would fill more than {MAX_IMPLIED_ONES:,} cells; declare "
                "0 as first value"
            )
        rank = np.searchsorted(implied, rows.columns)
        counted = implied[np.minimum(rank, len(implied) - 1)] == rows.columns
        is_mentioned = np.zeros((n, len(implied)), dtype=np.bool_)
        is_mentioned[row[counted], rank[counted]] = True
        more_rows, which = np.nonzero(~is_mentioned)
        more = implied[which]
        row = np.concatenate([row, more_rows])
        columns = np.concatenate([rows.columns, more.astype(np.int32)])
        values = np.concatenate([rows.values, self.layout.absent[more]])
        order = np.lexsort((columns, row))
        return SparseRows(np.bincount(row, minlength=n), columns[order], values[order])

    def features(self) -> Features:
        """Return the features, missing values filled in."""
        width, n_one_hot = self.layout.n_features, self.layout.n_one_hot
        if self.is_sparse or n_one_hot:
            X = self._fill_sparse(self._sparse.build(width))
            if self.is_sparse or is_better_sparse(X.shape[0], width, n_one_hot=n_one_hot):
                return X
            return np.asarray(X.toarray())
        return self._fill(
            np.frombuffer(self._dense, np.float64).reshape(self._labels.n_rows, width)
        )

    def _fill(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        rows, columns = np.nonzero(np.isnan(X))
        if len(rows):
            X[rows, columns] = 0
            targets, values = self._imputed(X.sum(axis=0), columns)
            X[rows, targets] = values
        return X

    def _fill_sparse(self, X: csr_array) -> csr_array:
        missing = np.flatnonzero(np.isnan(X.data))
        if len(missing):
            rows = np.searchsorted(X.indptr, missing, side="right") - 1
            X.data[missing] = 0
            targets, values = self._imputed(X.sum(axis=0), X.indices[missing])
            X = X + csr_array((values, (rows, targets)), shape=X.shape)
            X.eliminate_zeros()
        return X

    def labels(self) -> LabelMatrix:
        """Return the labels."""
        return stored_labels(self._labels.build(len(self.layout.labels)))

    def _imputed(
        self, sums: NDArray[np.float64], columns: IntArray
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Return what to fill in for values missing in `columns`: which columns, which values.

        `sums` are the column sums over the rows where the value is there.
        """
        target, value = np.arange(len(sums)), np.zeros(len(sums))
        n_missing = np.bincount(columns, minlength=len(sums))
        n_present = self._labels.n_rows - n_missing
        for position in np.flatnonzero(self.layout.is_feature).tolist():
            first, declared = self.layout.target[position], self.layout.types[position]
            if n_missing[first]:
                self.filled[self.layout.names[position]] = int(n_missing[first])
            if n_present[first] == 0:
                raise DataError(
                    f"{self.path}: every value of {self.layout.names[position]!r} is missing; "
                    "leave it out"
                )
            if self.layout.is_one_hot[position]:
                target[first] += np.argmax(sums[first : first + len(declared.values)])
                value[first] = 1
            else:
                mean = sums[first] / n_present[first]
                value[first] = mean if declared.kind == "numeric" else mean > 0.5
        return target[columns], value[columns]


def _kept_per_row(counts: IntArray, kept: NDArray[np.bool_]) -> IntArray:
    """Return how many of each row's entries are kept."""
    running: IntArray = np.concatenate([[0], np.cumsum(kept)])
    return np.diff(running[np.cumsum(counts)], prepend=0)
