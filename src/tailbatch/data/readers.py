"""Any multi-label file by one call; the format is found by content and file name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tailbatch.data import catalog
from tailbatch.data.arff import Labels, read_arff
from tailbatch.data.columns import Columns, Missing
from tailbatch.data.corpora import load_texts
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.libsvm import looks_like_libsvm, read_libsvm
from tailbatch.data.npz import read_npz
from tailbatch.data.npz import save_npz as save_npz
from tailbatch.data.suffixes import (
    ARFF,
    JSON_LINES,
    PICKLES,
    SPREADSHEETS,
    TEXT_TABLES,
    label_file,
    suffix,
)
from tailbatch.data.tables import read_table
from tailbatch.data.text import text_blocks
from tailbatch.data.text_encoders import Encoder
from tailbatch.errors import DataError, closest, setting


def load_dataset(
    name_or_path: str | Path,
    *,
    labels: Labels = None,
    missing: Missing = "impute",
    text: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    text_encoder: str | Encoder | None = None,
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
    text, kinds, text_encoder
        Of a table: what to take its columns for, where that is not what their values say; see `Columns`.

    Examples
    --------
    >>> load_dataset("no-such-file.arff")
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: there is no file no-such-file.arff
    """
    path = Path(name_or_path)
    if path.is_file():
        name = catalog.known_name(path)
    elif path.suffix or len(path.parts) != 1:
        raise no_file(path)
    else:
        name = catalog.known(str(name_or_path)).name
        path = catalog.find(name)
    is_corpus = name is not None and catalog.known(name).is_corpus
    reader = _word_counts if is_corpus else _reader(path)
    if isinstance(reader, str):
        columns = Columns(text, kinds or {}, missing, text_encoder, _columns(path, labels))
        dataset = read_table(path, columns=columns, kind=reader)
    elif text or kinds:
        raise DataError(
            f"{setting('text=')} and {setting('kinds=')} are for tables, and {path} is none; leave "
            "them out"
        )
    else:
        dataset = reader(path, labels, missing)
    if name is not None:
        catalog.check(dataset, name, source=path)
        dataset = replace(dataset, name=name)
    return dataset


def no_file(path: Path) -> DataError:
    """Return the error for a file that is not there; it names one of nearly that name.

    Examples
    --------
    >>> no_file(Path("no-such-file.arff"))
    DataError('there is no file no-such-file.arff')
    """
    if path.is_dir():
        return DataError(f"there is no file {path}, only a folder")
    try:
        beside = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    except OSError:
        beside = []
    near = closest(path.name, beside, cutoff=0.75)
    guess = f"; did you mean {path.with_name(near)}?" if near else ""
    return DataError(f"there is no file {path}{guess}")


def _reader(path: Path) -> Callable[[Path, Labels, Missing], MultiLabelDataset] | str:
    """Return the reader for a file, or the kind of a table, by its content first and its name second."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            is_office = magic[:2] == b"PK" and b"[Content_Types].xml" in stream.read(2048)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if magic == b"PAR1":
        return "parquet"
    if is_office or suffix(path) in SPREADSHEETS:
        raise DataError(f"{path} is a spreadsheet; save it as CSV and give that file")
    if suffix(path) in PICKLES:
        raise DataError(
            f"{path} is a pickle, which can run code when it is read; save the table with "
            "frame.to_parquet() or frame.to_csv() and give that file"
        )
    if magic[:2] == b"PK":
        return _npz
    _, block = next(text_blocks(path), (1, b""))
    lines = [line for line in block.split(b"\n")[:50] if line.strip() and line[:1] not in b"%#"]
    ending = suffix(path)
    if ending == ARFF or (lines and lines[0].lstrip().startswith(b"@")):
        return _arff
    if not lines:
        raise DataError(f"{path} is empty: there is nothing to learn from")
    if ending in JSON_LINES:
        return "jsonl"
    if ending not in TEXT_TABLES and looks_like_libsvm(lines):
        return _libsvm
    if ending in TEXT_TABLES or any(mark in lines[0] for mark in (b",", b"\t", b";")):
        return "csv"
    raise DataError(
        f"cannot tell the format of {path}; known are ARFF, LIBSVM, CSV, TSV, JSON lines (.jsonl), "
        "Parquet and npz"
    )


def _arff(path: Path, labels: Labels, missing: Missing) -> MultiLabelDataset:
    # Of a file it knows, the catalog also knows where the labels are.
    asked = catalog.label_columns(path) if labels is None else labels
    return read_arff(path, labels=asked, missing=missing)


def _libsvm(path: Path, labels: Labels, missing: Missing) -> MultiLabelDataset:
    _refuse_labels(path, labels)
    return read_libsvm(path)


def _npz(path: Path, labels: Labels, missing: Missing) -> MultiLabelDataset:
    _refuse_labels(path, labels)
    return read_npz(path)


def _word_counts(path: Path, labels: Labels, missing: Missing) -> MultiLabelDataset:
    _refuse_labels(path, labels)
    return load_texts(path).word_counts()


def _columns(path: Path, labels: Labels) -> int | str | list[str] | None:
    if isinstance(labels, Path) or label_file(labels):
        raise DataError(
            f"{setting('labels', str(labels))} is a file, and the labels of {path} are columns; name them"
        )
    return labels if labels is None or isinstance(labels, int | str) else list(labels)


def _refuse_labels(path: Path, labels: Labels) -> None:
    if labels is not None:
        raise DataError(
            f"{path} says itself which labels its rows have; leave {setting('labels=')} out"
        )
