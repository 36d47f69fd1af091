"""Runs a study: in parallel, cheapest first, resumed after a crash, each run once."""

import errno
import hashlib
import logging
import re
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailbatch.errors import (
    ResultError,
    StudyError,
    TailbatchError,
    TrainingError,
    TrainingInterrupted,
)
from tailbatch.results import DatasetFacts, ResultStore, RunFailure, RunSpec, StudyPlan
from tailbatch.study.grid import Study
from tailbatch.study.pool import ThisProcess, WorkerPool, interruptible, said
from tailbatch.study.single import run
from tailbatch.study.sources import Custom, Forecast, Source, facts_of, scales_of
from tailbatch.training import Callback
from tailbatch.training.checkpoints import load_checkpoint

ATTEMPTS = 2
_TICK = 0.5  # seconds between checks of the runs in progress
_NO_GUARD = (
    "new processes run the script that starts them again: put what it does below the line "
    'if __name__ == "__main__": (or choose workers=1)'
)
_NO_ROOM = (errno.ENOSPC, errno.EROFS, errno.EDQUOT)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyProgress:
    """The progress of a study.

    Runs finished earlier count as done. ``under_way`` has each run in progress and the epochs it has
    finished; ``seconds_left`` is a forecast from the runs finished so far, for the available workers,
    None before the first.

    Examples
    --------
    >>> StudyProgress(total=4, done=1, failed=0, under_way=(), seconds_left=9.0).done
    1
    """

    total: int
    done: int
    failed: int
    under_way: tuple[tuple[RunSpec, int], ...]
    seconds_left: float | None


@dataclass(frozen=True)
class StudyOutcome:
    """The outcome of a study: how many runs were done now or skipped, and which failed.

    ``plan`` is the study's name in the store and the runs it wanted.

    Examples
    --------
    >>> StudyOutcome(done=3, skipped=1, failures=(), plan=StudyPlan(name="mine", specs=())).skipped
    1
    """

    done: int
    skipped: int
    failures: tuple[RunFailure, ...]
    plan: StudyPlan = field(repr=False)


@dataclass(frozen=True)
class _Job:
    """A run for a worker, how often it saves, and the code from outside the package that it names."""

    spec: RunSpec
    source: Source
    store: Path
    checkpoint_every: int
    customs: tuple[Custom, ...] = ()


@dataclass(frozen=True)
class _JobOutcome:
    """How a job ended; errors are text, which every kind of executor can pass on."""

    seconds: float
    error: str = ""
    traceback: str = ""
    interrupted: bool = False
    no_room: bool = False
    said: tuple[str, ...] = ()


def _perform(job: _Job) -> _JobOutcome:
    """Do a run in this process and keep its record; return errors and warnings as text."""
    start = time.perf_counter()
    failed: dict[str, Any] = {}
    try:
        with interruptible():
            for custom in job.customs:
                custom.make_known()
            _run_and_keep(job.spec, job.source, ResultStore(job.store), job.checkpoint_every)
    except (KeyboardInterrupt, TrainingInterrupted):
        failed = {"interrupted": True}
    except Exception as error:
        cause = error.__cause__ if isinstance(error, ResultError) else error
        full = isinstance(cause, OSError) and cause.errno in _NO_ROOM
        failed = {"error": _in_words(error), "traceback": traceback.format_exc(), "no_room": full}
    return _JobOutcome(time.perf_counter() - start, **failed, said=said())


def _run_and_keep(spec: RunSpec, source: Source, store: ResultStore, checkpoint_every: int) -> None:
    """Do a run unless the store has it, resuming from its checkpoint, and keep its record there."""
    if store.has(spec):
        return
    checkpoint = store.checkpoint(spec)
    _drop_damaged(checkpoint)
    heartbeat = _Heartbeat(spec, store)
    record, arrays = run(
        spec,
        source=source,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        callbacks=[heartbeat],
    )
    store.add(record, arrays)
    store.forget_progress(spec)


class _Heartbeat(Callback):
    """Tells the store about once per second that a run is in progress, and its epoch."""

    def __init__(self, spec: RunSpec, store: ResultStore) -> None:
        self._spec, self._store = spec, store
        self._last = time.monotonic()
        store.note_epoch(spec, 0)

    def on_batch(self, step: int, steps_per_epoch: int, objective: float) -> None:
        if time.monotonic() - self._last >= 1:
            self._last = time.monotonic()
            self._store.note_epoch(self._spec, step // steps_per_epoch)


def _drop_damaged(checkpoint: Path) -> None:
    """Remove a checkpoint that cannot be read: starting over loses less than failing."""
    if checkpoint.exists():
        try:
            if not checkpoint.is_file():
                raise TrainingError(f"{checkpoint} is not a regular file")
            load_checkpoint(checkpoint)
        except TrainingError as error:
            _log.warning("%s; the run starts over", error)
            checkpoint.unlink()


def _in_words(error: Exception) -> str:
    """Return the part of an error that matters to a reader."""
    # torch has no exception class for running out of main memory.
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return (
            f"the run needs more memory than is available ({error}): "
            "choose a smaller model or batch, or fewer workers"
        )
    return str(error) if isinstance(error, TailbatchError) else f"{type(error).__name__}: {error}"


def run_study(
    study: Study,
    store: ResultStore,
    executor: Callable[[], Executor],
    *,
    workers: int,
    listen: Callable[[StudyProgress], None] | None = None,
    checkpoint_every: int = 10,
    own_name: bool = False,
) -> StudyOutcome:
    """Do the runs of a study that the store does not have.

    A run that fails is retried once at the end, from its start, and then listed as failed. When a worker
    dies, the pool is replaced and the runs that were in progress resume from their checkpoints. Ctrl-C
    saves and stops everything; the same call resumes. Several machines can work on one study through a
    shared store: a run in progress elsewhere is left for last. A custom strategy, model or loss that
    workers cannot import, such as one from a notebook, runs in this process, after the others.

    Parameters
    ----------
    study, store
        What to run, and where records are read and written.
    executor
        Function that makes the workers, for instance ``lambda: WorkerPool(2)``.
    workers
        Number of runs in progress at a time.
    listen
        Called with the progress at the start, and then about twice per second.
    checkpoint_every
        Number of epochs between checkpoints.
    own_name
        Add the data and a digest of the runs to the study's name, so that no other study in the store
        replaces it. Otherwise it replaces a study of the same name.

    Examples
    --------
    >>> import tempfile
    >>> from tailbatch.study import WorkerPool
    >>> store = ResultStore(tempfile.mkdtemp())
    >>> study = Study(name="facts", datasets=["debtags"], strategies=[])
    >>> run_study(study, store, lambda: WorkerPool(1), workers=1)
    StudyOutcome(done=0, skipped=0, failures=())
    """
    WorkerPool.leave_if_unguarded()
    store.tidy()
    for notice in study.notices:
        _log.warning("%s", notice)
    facts, unreadable = _look_up(study, store)
    digests = {s.name: facts[s.name].digest if s.name in facts else "" for s in study.sources}
    specs = Forecast(facts).cheapest_first(study.specs(digests, scales_of(facts.values())))
    name = study.name
    if own_name:
        name = _name_of_its_own(name, list(digests), [spec.digest for spec in specs])
    plan = StudyPlan(name=name, specs=specs, title=study.title, shows=tuple(study.shows))
    store.keep_study(plan)
    runner = _Runner(store, Forecast(facts), workers, total=len(specs), listen=listen)
    sources = {source.name: source for source in study.sources}
    done = store.done()
    here: list[_Job] = []
    for spec in specs:
        if spec.digest in done:
            runner.skip(spec)
        elif spec.dataset in unreadable:
            runner.fail(spec, unreadable[spec.dataset])
        else:
            customs = Custom.of(spec)
            folder = store.path.resolve()
            job = _Job(spec, sources[spec.dataset], folder, checkpoint_every, customs)
            (runner.waiting if all(custom.can_travel() for custom in customs) else here).append(job)
    runner.tell()
    runner.work_off(executor)
    if here:
        _say_who_stays(here)
        runner.waiting.extend(here)
        runner.workers = 1
        runner.work_off(ThisProcess)
    return StudyOutcome(runner.done, runner.skipped, tuple(runner.failures), plan)


def _name_of_its_own(name: str, datasets: Sequence[str], digests: Iterable[str]) -> str:
    """Return a name unique to a study of these runs: ``compare-scene-and-1-more-dbfa1458``."""
    shown = re.sub(r"\W+", "-", datasets[0])[:40].strip("-") if datasets else ""
    more = f"and-{len(datasets) - 1}-more" if len(datasets) > 1 else ""
    digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()[:8]
    return "-".join(filter(None, (name, shown, more, digest)))


def _say_who_stays(jobs: Iterable[_Job]) -> None:
    customs = {custom[:2]: custom for job in jobs for custom in job.customs}
    names = ", ".join(f"{c.field} {c.name}" for c in customs.values() if not c.can_travel())
    why = "other processes cannot import this code, so its runs are done in this process"
    _log.info("%s: %s", names, why)


def study_progress(store: ResultStore) -> dict[str, StudyProgress]:
    """Return the progress of each study of a store, on whichever machines it runs.

    The time left is for one worker, estimated from a few records of each dataset and model.

    Examples
    --------
    >>> import tempfile
    >>> store = ResultStore(tempfile.mkdtemp())
    >>> specs = tuple(RunSpec(dataset="debtags", dataset_digest="", fold=fold) for fold in range(5))
    >>> store.keep_study(StudyPlan(name="mine", specs=specs))
    >>> study_progress(store)["mine"].total
    5
    """
    done = store.done()  # reads every record, so once for all studies
    failed = {failure.spec.digest for failure in store.failures()} - done
    facts = {dataset.name: dataset for dataset in store.datasets().values()}
    found = {}
    for plan in store.studies():
        forecast, missing = Forecast(facts), []
        for spec in plan.specs:
            if spec.digest not in done:
                missing.append(spec)
            elif not forecast.knows(spec):
                forecast.learn(spec, store.get(spec).seconds)
        under_way = [(s, store.epochs_done(s)) for s in missing if store.is_under_way(s)]
        found[plan.name] = StudyProgress(
            total=len(plan.specs),
            done=len(plan.specs) - len(missing),
            failed=sum(spec.digest in failed for spec in missing),
            under_way=tuple(under_way),
            seconds_left=_seconds_left(forecast, missing, under_way),
        )
    return found


def _seconds_left(
    forecast: Forecast, specs: Iterable[RunSpec], under_way: Iterable[tuple[RunSpec, int]]
) -> float | None:
    """Return how long one worker takes for runs, some of which are in progress."""
    left = forecast.seconds(specs)
    if left is None:
        return None
    for spec, epochs in under_way:
        left -= (forecast.seconds([spec]) or 0) * forecast.share_done(spec, epochs)
    return left


def _look_up(study: Study, store: ResultStore) -> tuple[dict[str, DatasetFacts], dict[str, str]]:
    """Return the facts of the datasets that can be read, and why the others cannot."""
    facts, unreadable = {}, {}
    for source in study.sources:
        try:
            facts[source.name] = facts_of(source, study.preparations, store)
        except ResultError:
            raise  # the store, not the dataset
        except (TailbatchError, OSError) as error:
            unreadable[source.name] = str(error)
            _log.warning("%s cannot be read, so its runs fail: %s", source.name, error)
    return facts, unreadable


class _Runner:
    """The runs of a study: waiting, in progress, done and failed."""

    def __init__(
        self,
        store: ResultStore,
        forecast: Forecast,
        workers: int,
        *,
        total: int,
        listen: Callable[[StudyProgress], None] | None,
    ) -> None:
        self.store, self.forecast, self.workers = store, forecast, workers
        self.total, self.listen = total, listen
        self.waiting: deque[_Job] = deque()
        self.under_way: dict[Future[_JobOutcome], _Job] = {}
        self.done = self.skipped = 0
        self.failures: list[RunFailure] = []
        self._attempts: Counter[str] = Counter()
        self._suspects: set[str] = set()
        self._said: set[str] = set()

    def skip(self, spec: RunSpec) -> None:
        """Count a run done earlier, perhaps by a process that was killed before it cleaned up."""
        self.skipped += 1
        self.store.forget_progress(spec)

    def fail(self, spec: RunSpec, message: str, trace: str = "") -> None:
        """List a run as failed."""
        attempts = max(1, self._attempts[spec.digest])
        failure = RunFailure(spec=spec, message=message, traceback=trace, attempts=attempts)
        self.store.note_pause(spec)
        self.store.keep_failure(failure)
        self.failures.append(failure)

    def work_off(self, executor: Callable[[], Executor]) -> None:
        """Do all waiting runs, with a new pool each time one breaks."""
        while self.waiting:
            pool = executor()
            try:
                self._hand_out(pool)
            except BrokenExecutor as error:
                pool.shutdown(cancel_futures=True)
                if getattr(pool, "ran_the_script_again", False):
                    raise StudyError(_NO_GUARD) from None
                self._take_back(error)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            else:
                pool.shutdown()

    def _hand_out(self, pool: Executor) -> None:
        while self.waiting or self.under_way:
            # A run that was in progress when a worker died is retried alone, to find the one at fault.
            limit = 1 if self._suspects else self.workers
            while self.waiting and len(self.under_way) < limit:
                job = self._next()
                try:
                    self.under_way[pool.submit(_perform, job)] = job
                except BrokenExecutor:
                    self.waiting.appendleft(job)
                    raise
            finished, _ = wait(self.under_way, timeout=_TICK, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome = future.result()
                self._close(self.under_way.pop(future), outcome)
            self.tell()

    def _next(self) -> _Job:
        """Take the first run that is not in progress elsewhere, or the first of all."""
        for position, job in enumerate(self.waiting):
            if not self.store.is_under_way(job.spec):
                del self.waiting[position]
                return job
        return self.waiting.popleft()

    def _close(self, job: _Job, outcome: _JobOutcome) -> None:
        spec = job.spec
        self._suspects.discard(spec.digest)
        for text in outcome.said:
            if text not in self._said:
                self._said.add(text)
                _log.warning("%s", text)
        if outcome.no_room:
            raise StudyError(outcome.error)
        if outcome.interrupted:
            self._put_back([job])
        elif not outcome.error:
            self.done += 1
            self.forecast.learn(spec, outcome.seconds)
        else:
            self._attempts[spec.digest] += 1
            if self._attempts[spec.digest] < ATTEMPTS:
                _log.info("a run failed and will be retried: %s", outcome.error)
                # From the start: its checkpoint may be the cause.
                self.store.forget_progress(spec)
                self.waiting.append(job)
            else:
                self.fail(spec, outcome.error, outcome.traceback)

    def _take_back(self, error: BrokenExecutor) -> None:
        """Put the runs in progress back at the front after a worker died."""
        jobs = list(self.under_way.values())
        self.under_way.clear()
        _log.warning("a worker process died; %d runs resume from their checkpoints", len(jobs))
        if len(jobs) == 1:
            spec = jobs[0].spec
            self._attempts[spec.digest] += 1
            if self._attempts[spec.digest] >= ATTEMPTS:
                self._suspects.discard(spec.digest)
                self.fail(spec, f"its worker process died, perhaps for lack of memory ({error})")
                return
        self._suspects.update(job.spec.digest for job in jobs)
        self._put_back(jobs)

    def _put_back(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            self.store.note_pause(job.spec)
        self.waiting.extendleft(reversed(jobs))

    def tell(self) -> None:
        """Report the progress."""
        if self.listen is None:
            return
        running = [job.spec for job in self.under_way.values()]
        under_way = tuple((spec, self.store.epochs_done(spec)) for spec in running)
        missing = [*running, *(job.spec for job in self.waiting)]
        left = _seconds_left(self.forecast, missing, under_way)
        self.listen(
            StudyProgress(
                total=self.total,
                done=self.done + self.skipped,
                failed=len(self.failures),
                under_way=under_way,
                seconds_left=None if left is None else left / self.workers,
            )
        )
