"""Records in compact files that give the same report: a whole store in one file, or one per study.

A file is gzip-compressed text, one JSON object per line: a header, then the studies, failures and
dataset facts, then the runs in the order of their digests. The same store gives the same bytes.

An archive keeps the spec, every metric of the best epoch on validation and test rows, the diagnostics,
the curves by epoch and the labels' results. It drops the arrays but keeps their `array_facts`; it also
drops the validation metrics by epoch except `CURVES`, the tracebacks of failures, and the folders of
the datasets. Curves and labels' results have single precision, which is how a report reads them.
A study resumes from such a file once `ResultStore.add_missing` has put its records into a store.
"""

import gzip
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, TypeVar

import numpy as np

from tailbatch.data.text import text_blocks
from tailbatch.errors import DataError, ResultError
from tailbatch.files import replacing
from tailbatch.results.record import (
    DatasetFacts,
    OtherVersionError,
    RecordSource,
    RunRecord,
    StudyPlan,
    from_json,
    to_json,
)
from tailbatch.results.spec import RunSpec
from tailbatch.results.store import ResultStore

#: Validation metrics that are kept for every epoch.
CURVES = ("macro_auc", "macro_f", "macro_average_precision", "minority_average_precision")
#: The suffix of archive files.
SUFFIX = ".jsonl.gz"
_FORMAT = "tailbatch records"
# What a line of the header is called, by the kind of what it keeps.
_LINES = {"studies": "study", "failures": "failure", "datasets": "dataset"}
_Made = TypeVar("_Made")
_Kept = TypeVar("_Kept")

Arrays = Callable[[RunSpec], Mapping[str, np.ndarray]]

#: Levels in percent of the quantiles that summarize the losses of a group of samples.
PERCENT = tuple(range(1, 100))
#: Where a record from an archive keeps the facts derived from its arrays.
ARRAY_FACTS = "array_facts"
#: Why there are no facts: the array file of a run is damaged or gone.
UNREAD = "unread"

_log = logging.getLogger(__name__)


def open_records(path: Path | str | RecordSource) -> RecordSource:
    """Open the records at a path: a store, an archive file, or a folder of archives.

    Records that are already open are returned unchanged.

    Examples
    --------
    >>> import tempfile
    >>> type(open_records(tempfile.mkdtemp())).__name__
    'ResultStore'
    """
    if isinstance(path, RecordSource):
        return path
    path = Path(path)
    if path.is_dir():
        files = [] if (path / "runs").is_dir() else sorted(path.rglob(f"*{SUFFIX}"))
        return Archive(path, files) if files else ResultStore(path)
    if not path.is_file():
        raise ResultError(f"there is no store at {path}: run a study to create one")
    return Archive(path)


def write_archive(
    store: RecordSource, out: Path, *, study: str | None = None, without: Collection[str] = ()
) -> int:
    """Write all records of a store, or those of one study, to one file; return how many.

    Parameters
    ----------
    store, out
        Where the records are, and the file to write.
    study
        Only the runs that the study of this name wants.
    without
        Digests of runs to leave out, because another file has them.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_archive(ResultStore(folder), folder / "records.jsonl.gz")
    0
    """
    runs = [
        _line({"run": _compact(record, store)})
        for record in store.records(study)
        if record.spec.digest not in without
    ]
    plans = store.studies() if study is None else (store.study(study),)
    wanted = {spec.digest for plan in plans for spec in plan.specs}
    header = [{"format": _FORMAT, "runs": len(runs)}]
    header += [{"study": asdict(plan)} for plan in plans]
    header += [
        {"failure": asdict(replace(failure, traceback=""))}
        for failure in store.failures()
        if study is None or failure.spec.digest in wanted
    ]
    for key, facts in sorted(store.datasets().items()):
        plain = replace(facts, path=PurePath(facts.path).name, modified=0)
        header.append({"dataset": {"key": key, **asdict(plain)}})
    with (
        replacing(out) as temporary,
        temporary.open("wb") as raw,
        # No file name or time in the header, so that the same records give the same bytes.
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as file,
    ):
        file.writelines([*map(_line, header), *runs])
    return len(runs)


def _line(values: Mapping[str, Any]) -> bytes:
    return to_json(values, on_one_line=True).encode()


def _compact(record: RunRecord, store: RecordSource) -> dict[str, Any]:
    """Return the values of a record that an archive keeps, with its curves and labels as columns."""
    history = []
    for epoch in record.history:
        scores = epoch.get("validation") or {}
        plain = {name: value for name, value in epoch.items() if name != "validation"}
        history.append(plain | {f"validation_{name}": scores.get(name) for name in CURVES})
    return asdict(replace(record, history=(), labels=())) | {
        "history": _columns(history),
        "labels": _columns(record.labels),
        "diagnostics": {**record.diagnostics, ARRAY_FACTS: facts_of(record, store.arrays)},
        "digest": record.spec.digest,
    }


def _columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_short(row.get(name)) for row in rows] for name in names}


def _short(value: Any) -> Any:
    """Return a number rounded to the digits of single precision."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class Archive(RecordSource):
    """Files that `write_archive` wrote, read like a store; a damaged one is an error.

    Nothing is cached: each call reads the files again. `files` are those of a folder, for instance one
    per study; each run is in only one of them.
    """

    def __init__(self, path: Path | str, files: Sequence[Path] | None = None) -> None:
        self.path = Path(path)
        self._files = [self.path] if files is None else files

    def records(self, study: str | None = None) -> Iterator[RunRecord]:
        """Yield the records in the order of the files, or only those that a study wants."""
        wanted = None if study is None else {spec.digest for spec in self.study(study).specs}
        seen: dict[str, Path] = {}
        for file in self._files:
            for record in _records(file):
                digest = record.spec.digest
                if digest in seen:
                    raise ResultError(f"{file} and {seen[digest]} both have run {digest}")
                seen[digest] = file
                if wanted is None or digest in wanted:
                    yield record

    def arrays(self, spec: RunSpec) -> dict[str, np.ndarray]:
        """Return nothing: archives keep no arrays, and the records hold the facts derived from them."""
        return {}

    def _kept(
        self, kind: str, made: Callable[[Mapping[str, Any]], _Kept]
    ) -> Iterator[tuple[str, _Kept]]:
        """Yield the name and content of what is kept of a kind, by name."""
        found: dict[str, _Kept] = {}
        for file in self._files:
            found |= _made(file, _LINES[kind], lambda values: _keyed(values, made))
        yield from sorted(found.items(), key=itemgetter(0))


def _records(file: Path) -> Iterator[RunRecord]:
    """Yield the records of a file, in the order of their digests."""
    last, count = "", 0
    for record in _made(file, "run", _record):
        if record.spec.digest <= last:
            raise ResultError(f"{file} has run {record.spec.digest} in the wrong place")
        last, count = record.spec.digest, count + 1
        yield record
    said = next(_made(file, "runs", int), None)
    if count != said:
        raise ResultError(f"{file} has {count} of its {said} runs: copy or export it again")


def _made(file: Path, kind: str, made: Callable[[Any], _Made]) -> Iterator[_Made]:
    """Yield the content of the lines of a kind; an error names the damaged line."""
    for number, line in _lines_of(file):
        try:
            values = from_json(line)
            if number == 1 and values.get("format") != _FORMAT:
                raise ResultError("not the header of a file of records")
            if kind in values:
                yield made(values[kind])
            elif "run" in values:
                return  # they are the last ones
        except OtherVersionError as error:
            raise ResultError(f"{file} was {error}") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise ResultError(
                f"line {number} of {file} is damaged ({error}): copy or export it again"
            ) from error


def _lines_of(file: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        # Read like a dataset: within limits, however large it unpacks.
        for first, block in text_blocks(file):
            for number, line in enumerate(block.splitlines(), start=first):
                yield number, line.decode()
    except (DataError, UnicodeDecodeError) as error:
        raise ResultError(
            f"{file} is incomplete or damaged after line {number} ({error}): copy or export it again"
        ) from error


def _record(values: Mapping[str, Any]) -> RunRecord:
    """Undo `_compact`."""
    plain = {name: value for name, value in values.items() if name != "digest"}
    try:
        history = _rows(plain["history"])
        for row in history:
            row["validation"] = {name: row.pop(f"validation_{name}") for name in CURVES}
        record = RunRecord.from_dict(plain | {"history": history, "labels": _rows(plain["labels"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ResultError(f"not a run: {error}") from error
    if values.get("digest") != record.spec.digest:
        raise ResultError(f"its digest is not that of its run, {record.spec.digest}")
    return record


def _keyed(values: Mapping[str, Any], made: Callable[[Any], _Kept]) -> tuple[str, _Kept]:
    """Return what a line of the header holds, and the name that a store keeps it under."""
    kept = made({name: value for name, value in values.items() if name != "key"})
    one: Any = kept
    if isinstance(one, DatasetFacts):
        ResultStore.check_key(key := str(values.get("key")))
        return key, kept
    return one.name if isinstance(one, StudyPlan) else one.spec.digest, kept


def facts_of(record: RunRecord, arrays: Arrays) -> Mapping[str, Any]:
    """Return the facts that an archive kept with a record, or compute them from its arrays.

    If an array file is damaged or missing, its run loses only the curves drawn from it: the reason is
    logged, and kept as `UNREAD`.
    """
    if (kept := record.diagnostics.get(ARRAY_FACTS)) is not None:
        return dict(kept)
    try:
        found = arrays(record.spec)
        if found or not record.history:
            return _array_facts(record, found)
        reason, detail = "the array file is missing", "there is no such file"
    except (DataError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason, detail = "the array file is damaged", str(error)
    said = "run %s goes into the report without its arrays: %s (%s)"
    _log.warning(said, record.spec.digest, reason, detail)
    return {UNREAD: reason}


def _array_facts(record: RunRecord, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return plain values that summarize the arrays kept with a run, as far as they determine them.

    ``volatility`` is the mean absolute step between neighboring batch objectives after the warm-up, over
    their mean. ``correlations`` are Pearson's, by epoch, of the training samples' BCE and own losses
    (Figure 6). ``losses`` are quantiles of their BCE by epoch and minority labels (Figures 1 and 5).
    """
    facts = {
        "volatility": _volatility(record, arrays),
        "correlations": _correlations(arrays),
        "losses": _loss_quantiles(arrays),
    }
    return {name: value for name, value in facts.items() if value}


def _volatility(record: RunRecord, arrays: Mapping[str, np.ndarray]) -> float | None:
    objectives = arrays.get("batch_objectives")
    if objectives is None or not record.history:
        return None
    warm_up = min(record.spec.plan.warm_up_epochs, len(record.history) - 1)
    first = record.history[warm_up - 1]["steps"] if warm_up else 0
    rest = np.asarray(objectives, dtype=np.float64)[first:]
    if len(rest) < 2 or rest.mean() == 0:
        return None
    return float(np.abs(np.diff(rest)).mean() / abs(rest.mean()))


def _correlations(arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    found = {}
    for name in sorted(arrays):
        epoch = name.removeprefix("sample_losses_")
        own = arrays.get(f"sample_objectives_{epoch}")
        if epoch != name and own is not None:
            bce = np.asarray(arrays[name], dtype=np.float64)
            if bce.std() > 0 and own.std() > 0:
                found[epoch] = round(float(np.corrcoef(bce, own)[0, 1]), 6)
    return found


def _loss_quantiles(arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the quantiles of the samples' losses by epoch and number of minority labels.

    Three or more minority labels form one group, because few samples have them.
    """
    counts = arrays.get("minority_counts")
    if counts is None:
        return []
    group = np.minimum(counts, 3)
    rows = []
    for name in sorted(arrays):
        if not re.fullmatch(r"sample_losses_\d+", name):
            continue
        for count in np.unique(group):
            losses = arrays[name][group == count].astype(np.float64)
            row = {"epoch": int(name.rpartition("_")[2]), "minority_labels": int(count)}
            quantiles = np.percentile(losses, PERCENT).round(6).tolist()
            rows.append(row | {"samples": len(losses), "quantiles": quantiles})
    return rows
