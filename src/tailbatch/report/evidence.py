"""The records of a store as plain frames: runs, epochs, labels and sample losses.

Everything a report says is a function of these frames, so records that lie elsewhere, for instance
as the lines of one file (`tailbatch.report.archive`), make the same report.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.errors import ResultError, printable
from tailbatch.report.archive import ARRAY_FACTS, CURVES
from tailbatch.report.arrays import PERCENT, array_facts
from tailbatch.results import RecordSource, RunRecord, RunSpec, default_pressure, pressure_text

Arrays = Callable[[RunSpec], Mapping[str, np.ndarray]]

#: Columns that tell compared runs apart from each other; all other columns of a spec are the setting.
ARM = ("strategy", "selection_pressure", "strategy_options", "plan_selection_loss")
#: Columns of a plan that change what is written down, and nothing about the training.
_NOTES = ("plan_sample_loss_epochs", "plan_training_loss_every")

# What the report draws of an epoch; all of it, for 1,625 runs, would not fit into memory.
_EPOCH = (
    "number",
    "steps",
    "seconds",
    "training_bce",
    "training_objective",
    "minority_share",
    "distinct_share",
)
_LABEL = ("positives", "minority", "average_precision", "f", "exposure")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a report is made from.

    Attributes
    ----------
    runs
        One row a run, as `RunRecord.row` gives it, and the names a reader sees (see `named`):
        ``data``, ``learner`` and ``arm``.
    curves
        One row a run and epoch: ``digest``, ``number``, ``steps``, ``seconds``, losses, validation
        metrics and shares.
    labels
        One row a run and label: ``digest``, ``label``, ``positives``, ``minority``,
        ``average_precision``, ``f``, ``exposure``.
    losses
        One row a run, epoch and number of minority labels: ``samples``, and quantiles of their losses
        as ``q01`` to ``q99``.
    absent
        One row a run that is wanted and not there: the spec's fields, ``digest``, and ``reason``,
        which is empty where nobody has tried it yet.
    datasets
        One row a dataset and preparation: ``dataset``, ``preparation``, ``digest`` and its facts.
    correlations
        One row a run and epoch (a number, or ``"best"``): ``loss_correlation``.
    specs
        The runs that are there, and those that are wanted.
    """

    runs: pd.DataFrame
    curves: pd.DataFrame
    labels: pd.DataFrame
    losses: pd.DataFrame
    absent: pd.DataFrame = field(default_factory=pd.DataFrame)
    datasets: pd.DataFrame = field(default_factory=pd.DataFrame)
    correlations: pd.DataFrame = field(default_factory=pd.DataFrame)
    specs: tuple[RunSpec, ...] = ()


def read_store(store: RecordSource, *, study: str | None = None) -> Evidence:
    """Read a store or an archive, or the runs of one study in it.

    Examples
    --------
    >>> import tempfile
    >>> from tailbatch.results import ResultStore
    >>> len(read_store(ResultStore(tempfile.mkdtemp())).runs)
    0
    """
    evidence = gather(store.records(study), store.arrays)
    plans = store.studies() if study is None else (store.study(study),)
    wanted = {spec.digest: spec for plan in plans for spec in plan.specs}
    failed = {failure.spec.digest: failure for failure in store.failures()}
    if study is None:
        wanted |= {digest: failure.spec for digest, failure in failed.items()}
    done = set(evidence.runs.get("digest", ()))
    absent = pd.DataFrame(
        _spec_row(spec) | {"reason": printable(failed[digest].message) if digest in failed else ""}
        for digest, spec in wanted.items()
        if digest not in done
    )
    if len(absent):
        # Named together, so that a missing run has the name its record would have had.
        both = named(pd.concat([evidence.runs, absent], ignore_index=True))
        runs, absent = both[both["reason"].isna()], both[both["reason"].notna()]
        evidence = replace(evidence, runs=runs.drop(columns="reason"))
    specs = {spec.digest: spec for spec in evidence.specs} | wanted
    return replace(
        evidence,
        absent=absent,
        datasets=_dataset_facts(store, specs.values() if study else ()),
        specs=tuple(specs[digest] for digest in sorted(specs)),
    )


def _dataset_facts(store: RecordSource, specs: Iterable[RunSpec]) -> pd.DataFrame:
    """Return the facts of the datasets that `specs` use, or of all where there are no specs."""
    used = {(spec.dataset_digest, spec.preparation) for spec in specs}
    facts = pd.DataFrame(
        {"dataset": printable(each.name), "preparation": name, "digest": each.digest, **values}
        for each in store.datasets().values()
        for name, values in each.facts.items()
        if not used or (each.digest, name) in used
    )
    # Machines that share a store note one dataset once for each folder it lies in.
    return facts.drop_duplicates(ignore_index=True)


def gather(records: Iterable[RunRecord], arrays: Arrays | None = None) -> Evidence:
    """Read records once, each as it comes, and keep what a report needs of them.

    Parameters
    ----------
    records
        For instance ``ResultStore(path).records()``.
    arrays
        Gives the arrays kept with a run, for instance ``ResultStore(path).arrays``.

    Examples
    --------
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12", strategy="random")
    >>> record = RunRecord(spec=spec, validation={}, test={"macro_f": 0.5}, best_epoch=1,
    ...                    history=({"number": 1, "steps": 8, "seconds": 0.1},), warm_up_digest="c")
    >>> evidence = gather([record])
    >>> evidence.runs[["data", "learner", "arm", "macro_f"]].values.tolist()
    [['debtags', 'mlp', 'random', 0.5]]
    >>> len(evidence.curves)
    1
    """
    rows, losses, correlations, specs = [], [], [], []
    epochs = _Columns((*_EPOCH, *(f"validation_{name}" for name in CURVES)))
    labels = _Columns(("label", *_LABEL))
    for record in records:
        digest = record.spec.digest
        with _naming(digest):
            facts = record.diagnostics.get(ARRAY_FACTS)
            if facts is None:
                facts = array_facts(record, arrays(record.spec)) if arrays else {}
            notes: dict[str, Any] = {"versions": json.dumps(dict(record.versions), sort_keys=True)}
            notes |= {"volatility": float(facts["volatility"])} if "volatility" in facts else {}
            rows.append(_shown(record.row()) | notes)
            epochs.extend(digest, _epochs(record.history))
            labels.extend(digest, _labels(record.labels))
            losses += [{"digest": digest, **_quantiles(row)} for row in facts.get("losses", ())]
            correlations += [
                {"digest": digest, "epoch": epoch, "loss_correlation": float(value)}
                for epoch, value in facts.get("correlations", {}).items()
            ]
        specs.append(record.spec)
    # Without any run, the columns are still there.
    nothing = _spec_row(RunSpec(dataset="", dataset_digest=""))
    return Evidence(
        runs=named(pd.DataFrame(rows or [nothing])).iloc[: len(rows)],
        curves=epochs.frame(),
        labels=labels.frame(),
        losses=pd.DataFrame(losses),
        correlations=pd.DataFrame(correlations),
        specs=tuple(specs),
    )


@contextmanager
def _naming(digest: str) -> Iterator[None]:
    """Say which record it is that holds something else than a run leaves."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ResultError(
            f"the record {digest} holds what no run leaves ({error}): remove it and run it again"
        ) from error


class _Columns:
    """Rows kept as one array a run and column: 160,000 dictionaries would take a gigabyte."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in names}
        self._digests: list[str] = []
        self._lengths: list[int] = []

    def extend(self, digest: str, columns: Mapping[str, list[Any]]) -> None:
        for name, kept in self._columns.items():
            # Single precision turns None into nan, and is what an archive keeps.
            kind = object if name == "label" else np.float32
            kept.append(np.array(columns[name], dtype=kind).reshape(len(columns[name])))
        self._digests.append(digest)
        self._lengths.append(len(kept[-1]))

    def frame(self) -> pd.DataFrame:
        digest = pd.Categorical(np.repeat(self._digests, self._lengths))
        columns = {
            name: np.concatenate(kept or [np.empty(0)]) for name, kept in self._columns.items()
        }
        frame = pd.DataFrame({"digest": digest, **columns})
        return frame.astype({name: np.float64 for name in columns if name != "label"})


def _epochs(history: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    scores = [epoch.get("validation") or {} for epoch in history]
    return {
        **{name: [epoch.get(name) for epoch in history] for name in _EPOCH},
        **{f"validation_{name}": [each.get(name) for each in scores] for name in CURVES},
    }


def _labels(labels: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = [printable(str(label["name"])) for label in labels]
    return {"label": names, **{name: [label.get(name) for label in labels] for name in _LABEL}}


def _quantiles(row: Mapping[str, Any]) -> dict[str, float]:
    plain = {name: value for name, value in row.items() if name != "quantiles"}
    return plain | {
        f"q{at:02d}": float(value) for at, value in zip(PERCENT, row["quantiles"], strict=True)
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: printable(value) if isinstance(value, str) else value for name, value in row.items()
    }


def _spec_row(spec: RunSpec) -> dict[str, Any]:
    """Return the row of a run that left no record."""
    empty = RunRecord(
        spec=spec, validation={}, test={}, history=(), best_epoch=0, warm_up_digest=""
    )
    return _shown(empty.row())


def named(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the names a reader sees, each no longer than it must be.

    ``data`` is the dataset and whatever else of the setting varies in the store, ``learner`` the
    model and its hyperparameters where they vary, ``arm`` the strategy. A strategy that ran with
    several pressures or options keeps its bare name for one arm, the primary one: its default
    pressure where it is there, else the one with the most runs; the others say how they differ.

    Examples
    --------
    >>> runs = pd.DataFrame({"dataset": ["scene"] * 3, "model": ["mlp"] * 3,
    ...                      "strategy": ["random", "adaptive", "adaptive"],
    ...                      "selection_pressure": ["", "16", "64"]})
    >>> named(runs)["arm"].tolist()
    ['random', 'adaptive', 'adaptive 64']
    """
    setting = [
        column
        for column in runs
        if (column.startswith("plan_") or column in ("preparation", "n_folds"))
        and column not in (*ARM, *_NOTES)
        and runs[column].astype(str).nunique() > 1
    ]
    data = runs["dataset"].astype(str)
    if "dataset_digest" in runs:
        several = runs.groupby("dataset")["dataset_digest"].transform("nunique") > 1
        data = data.where(~several, data + " " + runs["dataset_digest"].astype(str).str[:6])
    for column in setting:
        data = data + ", " + column.removeprefix("plan_").replace("_", " ") + " "
        data = data + runs[column].astype(str)
    return runs.assign(data=data, learner=_learners(runs), arm=_arms(runs))


def _learners(runs: pd.DataFrame) -> pd.Series:
    names = runs["model"].astype(str)
    if "hyperparameters" not in runs:
        return names
    several = runs.groupby("model")["hyperparameters"].transform("nunique") > 1
    return names.where(~several, names + " " + runs["hyperparameters"].astype(str))


def _arms(runs: pd.DataFrame) -> pd.Series:
    parts = pd.DataFrame(
        {
            "strategy": runs["strategy"].astype(str),
            "pressure": runs["selection_pressure"].astype(str),
            "options": runs.get("strategy_options", pd.Series("{}", runs.index)).astype(str),
            "loss": runs.get("plan_selection_loss", pd.Series("bce", runs.index)).astype(str),
        }
    )
    names: dict[tuple[str, ...], str] = {}
    for strategy, group in parts.groupby("strategy"):
        counts = group.value_counts()
        primary = min(counts.index, key=lambda key: (*_oddity(key), -counts[key]))
        for key in counts.index:
            names[key] = str(strategy) + _difference(key, primary)
    return pd.Series([names[tuple(row)] for row in parts.values], runs.index, dtype=object)


def _oddity(key: tuple[str, ...]) -> tuple[bool, bool, bool]:
    """Return how far an arm is from the paper's primary setting, to find the primary one."""
    strategy, pressure, options, loss = key
    return options != "{}", loss != "bce", pressure != pressure_text(default_pressure(strategy))


def _difference(key: tuple[str, ...], primary: tuple[str, ...]) -> str:
    _, pressure, options, loss = key
    text = f" {pressure}" if pressure != primary[1] else ""
    text += f" {options}" if options != primary[2] else ""
    return text + (f" on {loss} loss" if loss != primary[3] else "")
