"""What a run is, what it left, and where it is kept: one immutable JSON file a run."""

from tailbatch.results.recipe import RECIPE, Recipe, default_lr
from tailbatch.results.record import (
    DatasetFacts,
    RunFailure,
    RunRecord,
    StudyPlan,
    validation_column,
)
from tailbatch.results.source import RecordSource
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
    "RECIPE",
    "DatasetFacts",
    "Pressure",
    "Recipe",
    "RecordSource",
    "ResultStore",
    "RunFailure",
    "RunRecord",
    "RunSpec",
    "StudyPlan",
    "TrainingPlan",
    "default_lr",
    "parse_pressure",
    "pressure_text",
    "validation_column",
]
