"""A folder of run records that processes and machines can share."""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tailbatch.data.npz import read_arrays
from tailbatch.errors import ResultError
from tailbatch.files import read_regular, replacing, sweep
from tailbatch.results.record import (
    DatasetFacts,
    OtherVersionError,
    RecordSource,
    RunFailure,
    RunRecord,
    StudyPlan,
    from_json,
    to_json,
)
from tailbatch.results.spec import RunSpec

_MINUTE = 60
_LARGEST = 64 << 20  # bytes of a record or plan; a run of 20,000 epochs has a third of it
_DIGEST = re.compile("[0-9a-f]{32}")

_Kept = TypeVar("_Kept")
_log = logging.getLogger(__name__)


class ResultStore(RecordSource):
    """A folder of run records, safe to share between processes and machines.

    ==================================== =============================================================
    ``runs/<digest>.json``               a run's record
    ``runs/<digest>.npz``                its bulky arrays
    ``checkpoints/<digest>.safetensors`` the checkpoint from which an interrupted run resumes
    ``checkpoints/<digest>.epoch``       the number of epochs it has finished
    ``failures/<digest>.json``           why a run failed
    ``studies/<name>.json``              the runs a study wants
    ``datasets/<digest>.json``           content and size of the datasets, by file
    ``damaged/``                         records that could not be read
    ==================================== =============================================================

    Files are written atomically, and a record never changes: when two processes do the same run, the
    second replaces the record with an equal one. A record that cannot be read is moved to ``damaged/``
    with a log message, so that its run is done again. Several studies can share a store; a run that
    several of them want is done once.

    Parameters
    ----------
    path
        The folder; it is created when something is first kept.
    plan
        See only this study, even if another one has taken its name since.

    Examples
    --------
    >>> import tempfile
    >>> store = ResultStore(Path(tempfile.mkdtemp()))
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12")
    >>> store.add(RunRecord(spec=spec, validation={}, test={"macro_f": 0.5}, history=(),
    ...                     best_epoch=1, warm_up_digest=""))
    >>> store.has(spec), store.frame()["macro_f"].tolist()
    (True, [0.5])
    """

    def __init__(self, path: Path | str, plan: StudyPlan | None = None) -> None:
        self.path = Path(path)
        self._plan = plan

    def has(self, spec: RunSpec) -> bool:
        """Whether the run is done."""
        return self._file("runs", spec.digest).exists()

    def add(self, record: RunRecord, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Keep a record, its arrays first, so that a record never lacks them."""
        if record.spec.scale == "auto":
            raise ResultError('a record says how features were scaled, got scale "auto"')
        path = self._file("runs", record.spec.digest)
        with self._writing():
            beside = path.with_suffix(".npz")
            if arrays:
                _write_arrays(beside, arrays)
            with replacing(path) as temporary:
                temporary.write_text(record.to_json(), encoding="utf-8")
            if arrays and not beside.exists():  # the folder was deleted between the two
                _write_arrays(beside, arrays)
            self._file("failures", record.spec.digest).unlink(missing_ok=True)

    def get(self, spec: RunSpec) -> RunRecord:
        """Return the record of a finished run."""
        if not self.has(spec):
            raise ResultError(f"{self.path} has no record of run {spec.digest}: it is not done yet")
        return self._record(self._file("runs", spec.digest))

    def arrays(self, spec: RunSpec) -> dict[str, np.ndarray]:
        """Return the arrays kept with a run; empty if there are none."""
        path = self._file("runs", spec.digest).with_suffix(".npz")
        return read_arrays(path) if path.is_file() else {}

    def checkpoint(self, spec: RunSpec) -> Path:
        """Return where a run in progress keeps its checkpoint."""
        return self.path / "checkpoints" / f"{spec.digest}.safetensors"

    def epochs_done(self, spec: RunSpec) -> int:
        """Return the number of epochs that a run in progress has finished; 0 if unknown."""
        try:
            return int(read_regular(self._epoch_file(spec), limit=20))
        except (OSError, ValueError):
            return 0

    def is_under_way(self, spec: RunSpec) -> bool:
        """Whether some process, here or on another machine, worked on the run in the last minute."""
        try:
            return time.time() - self._epoch_file(spec).stat().st_mtime < _MINUTE
        except FileNotFoundError:
            return False

    def note_epoch(self, spec: RunSpec, epochs_done: int) -> None:
        """Mark a run as in progress. The mark need not survive a crash, so it is not flushed to disk."""
        path = self._epoch_file(spec)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(epochs_done))

    def note_pause(self, spec: RunSpec) -> None:
        """Mark a run as no longer in progress; its checkpoint is kept."""
        self._epoch_file(spec).unlink(missing_ok=True)

    def forget_progress(self, spec: RunSpec) -> None:
        """Remove the progress files of a finished run."""
        self.checkpoint(spec).unlink(missing_ok=True)
        self.note_pause(spec)

    def records(self, study: str | None = None) -> Iterator[RunRecord]:
        """Yield every readable record, in the order of digests; set the damaged ones aside."""
        wanted = None if study is None else {spec.digest for spec in self.study(study).specs}
        for path in self._files("runs"):
            if wanted is None or path.stem in wanted:
                record = self._readable(path)
                if record is not None:
                    yield record

    def done(self) -> frozenset[str]:
        """Return the digests of all runs that are done, setting damaged records aside."""
        digests = (self._whole_digest(path) for path in self._files("runs"))
        return frozenset(digest for digest in digests if digest is not None)

    def keep_failure(self, failure: RunFailure) -> None:
        """Keep why a run failed; a later success removes it."""
        self._keep("failures", failure.spec.digest, asdict(failure))

    def keep_study(self, plan: StudyPlan) -> None:
        """Keep which runs a study wants; a study of the same name is replaced."""
        specs = [spec.to_dict() for spec in plan.specs]
        self._keep("studies", plan.name, {**vars(plan), "specs": specs})

    def studies(self) -> tuple[StudyPlan, ...]:
        """Return the studies that use this store, by name."""
        return super().studies() if self._plan is None else (self._plan,)

    def keep_dataset(self, facts: DatasetFacts, key: str) -> None:
        """Keep a dataset's facts under a key, which is a digest and names its file."""
        self.check_key(key)
        self._keep("datasets", key, asdict(facts))

    def add_missing(self, source: RecordSource) -> int:
        """Add the records of an archive or store that this one lacks, and return how many runs.

        Existing records are unchanged, since they may hold more: arrays, tracebacks, folders of datasets.

        Examples
        --------
        >>> import tempfile
        >>> there, here = ResultStore(tempfile.mkdtemp()), ResultStore(tempfile.mkdtemp())
        >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12")
        >>> there.add(RunRecord(spec=spec, validation={}, test={"macro_f": 0.5}, history=(),
        ...                     best_epoch=1, warm_up_digest=""))
        >>> here.add_missing(there), here.has(spec)
        (1, True)
        """
        done, added = self.done(), set()
        failures, studies, facts_by_key = source.failures(), source.studies(), source.datasets()
        for _ in source.records():
            pass  # a damaged archive raises here, before anything is written
        for record in source.records():
            if record.spec.digest not in done:
                self.add(record)
                added.add(record.spec.digest)
        known = done | added | {failure.spec.digest for failure in self.failures()}
        for failure in failures:
            if failure.spec.digest not in known:
                self.keep_failure(failure)
        plans = {plan.name for plan in self.studies()}
        for plan in studies:
            if plan.name not in plans:
                self.keep_study(plan)
        datasets = self.datasets()
        for key, facts in facts_by_key.items():
            if key not in datasets:
                self.keep_dataset(facts, key)
        return len(added)

    @staticmethod
    def check_key(key: str) -> None:
        """Raise unless a key is a digest: as the name of a file, it must not lead out of a store."""
        if not _DIGEST.fullmatch(key):
            raise ResultError(f"the key of a dataset is 32 hexadecimal digits, got {key!r:.60}")

    def tidy(self) -> None:
        """Remove the leftovers of killed writers; files being written, here or elsewhere, stay."""
        for folder in (self.path, *self.path.glob("[!.]*/")):
            sweep(folder)

    def _file(self, kind: str, name: str) -> Path:
        return self.path / kind / f"{name}.json"

    def _epoch_file(self, spec: RunSpec) -> Path:
        return self.checkpoint(spec).with_suffix(".epoch")

    def _files(self, kind: str) -> Iterator[Path]:
        for path in sorted((self.path / kind).glob("*.json")):
            if not path.name.startswith("."):  # otherwise another process is writing it
                yield path

    def _keep(self, kind: str, name: str, values: Mapping[str, Any]) -> None:
        with self._writing(), replacing(self._file(kind, name)) as temporary:
            temporary.write_text(to_json(values), encoding="utf-8")

    def _kept(
        self, kind: str, made: Callable[[Mapping[str, Any]], _Kept]
    ) -> Iterator[tuple[str, _Kept]]:
        """Yield the name and content of each file of a kind; damaged files are set aside."""
        for path in self._files(kind):
            try:
                yield path.stem, made(from_json(_read(path)))
            except OtherVersionError as error:
                raise ResultError(f"{path}: {error}") from error
            except ResultError as error:
                self._set_aside(path, error)

    def _record(self, path: Path) -> RunRecord:
        text = _read(path)
        try:
            record = RunRecord.from_json(text)
        except OtherVersionError as error:
            raise OtherVersionError(f"{path} was {error}") from error
        if path.stem != record.spec.digest:
            raise ResultError(f"{path.name} holds another run ({record.spec.digest})")
        if RunRecord.sealed_digest(text.encode()) is None:
            raise ResultError("its checksum does not agree with its content")
        return record

    def _whole_digest(self, path: Path) -> str | None:
        """Return the digest of the run in a file; set a damaged file aside and return None."""
        try:
            text = read_regular(path, _LARGEST)
        except FileNotFoundError:
            return None  # another process has just set it aside
        except ValueError as error:
            self._set_aside(path, error)
            return None
        if RunRecord.sealed_digest(text) == path.stem:
            return path.stem
        record = self._readable(path)
        return None if record is None else record.spec.digest

    def _readable(self, path: Path) -> RunRecord | None:
        """Return a record, or set it aside if it is damaged."""
        try:
            return self._record(path)
        except FileNotFoundError:
            return None  # another process has just set it aside
        except OtherVersionError:
            raise
        except ResultError as error:
            self._set_aside(path, error)
            return None

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = self.path / "damaged" / path.name
        with self._writing(), suppress(FileNotFoundError):
            aside.parent.mkdir(exist_ok=True)
            path.replace(aside)
        _log.warning(
            "%s is damaged (%s); moved to %s, its run will be done again", path, error, aside
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResultError(
                f"the store {self.path} cannot be written ({error.strerror or error}): "
                "free some space, or choose another folder"
            ) from error


def _read(path: Path) -> str:
    try:
        return read_regular(path, _LARGEST).decode()
    except UnicodeDecodeError as error:
        raise ResultError(f"not text: {error}") from error
    except ValueError as error:
        raise ResultError(str(error)) from error


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as temporary:
        np.savez_compressed(temporary, allow_pickle=False, **dict(arrays))
