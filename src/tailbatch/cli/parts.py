"""Tables that are written part by part, so that a stopped command goes on where it was."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailbatch.errors import DataError, require
from tailbatch.files import replacing
from tailbatch.report.page import csv_text

if TYPE_CHECKING:
    import pandas as pd

_STATE = "not-complete.json"


@dataclass(frozen=True)
class _PartedFile:
    """A table that is written part by part into a folder beside it, and joined at the end.

    Each part is a file of its own, written whole or not at all. The folder, ``<name>.partial``, says by
    its name and a file in it that the table is not complete; it goes once the table is there.

    Parameters
    ----------
    path
        The file, .csv or .parquet.
    identity
        What the rows depend on: parts of another identity are not continued.
    """

    path: Path
    identity: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Where the parts are."""
        return self.path.with_name(self.path.name + ".partial")

    def begun(self, *, overwrite: bool = False) -> set[int]:
        """Return the numbers of the parts that are there from an earlier, stopped run."""
        if not self.folder.exists():
            return set()
        try:
            known = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))["identity"]
        except (OSError, ValueError, KeyError, TypeError):
            known = None
        if known == self._digest:
            names = (path.name for path in self.folder.glob(f"part-*{self.path.suffix}"))
            return {int(name.split("-")[1].split(".")[0]) for name in names}
        if overwrite:
            shutil.rmtree(self.folder)
            return set()
        raise DataError(
            f"{self.folder} holds a part of other predictions, of another model, file or options: run "
            "their command again to complete them, or add --overwrite to drop them"
        )

    @property
    def _digest(self) -> str:
        text = json.dumps(self.identity, sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def write(self, number: int, table: "pd.DataFrame") -> None:
        """Write one part."""
        if not (self.folder / _STATE).exists():
            state = {"complete": False, "identity": self._digest, **self.identity}
            with replacing(self.folder / _STATE) as path:
                path.write_text(json.dumps(state, indent=1, default=str), encoding="utf-8")
        with replacing(self.part(number)) as path:
            _write_part(table, path)

    def part(self, number: int) -> Path:
        """Return the file of a part."""
        return self.folder / f"part-{number:06}{self.path.suffix}"

    def write_all(self, tables: Iterable["pd.DataFrame"], done: int) -> None:
        """Write parts from number `done` on, and the whole; a single part becomes the file at once."""
        number, held = done, None
        try:
            for table in tables:
                if held is not None:
                    self.write(number, held)
                    number += 1
                held = table
        except (Exception, KeyboardInterrupt):
            if held is not None:  # what is done is kept
                self.write(number, held)
            raise
        if held is not None and not number:
            with replacing(self.path) as path:
                _write_part(held, path)
            return
        if held is not None:
            self.write(number, held)
            number += 1
        self.join(number)

    def join(self, parts: int) -> None:
        """Put the parts together, and remove them."""
        with replacing(self.path) as path:
            files = [self.part(number) for number in range(parts)]
            (_join_parquet if self.path.suffix == ".parquet" else _join_csv)(files, path)
        shutil.rmtree(self.folder)


def _join_csv(parts: Sequence[Path], path: Path) -> None:
    header = _header_size(parts[0])
    with path.open("wb") as whole:
        for number, part in enumerate(parts):
            with part.open("rb") as rows:
                rows.seek(header if number else 0)
                shutil.copyfileobj(rows, whole, 1 << 20)


def _header_size(path: Path) -> int:
    """Return the bytes of the first record; a name in it may hold a line break."""
    size = quotes = 0
    with path.open("rb") as lines:
        for line in lines:
            size, quotes = size + len(line), quotes + line.count(b'"')
            if quotes % 2 == 0:
                break
    return size


def _join_parquet(parts: Sequence[Path], path: Path) -> None:
    parquet = require("pyarrow.parquet", extra="parquet")
    with parquet.ParquetWriter(path, parquet.read_schema(parts[0])) as writer:
        for part in parts:
            writer.write_table(parquet.read_table(part))


def _write_part(table: "pd.DataFrame", path: Path) -> None:
    """Write a table as CSV or Parquet, by the suffix; equal rows are equal bytes."""
    if path.suffix == ".parquet":
        arrow = require("pyarrow", extra="parquet")
        # Without the metadata of pandas, which counts the rows.
        whole = arrow.Table.from_pandas(table, preserve_index=False).replace_schema_metadata()
        require("pyarrow.parquet", extra="parquet").write_table(whole, path)
    else:
        path.write_text(csv_text(table), encoding="utf-8")
