"""What a column is taken for: number, category, date, text, or nothing to learn from.

Only what is certain is decided by itself; the rest is an error that shows the readings.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailbatch.data.cells import is_number, refuse_containers, row_name
from tailbatch.data.sparse import FEW_LEVELS
from tailbatch.errors import DataError, require, setting

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("number", "category", "date", "text", "ignore")
"""What a column can be taken for."""

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


class Taken(NamedTuple):
    """What a column is taken for, and why; the format of a date."""

    kind: str
    why: str
    format: str | None = None


def taken_for(column: "pd.Series", name: str) -> Taken:
    """Return what a column that is no plain number is taken for."""
    refuse_containers(column)
    if column.dtype.kind == "M":
        return Taken("date", "its type is a date")
    if is_number(column):
        return Taken("number", "its values are numbers")
    if column.dtype.kind in "mc":
        raise DataError(
            f"the column {name!r} is of type {column.dtype}; turn it into numbers first"
        )
    if str(column.dtype) == "category":
        return Taken("category", "its type is a category")
    return _taken_for_text(column, name)


def _taken_for_text(column: "pd.Series", name: str) -> Taken:
    present = column.array[~column.isna().to_numpy()]
    # In the order of the rows, not a set's: the first ones decide. pandas would compare long texts
    # letter by letter.
    distinct = dict.fromkeys(present)
    n_rows, n_different = len(present), len(distinct)
    sample = _looked_at(distinct)
    dates = sum(_DATE.fullmatch(text) is not None for text in sample)
    if sample and dates >= _MOST * len(sample):
        return Taken("date", "its values are dates", date_format(column, name))
    if _has_thousands(sample, decimal_mark(column)):
        return Taken("number", "its values are numbers with separators of thousands")
    if n_different > _FEW_VALUES and (what := _numbers_as_text(sample)) is not None:
        example = min(filter(_AMOUNT.fullmatch, sample))
        return Taken(
            "ignore",
            f"it is text such as {example!r:.30}, {what}; write "
            f"{setting('kinds', {name: 'number'})} to use the numbers, or 'category'",
        )
    words = np.mean([len(text.split()) for text in sample]) if sample else 0
    if n_rows > 1 and n_different == n_rows and words < 2:
        return Taken("ignore", "it identifies rows")
    if words >= _WORDS and n_different > max(_FEW_TEXTS, n_rows // 10):
        return Taken("text", f"its values have {words:.0f} words on average")
    if n_different > max(FEW_LEVELS, n_rows // 2) or (n_rows > 2 and n_different == n_rows):
        if words >= 2:
            return Taken("text", f"its values have {words:.0f} words on average")
        return Taken(
            "ignore",
            f"{n_different:,} of its {n_rows:,} values are different, so it identifies rows; write "
            f"{setting('kinds', {name: 'text'})} if it is free text",
        )
    return Taken("category", f"{n_different:,} different value{'' if n_different == 1 else 's'}")


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


def identifies_rows(values: NDArray[Any], name: str) -> str | None:
    """Return why a column of plain numbers is left out, if it is an index or an identifier."""
    n = len(values)
    named = bool(_ID_NAME.search(name) or _UNNAMED.fullmatch(name))
    if n < 2 or not (named or n >= _FEW_VALUES):
        return None
    if (np.diff(values) == 1).all() and (named or values[0] in (0, 1)):
        return "it numbers the rows"
    if named and not np.isnan(values).any() and len(np.unique(values)) == n:
        return "it identifies rows"
    return None


def named_like_an_identifier(name: str) -> bool:
    """Whether a column is called as identifiers are; its numbers then are no quantities."""
    return _ID_NAME.search(name) is not None


def refuse_few_amounts(column: "pd.Series", name: str) -> None:
    """Refuse a column to be read as numbers of which fewer than nine in ten values are some."""
    present = column.array[~column.isna().to_numpy()]
    if not _mostly_amounts(_looked_at(dict.fromkeys(present))):
        amounts(column, name)


def amounts(
    column: "pd.Series", name: str, *, decimal: str | None = None, lenient: bool = False
) -> NDArray[np.float64]:
    """Return the numbers of cells such as ``12.50 EUR`` or ``1,234``, missing ones as NaN."""
    values, units = np.full(len(column), np.nan), set[str]()
    mark = decimal or decimal_mark(column)
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


def decimal_mark(column: "pd.Series") -> str:
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


def date_format(column: "pd.Series", name: str) -> str | None:
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


def days_since_1970(
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
