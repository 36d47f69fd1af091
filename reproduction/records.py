"""The committed records: one file per study, written when its runs are there and not touched after.

A file is rewritten only when the store has a run of that study which the file lacks, so the history of
the repository grows by what is new. Studies whose training is superseded lie in a folder of their own,
with the reason.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tailbatch.results import RecordSource, ResultStore, StudyPlan
from tailbatch.results.archive import SUFFIX, Archive, open_records, read_archive, write_archive
from tailbatch.study import load_study

HERE = Path(__file__).parent
RECORDS = HERE / "records"


def committed() -> RecordSource:
    """Return the committed records of all studies."""
    return open_records(RECORDS)


def plans(digests: Mapping[str, str]) -> list[StudyPlan]:
    """Return what the study files here plan, given the content of the datasets by name."""
    known = defaultdict(str, digests)
    studies = [load_study(str(path)) for path in sorted(HERE.glob("*.toml"))]
    return [
        StudyPlan(name=study.name, specs=study.specs(known), title=study.title) for study in studies
    ]


def superseded(plan: StudyPlan) -> bool:
    """Return whether all runs of a study average the loss over labels, see ``records/superseded``."""
    return all(dict(spec.hyperparameters).get("reduction") == "mean" for spec in plan.specs)


def collect(store: ResultStore, folder: Path = RECORDS) -> list[Path]:
    """Write the files of the studies that a store has new runs of, and return them."""
    if folder.exists():
        read_archive(open_records(folder), store)
    digests = {facts.name: facts.digest for facts in store.datasets().values()}
    there, earlier, written = store.done(), set[str](), []
    for plan in plans(digests):
        store.keep_study(plan)
        mine = {spec.digest for spec in plan.specs} & there - earlier
        place = folder / "superseded" if superseded(plan) else folder
        path = place / f"{plan.name}{SUFFIX}"
        kept = (
            {record.spec.digest for record in Archive(path).records()} if path.exists() else set()
        )
        if mine - kept:
            place.mkdir(parents=True, exist_ok=True)
            write_archive(store, path, study=plan.name, without=earlier)
            written.append(path)
        earlier |= {spec.digest for spec in plan.specs}
    return written
