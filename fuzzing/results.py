"""Studies in TOML files, and the records of a store."""

import json
import shutil
from functools import partial
from typing import Any

from fuzzing.rule import Finding, accepted, scratch, written
from tailbatch.analysis.keys import named
from tailbatch.results import RecordSource, ResultStore, RunRecord
from tailbatch.results.archive import Archive
from tailbatch.results.frames import read_store
from tailbatch.results.record import _seal
from tailbatch.study import Study

TOML_TOKENS = (
    b"name = ", b"datasets = [", b'"debtags"', b"models = [", b'{ name = "mlp", hidden = [8] }',
    b"strategies = [", b'"adaptive"', b'"chain"', b'"random"', b"selection_pressures = [", b'"64:1"',
    b"seeds = [0, 1]", b"folds = [0]", b"n_folds = 3", b"batch_sizes = [8]", b"[plan]", b"[quick]",
    b"[quick.plan]", b"epochs = 2", b'extends = "table-2"', b"1979-05-27", b"nan", b"inf", b"{", b"}",
    b"[", b"]", b"'''", b'path = "x"', b"preparations = [", b'"paper"', b"1_0", b"999999999999",
    b"selection_loss = ", b"sample_loss_epochs = [1]", b"true",
)  # fmt: skip


def check_study(data: bytes) -> None:
    """Read a study file and its quick variant, and list their runs."""
    path = written("study.toml", data)
    for quick in (False, True) if b"quick" in data else (False,):
        study = accepted(partial(Study.from_toml, path, quick=quick))
        if study is None:
            continue
        specs = study.specs({source.name: "ab12" for source in study.sources})
        if len({spec.digest for spec in specs}) != len(specs):
            raise Finding("two runs have one name")


def check_record(data: bytes) -> None:
    """Read a record alone, and a store that contains it as a record, failure, study and dataset."""
    text = data.decode("utf-8", errors="replace")
    record = accepted(lambda: RunRecord.from_json(text))
    store = ResultStore(scratch() / "store")
    shutil.rmtree(store.path, ignore_errors=True)
    for kind in ("runs", "failures", "studies", "datasets"):
        folder = store.path / kind
        folder.mkdir(parents=True)
        (folder / "x.json").write_bytes(data)
    if record is not None:
        _check_plain(record)
        # An attacker can also write a matching checksum.
        sealed = _resealed(text, record)
        (store.path / "runs" / f"{record.spec.digest}.json").write_text(sealed)
    (store.path / "records.jsonl.gz").write_bytes(data)
    archive = Archive(store.path / "records.jsonl.gz")
    for source in (store, archive):
        for look in (source.studies, source.failures, source.datasets):
            accepted(look)
        accepted(partial(_records, source))
    accepted(store.done)
    if len(data) % 16 == 0:  # frames take as long as a hundred records
        accepted(store.frame)
        accepted(lambda: named(read_store(store)))


def _records(source: RecordSource) -> list[RunRecord]:
    return list(source.records())


def _resealed(text: str, record: RunRecord) -> str:
    values = {k: v for k, v in json.loads(text).items() if k not in ("digest", "checksum")}
    return _seal(json.dumps(values, indent=1, sort_keys=True) + "\n", record.spec.digest)


def _check_plain(record: RunRecord) -> None:
    """Check the values that reports compute with."""
    numbers: list[Any] = [record.best_epoch, record.seconds, record.max_lag]
    numbers += [*record.validation.values(), *record.test.values()]
    if not all(value is None or isinstance(value, int | float) for value in numbers):
        raise Finding(f"not numbers: {numbers}")
    row = record.row()
    if any(isinstance(value, dict | list) for value in row.values()):
        raise Finding("a cell contains a table")
