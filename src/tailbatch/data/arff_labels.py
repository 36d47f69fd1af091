"""Which columns of an ARFF file are labels: MULAN's XML file, MEKA's ``-C``, or what is asked for.

The XML file wins over ``-C`` because a filter that moves columns leaves the relation's old ``-C``
in place; a notice says so.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import ParseError

from tailbatch.data.suffixes import label_file
from tailbatch.data.text import first_repeated, stem
from tailbatch.errors import DataError, require

Labels = int | str | Path | Sequence[str] | None

_MEKA = re.compile(r"(?<![^\s:'\"])-C\s+(-?\d{1,18})(?!\d)")


def label_positions(
    path: Path, relation: str, names: Sequence[str], labels: Labels
) -> tuple[list[int], list[str]]:
    """Return the positions of the labels among the columns, and notices.

    Parameters
    ----------
    path
        The ARFF file; an XML file is looked for beside it.
    relation
        The relation's name, which may hold ``-C``.
    names
        Of all columns.
    labels
        What the user asked for; see `read_arff`.

    Examples
    --------
    >>> label_positions(Path("x.arff"), "'x: -C -2'", ["length", "round", "sweet"], None)
    ([1, 2], [])
    """
    if labels is not None:
        return _asked(path, names, labels), []
    meka = _MEKA.search(relation)
    xml = _xml_beside(path)
    if xml is not None:
        positions = _in_xml(path, names, xml)
        if meka and set(positions) != set(_counted(path, names, int(meka[1]))):
            return positions, [f"the labels are those of {xml.name}, not the relation's {meka[0]}"]
        return positions, []
    if meka:
        return _counted(path, names, int(meka[1])), []
    raise DataError(
        f"no labels found for {path}: there is no {stem(path)}.xml beside it and no -C in its "
        "relation; say where they are with labels= (5: the first five columns, -5: the last five, "
        "an XML file, or a list of names)"
    )


def _asked(path: Path, names: Sequence[str], labels: int | str | Path | Sequence[str]) -> list[int]:
    if isinstance(labels, int):
        return _counted(path, names, labels)
    if isinstance(labels, str | Path):
        xml = label_file(labels)
        return _in_xml(path, names, xml) if xml else _prefixed(path, names, str(labels))
    return _named(path, names, list(labels), source="labels=")


def _prefixed(path: Path, names: Sequence[str], prefix: str) -> list[int]:
    positions = [position for position, name in enumerate(names) if name.startswith(prefix)]
    if not positions:
        raise DataError(f"{path} has no attribute whose name starts with {prefix!r}")
    return positions


def _counted(path: Path, names: Sequence[str], count: int) -> list[int]:
    """Return the first `count` positions, or the last ``-count``."""
    if not 0 < abs(count) <= len(names):
        raise DataError(
            f"{path} has {len(names):,} attributes, so {count:,} of them cannot be labels; say how "
            "many are with labels= (5: the first five, -5: the last five)"
        )
    every = range(len(names))
    return list(every[:count] if count > 0 else every[count:])


def _named(path: Path, names: Sequence[str], wanted: Sequence[str], *, source: object) -> list[int]:
    """Return the positions of the wanted names."""
    if not wanted:
        raise DataError(f"{source} names no label of {path}")
    if (repeated := first_repeated(wanted)) is not None:
        raise DataError(f"{source} names the label {repeated!r} twice; remove one")
    position = dict(zip(names, range(len(names)), strict=True))
    unknown = [name for name in wanted if name not in position]
    if unknown:
        raise DataError(
            f"{source} names the label {unknown[0]!r}, which is no attribute of {path} "
            f"({len(unknown):,} of {len(wanted):,} labels are not); give the right names or XML "
            "file with labels="
        )
    return [position[name] for name in wanted]


def _xml_beside(path: Path) -> Path | None:
    """Return ``yeast.xml`` for ``yeast.arff``, and for its parts such as ``yeast-train.arff``."""
    parts = stem(path).split("-")
    stems = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
    candidates = (path.with_name(f"{name}.xml") for name in stems)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _in_xml(path: Path, names: Sequence[str], xml: Path) -> list[int]:
    """Return the positions of the labels an XML file names, in the order of the columns."""
    return sorted(_named(path, names, _xml_labels(xml), source=xml))


def _xml_labels(path: Path) -> list[str]:
    """Return the names of all ``<label>`` elements, nested ones (a hierarchy) too."""
    xml = require("defusedxml.ElementTree", extra="cli")
    entities = require("defusedxml.common", extra="cli").DefusedXmlException
    try:
        root = xml.parse(path).getroot()
    except ParseError as error:
        raise DataError(f"{path} is no well-formed XML ({error}); correct it") from None
    except entities as error:
        raise DataError(
            f"{path} uses XML entities ({type(error).__name__}), which label files never need; "
            "write the label names out"
        ) from None
    except (LookupError, ValueError) as error:  # an encoding that is unknown, or not supported
        raise DataError(f"{path} is no readable XML ({error}); save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    labels = [element for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    names = [element.attrib.get("name", "") for element in labels]
    if not all(names) or not names:
        raise DataError(f'{path} must list labels as <label name="..."/>, and does not')
    return names
