"""What comes in through scikit-learn's grammar, checked where its own checks say too little."""

import secrets
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from tailbatch.data import Features
from tailbatch.errors import DataError


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


def refuse_missing_labels(Y: Any) -> None:
    """Name the row and column of the first label that is NaN or None, if there is one.

    Examples
    --------
    >>> refuse_missing_labels(np.array([[1.0, 0.0], [0.0, np.nan]]))
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: Y has no value in row 1, column 1; leave such rows out, or say 0 or 1
    """
    values: Any = Y.data if sparse.issparse(Y) else np.asarray(Y)
    if values.dtype.kind not in "fO" or not (sparse.issparse(Y) or values.ndim == 2):
        return  # nothing can be missing, or scikit-learn says what is wrong
    missing = (values != values) | (values == None)  # noqa: E711 # NaN and None, by element
    if not missing.any():
        return
    if sparse.issparse(Y):
        entries = sparse.coo_array(Y)
        row, column = int(entries.row[missing][0]), int(entries.col[missing][0])
    else:
        row, column = divmod(int(np.argmax(missing)), values.shape[1])
    names = getattr(Y, "columns", None)
    name = "" if names is None else f" ({str(names[column])!r})"
    raise DataError(
        f"Y has no value in row {row}, column {column}{name}; leave such rows out, or say 0 or 1"
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
            "labels give Y one column of zeros and ones for each"
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
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
