"""Where the datasets of a study come from, and the facts kept about them."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tailbatch.data import Fold, MultiLabelDataset, Parts, load_dataset, stratified_folds
from tailbatch.data.catalog import catalog, find
from tailbatch.data.preparation import PAPER_PREPARATIONS, PreparedDataset, prepare
from tailbatch.errors import StudyError, TailbatchError
from tailbatch.imbalance import (
    label_cardinality,
    label_density,
    mean_imbalance_ratio,
    minority_labels,
    rare_labels,
)
from tailbatch.registry import check_known
from tailbatch.results import DatasetFacts, ResultStore, RunSpec

FOLD_SEED = 0
"""The folds of a dataset are the same for every study and seed; a seed varies weights and batches."""

_COLUMNS = ("text", "kinds", "missing", "text_encoder")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A dataset by name or file, and how to read it.

    Parameters
    ----------
    name
        The dataset's name in records.
    file
        A file; None for a dataset from the catalog, which each process looks up where it runs.
    labels
        Which columns are labels, as in `tailbatch.data.load_dataset`.
    columns
        How to read the other columns of a table: those of ``text``, ``kinds``, ``missing`` and
        ``text_encoder`` of `tailbatch.data.Columns` that were given, as sorted pairs.

    Examples
    --------
    >>> Source.of("Debtags")
    Source(name='debtags', file=None, labels=None, columns=())
    >>> Source.of("debtag")
    Traceback (most recent call last):
    ...
    tailbatch.errors.StudyError: unknown dataset or file 'debtag'; did you mean 'debtags'? ...
    """

    name: str
    file: str | None = None
    labels: int | str | tuple[str, ...] | None = None
    columns: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, entry: str | Mapping[str, Any]) -> "Source":
        """Return the source of a study's entry: a name, a file, or a table with `labels`."""
        if isinstance(entry, Mapping):
            for key in entry:
                check_known(
                    "key of a dataset", key, ("path", "name", "labels", *_COLUMNS), error=StudyError
                )
            if "path" not in entry:
                raise StudyError(f"a dataset given as a table needs a path, got {dict(entry)}")
            labels = entry.get("labels")
            labels = tuple(labels) if isinstance(labels, list) else labels
            path = Path(str(entry["path"]))
            columns = tuple((key, _hashable(entry[key])) for key in _COLUMNS if entry.get(key))
            return cls(str(entry.get("name", file_name(path))), _existing(path), labels, columns)
        if entry.casefold() in catalog():
            return cls(entry.casefold())
        path = Path(entry)
        if path.suffix or _exists(path):
            return cls(file_name(path), _existing(path))
        check_known("dataset or file", entry, catalog(), error=StudyError)
        return cls(entry)

    def has(self, preparation: str) -> bool:
        """Whether a preparation applies to the dataset; ``as-published`` does only if it differs."""
        if preparation != "as-published":
            return True
        return self.name in catalog() and catalog()[self.name].as_published is not None

    @property
    def path(self) -> Path:
        """The file on this machine; a dataset from the catalog is downloaded if it is missing."""
        return find(self.name) if self.file is None else Path(self.file)

    def load(self) -> MultiLabelDataset:
        """Read the dataset."""
        labels: Any = list(self.labels) if isinstance(self.labels, tuple) else self.labels
        return load_dataset(self.file or self.name, labels=labels, **self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """How to read the columns, as `load_dataset` takes it and a study file writes it."""
        columns = dict(self.columns)
        lists = {"text": list(columns["text"])} if "text" in columns else {}
        kinds = {"kinds": dict(columns["kinds"])} if "kinds" in columns else {}
        return columns | lists | kinds


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value


def file_name(path: Path) -> str:
    """Return the name of a file's dataset: the file's name without suffixes.

    Examples
    --------
    >>> file_name(Path("data/mine.arff.gz"))
    'mine'
    """
    return path.name.partition(".")[0] or path.name


def _existing(path: Path) -> str:
    if not _exists(path) or not path.is_file():
        raise StudyError(f"there is no dataset file {path}")
    return str(path.resolve())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name no file can have
        return False


def check_distinct(sources: Iterable[Source]) -> None:
    """Raise if two different sources share a name: their records could not be told apart."""
    seen: dict[str, Source] = {}
    for source in sources:
        other = seen.setdefault(source.name, source)
        if other != source:
            raise StudyError(
                f"two datasets are called {source.name} ({other.file or 'catalog'} and "
                f"{source.file or 'catalog'}): give one of them another name"
            )


def facts_of(source: Source, preparations: Iterable[str], store: ResultStore) -> DatasetFacts:
    """Return digest and size of a dataset, from the store if its file has not changed."""
    path = source.path.resolve()
    key = hashlib.sha256(f"{path}\n{source.labels}{source.columns or ''}".encode()).hexdigest()[:32]
    status = path.stat()
    noted = store.dataset(key)
    wanted = {name for name in preparations if source.has(name)}
    if (
        noted is not None
        and (noted.size, noted.modified) == (status.st_size, status.st_mtime_ns)
        and wanted <= set(noted.facts)
    ):
        return noted
    dataset = loaded(source)
    labels = list(source.labels) if isinstance(source.labels, tuple) else source.labels
    facts = DatasetFacts(
        name=source.name,
        path=str(path),
        size=status.st_size,
        modified=status.st_mtime_ns,
        digest=dataset.digest,
        labels=labels,
        columns=source.settings,
        facts={name: _sizes(dataset, name) for name in sorted(wanted)},
    )
    store.keep_dataset(facts, key)
    return facts


def _sizes(dataset: MultiLabelDataset, preparation: str) -> dict[str, float]:
    try:
        prepared = prepare(dataset, preparation)
    except TailbatchError as error:
        # The runs of this preparation will fail and say so; the others continue.
        _log.warning("%s", error)
        return {}
    labels = prepared.dataset.Y
    return {
        "n_samples": prepared.dataset.n_samples,
        "n_features": prepared.n_features,
        "n_labels": prepared.dataset.n_labels,
        "label_cardinality": label_cardinality(labels),
        "label_density": label_density(labels),
        "mean_imbalance_ratio": mean_imbalance_ratio(labels),
    }


# Runs that share a dataset or fold are adjacent, so each process caches a few.
@lru_cache(maxsize=2)
def loaded(source: Source) -> MultiLabelDataset:
    """Return a dataset, read once per process."""
    return source.load()


def parts_of(spec: RunSpec, source: Source) -> Parts:
    """Return the prepared parts of a run's fold, made once per process."""
    dataset = loaded(source)
    if dataset.digest != spec.dataset_digest:
        raise StudyError(
            f"{spec.dataset} is not the dataset the study was planned with (its content is "
            f"{dataset.digest[:8]}, not {spec.dataset_digest[:8]}): start the study again"
        )
    return _parts(source, spec.preparation, spec.n_folds, spec.fold, spec.scale)


@lru_cache(maxsize=2)
def _prepared(
    source: Source, preparation: str, n_folds: int
) -> tuple[PreparedDataset, tuple[Fold, ...]]:
    prepared = prepare(loaded(source), preparation)
    return prepared, stratified_folds(prepared.dataset.Y, n_folds=n_folds, seed=FOLD_SEED)


@lru_cache(maxsize=2)
def _parts(source: Source, preparation: str, n_folds: int, fold: int, scale: str) -> Parts:
    prepared, folds = _prepared(source, preparation, n_folds)
    parts = prepared.split(folds[fold], scale=scale)
    defined = minority_labels if preparation in PAPER_PREPARATIONS else rare_labels
    return replace(parts, minority=defined(parts.train.Y))
