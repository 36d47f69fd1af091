"""Data frames to arrays: which columns are labels, and how the others become numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailbatch.data.text import first_repeated
from tailbatch.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

#: The first n columns, the last -n, names of columns, a prefix of names, or one listing column.
FrameLabels = int | str | Sequence[str]

#: Delimiters of a column that lists labels; the first that occurs anywhere in it is used.
DELIMITERS = (";", "|", ",")


def frame_labels(
    frame: "pd.DataFrame", labels: FrameLabels
) -> tuple[list[Any], Any, tuple[str, ...]]:
    """Find and read the labels of a data frame.

    Parameters
    ----------
    frame
        The data frame.
    labels
        See `MultiLabelDataset.from_frame`.

    Returns
    -------
    tuple
        The columns used, the labels (n, q), and their names.
    """
    if (repeated := first_repeated([str(column) for column in frame.columns])) is not None:
        raise DataError(f"the column {repeated!r} occurs twice; rename one")
    if isinstance(labels, int):
        if not 0 < abs(labels) <= frame.shape[1]:
            raise DataError(f"labels={labels}, and there are {frame.shape[1]} columns")
        chosen = list(frame.columns[:labels] if labels > 0 else frame.columns[labels:])
    elif not isinstance(labels, str):
        chosen = list(labels)
        for column in chosen:
            if column not in frame.columns:
                raise DataError(f"there is no label column {column!r}; {_columns_of(frame)}")
    elif labels in frame.columns:
        return [labels], *_listed_labels(frame[labels])
    else:
        chosen = [column for column in frame.columns if str(column).startswith(labels)]
        if not chosen:
            raise DataError(
                f"labels={labels!r} is neither a column nor the beginning of one; "
                f"{_columns_of(frame)}"
            )
    if not chosen:
        raise DataError(f"labels names no column; {_columns_of(frame)}")
    Y = np.column_stack([_binary_column(frame[column]) for column in chosen])
    return chosen, Y, tuple(str(column) for column in chosen)


def _columns_of(frame: "pd.DataFrame") -> str:
    names = [str(column) for column in frame.columns]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"the columns are: {shown}"


def _row(column: "pd.Series", is_wrong: Any) -> str:
    """Return the name of the first wrong row, by the frame's own index."""
    return f"{column.index.name or 'row'} {column.index[int(np.argmax(is_wrong))]}"


def _binary_column(column: "pd.Series") -> NDArray[np.bool_]:
    if column.isna().any():
        raise DataError(
            f"the label {column.name!r} is missing in {_row(column, column.isna())}; labels must "
            "be 0 or 1"
        )
    values = column.to_numpy()
    if values.dtype.kind in "OUT":
        lower = np.array([str(value).strip().lower() for value in values])
        positive, known = lower == "true", np.isin(lower, ["true", "false", "0", "1"])
        positive |= lower == "1"
    else:
        positive, known = values == 1, (values == 0) | (values == 1)
    if not known.all():
        value = str(values[np.argmin(known)])
        raise DataError(
            f"labels must be 0 or 1, got {value} in {_row(column, ~known)}, label "
            f"{column.name!r}; if this is no label, name the label columns with labels="
        )
    return np.asarray(positive, dtype=np.bool_)


def _listed_labels(column: "pd.Series") -> tuple[Any, tuple[str, ...]]:
    """Read a column such as ``sports;politics``; an empty or missing cell has no labels."""
    from scipy.sparse import csr_array

    if column.dtype.kind in "biuf" and not column.isna().all():
        raise DataError(
            f"the column {column.name!r} holds numbers, not lists of labels; to use it as one "
            f"label, write labels=[{column.name!r}]"
        )
    cells = [
        "" if missing else str(cell) for cell, missing in zip(column, column.isna(), strict=True)
    ]
    delimiter = next((mark for mark in DELIMITERS if any(mark in cell for cell in cells)), ";")
    rows = [{part.strip() for part in cell.split(delimiter)} - {""} for cell in cells]
    names = sorted(set().union(*rows))
    if not names:
        raise DataError(f"the column {column.name!r} lists no labels at all")
    position = {name: index for index, name in enumerate(names)}
    indices = [position[name] for row in rows for name in sorted(row)]
    indptr = np.cumsum([0, *map(len, rows)])
    shape = (len(rows), len(names))
    return csr_array((np.ones(len(indices), dtype=np.bool_), indices, indptr), shape), tuple(names)


def frame_features(
    frame: "pd.DataFrame", *, missing: str
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Turn the feature columns of a data frame into numbers.

    Parameters
    ----------
    frame
        The data frame without its label columns.
    missing
        ``"error"`` or ``"impute"``.

    Returns
    -------
    tuple
        Features (n, d), CSR if all columns were sparse; their names; notices.
    """
    import pandas as pd

    if missing not in ("error", "impute"):
        raise DataError(f"missing must be 'error' or 'impute', got {missing!r}")
    if frame.shape[1] and all(isinstance(kind, pd.SparseDtype) for kind in frame.dtypes):
        return frame.sparse.to_coo(), tuple(map(str, frame.columns)), ()
    parts: list[NDArray[np.float64]] = []
    names: list[str] = []
    notices: list[str] = []
    for label, column in frame.items():
        if _identifies_rows(column):
            notices.append(f"left out the column {str(label)!r}: it identifies rows")
            continue
        values, column_names = _encoded(column, str(label), missing)
        parts.append(values)
        names += column_names
    X = np.column_stack(parts) if parts else np.empty((len(frame), 0))
    return X, tuple(names), tuple(notices)


def _is_number(column: "pd.Series") -> bool:
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _identifies_rows(column: "pd.Series") -> bool:
    is_text = column.dtype.kind in "OUT" and str(column.dtype) != "category"
    return is_text and not _is_number(column) and len(column) > 1 and bool(column.is_unique)


def _encoded(column: "pd.Series", name: str, missing: str) -> tuple[NDArray[np.float64], list[str]]:
    """Return one column as (n, 1) numbers or (n, k) indicators of its values, and their names."""
    absent = column.isna().to_numpy()
    if absent.any() and (missing == "error" or absent.all()):
        raise DataError(
            f"the column {name!r} has a missing value in {_row(column, absent)}; "
            "fill it in, leave the column out, or pass missing='impute'"
        )
    if _is_number(column):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        values = np.where(absent, values[~absent].mean(), values)
        return values[:, None], [name]
    if column.dtype.kind in "mMc":
        raise DataError(
            f"the column {name!r} is of type {column.dtype}; turn it into numbers first"
        )
    text = np.where(absent, str(column.mode().iloc[0]), column.astype(str))
    levels = sorted(set(text))
    shown = levels[1:] if len(levels) == 2 else levels
    return (text[:, None] == np.array(shown)).astype(np.float64), [f"{name}={v}" for v in shown]
