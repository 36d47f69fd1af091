"""Any multi-label file by one call: its format is found by content and name. LIBSVM is read here."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from tailbatch.data import catalog
from tailbatch.data.arff import Labels, read_arff
from tailbatch.data.columns import Columns, Missing
from tailbatch.data.corpora import load_texts
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.embeddings import Encoder
from tailbatch.data.npz import read_npz
from tailbatch.data.npz import save_npz as save_npz
from tailbatch.data.sparse import NumberedNames, _CsrBuilder
from tailbatch.data.tables import _read_table
from tailbatch.data.text import (
    ARFF,
    JSON_LINES,
    MAX_COLUMNS,
    PICKLES,
    SPREADSHEETS,
    TEXT_TABLES,
    _at_line,
    is_table,
    label_file,
    stem,
    suffix,
    text_blocks,
)
from tailbatch.errors import DataError, closest, setting


def load_dataset(
    name_or_path: str | Path,
    *,
    labels: Labels = None,
    missing: Missing = "impute",
    text: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    encoder: str | Encoder | None = None,
) -> MultiLabelDataset:
    """Load a known dataset by name, or any multi-label file by its path.

    The format is found by content and file name. A dataset the catalog knows must have the size
    and label cardinality it knows, else labels were read from the wrong columns.

    Parameters
    ----------
    name_or_path
        A name that ``tailbatch datasets list`` shows, such as ``debtags`` (it comes with the
        package) or ``yeast`` (downloaded once); or a file: ARFF, LIBSVM, CSV, TSV or JSON lines,
        each plain or gzip, Parquet, or npz. A corpus such as ``goemotions`` becomes word counts;
        `load_texts` returns its texts and official parts.
    labels
        Which columns are labels. ARFF and tables: 5 for the first five columns, -5 for the last
        five, a list of names, or a prefix that exactly the labels share. ARFF also: the path of a
        MULAN XML file; by default it is looked for beside the file, and MEKA's ``-C`` is obeyed.
        Tables also: the name of one column that lists labels, such as ``sports;politics``, see
        `MultiLabelDataset.from_frame`. LIBSVM and npz files say it themselves.
    missing
        ``"impute"`` fills in mean or most frequent value and says where, ``"error"`` refuses gaps.
    text, kinds, encoder
        Of a table: what to take its columns for, where that is not what their values say; see `Columns`.

    Examples
    --------
    >>> load_dataset("no-such-file.arff")
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: there is no file no-such-file.arff
    """
    path = Path(name_or_path)
    if not path.is_file():
        if path.suffix or len(path.parts) != 1:
            raise no_file(path)
        path = catalog.find(str(name_or_path))
    entry, file = catalog.known_file(path) or (None, None)
    form = "corpus" if entry and entry.is_corpus else _format(path)
    if form == "table":
        columns = Columns(text, kinds or {}, missing, encoder, labels=_columns(path, labels))
        dataset = _read_table(path, columns=columns)
    elif text or kinds:
        raise DataError(
            f"{setting('text=')} and {setting('kinds=')} are for tables, and {path} is none; leave "
            "them out"
        )
    elif form == "arff":
        # Of a file it knows, the catalog also knows where the labels are.
        asked = file.labels if labels is None and file else labels
        dataset = read_arff(path, labels=asked, missing=missing)
    elif labels is not None:
        raise DataError(
            f"{path} says itself which labels its rows have; leave {setting('labels=')} out"
        )
    elif form == "corpus":
        dataset = load_texts(path).word_counts()
    else:
        dataset = read_npz(path) if form == "npz" else _read_libsvm(path)
    if entry is not None:
        catalog.check(dataset, entry.name, source=path)
        dataset = replace(dataset, name=entry.name)
    return dataset


def no_file(path: Path) -> DataError:
    """Return the error for a file that is not there; it names one of nearly that name."""
    if path.is_dir():
        return DataError(f"there is no file {path}, only a folder")
    try:
        beside = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    except OSError:
        beside = []
    near = closest(path.name, beside, cutoff=0.75)
    guess = f"; did you mean {path.with_name(near)}?" if near else ""
    return DataError(f"there is no file {path}{guess}")


def _format(path: Path) -> str:
    """Return what a file is written as, by its content first and its name second."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            is_office = magic[:2] == b"PK" and b"[Content_Types].xml" in stream.read(2048)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if magic == b"PAR1":
        return "table"
    if is_office or suffix(path) in SPREADSHEETS:
        raise DataError(f"{path} is a spreadsheet; save it as CSV and give that file")
    if suffix(path) in PICKLES:
        raise DataError(
            f"{path} is a pickle, which can run code when it is read; save the table with "
            "frame.to_parquet() or frame.to_csv() and give that file"
        )
    if magic[:2] == b"PK":
        return "npz"
    _, block = next(text_blocks(path), (1, b""))
    lines = [line for line in block.split(b"\n")[:50] if line.strip() and line[:1] not in b"%#"]
    ending = suffix(path)
    if ending == ARFF or (lines and lines[0].lstrip().startswith(b"@")):
        return "arff"
    if not lines:
        raise DataError(f"{path} is empty: there is nothing to learn from")
    if ending not in (*JSON_LINES, *TEXT_TABLES) and _looks_like_libsvm(lines):
        return "libsvm"
    if is_table(path) or any(mark in lines[0] for mark in (b",", b"\t", b";")):
        return "table"
    raise DataError(
        f"cannot tell the format of {path}; known are ARFF, LIBSVM, CSV, TSV, JSON lines (.jsonl), "
        "Parquet and npz"
    )


def _columns(path: Path, labels: Labels) -> int | str | list[str] | None:
    if isinstance(labels, Path) or label_file(labels):
        raise DataError(
            f"{setting('labels', str(labels))} is a file, and the labels of {path} are columns; name them"
        )
    return labels if labels is None or isinstance(labels, int | str) else list(labels)


_ROW = re.compile(rb"\s*(?:\d+(?:,\d+)*)?(?:(?:^|\s+)\d+:[-+.\deE]+)*\s*(?:#.*)?")
_SIZES = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*")


def _looks_like_libsvm(lines: Sequence[bytes]) -> bool:
    """Tell whether lines are LIBSVM rows, the first one perhaps the sizes ``n d q``."""
    rows = lines[1:] if _SIZES.fullmatch(lines[0]) else lines
    return any(b":" in row for row in rows) and all(_ROW.fullmatch(row) for row in rows)


def _read_libsvm(path: Path) -> MultiLabelDataset:
    """Read a multi-label LIBSVM file, plain or gzip.

    Labels and features keep their numbers as names: label ``3`` and ``feature_5``. Features count
    from 0 if a 0 occurs or the first line holds the sizes ``n d q``, as in the files of the
    Extreme Classification Repository; else from 1. Labels are those that occur; with sizes, those
    that never occur have columns too.
    """
    features, labels = _CsrBuilder(np.float64), _CsrBuilder(np.bool_)
    sizes: tuple[int, ...] | None = None
    for line, block in text_blocks(path):
        lines = block.split(b"\n")
        if line == 1 and (match := _SIZES.fullmatch(lines[0])):
            sizes = tuple(map(int, match.groups()))
            lines[0] = b""
        rows = list(_rows(path, line, lines))
        _append(labels, [row for row, _ in rows])
        _append(features, [row for _, row in rows])
    X, Y = features.build(MAX_COLUMNS), labels.build(MAX_COLUMNS)
    if X.shape[0] == 0:
        raise DataError(f"{path} has no rows: there is nothing to learn from")
    first, d, q = _width(path, X, Y, sizes)
    # Only columns from the first to the last are cut out: their number costs nothing.
    if sizes is None:
        numbers, places = np.unique(Y.indices, return_inverse=True)
        Y = csr_array((Y.data, places, Y.indptr), shape=(Y.shape[0], q))
        label_names: Sequence[str] = [str(number) for number in numbers.tolist()]
    else:
        Y, label_names = Y[:, :q], NumberedNames("", range(q))
    if not q:
        raise DataError(f"{path} has no labels: no row starts with numbers such as 1,3")
    return MultiLabelDataset.from_arrays(
        X[:, first : first + d],
        Y,
        name=stem(path),
        feature_names=NumberedNames("feature_", range(first, first + d)),
        label_names=label_names,
    )


def _width(
    path: Path, X: csr_array, Y: csr_array, sizes: tuple[int, ...] | None
) -> tuple[int, int, int]:
    """Return the first feature's number, how many there are, and how many labels."""
    width = int(X.indices.max(initial=-1)) + 1
    if sizes is None:
        first = 0 if (X.indices == 0).any() else 1
        return first, max(width - first, 0), len(np.unique(Y.indices))
    found = (X.shape[0], width, int(Y.indices.max(initial=-1)) + 1)
    for name, claimed, seen in zip(("rows", "features", "labels"), sizes, found, strict=True):
        if claimed < seen or claimed > MAX_COLUMNS or (name == "rows" and claimed != seen):
            raise _at_line(
                path,
                1,
                f"the file claims {claimed:,} {name} and has {seen:,}; correct the first line or "
                "remove it",
            )
    return 0, sizes[1], sizes[2]


def _append(builder: _CsrBuilder, rows: Sequence[Mapping[int, float]]) -> None:
    builder.append(
        np.array([len(row) for row in rows], dtype=np.int64),
        np.array([column for row in rows for column in row], dtype=np.int32),
        np.array([value for row in rows for value in row.values()], dtype=np.float64),
    )


def _rows(
    path: Path, first: int, lines: Sequence[bytes]
) -> Iterator[tuple[dict[int, float], dict[int, float]]]:
    """Yield the labels and the features of each row; empty lines are none."""
    for line, text in enumerate(lines, start=first):
        tokens = text.partition(b"#")[0].split()
        if not tokens:
            continue
        head = [] if b":" in tokens[0] else tokens.pop(0).split(b",")
        labels: dict[int, float] = {}
        features: dict[int, float] = {}
        for label in head:
            labels[_index(path, line, label, label, labels)] = 1.0
        for token in tokens:
            index, colon, value = token.partition(b":")
            column = _index(path, line, index if colon else colon, token, features)
            features[column] = _value(path, line, value, token)
        yield labels, features


def _index(path: Path, line: int, text: bytes, token: bytes, seen: Mapping[int, float]) -> int:
    if not text.isdigit():
        raise _at_line(
            path, line, f"expected labels 1,3 and index:value pairs, found {_show(token)}"
        )
    index = int(text[:20])
    if index >= MAX_COLUMNS:
        raise _at_line(path, line, f"index {index} is out of range; at most {MAX_COLUMNS:,} fit")
    if index in seen:
        raise _at_line(path, line, f"index {index} occurs twice; keep one of them")
    return index


def _value(path: Path, line: int, text: bytes, token: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or b"_" in text:
        raise _at_line(path, line, f"{_show(token)} has no finite number after the colon")
    return value


def _show(token: bytes) -> str:
    return repr(token[:40].decode("utf-8", errors="replace"))
