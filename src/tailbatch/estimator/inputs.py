"""What a user hands to the estimator: features of any container, labels of any shape, weights."""

import logging
import secrets
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from tailbatch.data import Columns, FittedColumns, LabelMatrix, MultiLabelDataset
from tailbatch.data.column_parts import NumberPart
from tailbatch.data.labels import frame_labels, rows_of_series, stored_labels
from tailbatch.data.sparse import first_repeated
from tailbatch.data.tables import read_frame
from tailbatch.errors import DataError, ModelError, check_number, did_you_mean, require, setting

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)


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
    # Lists of names come first: NumPy would make texts of them, or refuse rows of unequal lengths.
    if _lists_names(Y):
        _refuse_two_readings(Y)
        known = tuple(sorted(_all_names(Y))) if names is None else tuple(names)
        if not known:
            raise DataError("no row of Y has a label: name the labels with label_names=")
        return Labels(_matrix_of_names(Y, known), known, None)
    if names is None:  # label_names= wins over the names of a frame
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


def checked_sample_weight(sample_weight: ArrayLike, n_samples: int, kept: NDArray[np.int64]) -> Any:
    """Return a weight for each row that is kept, with a mean of 1, or None where all weigh the same.

    `kept` numbers the training rows among all, so that lr and decay mean what they say.
    """
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"sample_weight must hold numbers, got {sample_weight!r:.60}") from None
    if weights.ndim == 0:  # scikit-learn takes one number for all rows
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
    # Without weights a model of one's own need not take any.
    if (weights == weights[0]).all():
        return None
    weights = weights[kept]
    return weights / weights.mean()


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


def two_classes(y: NDArray[Any]) -> NDArray[Any]:
    """Return the two classes of a one-dimensional target, ascending."""
    # Scikit-learn's words for the kind, as its own checks expect them in the message.
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
    """Return the one seed of a fit; None asks the operating system, never NumPy's global state."""
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
    # Lists of names hardly ever all have one length, rows of a matrix always do.
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


def fitted_columns(columns: Columns | None, X: Any) -> tuple[FittedColumns | None, Any]:
    """Return how the columns of X become features, and these; None and X where it holds numbers."""
    _refuse_unreadable(X)
    if columns is None and not _needs_columns(X):
        return None, X
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        if columns is not None and columns.encoder is not None:
            raise _no_text(columns)
        raise DataError(
            f"columns= is for a pandas data frame, got X of type {type(X).__name__}; leave it out for "
            "numbers"
        )
    fitted = (columns or Columns()).fit(X)
    if fitted.columns.encoder is not None and not fitted.has_text:
        raise _no_text(fitted.columns)
    for notice in fitted.notices:
        _log.warning("%s", notice)
    return fitted, fitted.transform(X)[0]


def _no_text(columns: Columns) -> DataError:
    return DataError(
        f"{setting('encoder')}={columns.encoder!r:.60} is for text, and X has no column of text; "
        f"name one with {setting('text', 'subject')}"
    )


def _needs_columns(X: Any) -> bool:
    """Whether X is a data frame with text or gaps, which scikit-learn's own checks refuse."""
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        return False
    pd = require("pandas", extra="cli")
    if not all(pd.api.types.is_numeric_dtype(kind) for kind in set(X.dtypes)):
        return True
    return bool(X.isna().to_numpy().any())


def encoded(columns: FittedColumns | None, X: Any) -> Any:
    """Return the features of later rows; numbers that are features already stay as they are."""
    _refuse_unreadable(X)
    if columns is None:
        return X
    if not hasattr(X, "columns") and np.shape(X)[1:] == (len(columns.feature_names),):
        return X
    return _transformed(columns, X)


def _transformed(columns: FittedColumns, X: Any) -> Any:
    features, notices = columns.transform(X)
    for notice in notices:
        _log.warning("%s", notice)
    return features


def _refuse_unreadable(X: Any) -> None:
    """Refuse texts that are in no data frame, and two columns of one name."""
    if hasattr(X, "columns"):
        names = map(str, X.columns) if hasattr(X, "iloc") else ()
        # Nothing could tell the two apart, neither now nor when another table is predicted.
        if (repeated := first_repeated(list(names))) is not None:
            raise DataError(f"the column {repeated!r} of X occurs twice; rename one")
        return
    kind = "O" if isinstance(X, list | tuple) else getattr(getattr(X, "dtype", None), "kind", "")
    if kind in ("O", "U", "S", "T") and (text := _first_text(X)) is not None:
        raise DataError(
            f"X holds text, such as {text!r:.40}: fit and predict a list with one text for each row, "
            "or a data frame whose columns have names"
        )


def _first_text(X: Any) -> str | None:
    for row in X:
        for cell in [row] if isinstance(row, str) else row if _is_row(row) else ():
            if isinstance(cell, str) and not _is_number(cell):
                return cell
    return None


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple) or getattr(row, "ndim", 0) == 1


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def columns_of(columns: FittedColumns | None, feature_names: Iterable[Any] | None) -> FittedColumns:
    """Return the columns to look for in a table; numbers of these names, where there are no others."""
    if columns is not None:
        return columns
    names = () if feature_names is None else feature_names
    numbers = tuple(NumberPart(str(name), None) for name in names)
    return FittedColumns(Columns(), numbers, {})


def read_for(
    columns: FittedColumns, path: Path, as_text: Iterable[str] = ()
) -> tuple["pd.DataFrame", tuple[str, ...]]:
    """Read a table whose columns are looked for by name, as they were written, and notices."""
    # Texts stay as written: a reader that guessed would make 007 a number and NA a gap.
    kinds = {part.name: part.kind for part in columns.parts}
    texts = {name for name, kind in kinds.items() if kind != "number"}
    texts |= {name for name in as_text if name not in kinds}
    frame, notices = read_frame(path, as_text=(*columns.columns.as_text, *texts))
    return frame, tuple(notices)


def labels_for(
    frame: "pd.DataFrame", columns: FittedColumns, label_names: Sequence[str], labels: Any = None
) -> tuple[LabelMatrix, tuple[str, ...]]:
    """Return the known labels of a table, (n, q) in their order, and notices.

    Parameters
    ----------
    frame
        The table.
    columns
        It remembers where the training table had its labels.
    label_names
        The labels of the model.
    labels
        Where they are in this table, if elsewhere.
    """
    where = columns.columns.labels if labels is None else labels
    _, Y, found = frame_labels(frame, list(label_names) if where is None else where)
    matrix = sparse.csr_array(Y)
    place = {name: position for position, name in enumerate(found)}
    names = set(map(str, frame.columns))
    lists = isinstance(where, str) and bool({where, where.rpartition(":")[0]} & names)
    missing = [name for name in label_names if name not in place]
    if missing and not (lists and set(found) & set(label_names)):
        raise DataError(
            f"the label {missing[0]!r} of the model is missing; the labels found are: "
            + ", ".join(found[:8])
        )
    # A file that lists names says nothing of a label that none of its rows has.
    pad = sparse.csr_array((matrix.shape[0], 1), dtype=np.bool_)
    known = [matrix[:, [place[name]]] if name in place else pad for name in label_names]
    notices = []
    if unknown := [name for name in found if name not in set(label_names)]:
        shown = ", ".join(repr(name) for name in unknown[:3])
        more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
        notices.append(f"left out labels that the model does not know: {shown}{more}")
    return stored_labels(sparse.csr_array(sparse.hstack(known), dtype=np.bool_)), tuple(notices)


def aligned(
    data: MultiLabelDataset, feature_names: Sequence[str], label_names: Sequence[str]
) -> MultiLabelDataset:
    """Return a dataset with these features and labels in this order; others are left out.

    In sparse data a missing feature is 0 throughout, because LIBSVM files do not mention such.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(np.eye(2), np.eye(2, dtype=bool))
    >>> aligned(data, ["feature_1"], ["label_1", "label_0"]).Y.tolist()
    [[False, True], [True, False]]
    """
    if data.is_sparse:
        data = _with_zero_features(data, sorted(set(feature_names) - set(data.feature_names)))
    features = _positions(data.feature_names, feature_names, "feature")
    labels = _positions(data.label_names, label_names, "label")
    return data.with_features(features).with_labels(labels)


def _with_zero_features(data: MultiLabelDataset, names: Sequence[str]) -> MultiLabelDataset:
    zeros = sparse.csr_array((data.n_samples, len(names)))
    return MultiLabelDataset.from_arrays(
        sparse.hstack([data.X, zeros], format="csr"),
        data.Y,
        name=data.name,
        feature_names=[*data.feature_names, *names],
        label_names=data.label_names,
    )


def _positions(known: Sequence[str], wanted: Sequence[str], what: str) -> list[int]:
    place = {name: position for position, name in enumerate(known)}
    for name in wanted:
        if name not in place:
            raise DataError(f"the {what} {name!r} of the training data is missing")
    return [place[name] for name in wanted]
