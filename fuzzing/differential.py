"""Our ARFF reader compared with liac-arff: both read the same from every file that both accept.

Documented exceptions, where ours follows the format's definition and liac-arff does not:

- liac-arff truncates the values of INTEGER attributes; ours keeps the fraction;
- liac-arff has no missing value other than an empty one, and ours imputes: such cells are not compared;
- names or nominal values with a quotation mark or backslash, and empty nominal values: liac-arff
  drops marks at the ends of names, keeps their escapes, and takes an empty value for a missing one;
- a second brace in a declaration is part of a value for ours, and is dropped by liac-arff;
- ours ends a line at a lone carriage return; liac-arff does not.
"""

import re
from typing import Any

import arff
import numpy as np
from scipy.sparse import csr_array

from tailbatch.data import MultiLabelDataset

_OWN_READING = re.compile(r"\r(?!\n)|^\s*@attribute[^\n]*(\{[^\n]*\{|\}[^\n]*\})", re.I | re.M)


class Disagreement(AssertionError):
    """Two readers accept a file and read different things."""


def compare_with_liac(text: str, ours: MultiLabelDataset) -> bool:
    """Raise if liac-arff reads other names, nominal orders or values than ours.

    Returns False if there is nothing to compare: liac-arff refuses the file, or an exception concerns
    the whole file.
    """
    if _OWN_READING.search(text):
        return False
    try:
        theirs = arff.loads(text)
    except Exception:  # it refuses with many kinds of exception
        return False
    attributes = dict(theirs["attributes"])
    texts = [*attributes, *ours.feature_names, *ours.label_names]
    texts += [
        value or "'" for kind in attributes.values() if isinstance(kind, list) for value in kind
    ]
    if any(mark in text for text in texts for mark in "'\"\\"):
        return False
    labels = tuple(name for name in attributes if name in ours.label_names)
    if labels != ours.label_names:
        raise Disagreement(f"labels {ours.label_names}, liac-arff has {tuple(attributes)}")
    names, columns = [], []
    for column_number, (name, kind) in enumerate(attributes.items()):
        cells = [row[column_number] for row in theirs["data"]]
        if name in labels:
            _compare(name, ours.Y[:, labels.index(name)], [_is_one(cell) for cell in cells])
            continue
        for suffix, column in _encoded(kind, cells):
            names.append(name + suffix)
            columns.append((kind, column))
    if tuple(names) != ours.feature_names:
        raise Disagreement(f"features {ours.feature_names}, liac-arff {tuple(names)}")
    X: Any = csr_array(ours.X).toarray()
    for name, column, (kind, cells) in zip(names, X.T, columns, strict=True):
        _compare(name, np.trunc(column) if kind == "INTEGER" else column, cells)
    return True


def _encoded(kind: Any, cells: list[Any]) -> list[tuple[str, list[Any]]]:
    """Return the columns an attribute becomes, as `tailbatch.data.read_arff` documents it."""
    if kind == "STRING":
        return []
    if isinstance(kind, str):
        return [("", cells)]
    if set(kind) <= {"0", "1"}:
        return [("", cells)]
    shown = kind[1:] if len(kind) == 2 else kind
    return [
        (f"={value}", [None if cell is None else cell == value for cell in cells])
        for value in shown
    ]


def _is_one(cell: Any) -> bool:
    return bool(cell == 1) if isinstance(cell, float | int) else cell.lower() in ("1", "true")


def _compare(name: str, ours: Any, theirs: list[Any]) -> None:
    known = np.array([cell is not None for cell in theirs], dtype=bool)
    if len(ours) != len(theirs):
        raise Disagreement(f"{len(ours)} rows, liac-arff reads {len(theirs)}")
    wanted = np.array([float(cell) for cell in theirs if cell is not None])
    if not np.array_equal(np.asarray(ours, dtype=np.float64)[known], wanted):
        raise Disagreement(f"{name!r} is {list(ours)[:8]}, liac-arff reads {theirs[:8]}")
