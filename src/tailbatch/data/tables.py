"""Tables in files, CSV, TSV and Parquet: through a data frame."""

import csv
import io
import json
import logging
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.frames import FrameLabels
from tailbatch.data.text import array_limit, at_line, first_repeated, stem, text_blocks
from tailbatch.errors import DataError, require

if TYPE_CHECKING:
    import pandas as pd

#: Each column of a data frame costs, however few rows there are.
MAX_TABLE_COLUMNS = 25_000

_CELL_BYTES = 8
_TEXTS = ("string", "large_string")
_LOGGER = logging.getLogger(__name__)
_FIELDS = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


def read_table(
    path: str | Path, *, labels: FrameLabels | None, missing: Literal["error", "impute"] = "error"
) -> MultiLabelDataset:
    r"""Read a CSV or TSV file with a header line, plain or gzip.

    Parameters
    ----------
    path
        The file. Tabs, commas or semicolons separate its columns, whichever the header has most.
    labels
        Which columns are labels; see `MultiLabelDataset.from_frame`.
    missing
        ``"error"`` or ``"impute"``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.csv")
    >>> _ = path.write_text("length,color,tag_a,tag_b\n1.5,red,1,0\n2,blue,0,0\n3,red,1,1\n")
    >>> data = read_table(path, labels="tag_")
    >>> data.feature_names, data.label_names
    (('length', 'color=red'), ('tag_a', 'tag_b'))
    """
    path = Path(path)
    raw = b"".join(block for _, block in text_blocks(path))
    try:
        text, notices = raw.decode("utf-8"), list[str]()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        text = raw.decode("latin-1")
        notices = [f"line {line} is not UTF-8, so the file is read as Latin-1"]
        _LOGGER.warning("%s: %s", path, notices[0])
    dataset = _from_frame(path, _parse(path, text), labels, missing)
    return replace(dataset, notices=(*notices, *dataset.notices))


def read_parquet(
    path: str | Path, *, labels: FrameLabels | None, missing: Literal["error", "impute"] = "error"
) -> MultiLabelDataset:
    """Read a Parquet file; it needs the extra ``parquet``.

    Parameters
    ----------
    path
        The file.
    labels
        Which columns are labels; see `MultiLabelDataset.from_frame`.
    missing
        ``"error"`` or ``"impute"``.

    Examples
    --------
    >>> import pandas as pd, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.parquet")
    >>> pd.DataFrame({"length": [1.5, 2.0], "topics": ["a;b", "b"]}).to_parquet(path)
    >>> read_parquet(path, labels="topics").label_names
    ('a', 'b')
    """
    require("pandas", extra="parquet")
    pyarrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    path = Path(path)
    try:
        with parquet.ParquetFile(path) as file:
            _check_sizes(path, file.metadata)
            index = _index_columns(file.schema_arrow.metadata)
            texts = [field.name for field in file.schema_arrow if str(field.type) in _TEXTS]
        # Text stays a number for each value until it is Python's, so a long one is there once.
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            # The metadata of pandas is not needed, and may say anything.
            frame = file.read().replace_schema_metadata().to_pandas()
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is no readable Parquet file: {error}") from None
    for name in set(texts) & set(frame.columns):
        frame[name] = frame[name].astype(object)
    index = [name for name in index if name in frame.columns]
    return _from_frame(path, frame.set_index(index) if index else frame, labels, missing)


def _check_sizes(path: Path, metadata: Any) -> None:
    """Refuse what the file says would not fit, before any of it is read."""
    groups = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    n_rows, n_columns = max(metadata.num_rows, sum(groups)), metadata.num_columns
    limit = array_limit(path.stat().st_size)
    if n_rows * n_columns * _CELL_BYTES > limit:
        raise DataError(
            f"{path} claims {n_rows:,} rows of {n_columns:,} columns, which would take more than "
            f"{limit >> 20:,} MiB; if you trust it, raise tailbatch.data.text.MAX_EXPANSION"
        )
    _refuse_wide(path, n_columns)


def _refuse_wide(path: Path, n_columns: int) -> None:
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


def _parse(path: Path, text: str) -> "pd.DataFrame":
    pd = require("pandas", extra="cli")
    first = text.partition("\n")[0]
    delimiter = max("\t,;", key=first.count)
    _refuse_wide(path, first.count(delimiter) + 1)
    try:
        names = next(csv.reader([first], delimiter=delimiter), [])
    except csv.Error as error:
        raise at_line(path, 1, f"the names of the columns cannot be read: {error}") from None
    if (repeated := first_repeated(names)) is not None:
        raise at_line(path, 1, f"the column {repeated!r} occurs twice; rename one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(io.StringIO(text), sep=delimiter, index_col=False, low_memory=False)
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        raise _parser_error(path, error) from None
    if len(frame) == 0:
        raise DataError(f"{path} has no rows below its header: there is nothing to learn from")
    if text.rstrip("\n").count("\n") == len(frame):
        # Each row is one line, so errors can name lines instead of rows.
        frame.index = pd.RangeIndex(2, len(frame) + 2, name="line")
    return frame


def _parser_error(path: Path, error: Exception) -> DataError:
    if match := _FIELDS.search(str(error)):
        return at_line(
            path,
            int(match[2]),
            f"expected {match[1]} values, found {match[3]}; quote values that hold the delimiter",
        )
    return DataError(f"{path} is no readable table: {str(error).strip()}")


def _from_frame(
    path: Path, frame: "pd.DataFrame", labels: FrameLabels | None, missing: Any
) -> MultiLabelDataset:
    if labels is None:
        raise DataError(
            f"{path} does not say which columns are labels; pass labels= (a list of names, a "
            "prefix they share, one column that lists them, 5 for the first five columns or -5 for "
            "the last five)"
        )
    try:
        return MultiLabelDataset.from_frame(frame, labels=labels, name=stem(path), missing=missing)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
