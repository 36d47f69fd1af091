"""Fair comparisons: a grid of runs, a single run, and a resumable parallel runner."""

from tailbatch.study.grid import Study, known_studies, load_study
from tailbatch.study.pool import ThisProcess, WorkerPool
from tailbatch.study.runner import StudyOutcome, StudyProgress, run_study, study_progress
from tailbatch.study.single import run
from tailbatch.study.sources import Source

__all__ = [
    "Source",
    "Study",
    "StudyOutcome",
    "StudyProgress",
    "ThisProcess",
    "WorkerPool",
    "known_studies",
    "load_study",
    "run",
    "run_study",
    "study_progress",
]
