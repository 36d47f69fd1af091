"""Data frames to arrays: which columns are labels, and how the others become numbers."""

from collections import Counter
from collections.abc import Hashable, Sequence
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailbatch.data.sparse import FEW_LEVELS, MAX_LEVELS, OneHot, side_by_side
from tailbatch.data.text import first_repeated
from tailbatch.errors import DataError, require

if TYPE_CHECKING:
    import pandas as pd

#: The first n columns, the last -n, names of columns, a prefix of names, or one listing column.
FrameLabels = int | str | Sequence[str]

#: Delimiters of a column that lists labels; the first that occurs anywhere in it is used.
DELIMITERS = (";", "|", ",")

#: Columns that are no numbers are looked at one by one, and pandas takes a while for each.
MAX_TEXT_COLUMNS = 2_000

#: What Parquet calls the Python types its columns become.
_CELL_NAMES = {np.ndarray: "list", dict: "struct", bytes: "binary"}


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
    return chosen, _binary_columns(frame[chosen]), tuple(str(column) for column in chosen)


def _columns_of(frame: "pd.DataFrame") -> str:
    names = [str(column) for column in frame.columns]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"the columns are: {shown}"


def _row(column: "pd.Series", is_wrong: Any) -> str:
    """Return the name of the first wrong row, by the frame's own index."""
    return f"{column.index.name or 'row'} {column.index[int(np.argmax(is_wrong))]}"


def _binary_columns(frame: "pd.DataFrame") -> NDArray[np.bool_]:
    """Return label columns as booleans; columns of plain numbers are looked at together."""
    if all(map(_is_plain, set(frame.dtypes))):
        values = frame.to_numpy()
        if bool(((values == 0) | (values == 1)).all()):
            return np.asarray(values == 1, dtype=np.bool_)
        wrong = int(np.argmin(((values == 0) | (values == 1)).all(axis=0)))
        return _binary_column(frame.iloc[:, wrong])  # which says what is wrong
    _refuse_many(frame)
    return np.column_stack([_binary_column(column) for _, column in frame.items()])


def _binary_column(column: "pd.Series") -> NDArray[np.bool_]:
    _refuse_containers(column)
    if column.isna().any():
        raise DataError(
            f"the label {column.name!r} is missing in {_row(column, column.isna())}; labels must "
            "be 0 or 1"
        )
    values = column.to_numpy()
    if values.dtype.kind in "OUT" and not _holds_numbers(column):
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

    _refuse_containers(column)
    is_number = column.dtype.kind in "biuf" or _holds_numbers(column)
    if is_number and not column.isna().all():
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
        Features (n, d), CSR if all columns were sparse or zeros of one-hot columns would fill the
        memory; their names; notices.
    """
    pd = require("pandas", extra="cli")
    if missing not in ("error", "impute"):
        raise DataError(f"missing must be 'error' or 'impute', got {missing!r}")
    names = [str(column) for column in frame.columns]
    if names and all(isinstance(kind, pd.SparseDtype) for kind in set(frame.dtypes)):
        return frame.sparse.to_coo(), tuple(names), ()
    is_plain = np.array([_is_plain(kind) for kind in frame.dtypes], dtype=np.bool_)
    numbers = _plain_numbers(frame.loc[:, is_plain], missing)
    if is_plain.all():
        return numbers, tuple(names), ()
    _refuse_many(frame)
    parts = iter(numbers.T[:, :, None])
    columns, feature_names, notices = list[OneHot | NDArray[np.float64]](), list[str](), list[str]()
    for place, name in enumerate(names):
        if is_plain[place]:
            columns.append(next(parts))
            feature_names.append(name)
            continue
        column = frame.iloc[:, place]
        if notice := _left_out(column):
            notices.append(f"left out the column {name!r}: {notice}")
            continue
        values, levels = _encoded(column, name, missing)
        columns.append(values)
        feature_names += levels
    return side_by_side(columns, len(frame)), tuple(feature_names), tuple(notices)


def _plain_numbers(frame: "pd.DataFrame", missing: str) -> NDArray[np.float64]:
    """Return columns of NumPy's numbers as they are, missing ones filled in."""
    values: NDArray[np.float64] = frame.to_numpy(dtype=np.float64)
    absent = np.isnan(values)
    for place in np.flatnonzero(absent.any(axis=0)):
        column = frame.iloc[:, place]
        _refuse_missing(column, str(column.name), absent[:, place], missing)
        values = values if values.flags.writeable else values.copy()
        values[absent[:, place], place] = values[~absent[:, place], place].mean()
    return values


def _refuse_many(frame: "pd.DataFrame") -> None:
    """Refuse thousands of columns that have to be looked at one by one."""
    pd = require("pandas", extra="cli")
    is_number = {kind: pd.api.types.is_numeric_dtype(kind) for kind in set(frame.dtypes)}
    count = sum(not is_number[kind] for kind in frame.dtypes)
    if count > MAX_TEXT_COLUMNS:
        raise DataError(
            f"{count:,} columns are no numbers, and at most {MAX_TEXT_COLUMNS:,} can be encoded; "
            "turn them into numbers first"
        )


def _is_plain(kind: object) -> bool:
    """Whether a column is of NumPy's numbers; such columns are looked at together."""
    return isinstance(kind, np.dtype) and kind.kind in "biuf"


def _is_number(column: "pd.Series") -> bool:
    pd = require("pandas", extra="cli")
    return bool(
        pd.api.types.is_numeric_dtype(column)
        or pd.api.types.is_bool_dtype(column)
        or _holds_numbers(column)
    )


def _cell_types(column: "pd.Series") -> set[type]:
    """Return the types of a column's Python objects, missing ones aside; other columns have none."""
    if column.dtype.kind != "O" or str(column.dtype) == "category":
        return set()
    if not isinstance(column.dtype, np.dtype):
        return set()
    types = set(map(type, column.array))
    if types <= {str, float, type(None)}:
        return types - {type(None), float} or types - {type(None)}
    return set(map(type, column.array[~column.isna()]))


def _holds_numbers(column: "pd.Series") -> bool:
    """Whether a column of Python objects holds numbers only, such as decimals."""
    types = _cell_types(column)
    return bool(types) and all(issubclass(kind, Real | Decimal | np.bool_) for kind in types)


def _refuse_containers(column: "pd.Series") -> None:
    """Refuse cells that are several values, or bytes."""
    for kind in _cell_types(column):
        if issubclass(kind, bytes | bytearray | tuple) or not issubclass(kind, Hashable):
            shown = _CELL_NAMES.get(kind, kind.__name__)
            raise DataError(
                f"the column {column.name!r} is of type {shown}, which is neither number nor text; "
                "leave it out, or make columns of numbers or text of it"
            )


def _left_out(column: "pd.Series") -> str | None:
    """Return why a column of text is not used, if it is not."""
    _refuse_containers(column)
    is_text = column.dtype.kind in "OUT" and str(column.dtype) != "category"
    if not is_text or _is_number(column) or len(column) < 2:
        return None
    n_different = len(set(column.array))  # pandas would compare long texts letter by letter
    if n_different == len(column):
        return "it identifies rows"
    if n_different > max(FEW_LEVELS, len(column) // 2):
        return (
            f"{n_different:,} of its {len(column):,} values are different, so it identifies rows or "
            "is free text; turn it into numbers first to use it"
        )
    return None


def _encoded(
    column: "pd.Series", name: str, missing: str
) -> tuple[OneHot | NDArray[np.float64], list[str]]:
    """Return one column as (n, 1) numbers or indicators of its values, and the columns' names."""
    absent = column.isna().to_numpy()
    _refuse_missing(column, name, absent, missing)
    if _is_number(column):
        values = _as_floats(column, name)
        values = np.where(absent, values[~absent].mean(), values)
        return values[:, None], [name]
    if column.dtype.kind in "mMc":
        raise DataError(
            f"the column {name!r} is of type {column.dtype}; turn it into numbers first"
        )
    # Python's strings stay shared; another array of text would hold each row's anew.
    text = [str(value) for value in column.array]
    if absent.any():
        counts = Counter(value for value, missing in zip(text, absent, strict=True) if not missing)
        most = max(counts.values())
        fill = min(value for value, count in counts.items() if count == most)
        text = [fill if missing else value for value, missing in zip(text, absent, strict=True)]
    levels = sorted(set(text))
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"the column {name!r} has {len(levels):,} different values, and at most {MAX_LEVELS:,} "
            "become columns; leave it out, join rare values, or turn it into numbers first"
        )
    shown = levels[1:] if len(levels) == 2 else levels
    place = dict(zip(shown, range(len(shown)), strict=True))
    codes = np.array([place.get(value, -1) for value in text], dtype=np.int32)
    return OneHot(codes, len(shown)), [f"{name}={level}" for level in shown]


def _refuse_missing(
    column: "pd.Series", name: str, absent: NDArray[np.bool_], missing: str
) -> None:
    if absent.any() and (missing == "error" or absent.all()):
        raise DataError(
            f"the column {name!r} has a missing value in {_row(column, absent)}; "
            "fill it in, leave the column out, or pass missing='impute'"
        )


def _as_floats(column: "pd.Series", name: str) -> NDArray[np.float64]:
    """Return numbers of any type as float64, missing ones as NaN."""
    if column.dtype.kind != "O":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    try:
        pairs = zip(column.array, column.isna(), strict=True)
        return np.array([np.nan if missing else float(value) for value, missing in pairs])
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"the column {name!r} holds a number that no float64 can hold ({error}); scale it first"
        ) from None
