"""Run specifications, records and stores: one immutable JSON file per run."""

from tailbatch.results.record import DatasetFacts, RecordSource, RunFailure, RunRecord, StudyPlan
from tailbatch.results.spec import (
    NO_BATCHES,
    Pressure,
    RunSpec,
    TrainingPlan,
    parse_pressure,
    pressure_text,
)
from tailbatch.results.store import ResultStore

__all__ = [
    "NO_BATCHES",
    "DatasetFacts",
    "Pressure",
    "RecordSource",
    "ResultStore",
    "RunFailure",
    "RunRecord",
    "RunSpec",
    "StudyPlan",
    "TrainingPlan",
    "parse_pressure",
    "pressure_text",
]
