"""What a column holds, and what it is taken for: number, category, date, text, or nothing to learn from.

Only unambiguous columns are decided here; the rest is an error that lists the readings.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailbatch.data.sparse import FEW_LEVELS
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


def _is_plain(kind: object) -> bool:
    """Whether a column is of NumPy's numbers; such columns are looked at together."""
    return isinstance(kind, np.dtype) and kind.kind in "biuf"


def _is_number(column: "pd.Series") -> bool:
    """Whether a column holds numbers or booleans of any type."""
    pd = require("pandas", extra="cli")
    return bool(
        pd.api.types.is_numeric_dtype(column)
        or pd.api.types.is_bool_dtype(column)
        or _holds_numbers(column)
    )


def _cell_types(column: "pd.Series") -> set[type]:
    """Return the types of a column's Python objects, missing ones aside; other columns have none."""
    if column.dtype.kind != "O" or not isinstance(column.dtype, np.dtype):
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
                f"leave it out with {setting('kinds', {str(column.name): 'ignore'})}, or make columns of "
                "numbers or text of it"
            )


def _refuse_many(frame: "pd.DataFrame") -> None:
    """Refuse thousands of columns that have to be looked at one by one."""
    pd = require("pandas", extra="cli")
    numeric = {kind: pd.api.types.is_numeric_dtype(kind) for kind in set(frame.dtypes)}
    count = sum(not numeric[kind] for kind in frame.dtypes)
    if count > MAX_TEXT_COLUMNS:
        raise DataError(
            f"{count:,} columns are no numbers, and at most {MAX_TEXT_COLUMNS:,} can be encoded; "
            "turn them into numbers first"
        )


def _blanked(column: "pd.Series", keep: Collection[str] = ()) -> "pd.Series":
    """Return a column whose texts such as ``n/a`` are missing values, as they are in a CSV file.

    Texts in `keep` are values all the same.
    """
    if _is_plain(column.dtype) or column.dtype.kind in "biufcmM":
        return column
    absent = MISSING_TEXTS.difference(keep)
    says_so = np.array([_says_missing(cell, absent) for cell in column.array], dtype=np.bool_)
    return column.where(~says_so, None) if says_so.any() else column


def _blanked_frame(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a data frame with each column `_blanked`; the given one does not change."""
    result = frame
    for place, kind in enumerate(frame.dtypes):
        if _is_plain(kind):
            continue
        column = frame.iloc[:, place]
        if (cleared := _blanked(column)) is not column:
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


def _missing_value(column: "pd.Series", name: str, absent: NDArray[np.bool_]) -> DataError:
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


def _as_texts(column: "pd.Series") -> list[str]:
    """Return each cell as text, missing ones as the empty text.

    Python's strings stay shared; another array of text would hold each row's own copy.
    """
    missing = column.isna().to_numpy()
    return [
        "" if absent else value if isinstance(value, str) else str(value)
        for value, absent in zip(column.array, missing, strict=True)
    ]


# --- what a column is taken for

KINDS = ("number", "category", "date", "text", "ignore")
"""What a column can be taken for."""

DOUBT = "; if it is one"
"""How a reason goes on where a column may be meant otherwise."""

_LOOKED_AT = 1_000  # different values of a column, and characters of each, that decide
_MOST = 0.9  # of them must be dates or amounts
_FEW_VALUES = 20
_FEW_TEXTS = 30
_WORDS = 3  # fewer words per cell on average are names or codes
_ID_NAME = re.compile(r"(^|[\W_])(id|uuid|guid|key|index|row|nr|no)$", re.IGNORECASE)
_UNNAMED = re.compile(r"Unnamed: \d+")
_UNIT = r"[A-Za-z%€$£¥°µ²³/]{1,8}"
_AMOUNT = re.compile(
    rf"(?:[A-Z]{{3}}\s+|[$€£¥]\s*)?[+-]?\s*(?:[$€£¥]\s*)?(\d[\d.,'\s]*)\s*(?:{_UNIT})?"
)
_BARE = re.compile(r"\d[\d.,' ]*")  # a number without a unit
_SEPARATED = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3})+(?:\.\d+)?|(?:[.' ]\d{3})+(?:,\d+)?)")
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})"
    r"([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?"
)
_DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_TIMES = ("", " %H:%M", " %H:%M:%S")


class _Taken(NamedTuple):
    """What a column is taken for, and why; the format of a date."""

    kind: str
    why: str
    format: str | None = None


def _taken_for(column: "pd.Series | NDArray[np.float64]", name: str, asked: str | None) -> _Taken:
    """Return what a column is taken for: what was asked for, or what its values say.

    Plain numbers may be an array, unless something was asked for.
    """
    if isinstance(column, np.ndarray):
        return _taken_for_numbers(column, name)
    if asked is not None:
        return _as_asked(column, name, asked)
    if column.isna().all():
        return _Taken("ignore", "it is empty")
    _refuse_containers(column)
    if column.dtype.kind == "M":
        return _Taken("date", "its type is a date")
    if _is_number(column):
        return _Taken("number", "its values are numbers")
    if column.dtype.kind in "mc":
        raise DataError(
            f"the column {name!r} is of type {column.dtype}; turn it into numbers first"
        )
    if str(column.dtype) == "category":
        return _Taken("category", "its type is a category")
    return _taken_for_text(column, name)


def _as_asked(column: "pd.Series", name: str, asked: str) -> _Taken:
    word, _, form = asked.partition(":")
    if word == "date" and not form and column.dtype.kind != "M":
        form = _date_format(column, name) or ""
    if word == "number" and not _is_number(column):
        present = column.array[~column.isna().to_numpy()]
        if not _mostly_amounts(_looked_at(dict.fromkeys(present))):
            _amounts(column, name)  # which names a value that is no number
    return _Taken(word, "as you said", form or None)


def _taken_for_numbers(values: NDArray[np.float64], name: str) -> _Taken:
    """Return what plain numbers are taken for: an index or an identifier is left out."""
    if np.isnan(values).all():
        return _Taken("ignore", "it is empty")
    is_index = _ID_NAME.search(name) or _UNNAMED.fullmatch(name)
    n = len(values)
    if n >= (2 if is_index else _FEW_VALUES):
        if (np.diff(values) == 1).all() and (is_index or values[0] in (0, 1)):
            return _Taken("ignore", "it numbers the rows")
        if is_index and not np.isnan(values).any() and len(np.unique(values)) == n:
            return _Taken("ignore", "it identifies rows")
    if _ID_NAME.search(name):  # its numbers may be no quantities
        return _Taken(
            "number",
            f"its values are numbers, though it is named like an identifier{DOUBT}, write "
            f"{setting('kinds', {name: 'ignore'})} or 'category'",
        )
    return _Taken("number", "its values are numbers")


def _taken_for_text(column: "pd.Series", name: str) -> _Taken:
    present = column.array[~column.isna().to_numpy()]
    # In the order of the rows, not a set's: the first ones decide. pandas would compare long texts
    # letter by letter.
    distinct = dict.fromkeys(present)
    n_rows, n_different = len(present), len(distinct)
    sample = _looked_at(distinct)
    dates = sum(_DATE.fullmatch(text) is not None for text in sample)
    if sample and dates >= _MOST * len(sample):
        return _Taken("date", "its values are dates", _date_format(column, name))
    if _has_thousands(sample, _decimal_mark(column)):
        return _Taken("number", "its values are numbers with separators of thousands")
    if n_different > _FEW_VALUES and (what := _numbers_as_text(sample)) is not None:
        example = min(filter(_AMOUNT.fullmatch, sample))
        return _Taken(
            "ignore",
            f"it is text such as {example!r:.30}, {what}; write "
            f"{setting('kinds', {name: 'number'})} to use the numbers, or 'category'",
        )
    words = np.mean([len(text.split()) for text in sample]) if sample else 0
    if n_rows > 1 and n_different == n_rows and words < 2:
        return _Taken("ignore", "it identifies rows")
    if words >= _WORDS and n_different > max(_FEW_TEXTS, n_rows // 10):
        return _Taken("text", f"its values have {words:.0f} words on average")
    if n_different > max(FEW_LEVELS, n_rows // 2) or (n_rows > 2 and n_different == n_rows):
        if words >= 2:
            return _Taken("text", f"its values have {words:.0f} words on average")
        return _Taken(
            "ignore",
            f"{n_different:,} of its {n_rows:,} values are different, so it identifies rows; write "
            f"{setting('kinds', {name: 'text'})} if it is free text",
        )
    return _Taken("category", f"{n_different:,} different value{'' if n_different == 1 else 's'}")


def _has_thousands(sample: Sequence[str], mark: str) -> bool:
    """Whether all texts are numbers without a unit, and thousands are separated in one at least."""
    bare = [text.lstrip("+-") for text in sample]
    return (
        any(map(_SEPARATED.fullmatch, bare))
        and all(map(_BARE.fullmatch, bare))
        and all(_decimal(text, mark) is not None for text in bare)
    )


def _numbers_as_text(sample: Sequence[str]) -> str | None:
    """Say how texts are numbers if nine of ten are; None where they are not, or codes such as 01104."""
    if not sample or not _mostly_amounts(sample):
        return None
    if all(text.isdigit() for text in sample):
        codes = any(text[0] == "0" and len(text) > 1 for text in sample)
        return None if codes else "numbers written as text"
    every = all(map(_AMOUNT.fullmatch, sample))
    return "numbers with a unit or separators" + ("" if every else ", most of them")


def _mostly_amounts(sample: Sequence[str]) -> bool:
    return sum(_AMOUNT.fullmatch(text) is not None for text in sample) >= _MOST * len(sample)


def _looked_at(values: Iterable[object]) -> list[str]:
    """Return the beginnings of the first different values, which decide what a column is."""
    return [str(value)[:_LOOKED_AT].strip() for value in islice(values, _LOOKED_AT)]


def _amounts(
    column: "pd.Series", name: str, *, decimal: str | None = None, lenient: bool = False
) -> NDArray[np.float64]:
    """Return the numbers of cells such as ``12.50 EUR`` or ``1,234``, missing ones as NaN."""
    values, units = np.full(len(column), np.nan), set[str]()
    mark = decimal or _decimal_mark(column)
    for place, (cell, missing) in enumerate(zip(column.array, column.isna(), strict=True)):
        text = "" if missing else str(cell).strip()
        if not text:
            continue
        match = _AMOUNT.fullmatch(text) if len(text) < _LOOKED_AT else None
        value = _decimal(match[1], mark) if match else None
        if match is None or value is None:
            if lenient:
                continue
            where = row_name(column, np.arange(len(column)) == place)
            raise DataError(
                f"the column {name!r} holds {text!r:.40} in {where}, which is no number; correct it, "
                f"pass {setting('missing', 'impute')} to fill it in, or take the column for something "
                f"else, such as {setting('kinds', {name: 'category'})}"
            )
        units.add(re.sub(r"[\d.,'\s+-]", "", text))
        values[place] = -value if "-" in text[: match.end(1)] else value
    if len(units) > 1:
        shown = ", ".join(repr(unit) for unit in sorted(units)[:4])
        raise DataError(
            f"the column {name!r} holds amounts in several units ({shown}); convert them to one, or "
            f"leave the column out with {setting('kinds', {name: 'ignore'})}"
        )
    return values


def _decimal_mark(column: "pd.Series") -> str:
    """Return what stands before the decimals of a column's numbers, ``"."`` or ``","``.

    A mark that occurs twice in a number, or before another one, separates thousands; one that is not
    followed by three digits stands before decimals. Where no number tells, it is the point.
    """
    present = dict.fromkeys(column.array[~column.isna().to_numpy()])
    votes = {".": 0, ",": 0}
    for text in _looked_at(present):
        match = _AMOUNT.fullmatch(text)
        digits = re.sub(r"['\s]", "", match[1]) if match else ""
        last, first = sorted(".,", key=digits.rfind, reverse=True)
        if first in digits or digits.count(last) > 1:
            votes[first if digits.count(last) > 1 else last] += 1
        elif last in digits and not re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", digits):
            votes[last] += 1
    return "," if votes[","] > votes["."] else "."


def _decimal(digits: str, mark: str) -> float | None:
    """Return the number of digits with separators; None where it is none."""
    digits = re.sub(r"['\s]", "", digits)
    thousands = "," if mark == "." else "."
    whole, _, decimals = digits.partition(mark)
    if thousands in whole and not re.fullmatch(rf"\d{{1,3}}(\{thousands}\d{{3}})+", whole):
        return None
    try:
        return float(f"{whole.replace(thousands, '')}.{decimals or 0}")
    except ValueError:
        return None


def _date_format(column: "pd.Series", name: str) -> str | None:
    """Return the formats that read the dates of a column, joined by ``|``; None is ISO 8601.

    Dates of the same look, such as ``05.01.2024``, must be of one format; other looks may be beside.
    """
    texts = _date_texts(column)
    texts = np.array(list(dict.fromkeys(texts[texts != ""])), dtype=object)
    is_iso = ~_days(texts, None)[1]
    groups: dict[str, list[str]] = {}
    for text in texts[~is_iso]:
        groups.setdefault(re.sub(r"\d+", lambda m: "y" if len(m[0]) > 2 else "n", text), []).append(
            text
        )
    formats = ["ISO8601"] if is_iso.any() or not groups else []
    for group in groups.values():
        form = _one_format(np.array(group, dtype=object), name)
        formats += [form] if form and form not in formats else []
    return None if formats == ["ISO8601"] else "|".join(formats) or None


def _one_format(texts: NDArray[Any], name: str) -> str | None:
    """Return the format of dates of the same look: of all of them, else of most."""
    unread = {day + time: _days(texts, day + time) for day in _DATE_FORMATS for time in _TIMES}
    fitting = [form for form, (_, wrong) in unread.items() if not wrong.any()]
    if not fitting:
        best = min(unread, key=lambda form: int(unread[form][1].sum()))
        return None if unread[best][1].all() else best
    first, *others = fitting
    for other in others:
        differ = unread[first][0] != unread[other][0]
        if differ.any():
            raise DataError(
                f"the dates of the column {name!r} can be read two ways: {texts[differ][0]!r} as {first} "
                f"or as {other}; say which with {setting('kinds', {name: f'date:{first}'})} or "
                f"'date:{other}'"
            )
    return first


def _days_since_1970(
    column: "pd.Series", name: str, form: str | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return dates as days, a time of day as a fraction, and which are missing."""
    pd = require("pandas", extra="cli")
    if column.dtype.kind == "M":
        stamps = pd.to_datetime(column, utc=True)
        return _as_days(stamps), stamps.isna().to_numpy()
    texts = _date_texts(column)
    days, wrong = _days(texts, form)
    if wrong.any():
        how = "" if form is None else f" of the form {form}"
        raise DataError(
            f"the column {name!r} holds {texts[wrong][0]!r:.40} in {row_name(column, wrong)}, which is "
            f"no date{how}; correct it, or take the column for something else, such as "
            f"{setting('kinds', {name: 'category'})}"
        )
    return days, np.asarray(texts == "")


def _date_texts(column: "pd.Series") -> NDArray[Any]:
    missing = column.isna().to_numpy()
    pairs = zip(column.array, missing, strict=True)
    texts = ["" if absent else str(value).strip()[:_LOOKED_AT] for value, absent in pairs]
    return np.array(texts, dtype=object)


def _days(texts: NDArray[Any], form: str | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the days of dates as text, and which are none, the empty ones aside."""
    pd = require("pandas", extra="cli")
    days = np.full(len(texts), np.nan)
    for each in (form or "ISO8601").split("|"):
        left = np.isnan(days) & (texts != "")
        with suppress(ValueError, OverflowError):
            stamps = pd.to_datetime(texts[left], format=each, errors="coerce", utc=True)
            days[left] = _as_days(pd.Series(stamps))
    return days, np.isnan(days) & (texts != "")


def _as_days(stamps: "pd.Series") -> NDArray[np.float64]:
    present = stamps.notna().to_numpy()
    seconds = stamps.dt.tz_localize(None).to_numpy().astype("datetime64[s]").astype(np.int64)
    return np.where(present, seconds / 86_400, np.nan)
