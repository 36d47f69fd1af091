"""Label matrices, and the labels of a data frame: 0/1 columns, or one column that lists them."""

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from tailbatch.data.cells import (
    _blanked,
    _blanked_frame,
    _cell_types,
    _holds_numbers,
    _is_plain,
    _refuse_containers,
    _refuse_many,
    columns_text,
    row_name,
)
from tailbatch.data.sparse import first_repeated
from tailbatch.errors import DataError, TailbatchError, closest, setting

if TYPE_CHECKING:
    import pandas as pd

LabelMatrix: TypeAlias = NDArray[np.bool_] | csr_array
"""Labels (n, q): a dense array of booleans, or CSR for more than 1,000 labels."""

#: Up to this many labels the label matrix is a dense boolean array, above it is CSR.
MAX_DENSE_LABELS = 1000
_SHOWN = 3
_NAMES = (str, list, tuple, set, frozenset, np.ndarray)


def checked_labels(Y: Any, *, error: type[TailbatchError] = DataError) -> LabelMatrix:
    """Return labels as booleans, dense or as canonical CSR, or say what is wrong with them.

    Parameters
    ----------
    Y
        (n, q) zeros and ones or booleans, n and q from 1: array-like, a tensor, or any SciPy sparse
        matrix, which is not changed; a label listed twice in a row of CSR counts once.
    error
        Raised for anything else.

    Examples
    --------
    >>> checked_labels([[1, 0], [0, 1]]).tolist()
    [[True, False], [False, True]]
    >>> checked_labels([[1, 0], [0, 3]])
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: labels must be 0 or 1, got 3 in row 1, label column 1
    """
    if hasattr(Y, "detach"):
        tensor = Y.detach().cpu()
        # NumPy has no bfloat16, so floats are widened while they are still a tensor.
        Y = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    try:
        labels: Any = csr_array(Y) if issparse(Y) else np.asarray(Y)
    except ValueError:  # rows of different lengths
        labels = np.array([()], dtype=np.str_)
    if labels.dtype.kind in "US" or (
        labels.dtype.kind == "O" and any(isinstance(cell, _NAMES) for cell in labels.ravel())
    ):
        raise error(
            "Y lists the labels of each row, and zeros and ones are needed, (n_samples, n_labels): "
            "make them with Y = sklearn.preprocessing.MultiLabelBinarizer().fit_transform(Y)"
        )
    if labels.ndim != 2 or 0 in labels.shape:
        raise error(
            "Y must be a label matrix (n_samples, n_labels) with at least one row and one column, "
            f"got shape {labels.shape}"
        )
    values: NDArray[Any] = labels.data if issparse(labels) else labels
    if values.dtype != np.bool_:
        binary = np.isin(values, (0, 1)).ravel()
        if not binary.all():
            flat = int(np.argmin(binary))
            row, column = _row_and_column(flat, labels)
            raise error(
                f"labels must be 0 or 1, got {values.ravel()[flat]} in row {row}, "
                f"label column {column}"
            )
    # Only now: of booleans, a label that a CSR matrix lists twice counts once.
    return _canonical_csr(labels, np.bool_) if issparse(Y) else labels.astype(np.bool_, copy=False)


def stored_labels(Y: LabelMatrix) -> LabelMatrix:
    """Return boolean labels in the storage their number asks for: CSR above 1,000, else dense."""
    if Y.shape[1] > MAX_DENSE_LABELS:
        return csr_array(Y)
    return Y if isinstance(Y, np.ndarray) else Y.toarray()


def _listed_labels(rows: Sequence[Collection[str]]) -> tuple[csr_array, tuple[str, ...]]:
    """Return the labels of rows that name theirs, and all names, sorted; empty names are none."""
    rows = [set(row) - {""} for row in rows]
    names = sorted(set().union(*rows))
    position = {name: index for index, name in enumerate(names)}
    indices = [position[name] for row in rows for name in sorted(row)]
    indptr = np.cumsum([0, *map(len, rows)])
    cells = np.ones(len(indices), dtype=np.bool_)
    return csr_array((cells, indices, indptr), (len(rows), len(names))), tuple(names)


def _nearly_equal(names: Sequence[str], where: str) -> str | None:
    """Say which names differ only in case, accents or space; None where none do."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_plain(name), []).append(name)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return None
    more = f", and {len(alike) - _SHOWN:,} more such groups" if len(alike) > _SHOWN else ""
    return (
        f"{where} {', '.join(alike[:_SHOWN])}{more} differ only in case, accents or space; write them "
        "alike if they are one"
    )


def _plain(name: str) -> str:
    """Return a name in small letters, without accents and spaces."""
    letters = unicodedata.normalize("NFKD", name) if not name.isascii() else name
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "".join(bare.casefold().split())


def label_sets(Y: Any, names: Sequence[str]) -> list[set[str]]:
    """Return each row's labels by name."""
    matrix = csr_array(Y)
    return [
        {names[column] for column in matrix.indices[start:end]}
        for start, end in zip(matrix.indptr, matrix.indptr[1:], strict=False)
    ]


def _canonical_csr(matrix: Any, dtype: Any) -> csr_array:
    """Return a sorted CSR copy without duplicates and stored zeros."""
    result = csr_array(matrix, dtype=dtype, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def _row_and_column(flat: int, matrix: Any) -> tuple[int, int]:
    """Return row and column of a value, given its place in the (stored) values."""
    if issparse(matrix):
        row = int(np.searchsorted(matrix.indptr, flat, side="right")) - 1
        return row, int(matrix.indices[flat])
    return flat // matrix.shape[1], flat % matrix.shape[1]


#: The first n columns, the last -n, names of columns, a prefix of names, or one listing column, which
#: a colon and its delimiter may follow: ``topics:;``.
FrameLabels = int | str | Sequence[str]

#: Delimiters of a column that lists labels.
DELIMITERS = (";", "|", ",")

_TRUE, _FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_QUOTED = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*(?:,|(?=['"\s])|$)""")
_LISTS = (list, tuple, set, frozenset, np.ndarray)
_FEW_ROWS = 20


def frame_labels(
    frame: "pd.DataFrame", labels: FrameLabels
) -> tuple[list[Any], Any, tuple[str, ...]]:
    """Return the columns with the labels of a data frame, the labels (n, q), and their names."""
    names = [str(column) for column in frame.columns]
    if (repeated := first_repeated(names)) is not None:
        raise DataError(f"the column {repeated!r} occurs twice; rename one")
    if (listing := _listing_column(names, labels)) is not None:
        name, delimiter = listing
        column = _blanked(frame.iloc[:, names.index(name)])
        if delimiter is None and _is_binary(column):
            return [column.name], _binary_column(column)[:, None], (name,)
        rows = _listed_rows(column, delimiter)
        Y, label_names = _listed_labels(rows)
        if not label_names:
            raise DataError(f"the column {name!r} lists no labels at all")
        _refuse_free_text(name, len(rows), Y)
        return [column.name], Y, label_names
    places = _label_places(names, labels)
    chosen = _blanked_frame(frame.iloc[:, places])
    if isinstance(labels, str):
        _refuse_half_a_name(chosen, labels)
    return list(chosen.columns), _binary_columns(chosen), tuple(names[place] for place in places)


def rows_of_series(Y: Any, *, known: bool = False) -> Any:
    """Return a Series of texts such as ``"a; b"`` as each row's labels; anything else as it is.

    A missing value among lists, classes or numbers is an error that names its row; among texts that list
    labels it is a row without any, as in a file. Where the names of labels are `known`, texts without a
    delimiter are labels, too.
    """
    if not (hasattr(Y, "array") and hasattr(Y, "index") and getattr(Y, "ndim", 0) == 1):
        return Y
    if _cell_types(Y) == {str} or str(Y.dtype) in ("string", "str"):
        texts = dict.fromkeys(_blanked(Y).dropna().astype(str))
        marked = any(mark in text for text in texts for mark in DELIMITERS)
        if (
            known
            or marked
            or any(_BRACKETS.get(text.strip()[:1]) == text.strip()[-1:] for text in texts)
        ):
            return _listed_rows(_blanked(Y), None)
    if (absent := Y.isna()).any():
        raise DataError(
            f"Y has no value in {row_name(Y, absent)}; fill it in, or leave the row out of X and Y"
        )
    return Y


def _refuse_half_a_name(chosen: "pd.DataFrame", labels: str) -> None:
    """Refuse a prefix of a column of text: it is half of that column's name, or one too short."""
    for name, column in chosen.items():
        if column.dtype.kind not in "OUT" or _holds_numbers(column):
            continue
        words = {str(cell).strip().lower() for cell in column.array[~column.isna()]}
        if words <= {*_TRUE, *_FALSE}:
            continue
        near = closest(labels, [str(name)], cutoff=0.6)
        remedy = (
            f"did you mean {setting('labels', near)}?"
            if near
            else f"name the columns with {setting('labels=')}"
        )
        raise DataError(
            f"there is no column {labels!r}, only columns whose names begin so, and {str(name)!r} of "
            f"them holds {min(words)!r:.40}, not zeros and ones; {remedy}"
        )


def _listing_column(names: list[str], labels: FrameLabels) -> tuple[str, str | None] | None:
    """Return the one column that lists labels and its delimiter, None for one to be found."""
    if not isinstance(labels, str):
        return None
    if labels in names:
        return labels, None
    name, colon, delimiter = labels.rpartition(":")
    return (name, delimiter) if colon and name in names and len(delimiter) < 2 else None


def _is_binary(column: "pd.Series") -> bool:
    """Whether a column of numbers is one label: zeros and ones, both of them."""
    is_number = column.dtype.kind in "biuf" or _holds_numbers(column)
    return is_number and set(column.unique()) == {0, 1}


def _label_places(names: list[str], labels: FrameLabels) -> list[int]:
    """Return the positions of 0/1 columns: the first n, the last -n, those of a prefix, or by name."""
    if isinstance(labels, int):
        if not 0 < abs(labels) <= len(names):
            raise DataError(
                f"{setting('labels', labels)} asks for {abs(labels)} of the columns, and there are "
                f"{len(names)}"
            )
        return list(range(len(names)))[:labels] if labels > 0 else list(range(len(names)))[labels:]
    if isinstance(labels, str):
        places = [place for place, name in enumerate(names) if name.startswith(labels)]
        if not places:
            raise DataError(
                f"{setting('labels', labels)} is neither a column nor the beginning of one"
                f"{columns_text(names, labels)}"
            )
        return places
    position = {name: place for place, name in enumerate(names)}
    if (repeated := first_repeated(list(map(str, labels)))) is not None:
        raise DataError(f"labels names the column {repeated!r} twice; remove one")
    for column in map(str, labels):
        if column not in position:
            raise DataError(f"there is no label column {column!r}{columns_text(names, column)}")
    if not len(labels):
        raise DataError(f"labels names no column{columns_text(names, '')}")
    return [position[str(column)] for column in labels]


def _binary_columns(frame: "pd.DataFrame") -> NDArray[np.bool_]:
    """Return label columns as booleans; columns of plain numbers are looked at together."""
    if all(map(_is_plain, set(frame.dtypes))):
        values = frame.to_numpy()
        if bool(((values == 0) | (values == 1)).all()):
            return np.asarray(values == 1, dtype=np.bool_)
        wrong = int(np.argmin(((values == 0) | (values == 1)).all(axis=0)))
        return _binary_column(frame.iloc[:, wrong])  # which says what is wrong
    _refuse_many(frame)
    return np.column_stack([_binary_column(column) for _, column in frame.items()])


def _binary_column(column: "pd.Series") -> NDArray[np.bool_]:
    _refuse_containers(column)
    if column.isna().any():
        raise DataError(
            f"the label {column.name!r} is missing in {row_name(column, column.isna())}; labels must "
            "be 0 or 1: fill it in, or leave the row out"
        )
    values = column.to_numpy()
    if values.dtype.kind in "OUT" and not _holds_numbers(column):
        lower = np.array([str(value).strip().lower() for value in values])
        positive, known = np.isin(lower, _TRUE), np.isin(lower, [*_TRUE, *_FALSE])
    else:
        positive, known = values == 1, (values == 0) | (values == 1)
    if not known.all():
        value, where = str(values[np.argmin(known)]), setting("labels=")
        remedy = f"if this is no label, name the label columns with {where}"
        if values.dtype.kind in "OUT" and not _holds_numbers(column):
            where = setting("labels", str(column.name))
            remedy = f"if it lists the labels of its row, write {where}"
        raise DataError(
            f"labels must be 0 or 1, got {value} in {row_name(column, ~known)}, label "
            f"{column.name!r}; {remedy}"
        )
    return np.asarray(positive, dtype=np.bool_)


def _listed_rows(column: "pd.Series", delimiter: str | None) -> list[Collection[str]]:
    """Return each row's labels; an empty or missing cell has none."""
    missing = column.isna().to_numpy()
    types = _cell_types(column)
    if types and all(issubclass(kind, _LISTS) for kind in types):
        cells = [() if absent else cell for cell, absent in zip(column.array, missing, strict=True)]
        return [_checked_list(column, row, cell) for row, cell in enumerate(cells)]
    _refuse_containers(column)
    is_number = column.dtype.kind in "biuf" or _holds_numbers(column)
    if is_number and not missing.all() and delimiter is None:
        raise DataError(
            f"the column {column.name!r} holds numbers such as {column.dropna().iloc[0]}, neither lists "
            "of labels nor zeros and ones; name the columns that hold the labels with "
            f"{setting('labels=')}"
        )
    texts = [
        "" if absent else str(cell).strip()
        for cell, absent in zip(column.array, missing, strict=True)
    ]
    if delimiter is None and (lists := _bracketed(column, texts)) is not None:
        return lists
    return _delimited(column, texts, delimiter)


def _checked_list(column: "pd.Series", row: int, cell: Any) -> Collection[str]:
    """Return a cell that is a list of names (or whole numbers) as names."""
    for value in cell:
        if not isinstance(value, str | int | np.integer) or isinstance(value, bool | np.bool_):
            raise DataError(
                f"the column {column.name!r} lists {value!r:.40} in "
                f"{row_name(column, np.arange(len(column)) == row)}; a label must be text or a whole "
                "number"
            )
    return {str(value).strip() for value in cell}


def _bracketed(column: "pd.Series", texts: list[str]) -> list[Collection[str]] | None:
    """Return lists that were written as text, ``['a', 'b']``; None where the cells are none."""
    is_list = [not text or _BRACKETS.get(text[0]) == text[-1] or text == "set()" for text in texts]
    if not any(text and listed for text, listed in zip(texts, is_list, strict=True)):
        return None
    if not all(is_list):
        if sum(is_list) * 2 < len(texts):
            return None  # a few labels in brackets
        wrong = ~np.array(is_list)
        raise DataError(
            f"the column {column.name!r} holds lists such as {texts[int(np.argmin(wrong))]!r:.40}, and "
            f"{texts[int(np.argmax(wrong))]!r:.40} in {row_name(column, wrong)}, which is none; write "
            "it as a list, too"
        )
    rows = [_parsed_list(text) for text in texts]
    unread = np.array([row is None for row in rows])
    if unread.any():
        raise DataError(
            f"the column {column.name!r} holds {texts[int(np.argmax(unread))]!r:.60} in "
            f"{row_name(column, unread)}, which is no list of names; write it as ['a', 'b'] or a;b"
        )
    return [row for row in rows if row is not None]


def _parsed_list(text: str) -> set[str] | None:
    """Return the names in a list written as JSON, by Python or by NumPy; None if it is none."""
    inner = "" if text == "set()" else text[1:-1].strip()
    if not inner:
        return set()
    try:
        values = json.loads(f"[{inner}]")
        if all(isinstance(v, str | int) and not isinstance(v, bool) for v in values):
            return {str(value).strip() for value in values}
        return None
    except (ValueError, RecursionError):
        pass
    if not set(inner) & set("'\"[](){}"):
        names = {part.strip() for part in inner.split(",")}
        return None if any(" " in name for name in names) and len(names) == 1 else names
    names, place = set(), 0
    while place < len(inner):
        match = _QUOTED.match(inner, place)
        if match is None or match.end() == place:
            return None
        quoted = match[1] if match[1] is not None else match[2]
        names.add(re.sub(r"\\(.)", r"\1", quoted).strip())
        place = match.end()
    return names


def _delimited(
    column: "pd.Series", texts: list[str], delimiter: str | None
) -> list[Collection[str]]:
    """Split cells at the one delimiter that occurs; several are an error that shows the readings."""
    distinct = dict.fromkeys(texts)  # in the order of the rows, which a set would not keep
    if delimiter is None:
        marks = [mark for mark in DELIMITERS if any(mark in text for text in distinct)]
        if not marks and _splits_at_spaces(distinct):
            marks = ["", " "]
        if len(marks) > 1:
            raise _two_readings(column, distinct, marks[:2])
        delimiter = marks[0] if marks else ""
    pieces = {text: _split(text, delimiter) for text in distinct}
    return [pieces[text] for text in texts]


def _split(text: str, delimiter: str) -> frozenset[str]:
    parts = text.split(delimiter) if delimiter else [text]
    return frozenset(part.strip() for part in parts) - {""}


def _splits_at_spaces(distinct: Iterable[str]) -> bool:
    """Whether words, not cells, may be the labels: there are fewer of them."""
    cells = [text for text in distinct if text]
    if not any(" " in text for text in islice(cells, 1000)):
        return False
    return len({word for text in cells for word in text.split()}) < len(cells)


def _two_readings(column: "pd.Series", distinct: Iterable[str], marks: Sequence[str]) -> DataError:
    name = str(column.name)
    readings = []
    for mark in marks:
        found = sorted(set().union(*(_split(text, mark) for text in distinct)))
        shown = ", ".join(repr(label[:30]) for label in found[:3]) + (", ..." if found[3:] else "")
        way = f"split at {mark!r}" if mark else "with one label a cell"
        readings.append(f"{way} it has {len(found):,} labels ({shown})")
    ways = " or ".join(setting("labels", f"{name}:{mark}") for mark in marks)
    return DataError(
        f"the column {name!r} can be read two ways: {'; '.join(readings)}. Say which with {ways}"
    )


def _refuse_free_text(name: str, n_rows: int, Y: Any) -> None:
    """Refuse a column nearly every cell of which is a label of its own: it is text, not labels."""
    counts = np.asarray(Y.sum(axis=0)).ravel()
    if n_rows >= _FEW_ROWS and len(counts) > n_rows / 2 and (counts == 1).mean() > 0.9:
        raise DataError(
            f"the column {name!r} would give {len(counts):,} labels for {n_rows:,} rows, most of them "
            "once: it is free text or an identifier; name the column that holds the labels"
        )
