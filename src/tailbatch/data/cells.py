"""What the cells of a data frame's column hold: numbers, text, several values, or nothing."""

from collections.abc import Collection, Hashable
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailbatch.errors import DataError, closest, require, setting

if TYPE_CHECKING:
    import pandas as pd

#: Columns that are no numbers are looked at one by one, and pandas takes a while for each.
MAX_TEXT_COLUMNS = 2_000

#: Texts that say that there is no value, as pandas reads them from CSV files.
MISSING_TEXTS = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
     "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
)  # fmt: skip

_SHOWN_COLUMNS = 8
_LONGEST_MISSING = 40  # a longer text is not looked at without its spaces
#: What Parquet calls the Python types its columns become.
_CELL_NAMES = {np.ndarray: "list", dict: "struct", bytes: "binary"}


def is_plain(kind: object) -> bool:
    """Whether a column is of NumPy's numbers; such columns are looked at together."""
    return isinstance(kind, np.dtype) and kind.kind in "biuf"


def is_number(column: "pd.Series") -> bool:
    """Whether a column holds numbers or booleans of any type."""
    pd = require("pandas", extra="cli")
    return bool(
        pd.api.types.is_numeric_dtype(column)
        or pd.api.types.is_bool_dtype(column)
        or holds_numbers(column)
    )


def cell_types(column: "pd.Series") -> set[type]:
    """Return the types of a column's Python objects, missing ones aside; other columns have none."""
    if column.dtype.kind != "O" or not isinstance(column.dtype, np.dtype):
        return set()
    types = set(map(type, column.array))
    if types <= {str, float, type(None)}:
        return types - {type(None), float} or types - {type(None)}
    return set(map(type, column.array[~column.isna()]))


def holds_numbers(column: "pd.Series") -> bool:
    """Whether a column of Python objects holds numbers only, such as decimals."""
    types = cell_types(column)
    return bool(types) and all(issubclass(kind, Real | Decimal | np.bool_) for kind in types)


def refuse_containers(column: "pd.Series") -> None:
    """Refuse cells that are several values, or bytes."""
    for kind in cell_types(column):
        if issubclass(kind, bytes | bytearray | tuple) or not issubclass(kind, Hashable):
            shown = _CELL_NAMES.get(kind, kind.__name__)
            raise DataError(
                f"the column {column.name!r} is of type {shown}, which is neither number nor text; "
                f"leave it out with {setting('kinds', {str(column.name): 'ignore'})}, or make columns of "
                "numbers or text of it"
            )


def refuse_many(frame: "pd.DataFrame") -> None:
    """Refuse thousands of columns that have to be looked at one by one."""
    pd = require("pandas", extra="cli")
    numeric = {kind: pd.api.types.is_numeric_dtype(kind) for kind in set(frame.dtypes)}
    count = sum(not numeric[kind] for kind in frame.dtypes)
    if count > MAX_TEXT_COLUMNS:
        raise DataError(
            f"{count:,} columns are no numbers, and at most {MAX_TEXT_COLUMNS:,} can be encoded; "
            "turn them into numbers first"
        )


def blanked(column: "pd.Series", keep: Collection[str] = ()) -> "pd.Series":
    """Return a column whose texts such as ``n/a`` are missing values, as they are in a CSV file.

    Texts in `keep` are values all the same.
    """
    if is_plain(column.dtype) or column.dtype.kind in "biufcmM":
        return column
    absent = MISSING_TEXTS.difference(keep)
    says_so = np.array([_says_missing(cell, absent) for cell in column.array], dtype=np.bool_)
    return column.where(~says_so, None) if says_so.any() else column


def blanked_frame(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a data frame with each column `blanked`; the given one does not change."""
    result = frame
    for place, kind in enumerate(frame.dtypes):
        if is_plain(kind):
            continue
        column = frame.iloc[:, place]
        if (cleared := blanked(column)) is not column:
            result = frame.copy(deep=False) if result is frame else result
            result.isetitem(place, cleared)
    return result


def _says_missing(cell: object, absent: Collection[str]) -> bool:
    return isinstance(cell, str) and (
        cell.strip() in absent if len(cell) < _LONGEST_MISSING else cell.isspace()
    )


def row_name(column: "pd.Series", is_wrong: Any) -> str:
    """Return the name of the first wrong row, by the frame's own index."""
    return f"{column.index.name or 'row'} {column.index[int(np.argmax(is_wrong))]}"


def missing_value(column: "pd.Series", name: str, absent: NDArray[np.bool_]) -> DataError:
    """Return the error for a missing value that nothing is filled in for."""
    return DataError(
        f"the column {name!r} has a missing value in {row_name(column, absent)}; "
        f"fill it in, leave the column out with {setting('kinds', {name: 'ignore'})}, or pass "
        f"{setting('missing', 'impute')} (n/a, NA and the like count as missing)"
    )


def columns_text(names: list[str], wanted: object) -> str:
    """Return the end of a sentence about a column that is not there: the nearest one, and the first."""
    near = closest(wanted, names, cutoff=0.6)
    guess = f"; did you mean {near!r}? The" if near else "; the"
    rest = len(names) - _SHOWN_COLUMNS
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"{guess} columns are: {', '.join(names[:_SHOWN_COLUMNS])}{more}"


def as_floats(column: "pd.Series", name: str) -> NDArray[np.float64]:
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


def as_texts(column: "pd.Series") -> list[str]:
    """Return each cell as text, missing ones as the empty text.

    Python's strings stay shared; another array of text would hold each row's own copy.
    """
    missing = column.isna().to_numpy()
    return [
        "" if absent else value if isinstance(value, str) else str(value)
        for value, absent in zip(column.array, missing, strict=True)
    ]
