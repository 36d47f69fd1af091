"""LIBSVM text with several labels a row: ``1,3 5:0.2 7:1``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.names import NumberedNames
from tailbatch.data.sparse import CsrBuilder
from tailbatch.data.text import MAX_COLUMNS, at_line, stem, text_blocks
from tailbatch.errors import DataError

_ROW = re.compile(rb"\s*(?:\d+(?:,\d+)*)?(?:(?:^|\s+)\d+:[-+.\deE]+)*\s*(?:#.*)?")
_SIZES = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*")


def looks_like_libsvm(lines: Sequence[bytes]) -> bool:
    """Tell whether lines are LIBSVM rows, the first one perhaps the sizes ``n d q``.

    Examples
    --------
    >>> looks_like_libsvm([b"1,3 5:0.2 7:1", b"7:0.5"]), looks_like_libsvm([b"a,b", b"1,2"])
    (True, False)
    """
    rows = lines[1:] if _SIZES.fullmatch(lines[0]) else lines
    return any(b":" in row for row in rows) and all(_ROW.fullmatch(row) for row in rows)


def read_libsvm(path: str | Path) -> MultiLabelDataset:
    r"""Read a multi-label LIBSVM file, plain or gzip.

    Labels and features keep their numbers as names: label ``3`` and ``feature_5``. Features count
    from 0 if a 0 occurs or the first line holds the sizes ``n d q``, as in the files of the
    Extreme Classification Repository; else from 1. Labels are those that occur; with sizes, those
    that never occur have columns too.

    Parameters
    ----------
    path
        The file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.svm")
    >>> _ = path.write_text("1,3 1:0.2 2:1\n 2:0.5\n")
    >>> data = read_libsvm(path)
    >>> data.label_names, data.feature_names
    (('1', '3'), ('feature_1', 'feature_2'))
    """
    path = Path(path)
    features, labels = CsrBuilder(np.float64), CsrBuilder(np.bool_)
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
    first, d, q = _columns(path, X, Y, sizes)
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


def _columns(
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
            raise at_line(
                path,
                1,
                f"the file claims {claimed:,} {name} and has {seen:,}; correct the first line or "
                "remove it",
            )
    return 0, sizes[1], sizes[2]


def _append(builder: CsrBuilder, rows: Sequence[Mapping[int, float]]) -> None:
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
        raise at_line(
            path, line, f"expected labels 1,3 and index:value pairs, found {_show(token)}"
        )
    index = int(text[:20])
    if index >= MAX_COLUMNS:
        raise at_line(path, line, f"index {index} is out of range; at most {MAX_COLUMNS:,} fit")
    if index in seen:
        raise at_line(path, line, f"index {index} occurs twice; keep one of them")
    return index


def _value(path: Path, line: int, text: bytes, token: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or b"_" in text:
        raise at_line(path, line, f"{_show(token)} has no finite number after the colon")
    return value


def _show(token: bytes) -> str:
    return repr(token[:40].decode("utf-8", errors="replace"))
