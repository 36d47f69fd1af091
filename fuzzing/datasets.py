"""Datasets in files: ARFF, MULAN's XML, LIBSVM, tables, JSON lines, Parquet and npz."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from unittest.mock import patch

import numpy as np

from fuzzing.differential import compare_with_liac
from fuzzing.rule import Finding, accepted, written
from tailbatch.data import MultiLabelDataset, load_dataset, npz, read_arff, readers, text
from tailbatch.data.columns import Missing

_LIMITS: tuple[tuple[ModuleType, str, int], ...] = (
    (readers, "MAX_COLUMNS", 10_000),
    (npz, "MAX_COLUMNS", 10_000),
    (text, "MAX_BYTES", 1 << 22),
    (text, "MAX_ARRAY_BYTES", 1 << 22),
    (text, "MAX_LINE_BYTES", 1 << 22),
)

ARFF_TOKENS = (
    b"@attribute ", b"@relation ", b"@data\n", b"{0,1}", b"numeric", b"string", b"date", b"integer",
    b"{red,'dark blue'}", b"?", b"%", b"'", b'"', b"\\", b"{0 1}", b"{", b"}", b",", b"-C 1",
    b"'r: -C -2'", b"true", b"1.0", b"1e5", b",{3}", b"\xef\xbb\xbf", b"\x1f\x8b",
)  # fmt: skip
XML_TOKENS = (
    b"<labels>", b"</labels>", b'<label name="a"/>', b"<label", b' name="', b"&lt;", b"&#0;", b"]]>",
    b"<!DOCTYPE x [", b'<!ENTITY a "b">', b"&a;", b'<?xml version="1.0" encoding="utf-16"?>',
    b' encoding="latin-1"', b"<![CDATA[", b"<!--", b"xmlns='x'",
)  # fmt: skip
LIBSVM_TOKENS = (b"1,3 5:0.2", b":", b",", b"#", b"2 3 2\n", b"0:1", b"9999:1", b"1e999", b"nan")
CSV_TOKENS = (
    b"a;b", b'"', b";", b"|", b",", b"\t", b"tag_a", b"true", b"NaN", b"1e999", b"-2:", b"topics:",
    b"tag_:", b"2020-01-01", b"1_0", b"0x1", b"inf",
)  # fmt: skip
JSON_TOKENS = (
    b'{"x": 1}\n', b'"tags": ["a", "b"]', b"null", b"true", b"[", b"]", b"{", b"}", b'"', b"1e999",
    b"NaN", b"tags:", b"-1:", b"\\ud800", b'"2020-01-01"', b'"12 EUR"',
)  # fmt: skip


@contextmanager
def _small_limits() -> Iterator[None]:
    """Lower the package's limits temporarily, so that reaching one takes milliseconds."""
    with ExitStack() as stack:
        for module, name, value in _LIMITS:
            stack.enter_context(patch.object(module, name, value))
        yield


def _check_dataset(dataset: MultiLabelDataset) -> None:
    """Check everything that a dataset promises."""
    X = dataset.X.data if dataset.is_sparse else dataset.X
    if dataset.X.shape != (dataset.n_samples, len(dataset.feature_names)):
        raise Finding(f"{dataset.X.shape} features, {len(dataset.feature_names)} names")
    if dataset.Y.shape != (dataset.n_samples, len(dataset.label_names)) or dataset.Y.dtype != bool:
        raise Finding(f"labels {dataset.Y.shape} of {dataset.Y.dtype}")
    if not dataset.n_samples or not np.isfinite(X).all() or len(dataset.digest) != 32:
        raise Finding("values that are no numbers")
    if not all(notice.isprintable() for notice in dataset.notices):
        raise Finding(f"notices that are not one printable line: {dataset.notices}")


@_small_limits()
def check_arff(data: bytes) -> None:
    """Read an ARFF file; if liac-arff accepts it, too, both must read the same."""
    path = written("data.arff", data)
    labels = None if b"-C" in data else -1
    missing: Missing = "impute" if len(data) % 2 else "error"
    dataset = accepted(lambda: read_arff(path, labels=labels, missing=missing))
    if dataset is not None:
        _check_dataset(dataset)
        with suppress(UnicodeDecodeError):  # only our reader knows gzip and Latin-1
            compare_with_liac(data.decode("utf-8-sig"), dataset)


@_small_limits()
def check_xml(data: bytes) -> None:
    """Read a MULAN label file beside a fixed ARFF file."""
    columns = "".join(f"@attribute {name} {{0,1}}\n" for name in "abcd")
    path = written("data.arff", f"@relation r\n{columns}@data\n0,1,0,1\n".encode())
    labels = written("labels.xml", data)
    dataset = accepted(lambda: read_arff(path, labels=labels))
    if dataset is not None:
        _check_dataset(dataset)


@_small_limits()
def check_libsvm(data: bytes) -> None:
    """Read a LIBSVM file."""
    path = written("data.svm", data)
    dataset = accepted(lambda: readers._read_libsvm(path))
    if dataset is not None:
        _check_dataset(dataset)


def _check_table(data: bytes, name: str) -> None:
    """Read a table; the bytes before the first colon name the label columns."""
    first, _, table = data.partition(b":")
    word = first.decode(errors="replace")
    labels: int | str | list[str] = list(filter(None, word.split(","))) if "," in word else word
    if re.fullmatch(r"-?[0-9]{1,9}", word):
        labels = int(word)
    path = written(name, table)
    missing: Missing = "impute" if len(data) % 2 else "error"
    dataset = accepted(lambda: load_dataset(path, labels=labels, missing=missing))
    if dataset is not None:
        _check_dataset(dataset)


@_small_limits()
def check_csv(data: bytes) -> None:
    """Read a CSV file."""
    _check_table(data, "data.csv")


@_small_limits()
def check_jsonl(data: bytes) -> None:
    """Read a file of JSON lines."""
    _check_table(data, "data.jsonl")


@_small_limits()
def check_parquet(data: bytes) -> None:
    """Read a Parquet file."""
    _check_table(data, "data.parquet")


@_small_limits()
def check_npz(data: bytes) -> None:
    """Read an npz file."""
    path = written("data.npz", data)
    dataset = accepted(lambda: npz.read_npz(path))
    if dataset is not None:
        _check_dataset(dataset)
