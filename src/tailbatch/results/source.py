"""Records to read, wherever they are stored, and the tables that any source provides."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tailbatch.errors import ResultError, require
from tailbatch.registry import plain_names
from tailbatch.results.record import (
    DatasetFacts,
    RunFailure,
    RunRecord,
    StudyPlan,
    validation_column,
)
from tailbatch.results.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd


class RecordSource(ABC):
    """Records that can be read: a folder (`ResultStore`), or one file.

    Attributes
    ----------
    path
        Where they are stored.
    """

    path: Path

    @abstractmethod
    def records(self, study: str | None = None) -> Iterator[RunRecord]:
        """Yield the records in the order of digests, or only those of one study."""

    @abstractmethod
    def studies(self) -> tuple[StudyPlan, ...]:
        """Return the studies that the records are for, by name."""

    @abstractmethod
    def failures(self) -> tuple[RunFailure, ...]:
        """Return why runs failed, in the order of digests."""

    @abstractmethod
    def datasets(self) -> dict[str, DatasetFacts]:
        """Return the facts of all datasets, by the key they were kept under."""

    @abstractmethod
    def arrays(self, spec: RunSpec) -> dict[str, np.ndarray]:
        """Return the arrays kept with a run; empty if there are none."""

    def study(self, name: str) -> StudyPlan:
        """Return the study of that name."""
        plans = {plan.name: plan for plan in self.studies()}
        if name not in plans:
            raise ResultError(
                f"{self.path} has no study {name!r}; it has: {', '.join(plans) or 'none'}"
            )
        return plans[name]

    def frame(self, study: str | None = None) -> "pd.DataFrame":
        """Return one row per run: the spec's fields, test metrics by name, ``validation_<metric>``, ...

        Columns of the plan are named ``plan_<field>``; then ``best_epoch``, ``seconds``,
        ``max_lag``, ``steps``, ``drawn_samples``, ``warm_up_digest`` and ``digest``. Pressures are
        written as in study files (``"16"``, ``"64:1"``, ``""`` for none), tables as JSON. Code of the
        user's own has its plain name, and a digest only beside another version of it.
        """
        return with_plain_names(_table([record.row() for record in self.records(study)]))

    def curves(self, study: str | None = None) -> "pd.DataFrame":
        """Return one row per run and epoch: the run's digest and the epoch's entry in its history."""
        return _table(
            [
                {"digest": record.spec.digest, **_flat(epoch)}
                for record in self.records(study)
                for epoch in record.history
            ]
        )

    def labels(self, study: str | None = None) -> "pd.DataFrame":
        """Return one row per run and label: the run's digest and its results for the label."""
        return _table(
            [
                {"digest": record.spec.digest, **label}
                for record in self.records(study)
                for label in record.labels
            ]
        )


def with_plain_names(*frames: "pd.DataFrame") -> Any:
    """Return frames of runs with the names of models, losses and strategies as readers want them."""
    shown = list(frames)
    for column in ("model", "loss", "strategy"):
        names = [name for frame in frames if column in frame for name in frame[column].unique()]
        plain = plain_names(names)
        shown = [
            frame.assign(**{column: frame[column].map(plain)}) if column in frame else frame
            for frame in shown
        ]
    return shown[0] if len(shown) == 1 else shown


def _table(rows: list[dict[str, Any]]) -> "pd.DataFrame":
    return require("pandas", extra="cli").DataFrame(rows)


def _flat(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Return an epoch's values with its validation metrics as ``validation_<metric>``."""
    plain = {name: value for name, value in epoch.items() if name != "validation"}
    scores = epoch.get("validation")
    metrics = scores if isinstance(scores, Mapping) else {}
    return plain | {validation_column(name): value for name, value in metrics.items()}
