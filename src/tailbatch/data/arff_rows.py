"""The data section of an ARFF file: rows of text in, features and labels out.

Most files hold numbers only, and most of their rows are plain. `fast_dense` and `fast_sparse`
take a whole block of rows at once and accept only what they can prove to be plain; any other block
goes to `CarefulRows`, which reads one value after another and knows what is wrong with it, and
where.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailbatch.data.arff_columns import BINARY, AttributeType, Layout, SparseRows
from tailbatch.data.dataset import IntArray
from tailbatch.data.decimals import Decimals, parse_decimals
from tailbatch.data.text import at_line

QUOTED = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_CELL = re.compile(rf"\s*({QUOTED}|[^,]*)\s*(,|$)")
_PAIR = re.compile(rf"\s*+([^\s,}}]++)\s++({QUOTED}|[^,}}'\"\s][^,}}]*+)\s*+([,}}])")
_EMPTY = re.compile(r"\{\s*\}")
_WEIGHT = re.compile(r",?\s*\{\s*[-+.\deE]+\s*\}$")
_COMMENT = re.compile(rf"({QUOTED})|\s%.*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def unquote(text: str) -> str:
    r"""Return a name or value without its quotes and escapes.

    Examples
    --------
    >>> unquote(r"'don\'t'"), unquote('"a b"'), unquote("plain")
    ("don't", 'a b', 'plain')
    """
    if text[:1] not in ("'", '"') or len(text) < 2 or text[-1] != text[0]:
        return text
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(match: re.Match[str]) -> str:
    mark = match[1]
    return chr(int(mark[1:], 16)) if len(mark) > 1 else _ESCAPED.get(mark, mark)


def fast_dense(block: bytes, layout: Layout) -> NDArray[np.float64] | None:
    """Return a block of plain dense rows as (rows, attributes), or None if it is not plain."""
    text = block.strip(b"\n")
    found = _parse(text.replace(b", ", b",") if b" " in text else text)
    width = len(layout.names)
    if found is None or not found.follows_number.all() or len(found.numbers) % width:
        return None
    rows, marks = found.numbers.reshape(-1, width), found.separators.reshape(-1, width)
    if not ((marks[:, :-1] == ord(",")).all() and (marks[:, -1] == ord("\n")).all()):
        return None
    binary = rows[:, layout.must_be_binary]
    return rows if ((binary == 0) | (binary == 1)).all() else None


def fast_sparse(block: bytes, layout: Layout) -> SparseRows | None:
    """Return a block of plain sparse rows, or None if it is not plain."""
    text = _without_braces(block)
    found = None if text is None else _parse(text)
    counts = None if found is None else _entries_per_row(found)
    if found is None or counts is None:
        return fast_sparse(block.replace(b", ", b","), layout) if b", " in block else None
    indices, values = found.numbers[0::2], found.numbers[1::2]
    if len(indices) and not (indices.min() >= 0 and indices.max() < len(layout.names)):
        return None
    columns = indices.astype(np.int32)
    rises = np.diff(columns, prepend=-1) > 0
    rises[(np.cumsum(counts) - counts)[counts > 0]] = True  # each row starts anew
    binary = ~layout.must_be_binary[columns] | (values == 0) | (values == 1)
    is_valid = (columns == indices).all() and rises.all() and binary.all()
    return SparseRows(counts, columns, values) if is_valid else None


def _parse(text: bytes) -> Decimals | None:
    """Return the finite numbers of some lines, or None."""
    try:
        found = parse_decimals(text + b"\n")
    except ValueError:
        return None
    return found if np.isfinite(found.numbers).all() else None


def _without_braces(block: bytes) -> bytes | None:
    """Return rows ``{i v,i v}`` as ``i v,i v``, or None if not each line is in braces."""
    text = block.strip(b"\n")
    codes = np.frombuffer(b"\n" + text + b"\n", np.uint8)
    ends, opening, closing = (np.flatnonzero(codes == ord(mark)) for mark in "\n{}")
    if not (np.array_equal(opening, ends[:-1] + 1) and np.array_equal(closing, ends[1:] - 1)):
        return None
    return text.translate(None, b"{}")


def _entries_per_row(found: Decimals) -> IntArray | None:
    """Return how many pairs each row has, or None unless rows are ``i v,i v`` or empty."""
    marks, follows = found.separators, found.follows_number
    ends = np.flatnonzero(marks == ord("\n"))
    counts = np.diff(np.cumsum(follows)[ends], prepend=0) // 2
    if not follows.all():
        # Only the end of a line stands alone, right after another one.
        alone = np.flatnonzero(~follows)
        if (
            not (marks[alone] == ord("\n")).all()
            or (marks[alone[alone > 0] - 1] != ord("\n")).any()
        ):
            return None
        marks = marks[follows]
    inner, outer = marks[0::2], marks[1::2]
    is_plain = (inner == ord(" ")).all() and ((outer == ord(",")) | (outer == ord("\n"))).all()
    return counts if is_plain and len(inner) == len(outer) else None


class CarefulRows:
    """Read rows value by value: quotes, missing values, comments, weights, and every mistake.

    Parameters
    ----------
    path
        The file, for messages.
    layout
        What becomes of each attribute.
    encoding
        Of the text.
    missing
        ``"impute"`` lets ``?`` through as NaN, ``"error"`` refuses it.
    """

    def __init__(self, path: Path, layout: Layout, *, encoding: str, missing: str) -> None:
        self.path = path
        self.layout = layout
        self.encoding = encoding
        self.missing = missing
        self.saw_weights = False

    def lines(self, first_line: int, block: bytes) -> Iterator[tuple[int, str]]:
        """Yield number and text of the lines that hold a row."""
        for line, raw in enumerate(block.split(b"\n"), start=first_line):
            text = raw.decode(self.encoding, errors="surrogateescape").strip()
            if text and text[0] != "%":
                yield line, text

    def dense(self, first_line: int, block: bytes) -> NDArray[np.float64]:
        """Return a block of dense rows, (rows, attributes)."""
        rows = [self._dense_row(line, text) for line, text in self.lines(first_line, block)]
        return np.array(rows).reshape(len(rows), len(self.layout.names))

    def sparse(self, first_line: int, block: bytes) -> SparseRows:
        """Return a block of sparse rows."""
        rows = [self._sparse_row(line, text) for line, text in self.lines(first_line, block)]
        return SparseRows(
            np.array([len(row) for row in rows], dtype=np.int64),
            np.array([column for row in rows for column, _ in row], dtype=np.int32),
            np.array([value for row in rows for _, value in row], dtype=np.float64),
        )

    def _dense_row(self, line: int, text: str) -> list[float]:
        if text[0] == "{":
            raise at_line(self.path, line, "a sparse row {...} in a file of dense rows; use one")
        if "%" in text:
            text = _COMMENT.sub(lambda match: match[1] or "", text)
        if weight := _WEIGHT.search(text):
            self.saw_weights = True
            text = text[: weight.start()]
        has_quotes = "'" in text or '"' in text
        cells = [cell.strip() for cell in (_cells(text) if has_quotes else text.split(","))]
        if len(cells) != len(self.layout.names):
            raise at_line(
                self.path,
                line,
                f"expected {len(self.layout.names):,} values (one for each @attribute), "
                f"found {len(cells):,}; correct or remove the row",
            )
        return [self._value(cell, position, line) for position, cell in enumerate(cells)]

    def _sparse_row(self, line: int, text: str) -> list[tuple[int, float]]:
        if text[0] != "{":
            raise at_line(self.path, line, "a dense row in a file of sparse rows {...}; use one")
        entries: dict[int, float] = {}
        empty = _EMPTY.match(text)
        position = empty.end() if empty else 1
        while not empty:
            pair = _PAIR.match(text, position)
            if pair is None:
                raise at_line(
                    self.path,
                    line,
                    f"expected 'index value' pairs in braces, found {text[position:][:30]!r}; "
                    "the row may be cut off",
                )
            column = self._column(pair[1], line)
            if column in entries:
                raise at_line(
                    self.path, line, f"index {column} occurs twice; keep one value for it"
                )
            entries[column] = self._value(pair[2].strip(), column, line)
            position = pair.end()
            if pair[3] == "}":
                break
        self._check_rest(text[position:].strip(), line)
        return sorted(entries.items())

    def _check_rest(self, rest: str, line: int) -> None:
        if _WEIGHT.fullmatch(rest):
            self.saw_weights = True
        elif rest and rest[0] != "%":
            raise at_line(self.path, line, f"unexpected {rest[:30]!r} after the closing brace")

    def _column(self, text: str, line: int) -> int:
        try:
            number = float(text)
            column = int(number)
        except (ValueError, OverflowError):
            column = number = -1
        if column != number or not 0 <= column < len(self.layout.names):
            raise at_line(
                self.path,
                line,
                f"index {text} is out of range; the file declares "
                f"{len(self.layout.names):,} attributes, so indices go from 0 to "
                f"{len(self.layout.names) - 1:,}",
            )
        return column

    def _value(self, text: str, position: int, line: int) -> float:
        """Return the number a value stands for; 0 for strings and dates, which are left out."""
        declared, codes = self.layout.types[position], self.layout.codes[position]
        is_label = bool(self.layout.is_label[position])
        if declared.kind in ("string", "date"):
            return 0.0
        if text == "?":
            return self._missing(self.layout.names[position], is_label, line)
        word = unquote(text)
        value = _number(word) if codes is None else _code(codes, word, is_label)
        if value is not None and (value in (0, 1) or not is_label):
            return value
        wrong = _wrong_value(text, self.layout.names[position], declared, is_label)
        raise at_line(self.path, line, wrong)

    def _missing(self, name: str, is_label: bool, line: int) -> float:
        if is_label:
            raise at_line(
                self.path,
                line,
                f"the label {name!r} is missing (?), and labels cannot be imputed; "
                "remove the row or fill it in",
            )
        if self.missing == "error":
            raise at_line(
                self.path,
                line,
                f"the value of {name!r} is missing (?); pass missing='impute' to use "
                "the mean or most frequent value",
            )
        return np.nan


def _cells(text: str) -> Iterator[str]:
    """Yield the cells of a dense row that has quotes."""
    for match in _CELL.finditer(text):
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


def _code(codes: dict[str, float], text: str, is_label: bool) -> float | None:
    """Return the number of a nominal value; 1.0 is as good as 1 where the values are 0 and 1."""
    code = codes.get(text.lower() if is_label else text)
    if code is None and codes.keys() <= BINARY.keys():
        number = _number(text)
        return number if number in codes.values() else None
    return code


def _wrong_value(text: str, name: str, declared: AttributeType, is_label: bool) -> str:
    if is_label:
        return (
            f"the label {name!r} has the value {text!r}, and labels must be 0 or 1; if this is no "
            "label, say which columns are with labels= (labels=5: the first five, labels=-5: the "
            "last five)"
        )
    if declared.kind == "numeric":
        return (
            f"{name!r} is numeric, and {text!r} is no finite number; correct it, or write ? and "
            "pass missing='impute'"
        )
    shown = ",".join(declared.values[:8]) + (",..." if len(declared.values) > 8 else "")
    return f"{text!r} is not among the values {{{shown}}} of {name!r}; declare it there"
