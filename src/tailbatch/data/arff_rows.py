"""The rows of an ARFF file as numbers: many plain ones at once by NumPy, any other value by value."""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailbatch.data.sparse import _CsrBuilder
from tailbatch.data.text import _at_line
from tailbatch.errors import DataError, setting

QUOTED = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
ATTRIBUTE = re.compile(
    rf"^[ \t]*@attribute[ \t]+([^\s{{'\"][^\s{{]*|{QUOTED})[ \t]*(.*)", re.IGNORECASE | re.MULTILINE
)
CELL = re.compile(rf"\s*({QUOTED}|[^,]*)\s*(,|$)")
_PAIR = re.compile(rf"\s*+([^\s,}}]++)\s++({QUOTED}|[^,}}'\"\s][^,}}]*+)\s*+([,}}])")
_EMPTY = re.compile(r"\{\s*\}")
_WEIGHT = re.compile(r",?\s*\{\s*[-+.\deE]+\s*\}$")
_COMMENT = re.compile(rf"({QUOTED})|\s%.*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_DIGITS = b"0123456789.+-eE"
_MEANING = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}
#: How many entries each row has, their columns and their values.
_SparseRows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class _AttributeType:
    """The declared type of an attribute: numeric, left out, or nominal with values."""

    left_out: str = ""  # "string" or "date"
    values: tuple[str, ...] = ()
    is_binary: bool = False  # whether the values are 0 and 1 (or one of them), in either order
    # Whether there is a column for each value, as there is for all but two.
    is_one_hot: bool = False
    codes: Mapping[str, float] = field(default_factory=dict)  # what number each value stands for
    suffixes: tuple[str, ...] = ("",)  # what each column that it becomes adds to its name


class _Header(NamedTuple):
    """What comes before ``@data``."""

    relation: str  # as written
    names: list[str]
    types: list[_AttributeType]
    text: str
    encoding: str

    def line(self, position: int) -> int:
        """Return the line that declares an attribute."""
        declarations = (match.start() for match in ATTRIBUTE.finditer(self.text))
        return self.text.count("\n", 0, next(islice(declarations, position, None))) + 1


def _unquote(text: str) -> str:
    """Return a name or value without its quotes and escapes."""
    if text[:1] not in ("'", '"') or len(text) < 2 or text[-1] != text[0]:
        return text
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(match: re.Match[str]) -> str:
    mark = match[1]
    return chr(int(mark[1:], 16)) if len(mark) > 1 else _ESCAPED.get(mark, mark)


class _Rows:
    """The rows of a file as numbers, one for each attribute: of a nominal value its place.

    A text or a date is 0. What a sparse row leaves out is 0 or the first nominal value; where that one
    means 1 (`is_one`), sparse rows hold the difference.
    """

    def __init__(self, path: Path, header: _Header, labels: list[int], missing: str) -> None:
        self.path, self.header, self.missing = path, header, missing
        self.width = len(header.names)
        self.is_sparse = self.saw_weights = False
        self.is_label = np.zeros(self.width, dtype=np.bool_)
        self.is_label[labels] = True
        distinct = list(set(header.types))  # few, and each column only has the number of its type
        number = {declared: place for place, declared in enumerate(distinct)}
        which = np.array([number[declared] for declared in header.types])
        ones = [t.values[0].lower() in ("1", "true") if t.values else False for t in distinct]
        self.is_binary = np.array([t.is_binary for t in distinct])[which] | self.is_label
        self.is_one = np.array(ones)[which] & self.is_binary
        self.is_one_hot = np.array([t.is_one_hot for t in distinct])[which] & ~self.is_label
        self.is_used = np.array([not t.left_out for t in distinct])[which]
        #: Whether blocks of rows can be read at once.
        self.only_numbers = all(t.suffixes == ("",) for t in distinct)

    def read(self, blocks: Iterator[tuple[int, bytes]]) -> Any:
        """Return all rows, (n, attributes), dense or CSR as the first one is."""
        sparse, dense, n_rows = _CsrBuilder(np.float64), bytearray(), 0
        for line, block in blocks:
            first = next(self._lines(line, block), None)
            if first is None:
                continue
            if not n_rows:
                self.is_sparse = first[1].startswith("{")
            if self.is_sparse:
                rows = _plain_sparse(block, self.width) if self.only_numbers else None
                if rows is None or not self._are_binary(rows[1], rows[2]):
                    rows = self._sparse_rows(line, block)
                sparse.append(rows[0], rows[1], rows[2] - self.is_one[rows[1]])
                n_rows += len(rows[0])
            else:
                cells = _plain_dense(block, self.width) if self.only_numbers else None
                if cells is None or not self._are_binary(slice(None), cells):
                    cells = np.array([self._dense_row(*row) for row in self._lines(line, block)])
                dense += cells.tobytes()
                n_rows += len(cells)
        if not n_rows:
            raise DataError(f"{self.path} has no rows after @data: there is nothing to learn from")
        if self.is_sparse:
            cells = sparse.build(self.width)
            cells.eliminate_zeros()
            return cells
        return np.frombuffer(dense, np.float64).reshape(n_rows, self.width)

    def _are_binary(self, columns: Any, values: NDArray[np.float64]) -> bool:
        """Whether plain values of 0/1 attributes are 0 or 1."""
        wanted = (
            values[..., self.is_binary] if values.ndim == 2 else values[self.is_binary[columns]]
        )
        return bool(((wanted == 0) | (wanted == 1)).all())

    def _lines(self, first_line: int, block: bytes) -> Iterator[tuple[int, str]]:
        """Yield number and text of the lines that hold a row."""
        for line, raw in enumerate(block.split(b"\n"), start=first_line):
            text = raw.decode(self.header.encoding, errors="surrogateescape").strip()
            if text and text[0] != "%":
                yield line, text

    def _sparse_rows(self, first_line: int, block: bytes) -> _SparseRows:
        rows = [self._sparse_row(line, text) for line, text in self._lines(first_line, block)]
        return (
            np.array([len(row) for row in rows], dtype=np.int64),
            np.array([column for row in rows for column, _ in row], dtype=np.int64),
            np.array([value for row in rows for _, value in row], dtype=np.float64),
        )

    def _dense_row(self, line: int, text: str) -> list[float]:
        if text[0] == "{":
            raise _at_line(self.path, line, "a sparse row {...} in a file of dense rows; use one")
        if "%" in text:
            text = _COMMENT.sub(lambda match: match[1] or "", text)
        if weight := _WEIGHT.search(text):
            self.saw_weights = True
            text = text[: weight.start()]
        has_quotes = "'" in text or '"' in text
        cells = [cell.strip() for cell in (_cells(text) if has_quotes else text.split(","))]
        if len(cells) != self.width:
            raise _at_line(
                self.path,
                line,
                f"expected {self.width:,} values (one for each @attribute), found {len(cells):,}; "
                "correct or remove the row",
            )
        return [self._value(cell, position, line) for position, cell in enumerate(cells)]

    def _sparse_row(self, line: int, text: str) -> list[tuple[int, float]]:
        if text[0] != "{":
            raise _at_line(self.path, line, "a dense row in a file of sparse rows {...}; use one")
        entries: dict[int, float] = {}
        empty = _EMPTY.match(text)
        position = empty.end() if empty else 1
        while not empty:
            pair = _PAIR.match(text, position)
            if pair is None:
                raise _at_line(
                    self.path,
                    line,
                    f"expected 'index value' pairs in braces, found {text[position:][:30]!r}; "
                    "the row may be cut off",
                )
            column = self._column(pair[1], line)
            if column in entries:
                raise _at_line(
                    self.path, line, f"index {column} occurs twice; keep one value for it"
                )
            entries[column] = self._value(pair[2].strip(), column, line)
            position = pair.end()
            if pair[3] == "}":
                break
        rest = text[position:].strip()
        if _WEIGHT.fullmatch(rest):
            self.saw_weights = True
        elif rest and rest[0] != "%":
            raise _at_line(self.path, line, f"unexpected {rest[:30]!r} after the closing brace")
        return sorted(entries.items())

    def _column(self, text: str, line: int) -> int:
        number = _number(text)
        if number is None or number != int(number) or not 0 <= number < self.width:
            raise _at_line(
                self.path,
                line,
                f"index {text} is out of range; the file declares {self.width:,} attributes, so indices "
                f"go from 0 to {self.width - 1:,}",
            )
        return int(number)

    def _value(self, text: str, position: int, line: int) -> float:
        """Return the number that a value stands for; NaN where it is missing and may be."""
        declared, name = self.header.types[position], self.header.names[position]
        is_label = bool(self.is_label[position])
        codes = _MEANING if is_label and declared.values else declared.codes
        if declared.left_out:
            return 0.0
        if text == "?" and not is_label and self.missing == "impute":
            return np.nan
        word = _unquote(text)
        value = codes.get(word.lower() if is_label else word) if codes else _number(word)
        if value is None and codes and codes.keys() <= {"0", "1"}:
            value = number if (number := _number(word)) in codes.values() else None  # such as 1.0
        if value is not None and (value in (0, 1) or not is_label):
            return value
        raise _at_line(self.path, line, _wrong_value(text, name, declared, is_label=is_label))


def _wrong_value(text: str, name: str, declared: _AttributeType, *, is_label: bool) -> str:
    if is_label and text == "?":
        return (
            f"the label {name!r} is missing (?), and labels cannot be imputed; remove the row or fill "
            "it in"
        )
    if text == "?":
        return (
            f"the value of {name!r} is missing (?); pass {setting('missing', 'impute')} to use the "
            "mean or most frequent value"
        )
    if is_label:
        return (
            f"the label {name!r} has the value {text!r}, and labels must be 0 or 1; if this is no "
            f"label, say which columns are with {setting('labels=')} (5: the first five, -5: the "
            "last five)"
        )
    if not declared.values:
        return (
            f"{name!r} is numeric, and {text!r} is no finite number; correct it, or write ? and "
            f"pass {setting('missing', 'impute')}"
        )
    shown = ",".join(declared.values[:8]) + (",..." if len(declared.values) > 8 else "")
    return f"{text!r} is not among the values {{{shown}}} of {name!r}; declare it there"


def _cells(text: str) -> Iterator[str]:
    """Yield the cells of a dense row that has quotes."""
    for match in CELL.finditer(text):
        yield match[1]
        if match[2] != ",":
            return


def _number(text: str) -> float | None:
    """Return a finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) and "_" not in text else None


# --- many rows at once


def _plain_dense(block: bytes, width: int) -> NDArray[np.float64] | None:
    """Return a block of plain dense rows, (rows, width), or None if it is not plain."""
    rows = _numbers(block.strip(b"\n").split(b"\n"))
    return rows if rows is not None and rows.shape[1] == width else None


def _plain_sparse(block: bytes, width: int) -> _SparseRows | None:
    """Return a block of plain sparse rows, or None if it is not plain."""
    lines = block.replace(b", ", b",").strip(b"\n").split(b"\n")
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
        return None
    rows = [line[1:-1] for line in lines]  # `i v,i v`, or empty
    counts = np.array([row.count(b",") + 1 if row else 0 for row in rows])
    pairs = b",".join(filter(None, rows))
    if pairs.translate(None, _DIGITS) != b",".join([b" "] * counts.sum()):
        return None  # something else than pairs of numbers
    numbers = _numbers([pairs.replace(b" ", b",")]) if pairs else np.empty(0)
    if numbers is None:
        return None
    indices, values = numbers.reshape(-1, 2).T
    columns = indices.astype(np.int64)
    rises = np.diff(columns, prepend=-1) > 0
    rises[(np.cumsum(counts) - counts)[counts > 0]] = True  # each row starts anew
    within = (indices == columns) & (indices >= 0) & (indices < width)
    return (counts, columns, values) if (within & rises).all() else None


def _numbers(lines: list[bytes]) -> NDArray[np.float64] | None:
    """Return lines of equally many finite numbers, or None where that is not what they are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # nothing but blanks
            numbers = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except (ValueError, UserWarning):
        return None
    return numbers if np.isfinite(numbers).all() else None
