"""The cost of a study besides training, and the speedup of a second worker."""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.harness import publish, table
from tailbatch.results import ResultStore, RunRecord, TrainingPlan
from tailbatch.study import Study, WorkerPool, load_study, run, run_study

TURNS = 3
_FOUR_PRESSURES = {"name": "adaptive", "selection_pressures": [2, 8, 16, 64]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [*_overhead_and_workers(Path(folder)), *_start_and_resume(Path(folder))]
    text = (
        "Medians of three rounds in which the contenders take turns. The machine was shared with other "
        "work: read the ratios within a round, not the seconds."
    )
    publish("study", f"## Studies\n\n{text}\n\n{table(['what', 'measured', 'target'], rows)}")


def _overhead_and_workers(folder: Path) -> list[list[str]]:
    """Do the same runs in this process without a runner, with one worker and with two."""
    data = "scene" if os.environ.get("TAILBATCH_DATA") else "debtags"
    plan = TrainingPlan(epochs=30, lr=1e-3)
    study = Study(name="bench", datasets=[data], models=["dela"], n_folds=2, plan=plan)
    overheads, gains, limits = [], [], []
    for turn in range(TURNS):
        by_hand = _seconds(partial(_run_by_hand, study))
        one, two = (
            _seconds(partial(_run, study, ResultStore(folder / f"{turn}-{n}"), n)) for n in (1, 2)
        )
        overheads.append(1 - by_hand / one)
        gains.append(one / two)
        limits.append(_limit())
    what = f"4 runs of DELA on {data}, 30 epochs"
    return [
        [f"runner's share of {what}", f"{median(overheads):.1%}", "under 3% of a study"],
        [f"two workers against one, {what}", f"{median(gains):.2f}x", "at least 1.6x"],
        ["the same for matrix products alone", f"{median(limits):.2f}x", "the limit here"],
    ]


def _limit() -> float:
    """Return the speedup of two processes over one when neither waits for anything."""
    with WorkerPool(2) as pool:
        for _ in range(2):  # both workers are up before timing starts
            wait([pool.submit(_products, 0.5), pool.submit(_products, 0.5)])
        one = pool.submit(_products, 5.0).result()
        two = sum(f.result() for f in [pool.submit(_products, 5.0) for _ in range(2)])
    return two / one


def _products(seconds: float) -> int:
    torch.set_num_threads(1)
    x, weights = torch.rand(128, 512), torch.rand(512, 512)
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        (x @ weights).relu_()
        count += 1
    return count


def _run_by_hand(study: Study) -> None:
    source = study.sources[0]
    for spec in study.specs({source.name: source.load().digest}):
        run(spec, source=source)


def _run(study: Study, store: ResultStore, workers: int) -> None:
    run_study(study, store, partial(WorkerPool, workers), workers=workers)


def _start_and_resume(folder: Path) -> list[list[str]]:
    """Start a study of 1,625 runs up to its first run, then resume it with all runs present."""
    study = _large_study()
    store = ResultStore(folder / "large")
    cold = _seconds(partial(_start, study, store))
    warm = median(_seconds(partial(_start, study, store)) for _ in range(TURNS))
    specs = store.study(study.name).specs
    template = _template(folder)
    for spec in specs:
        store.add(replace(template, spec=spec))
    resume = median(_seconds(partial(_run, study, store, 1)) for _ in range(TURNS))
    size = sum(path.stat().st_size for path in (store.path / "runs").iterdir()) / 1e6
    runs = f"{len(specs):,} runs on {len(study.datasets)} datasets"
    return [
        [f"starting {runs}, first time", f"{cold:.1f} s", ""],
        [f"starting {runs}, later", f"{warm:.2f} s", "under 5 s"],
        [f"resuming {runs}, all present ({size:.0f} MB)", f"{resume:.1f} s", "under 5 s"],
    ]


def _large_study() -> Study:
    """Return 5 models x 5 folds x 5 arms on 13 datasets, or as many runs on debtags alone."""
    study = replace(load_study("table-2"), strategies=["random", _FOUR_PRESSURES])
    if not os.environ.get("TAILBATCH_DATA"):
        return replace(study, datasets=["debtags"], seeds=range(13))
    # The full tmc2007 cannot be downloaded anywhere; emotions replaces it.
    here = ["emotions" if name == "tmc2007" else name for name in study.datasets]
    return replace(study, datasets=here)


class _NoWorkers(Executor):
    """Stops a study when its first run is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise KeyboardInterrupt


def _start(study: Study, store: ResultStore) -> None:
    with suppress(KeyboardInterrupt):
        run_study(study, store, _NoWorkers, workers=1)


def _template(folder: Path) -> RunRecord:
    """Return a record of the size of a run with 100 epochs."""
    record = next(ResultStore(folder / "0-1").records())
    history = (record.history * 100)[:100]
    return replace(record, history=history)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
