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

REGISTRIES: Mapping[str, Registry[Any]] = {
    "strategy": STRATEGIES,
    "model": MODELS,
    "loss": LOSSES,
}
"""The registry for the names in each field of a run."""


class Custom(NamedTuple):
    """A strategy, model or loss from outside the package, and whether its name is registered."""

    field: str
    name: str
    code: Any
    registered: bool = True


def named(field: str, entries: Sequence[Entry]) -> Sequence[NamedEntry]:
    """Return a study's entries with names in place of classes and functions.

    Examples
    --------
    >>> from tailbatch.selection import HardSelector
    >>> named("strategy", ["random", HardSelector, {"name": HardSelector, "max_lag": 1}])
    ['random', 'hard', {'name': 'hard', 'max_lag': 1}]
    >>> named("model", [7])
    Traceback (most recent call last):
    ...
    tailbatch.errors.StudyError: a model is a name, a table, a class or a function, got 7
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
    called = getattr(entry, "strategy" if field == "strategy" else "name", None)
    return REGISTRIES[field].name_of(entry, called if isinstance(called, str) else None)


def customs_of(spec: RunSpec) -> tuple[Custom, ...]:
    """Return the code from outside the package that a run needs, as known in this process.

    Examples
    --------
    >>> customs_of(RunSpec(dataset="a", dataset_digest="", strategy="hard"))
    ()
    """
    customs = []
    for field, registry in REGISTRIES.items():
        name = getattr(spec, field)
        code = registry.loaded(name)
        if code is not None and not qualified_name(code).startswith("tailbatch."):
            customs.append(Custom(field, name, code, registry.is_registered(name)))
    return tuple(customs)


def code_digest(field: str, name: str) -> str | None:
    """Return the digest of the code behind a name; None if it is this package's.

    Examples
    --------
    >>> code_digest("strategy", "hard") is None
    True
    """
    registry = REGISTRIES[field]
    if name not in registry or qualified_name(registry[name]).startswith("tailbatch."):
        return None
    return source_digest(registry[name])


def defaults_of(field: str, name: str, preset: str | None = None) -> dict[str, Any]:
    """Return the settings that a model, loss or strategy takes if none are given, but None and False.

    Examples
    --------
    >>> defaults_of("loss", "focal"), defaults_of("model", "logistic")
    ({'gamma': 2.0}, {})
    >>> defaults_of("model", "mlp")["hidden"]
    [512]
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
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}
    return {name: value for name, value in plain.items() if _is_set(value)}


def _is_set(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, int | float | str) for item in value)
    return isinstance(value, int | float | str) and value is not False


def can_travel(custom: Custom) -> bool:
    """Return whether another process can import the code; it cannot if a script or notebook defines it.

    Examples
    --------
    >>> import collections
    >>> can_travel(Custom("model", "count", collections.Counter))
    True
    >>> can_travel(Custom("model", "local", lambda n_features, n_labels: None))
    False
    """
    if qualified_name(custom.code).startswith("__main__."):
        return False
    try:
        ForkingPickler.dumps(custom.code)
    except Exception:  # hooks of foreign objects may raise anything
        return False
    return True


def make_known(customs: Sequence[Custom]) -> None:
    """Register code that came from another process under the names it has there."""
    for custom in customs:
        registry = REGISTRIES[custom.field]
        if registry.loaded(custom.name) is not None:
            continue
        if custom.registered:
            registry.add(custom.name, custom.code)
        else:
            registry.name_of(custom.code, custom.name.rpartition("_")[0])


def unregistered(spec: RunSpec) -> dict[str, str]:
    """Return where the code named by a digest is defined, by field of the run.

    Examples
    --------
    >>> unregistered(RunSpec(dataset="a", dataset_digest="", strategy="hard"))
    {}
    """
    return {
        custom.field: qualified_name(custom.code)
        for custom in customs_of(spec)
        if not custom.registered
    }
