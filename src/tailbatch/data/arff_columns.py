"""What becomes of the columns of an ARFF file, and their rows gathered into a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.dataset import Features, IntArray, LabelMatrix, label_matrix
from tailbatch.data.sparse import CsrBuilder
from tailbatch.errors import DataError

#: Absent values of sparse rows that are not zero may become at most this many stored ones.
MAX_IMPLIED_ONES = 1 << 28

BINARY = {"0": 0.0, "1": 1.0}
TRUTH = {"false": 0.0, "true": 1.0}

Kind = Literal["numeric", "nominal", "string", "date"]


@dataclass(frozen=True)
class Attribute:
    """One declared column: ``kind`` is numeric, nominal, string or date."""

    name: str
    line: int
    kind: Kind
    values: tuple[str, ...] = ()

    @cached_property
    def is_binary(self) -> bool:
        """Whether the declared values are 0 and 1 (or one of them), in either order."""
        return self.kind == "nominal" and set(self.values) <= BINARY.keys()

    def codes(self, *, as_label: bool) -> dict[str, float]:
        """Return the number each nominal value stands for."""
        if self.is_binary:
            return BINARY
        if as_label:
            return TRUTH
        return {value: float(code) for code, value in enumerate(self.values)}


class Layout:
    """What becomes of each attribute: feature columns, a label, or nothing.

    A numeric attribute or one with two values is one feature column, a nominal one with k > 2 (or
    a single) value is k columns, ``color=red`` and so on; strings and dates are left out.

    Parameters
    ----------
    attributes
        The declared columns.
    labels
        Positions of the labels among them, in the order wanted.
    """

    def __init__(self, attributes: Sequence[Attribute], labels: Sequence[int]) -> None:
        self.attributes = attributes
        self.labels = np.array(labels, dtype=np.int64)
        n = len(attributes)
        self.is_label = np.zeros(n, dtype=np.bool_)
        self.is_label[self.labels] = True
        self.is_one_hot = np.zeros(n, dtype=np.bool_)
        self.target = np.full(n, -1, dtype=np.int32)  # feature column or label number
        self.target[self.labels] = np.arange(len(self.labels))
        self.absent = np.zeros(n)  # value of what a sparse row does not mention
        self.must_be_binary = self.is_label.copy()
        self.only_numbers = True  # then blocks of rows can be read at once
        names: list[str] = []
        for position, attribute in enumerate(attributes):
            if attribute.kind == "numeric":
                columns = [attribute.name]
            elif attribute.kind == "nominal":
                columns = self._place_nominal(position, attribute)
            else:
                columns = []
                self.only_numbers = False
            if columns and not self.is_label[position]:
                self.target[position] = len(names)
                names += columns
        self.feature_names = tuple(names)
        self.is_feature = (self.target >= 0) & ~self.is_label

    def _place_nominal(self, position: int, attribute: Attribute) -> list[str]:
        name, values = attribute.name, attribute.values
        is_label = bool(self.is_label[position])
        self.must_be_binary[position] |= attribute.is_binary
        self.only_numbers &= attribute.is_binary
        if attribute.is_binary or is_label:
            self.absent[position] = attribute.codes(as_label=is_label)[values[0].lower()]
            return [name]
        if len(values) == 2:
            return [f"{name}={values[1]}"]
        self.is_one_hot[position] = True
        return [f"{name}={value}" for value in values]

    @cached_property
    def implied(self) -> IntArray:
        """Attributes that make a one of what a sparse row does not mention."""
        return np.flatnonzero(self.is_one_hot | (self.absent == 1))

    @cached_property
    def codes(self) -> list[dict[str, float] | None]:
        """For each nominal attribute the numbers of its values."""
        return [
            attribute.codes(as_label=bool(label)) if attribute.kind == "nominal" else None
            for attribute, label in zip(self.attributes, self.is_label, strict=True)
        ]


class SparseRows(NamedTuple):
    """Entries of a block of sparse rows, by row."""

    counts: IntArray  # entries per row
    columns: NDArray[np.int32]
    values: NDArray[np.float64]


class Collector:
    """Gather blocks of rows into features and labels.

    Parameters
    ----------
    layout
        What becomes of each attribute.
    is_sparse
        Whether rows are sparse; the features then are too.
    """

    def __init__(self, layout: Layout, *, is_sparse: bool) -> None:
        self.layout = layout
        self.is_sparse = is_sparse
        self._dense = bytearray()  # grows in place, like the buffers of a CsrBuilder
        self._sparse = CsrBuilder(np.float64)
        self._labels = CsrBuilder(np.bool_)
        self._n_implied = 0

    def add_dense(self, rows: NDArray[np.float64]) -> None:
        """Append dense rows, (rows, attributes)."""
        layout = self.layout
        if layout.is_one_hot.any():
            X = np.zeros((len(rows), len(layout.feature_names)))
            plain = layout.is_feature & ~layout.is_one_hot
            X[:, layout.target[plain]] = rows[:, plain]
            for position in np.flatnonzero(layout.is_one_hot):
                # A missing value is marked in the first of its columns.
                codes, missing = rows[:, position], np.isnan(rows[:, position])
                columns = layout.target[position] + np.where(missing, 0, codes).astype(np.int64)
                X[np.arange(len(rows)), columns] = np.where(missing, np.nan, 1)
        else:
            X = rows[:, layout.is_feature]
        self._dense += X.tobytes()
        Y = rows[:, layout.labels] != 0
        self._labels.append(Y.sum(axis=1), np.nonzero(Y)[1], Y[Y])

    def add_sparse(self, rows: SparseRows) -> None:
        """Append sparse rows."""
        layout, n = self.layout, len(rows.counts)
        row = np.repeat(np.arange(n), rows.counts)
        columns, values = rows.columns, rows.values
        if len(layout.implied):
            row, columns, values = self._with_implied(n, row, columns, values)
        target = layout.target[columns]
        if layout.is_one_hot.any():
            codes = layout.is_one_hot[columns]
            missing = np.isnan(values[codes])
            target[codes] += np.where(missing, 0, values[codes]).astype(np.int32)
            values[codes] = np.where(missing, np.nan, 1)
        is_set = values != 0
        kept = layout.is_feature[columns] & is_set
        self._sparse.append(np.bincount(row[kept], minlength=n), target[kept], values[kept])
        kept = layout.is_label[columns] & is_set
        self._labels.append(np.bincount(row[kept], minlength=n), target[kept], is_set[kept])

    def _with_implied(
        self,
        n: int,
        row: IntArray,
        columns: NDArray[np.int32],
        values: NDArray[np.float64],
    ) -> tuple[IntArray, NDArray[np.int32], NDArray[np.float64]]:
        """Add the entries that rows leave out though they are no zeros: first nominal values."""
        implied = self.layout.implied
        self._n_implied += n * len(implied)
        if self._n_implied > MAX_IMPLIED_ONES:
            raise DataError(
                f"the first values of {len(implied):,} nominal attributes, which sparse rows leave "
                f"out, would fill more than {MAX_IMPLIED_ONES:,} cells; declare 0 as first value"
            )
        rank = np.searchsorted(implied, columns)
        counted = implied[np.minimum(rank, len(implied) - 1)] == columns
        is_mentioned = np.zeros((n, len(implied)), dtype=np.bool_)
        is_mentioned[row[counted], rank[counted]] = True
        more_rows, which = np.nonzero(~is_mentioned)
        more = implied[which]
        row = np.concatenate([row, more_rows])
        columns = np.concatenate([columns, more.astype(np.int32)])
        values = np.concatenate([values, self.layout.absent[more]])
        order = np.lexsort((columns, row))
        return row[order], columns[order], values[order]

    def features(self) -> Features:
        """Return the features, missing values filled in."""
        width = len(self.layout.feature_names)
        if self.is_sparse:
            return self._fill_sparse(self._sparse.build(width))
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
        return label_matrix(self._labels.build(len(self.layout.labels)))

    def _imputed(
        self, sums: NDArray[np.float64], columns: IntArray
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Return what to fill in for values missing in `columns`: which columns, which values.

        `sums` are the column sums over the rows where the value is there.
        """
        target, value = np.arange(len(sums)), np.zeros(len(sums))
        n_present = self._labels.n_rows - np.bincount(columns, minlength=len(sums))
        for position in np.flatnonzero(self.layout.is_feature).tolist():
            first, attribute = self.layout.target[position], self.layout.attributes[position]
            if n_present[first] == 0:
                raise DataError(f"every value of {attribute.name!r} is missing; leave it out")
            if self.layout.is_one_hot[position]:
                target[first] += np.argmax(sums[first : first + len(attribute.values)])
                value[first] = 1
            else:
                mean = sums[first] / n_present[first]
                value[first] = mean if attribute.kind == "numeric" else mean > 0.5
        return target[columns], value[columns]
