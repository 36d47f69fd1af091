"""The committed records: one file per study, written when its runs are there and not touched after.

The study files are here and in a folder for each question, those of the paper's figures in the package;
their records are in a folder of the same name in ``records``. A file is rewritten only when the store has
a run of that study which the file lacks, so the history of the repository grows by what is new. Studies
whose training is superseded have a folder of their own, with the reason.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tailbatch.analysis import Dataset
from tailbatch.analysis.naming import named
from tailbatch.results import RecordSource, ResultStore, RunSpec, StudyPlan
from tailbatch.results.archive import (
    SUFFIX,
    Archive,
    Archives,
    open_records,
    read_archive,
    write_archive,
)
from tailbatch.results.frames import read_store
from tailbatch.study import load_study

HERE = Path(__file__).parent
RECORDS = HERE / "records"
#: The folders of studies and of their records; the first is the paper's table.
ROOMS = ("", "superseded", "ladder", "convergence", "presets", "figures")
#: The paper's figures that show runs; the second is a flowchart.
FIGURES = (1, 3, 4, 5, 6, 7, 8)


def committed(room: str = "", folder: Path = RECORDS) -> RecordSource:
    """Return the committed records of one folder of studies."""
    return Archives(folder / room, sorted((folder / room).glob(f"*{SUFFIX}")))


def runs_of(room: str) -> dict[str, pd.DataFrame]:
    """Return the runs of each study of a folder, by its name; a dataset is known by its name alone."""
    frames = {}
    for path in sorted((RECORDS / room).glob(f"*{SUFFIX}")):
        runs = named(read_store(Archive(path))).runs
        data = [Dataset(name) for name in runs["dataset"]]
        frames[path.name.removesuffix(SUFFIX)] = runs.assign(data=data)
    return frames


def plans(digests: Mapping[str, str], room: str = "") -> list[StudyPlan]:
    """Return what the study files of a folder plan, given the content of the datasets by name."""
    known = defaultdict(str, digests)
    if room == "figures":
        names = [f"figure-{number}" for number in FIGURES]
    else:
        names = [str(path) for path in sorted((HERE / room).glob("*.toml"))]
    studies = map(load_study, names)
    return [
        StudyPlan(name=study.name, specs=study.specs(known), title=study.title) for study in studies
    ]


def lacking(room: str) -> list[RunSpec]:
    """Return the runs that the study files of a folder plan and its records lack."""
    records = committed(room)
    digests = {facts.name: facts.digest for facts in records.datasets().values()}
    there = {record.spec.digest for record in records.records()}
    specs = [spec for plan in plans(digests, room) for spec in plan.specs]
    return [spec for spec in specs if spec.digest not in there]


def collect(store: ResultStore, folder: Path = RECORDS) -> list[Path]:
    """Write the files of the studies that a store has new runs of, and return them."""
    if folder.exists():
        read_archive(open_records(folder), store)
    digests = {facts.name: facts.digest for facts in store.datasets().values()}
    there, earlier, written = store.done(), set[str](), []
    for room in ROOMS:
        for plan in plans(digests, room):
            store.keep_study(plan)
            mine = {spec.digest for spec in plan.specs} & there - earlier
            path = folder / room / f"{plan.name}{SUFFIX}"
            kept = (
                {record.spec.digest for record in Archive(path).records()}
                if path.exists()
                else set()
            )
            if mine - kept:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_archive(store, path, study=plan.name, without=earlier)
                written.append(path)
            earlier |= {spec.digest for spec in plan.specs}
    return written
