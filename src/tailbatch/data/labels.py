"""Label matrices: the one check of what may be one, and how it is kept."""

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from tailbatch.errors import DataError, TailbatchError

LabelMatrix: TypeAlias = NDArray[np.bool_] | csr_array
"""Labels (n, q): a dense array of booleans, or CSR for more than 1,000 labels."""

#: Up to this many labels the label matrix is a dense boolean array, above it is CSR.
MAX_DENSE_LABELS = 1000
_SHOWN = 3
_NAMES = (str, list, tuple, set, frozenset, np.ndarray)


def checked_labels(Y: Any, *, error: type[TailbatchError] = DataError) -> LabelMatrix:
    """Return labels as booleans, dense or as canonical CSR, or say what is wrong with them.

    Parameters
    ----------
    Y
        (n, q) zeros and ones or booleans, n and q from 1: array-like, or any SciPy sparse matrix,
        which is not changed; a label listed twice in a row of CSR counts once.
    error
        Raised for anything else.

    Examples
    --------
    >>> checked_labels([[1, 0], [0, 1]]).tolist()
    [[True, False], [False, True]]
    >>> checked_labels([[1, 0], [0, 3]])
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: labels must be 0 or 1, got 3 in row 1, label column 1
    """
    labels: Any = csr_array(Y) if issparse(Y) else _array_of(Y, error)
    if labels.ndim != 2 or 0 in labels.shape:
        raise error(
            "Y must be a label matrix (n_samples, n_labels) with at least one row and one column, "
            f"got shape {labels.shape}"
        )
    values: NDArray[Any] = labels.data if issparse(labels) else labels
    if values.dtype != np.bool_:
        binary = np.isin(values, (0, 1)).ravel()
        if not binary.all():
            flat = int(np.argmin(binary))
            row, column = row_and_column(flat, labels)
            raise error(
                f"labels must be 0 or 1, got {values.ravel()[flat]} in row {row}, "
                f"label column {column}"
            )
    # Only now: of booleans, a label that a CSR matrix lists twice counts once.
    return canonical_csr(labels, np.bool_) if issparse(Y) else labels.astype(np.bool_, copy=False)


def _array_of(Y: Any, error: type[TailbatchError]) -> NDArray[Any]:
    """Return labels as an array; lists of names or of unequal length are no matrix."""
    try:
        labels = np.asarray(Y)
    except ValueError:  # rows of different lengths
        lists = True
    else:
        lists = labels.dtype.kind in "US" or (
            labels.dtype.kind == "O" and any(isinstance(cell, _NAMES) for cell in labels.ravel())
        )
    if lists:
        raise error(
            "Y lists the labels of each row, and zeros and ones are needed, (n_samples, n_labels): "
            "make them with Y = sklearn.preprocessing.MultiLabelBinarizer().fit_transform(Y)"
        )
    return labels


def stored_labels(Y: LabelMatrix) -> LabelMatrix:
    """Return boolean labels in the storage their number asks for: CSR above 1,000, else dense.

    Examples
    --------
    >>> stored_labels(csr_array(np.eye(2, dtype=bool))).tolist()
    [[True, False], [False, True]]
    """
    if Y.shape[1] > MAX_DENSE_LABELS:
        return csr_array(Y)
    return Y if isinstance(Y, np.ndarray) else Y.toarray()


def listed_labels(rows: Sequence[Collection[str]]) -> tuple[csr_array, tuple[str, ...]]:
    """Return the labels of rows that name theirs, and all names, sorted; empty names are none.

    Examples
    --------
    >>> Y, names = listed_labels([["bug", "billing"], [], ["bug"]])
    >>> Y.toarray().astype(int).tolist(), names
    ([[1, 1], [0, 0], [0, 1]], ('billing', 'bug'))
    """
    rows = [set(row) - {""} for row in rows]
    names = sorted(set().union(*rows))
    position = {name: index for index, name in enumerate(names)}
    indices = [position[name] for row in rows for name in sorted(row)]
    indptr = np.cumsum([0, *map(len, rows)])
    cells = np.ones(len(indices), dtype=np.bool_)
    return csr_array((cells, indices, indptr), (len(rows), len(names))), tuple(names)


def nearly_equal(names: Sequence[str], where: str) -> str | None:
    """Say which names differ only in case, accents or space; None where none do.

    Examples
    --------
    >>> nearly_equal(["Munich", "Berlin", "munich", "Münich"], "in the column 'city'")
    "in the column 'city' 'Munich' and 'munich' and 'Münich' differ only in case, accents or space; ...
    >>> nearly_equal(["bug", "billing"], "the labels") is None
    True
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_plain(name), []).append(name)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return None
    more = f", and {len(alike) - _SHOWN:,} more such groups" if len(alike) > _SHOWN else ""
    return (
        f"{where} {', '.join(alike[:_SHOWN])}{more} differ only in case, accents or space; write them "
        "alike if they are one"
    )


def _plain(name: str) -> str:
    """Return a name in small letters, without accents and spaces."""
    letters = unicodedata.normalize("NFKD", name) if not name.isascii() else name
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "".join(bare.casefold().split())


def label_sets(Y: Any, names: Sequence[str]) -> list[set[str]]:
    """Return each row's labels by name.

    Examples
    --------
    >>> label_sets(np.array([[1, 0], [0, 0]]), ["bug", "billing"])
    [{'bug'}, set()]
    """
    matrix = csr_array(Y)
    return [
        {names[column] for column in matrix.indices[start:end]}
        for start, end in zip(matrix.indptr, matrix.indptr[1:], strict=False)
    ]


def canonical_csr(matrix: Any, dtype: Any) -> csr_array:
    """Return a sorted CSR copy without duplicates and stored zeros."""
    result = csr_array(matrix, dtype=dtype, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def row_and_column(flat: int, matrix: Any) -> tuple[int, int]:
    """Return row and column of a value, given its place in the (stored) values."""
    if issparse(matrix):
        row = int(np.searchsorted(matrix.indptr, flat, side="right")) - 1
        return row, int(matrix.indices[flat])
    return flat // matrix.shape[1], flat % matrix.shape[1]
