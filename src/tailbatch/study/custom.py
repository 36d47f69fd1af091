"""Custom strategies, models and losses of a study: their names in runs, and where they can run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, TypeAlias

from tailbatch.classical import CLASSICAL
from tailbatch.errors import StudyError
from tailbatch.losses import LOSSES, Loss
from tailbatch.models import MODELS
from tailbatch.registry import Registry, qualified_name, source_digest
from tailbatch.results import RunSpec
from tailbatch.selection import STRATEGIES

Entry: TypeAlias = str | Mapping[str, Any] | Callable[..., Any]
"""A name, a class, a function, or a table with one of them as its name, plus settings."""
NamedEntry: TypeAlias = str | Mapping[str, Any]
"""An entry whose name is a string, as in a study file."""

# What a run says elsewhere, or has one value of in every study.
_OF_THE_RUN = (
    "seed", "batch_size", "epochs", "warm_up_epochs", "selection_pressure", "loss", "max_lag", "shuffle",
)  # fmt: skip

REGISTRIES: Mapping[str, Registry[Any]] = {"strategy": STRATEGIES, "model": MODELS, "loss": LOSSES}
"""The registry for the names in each field of a run."""


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


def settled(field: str, name: str, preset: str | None = None) -> tuple[dict[str, Any], str | None]:
    """Return the settings that a name stands for if none are given, and the digest of the user's code.

    Settings that are None or False are left out; the digest is None for what is of this package.

    Examples
    --------
    >>> settled("loss", "focal"), settled("model", "logistic")
    (({'gamma': 2.0}, None), ({}, None))
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
    plain = {
        key: list(value) if isinstance(value, tuple) else value for key, value in found.items()
    }
    is_own = code is not None and not qualified_name(code).startswith("tailbatch.")
    return {key: value for key, value in plain.items() if _is_set(value)}, source_digest(
        code
    ) if is_own else None


def _is_set(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, int | float | str) for item in value)
    return isinstance(value, int | float | str) and value is not False
