"""Worker processes: the same records as in one process, and nothing that outlives its study."""

import os
import platform
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from forked import context
from patience import until
from study_samples import (
    contents,
    die_once_saved,
    new_pages,
    run_here,
    run_in_another_process,
    tiny_study,
)
from tailbatch.results import ResultStore
from tailbatch.study import WorkerPool, run_study


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Deadly(WorkerPool):
    """Workers of which the first to save leaves a file and dies."""

    def __init__(self, workers, died):
        super().__init__(workers)
        self._died = died

    def submit(self, fn, job):
        return super().submit(die_once_saved, fn, job, self._died)


def test_two_workers_one_of_them_killed_give_the_records_of_one_process(tiny, store, tmp_path):
    study = tiny_study(tiny, epochs=30, folds=[0], strategies=["random", "adaptive", "minority"])
    alone = ResultStore(tmp_path / "alone")
    run_here(study, alone)
    died = tmp_path / "died"
    outcome = run_study(study, store, lambda: Deadly(2, died), workers=2, checkpoint_every=3)
    assert died.read_text() == "saved"
    assert (outcome.done, outcome.failures) == (3, ())
    assert contents(store) == contents(alone)


def test_what_workers_warn_of_is_said_once_by_the_process_that_asked(tmp_path, caplog, capfd):
    # A column that gives a label away, and a label that no training row has.
    rows = [f"{at % 20 + 0.25},{int(at % 20 > 14)},{int(at == 0)},{at % 2}" for at in range(60)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,y,once,z", *rows]))
    source = {"path": str(path), "labels": ["y", "once", "z"]}
    study = tiny_study(path, datasets=[source], strategies=["random"], n_folds=3, epochs=2)
    outcome = run_study(study, ResultStore(tmp_path / "store"), lambda: WorkerPool(2), workers=2)
    assert outcome.done == 3
    assert caplog.text.count("gives the label 'y' away") == 1
    assert caplog.text.count("1 of 3 labels have no positive in the training rows") == 1
    assert capfd.readouterr().err == ""


def test_a_store_survives_twenty_kills_of_its_runner(tiny, store, tmp_path):
    study = tiny_study(tiny, epochs=30, folds=[0])
    undisturbed = ResultStore(tmp_path / "undisturbed")
    start = time.monotonic()
    run_here(study, undisturbed)
    longest = time.monotonic() - start
    expected = contents(undisturbed)
    moments = np.random.default_rng(7).uniform(0, longest, size=1000)
    kills = 0
    for moment in moments:
        runner = context.Process(target=run_in_another_process, args=(study, store.path, 2))
        runner.start()
        runner.join(moment if kills < 20 else None)
        if runner.is_alive():
            runner.kill()
            runner.join()
            kills += 1
            continue
        assert runner.exitcode == 0
        assert contents(store) == expected
        assert [p for p in (store.path / "checkpoints").iterdir() if p.name[0] != "."] == []
        if kills == 20:
            break
        for path in (store.path / "runs").iterdir():
            path.unlink()  # it finished before it was killed: start again
    assert kills == 20


SCRIPT = """
import sys
from study_samples import tiny_study
from tailbatch.results import ResultStore
from tailbatch.study import Study, WorkerPool, run_study
if __name__ == "__main__":
    study = tiny_study(sys.argv[1], epochs=100_000, folds=[0], strategies=["random"])
    run_study(study, ResultStore(sys.argv[2]), lambda: WorkerPool(1), workers=1, checkpoint_every=50)
"""


@pytest.fixture
def endless(tiny, store, tmp_path):
    """A started runner whose one run never ends, and the process ids of its workers."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}
    said = tmp_path / "said"
    with said.open("w") as stream:
        runner = subprocess.Popen(
            [sys.executable, str(script), str(tiny), str(store.path)],
            env=environment,
            stderr=stream,
            # Background processes of a shell ignore Ctrl-C, and their children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        until(lambda: list((store.path / "checkpoints").glob("[!.]*.safetensors")), said.read_text)
        children = f"/proc/{runner.pid}/task/{runner.pid}/children"
        with open(children) as stream:
            workers = [int(pid) for pid in stream.read().split()]
        yield runner, workers, said
    finally:
        runner.kill()
        runner.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_when_their_runner_is_killed_or_interrupted(endless, store, number):
    runner, workers, said = endless
    assert all(alive(pid) for pid in workers)
    saved = next((store.path / "checkpoints").glob("[!.]*.safetensors"))
    before = saved.stat().st_mtime_ns
    runner.send_signal(number)
    until(lambda: runner.poll() is not None, said.read_text)
    until(lambda: not any(alive(pid) for pid in workers), said.read_text)
    assert saved.stat().st_mtime_ns > before, "the run in progress has saved once more"
    assert ("KeyboardInterrupt" in said.read_text()) == (number == signal.SIGINT)
    assert store.done() == frozenset()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="set for the C library of Linux only")
def test_a_worker_uses_freed_memory_again():
    with WorkerPool(1) as pool:
        assert pool.submit(new_pages).result() < 100  # of 4,096
