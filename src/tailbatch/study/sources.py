"""What a study runs with: its datasets, the facts kept about them, and code from outside the package."""

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tailbatch.data import Fold, MultiLabelDataset, Parts, load_dataset, stratified_folds
from tailbatch.data.catalog import catalog, find
from tailbatch.data.preparation import PAPER_PREPARATIONS, PreparedDataset, largest_columns, prepare
from tailbatch.data.scaling import suggested_scaling
from tailbatch.errors import StudyError, TailbatchError
from tailbatch.imbalance import (
    label_cardinality,
    label_density,
    mean_imbalance_ratio,
    minority_labels,
    rare_labels,
)
from tailbatch.losses import LOSSES, Loss
from tailbatch.models import MODELS
from tailbatch.registry import Registry, check_known, qualified_name
from tailbatch.results import DatasetFacts, ResultStore, RunSpec
from tailbatch.selection import STRATEGIES

FOLD_SEED = 0
"""The folds of a dataset are the same for every study and seed; a seed varies weights and batches."""

_COLUMNS = ("text", "kinds", "missing", "encoder")

Entry: TypeAlias = str | Mapping[str, Any] | Callable[..., Any]
"""A name, a class, a function, or a table with one of them as its name, plus settings."""
NamedEntry: TypeAlias = str | Mapping[str, Any]
"""An entry whose name is a string, as in a study file."""

REGISTRIES: Mapping[str, Registry[Any]] = {"strategy": STRATEGIES, "model": MODELS, "loss": LOSSES}
"""The registry for the names in each field of a run."""

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
    labels, columns
        Which columns are labels, as in `tailbatch.data.load_dataset`, and how to read the others: the
        given ones of ``text``, ``kinds``, ``missing`` and ``encoder``, as sorted pairs.

    Examples
    --------
    >>> Source.of("Debtags")
    Source(name='debtags', file=None, labels=None, columns=())
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
            return cls(str(entry.get("name", _file_name(path))), _existing(path), labels, columns)
        if entry.casefold() in catalog():
            return cls(entry.casefold())
        path = Path(entry)
        if path.suffix or _exists(path):
            return cls(_file_name(path), _existing(path))
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
        """Return the dataset, read once per process."""
        return _loaded(self)

    @property
    def listed_labels(self) -> Any:
        """Which columns are labels, as `load_dataset` takes it and a study file writes it."""
        return list(self.labels) if isinstance(self.labels, tuple) else self.labels

    @property
    def settings(self) -> dict[str, Any]:
        """How to read the other columns, in the same way."""
        kinds = {"text": list, "kinds": dict}
        return {key: kinds[key](value) if key in kinds else value for key, value in self.columns}


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value


def _file_name(path: Path) -> str:
    """Return the name of a file's dataset: the file's name without suffixes."""
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


def facts_of(source: Source, preparations: Iterable[str], store: ResultStore) -> DatasetFacts:
    """Return digest and size of a dataset, from the store if its file has not changed."""
    path = source.path.resolve()
    key = hashlib.sha256(f"{path}\n{source.labels}{source.columns or ''}".encode()).hexdigest()[:32]
    status = path.stat()
    noted = store.datasets().get(key)
    wanted = {name for name in preparations if source.has(name)}
    if (
        noted is not None
        and (noted.size, noted.modified) == (status.st_size, status.st_mtime_ns)
        and wanted <= noted.facts.keys()
        and all("scale" in noted.facts[name] for name in wanted if noted.facts[name])
    ):
        return noted
    dataset = source.load()
    facts = DatasetFacts(
        name=source.name,
        path=str(path),
        size=status.st_size,
        modified=status.st_mtime_ns,
        digest=dataset.digest,
        labels=source.listed_labels,
        columns=source.settings,
        facts={name: _sizes(dataset, name) for name in sorted(wanted)},
    )
    store.keep_dataset(facts, key)
    return facts


def scales_of(known: Iterable[DatasetFacts]) -> dict[tuple[str, str], str]:
    """Return what the scaling ``"auto"`` is, by dataset and preparation."""
    return {
        (each.name, preparation): facts["scale"]
        for each in known
        for preparation, facts in each.facts.items()
        if "scale" in facts
    }


def _sizes(dataset: MultiLabelDataset, preparation: str) -> dict[str, Any]:
    try:
        prepared = prepare(dataset, preparation)
    except TailbatchError as error:
        # The runs of this preparation will fail and say so; the others continue.
        _log.warning("%s", error)
        return {}
    labels, features = prepared.dataset.Y, prepared.dataset.X
    if prepared.n_features < features.shape[1]:
        features = features[:, largest_columns(features, prepared.n_features)]
    return {
        "n_samples": prepared.dataset.n_samples,
        "n_features": prepared.n_features,
        "n_labels": prepared.dataset.n_labels,
        "label_cardinality": label_cardinality(labels),
        "label_density": label_density(labels),
        "mean_imbalance_ratio": mean_imbalance_ratio(labels),
        # By what the features are, which no fold changes.
        "scale": suggested_scaling(features),
    }


# Runs that share a dataset or fold are adjacent, so each process caches a few.
@lru_cache(maxsize=2)
def _loaded(source: Source) -> MultiLabelDataset:
    name = source.file or source.name
    return load_dataset(name, labels=source.listed_labels, **source.settings)


def parts_of(spec: RunSpec, source: Source) -> Parts:
    """Return the prepared parts of a run's fold, made once per process."""
    dataset = source.load()
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
    prepared = prepare(source.load(), preparation)
    return prepared, stratified_folds(prepared.dataset.Y, n_folds=n_folds, seed=FOLD_SEED)


@lru_cache(maxsize=2)
def _parts(source: Source, preparation: str, n_folds: int, fold: int, scale: str) -> Parts:
    prepared, folds = _prepared(source, preparation, n_folds)
    parts = prepared.split(folds[fold], scale=scale)
    defined = minority_labels if preparation in PAPER_PREPARATIONS else rare_labels
    return replace(parts, minority=defined(parts.train.Y))


_Cell: TypeAlias = tuple[str, str, str, int, int]

# Rough seconds per run of each model relative to the MLP, used only for ordering.
_MODELS: dict[str, float] = {"mlp": 1, "c2ae": 2, "mpvae": 3, "clif": 5, "dela": 8, "paca": 20}
_MODELS |= {"logistic": 0.1, "balanced_logistic": 0.1, "forest": 0.2, "boosting": 20}
# Runs of one dataset and model after which more would not change a forecast much.
_ENOUGH = 3


class Forecast:
    """Predicts from finished runs how long others take.

    The prediction is the average time of runs with the same dataset and model; if there are none yet,
    it follows from the cost, by the sizes of the datasets.

    Examples
    --------
    >>> forecast = Forecast({})
    >>> spec = RunSpec(dataset="a", dataset_digest="")
    >>> forecast.learn(spec, 3.0)
    >>> forecast.seconds([spec, spec])
    6.0
    """

    def __init__(self, facts: Mapping[str, DatasetFacts]) -> None:
        self._facts = facts
        self._done: Counter[_Cell] = Counter()
        self._seconds: dict[_Cell, float] = defaultdict(float)
        self._cost = self._time = 0.0

    def learn(self, spec: RunSpec, seconds: float) -> None:
        """Learn from a finished run."""
        self._done[_cell(spec)] += 1
        self._seconds[_cell(spec)] += seconds
        self._cost += self._units(spec)
        self._time += seconds

    def knows(self, spec: RunSpec) -> bool:
        """Whether enough runs like this one have been learned from."""
        return self._done[_cell(spec)] >= _ENOUGH

    def seconds(self, specs: Iterable[RunSpec]) -> float | None:
        """Return how long these runs take in sequence; None before the first run has finished."""
        if not self._cost:
            return None
        return sum(self._one(spec) for spec in specs)

    def share_done(self, spec: RunSpec, epochs: int) -> float:
        """Return which share of a run is done after so many epochs."""
        size = self._size(spec)
        rows = round(size.get("n_samples", 1) * (1 - 1 / spec.n_folds))
        return min(1.0, epochs / spec.plan.n_epochs(rows))

    def cheapest_first(self, specs: Iterable[RunSpec]) -> tuple[RunSpec, ...]:
        """Return the runs by cost; runs that are compared cost the same and stay together."""
        return tuple(sorted(specs, key=self._units))

    def _size(self, spec: RunSpec) -> Mapping[str, Any]:
        known = self._facts.get(spec.dataset)
        return known.facts.get(spec.preparation, {}) if known else {}

    def _one(self, spec: RunSpec) -> float:
        cell = _cell(spec)
        if cell in self._done:
            return self._seconds[cell] / self._done[cell]
        return self._units(spec) * self._time / self._cost

    def _units(self, spec: RunSpec) -> float:
        """Return a rough cost without a unit: rows x epochs x width x model."""
        size = self._size(spec)
        n_samples = int(size.get("n_samples", 1))
        width = 500 + size.get("n_features", 0) + 20 * size.get("n_labels", 0)
        return float(n_samples * spec.plan.n_epochs(n_samples) * width * _MODELS.get(spec.model, 1))


def _cell(spec: RunSpec) -> _Cell:
    return spec.dataset, spec.preparation, spec.model, spec.plan.epochs, spec.plan.batch_size


def duration(seconds: float | None) -> str:
    """Return roughly how long something takes.

    Examples
    --------
    >>> duration(None), duration(42), duration(200), duration(4000)
    ('not known yet', 'about 42 s', 'about 3 min', 'about 1 h 07 min')
    """
    if seconds is None:
        return "not known yet"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
    return f"about {hours}"


# ---- code from outside the package


class Custom(NamedTuple):
    """A strategy, model or loss from outside the package, and whether its name is registered."""

    field: str
    name: str
    code: Any
    registered: bool = True

    @classmethod
    def of(cls, spec: RunSpec) -> "tuple[Custom, ...]":
        """Return the code from outside the package that a run needs, as known in this process."""
        customs = []
        for field, registry in REGISTRIES.items():
            name = getattr(spec, field)
            code = registry.loaded(name)
            if code is not None and not qualified_name(code).startswith("tailbatch."):
                customs.append(cls(field, name, code, registry.is_registered(name)))
        return tuple(customs)

    def can_travel(self) -> bool:
        """Whether another process can import the code; it cannot if a script or notebook defines it."""
        if qualified_name(self.code).startswith("__main__."):
            return False
        try:
            ForkingPickler.dumps(self.code)
        except Exception:  # hooks of foreign objects may raise anything
            return False
        return True

    def make_known(self) -> None:
        """Register code that came from another process under the name it has there."""
        registry = REGISTRIES[self.field]
        if registry.loaded(self.name) is None:
            if self.registered:
                registry.add(self.name, self.code)
            else:
                registry.name_of(self.code, self.name.rpartition("_")[0])


def named(field: str, entries: Sequence[Entry]) -> Sequence[NamedEntry]:
    """Return a study's entries with names in place of classes and functions.

    Examples
    --------
    >>> from tailbatch.selection import HardSelector
    >>> named("strategy", ["random", HardSelector, {"name": HardSelector, "max_lag": 1}])
    ['random', 'hard', {'name': 'hard', 'max_lag': 1}]
    """
    if isinstance(entries, str):
        raise StudyError(f"a study takes a list for each {field}, got {entries!r:.80}")
    return [_named(field, entry) for entry in entries]


def _named(field: str, entry: Any) -> NamedEntry:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Mapping):
        code = entry.get("name")
        if isinstance(code, str) or not callable(code):
            return entry
        return {**entry, "name": _named(field, code)}
    if isinstance(entry, Loss):
        raise StudyError(
            f"the loss {entry!r:.60} is already made for some rows: give its class, or a function of "
            "the labels, so that each fold makes its own"
        )
    if not callable(entry):
        raise StudyError(f"a {field} is a name, a table, a class or a function, got {entry!r:.80}")
    # Its own name only: that of a class it inherits from is of other code.
    called = getattr(entry, "__dict__", {}).get("strategy" if field == "strategy" else "name")
    return REGISTRIES[field].name_of(entry, called if isinstance(called, str) else None)
