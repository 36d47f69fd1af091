"""Tables of any length, piece by piece: no more than a piece is in memory."""

import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailbatch.data.tables import (
    EmptyTableError,
    _csv_errors,
    _csv_options,
    _frame_of_arrow,
    _is_json_list,
    _json_lines,
    _refuse_wide,
    _table_kind,
    _text_columns,
)
from tailbatch.data.text import text_blocks
from tailbatch.errors import DataError, require

if TYPE_CHECKING:
    import pandas as pd

_BUFFER = 1 << 18  # bytes of a Parquet column read at a time


class TablePiece(NamedTuple):
    """Consecutive rows of a table: where they start, their columns, and those to keep as written.

    `share` is how much of the file has been read, `notices` what a user should know of it.
    """

    first: int
    frame: "pd.DataFrame"
    kept: "pd.DataFrame"
    share: float
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class TablePieces:
    r"""A CSV, TSV, JSON lines or Parquet file in pieces of the same number of rows.

    Parameters
    ----------
    path
        The file; text may be packed with gzip.
    rows
        Rows of a piece; the last one may have fewer.
    columns
        The columns that are needed; None for all. Of a Parquet file no others are read.
    as_text
        Columns whose cells are to be read as they are written.
    keep
        Columns to return beside the frame: text as it is written, Parquet with its own types.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "long.csv"
    >>> _ = path.write_text("id,x\n" + "".join(f"{k:03},{k / 2}\n" for k in range(5)))
    >>> for piece in TablePieces(path, 2, keep=["id"]).read(2):
    ...     print(piece.first, piece.frame["x"].tolist(), piece.kept["id"].tolist())
    2 [1.0, 1.5] ['002', '003']
    4 [2.0] ['004']
    """

    path: Path
    rows: int
    columns: Collection[str] | None = None
    as_text: Collection[str] = ()
    keep: Sequence[str] = ()

    def read(self, first: int = 0) -> Iterator[TablePiece]:
        """Yield the pieces from row `first`, a multiple of `rows`; a table without rows is an error."""
        reader = {"parquet": self._parquet, "jsonl": self._json_lines, "csv": self._csv}
        found = first > 0
        for piece in reader[_table_kind(self.path)](first):
            found = True
            yield piece
        if not found:
            raise EmptyTableError(f"{self.path} has no rows")

    def runs(self) -> list[range]:
        """Return which rows to read together, by the row groups of a Parquet file; else all in one."""
        if _table_kind(self.path) != "parquet":
            raise DataError(
                f"{self.path} can only be read from its start; save it as Parquet to score its parts in "
                "several places"
            )
        with self._opened() as (file, _, starts):
            ends = [-(-start // self.rows) * self.rows for start in starts]
            ends[-1] = file.metadata.num_rows
        if not ends[-1]:
            raise EmptyTableError(f"{self.path} has no rows")
        return [range(start, end) for start, end in pairwise(ends) if end > start]

    # ---- Parquet ---------------------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, list[str], list[int]]]:
        """Open a Parquet file: it, its columns of text, and the first row of each row group, and n."""
        require("pandas", extra="parquet")
        pyarrow = require("pyarrow", extra="parquet")
        parquet = require("pyarrow.parquet", extra="parquet")
        try:
            with parquet.ParquetFile(self.path) as file:
                _refuse_wide(self.path, file.metadata.num_columns)
                texts = _text_columns(file.schema_arrow)
            # Text stays a number for each value until it is Python's, so a long one is there once.
            with parquet.ParquetFile(self.path, read_dictionary=texts, buffer_size=_BUFFER) as file:
                groups = range(file.metadata.num_row_groups)
                sizes = [file.metadata.row_group(group).num_rows for group in groups]
                yield file, texts, [0, *np.cumsum(sizes).tolist()]
        except DataError:
            raise
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.path} is no readable Parquet file: {error}") from None

    def _parquet(self, first: int) -> Iterator[TablePiece]:
        with self._opened() as (file, texts, starts):
            names = file.schema_arrow.names
            self._check_kept(names)
            group = int(np.searchsorted(starts, first, side="right")) - 1
            wanted = None
            if self.columns is not None and set(self.columns) <= set(names):
                wanted = [name for name in names if name in {*self.columns, *self.keep}]
            # One group at a time: a reader of several holds buffers for all of them.
            batches = chain.from_iterable(
                file.iter_batches(batch_size=self.rows, row_groups=[number], columns=wanted)
                for number in range(group, len(starts) - 1)
            )
            for table in _regrouped(batches, self.rows, skip=first - starts[group]):
                frame = _frame_of_arrow(table, texts)
                _number_rows(frame, first, "row")
                kept = _as_stored(table.select(list(self.keep)))
                yield TablePiece(first, frame, kept, (first + len(frame)) / starts[-1])
                first += len(frame)

    # ---- text ------------------------------------------------------------------------------

    def _json_lines(self, first: int) -> Iterator[TablePiece]:
        text = _Text.of(self.path)
        for where, lines, done in text.pieces_of_lines(self.rows):
            objects = _json_lines(self.path, lines, where)
            self._check_kept(map(str, objects.columns))
            for start in range(0, len(objects), self.rows):  # one list of objects comes whole
                piece = objects.iloc[start : start + self.rows]
                if first <= text.passed:
                    kept = piece[list(self.keep)]
                    yield TablePiece(text.passed, piece.infer_objects(), kept, done, text.notices)
                text.passed += len(piece)

    def _csv(self, first: int) -> Iterator[TablePiece]:
        pd = require("pandas", extra="cli")
        text = _Text.of(self.path)
        options = _csv_options(self.path, text.head, self.as_text)
        options |= {"chunksize": self.rows, "encoding": text.encoding}
        with _csv_errors(self.path):
            frames = pd.read_csv(io.BufferedReader(text), **options)
            kept = self._as_written(options)
            for frame in _within(frames):
                columns = next(kept) if self.keep else pd.DataFrame(index=frame.index)
                place, text.passed = text.passed, text.passed + len(frame)
                if place >= first and len(frame):
                    # Where each row is one line, errors can name lines instead of rows.
                    at = (place + 2, "line") if text.is_row_a_line else (place, "row")
                    _number_rows(frame, *at)
                    yield TablePiece(place, frame, columns, text.share, text.notices)

    def _as_written(self, options: dict[str, Any]) -> Iterator["pd.DataFrame"]:
        """Yield the columns to keep as text, from a reader of their own that guesses nothing."""
        if not self.keep:
            return
        pd = require("pandas", extra="cli")
        text = _Text.of(self.path)
        self._check_kept(pd.read_csv(io.StringIO(text.head), sep=options["sep"], nrows=0).columns)
        plain = {"dtype": str, "na_filter": False, "usecols": list(self.keep)}
        for columns in pd.read_csv(io.BufferedReader(text), **{**options, **plain}):
            yield columns[list(self.keep)]

    def _check_kept(self, names: Any) -> None:
        from tailbatch.data.cells import columns_text

        known = list(names)
        for name in self.keep:
            if name not in known:
                raise DataError(
                    f"--keep {name}: {self.path} has no such column{columns_text(known, name)}"
                )


class _Text(io.RawIOBase):
    """The text of a file as a stream of bytes of any length, and what one look at all of it tells."""

    def __init__(
        self, path: Path, encoding: str, head: str, size: int, is_row_a_line: bool
    ) -> None:
        super().__init__()
        self.encoding, self.head, self.is_row_a_line = encoding, head, is_row_a_line
        self.notices: tuple[str, ...] = ()
        self.passed = 0  # rows
        self._blocks = (block for _, block in text_blocks(path, endless=True))
        self._size, self._given, self._rest = size, 0, b""

    @classmethod
    def of(cls, path: Path) -> "_Text":
        """Look at the whole file once: whether it is UTF-8, and whether each row is one line."""
        encoding, head, size, is_row_a_line, last = "utf-8", b"", 0, True, b""
        for number, block in text_blocks(path, endless=True):
            head, size = head or block, size + len(block)
            is_row_a_line &= b'"' not in block and b"\n\n" not in last[-1:] + block
            last = block
            if encoding == "utf-8":
                try:
                    block.decode("utf-8")
                except UnicodeDecodeError as error:
                    encoding = "latin-1"
                    line = number + block.count(b"\n", 0, error.start)
        found = cls(path, encoding, head.decode(encoding), size, is_row_a_line)
        if encoding != "utf-8":
            found.notices = (f"line {line} is not UTF-8, so the file is read as Latin-1",)
        return found

    @property
    def share(self) -> float:
        """How much of the text was handed out."""
        return self._given / max(self._size, 1)

    def readable(self) -> bool:
        """Whether it can be read, as a stream is asked."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, as a raw stream does."""
        if not self._rest:
            self._rest = next(self._blocks, b"")
        some = self._rest[: len(buffer)]
        buffer[: len(some)] = some
        self._rest = self._rest[len(some) :]
        self._given += len(some)
        return len(some)

    def pieces_of_lines(self, rows: int) -> Iterator[tuple[int, str, float]]:
        """Yield (number of the first line, so many lines that are not empty, share of the text)."""
        if _is_json_list(self.head):
            yield 1, b"".join(self._blocks).decode(self.encoding), 1.0
            return
        lines, line, filled = list[str](), 1, 0
        for block in self._blocks:
            self._given += len(block)
            for text in block.decode(self.encoding).split("\n")[: block.count(b"\n") or None]:
                lines.append(text)
                filled += bool(text.strip())
                if filled == rows:
                    yield line, "\n".join(lines), self.share
                    lines, line, filled = [], line + len(lines), 0
        if filled:
            yield line, "\n".join(lines), 1.0


def _within(frames: Any) -> Iterator["pd.DataFrame"]:
    """Yield the chunks of a reader; a file that has a header only has none."""
    with frames:
        yield from frames


def _number_rows(frame: "pd.DataFrame", first: int, name: str) -> None:
    frame.index = require("pandas", extra="cli").RangeIndex(first, first + len(frame), name=name)


def _regrouped(batches: Any, rows: int, *, skip: int) -> Iterator[Any]:
    """Yield Arrow tables of so many rows each, whatever the sizes of the batches."""
    pyarrow = require("pyarrow", extra="parquet")
    held, count = list[Any](), 0
    for batch in batches:
        start = min(skip, batch.num_rows)
        skip -= start
        while start < batch.num_rows:
            part = batch.slice(start, rows - count)
            held.append(part)
            start, count = start + part.num_rows, count + part.num_rows
            if count == rows:
                yield pyarrow.Table.from_batches(held)
                held, count = [], 0
    if held:
        yield pyarrow.Table.from_batches(held)


def _as_stored(table: Any) -> "pd.DataFrame":
    """Return an Arrow table as a data frame with Arrow's types, in which whole numbers stay whole."""
    pd, pyarrow = require("pandas", extra="parquet"), require("pyarrow", extra="parquet")
    plain = [
        column.cast(column.type.value_type) if str(column.type).startswith("dictionary") else column
        for column in table.itercolumns()
    ]
    named = pyarrow.table(plain, names=table.column_names)
    return named.to_pandas(types_mapper=pd.ArrowDtype)
