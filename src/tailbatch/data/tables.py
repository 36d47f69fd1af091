"""Tables in files, CSV, TSV, Parquet and JSON lines: through a data frame."""

import csv
import io
import json
import logging
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tailbatch.data.cells import _cell_types
from tailbatch.data.columns import Columns
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.sparse import first_repeated
from tailbatch.data.text import (
    JSON_LINES,
    PARQUET,
    _array_limit,
    _at_line,
    stem,
    suffix,
    text_blocks,
)
from tailbatch.errors import DataError, require, setting

if TYPE_CHECKING:
    import pandas as pd

#: Each column of a data frame costs, however few rows there are.
MAX_TABLE_COLUMNS = 25_000

_CELL_BYTES = 8
_LOOKED_AT = 200
_TEXTS = ("string", "large_string")
_LOGGER = logging.getLogger(__name__)
#: What may separate the columns of a text, and what else people use.
_DELIMITERS = "\t,;"
_OTHER_DELIMITERS = "|^~:#"
_LINES_COMPARED = 20
_FIELDS = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


class EmptyTableError(DataError):
    """A table without rows."""


def _read_table(path: Path, *, columns: Columns) -> MultiLabelDataset:
    """Read a table with its labels: CSV or TSV with a header line, Parquet, or JSON lines."""
    frame, notices = read_frame(path, as_text=columns.as_text)
    try:
        if columns.labels is None:
            raise DataError(f"it does not say which columns are labels; {_where_labels(frame)}")
        dataset = MultiLabelDataset.from_frame(
            frame,
            labels=columns.labels,
            name=stem(path),
            missing=columns.missing,
            text=columns.text,
            kinds=columns.kinds,
            encoder=columns.encoder,
        )
    except DataError as error:
        if frame.shape[1] == 1 and _table_kind(path) == "csv":
            raise DataError(
                f"{path} has one column, {str(frame.columns[0])!r:.60}: no comma, semicolon or tab is in "
                "its first line; save it with one of them between the columns"
            ) from None
        raise DataError(f"{path}: {error}") from None
    return replace(dataset, notices=(*notices, *dataset.notices))


def read_frame(path: Path, *, as_text: Collection[str] = ()) -> tuple["pd.DataFrame", list[str]]:
    """Read a table as a data frame, whose index names lines where that is possible, and notices."""
    kind = _table_kind(path)
    if kind == "parquet":
        return _parquet_frame(path), []
    raw = b"".join(block for _, block in text_blocks(path))
    try:
        text, notices = raw.decode("utf-8"), list[str]()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        text = raw.decode("latin-1")
        notices = [f"line {line} is not UTF-8, so the file is read as Latin-1"]
        _LOGGER.warning("%s: %s", path, notices[0])
    if kind == "jsonl":
        return _json_lines(path, text).infer_objects(), notices
    return _parse(path, text, as_text), notices


def _table_kind(path: Path) -> str:
    """Return what a table is written as, by its first bytes and its name."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) == b"PAR1":
                return "parquet"
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if suffix(path) == PARQUET:
        return "parquet"
    return "jsonl" if suffix(path) in JSON_LINES else "csv"


def no_features(dataset: MultiLabelDataset) -> DataError:
    """Return the error for a table whose columns are all labels or left out."""
    taken = {} if dataset.columns is None else dataset.columns.taken
    if not taken:
        return DataError(f"{dataset.name} has labels only: add the columns to predict them from")
    name, (_, why, _) = next(iter(taken.items()))
    return DataError(
        f"{dataset.name} has no column left to predict the labels from: {name!r} is left out ({why}); "
        f"use one, such as {setting('kinds', {name: 'category'})}"
    )


def _parquet_frame(path: Path) -> "pd.DataFrame":
    require("pandas", extra="parquet")
    pyarrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        with parquet.ParquetFile(path) as file:
            _check_sizes(path, file.metadata)
            index = _index_columns(file.schema_arrow.metadata)
            texts = _text_columns(file.schema_arrow)
        # Text stays a number for each value until it is Python's, so a long one is there once.
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            frame = _frame_of_arrow(file.read(), texts)
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is no readable Parquet file: {error}") from None
    index = [name for name in index if name in frame.columns]
    return frame.set_index(index) if index else frame


def _text_columns(schema: Any) -> list[str]:
    """Return the columns of text of an Arrow schema."""
    return [field.name for field in schema if str(field.type) in _TEXTS]


def _frame_of_arrow(table: Any, texts: Sequence[str]) -> "pd.DataFrame":
    """Return an Arrow table as a data frame; columns of text hold strings of Python."""
    # The metadata of pandas is not needed, and may say anything.
    frame: pd.DataFrame = table.replace_schema_metadata().to_pandas()
    for name in frame.columns.intersection(texts):
        frame[name] = frame[name].astype(object)
    return frame


def _json_lines(path: Path, text: str, first: int = 1) -> "pd.DataFrame":
    """Return the objects of lines, or of one list, as they are; a key that one lacks is a missing value.

    `first` is the number of the text's first line in the file.
    """
    pd = require("pandas", extra="cli")
    columns: dict[str, list[Any]] = {}
    places = list[int]()
    for place, record in _records(path, text, first):
        for key in record:
            if key not in columns:
                columns[key] = [None] * len(places)
                _refuse_wide(path, len(columns))
        if len(columns) * len(places) * _CELL_BYTES > _array_limit(len(text)):
            raise DataError(
                f"{path}: its objects have too many different keys ({len(columns):,}) for a table"
            )
        for key, values in columns.items():
            values.append(record.get(key))
        places.append(place)
    if not places:
        raise EmptyTableError(f"{path} has no rows: there is nothing to learn from")
    index = pd.Index(places, name="row" if _is_json_list(text) else "line")
    series = {key: pd.Series(values, index=index, dtype=object) for key, values in columns.items()}
    return pd.DataFrame(series, index=index)


def _records(path: Path, text: str, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the place and the object of each line, or of each entry of one list."""
    is_list = _is_json_list(text)
    for number, piece in [(0, text)] if is_list else enumerate(text.split("\n"), first):
        if not piece.strip():
            continue
        where = str(path) if is_list else f"{path}, line {number}"
        try:
            found = json.loads(piece)
            if "\\u" in piece:  # escapes can spell half a character, which nothing else can hold
                json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DataError(f"{where}: it holds half a character; write it whole") from None
        except (ValueError, RecursionError) as error:
            what, how = ("list of objects", "[{...}, {...}], or ") if is_list else ("object", "")
            raise DataError(
                f"{where}: it is no JSON {what}: {error}; write {how}each row as one line {{...}}"
            ) from None
        for place, record in enumerate(found) if is_list else [(number, found)]:
            if not isinstance(record, dict):
                raise DataError(
                    f"{path}, {'row' if is_list else 'line'} {place}: expected a JSON object such as "
                    f"{{...}}, found {record!r:.40}"
                )
            yield place, record


def _is_json_list(text: str) -> bool:
    """Whether a text is one list of objects rather than an object a line."""
    return text.lstrip().startswith("[")


def _check_sizes(path: Path, metadata: Any) -> None:
    """Refuse what the file says would not fit, before any of it is read."""
    groups = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    n_rows, n_columns = max(metadata.num_rows, sum(groups)), metadata.num_columns
    limit = _array_limit(path.stat().st_size)
    if max(n_rows * n_columns, _listed_values(metadata)) * _CELL_BYTES > limit:
        raise DataError(
            f"{path} claims {n_rows:,} rows of {n_columns:,} columns, which would take more than "
            f"{limit >> 20:,} MiB; if you trust it, raise tailbatch.data.text.MAX_EXPANSION"
        )
    _refuse_wide(path, n_columns)


def _listed_values(metadata: Any) -> int:
    """Return how many values columns of lists hold; a few bytes can stand for millions of equal ones."""
    lists = [
        place
        for place in range(metadata.num_columns)
        if metadata.schema.column(place).max_repetition_level > 0
    ]
    groups = range(metadata.num_row_groups)
    return sum(metadata.row_group(g).column(place).num_values for g in groups for place in lists)


def _refuse_wide(path: Path, n_columns: int) -> None:
    """Refuse tables with more columns than a data frame can bear."""
    if n_columns > MAX_TABLE_COLUMNS:
        raise DataError(
            f"{path} has {n_columns:,} columns, and a table may have {MAX_TABLE_COLUMNS:,}; save it "
            "as npz, LIBSVM or sparse ARFF, or raise tailbatch.data.tables.MAX_TABLE_COLUMNS"
        )


def _index_columns(metadata: Any) -> list[str]:
    """Return the columns that were the index of a data frame: they are no features."""
    try:
        names = json.loads((metadata or {})[b"pandas"])["index_columns"]
        return [name for name in names if isinstance(name, str)]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []  # not written by pandas, or damaged: then all columns are columns


def _parse(path: Path, text: str, as_text: Collection[str]) -> "pd.DataFrame":
    pd = require("pandas", extra="cli")
    options = _csv_options(path, text, as_text)
    with _csv_errors(path):
        frame = pd.read_csv(io.StringIO(text), **options)
    if len(frame) == 0:
        raise EmptyTableError(
            f"{path} has no rows below its header: there is nothing to learn from"
        )
    if text.rstrip("\n").count("\n") == len(frame):
        # Each row is one line, so errors can name lines instead of rows.
        frame.index = pd.RangeIndex(2, len(frame) + 2, name="line")
    return frame


def _csv_options(path: Path, text: str, as_text: Collection[str]) -> dict[str, Any]:
    """Return how pandas is to read a table, by its first lines or all of them."""
    first = text.partition("\n")[0]
    if not text.strip():
        raise EmptyTableError(f"{path} is empty: there is nothing to learn from")
    delimiter = max(_DELIMITERS, key=first.count)
    if delimiter not in first and (other := _other_delimiter(text)):
        raise DataError(
            f"{path}: no comma, semicolon or tab is in its first line; its columns seem to be separated "
            f"by {other!r}: save it with commas instead"
        )
    _refuse_wide(path, first.count(delimiter) + 1)
    try:
        names = next(csv.reader([first], delimiter=delimiter), [])
    except csv.Error as error:
        raise _at_line(path, 1, f"the names of the columns cannot be read: {error}") from None
    if (repeated := first_repeated(names)) is not None:
        raise _at_line(path, 1, f"the column {repeated!r} occurs twice; rename one")
    texts = {name: str for name in names if name in as_text}
    return {"sep": delimiter, "index_col": False, "low_memory": False, "dtype": texts}


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    """Say in our words what pandas says of a table."""
    pd = require("pandas", extra="cli")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        raise _parser_error(path, error) from None


def _other_delimiter(text: str) -> str | None:
    r"""Return the mark that the first lines have equally often, as a delimiter would be."""
    lines = [line for line in text.split("\n", _LINES_COMPARED)[:_LINES_COMPARED] if line.strip()]
    return next(
        (m for m in _OTHER_DELIMITERS if m in lines[0] and len({x.count(m) for x in lines}) == 1),
        None,
    )


def _parser_error(path: Path, error: Exception) -> DataError:
    if match := _FIELDS.search(str(error)):
        return _at_line(
            path,
            int(match[2]),
            f"expected {match[1]} values, found {match[3]}; quote values that hold the delimiter",
        )
    return DataError(f"{path} is no readable table: {str(error).strip()}")


def _where_labels(frame: "pd.DataFrame") -> str:
    """Return what to write to name the labels, by what the columns look like."""
    for name, column in frame.items():
        types = _cell_types(column)
        if types and all(issubclass(kind, list | np.ndarray | set) for kind in types):
            return f"the column {str(name)!r} holds lists: pass {setting('labels', str(name))}"
        if column.dtype.kind in "OUT" and not types - {str}:
            cells = [str(cell) for cell in column.array[:_LOOKED_AT] if isinstance(cell, str)]
            listing = [
                cell for cell in cells if re.fullmatch(r"[^;|]{1,40}([;|][^;|]{1,40})+", cell)
            ]
            if len(listing) * 4 > len(cells):
                where = setting("labels", str(name))
                return f"the column {str(name)!r} looks like lists of labels: pass {where}"
    return (
        f"pass {setting('labels=')} (a list of names, a prefix they share, one column that lists "
        "them, 5 for the first five columns or -5 for the last five)"
    )
