"""ARFF files, dense or sparse, plain or gzip, read in blocks of rows."""

import logging
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple

from tailbatch.data.arff_columns import BINARY, TRUTH, AttributeType, Collector, Kind, Layout
from tailbatch.data.arff_labels import Labels, label_positions
from tailbatch.data.arff_rows import QUOTED, CarefulRows, fast_dense, fast_sparse, unquote
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.sparse import MAX_LEVELS
from tailbatch.data.text import at_line, filled_in, first_repeated, stem, text_blocks
from tailbatch.errors import DataError

#: No header may be longer: each attribute costs memory, whatever the rows hold.
MAX_HEADER_BYTES = 1 << 28
#: All nominal attributes together may become no more columns: each has a name.
MAX_ONE_HOT = 1_000_000

_LOGGER = logging.getLogger(__name__)

_DATA = re.compile(rb"@data\b[^\n]*\n?", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    rf"^[ \t]*@attribute[ \t]+([^\s{{'\"][^\s{{]*|{QUOTED})[ \t]*(.*)", re.IGNORECASE | re.MULTILINE
)
_NOMINAL = re.compile(rf"\{{((?:{QUOTED}|[^}}'\"])*+)\}}")
_VALUE = re.compile(rf"\s*({QUOTED}|[^,]*)\s*(?:,|$)")
_KINDS: dict[str, Kind] = {
    "numeric": "numeric",
    "real": "numeric",
    "integer": "numeric",
    "string": "string",
    "date": "date",
}


def read_arff(
    path: str | Path,
    *,
    labels: Labels = None,
    missing: Literal["error", "impute"] = "impute",
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
    text, blocks = _split(path)
    header, notices = _parse_header(path, text)
    positions, label_notices = label_positions(path, header.relation, header.names, labels)
    _check_labels(path, header, positions)
    _check_levels(path, header, positions)
    layout = Layout(header.names, header.types, positions)
    careful = CarefulRows(path, layout, encoding=header.encoding, missing=missing)
    collector = _collect(path, layout, careful, blocks)
    X = collector.features()
    notices += [*label_notices, *_left_out(header, careful)]
    notices += [filled_in(collector.filled)] if collector.filled else []
    for notice in notices:
        _LOGGER.warning("%s: %s", path, notice)
    return MultiLabelDataset(
        name=stem(path),
        X=X,
        Y=collector.labels(),
        feature_names=layout.feature_names,
        label_names=tuple(header.names[position] for position in positions),
        notices=tuple(notices),
    )


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
            raise at_line(path, line, f"no @data in the first {MAX_HEADER_BYTES >> 20} MiB")
    raise DataError(f"{path} has no @data line: it is no ARFF file, or it is cut off")


class _Header(NamedTuple):
    """What comes before ``@data``."""

    relation: str  # as written
    names: list[str]
    types: list[AttributeType]
    text: str
    encoding: str

    def line(self, position: int) -> int:
        """Return the line that declares an attribute."""
        declarations = (match.start() for match in _ATTRIBUTE.finditer(self.text))
        return _line(self.text, next(islice(declarations, position, None)))


def _line(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def _parse_header(path: Path, raw: bytes) -> tuple[_Header, list[str]]:
    """Return the header, and a notice if its encoding had to be guessed."""
    notices = []
    try:
        text, encoding = raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        text, encoding = raw.decode("latin-1"), "latin-1"
        line = _line(text, error.start)
        notices = [f"line {line} is not UTF-8, so names are read as Latin-1"]
    # Splitting at the declarations gives names and types in turn, and all the rest between them.
    pieces = _ATTRIBUTE.split(text)
    names, types, rest = pieces[1::3], pieces[2::3], "".join(pieces[0::3])
    relation = _check_rest(path, text, rest)
    header = _Header(
        relation,
        [unquote(name) for name in names] if "'" in text or '"' in text else names,
        [],
        text,
        encoding,
    )
    header.types.extend(_parse_types(path, header, types))
    _refuse_repeated(path, header)
    return header, notices


def _check_rest(path: Path, text: str, rest: str) -> str:
    """Return the relation's name, after a look at the lines that declare no attribute."""
    relation = ""
    for line in filter(None, map(str.strip, filter(None, rest.split("\n")))):
        if line[:9].lower() == "@relation":
            relation = line[9:].strip()
        elif line[0] != "%":
            number = next(i for i, found in enumerate(text.split("\n"), 1) if found.strip() == line)
            raise at_line(path, number, f"expected '@attribute NAME TYPE', found {line[:40]!r}")
    return relation


def _parse_types(path: Path, header: _Header, texts: list[str]) -> list[AttributeType]:
    known: dict[str, AttributeType] = {}
    for text in dict.fromkeys(texts):  # most headers repeat a few
        try:
            known[text] = _parse_type(text)
        except ValueError as error:
            raise at_line(path, header.line(texts.index(text)), str(error)) from None
    return [known[text] for text in texts]


def _refuse_repeated(path: Path, header: _Header) -> None:
    if (repeated := first_repeated(header.names)) is not None:
        first = header.names.index(repeated)
        second = header.names.index(repeated, first + 1)
        raise at_line(
            path,
            header.line(second),
            f"the attribute {repeated!r} is declared in line {header.line(first)} too; rename one",
        )


def _parse_type(text: str) -> AttributeType:
    """Return the type written as ``numeric`` or ``{red, 'dark blue'}``."""
    if nominal := _NOMINAL.match(text):
        words = (value[1].strip() for value in _VALUE.finditer(nominal[1]))
        values = tuple(unquote(word) for word in words if word)
        if not values:
            raise ValueError(f"a nominal attribute needs values, found {text[:40]!r}")
        if (repeated := first_repeated(values)) is not None:
            raise ValueError(f"the value {repeated!r} occurs twice in {text[:60]!r}; remove one")
        return AttributeType("nominal", values)
    word = text.split(maxsplit=1)[0].lower() if text.strip() else ""
    if word not in _KINDS:
        raise ValueError(
            f"unknown attribute type {text.strip()[:40]!r}; known are numeric, real, integer, "
            "string, date and {nominal,values}"
        )
    return AttributeType(_KINDS[word])


def _check_labels(path: Path, header: _Header, positions: list[int]) -> None:
    """Refuse labels whose declaration cannot be binary."""
    for position in positions:
        declared = header.types[position]
        values = {value.lower() for value in declared.values}
        if declared.kind == "numeric":
            continue  # then the rows tell
        if declared.kind == "nominal" and (values <= BINARY.keys() or values <= TRUTH.keys()):
            continue
        shown = declared.kind if not values else "{" + ",".join(declared.values[:8]) + "}"
        raise at_line(
            path,
            header.line(position),
            f"{header.names[position]!r} of type {shown} cannot be a label, whose values are 0 and "
            "1; the labels may be at the other end of the file: say where with labels= (5: the "
            "first five columns, -5: the last five, an XML file, or a list of names)",
        )


def _check_levels(path: Path, header: _Header, positions: list[int]) -> None:
    """Refuse features that would become too many columns, each or together."""
    labels, total = set(positions), 0
    if all(declared.is_number for declared in set(header.types)):
        return
    for position, declared in enumerate(header.types):
        if not declared.is_one_hot or position in labels:
            continue
        total += len(declared.values)
        if len(declared.values) > MAX_LEVELS:
            raise at_line(
                path,
                header.line(position),
                f"{header.names[position]!r} declares {len(declared.values):,} values, and at most "
                f"{MAX_LEVELS:,} become columns; declare it as string to leave it out",
            )
    if total > MAX_ONE_HOT:
        raise DataError(
            f"{path}: the nominal attributes would become {total:,} columns, and at most "
            f"{MAX_ONE_HOT:,} fit; declare some as string to leave them out"
        )


def _collect(
    path: Path, layout: Layout, careful: CarefulRows, blocks: Iterator[tuple[int, bytes]]
) -> Collector:
    """Read all rows; the first one decides whether they are sparse."""
    collector: Collector | None = None
    for line, block in blocks:
        if collector is None:
            first = next(careful.lines(line, block), None)
            if first is None:
                continue
            collector = Collector(path, layout, is_sparse=first[1].startswith("{"))
        if collector.is_sparse:
            entries = fast_sparse(block, layout) if layout.only_numbers else None
            collector.add_sparse(careful.sparse(line, block) if entries is None else entries)
        else:
            rows = fast_dense(block, layout) if layout.only_numbers else None
            collector.add_dense(careful.dense(line, block) if rows is None else rows)
    if collector is None:
        raise DataError(f"{path} has no rows after @data: there is nothing to learn from")
    return collector


def _left_out(header: _Header, careful: CarefulRows) -> list[str]:
    """Return notices about what of the rows was not used."""
    notices = []
    left_out = {declared for declared in set(header.types) if declared.kind in ("string", "date")}
    if left_out:
        pairs = zip(header.names, header.types, strict=True)
        names = [repr(name) for name, declared in pairs if declared in left_out]
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        notices.append(f"left out {len(names):,} string or date attributes: {shown}")
    if careful.saw_weights:
        notices.append("ignored the weights of rows")
    return notices
