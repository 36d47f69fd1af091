"""Keys of comparisons as values: an arm, a learner, a dataset, a cell.

The frames of `tailbatch.analysis` carry these keys in their columns ``arm``, ``learner`` and ``data``.
A key is identified by its fields, is written as its `label`, and sorts by its `sort_key`; no code parses
a label.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.results import NO_BATCHES, Pressure, parse_pressure, pressure_text
from tailbatch.results.frames import Evidence
from tailbatch.selection import default_pressure, strategy_place

#: Columns of a frame that name a cell.
CELL = ["data", "learner"]
#: Columns that a pair of runs shares.
PAIR = [*CELL, "fold", "seed"]
# Columns of a plan that belong to the arm, or change what is recorded but not the training.
_APART = ("plan_selection_loss", "plan_sample_loss_epochs", "plan_training_loss_every")
_OWN: Any = "own"  # the strategy's default pressure


class Key:
    """A value to join frames on: written as its label, sorted by its sort key."""

    # Label, sort key and hash are cached: tables need those of a few keys a hundred thousand times.

    @cached_property
    def label(self) -> str:
        """The name for readers."""
        raise NotImplementedError

    @cached_property
    def sort_key(self) -> tuple[Any, ...]:
        """The value by which keys of one kind are sorted."""
        return (self.label,)

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        compared = (item.name for item in fields(self) if item.compare)  # type: ignore[arg-type]
        return tuple(getattr(self, name) for name in compared)

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Key)
            and type(self) is type(other)
            and self._hash == other._hash
            and self._identity == other._identity
        )

    def __str__(self) -> str:
        return self.label

    def __lt__(self, other: "Key") -> bool:
        return self.sort_key < other.sort_key


@dataclass(frozen=True, eq=False)
class Arm(Key):
    """A way to choose batches, and anything else that is compared within a cell.

    Parameters
    ----------
    strategy, pressure, options
        The strategy, its selection pressure (by default its own), and its options as JSON.
    selection_loss
        The losses the selector observes.
    loss, rate, best_of
        The loss, the learning rate and the number of tries of a best-of choice, if they are compared.
    usual
        The strategy's primary arm, whose label is the strategy's name; by default the one with the
        strategy's own pressure and no options.
    place
        Its order in reports; by default the strategy's.

    Examples
    --------
    >>> arms = [Arm("adaptive", (64.0, 1.0)), Arm("adaptive", 64.0), Arm("adaptive"), Arm("random")]
    >>> [str(arm) for arm in sorted(arms)]
    ['random', 'adaptive', 'adaptive 64', 'adaptive 64:1']
    """

    strategy: str
    pressure: Pressure = _OWN
    options: str = "{}"
    selection_loss: str = "bce"
    loss: str | None = None
    rate: str | None = None
    best_of: int | None = None
    usual: "Arm | None" = field(default=None, compare=False, repr=False)
    place: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.pressure is _OWN:
            object.__setattr__(self, "pressure", default_pressure(self.strategy))

    @cached_property
    def _primary(self) -> "Arm":
        return self.usual or Arm(self.strategy)

    @cached_property
    def is_primary(self) -> bool:
        """Whether this arm represents its strategy."""
        return self._setting == self._primary._setting

    @property
    def draws_batches(self) -> bool:
        """Whether it has a strategy; a learner without batches has none."""
        return self.strategy != NO_BATCHES

    @property
    def _setting(self) -> tuple[Any, ...]:
        return self.pressure, self.options, self.selection_loss

    @cached_property
    def label(self) -> str:
        """The strategy and how the arm differs from the primary one."""
        usual = self._primary
        parts = [] if self.loss is None else [f"{self.loss},"]
        parts += [self.strategy]
        parts += [pressure_text(self.pressure)] if self.pressure != usual.pressure else []
        parts += [self.options] if self.options != usual.options else []
        heard = self.selection_loss
        parts += [f"on {heard} loss"] if heard != usual.selection_loss else []
        parts += [f"at {self.rate}"] if self.rate else []
        parts += [f"(best of {self.best_of})"] if self.best_of else []
        return " ".join(parts)

    @cached_property
    def sort_key(self) -> tuple[Any, ...]:
        """The strategy's position, then the pressure if it differs from the primary arm's."""
        numbers: tuple[float, ...] = ()
        if self.pressure != self._primary.pressure and not isinstance(self.pressure, str | None):
            numbers = self.pressure if isinstance(self.pressure, tuple) else (self.pressure,)
        place = strategy_place(self.strategy) if self.place is None else self.place
        return place, self.strategy, numbers, self.label


@dataclass(frozen=True, eq=False)
class Learner(Key):
    """A model and its settings.

    Parameters
    ----------
    model, settings
        The model, and its hyperparameters as JSON.
    loss, loss_options
        The loss in its objective, empty for the model's own, and its options as JSON.
    rate
        Its learning rate, if it differs from the usual one of the comparison.
    says_settings
        Whether the label includes the settings, because a model has several.

    Examples
    --------
    >>> Learner("mlp").label, Learner("mlp", loss="asymmetric").label
    ('mlp', 'mlp asymmetric')
    """

    model: str
    settings: str = "{}"
    loss: str = ""
    loss_options: str = "{}"
    rate: float | None = None
    says_settings: bool = field(default=False, compare=False, repr=False)

    @cached_property
    def label(self) -> str:
        """The model, and its settings that vary."""
        name = f"{self.model} {self.settings}" if self.says_settings else self.model
        name += f" {self.loss}" if self.loss else ""
        name += self.loss_options if self.loss_options != "{}" else ""
        return name if self.rate is None else f"{name}, lr {self.rate}"

    @property
    def loss_name(self) -> str:
        """The loss it is trained with; models that take one use cross-entropy by default."""
        return self.loss or "bce"


@dataclass(frozen=True, eq=False)
class Dataset(Key):
    """A dataset, its preparation, and other settings that vary and belong to neither arm nor learner.

    ``says_digest`` makes the digest part of the label, where several datasets share the name.

    Examples
    --------
    >>> Dataset("scene", setting=(("lr", "0.001"),)).label
    'scene, lr 0.001'
    """

    name: str
    preparation: str = "full"
    digest: str = ""
    setting: tuple[tuple[str, str], ...] = ()
    says_digest: bool = field(default=False, compare=False, repr=False)

    @cached_property
    def label(self) -> str:
        """The name, and the settings that vary."""
        name = f"{self.name} {self.digest[:6]}" if self.says_digest else self.name
        return ", ".join([name, *(f"{what} {value}" for what, value in self.setting)])


@dataclass(frozen=True, eq=False)
class Cell(Key):
    """A dataset with a learner: the unit within which arms are compared.

    Examples
    --------
    >>> Cell(Dataset("scene"), Learner("mlp")).label
    'mlp on scene'
    """

    dataset: Dataset
    learner: Learner

    @cached_property
    def label(self) -> str:
        """Both names."""
        return f"{self.learner} on {self.dataset}"

    @cached_property
    def sort_key(self) -> tuple[Any, ...]:
        """The dataset's key, then the learner's."""
        return self.dataset, self.learner


def by_label(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a table sorted by some columns, with keys in alphabetical order."""
    keys = (*CELL, "arm")
    return table.sort_values(
        list(columns), key=lambda column: column.map(str) if column.name in keys else column
    )


def named(evidence: Evidence) -> Evidence:
    """Return the evidence with the keys ``data``, ``learner`` and ``arm`` of each run, absent ones too.

    A strategy that ran with several pressures or options has one primary arm: the one with its default
    pressure if present, else the one with the most runs.

    Examples
    --------
    >>> runs = pd.DataFrame({"dataset": ["scene"] * 2, "model": ["mlp"] * 2,
    ...                      "strategy": ["adaptive"] * 2, "selection_pressure": ["16", "64"]})
    >>> empty = pd.DataFrame()
    >>> keyed = named(Evidence(runs=runs, curves=empty, labels=empty, losses=empty))
    >>> [str(arm) for arm in keyed.runs["arm"]]
    ['adaptive', 'adaptive 64']
    """
    # Together, so that a missing run has the name its record would have.
    both = evidence.runs
    if len(evidence.absent):
        both = pd.concat([evidence.runs, evidence.absent], ignore_index=True)
    keys: dict[str, Sequence[Key]] = {
        "data": _datasets(both),
        "learner": _learners(both),
        "arm": _arms(both),
    }
    both = both.assign(**{name: _objects(of) for name, of in keys.items()})
    if evidence.absent.empty:
        return replace(evidence, runs=both)
    count = len(evidence.runs)
    return replace(evidence, runs=both[:count].drop(columns="reason"), absent=both[count:])


def _objects(keys: Sequence[Key]) -> np.ndarray:
    made = np.empty(len(keys), dtype=object)
    made[:] = keys
    return made


def _datasets(runs: pd.DataFrame) -> list[Dataset]:
    settings = [name for name in runs if name.startswith("plan_") and name not in _APART]
    settings += [name for name in ("preparation", "n_folds") if name in runs]
    setting = [name for name in runs if name in settings and runs[name].astype(str).nunique() > 1]
    titles = [column.removeprefix("plan_").replace("_", " ") for column in setting]
    contents = _column(runs, "dataset_digest", "")
    several = contents.groupby(runs["dataset"]).transform("nunique") > 1
    plain = runs["dataset"].astype(str), _column(runs, "preparation", "full"), contents, several
    values = (runs[column].astype(str) for column in setting)

    @cache  # a table has many rows of few datasets
    def made(name: str, preparation: str, digest: str, several: bool, *values: str) -> Dataset:
        setting = tuple(zip(titles, values, strict=True))
        return Dataset(name, preparation, digest, setting, several)

    return [made(*row) for row in zip(*plain, *values, strict=True)]


def _learners(runs: pd.DataFrame) -> list[Learner]:
    settings = _column(runs, "hyperparameters", "{}")
    several = settings.groupby(runs["model"]).transform("nunique") > 1
    losses = _column(runs, "loss", ""), _column(runs, "loss_options", "{}")
    made: dict[tuple[Any, ...], Learner] = {}
    return [
        made.setdefault(row, Learner(*row[:4], says_settings=bool(row[4])))
        for row in zip(runs["model"].astype(str), settings, *losses, several, strict=True)
    ]


def _arms(runs: pd.DataFrame) -> list[Arm]:
    pressures = _column(runs, "selection_pressure", "")
    options = _column(runs, "strategy_options", "{}")
    heard = _column(runs, "plan_selection_loss", "bce")
    rows = list(zip(runs["strategy"].astype(str), pressures, options, heard, strict=True))
    counts = Counter(rows)
    arms = {
        row: Arm(row[0], parse_pressure(row[1]) if row[1] else None, *row[2:])
        for row in sorted(counts)
    }
    usual: dict[str, Arm] = {}
    for row in sorted(counts, key=lambda row: (*_oddity(arms[row]), -counts[row], row)):
        usual.setdefault(row[0], arms[row])
    made = {row: replace(arm, usual=usual[arm.strategy]) for row, arm in arms.items()}
    return [made[row] for row in rows]


def _oddity(arm: Arm) -> tuple[bool, bool, bool]:
    """Return how far an arm is from the paper's setting, to find the primary one."""
    own = Arm(arm.strategy)
    return arm.options != "{}", arm.selection_loss != "bce", arm.pressure != own.pressure


def _column(runs: pd.DataFrame, name: str, default: str) -> pd.Series:
    return runs.get(name, pd.Series(default, runs.index)).astype(str)
