"""What a run is: which data, model, strategy and seed, trained by which plan."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property
from numbers import Real
from types import UnionType
from typing import Any, Literal, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

from tailbatch import defaults
from tailbatch.errors import ResultError, setting

SCHEMA = 3
"""Increased when the meaning of a spec or record changes; records of another number are left alone."""

_FEWEST_EPOCHS = 5
"""That a ceiling of steps leaves, if the plan has as many."""

_LARGEST = sys.float_info.max
_CHOICES = {
    "selection_loss": ("bce", "model"),
    "schedule": ("constant", "cosine"),
    "optimizer": ("adam", "adamw", "adam_mini"),
}
_MODULE = re.compile(r"\b[a-z_]+\.")

NO_BATCHES = "none"
"""The strategy of a learner without batches (`tailbatch.classical`)."""

Pressure: TypeAlias = float | tuple[float, float] | Literal["imbalance"] | None
"""A number, a pair (from, to) annealed geometrically, ``"imbalance"`` for the labels' own imbalance, or
None for a strategy without pressure."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a model is trained; the same for every strategy that is compared.

    The defaults are the paper's: Adam with L2 1e-4 and batches of 128, and, from its authors' script,
    learning rate 1e-4 with a linear warm-up over the warm-up epochs, and 100 epochs.

    Parameters
    ----------
    epochs, batch_size
        Passes of n drawn samples each, including the warm-up, and samples per batch.
    lr, weight_decay
        The optimizer's step size and decay.
    warm_up_epochs
        Plain shuffled epochs at the start, over which a constant learning rate is reached linearly.
    selection_loss
        The losses the selector observes: ``"bce"``, each label's binary cross-entropy, or ``"model"``,
        each sample's share of the model's own objective.
    best_by
        The validation metric that picks the best epoch.
    early_stopping
        Stop after this many evaluated epochs without improvement; None never stops early.
    scheduler, scheduler_options
        A class of ``torch.optim.lr_scheduler`` by name, stepped once per epoch after the warm-up, and
        its arguments.
    gradient_clip
        Largest gradient norm; None does not clip.
    training_loss_every
        Epochs between measurements of objective and BCE over all training rows; 0 never measures them.
        None measures every epoch up to 20,000 rows, and every tenth above.
    sample_loss_epochs
        Epochs (from 1) after which every training sample's BCE and objective are kept.
    schedule, warm_up_share
        ``"constant"`` after the rise over the warm-up epochs; or ``"cosine"``: a linear rise over this
        share of all steps, then a cosine to zero. With a cosine, the warm-up epochs only determine how
        long batches are shuffled.
    optimizer
        ``"adam"``, whose decay is an L2 penalty on the objective; ``"adamw"``, whose decay is decoupled
        from the gradient; or ``"adam_mini"``: AdamW with one second moment per output unit.
    ema
        Decay of a moving average of the weights, which is evaluated and kept, for instance 0.99.
    steps
        Number of batches to train on, instead of `epochs`; the last epoch may be cut short.
    evaluate_every
        Score the validation rows at the first end of an epoch at least this many steps after the last
        evaluation, and at the very end. More than 1 is for small data, whose epochs are short.
    min_steps, max_steps
        Train on at least this many batches: on small data, for more than `epochs` epochs. And, where
        that is more than five epochs, on at most this many. Ignored if `steps` is given.

    Examples
    --------
    >>> TrainingPlan(steps=1000).n_epochs(n_samples=2_000)
    63
    >>> plan = TrainingPlan(epochs=25, min_steps=400, max_steps=800)
    >>> [plan.n_epochs(n) * -(-n // 128) for n in (500, 3_000, 6_000, 50_000)]
    [400, 600, 799, 1955]
    >>> TrainingPlan(epochs=0)
    Traceback (most recent call last):
    ...
    tailbatch.errors.ResultError: epochs must be at least 1, got 0
    """

    epochs: int = 100
    batch_size: int = defaults.BATCH_SIZE
    lr: float = 1e-4
    weight_decay: float = 1e-4
    warm_up_epochs: int = 3
    selection_loss: Literal["bce", "model"] = "bce"
    best_by: str = "macro_auc"
    early_stopping: int | None = None
    scheduler: str | None = None
    scheduler_options: Mapping[str, Any] = field(default_factory=dict)
    gradient_clip: float | None = None
    training_loss_every: int | None = None
    sample_loss_epochs: tuple[int, ...] = ()
    schedule: Literal["constant", "cosine"] = "constant"
    warm_up_share: float = 0.1
    optimizer: Literal["adam", "adamw", "adam_mini"] = "adam"
    ema: float | None = None
    steps: int | None = None
    evaluate_every: int = 1
    min_steps: int = 0
    max_steps: int | None = None

    def __post_init__(self) -> None:
        _at_least(1, epochs=self.epochs, batch_size=self.batch_size)
        _at_least(1, early_stopping=self.early_stopping)
        _at_least(0, warm_up_epochs=self.warm_up_epochs, weight_decay=self.weight_decay)
        _at_least(0, training_loss_every=self.training_loss_every)
        _at_least(1, steps=self.steps, evaluate_every=self.evaluate_every)
        _at_least(0, min_steps=self.min_steps)
        _at_least(1, max_steps=self.max_steps)
        _at_least(0, excluded=True, lr=self.lr, gradient_clip=self.gradient_clip)
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise _no_choice(name, getattr(self, name), known)
        _at_least(None, warm_up_share=self.warm_up_share, ema=self.ema)
        if not 0 <= self.warm_up_share < 1:
            raise ResultError(f"warm_up_share must be in [0, 1), got {self.warm_up_share}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ResultError(
                f"ema must lie between 0 and 1, got {self.ema} (None keeps the weights themselves)"
            )
        if self.schedule == "cosine" and self.scheduler is not None:
            raise ResultError(
                f'schedule="cosine" already sets every rate, so scheduler={self.scheduler!r} cannot: '
                "leave one of them out"
            )
        last = math.inf if self.steps or self.min_steps else self.epochs
        for epoch in self.sample_loss_epochs:
            if not 1 <= epoch <= last:
                raise ResultError(
                    f"sample_loss_epochs must lie between 1 and epochs ({self.epochs}), got {epoch}"
                )

    @classmethod
    def suited_to(cls, *models: object, **changes: Any) -> Self:
        """Return the plan that suits these models, with other settings; None leaves one as it is.

        An explicit number of epochs or steps is exact, on small data too. Of few epochs at most a tenth
        is warm-up, so that selection has epochs to work in.

        Examples
        --------
        >>> TrainingPlan.suited_to("ensemble", epochs=2, lr=None).n_epochs(n_samples=128)
        2
        """
        return cls(**defaults.recipe_of(*models).plan).changed(**changes)

    def changed(self, **changes: Any) -> Self:
        """Return the plan with other settings, as `suited_to`."""
        given = dict(changes)
        for name, value in changes.items():
            if value is None:
                del given[name]
        if isinstance(epochs := given.get("epochs"), int):
            given.setdefault("warm_up_epochs", min(self.warm_up_epochs, epochs // 10))
        if given.keys() & {"epochs", "steps"}:
            given.setdefault("min_steps", 0)
        if given.keys() & {"epochs", "steps", "min_steps"} and "max_steps" not in given:
            return replace(self, **given, max_steps=None)
        return replace(self, **given)

    def n_epochs(self, n_samples: int) -> int:
        """Return how many epochs training on this many samples takes; the last may be cut short."""
        per_epoch = math.ceil(n_samples / self.batch_size)
        if self.steps is None:
            most = math.inf if self.max_steps is None else self.max_steps // per_epoch
            epochs = max(min(self.epochs, most), min(self.epochs, _FEWEST_EPOCHS))
            return int(max(epochs, math.ceil(self.min_steps / per_epoch)))
        return math.ceil(self.steps / per_epoch)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: which data, model, strategy and seed, trained by which plan.

    Parameters
    ----------
    dataset, dataset_digest
        The dataset's name, and a hexadecimal digest of its content: two files of one name are two
        datasets.
    preparation
        How the dataset is prepared, as in `tailbatch.data.prepare`.
    n_folds, fold
        How many folds there are and which one is held out, from 0; they do not depend on `seed`.
    model, hyperparameters
        The model's name, and the settings that were given.
    loss, loss_options
        The loss in the model's objective, and its given options; None is the model's own loss.
    strategy, selection_pressure, strategy_options
        The selection strategy, or ``"none"`` for a learner without batches (`tailbatch.classical`), to
        which the plan does not apply; its pressure, None if it has none; and its other given options.
    seed
        Determines the initial weights, the batches and the noise.
    plan
        How the model is trained.
    scale
        How features are scaled by the training rows, as for `tailbatch.data.fit_scaling`.
    by_default
        The settings of ``model``, ``loss`` and ``strategy`` that were not given, as they were: a changed
        default does not change what a run is. None and False are left out, so that a new setting that is
        off does not either.
    code
        A digest of the code behind each of ``model``, ``loss`` and ``strategy`` that is not of this
        package (`tailbatch.registry.source_digest`).

    Examples
    --------
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12", model="mlp", strategy="adaptive")
    >>> RunSpec.from_dict(spec.to_dict()) == spec
    True
    """

    dataset: str
    dataset_digest: str
    preparation: str = defaults.PREPARATION
    n_folds: int = defaults.N_FOLDS
    fold: int = 0
    model: str = "mlp"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    loss: str | None = None
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "adaptive"
    selection_pressure: Pressure = 16.0
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = defaults.SEED
    plan: TrainingPlan = field(default_factory=TrainingPlan)
    scale: str = "minmax"
    by_default: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _at_least(2, n_folds=self.n_folds)
        _at_least(0, fold=self.fold, seed=self.seed)
        if self.fold >= self.n_folds:
            raise ResultError(f"fold must be below n_folds ({self.n_folds}), got {self.fold}")
        if self.loss is None and self.loss_options:
            raise ResultError(f"loss_options need a loss, got {dict(self.loss_options)!r:.60}")
        for name in {**self.by_default, **self.code}:
            if name not in GIVEN:
                raise _no_choice("a key of by_default and code", name, GIVEN)
        # One spelling per pressure; otherwise 16 and 16.0 would be two runs.
        pressure = self.selection_pressure
        if pressure is None or pressure == "imbalance":
            return
        for value in pressure if isinstance(pressure, tuple | list) else (pressure,):
            _at_least(1, selection_pressure=value)
        if isinstance(pressure, tuple | list):
            start, end = pressure
            object.__setattr__(self, "selection_pressure", (float(start), float(end)))
        else:
            object.__setattr__(self, "selection_pressure", float(pressure))

    @cached_property
    def digest(self) -> str:
        """The name of the run: equal settings, given or not, have equal digests."""
        values = self._values()
        unset = values.pop("by_default")
        for name, given in GIVEN.items():
            values[given] = {**unset.get(name, {}), **values[given]}
        if self.strategy == NO_BATCHES:
            del values["plan"]
        values["schema"] = SCHEMA
        canonical = json.dumps(values, sort_keys=True, default=_refuse)
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        plain: dict[str, Any] = json.loads(json.dumps(self._values(), default=_refuse))
        return plain

    def _values(self) -> dict[str, Any]:
        # Not asdict, which copies every value: a study computes a digest for each of its runs.
        plan = _fields_of(self.plan)
        if plan["max_steps"] is None:  # as runs were named before there was a ceiling
            del plan["max_steps"]
        return {**_fields_of(self), "plan": plan}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Undo `to_dict`; unknown or missing keys are errors."""
        spec = known_fields(cls, values)
        plan = known_fields(TrainingPlan, spec.get("plan", {}))
        plan["sample_loss_epochs"] = tuple(plan.get("sample_loss_epochs", ()))
        spec["plan"] = TrainingPlan(**plan)
        return cls(**spec)


GIVEN = {"model": "hyperparameters", "loss": "loss_options", "strategy": "strategy_options"}


def _fields_of(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without copies or cached properties."""
    return {each.name: getattr(item, each.name) for each in fields(item)}


def _refuse(value: object) -> object:
    raise ResultError(
        f"options must be strings, numbers, booleans, or lists and tables of them, got {value!r}"
    )


def parse_pressure(text: str | float) -> Pressure:
    """Parse a pressure: a number, ``"64:1"`` for one annealed from 64 to 1, or ``"imbalance"``.

    Examples
    --------
    >>> parse_pressure("64:1"), parse_pressure(16), parse_pressure("imbalance")
    ((64.0, 1.0), 16.0, 'imbalance')
    >>> parse_pressure("strong")
    Traceback (most recent call last):
    ...
    tailbatch.errors.ResultError: selection pressure must be a number from 1, two such as 64:1 for ...
    """
    if text == "imbalance":
        return "imbalance"
    parts = str(text).split(":")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if len(values) not in (1, 2) or not all(math.isfinite(v) and v >= 1 for v in values):
        raise ResultError(
            "selection pressure must be a number from 1, two such as 64:1 for an annealed one, or "
            f"imbalance, got {text!r}"
        )
    return values[0] if len(values) == 1 else (values[0], values[1])


def pressure_text(pressure: Pressure) -> str:
    """Format a pressure; undo `parse_pressure`.

    Examples
    --------
    >>> pressure_text((64.0, 1.0)), pressure_text(16.0), pressure_text(None)
    ('64:1', '16', '')
    """
    if pressure is None or pressure == "imbalance":
        return pressure or ""
    values = pressure if isinstance(pressure, tuple) else (pressure,)
    return ":".join(f"{value:g}" for value in values)


def known_fields(kind: type, values: Any) -> dict[str, Any]:
    """Return `values` as keyword arguments of the dataclass `kind`, rejecting unknown ones."""
    if not isinstance(values, Mapping):
        raise ResultError(f"{kind.__name__} must be a table of values, got {type(values).__name__}")
    hints = _hints(kind)
    for name, value in values.items():
        if name not in hints:
            raise ResultError(f"{kind.__name__} has no field {name!r}")
        if not _fits(value, hints[name]):
            hint = hints[name]
            wanted = hint.__name__ if isinstance(hint, type) else _MODULE.sub("", str(hint))
            raise ResultError(
                f"{name} of {kind.__name__} cannot be {value!r:.40}, it is of type {wanted}"
            )
    return dict(values)


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


@cache
def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type's origin and arguments; cached, as a thousand records need the same few."""
    return get_origin(hint), get_args(hint)


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value from JSON or TOML is of a type; lists stand for tuples."""
    kind, of = _taken_apart(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, option) for option in of)
    if kind is Literal:
        return isinstance(value, str) and value in of
    if kind is tuple and Ellipsis not in of:
        is_as_long = isinstance(value, list | tuple) and len(value) == len(of)
        return is_as_long and all(map(_fits, value, of))
    if kind in (tuple, list, Sequence):
        return isinstance(value, list | tuple) and all(_fits(item, of[0]) for item in value)
    if kind is Mapping:
        # A record's curves are hundreds of such tables: values that may be anything are not checked.
        anything = of[1] is Any
        return isinstance(value, Mapping) and (
            anything or all(_fits(item, of[1]) for item in value.values())
        )
    if kind in (type, Callable):
        return callable(value)
    if is_dataclass(hint):
        return True  # the constructor checks it more closely
    if hint in (int, float):
        is_number = isinstance(value, int if hint is int else int | float)
        return is_number and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)


class _WrongTypeError(ResultError, TypeError):
    """A value that is not of its field's type."""


def _at_least(bound: int | None, *, excluded: bool = False, **values: Any) -> None:
    """Raise unless settings are None, or numbers from a bound, or above it if that is excluded."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Real):
            raise _WrongTypeError(f"{setting(name)} must be a number, got {value!r:.60}")
        if bound is None:
            continue
        number: Any = value  # a `Real`, which types know nothing of
        if not bound <= number <= _LARGEST or (excluded and number == bound):
            least = "above" if excluded else "at least"
            raise ResultError(f"{setting(name)} must be {least} {bound}, got {value}")


def _no_choice(name: str, value: str, known: Iterable[str]) -> ResultError:
    choices = " or ".join(f'"{choice}"' for choice in known)
    return ResultError(f"{setting(name)} must be {choices}, got {value!r}")
