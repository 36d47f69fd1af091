"""Tables in files, CSV, TSV and Parquet: through a data frame."""

import csv
import io
import logging
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.frames import FrameLabels
from tailbatch.data.text import at_line, first_repeated, stem, text_blocks
from tailbatch.errors import DataError, require

if TYPE_CHECKING:
    import pandas as pd

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
    pyarrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        frame = parquet.read_table(path).to_pandas()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is no readable Parquet file: {error}") from None
    return _from_frame(Path(path), frame, labels, missing)


def _parse(path: Path, text: str) -> "pd.DataFrame":
    import pandas as pd

    first = text.partition("\n")[0]
    delimiter = max("\t,;", key=first.count)
    names = next(csv.reader([first], delimiter=delimiter), [])
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
