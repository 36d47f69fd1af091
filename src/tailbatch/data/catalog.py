"""Known datasets: their facts, where their files are, and the one place that downloads.

A file is looked for in the folder named by ``TAILBATCH_DATA``, then in the per-user cache (or the
folder named by ``TAILBATCH_CACHE``), and is downloaded last. A file in ``TAILBATCH_DATA`` is yours:
it is used as far as its facts agree. What is downloaded must have the known SHA-256.
"""

import gzip
import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.errors import DataError, DownloadError, require, setting
from tailbatch.files import abandoned, cache_folder, replacing, sweep
from tailbatch.registry import check_known

if TYPE_CHECKING:
    import requests

#: Called with the bytes received so far and the bytes expected.
Progress = Callable[[int, int], None]

_HERE = Path(__file__).parent
_CHUNK = 1 << 16
_TIMEOUT = (10, 60)  # seconds to connect, seconds between two pieces


@dataclass(frozen=True)
class KnownFile:
    """One published file of a dataset.

    Attributes
    ----------
    name
        File name, uncompressed.
    bytes, sha256
        Size and hash of the uncompressed file.
    urls
        Where these very bytes are served; empty when nobody serves them.
    labels
        Position of the label columns: the first `labels`, or the last ``-labels``; None where the
        format says it.
    """

    name: str
    bytes: int
    sha256: str
    urls: tuple[str, ...]
    labels: int | None = None


@dataclass(frozen=True)
class _AsPublished:
    """What the paper's script takes for labels: the last `n_labels` columns of the file it read."""

    n_labels: int
    labels_first: bool


@dataclass(frozen=True)
class KnownDataset:
    """The facts of a known dataset.

    Attributes
    ----------
    n_samples, n_features, n_labels, label_cardinality, label_density, mean_imbalance_ratio
        Facts of the whole file.
    files
        The published files, the one to download first.
    paper_features
        Number of features the paper keeps, or None where it keeps all.
    printed
        Values the paper prints that are not true of the file.
    as_published
        The columns the paper's script reads as labels, where they are not the labels.
    is_corpus
        Whether the files are the parts of one text corpus, kept together in a folder of its name;
        otherwise each file is the whole dataset.

    Examples
    --------
    >>> known("yeast").n_labels
    14
    >>> known("LLOG-F").printed["label_cardinality"]
    15.93
    """

    name: str
    domain: str
    citation: str
    n_samples: int
    n_features: int
    n_labels: int
    label_cardinality: float
    label_density: float
    mean_imbalance_ratio: float
    files: tuple[KnownFile, ...]
    paper_features: int | None = None
    printed: Mapping[str, float] = field(default_factory=dict)
    as_published: _AsPublished | None = None
    is_corpus: bool = False
    note: str = ""


@cache
def catalog() -> Mapping[str, KnownDataset]:
    """Return every known dataset by name."""
    with (_HERE / "catalog.toml").open("rb") as stream:
        return {name: _entry(name, table) for name, table in tomllib.load(stream).items()}


def _entry(name: str, table: dict[str, Any]) -> KnownDataset:
    files = tuple(KnownFile(**{**file, "urls": tuple(file["urls"])}) for file in table.pop("files"))
    mangled = table.pop("as_published", None)
    return KnownDataset(
        name=name, files=files, as_published=mangled and _AsPublished(**mangled), **table
    )


def known(name: str) -> KnownDataset:
    """Return the entry of that name, whatever its case.

    Examples
    --------
    >>> known("Yeast").domain
    'biology'
    >>> known("yaest")
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: unknown dataset 'yaest'; did you mean 'yeast'? Known: ...
    """
    check_known("dataset", name.casefold(), catalog(), error=DataError)
    return catalog()[name.casefold()]


def known_file(path: Path) -> tuple[KnownDataset, KnownFile] | None:
    """Return the dataset and the entry of a file, by its name, or None."""
    name = path.name.casefold().removesuffix(".gz")
    return next(
        (
            (entry, file)
            for entry in catalog().values()
            # The first file stands for a corpus; anyone's may have its name, so the folder counts.
            for file in (entry.files[:1] if entry.is_corpus else entry.files)
            if file.name == name and (not entry.is_corpus or path.parent.name == entry.name)
        ),
        None,
    )


def check(dataset: MultiLabelDataset, name: str, *, source: str | Path = "this") -> None:
    """Raise `DataError` unless a dataset has the size and cardinality known for `name`.

    Reading labels from the wrong end of a file changes q or the cardinality, and has changed
    published results.
    """
    entry = known(name)
    cardinality = float(dataset.Y.sum()) / max(dataset.n_samples, 1)
    found = {
        "n": (dataset.n_samples, entry.n_samples),
        "d": (dataset.n_features, entry.n_features),
        "q": (dataset.n_labels, entry.n_labels),
        "cardinality": (round(cardinality, 4), entry.label_cardinality),
    }
    wrong = [
        f"{key} is {has}, not {expected}"
        for key, (has, expected) in found.items()
        if has != expected
    ]
    if wrong:
        options = [
            f"{setting('labels', file.labels)} for {file.name}"
            for file in entry.files
            if file.labels
        ]
        raise DataError(
            f"{source} is not {entry.name} as the catalog knows it: {'; '.join(wrong)}. "
            + (f"Read it with {' or '.join(options)}; if" if options else "If")
            + " it is another dataset, give its file another name"
        )


def find(name: str, *, progress: Progress | None = None) -> Path:
    """Return the local file of a known dataset, downloading it when it is not here yet.

    Of a corpus it is the first file, and `corpus_files` finds the others beside it. `progress` is
    called with the bytes received and the bytes expected.
    """
    entry = known(name)
    if (here := local_file(entry.name)) is not None:
        return here
    wanted = entry.files if entry.is_corpus else entry.files[:1]
    first, *_ = [_download_file(entry, file, progress) for file in wanted]
    return first


def local_file(name: str) -> Path | None:
    """Return the file of a known dataset if it is on this machine, without downloading."""
    entry = known(name)
    places = [*_places(_data_folder(), entry), *_places(cache_folder(), entry)]
    places += [_HERE / file.name for file in entry.files]
    lacks = len(entry.files) if entry.is_corpus else 0  # so many files have to be together
    here = (p for p in places if p.is_file() and (not lacks or len(_beside(p, entry)) == lacks))
    found = next(here, None)
    if found is not None:
        sweep(cache_folder() / entry.name)  # its download may have been killed at its last step
    return found


def _places(folder: Path | None, entry: KnownDataset) -> Iterator[Path]:
    if folder is None:
        return
    for file in entry.files[:1] if entry.is_corpus else entry.files:
        for parent in (folder / entry.name, folder)[: 1 if entry.is_corpus else 2]:
            yield parent / file.name
            yield parent / f"{file.name}.gz"


def corpus_files(path: str | Path) -> dict[str, Path]:
    """Return the files of a corpus by the catalog's names, from the folder of its first file."""
    path = Path(path)
    found = known_file(path)
    if found is None or not found[0].is_corpus:
        raise DataError(f"{path} is not the first file of a corpus that the catalog knows")
    files = _beside(path, found[0])
    lacking = [file.name for file in found[0].files if file.name not in files]
    if lacking:
        raise DataError(
            f"{path.parent} lacks {', '.join(lacking)} of {found[0].name}; remove the folder, and "
            f"load {found[0].name} by its name to fetch all of it"
        )
    return files


def _beside(path: Path, entry: KnownDataset) -> dict[str, Path]:
    """Return the files of a corpus that are in a folder, plain or packed."""
    places = (
        (file.name, path.parent / f"{file.name}{end}")
        for file in entry.files
        for end in ("", ".gz")
    )
    return {name: place for name, place in places if place.is_file()}


def _data_folder() -> Path | None:
    """Return the folder of files already downloaded, from ``TAILBATCH_DATA``."""
    folder = os.environ.get("TAILBATCH_DATA")
    if folder and not Path(folder).is_dir():
        raise DataError(
            f"TAILBATCH_DATA names {folder}, which is not a folder; correct or unset it"
        )
    return Path(folder) if folder else None


def file_matches(path: str | Path) -> bool:
    """Tell whether a file with a known name has the known bytes, compressed or not.

    For the first file of a corpus: whether all of its files have.
    """
    path = Path(path)
    found = known_file(path)
    if found is None:
        raise DataError(f"{path} is not a file the catalog knows by name")
    entry, file = found
    if not entry.is_corpus:
        return _sha256(path) == file.sha256
    files = corpus_files(path)
    return all(_sha256(files[each.name]) == each.sha256 for each in entry.files)


def _sha256(path: Path) -> str:
    """Return the SHA-256 of a file's uncompressed bytes."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _download_file(entry: KnownDataset, file: KnownFile, progress: Progress | None) -> Path:
    """Fetch a file from the first source that serves its very bytes."""
    requests = require("requests", extra="cli")
    folder = cache_folder() / entry.name
    if entry.is_corpus and (folder / file.name).is_file():
        return folder / file.name  # an earlier attempt got this far
    failures = []
    for url in file.urls:
        try:
            return _fetch(url, folder / file.name, file, progress)
        except requests.RequestException as error:
            failures.append(f"{urlsplit(url).hostname}: {_in_short(error)}")
        except DownloadError as error:
            failures.append(f"{urlsplit(url).hostname}: {error}")
        except OSError as error:
            raise DownloadError(
                f"{entry.name} cannot be stored in {folder} ({error.strerror or error}); "
                "set TAILBATCH_CACHE to a folder you can write to"
            ) from error
    raise DownloadError(
        f"{entry.name} could not be downloaded ({'; '.join(failures) or 'no known source'}). "
        f"Put {file.name} by hand into {folder}, or into a folder that TAILBATCH_DATA names; "
        f"its SHA-256 is {file.sha256}"
    )


def _in_short(error: "requests.RequestException") -> str:
    """Say in a few words what requests says in a paragraph."""
    requests = require("requests", extra="cli")
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    return (
        "no connection" if isinstance(error, requests.ConnectionError) else "the connection broke"
    )


def _fetch(url: str, target: Path, file: KnownFile, progress: Progress | None) -> Path:
    """Write `url` to `target`, going on from what an earlier attempt left.

    What arrives goes to a file of this process alone, so two never write to the same one. What a
    broken connection or a killed process leaves becomes the part that the next attempt begins with.
    """
    requests = require("requests", extra="cli")
    part = target.with_name(f"{target.name}.part")
    for left in abandoned(target.parent):
        with suppress(FileNotFoundError):
            (left / target.name).replace(part)
    with replacing(target, begin_with=part) as temporary:
        temporary.touch()
        try:
            if temporary.stat().st_size < file.bytes:
                _append(url, temporary, file.bytes, progress)
        except (requests.RequestException, KeyboardInterrupt):
            if temporary.stat().st_size:
                temporary.replace(part)
            raise
        with temporary.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                raise DownloadError("it serves another SHA-256")
    return target


def _append(url: str, target: Path, size: int, progress: Progress | None) -> None:
    """Fetch what `target` lacks of its `size` bytes; never more than that."""
    requests = require("requests", extra="cli")
    received = target.stat().st_size
    # Compressed transfer would make the ranges and the size cap count other bytes than ours.
    headers = {"Range": f"bytes={received}-", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            raise DownloadError("its file is shorter than the known one")
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            received = 0
        with target.open("ab") as stream:
            stream.truncate(received)
            for chunk in response.iter_content(_CHUNK):
                received += len(chunk)
                if received > size:
                    raise DownloadError(f"it sends more than the known {size} bytes")
                stream.write(chunk)
                if progress is not None:
                    progress(received, size)
    if received < size:
        raise DownloadError(f"it sends {received} bytes, not the known {size}")
