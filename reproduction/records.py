"""The committed records: one file per study, written when its runs are there and not touched after.

Each question has a folder with its study files and their ``records``; the study files of the paper's
figures come with the package. A file is rewritten only when the store has a run of that study that no
committed file has, so the history of the repository grows by what is new.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tailbatch.analysis import Dataset
from tailbatch.analysis.keys import named
from tailbatch.results import RecordSource, ResultStore, RunSpec, StudyPlan
from tailbatch.results.archive import SUFFIX, Archive, open_records, write_archive
from tailbatch.results.frames import read_store
from tailbatch.study import load_study
from tailbatch.study.sources import scales_of

HERE = Path(__file__).parent
TABLE, PRESETS = "table_2", "table_2/presets"
#: The folders of study files; ``few_epochs`` and ``finetune`` plan their runs in code.
QUESTIONS = (TABLE, "ladder", "convergence", PRESETS, "figures")
#: The paper's figures that show runs; the second is a flowchart.
FIGURES = (1, 3, 4, 5, 6, 7, 8)


def record_files(question: str, root: Path = HERE) -> list[Path]:
    """Return the files of records of one question."""
    return sorted((root / question / "records").glob(f"*{SUFFIX}"))


def committed(question: str = TABLE) -> RecordSource:
    """Return the committed records of one question."""
    return Archive(HERE / question, record_files(question))


def runs_of(question: str) -> dict[str, pd.DataFrame]:
    """Return the runs of each study of a question, by its name; a dataset is known by its name alone."""
    frames = {}
    for path in record_files(question):
        runs = named(read_store(Archive(path))).runs
        data = [Dataset(name) for name in runs["dataset"]]
        frames[path.name.removesuffix(SUFFIX)] = runs.assign(data=data)
    return frames


def plans(
    digests: Mapping[str, str],
    question: str = TABLE,
    scales: Mapping[tuple[str, str], str] | None = None,
) -> list[StudyPlan]:
    """Return what the study files of a question plan, given content and scaling of the datasets."""
    known = defaultdict(str, digests)
    if question == "figures":
        names = [f"figure-{number}" for number in FIGURES]
    else:
        names = [str(path) for path in sorted((HERE / question).glob("*.toml"))]
    studies = map(load_study, names)
    return [
        StudyPlan(name=study.name, specs=study.specs(known, scales), title=study.title)
        for study in studies
    ]


def lacking(question: str) -> list[RunSpec]:
    """Return the runs that the study files of a question plan and its records lack."""
    records = committed(question)
    digests = {facts.name: facts.digest for facts in records.datasets().values()}
    there = {record.spec.digest for record in records.records()}
    specs = [spec for plan in plans(digests, question) for spec in plan.specs]
    return [spec for spec in specs if spec.digest not in there]


def collect(store: ResultStore, root: Path = HERE) -> list[Path]:
    """Write the files of the studies that a store has new runs of, and return them."""
    kept = {}
    for path in (path for question in QUESTIONS for path in record_files(question, root)):
        store.add_missing(open_records(path))
        kept[path] = {record.spec.digest for record in Archive(path).records()}
    digests = {facts.name: facts.digest for facts in store.datasets().values()}
    scales = scales_of(store.datasets().values())
    new, written = store.done().difference(*kept.values()), []
    for question in QUESTIONS:
        for plan in plans(digests, question, scales):
            store.keep_study(plan)
            mine = {spec.digest for spec in plan.specs} & new
            if not mine:
                continue
            path = root / question / "records" / f"{plan.name}{SUFFIX}"
            others = store.done() - kept.get(path, set()) - mine
            path.parent.mkdir(parents=True, exist_ok=True)
            write_archive(store, path, study=plan.name, without=others)
            new -= mine
            written.append(path)
    return written
