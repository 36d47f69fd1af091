"""Study files that repeat the runs of a report: the way from any number back to a command."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

from tailbatch.data.catalog import catalog
from tailbatch.results import NO_BATCHES, DatasetFacts, RunSpec

Row: TypeAlias = tuple[str, ...]
_Facts: TypeAlias = Mapping[tuple[str, str], DatasetFacts]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x7f-\x9f]")


def study_files(
    specs: Iterable[RunSpec], datasets: Mapping[str, DatasetFacts], name: str
) -> dict[str, str]:
    """Return study files by name whose runs are exactly `specs`; a single file if they form a grid.

    Datasets that come from files are named without their folder.

    Examples
    --------
    >>> specs = [RunSpec(dataset="debtags", dataset_digest="ab12", fold=fold) for fold in (0, 1)]
    >>> files = study_files(specs, {}, "mine")
    >>> "folds = [0, 1]" in files["mine.toml"]
    True
    """
    facts = {(dataset.name, dataset.digest): dataset for dataset in datasets.values()}
    studies = [
        (json.loads(plan), rest)
        for plans, *rest in _grids([_row(spec) for spec in specs])
        for plan in plans
    ]
    names = [name] if len(studies) == 1 else [f"{name}-{turn + 1}" for turn in range(len(studies))]
    return {
        f"{study}.toml": _study(study, plan, rest, facts)
        for study, (plan, rest) in zip(names, studies, strict=True)
    }


def _grids(rows: Sequence[Row]) -> list[list[list[str]]]:
    """Split rows into grids; a grid lists the values of every column and stands for all combinations."""
    if not rows or not rows[0]:
        return [[]] if rows else []
    rests: dict[str, dict[Row, None]] = {}
    for first, *rest in rows:
        rests.setdefault(first, {})[tuple(rest)] = None
    alike: dict[frozenset[Row], list[str]] = {}
    for first, some in rests.items():
        alike.setdefault(frozenset(some), []).append(first)
    return [[values, *rest] for values in alike.values() for rest in _grids(list(rests[values[0]]))]


def _row(spec: RunSpec) -> Row:
    """Return a run's position in a study: its plan, then one text for each list of a study file."""
    plan = spec.to_dict()["plan"]
    size, loss, lr = (plan.pop(name) for name in ("batch_size", "selection_loss", "lr"))
    alone = spec.strategy == NO_BATCHES  # a learner without batches has no rate of its own
    plan |= {"lr": lr} if alone else {}
    choice = (spec.strategy, spec.strategy_options, loss, spec.selection_pressure, spec.seed)
    parts = (
        {"n_folds": spec.n_folds, "scale": spec.scale, "plan": plan},
        (spec.dataset, spec.dataset_digest),
        spec.preparation,
        # The rate goes with the model, which may have its own, so that both are one list.
        {"name": spec.model} | ({} if alone else {"lr": lr}) | dict(spec.hyperparameters),
        spec.loss and {"name": spec.loss, **spec.loss_options},
        size,
        spec.fold,
        choice,
    )
    return tuple(json.dumps(part) for part in parts)


def _study(name: str, plan: dict[str, Any], lists: list[list[str]], facts: _Facts) -> str:
    sources, preparations, models, losses, sizes, folds, choices = (
        [json.loads(text) for text in texts] for texts in lists
    )
    values = {
        "name": name,
        "n_folds": plan["n_folds"],
        "scale": plan["scale"],
        "datasets": [_dataset(source, facts) for source in sources],
        "preparations": preparations,
        "models": models,
        # "bce" is the default of models that take a loss.
        "losses": [loss or "bce" for loss in losses] if any(losses) else None,
        "batch_sizes": sorted(sizes),
        "folds": sorted(folds),
        "strategies": list(_strategies(choices)),
    }
    lines = [*_assigned(values), "", "[plan]", *_assigned(plan["plan"])]
    return "\n".join(lines) + "\n"


def _dataset(source: list[str], facts: _Facts) -> Any:
    """Return a study's entry for a dataset: its name, or its file and where the labels are."""
    name, digest = source
    known = facts.get((name, digest))
    if name in catalog() or known is None:
        return name
    labels = known.labels
    if isinstance(labels, str) and labels.casefold().endswith(".xml"):
        labels = PurePath(labels).name
    entry = {"name": name, "path": PurePath(known.path).name, "labels": labels, **known.columns}
    return {key: value for key, value in entry.items() if value is not None}


def _strategies(choices: list[list[Any]]) -> Iterable[dict[str, Any]]:
    """Yield a study's entries for strategies: the fewest that tell which pressures had which seeds."""
    rows = [tuple(json.dumps(part) for part in (choice[:3], *choice[3:])) for choice in choices]
    for kinds, pressures, seeds in _grids(rows):
        for strategy, options, loss in map(json.loads, kinds):
            entry = {"name": strategy, **options, "selection_loss": loss}
            tried = [json.loads(pressure) for pressure in pressures]
            if tried != [None]:
                entry["selection_pressures"] = [
                    f"{pressure[0]}:{pressure[1]}" if isinstance(pressure, list) else pressure
                    for pressure in tried
                ]
            yield entry | {"seeds": sorted(json.loads(seed) for seed in seeds)}


def _assigned(values: Mapping[str, Any]) -> list[str]:
    """Return TOML lines; a missing value has none, since TOML has no null."""
    names = {key: key if _BARE.fullmatch(key) else _value(key) for key in values}
    return [f"{names[key]} = {_value(item)}" for key, item in values.items() if item is not None]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_assigned(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    # JSON writes numbers and text as TOML reads them, except for a few control characters.
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
