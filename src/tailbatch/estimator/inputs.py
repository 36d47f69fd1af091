"""What a user hands to the estimator, checked where scikit-learn's own checks say too little."""

import secrets
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from tailbatch.data import Features, LabelMatrix
from tailbatch.data.labels import rows_of_series, stored_labels
from tailbatch.errors import DataError, ModelError, check_number, did_you_mean, setting


class Labels(NamedTuple):
    """Labels as a matrix or (n,) classes, with their names and which of them are missing, where known."""

    values: Any
    names: Sequence[str] | None
    missing: LabelMatrix | None


def read_labels(Y: Any, names: Sequence[str] | None, missing_labels: str) -> Labels:
    """Return labels in the shapes people have them as a matrix, with NaN taken out.

    Parameters
    ----------
    Y
        Zeros and ones (n, q), classes (n,), or for each row a list or set of the names of its labels.
    names
        The labels' names where they are known.
    missing_labels
        ``"error"`` refuses NaN and None in a matrix, ``"mask"`` returns where they are.

    Examples
    --------
    >>> labels = read_labels([["bug", "billing"], []], None, "error")
    >>> labels.names, labels.values.tolist()
    (('billing', 'bug'), [[True, True], [False, False]])
    >>> read_labels(np.array([[1.0, np.nan]]), None, "mask").missing.tolist()
    [[False, True]]
    """
    if missing_labels not in ("error", "mask"):
        raise DataError(f'missing_labels must be "error" or "mask", got {missing_labels!r:.60}')
    Y = rows_of_series(Y, known=names is not None)
    if _lists_names(Y):
        _refuse_two_readings(Y)
        known = tuple(sorted(_all_names(Y))) if names is None else tuple(names)
        if not known:
            raise DataError("no row of Y has a label: name the labels with label_names=")
        return Labels(_matrix_of_names(Y, known), known, None)
    if names is None:
        names = getattr(Y, "columns", None)
    where = _missing_cells(Y)
    if where is None:
        return Labels(Y, names, None)
    if missing_labels == "error":
        row, column = (int(position[0]) for position in where.nonzero())
        name = f" ({str(names[column])!r})" if names is not None and column < len(names) else ""
        raise DataError(
            f"Y has no value in row {row}, column {column}{name}; say 0 or 1, leave such rows out, or "
            'set missing_labels="mask" to learn from the labels that are there'
        )
    return Labels(_filled(Y, where), names, stored_labels(where))


def names_in_rows(predictions: NDArray[Any], names: Sequence[str]) -> list[set[str]]:
    """Return the names of each row's labels.

    Examples
    --------
    >>> names_in_rows(np.array([[0, 1], [0, 0]]), ["bug", "billing"])
    [{'billing'}, set()]
    """
    return [{names[label] for label in np.flatnonzero(row).tolist()} for row in predictions]


def checked_sample_weight(sample_weight: ArrayLike | None, n_samples: int) -> Any:
    """Return a weight for each row, (n,), or None where all rows weigh the same.

    Examples
    --------
    >>> checked_sample_weight([1, 3], 2).tolist()
    [1.0, 3.0]
    """
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"sample_weight must hold numbers, got {sample_weight!r:.60}") from None
    if weights.ndim == 0:
        weights = np.full(n_samples, weights)
    if weights.shape != (n_samples,):
        raise DataError(
            f"sample_weight must have one number for each of {n_samples} rows, got shape "
            f"{weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise DataError("sample_weight must hold finite numbers from 0")
    if not weights.any():
        raise DataError(
            "sample_weight is zero for every row: give at least one row a weight above 0"
        )
    return None if (weights == weights[0]).all() else weights


def checked_thresholds(thresholds: Any, n_labels: int) -> NDArray[np.float64] | None:
    """Return the probability above which each label is predicted, (q,); None if they are to be tuned.

    Parameters
    ----------
    thresholds
        ``"tuned"``, a number for all labels, or one for each.
    n_labels
        How many labels there are.

    Examples
    --------
    >>> checked_thresholds(0.5, 2), checked_thresholds([0.2, 0.5], 2), checked_thresholds("tuned", 2)
    (array([0.5, 0.5]), array([0.2, 0.5]), None)
    """
    if isinstance(thresholds, str) and thresholds == "tuned":
        return None
    try:
        values = np.array(None if isinstance(thresholds, str) else thresholds, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros(1)  # refused below
    if values.ndim > 1 or not ((values > 0) & (values < 1)).all():
        raise ModelError(
            f'{setting("thresholds")} must be "tuned" or a probability between 0 and 1, the same for all '
            f"labels or one for each, got {thresholds!r:.60}"
        )
    if values.ndim and len(values) != n_labels:
        raise ModelError(
            f"thresholds must have one probability for each of {n_labels} labels, got {len(values)}"
        )
    return values if values.ndim else np.full(n_labels, values)


def refuse_all_missing(missing: LabelMatrix | None) -> None:
    """Raise if no label of the training rows is known.

    Examples
    --------
    >>> refuse_all_missing(np.array([[True, False]]))
    >>> refuse_all_missing(np.array([[True, True]]))
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: every label of the training rows is missing: there is nothing to learn ...
    """
    if missing is not None and missing.sum() == missing.shape[0] * missing.shape[1]:
        raise DataError(
            "every label of the training rows is missing: there is nothing to learn from; give Y zeros "
            "and ones where they are known"
        )


def refuse_not_finite(X: Features, names: Sequence[str] | None) -> None:
    """Name the row and column of the first NaN or infinity, if there is one.

    Examples
    --------
    >>> refuse_not_finite(np.array([[1.0, np.nan]]), ["length", "width"])
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: X has NaN in row 0, column 1 ('width'); remove or impute ...
    """
    finite = np.isfinite(X.data if sparse.issparse(X) else X)
    if finite.all():
        return
    if sparse.issparse(X):
        entries = sparse.coo_array(X)
        row, column = int(entries.row[~finite][0]), int(entries.col[~finite][0])
    else:
        row, column = divmod(int(np.argmin(finite)), X.shape[1])
    name = f" ({names[column]!r})" if names is not None else ""
    value = "NaN" if np.isnan(X[row, column]) else "infinity"
    raise DataError(
        f"X has {value} in row {row}, column {column}{name}; remove or impute such values first"
    )


def two_classes(y: NDArray[Any]) -> NDArray[Any]:
    """Return the two classes of a one-dimensional target, ascending.

    Examples
    --------
    >>> two_classes(np.array(["yes", "no", "yes"])).tolist()
    ['no', 'yes']
    """
    kind = type_of_target(y, input_name="Y", raise_unknown=True)
    if kind != "binary":
        raise DataError(
            f"Only binary classification is supported. The type of the target is {kind}: for many "
            "labels give Y one column of zeros and ones for each, or a list of names for each row"
        )
    classes: NDArray[Any] = np.unique(y)
    if len(classes) < 2:
        raise DataError(
            f"Y has only one class, {classes[0]!r}: add rows of another, or give Y as a column (n, 1)"
        )
    return classes


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return the one seed of a fit; None asks the operating system, never NumPy's global state.

    Examples
    --------
    >>> seed_of(7), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (7, True)
    """
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, Integral):
        check_number("random_state", random_state, least=0, whole=True)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _lists_names(Y: Any) -> bool:
    """Whether Y holds a collection of names for each row, rather than numbers or classes."""
    if sparse.issparse(Y) or isinstance(Y, str) or getattr(Y, "ndim", 1) != 1:
        return False
    if not isinstance(Y, list | tuple) and getattr(getattr(Y, "dtype", None), "kind", "") != "O":
        return False
    rows = [row for row in Y if isinstance(row, set | frozenset | list | tuple | np.ndarray)]
    if rows and not any(len(row) for row in rows):
        return True  # no row has a label
    return any(
        isinstance(row, set | frozenset) or any(isinstance(name, str) for name in row)
        for row in rows
    )


def _all_names(Y: Iterable[Any]) -> set[str]:
    names: set[str] = set()
    for number, row in enumerate(Y):
        if isinstance(row, str) or not hasattr(row, "__iter__"):
            raise DataError(
                f"Y must hold a list of label names for each row, got {row!r:.60} in row {number}"
            )
        for name in row:
            if not isinstance(name, str):
                raise DataError(f"labels are named by strings, got {name!r:.60} in row {number}")
            names.add(name)
    return names - {""}  # of an empty text that was split


def _refuse_two_readings(Y: Any) -> None:
    """Refuse rows of the texts "0" and "1", which may be names or a matrix."""
    rows = [list(row) for row in Y if hasattr(row, "__iter__")]
    if {len(row) for row in rows} != {len(rows[0])} or len(rows[0]) < 2:
        return
    if {str(value) for row in rows for value in row} <= {"0", "1"}:
        raise DataError(
            "Y can be read two ways: as lists of the labels '0' and '1', or as a matrix of zeros and "
            "ones; write numbers for a matrix, other names for labels"
        )


def _matrix_of_names(Y: Any, names: Sequence[str]) -> NDArray[np.bool_]:
    unknown = _all_names(Y) - set(names)
    if unknown:
        first = min(unknown)
        raise DataError(f"unknown label {first!r}{did_you_mean(first, names)}")
    column = {name: number for number, name in enumerate(names)}
    matrix = np.zeros((len(Y), len(names)), dtype=bool)
    for number, row in enumerate(Y):
        matrix[number, [column[name] for name in row if name]] = True
    return matrix


def _missing_cells(Y: Any) -> Any:
    """Return where a label matrix holds NaN or None, (n, q), dense or sparse as Y; None for nowhere."""
    is_sparse = sparse.issparse(Y)
    entries = sparse.coo_array(Y) if is_sparse else None
    values: Any = np.asarray(Y) if entries is None else entries.data
    if values.dtype.kind not in "fO" or (entries is None and values.ndim != 2):
        return None  # nothing can be missing, or scikit-learn says what is wrong
    missing = (values != values) | (values == None)  # noqa: E711 # NaN and None, by element
    missing = missing.astype(bool)
    if not missing.any():
        return None
    if entries is None:
        return missing
    cells = (entries.row[missing], entries.col[missing])
    return sparse.csr_array((np.ones(len(cells[0]), dtype=bool), cells), shape=Y.shape)


def _filled(Y: Any, missing: Any) -> Any:
    """Return labels with 0 where they are missing."""
    if sparse.issparse(Y):
        filled = sparse.csr_array(Y, copy=True)
        filled.data = np.nan_to_num(filled.data)
        return filled
    return np.where(missing, 0, np.asarray(Y)).astype(np.float64)
