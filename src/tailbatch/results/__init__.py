"""What a run is, what it left, and where it is kept: one immutable JSON file a run."""

from tailbatch.results.record import DatasetFacts, RunFailure, RunRecord, StudyPlan
from tailbatch.results.source import RecordSource
from tailbatch.results.spec import (
    Pressure,
    RunSpec,
    TrainingPlan,
    default_lr,
    default_pressure,
    parse_pressure,
    pressure_text,
)
from tailbatch.results.store import ResultStore

__all__ = [
    "DatasetFacts",
    "Pressure",
    "RecordSource",
    "ResultStore",
    "RunFailure",
    "RunRecord",
    "RunSpec",
    "StudyPlan",
    "TrainingPlan",
    "default_lr",
    "default_pressure",
    "parse_pressure",
    "pressure_text",
]
