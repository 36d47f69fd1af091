"""The one type every room works on: features, labels, their names, and a digest of the content."""

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from tailbatch.data.columns import Columns, FittedColumns, Missing, giveaway
from tailbatch.data.embeddings import Encoder
from tailbatch.data.labels import (
    FrameLabels,
    _canonical_csr,
    _nearly_equal,
    _row_and_column,
    checked_labels,
    frame_labels,
    stored_labels,
)
from tailbatch.data.labels import LabelMatrix as LabelMatrix
from tailbatch.data.sparse import NumberedNames, _framed, first_repeated
from tailbatch.errors import DataError, require, setting
from tailbatch.seeds import IntArray

if TYPE_CHECKING:
    import pandas as pd

Features: TypeAlias = NDArray[np.float64] | NDArray[np.float32] | csr_array
"""Features (n, d): a dense array, or CSR where most values are 0."""

FEWEST_POSITIVES = 5
"""Positives below which a label is too rare to be measured as a rare one."""

SPARSE_SHARE = 0.1
"""Share of nonzero features up to which sparse products are faster than dense ones (measured)."""

_MOST_CELLS = 1 << 27  # of a mostly empty matrix that is made dense: a gigabyte
_CELLS_PER_BLOCK = 1 << 20
_NAMED_BARS = 30  # labels whose names fit below a plot
_SURROGATE = re.compile("[\ud800-\udfff]")

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class MultiLabelDataset:
    """Samples with features and any number of labels each.

    Make one with `from_arrays`, `from_frame` or `tailbatch.data.load_dataset`, which check the
    content; the constructor only checks that the parts fit together.

    Parameters
    ----------
    name
        What to call the dataset in tables; not part of its identity.
    X
        Features, (n, d): a dense float array or a CSR array, kept as it was given.
    Y
        Labels, (n, q): a dense boolean array, or a boolean CSR array when q > 1,000.
    feature_names, label_names
        d and q distinct names; where nobody named them, `NumberedNames`.
    notices
        What a reader left out or changed, one sentence each.
    missing
        Labels that nobody knows, (n, q), stored as Y, which is False there; None where all are known.
    suggested
        Labels that somebody looked at because a model suggested the row, (n, q), stored as Y: they are
        learned, but the rows are no random sample, so nothing is measured on them. None for no label.
    columns, frame
        How the columns of a table became X, fitted on all its rows; and the columns themselves, where
        words, categories or filled-in values depend on the rows that they are learned from:
        `tailbatch.data.split` learns them again from the training rows of a fold.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(
    ...     [[0.5, 0.0], [0.0, 2.0], [1.0, 1.0]], [[1, 0], [1, 1], [0, 0]], name="tiny"
    ... )
    >>> data
    MultiLabelDataset('tiny', 3 samples, 2 features, 2 labels)
    >>> data.take([2, 0]).X
    array([[1. , 1. ],
           [0.5, 0. ]])
    """

    name: str
    X: Features
    Y: LabelMatrix
    feature_names: Sequence[str]
    label_names: Sequence[str]
    notices: tuple[str, ...] = ()
    missing: LabelMatrix | None = None
    suggested: LabelMatrix | None = None
    columns: FittedColumns | None = None
    frame: "pd.DataFrame | None" = None

    def __post_init__(self) -> None:
        if self.missing is not None and self.missing.shape != self.Y.shape:
            raise DataError(
                f"missing must have the shape of Y, {self.Y.shape}, got {self.missing.shape}"
            )
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(
                f"X and Y must have the same number of rows, got {self.X.shape[0]:,} "
                f"and {self.Y.shape[0]:,}"
            )
        of = (
            ("feature", self.feature_names, self.n_features),
            ("label", self.label_names, self.n_labels),
            ("dataset", (self.name,), 1),
        )
        for what, names, count in of:
            if len(names) != count:
                raise DataError(f"{count:,} {what} columns have {len(names):,} names")
            if isinstance(names, NumberedNames):
                continue  # distinct and plain by construction
            if len(set(names)) < len(names):
                raise DataError(
                    f"the {what} name {first_repeated(names)!r} occurs twice; names must be unique"
                )
            # What no file could hold: half of a character, as escapes in a file can spell it.
            if _SURROGATE.search("".join(names)):
                wrong = next(filter(_SURROGATE.search, names))
                raise DataError(f"the {what} name {wrong!r} holds half a character; rename it")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {self.n_samples:,} samples, "
            f"{self.n_features:,} features, {self.n_labels:,} labels)"
        )

    def _repr_html_(self) -> str:
        """Return sizes, the commonest and rarest label, and what columns were taken for, as tables."""
        counts = np.asarray(self.Y.sum(axis=0)).ravel()
        rows = [
            (what, f"{len(names):,}")
            for what, names in (
                ("samples", range(self.n_samples)),
                ("features", self.feature_names),
                ("labels", counts),
            )
        ]
        if self.n_labels:
            for what, j in ("commonest", int(counts.argmax())), ("rarest", int(counts.argmin())):
                shown = f"{self.label_names[j]}, on {int(counts[j]):,} rows"
                rows.append((f"{what} label", shown))
        taken = {} if self.columns is None else self.columns.taken
        rows += [(f"column {name}", f"{kind}: {why}") for name, (kind, why, _) in taken.items()]
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in rows
        )
        return f"<table><caption>{escape(self.name)}</caption>{cells}</table>"

    def plot(self, ax: Any = None) -> Any:
        """Plot on how many rows each label is, the commonest first; return matplotlib's axes.

        Rare labels (`tailbatch.imbalance.rare_labels`) have their own color. None makes new axes.
        """
        if ax is None:
            pyplot: Any = require("matplotlib.pyplot", extra="cli")
            ax = pyplot.subplots(layout="constrained")[1]
        counts = np.asarray(self.Y.sum(axis=0)).ravel()
        order = np.argsort(-counts, kind="stable")
        minority, places = rare_by_count(counts, FEWEST_POSITIVES)[order], np.arange(self.n_labels)
        for chosen, color, name in ((~minority, "C0", "other"), (minority, "C1", "rare")):
            if chosen.any():
                ax.bar(places[chosen], counts[order][chosen], color=color, label=f"{name} labels")
        ax.set_ylabel("rows with the label")
        least = counts[counts > 0].min(initial=counts.max(initial=1))
        if counts.max(initial=0) > 10 * least:  # below that a linear axis shows every bar
            ax.set_yscale("log")
            ax.set_ylim(bottom=least / 2)
            ax.yaxis.set_major_formatter("{x:,g}")
        if minority.any():
            ax.legend()
        if self.n_labels <= _NAMED_BARS:
            names = [self.label_names[label] for label in order]
            ax.set_xticks(range(self.n_labels), names, rotation=45, ha="right")
        else:
            ax.set_xlabel("labels, the commonest first")
        return ax

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        Y: ArrayLike,
        *,
        name: str = "data",
        feature_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> Self:
        """Check arrays or SciPy matrices and make a dataset of them.

        Parameters
        ----------
        X
            Numbers, (n, d), d may be 0. Sparse stays sparse (as canonical CSR), dense stays dense,
            float32 stays float32; NaN and infinity are refused.
        Y
            Zeros and ones (or booleans), (n, q), dense or sparse.
        feature_names, label_names
            Default: ``feature_0``, ... and ``label_0``, ...

        Examples
        --------
        >>> MultiLabelDataset.from_arrays([[1.0], [2.0]], [[0], [2]])
        Traceback (most recent call last):
        ...
        tailbatch.errors.DataError: labels must be 0 or 1, got 2 in row 1, label column 0
        """
        features = checked_features(X, feature_names)
        if features.shape[0] == 0:
            raise DataError("the dataset is empty: X has no rows")
        labels = stored_labels(checked_labels(Y))
        names = list[Sequence[str]]()
        for what, given, matrix in (
            ("feature", feature_names, features),
            ("label", label_names, labels),
        ):
            found = NumberedNames(f"{what}_", range(matrix.shape[1])) if given is None else given
            names.append(found if isinstance(found, NumberedNames) else tuple(map(str, found)))
        return cls(name, features, labels, feature_names=names[0], label_names=names[1])

    @classmethod
    def from_frame(
        cls,
        frame: "pd.DataFrame",
        *,
        labels: FrameLabels,
        name: str = "data",
        missing: Missing = "impute",
        text: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        encoder: str | Encoder | None = None,
    ) -> Self:
        """Make a dataset of a pandas data frame.

        Parameters
        ----------
        frame
            One row for each sample. Numbers and booleans become features as they are, dates become
            numbers, categories one column for each value, free text TF-IDF weights of its words.
            Columns that number or identify rows are left out with a notice.
        labels
            The names of 0/1 label columns; 5 for the first five or -5 for the last five columns;
            the prefix that exactly the label columns share; or the name of one column that lists
            each row's labels: as lists, sets or arrays, or as text such as ``sports;politics`` or
            ``['sports', 'politics']``. A colon and the delimiter may follow, ``topics:;``.
        missing
            ``"impute"`` fills in a column's mean or most frequent value, and a notice says where;
            ``"error"`` refuses missing values in features. Missing labels are always refused.
        text, kinds, encoder
            What to take columns for, where that is not what their values say; see `Columns`.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"length": [3.0, 5.0], "topics": ["sports;politics", "sports"]})
        >>> MultiLabelDataset.from_frame(frame, labels="topics").label_names
        ('politics', 'sports')
        >>> frame["topics"] = [["sports", "politics"], []]
        >>> MultiLabelDataset.from_frame(frame, labels="topics").Y.tolist()
        [[True, True], [False, False]]
        """
        chosen, Y, label_names = frame_labels(frame, labels)
        columns = Columns(text, kinds or {}, missing, encoder, labels=labels)
        for asked in {*columns.text, *columns.kinds} & set(map(str, chosen)):
            is_text = asked in columns.text
            said = (
                setting("text", asked)
                if is_text
                else setting("kinds", {asked: columns.kinds[asked]})
            )
            raise DataError(
                f"the column {asked!r} holds the labels and cannot be a feature, too; leave {said} out"
            )
        return cls.from_columns(
            frame.drop(columns=chosen), Y, columns, name=name, label_names=label_names
        )

    @classmethod
    def from_columns(
        cls,
        frame: "pd.DataFrame",
        Y: ArrayLike,
        columns: Columns,
        *,
        name: str = "data",
        label_names: Sequence[str] | None = None,
    ) -> Self:
        """Make a dataset of feature columns and labels (n, q), as `from_frame` does of both together."""
        pd = require("pandas", extra="cli")
        kinds = set(frame.dtypes)
        if kinds and all(isinstance(kind, pd.SparseDtype) for kind in kinds):
            X, names, fitted = frame.sparse.to_coo(), [str(c) for c in frame.columns], None
        else:
            fitted = columns.fit(frame)
            (X, _), names = fitted.transform(frame), list(fitted.feature_names)
        dataset = cls.from_arrays(X, Y, name=name, feature_names=names, label_names=label_names)
        notices = () if fitted is None else fitted.notices
        if label_names is not None and (alike := _nearly_equal(dataset.label_names, "the labels")):
            notices = (*notices, alike)
        if fitted is not None and (
            told := giveaway(fitted, dataset.X, dataset.Y, dataset.label_names)
        ):
            notices = (*notices, told)
        for notice in notices:
            _LOGGER.warning("%s: %s", name, notice)
        kept = frame if fitted is not None and fitted.depends_on_rows else None
        return replace(dataset, notices=notices, columns=fitted, frame=kept)

    @property
    def n_samples(self) -> int:
        """Number of rows, n."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of feature columns, d."""
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        """Number of label columns, q."""
        return int(self.Y.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the features are a CSR array."""
        return bool(issparse(self.X))

    @cached_property
    def digest(self) -> str:
        """The content in 32 hexadecimal digits: names, shape and values, not their storage.

        Dense and CSR, float32 that holds the same numbers, and every file format give the same
        digest; the dataset's own name and its notices are not part of it.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> X, Y = np.eye(3), np.eye(3, dtype=bool)
        >>> dense = MultiLabelDataset.from_arrays(X, Y, name="a")
        >>> dense.digest == MultiLabelDataset.from_arrays(csr_array(X), Y, name="b").digest
        True
        """
        whole = hashlib.blake2b(digest_size=16)
        for names in (self.feature_names, self.label_names):
            for piece in _framed(names):
                whole.update(piece)
        masks = (mask for mask in (self.missing, self.suggested) if mask is not None)
        for matrix in (self.X, self.Y, *masks):
            whole.update(_matrix_digest(matrix))
        return whole.hexdigest()

    def take(self, index: ArrayLike) -> Self:
        """Return the rows at `index`, in that order."""
        rows = np.asarray(index)
        if rows.size == 0:
            rows = rows.astype(np.int64)  # an empty list would be one of floats
        masks: Any = {
            name: None if mask is None else mask[rows]
            for name, mask in (("missing", self.missing), ("suggested", self.suggested))
        }
        frame = None if self.frame is None else self.frame.iloc[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], frame=frame, **masks)

    @property
    def measurable(self) -> IntArray:
        """The numbers of the rows with a label that is known and a random sample."""
        left_out: Any = self.measured.missing
        if left_out is None:
            return np.arange(self.n_samples)
        return np.flatnonzero(np.asarray(left_out.sum(axis=1)).ravel() < self.n_labels)

    @property
    def measured(self) -> Self:
        """The rows with only those labels that are a random sample; the others are missing.

        Examples
        --------
        >>> data = MultiLabelDataset.from_arrays(np.eye(2), np.eye(2, dtype=bool))
        >>> data = replace(data, suggested=np.array([[True, False], [False, False]]))
        >>> data.measured.Y.tolist(), data.measured.missing.tolist()
        ([[False, False], [False, True]], [[True, False], [False, False]])
        """
        if self.suggested is None:
            return self
        missing = self.suggested if self.missing is None else self.missing + self.suggested
        return replace(self, Y=missing < self.Y, missing=missing, suggested=None)

    def with_features(self, columns: ArrayLike) -> Self:
        """Return the dataset with only the feature columns at `columns`, in that order.

        Examples
        --------
        >>> data = MultiLabelDataset.from_arrays(np.eye(3), np.eye(3, dtype=bool))
        >>> data.with_features([2]).feature_names
        ('feature_2',)
        """
        chosen = np.asarray(columns, dtype=np.int64)
        names = tuple(self.feature_names[column] for column in chosen)
        return replace(self, X=self.X[:, chosen], feature_names=names, columns=None, frame=None)

    def with_labels(self, columns: ArrayLike) -> Self:
        """Return the dataset with only the label columns at `columns`, in that order.

        Examples
        --------
        >>> data = MultiLabelDataset.from_arrays(np.eye(3), np.eye(3, dtype=bool))
        >>> data.with_labels([2, 0]).label_names
        ('label_2', 'label_0')
        """
        chosen = np.asarray(columns, dtype=np.int64)
        names = tuple(self.label_names[column] for column in chosen)
        masks: Any = {
            name: None if mask is None else stored_labels(mask[:, chosen])
            for name, mask in (("missing", self.missing), ("suggested", self.suggested))
        }
        Y = stored_labels(self.Y[:, chosen])
        return replace(self, Y=Y, label_names=names, **masks)


def stored_by_values(X: Features) -> Features:
    """Return features as CSR where few values are not zero, else as an array, however they came.

    A model must not depend on the container. Up to a tenth of values that are not zero is CSR, which
    models multiply without the zeros. More is an array, unless that would take gigabytes and most
    values are zero.
    """
    cells = X.shape[0] * X.shape[1]
    if isinstance(X, np.ndarray):
        return csr_array(X) if np.count_nonzero(X) <= SPARSE_SHARE * cells else X
    used = X.count_nonzero()
    few = used <= SPARSE_SHARE * cells or (used <= cells / 2 and cells > _MOST_CELLS)
    return X if few else X.toarray()


def rare_by_count(counts: IntArray, min_positives: int) -> NDArray[np.bool_]:
    """Return which labels are rare by their numbers of positives: `tailbatch.imbalance.rare_labels`."""
    enough = counts >= max(min_positives, 1)
    if not enough.any():
        return enough
    # In logarithms the geometric mean is a mean, and the commonest label's count cancels.
    rarity = -np.log(np.maximum(counts, 1))
    typical = max(rarity[enough].mean(), np.median(rarity[enough]))
    # Equal counts may differ from their mean by a rounding error.
    return np.asarray(enough & (rarity > typical + 1e-12))


def checked_features(X: Any, names: Sequence[str] | None = None) -> Features:
    """Return finite numbers, (n, d), as an array or canonical CSR; refuse others, naming the cell."""
    given = X if issparse(X) else np.asarray(X)
    if given.ndim != 2:
        raise DataError(f"X must have two dimensions (samples, features), got shape {given.shape}")
    if given.dtype.kind not in "biuf":
        raise DataError(
            f"X must hold real numbers, got dtype {given.dtype}; for columns of text use from_frame"
        )
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    features = _canonical_csr(X, dtype) if issparse(X) else given.astype(dtype, copy=False)
    values: Any = features.data if issparse(features) else features
    # A sum is finite only if all its terms are, or if it overflows: then we look closely.
    with np.errstate(over="ignore", invalid="ignore"):
        looks_finite = np.isfinite(values.sum(dtype=np.float64))
    if not looks_finite and not (finite := np.isfinite(values).ravel()).all():
        first = int(np.argmin(finite))
        value, (row, column) = values.ravel()[first], _row_and_column(first, features)
        name = "" if names is None else f" ({str(names[column])!r})"
        raise DataError(
            f"X has {'NaN' if np.isnan(value) else value} in row {row}, column {column}{name}; remove or "
            "impute such values first"
        )
    return features


def _blocks(matrix: Any) -> Iterator[tuple[IntArray, IntArray, NDArray[np.float64]]]:
    """Yield (non-zeros per row, their columns, their values) for blocks of rows."""
    n_rows, n_columns = matrix.shape
    cells_per_row = matrix.nnz // max(1, n_rows) + 1 if issparse(matrix) else max(1, n_columns)
    step = max(1, _CELLS_PER_BLOCK // cells_per_row)
    for start in range(0, n_rows, step):
        block = matrix[start : start + step]
        if issparse(block):
            block = _canonical_csr(block, np.float64)
            yield np.diff(block.indptr), block.indices, block.data
        else:
            rows, columns = np.nonzero(block)
            yield np.bincount(rows, minlength=len(block)), columns, block[rows, columns]


def _matrix_digest(matrix: Any) -> bytes:
    """Return a digest of shape and non-zeros that does not depend on storage or block size."""
    counts, columns, values = (hashlib.blake2b(digest_size=16) for _ in range(3))
    for block_counts, block_columns, block_values in _blocks(matrix):
        counts.update(block_counts.astype("<i8").tobytes())
        columns.update(block_columns.astype("<i8").tobytes())
        values.update(block_values.astype("<f8").tobytes())
    shape = np.array(matrix.shape, dtype="<i8").tobytes()
    return shape + counts.digest() + columns.digest() + values.digest()
