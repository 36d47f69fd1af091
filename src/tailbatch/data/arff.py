"""ARFF files, dense or sparse, with the label conventions of MULAN and MEKA.

Which columns are labels is looked for in this order: the argument ``labels``; an XML file beside
the data (MULAN); ``-C`` in the relation's name (MEKA). The XML file wins over ``-C`` because a
filter that moves columns leaves the relation's old ``-C`` in place, and a notice says so.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import parse as parse_xml

from tailbatch.data.arff_columns import BINARY, TRUTH, Attribute, Collector, Kind, Layout
from tailbatch.data.arff_rows import QUOTED, CarefulRows, fast_dense, fast_sparse, unquote
from tailbatch.data.dataset import MultiLabelDataset, first_repeated
from tailbatch.data.text import at_line, stem, text_blocks
from tailbatch.errors import DataError

#: No header may be longer: each attribute costs memory, whatever the rows hold.
MAX_HEADER_BYTES = 1 << 28

_LOGGER = logging.getLogger(__name__)

_DATA = re.compile(rb"^[ \t]*@data\b[^\n]*\n?", re.IGNORECASE | re.MULTILINE)
_ATTRIBUTE = re.compile(rf"@attribute\s+({QUOTED}|[^\s{{'\"][^\s{{]*)\s*(.*)", re.IGNORECASE)
_NOMINAL = re.compile(rf"\{{((?:{QUOTED}|[^}}'\"])*+)\}}")
_VALUE = re.compile(rf"\s*({QUOTED}|[^,]*?)\s*(?:,|$)")
_MEKA = re.compile(r"(?<![^\s:'\"])-C\s+(-?\d+)")

Labels = int | str | Path | Sequence[str] | None


def read_arff(
    path: str | Path,
    *,
    labels: Labels = None,
    missing: Literal["error", "impute"] = "error",
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
        ``"error"`` refuses missing values (``?``), ``"impute"`` fills in the column's mean or most
        frequent value. Missing labels are always refused.

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
    header, blocks = _split(path)
    text, encoding, notices = _decode(header)
    relation, attributes = _parse_header(path, text)
    positions, label_notices = _find_labels(path, relation, attributes, labels)
    _check_labels(path, attributes, positions)
    layout = Layout(attributes, positions)
    careful = CarefulRows(path, layout, encoding=encoding, missing=missing)
    collector = _collect(path, layout, careful, blocks)
    notices += [*label_notices, *_left_out(attributes, careful)]
    for notice in notices:
        _LOGGER.warning("%s: %s", path, notice)
    return MultiLabelDataset(
        name=stem(path),
        X=collector.features(),
        Y=collector.labels(),
        feature_names=layout.feature_names,
        label_names=tuple(attributes[position].name for position in positions),
        notices=tuple(notices),
    )


def _split(path: Path) -> tuple[bytes, Iterator[tuple[int, bytes]]]:
    """Return the header, and the blocks of the data section."""
    blocks = text_blocks(path)
    header = bytearray()
    for line, block in blocks:
        if mark := _DATA.search(block):
            header += block[: mark.start()]
            first = line + block.count(b"\n", 0, mark.end())
            return bytes(header), chain([(first, block[mark.end() :])], blocks)
        header += block
        if len(header) > MAX_HEADER_BYTES:
            raise at_line(path, line, f"no @data in the first {MAX_HEADER_BYTES >> 20} MiB")
    raise DataError(f"{path} has no @data line: it is no ARFF file, or it is cut off")


def _decode(header: bytes) -> tuple[str, str, list[str]]:
    """Return the header as text, its encoding, and the notices so far."""
    try:
        return header.decode("utf-8"), "utf-8", []
    except UnicodeDecodeError as error:
        line = header.count(b"\n", 0, error.start) + 1
        notice = f"line {line} is not UTF-8, so names are read as Latin-1"
        return header.decode("latin-1"), "latin-1", [notice]


def _parse_header(path: Path, text: str) -> tuple[str, list[Attribute]]:
    """Return the relation's name, as written, and the attributes."""
    relation = ""
    attributes: list[Attribute] = []
    types: dict[str, tuple[Kind, tuple[str, ...]]] = {}  # most headers repeat a few types
    for line, raw in enumerate(text.split("\n"), start=1):
        declaration = raw.strip()
        if not declaration or declaration[0] == "%":
            continue
        if match := _ATTRIBUTE.fullmatch(declaration):
            if match[2] not in types:
                types[match[2]] = _parse_type(path, line, declaration, match[2])
            attributes.append(Attribute(unquote(match[1]), line, *types[match[2]]))
        elif declaration[:9].lower() == "@relation":
            relation = declaration[9:].strip()
        else:
            raise at_line(
                path, line, f"expected '@attribute NAME TYPE', found {declaration[:40]!r}"
            )
    _refuse_repeated(path, attributes)
    return relation, attributes


def _refuse_repeated(path: Path, attributes: Sequence[Attribute]) -> None:
    repeated = first_repeated([attribute.name for attribute in attributes])
    if repeated is not None:
        first, second = [item.line for item in attributes if item.name == repeated][:2]
        raise at_line(
            path, second, f"the attribute {repeated!r} was declared in line {first}; rename one"
        )


def _parse_type(path: Path, line: int, declaration: str, text: str) -> tuple[Kind, tuple[str, ...]]:
    """Return kind and values of a type such as ``numeric`` or ``{red, 'dark blue'}``."""
    if nominal := _NOMINAL.match(text):
        values = tuple(unquote(value[1]) for value in _VALUE.finditer(nominal[1]) if value[1])
        if not values:
            raise at_line(path, line, f"a nominal attribute needs values: {declaration[:60]!r}")
        if repeated := first_repeated(values):
            raise at_line(path, line, f"the value {repeated!r} occurs twice in {text[:60]!r}")
        return "nominal", values
    word = text.split(maxsplit=1)[0].lower() if text else ""
    if word in ("numeric", "real", "integer"):
        return "numeric", ()
    if word == "string":
        return "string", ()
    if word == "date":
        return "date", ()
    raise at_line(
        path,
        line,
        f"unknown attribute type {text[:40]!r}; this reader knows numeric, real, integer, "
        "{nominal, values}, string and date",
    )


def _find_labels(
    path: Path, relation: str, attributes: Sequence[Attribute], labels: Labels
) -> tuple[list[int], list[str]]:
    """Return the positions of the labels, and notices."""
    if labels is not None:
        return _asked_labels(path, attributes, labels), []
    meka = _MEKA.search(relation)
    beside = _xml_beside(path)
    if beside is not None:
        positions = _named(path, attributes, _xml_labels(beside), source=beside)
        if meka and set(positions) != set(_counted(path, attributes, int(meka[1]))):
            return positions, [
                f"the labels are those of {beside.name}, not the {meka[0]} of the relation"
            ]
        return positions, []
    if meka:
        return _counted(path, attributes, int(meka[1])), []
    raise DataError(
        f"no labels found for {path}: there is no {stem(path)}.xml beside it and no -C in its "
        "relation; say where they are with labels= (5: the first five columns, -5: the last five, "
        "an XML file, or a list of names)"
    )


def _asked_labels(path: Path, attributes: Sequence[Attribute], labels: Labels) -> list[int]:
    if isinstance(labels, int):
        return _counted(path, attributes, labels)
    if isinstance(labels, Path) or (isinstance(labels, str) and labels.lower().endswith(".xml")):
        return _named(path, attributes, _xml_labels(Path(labels)), source=labels)
    if isinstance(labels, str):
        found = [i for i, attribute in enumerate(attributes) if attribute.name.startswith(labels)]
        if not found:
            raise DataError(f"{path} has no attribute whose name starts with {labels!r}")
        return found
    names = list(labels or ())
    if repeated := first_repeated(names):
        raise DataError(f"labels names {repeated!r} twice")
    position = {attribute.name: i for i, attribute in enumerate(attributes)}
    _named(path, attributes, names, source="labels=")
    return [position[name] for name in names]


def _counted(path: Path, attributes: Sequence[Attribute], count: int) -> list[int]:
    """Return the first `count` positions, or the last ``-count``."""
    if not 0 < abs(count) <= len(attributes):
        raise DataError(
            f"{path} has {len(attributes):,} attributes, so {count:,} of them cannot be labels; "
            "say how many are with labels= (5: the first five, -5: the last five)"
        )
    every = range(len(attributes))
    return list(every[:count] if count > 0 else every[count:])


def _named(
    path: Path, attributes: Sequence[Attribute], names: Sequence[str], *, source: object
) -> list[int]:
    """Return the positions of the names, in the order of the file."""
    if not names:
        raise DataError(f"{source} names no label of {path}")
    unknown = set(names) - {attribute.name for attribute in attributes}
    if unknown:
        first = next(name for name in names if name in unknown)
        raise DataError(
            f"{source} names the label {first!r}, which is no attribute of {path} "
            f"({len(unknown):,} of {len(names):,} labels are not); give the right names or XML "
            "file with labels="
        )
    wanted = set(names)
    return [i for i, attribute in enumerate(attributes) if attribute.name in wanted]


def _xml_beside(path: Path) -> Path | None:
    """Return ``yeast.xml`` for ``yeast.arff``, and also for its parts such as ``yeast-train.arff``."""
    name = stem(path)
    parts = name.split("-")
    stems = ["-".join(parts[:length]) for length in range(len(parts), 0, -1)]
    candidates = (path.with_name(f"{candidate}.xml") for candidate in stems)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _xml_labels(path: Path) -> list[str]:
    """Return the label names of a MULAN XML file, hierarchical ones from the top down."""
    try:
        root = parse_xml(path).getroot()
    except ParseError as error:
        raise DataError(f"{path} is no well-formed XML: {error}") from None
    except DefusedXmlException as error:
        raise DataError(
            f"{path} uses XML entities ({type(error).__name__}), which label files never need; "
            "write the label names out"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    names = [
        element.attrib.get("name", "")
        for element in root.iter()
        if element.tag.rpartition("}")[2] == "label"
    ]
    if not names or not all(names):
        raise DataError(f'{path} lists no labels: expected <label name="..."/> elements')
    if repeated := first_repeated(names):
        raise DataError(f"{path} lists the label {repeated!r} twice; remove one")
    return names


def _check_labels(path: Path, attributes: Sequence[Attribute], positions: Sequence[int]) -> None:
    """Refuse labels whose declaration cannot be binary."""
    for position in positions:
        attribute = attributes[position]
        values = {value.lower() for value in attribute.values}
        if attribute.kind == "numeric" or (
            values and (values <= set(BINARY) or values <= set(TRUTH))
        ):
            continue
        shown = attribute.kind if not values else "{" + ",".join(attribute.values[:8]) + "}"
        raise at_line(
            path,
            attribute.line,
            f"{attribute.name!r} ({shown}) cannot be a label, which is {{0,1}}; the labels may be "
            f"at the other end of the file: say where with labels= (5: the first five, -5: the "
            "last five, an XML file, or a list of names)",
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
            collector = Collector(layout, is_sparse=first[1].startswith("{"))
        if collector.is_sparse:
            entries = fast_sparse(block, layout) if layout.only_numbers else None
            collector.add_sparse(careful.sparse(line, block) if entries is None else entries)
        else:
            rows = fast_dense(block, layout) if layout.only_numbers else None
            collector.add_dense(careful.dense(line, block) if rows is None else rows)
    if collector is None:
        raise DataError(f"{path} has no rows after @data: there is nothing to learn from")
    return collector


def _left_out(attributes: Sequence[Attribute], careful: CarefulRows) -> list[str]:
    """Return notices about what of the rows was not used."""
    names = [repr(item.name) for item in attributes if item.kind in ("string", "date")]
    notices = []
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        notices.append(f"left out {len(names):,} string or date attributes: {shown}")
    if careful.saw_weights:
        notices.append("ignored the weights of rows")
    return notices
