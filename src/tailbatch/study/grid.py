"""A study: the runs to compare, given in Python, in a TOML file or on the command line."""

import inspect
import itertools
import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from tailbatch import defaults
from tailbatch.classical import CLASSICAL, make_classical
from tailbatch.data.preparation import check_preparation
from tailbatch.data.scaling import SCALINGS
from tailbatch.errors import ResultError, StudyError, TailbatchError
from tailbatch.files import read_regular
from tailbatch.metrics import METRICS
from tailbatch.models import MODELS, check_hyperparameters
from tailbatch.registry import check_known, qualified_name, source_digest
from tailbatch.results import NO_BATCHES, Pressure, RunSpec, StudyPlan, TrainingPlan, parse_pressure
from tailbatch.results.spec import GIVEN, known_fields
from tailbatch.selection import STRATEGIES, default_pressure, make_selector
from tailbatch.study.sources import REGISTRIES, Entry, NamedEntry, Source, named
from tailbatch.training import check_scheduler

MAX_RUNS = 10_000
"""Each planned run costs memory, and a file can ask for any number."""

_MAX_BYTES = 1 << 20  # of a study file
_NO_LISTS = ("name", "title", "n_folds", "plan", "scale")  # keys of a study file
# What a run says elsewhere, or has one value of in every study.
_OF_THE_RUN = (
    "seed", "batch_size", "epochs", "warm_up_epochs", "selection_pressure", "loss", "max_lag", "shuffle",
)  # fmt: skip
_STUDIES = Path(__file__).parents[1] / "studies"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A grid of runs that differ in one thing at a time.

    For one dataset, preparation, fold, model and seed, all strategies and pressures get the same
    rows, initial weights, warm-up, optimizer, number of steps and number of drawn samples.

    Parameters
    ----------
    name
        What the store and the report call it.
    datasets
        Names from the catalog, files, or tables ``{path = ..., labels = ..., name = ...}``.
    preparations
        As for `tailbatch.data.prepare`; ``as-published`` applies only to the datasets that have it.
    models
        Names, or tables with a name and hyperparameters: ``{name = "mlp", hidden = [256]}``; in Python
        also model classes and functions that build a module, as for `make_model`. ``lr`` in such a
        table replaces the plan's. Those of `tailbatch.classical` have no batches and appear once per fold
        and seed, with the strategy ``none``, whatever the losses, strategies, pressures and batch sizes.
    losses
        Names, or tables with a name and options; in Python also classes and functions of the labels.
        Every network is trained with each; None is its default. `notices` names the models that ignore
        them.
    strategies
        Names, or tables with a name and their own ``selection_pressures``, ``seeds`` or
        ``selection_loss``; any other key is an option of the strategy. In Python also selector classes
        and functions that make one. Unregistered code is named by a digest of its source.
    selection_pressures
        Numbers, ``"64:1"`` for one annealed from 64 to 1, or ``"imbalance"`` for MeanIR; None is each
        strategy's default. Strategies that have no pressure appear once.
    batch_sizes
        None uses the plan's.
    n_folds, folds
        How many folds there are, and which are held out in turn, counted from 0; None means all.
    seeds
        Each varies initial weights, batches and noise, but not the folds.
    plan
        How every run is trained; None is what suits the models (`tailbatch.defaults.recipe_of`). The
        table ``plan`` of a file changes that plan.
    scale
        How features are scaled by the training rows: a name of `tailbatch.data.scaling`, or ``"auto"``;
        None is what suits the models.
    title, shows
        A one-line title, and the tables and figures of the paper that the runs reproduce.

    Examples
    --------
    >>> study = Study(name="try", datasets=["debtags"], strategies=["random", "adaptive"],
    ...               selection_pressures=[2, "64:1"], n_folds=3)
    >>> len(study.specs({"debtags": "ab12"}))
    9
    """

    name: str
    datasets: Sequence[NamedEntry]
    preparations: Sequence[str] = (defaults.PREPARATION,)
    models: Sequence[Entry] = (defaults.MODEL,)
    losses: Sequence[Entry] | None = defaults.LOSS
    strategies: Sequence[Entry] = defaults.STRATEGIES
    selection_pressures: Sequence[str | float] | None = None
    batch_sizes: Sequence[int] | None = None
    n_folds: int = defaults.N_FOLDS
    folds: Sequence[int] | None = None
    seeds: Sequence[int] = (defaults.SEED,)
    plan: TrainingPlan = None  # type: ignore[assignment]  # set by __post_init__
    scale: str = None  # type: ignore[assignment]
    title: str = ""
    shows: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Name everything, and reject what cannot run, before anything runs."""
        for field_, key in (("model", "models"), ("loss", "losses"), ("strategy", "strategies")):
            if getattr(self, key) is not None:
                object.__setattr__(self, key, named(field_, getattr(self, key)))
        names = _names(self.models)
        if vars(self)["plan"] is None:
            object.__setattr__(self, "plan", TrainingPlan.suited_to(*names))
        if vars(self)["scale"] is None:
            object.__setattr__(self, "scale", defaults.recipe_of(*names).scale)
        self._check_sources()
        check_known("metric", self.plan.best_by, METRICS, error=StudyError)
        check_known("scaling", self.scale, [*SCALINGS, "auto"], error=StudyError)
        for preparation in self.preparations:
            check_preparation(preparation, error=StudyError)
        _check_names("model", self.models, MODELS, CLASSICAL)
        _check_names("strategy", self.strategies, STRATEGIES, [NO_BATCHES])
        self._check_batches()
        self._check_losses()
        try:
            StudyPlan(name=self.name, specs=())
            # Only the datasets' digests are missing; everything else is checked by building it.
            self.specs({source.name: "" for source in self.sources})
            check_scheduler(self.plan)
            for entry, loss in itertools.product(self.models, self.losses or (None,)):
                _check_learner(entry, loss)
            for entry in self.strategies:
                # Pressures and seeds share the entry's options.
                for choice in itertools.islice(self._choices(entry), 1):
                    _check_options(choice)
        except StudyError:
            raise
        except (TailbatchError, TypeError, ValueError) as error:
            raise StudyError(f"study {self.name}: {error}") from error

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Where the datasets come from."""
        return tuple(Source.of(entry) for entry in self.datasets)

    def specs(
        self, digests: Mapping[str, str], scales: Mapping[tuple[str, str], str] | None = None
    ) -> tuple[RunSpec, ...]:
        """Return the runs; those to compare with each other are adjacent.

        `digests` are of each dataset's content, by name; `scales` say what the scaling ``"auto"`` is
        for each dataset and preparation, and without them no such run can be kept.
        """
        remembered = cache(_settled)
        suited = scales if scales is not None and self.scale == "auto" else {}
        axes: tuple[Sequence[Any], ...] = (
            [(s, p) for s in self.sources for p in self.preparations if s.has(p)],
            [_learner(*pair) for pair in itertools.product(self.models, self.losses or (None,))],
            range(min(self.n_folds, MAX_RUNS + 1)) if self.folds is None else self.folds,
            self.batch_sizes or (self.plan.batch_size,),
            [choice for entry in self.strategies for choice in self._choices(entry)],
        )
        if (count := math.prod(map(len, axes))) > MAX_RUNS:
            raise StudyError(
                f"study {self.name} has {count:,} runs or more, but a study can have at most "
                f"{MAX_RUNS:,}: split it into several studies"
            )
        once: dict[str, RunSpec] = {}
        for (source, preparation), learner, fold, *batches in itertools.product(*axes):
            for batch_size, choice in self._concerning(learner, *batches):
                chosen = {**learner.fields, **choice.fields}
                plan = {"batch_size": batch_size, "selection_loss": choice.selection_loss}
                spec = RunSpec(
                    dataset=source.name,
                    dataset_digest=digests[source.name],
                    preparation=preparation,
                    n_folds=self.n_folds,
                    fold=fold,
                    **chosen,
                    **_beside_names(remembered, chosen),
                    plan=replace(self.plan, **plan, **learner.plan),
                    selection_pressure=choice.selection_pressure,
                    seed=choice.seed,
                    scale=suited.get((source.name, preparation), self.scale),
                )
                once.setdefault(spec.digest, spec)
        return tuple(once.values())

    def _concerning(
        self, learner: "_Learner", batch_size: int, choice: "_Choice"
    ) -> Iterator[tuple[int, "_Choice"]]:
        """Yield the batch size and choice that apply to a model; without batches, only the seed does."""
        if learner.fields["model"] in CLASSICAL:
            loss = self.plan.selection_loss
            size = (self.batch_sizes or (self.plan.batch_size,))[0]
            yield size, _Choice(NO_BATCHES, None, loss, choice.seed, {})
        elif choice.strategy != NO_BATCHES:
            yield batch_size, choice

    def _check_sources(self) -> None:
        """Raise if two different sources share a name: their records could not be told apart."""
        seen: dict[str, Source] = {}
        for source in self.sources:
            other = seen.setdefault(source.name, source)
            if other != source:
                raise StudyError(
                    f"two datasets are called {source.name} ({other.file or 'catalog'} and "
                    f"{source.file or 'catalog'}): give one of them another name"
                )

    def _check_batches(self) -> None:
        networks = [name for name in _names(self.models) if name in MODELS]
        if set(_names(self.strategies)) == {NO_BATCHES} and networks:
            raise StudyError(
                f"the strategy {NO_BATCHES} is for models without batches ({', '.join(CLASSICAL)}), "
                f"and {networks[0]} needs one of: {', '.join(STRATEGIES)}"
            )

    def _check_losses(self) -> None:
        if self.losses and self.models and not self._networks:
            names = _names([*self.losses, *self.models])
            raise StudyError(
                f"the loss {names[0]} is for networks, and {names[-1]} takes none: leave losses out, or "
                f"add one of: {', '.join(MODELS)}"
            )

    @property
    def _networks(self) -> list[str]:
        return [name for name in _names(self.models) if name not in CLASSICAL]

    @property
    def notices(self) -> tuple[str, ...]:
        """What the study asks for and some of its models do not take.

        Examples
        --------
        >>> Study(name="try", datasets=["debtags"], models=["mlp", "forest"], losses=["focal"]).notices
        ('forest takes no loss: losses apply to mlp',)
        """
        alone = [name for name in _names(self.models) if name in CLASSICAL]
        if not self.losses or not alone:
            return ()
        names, networks = (", ".join(dict.fromkeys(some)) for some in (alone, self._networks))
        verb = "takes" if len(set(alone)) == 1 else "take"
        return (f"{names} {verb} no loss: losses apply to {networks}",)

    def _choices(self, entry: Entry) -> Iterator["_Choice"]:
        strategy, options = _settings(entry)
        seeds = options.pop("seeds", self.seeds)
        given = options.pop("selection_pressures", None)
        own = default_pressure(strategy)
        if own is None and given is not None:
            raise StudyError(f"the strategy {strategy} has no selection pressure; leave it out")
        wanted = given or self.selection_pressures
        pressures = [own] if own is None or not wanted else [parse_pressure(p) for p in wanted]
        loss = options.pop("selection_loss", self.plan.selection_loss)
        for seed, pressure in itertools.product(seeds, pressures):
            yield _Choice(strategy, pressure, loss, seed, options)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, quick: bool = False) -> Self:
        """Make a study from a TOML file's values; `quick` applies the changes in its table ``quick``.

        Examples
        --------
        >>> Study.from_dict({"name": "try", "datasets": ["debtags"], "stategies": ["random"]})
        Traceback (most recent call last):
        ...
        tailbatch.errors.StudyError: unknown key of a study 'stategies'; did you mean 'strategies'? ...
        """
        values = dict(values)
        changes = values.pop("quick", None)
        if quick:
            if not isinstance(changes, Mapping):
                name = values.get("name")
                raise StudyError(f"study {name} has no quick variant: add a table quick")
            values = _quick(values, changes)
        keys = [item.name for item in fields(cls)]
        for key in values:
            check_known("key of a study", key, keys, error=StudyError)
        for key in ("name", "datasets"):
            if key not in values:
                raise StudyError(f"a study needs the key {key}")
        for key, value in values.items():
            if key not in _NO_LISTS and not isinstance(value, list):
                raise StudyError(f"the key {key} of a study is a list, got {value!r}")
        try:
            known_fields(cls, values)
        except ResultError as error:
            raise StudyError(str(error)) from error
        plan = _plan(_names(values.get("models", cls.models)), values.get("plan", {}))
        return cls(**values | {"plan": plan})

    @classmethod
    def from_toml(cls, path: Path, *, quick: bool = False) -> Self:
        """Read a study file; ``extends = "table-2"`` starts from that study of the paper."""
        return cls.from_dict(_read(path), quick=quick)


def _beside_names(remembered: Callable[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run says of its model, loss and strategy beside their names and settings."""
    found = {
        field: remembered(field, fields[field], fields[given].get("preset"))
        for field, given in GIVEN.items()
        if fields.get(field) is not None
    }
    return {
        "by_default": {field: unset for field, (unset, _) in found.items() if unset},
        "code": {field: code for field, (_, code) in found.items() if code},
    }


def _settled(field: str, name: str, preset: str | None = None) -> tuple[dict[str, Any], str | None]:
    """Return the settings that a name stands for if none are given, and the digest of the user's code.

    Settings that are None or False are left out; the digest is None for what is of this package.
    """
    code: Any = CLASSICAL.get(name)
    if code is None and name in REGISTRIES[field]:
        code = REGISTRIES[field][name]
    found: dict[str, Any] = {}
    for kind in reversed(code.__mro__) if isinstance(code, type) else filter(None, [code]):
        makes = vars(kind).get("__init__", object) if isinstance(kind, type) else kind
        if inspect.isfunction(makes):
            parameters = inspect.signature(makes).parameters.values()
            found |= {
                each.name: each.default for each in parameters if each.name not in _OF_THE_RUN
            }
    if preset is not None:
        found |= getattr(code, "presets", {}).get(preset, {})
    settings = {}
    for key, value in found.items():
        items = value if isinstance(value, tuple | list) else [value]
        if value is not False and all(isinstance(item, int | float | str) for item in items):
            settings[key] = list(value) if isinstance(value, tuple) else value
    is_own = code is not None and not qualified_name(code).startswith("tailbatch.")
    return settings, source_digest(code) if is_own else None


class _Learner(NamedTuple):
    """A model with a loss: the fields of a run that describe it, and its own settings of the plan."""

    fields: dict[str, Any]
    plan: dict[str, Any]


def _learner(model: Entry, loss: Entry | None) -> _Learner:
    name, hyperparameters = _settings(model)
    lr = hyperparameters.pop("lr", None)
    fields: dict[str, Any] = {"model": name, "hyperparameters": hyperparameters}
    # One run has one spelling: cross-entropy is the default of models that take a loss.
    if name not in CLASSICAL and loss is not None and loss not in ("bce", {"name": "bce"}):
        fields["loss"], fields["loss_options"] = _settings(loss)
    return _Learner(fields, {} if lr is None else {"lr": lr})


def _check_learner(model: Entry, loss: Entry | None) -> None:
    """Raise unless a model can be made with its settings and trained with the loss."""
    name, settings = _settings(model)
    if name in CLASSICAL:
        make_classical(name, settings)
        return
    settings.pop("lr", None)
    named_loss, options = (None, {}) if loss is None else _settings(loss)
    check_hyperparameters(name, settings, named_loss and {"name": named_loss, **options})


class _Choice(NamedTuple):
    strategy: str
    selection_pressure: Pressure
    selection_loss: Any
    seed: int
    options: Mapping[str, Any]

    @property
    def fields(self) -> dict[str, Any]:
        return {"strategy": self.strategy, "strategy_options": self.options}


def known_studies() -> dict[str, Path]:
    """Return the study files inside the package by name."""
    return {path.stem: path for path in sorted(_STUDIES.glob("*.toml"))}


def load_study(name_or_path: str, *, quick: bool = False) -> Study:
    """Return a study inside the package by name, or the one in a TOML file.

    Examples
    --------
    >>> load_study("table-4").strategies
    ['adaptive', 'chain']
    >>> load_study("tabel-4")
    Traceback (most recent call last):
    ...
    tailbatch.errors.StudyError: unknown study or study file 'tabel-4'; did you mean 'table-4'? ...
    """
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return Study.from_toml(path, quick=quick)
    known = known_studies()
    check_known("study or study file", name_or_path, known, error=StudyError)
    return Study.from_toml(known[name_or_path], quick=quick)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(read_regular(path, _MAX_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:  # no file, no UTF-8, no TOML, too deep
        raise StudyError(f"the study file {path} cannot be read: {error}") from error
    base = values.pop("extends", None)
    if base is None:
        return values
    check_known("study to extend", base, known_studies(), error=StudyError)
    return {**_read(known_studies()[base]), **values}


def _quick(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's values with the changes of its quick variant, under a name ending in -quick."""
    plans = [values.get("plan", {}), changes.get("plan", {})]
    if not all(isinstance(plan, Mapping) for plan in plans):
        raise StudyError(f"the key plan of a study is a table, got {plans}")
    plan = {**plans[0], **plans[1]}
    names = {
        "name": f"{values.get('name')}-quick",
        "title": f"Quick variant, smaller than its name says: {values.get('title', '')}",
    }
    return {**values, **names, **changes, "plan": plan}


def _plan(models: Iterable[str], values: Mapping[str, Any]) -> TrainingPlan:
    """Return the plan that suits the models, with the changes in a study file."""
    keys = [item.name for item in fields(TrainingPlan)]
    if not isinstance(values, Mapping):
        raise StudyError(f"the key plan of a study is a table, got {values!r}")
    for key in values:
        check_known("key of a plan", key, keys, error=StudyError)
    try:
        lists: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in known_fields(TrainingPlan, values).items()
        }
        return TrainingPlan.suited_to(*models, **lists)
    except (ResultError, TypeError) as error:
        raise StudyError(f"plan: {error}") from error


def _check_options(choice: _Choice) -> None:
    """Make the strategy for a few rows, so that a bad option is reported before anything runs."""
    if choice.strategy == NO_BATCHES:
        if choice.options:
            raise StudyError(f"the strategy {NO_BATCHES} has no option {min(choice.options)!r}")
        return
    rows = np.eye(8, 2)
    # Settings that the study itself sets cannot also be options.
    own: dict[str, Any] = {"batch_size": 4, "warm_up_epochs": 0, "seed": 0, "epochs": 1}
    if given := own.keys() & choice.options.keys():
        raise StudyError(
            f"{min(given)} is set for all strategies together, not as an option of {choice.strategy}: "
            "see seeds, batch_sizes and plan"
        )
    make_selector(choice.strategy, rows, X=rows, **own, **choice.options)


def _check_names(
    what: str, entries: Sequence[Entry], known: Mapping[str, Any], others: Collection[str]
) -> None:
    for name in _names(entries):
        if name not in others and name not in known:  # also names known in this process only
            check_known(what, name, [*known, *others], error=StudyError)


def _names(entries: Iterable[Entry]) -> list[str]:
    return [_settings(entry)[0] for entry in entries]


def _settings(entry: Entry) -> tuple[str, dict[str, Any]]:
    """Return the name in an entry, and its settings."""
    if isinstance(entry, str):
        return entry, {}
    settings = dict(entry) if isinstance(entry, Mapping) else {}
    if not isinstance(settings.get("name"), str):
        raise StudyError(f"a table of settings needs a name, got {settings}")
    return settings.pop("name"), settings
