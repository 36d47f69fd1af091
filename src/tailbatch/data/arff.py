"""ARFF files, dense or sparse, plain or gzip, read in blocks of rows.

Labels are where MULAN's XML file says, where MEKA's ``-C`` says, or where they are asked for; the XML
file wins over ``-C``, because a filter that moves columns leaves the old ``-C`` in place.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from xml.etree.ElementTree import ParseError

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.arff_rows import (
    ATTRIBUTE,
    CELL,
    QUOTED,
    _AttributeType,
    _Header,
    _Rows,
    _unquote,
)  # fmt: skip
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.labels import _label_places, stored_labels
from tailbatch.data.sparse import MAX_LEVELS, Block, _OneHot, _side_by_side, first_repeated
from tailbatch.data.text import _at_line, _filled_in, label_file, stem, text_blocks
from tailbatch.errors import DataError, require, setting

#: No header may be longer: each attribute costs memory, whatever the rows hold.
MAX_HEADER_BYTES = 1 << 28
#: All nominal attributes together may become no more columns: each has a name.
MAX_ONE_HOT = 1_000_000
#: Absent values of sparse rows that are not zero may fill at most this many cells.
MAX_IMPLIED_ONES = 1 << 28

Labels = int | str | Path | Sequence[str] | None
"""Where labels are, see `read_arff`."""

_LOGGER = logging.getLogger(__name__)

_DATA = re.compile(rb"@data\b[^\n]*\n?", re.IGNORECASE)
_MEKA = re.compile(r"(?<![^\s:'\"])-C\s+(-?\d{1,18})(?!\d)")
_NOMINAL = re.compile(rf"\{{((?:{QUOTED}|[^}}'\"])*+)\}}")
_NUMERIC, _LEFT_OUT = ("numeric", "real", "integer"), ("string", "date")


def read_arff(
    path: str | Path, *, labels: Labels = None, missing: Literal["error", "impute"] = "impute"
) -> MultiLabelDataset:
    r"""Read an ARFF file, plain or gzip.

    Numeric attributes stay numbers; nominal ones become one column for each value, or one 0/1
    column if there are two; strings and dates are left out with a notice. Sparse files give CSR
    features, dense files dense ones. In a sparse file a value that is left out is 0 or the
    *first* nominal value, as the format says.

    Parameters
    ----------
    path
        The file. For ``yeast.arff.gz`` and for ``yeast-train.arff`` the labels may be listed in
        ``yeast.xml`` beside it.
    labels
        Which columns are labels, if the file does not say it or is wrong: 5 for the first five,
        -5 for the last five (as MEKA's ``-C``), the path of a MULAN XML file, a list of names, or
        the prefix that exactly the label names share.
    missing
        ``"impute"`` fills in the column's mean or most frequent value for ``?``, and a notice says
        where; ``"error"`` refuses missing values. Missing labels are always refused.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.arff")
    >>> _ = path.write_text('''@relation 'tiny: -C -2'
    ... @attribute size numeric
    ... @attribute color {red, green, blue}
    ... @attribute round {0, 1}
    ... @attribute sweet {0, 1}
    ... @data
    ... 1.5, red, 1, 0
    ... 2.5, blue, 1, 1
    ... ''')
    >>> data = read_arff(path)
    >>> data.feature_names, data.label_names
    (('size', 'color=red', 'color=green', 'color=blue'), ('round', 'sweet'))
    >>> data.X
    array([[1.5, 1. , 0. , 0. ],
           [2.5, 0. , 0. , 1. ]])
    """
    path = Path(path)
    if missing not in ("error", "impute"):
        raise DataError(f"missing must be 'error' or 'impute', got {missing!r}")
    raw, blocks = _split(path)
    header, notices = _parse_header(path, raw)
    positions, label_notices = _label_positions(path, header.relation, header.names, labels)
    _check_types(path, header, positions)
    rows = _Rows(path, header, positions, missing)
    cells = rows.read(blocks)
    X, feature_names, filled = _features(rows, cells, np.flatnonzero(~rows.is_label))
    Y = _numbers_of(rows, cells, np.array(positions, dtype=np.int64)) != 0
    notices += [*label_notices, *_left_out(rows), *([_filled_in(filled)] if filled else [])]
    for notice in notices:
        _LOGGER.warning("%s: %s", path, notice)
    return MultiLabelDataset(
        name=stem(path),
        X=X,
        Y=stored_labels(Y),
        feature_names=feature_names,
        label_names=tuple(header.names[position] for position in positions),
        notices=tuple(notices),
    )


# --- the header


def _split(path: Path) -> tuple[bytes, Iterator[tuple[int, bytes]]]:
    """Return the header, and the blocks of the data section."""
    blocks = text_blocks(path)
    header = bytearray()
    for line, block in blocks:
        for mark in _DATA.finditer(block):
            start = block.rfind(b"\n", 0, mark.start()) + 1
            if not block[start : mark.start()].strip():
                first = line + block.count(b"\n", 0, mark.end())
                return bytes(header + block[:start]), chain([(first, block[mark.end() :])], blocks)
        header += block
        if len(header) > MAX_HEADER_BYTES:
            raise _at_line(path, line, f"no @data in the first {MAX_HEADER_BYTES >> 20} MiB")
    raise DataError(f"{path} has no @data line: it is no ARFF file, or it is cut off")


def _parse_header(path: Path, raw: bytes) -> tuple[_Header, list[str]]:
    """Return the header, and a notice if its encoding had to be guessed."""
    notices = []
    try:
        text, encoding = raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        text, encoding = raw.decode("latin-1"), "latin-1"
        line = text.count("\n", 0, error.start) + 1
        notices = [f"line {line} is not UTF-8, so names are read as Latin-1"]
    # Splitting at the declarations gives names and types in turn, and all the rest between them.
    pieces = ATTRIBUTE.split(text)
    names, types = [_unquote(name) for name in pieces[1::3]], pieces[2::3]
    header = _Header(_relation(path, text, "".join(pieces[0::3])), names, [], text, encoding)
    known: dict[str, _AttributeType] = {}
    for declared in dict.fromkeys(types):  # most headers repeat a few
        try:
            known[declared] = _parse_type(declared)
        except ValueError as error:
            raise _at_line(path, header.line(types.index(declared)), str(error)) from None
    header.types.extend(known[declared] for declared in types)
    if (repeated := first_repeated(names)) is not None:
        first = names.index(repeated)
        raise _at_line(
            path,
            header.line(names.index(repeated, first + 1)),
            f"the attribute {repeated!r} is declared in line {header.line(first)} too; rename one",
        )
    return header, notices


def _relation(path: Path, text: str, rest: str) -> str:
    """Return the relation's name, after a look at the lines that declare no attribute."""
    relation = ""
    for line in filter(None, map(str.strip, rest.split("\n"))):
        if line[:9].lower() == "@relation":
            relation = line[9:].strip()
        elif line[0] != "%":
            number = next(i for i, found in enumerate(text.split("\n"), 1) if found.strip() == line)
            raise _at_line(path, number, f"expected '@attribute NAME TYPE', found {line[:40]!r}")
    return relation


def _parse_type(text: str) -> _AttributeType:
    """Return the type written as ``numeric`` or ``{red, 'dark blue'}``."""
    if nominal := _NOMINAL.match(text):
        words = (value[1].strip() for value in CELL.finditer(nominal[1]))
        values = tuple(_unquote(word) for word in words if word)
        if not values:
            raise ValueError(f"a nominal attribute needs values, found {text[:40]!r}")
        if (repeated := first_repeated(values)) is not None:
            raise ValueError(f"the value {repeated!r} occurs twice in {text[:60]!r}; remove one")
        if set(values) <= {"0", "1"}:
            return _AttributeType("", values, is_binary=True, codes={v: float(v) for v in values})
        is_one_hot = len(values) != 2
        codes = {value: float(code) for code, value in enumerate(values)}
        suffixes = tuple(f"={value}" for value in values[0 if is_one_hot else 1 :])
        return _AttributeType("", values, False, is_one_hot, codes, suffixes)
    word = text.split(maxsplit=1)[0].lower() if text.strip() else ""
    if word not in (*_NUMERIC, *_LEFT_OUT):
        raise ValueError(
            f"unknown attribute type {text.strip()[:40]!r}; known are numeric, real, integer, "
            "string, date and {nominal,values}"
        )
    return _AttributeType(word, suffixes=()) if word in _LEFT_OUT else _AttributeType()


def _check_types(path: Path, header: _Header, labels: list[int]) -> None:
    """Refuse labels that cannot be binary, and features that would become too many columns."""
    for position in labels:
        declared, values = header.types[position], header.types[position].values
        lower = {value.lower() for value in values}
        if declared.left_out or not (lower <= {"0", "1"} or lower <= {"false", "true"}):
            shown = "{" + ",".join(values[:8]) + "}" if values else declared.left_out
            raise _at_line(
                path,
                header.line(position),
                f"{header.names[position]!r} of type {shown} cannot be a label, whose values are 0 and "
                "1; the labels may be at the other end of the file: say where with "
                f"{setting('labels=')} (5: the first five columns, -5: the last five, an XML file, or a "
                "list of names)",
            )
    total, is_label = 0, set(labels)
    for position, declared in enumerate(header.types):
        count = len(declared.values) if declared.is_one_hot and position not in is_label else 0
        total += count
        if count > MAX_LEVELS:
            raise _at_line(
                path,
                header.line(position),
                f"{header.names[position]!r} declares {count:,} values, and at most {MAX_LEVELS:,} "
                "become columns; declare it as string to leave it out",
            )
    if total > MAX_ONE_HOT:
        raise DataError(
            f"{path}: the nominal attributes would become {total:,} columns, and at most "
            f"{MAX_ONE_HOT:,} fit; declare some as string to leave them out"
        )


# --- the labels


def _label_positions(
    path: Path, relation: str, names: list[str], labels: Labels
) -> tuple[list[int], list[str]]:
    """Return the positions of the labels among the columns, and notices."""
    if xml := label_file(labels):
        return _in_xml(names, xml), []
    if labels is not None:
        return _places(path, names, labels), []
    meka = _MEKA.search(relation)
    counted = _places(path, names, int(meka[1])) if meka else None
    # `yeast.xml` for `yeast.arff`, and for its parts such as `yeast-train.arff`.
    parts = stem(path).split("-")
    beside = (path.with_name("-".join(parts[:k]) + ".xml") for k in range(len(parts), 0, -1))
    if xml := next((place for place in beside if place.is_file()), None):
        positions = _in_xml(names, xml)
        if meka and counted is not None and set(positions) != set(counted):
            return positions, [f"the labels are those of {xml.name}, not the relation's {meka[0]}"]
        return positions, []
    if counted is not None:
        return counted, []
    raise DataError(
        f"no labels found for {path}: there is no {stem(path)}.xml beside it and no -C in its "
        f"relation; say where they are with {setting('labels=')} (5: the first five columns, -5: the "
        "last five, an XML file, or a list of names)"
    )


def _places(source: Path, names: list[str], labels: Any) -> list[int]:
    try:
        return _label_places(names, labels)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


def _in_xml(names: list[str], xml: Path) -> list[int]:
    """Return the positions of the labels that an XML file names, in the order of the columns."""
    parser = require("defusedxml.ElementTree", extra="cli")
    entities = require("defusedxml.common", extra="cli").DefusedXmlException
    try:
        root = parser.parse(xml).getroot()
    except ParseError as error:
        raise DataError(f"{xml} is no well-formed XML ({error}); correct it") from None
    except entities as error:
        raise DataError(
            f"{xml} uses XML entities ({type(error).__name__}), which label files never need; "
            "write the label names out"
        ) from None
    except (LookupError, ValueError) as error:  # an encoding that is unknown, or not supported
        raise DataError(f"{xml} is no readable XML ({error}); save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"cannot read {xml}: {error.strerror}") from error
    # All elements, nested ones (a hierarchy) too.
    labels = [element for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    wanted = [element.attrib.get("name", "") for element in labels]
    if not all(wanted) or not wanted:
        raise DataError(f'{xml} must list labels as <label name="..."/>, and does not')
    return sorted(_places(xml, names, wanted))


# --- the features


def _numbers_of(rows: _Rows, cells: Any, columns: NDArray[np.int64]) -> Any:
    """Return attributes whose values are numbers, dense or CSR; sparse rows lack the ones left out."""
    chosen = cells[:, columns]
    ones = rows.is_one[columns]
    if not (rows.is_sparse and ones.any()):
        return csr_array(chosen) if rows.is_sparse else chosen
    n, places = chosen.shape[0], np.flatnonzero(ones)
    cells_of_ones = (np.ones(n * len(places)), np.tile(places, n), np.arange(n + 1) * len(places))
    return csr_array(chosen + csr_array(cells_of_ones, shape=chosen.shape))


def _filled(rows: _Rows, cells: Any) -> tuple[Any, dict[str, int]]:
    """Return the cells with means or most frequent values for missing ones, and how many were."""
    if not np.isnan(cells.data if rows.is_sparse else cells).any():
        return cells, {}
    cells, filled = cells.tocsc() if rows.is_sparse else cells.copy(), {}
    missing = np.isnan(cells.data if rows.is_sparse else cells)
    columns = np.repeat(np.arange(rows.width), np.diff(cells.indptr)) if rows.is_sparse else None
    for column in np.unique(np.nonzero(missing)[1] if columns is None else columns[missing]):
        values = cells[:, [column]].toarray().ravel() if rows.is_sparse else cells[:, column]
        present, name = values[~np.isnan(values)], rows.header.names[column]
        if not len(present):
            raise DataError(f"{rows.path}: every value of {name!r} is missing; leave it out")
        found, counts = np.unique(present, return_counts=True)
        is_number = not rows.header.types[column].values
        fill = present.mean() if is_number else found[counts.argmax()]
        filled[name] = len(values) - len(present)
        if rows.is_sparse:
            cells.data[missing & (columns == column)] = fill
        else:
            cells[missing[:, column], column] = fill
    return cells, filled


def _features(
    rows: _Rows, cells: Any, features: NDArray[np.int64]
) -> tuple[Any, tuple[str, ...], dict[str, int]]:
    """Return the features, missing values filled in, their names, and how many were of each attribute."""
    names, types = rows.header.names, rows.header.types
    one_hot = rows.is_one_hot[features]
    implied = int((rows.is_one | rows.is_one_hot).sum())
    if rows.is_sparse and implied * cells.shape[0] > MAX_IMPLIED_ONES:
        raise DataError(
            f"{rows.path}: the first values of {implied:,} nominal attributes, which sparse rows leave "
            f"out, would fill more than {MAX_IMPLIED_ONES:,} cells; declare 0 as first value"
        )
    cells, filled = _filled(rows, cells)
    blocks: list[Block] = []
    starts = np.flatnonzero(np.diff(one_hot, prepend=~one_hot[:1]) | one_hot)
    for run in np.split(np.arange(len(features)), starts)[1:]:
        if one_hot[run[0]]:
            codes = cells[:, features[run]]
            codes = codes.toarray() if rows.is_sparse else codes
            levels = len(types[features[run[0]]].values)
            blocks.append(_OneHot(codes.ravel().astype(np.int32), levels))
        else:
            blocks.append(_numbers_of(rows, cells, features[run][rows.is_used[features[run]]]))
    X = _side_by_side(blocks, cells.shape[0])
    X = csr_array(X) if rows.is_sparse else X
    every = [names[p] + end for p in features.tolist() for end in types[p].suffixes]
    return X, tuple(every), filled


def _left_out(rows: _Rows) -> list[str]:
    """Return notices about what of the rows was not used."""
    pairs = zip(rows.header.names, rows.header.types, strict=True)
    names = [repr(name) for name, declared in pairs if declared.left_out]
    notices = ["ignored the weights of rows"] if rows.saw_weights else []
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        notices.insert(0, f"left out {len(names):,} string or date attributes: {shown}")
    return notices
