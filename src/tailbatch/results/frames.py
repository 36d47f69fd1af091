"""The records of a store as plain frames: runs, epochs, labels and sample losses.

Everything in a report is a function of these frames, so records stored elsewhere, for instance as the
lines of one file (`tailbatch.results.archive`), give the same report.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.errors import ResultError, printable
from tailbatch.results.archive import ARRAY_FACTS, CURVES, PERCENT, UNREAD, Arrays, facts_of
from tailbatch.results.record import RecordSource, RunRecord
from tailbatch.results.spec import RunSpec

# The values of an epoch that the report draws; all of them, for 1,625 runs, would not fit in memory.
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
    """The frames a report is made from; all but `datasets` have the ``digest`` of the run.

    Attributes
    ----------
    runs
        One row per run, as `RunRecord.row` gives it, and its selector's diagnostics if requested.
        `tailbatch.analysis` adds the keys ``data``, ``learner`` and ``arm``.
    curves
        One row per run and epoch: ``number``, ``steps``, ``seconds``, losses, validation metrics, shares.
    labels
        One row per run and label: ``positives``, ``minority``, ``average_precision``, ``f``,
        ``exposure``.
    losses
        One row per run, epoch and number of minority labels: ``samples``, and quantiles of their losses
        as ``q01`` to ``q99``.
    absent
        One row per planned run without a record: the spec's fields, and ``reason``, which is empty if the
        run has not been tried yet.
    datasets
        One row per dataset and preparation: ``dataset``, ``preparation``, ``digest`` and its facts.
    correlations
        One row per run and epoch (a number, or ``"best"``): ``loss_correlation``.
    unread
        One row per run whose array file is damaged or missing: the ``reason``.
    specs
        The runs with a record, and the planned ones.
    """

    runs: pd.DataFrame
    curves: pd.DataFrame
    labels: pd.DataFrame
    losses: pd.DataFrame
    absent: pd.DataFrame = field(default_factory=pd.DataFrame)
    datasets: pd.DataFrame = field(default_factory=pd.DataFrame)
    correlations: pd.DataFrame = field(default_factory=pd.DataFrame)
    unread: pd.DataFrame = field(default_factory=pd.DataFrame)
    specs: tuple[RunSpec, ...] = ()


def read_store(
    store: RecordSource, *, study: str | None = None, diagnostics: Sequence[str] = ()
) -> Evidence:
    """Read a store or an archive, or the runs of one study in it.

    Parameters
    ----------
    store
        Where the records are.
    study
        Only the runs that the study of this name wants.
    diagnostics
        Names of the selectors' final diagnostics to add to the frame of runs.

    Examples
    --------
    >>> import tempfile
    >>> from tailbatch.results import ResultStore
    >>> len(read_store(ResultStore(tempfile.mkdtemp())).runs)
    0
    """
    evidence = gather(store.records(study), store.arrays, diagnostics)
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
    specs = {spec.digest: spec for spec in evidence.specs} | wanted
    runs, absent = store.with_plain_names(evidence.runs, absent)
    return replace(
        evidence,
        runs=runs,
        absent=absent,
        datasets=_dataset_facts(store, specs.values() if study else ()),
        specs=tuple(specs[digest] for digest in sorted(specs)),
    )


def _dataset_facts(store: RecordSource, specs: Iterable[RunSpec]) -> pd.DataFrame:
    """Return the facts of the datasets that `specs` use, or of all datasets without specs."""
    used = {(spec.dataset_digest, spec.preparation) for spec in specs}
    facts = pd.DataFrame(
        {"dataset": printable(facts.name), "preparation": name, "digest": facts.digest, **sizes}
        for facts in store.datasets().values()
        for name, sizes in facts.facts.items()
        if not used or (facts.digest, name) in used
    ).drop(columns="scale", errors="ignore")
    # Machines that share a store record a dataset once for each folder it is in.
    return facts.drop_duplicates(ignore_index=True)


def gather(
    records: Iterable[RunRecord], arrays: Arrays | None = None, diagnostics: Sequence[str] = ()
) -> Evidence:
    """Read records once, one at a time, and keep what a report needs from them.

    `arrays` returns those kept with a run, for instance ``ResultStore(path).arrays``; `diagnostics` are
    as in `read_store`.

    Examples
    --------
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12", strategy="random")
    >>> record = RunRecord(spec=spec, validation={}, test={"macro_f": 0.5}, best_epoch=1,
    ...                    history=({"number": 1, "steps": 8, "seconds": 0.1},), warm_up_digest="c")
    >>> gather([record]).runs[["dataset", "model", "strategy", "macro_f"]].values.tolist()
    [['debtags', 'mlp', 'random', 0.5]]
    """
    rows, losses, correlations, unread, specs = [], [], [], [], []
    epochs = _Columns((*_EPOCH, *(f"validation_{name}" for name in CURVES)))
    labels = _Columns(("label", *_LABEL))
    for record in records:
        digest = record.spec.digest
        with _naming(digest):
            facts = facts_of(record, arrays) if arrays else record.diagnostics.get(ARRAY_FACTS, {})
            notes: dict[str, Any] = {"versions": json.dumps(dict(record.versions), sort_keys=True)}
            notes |= {"volatility": float(facts["volatility"])} if "volatility" in facts else {}
            notes |= {name: record.diagnostics.get(name) for name in diagnostics}
            rows.append(_shown(record.row()) | notes)
            epochs.extend(digest, _epochs(record.history))
            labels.extend(digest, _labels(record.labels))
            losses += [{"digest": digest, **_quantiles(row)} for row in facts.get("losses", ())]
            correlations += [
                {"digest": digest, "epoch": epoch, "loss_correlation": float(value)}
                for epoch, value in facts.get("correlations", {}).items()
            ]
            unread += [{"digest": digest, "reason": facts[UNREAD]}] if UNREAD in facts else []
        specs.append(record.spec)
    # The columns exist even without runs.
    nothing = _spec_row(RunSpec(dataset="", dataset_digest=""))
    return Evidence(
        runs=pd.DataFrame(rows or [nothing]).iloc[: len(rows)],
        curves=epochs.frame(),
        labels=labels.frame(),
        losses=pd.DataFrame(losses),
        correlations=pd.DataFrame(correlations),
        unread=pd.DataFrame(unread, columns=["digest", "reason"]),
        specs=tuple(specs),
    )


@contextmanager
def _naming(digest: str) -> Iterator[None]:
    """Name the record in an error about values that no run writes."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ResultError(
            f"the record {digest} has values that no run writes ({error}): remove it and run it again"
        ) from error


class _Columns:
    """Rows kept as one array per run and column; 160,000 dictionaries would take a gigabyte."""

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
        **{f"validation_{name}": [metrics.get(name) for metrics in scores] for name in CURVES},
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
    """Return the row of a run without a record."""
    nothing: dict[str, Any] = {"validation": {}, "test": {}, "history": (), "warm_up_digest": ""}
    return _shown(RunRecord(spec=spec, best_epoch=0, **nothing).row())
