"""Ray as the engine of a study, against a real local cluster of two processors."""

import os
import signal
import threading
import time

import pytest
import ray

from patience import HUNG
from study_samples import contents, run_here, tiny_file, tiny_study
from tailbatch.errors import TailbatchError
from tailbatch.integrations.ray import RayExecutor
from tailbatch.results import ResultStore
from tailbatch.study import run_study


@pytest.fixture(scope="module", autouse=True)
def cluster():
    for attempt in range(10):
        try:
            ray.init(
                num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
            )
            break
        except Exception:  # Ray gives itself half a minute, too little on a busy machine
            ray.shutdown()
            if attempt == 9:
                raise
    yield
    ray.shutdown()


def workers_under_way(fn_name="_call"):
    """Return the process ids of this cluster's workers that run a call now."""
    parents, titles = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat, open(f"/proc/{entry}/cmdline") as title:
                parents[int(entry)] = int(stat.read().rpartition(")")[2].split()[1])
                titles[int(entry)] = title.read()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended

    def is_ours(pid):
        while pid in parents:
            if pid == os.getpid():
                return True
            pid = parents[pid]
        return False

    return [pid for pid, title in titles.items() if f"ray::{fn_name}" in title and is_ours(pid)]


def test_calls_run_elsewhere_and_errors_come_back():
    with RayExecutor(environment={"COLOR": "blue"}) as executor:
        assert executor.workers == 2
        assert executor.submit(os.getpid).result() != os.getpid()
        assert executor.submit(os.getenv, "COLOR").result() == "blue"
        with pytest.raises(ValueError, match="invalid literal for int"):
            executor.submit(int, "x").result()
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(int)


def test_a_connection_that_is_there_is_kept():
    with RayExecutor.connected("auto"):
        assert ray.is_initialized()
    assert ray.is_initialized()


def test_a_cluster_that_does_not_answer_is_said_clearly(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**_):
        raise ConnectionError("refused")

    monkeypatch.setattr(ray, "init", refuse)
    with (
        pytest.raises(TailbatchError, match=r"no Ray cluster answers at 10\.0\.0\.1:1"),
        RayExecutor.connected("10.0.0.1:1"),
    ):
        pytest.fail("nobody answers there")


def test_a_lost_workers_run_is_done_again_and_the_records_are_those_of_one_process(tmp_path):
    study = tiny_study(tiny_file(tmp_path), epochs=40, folds=[0])
    alone, store = ResultStore(tmp_path / "alone"), ResultStore(tmp_path / "store")
    run_here(study, alone)
    killed = []

    def kill_one_that_has_saved():
        deadline = time.monotonic() + HUNG
        while not killed and time.monotonic() < deadline:
            if list((store.path / "checkpoints").glob("[!.]*.safetensors")):
                killed.extend(workers_under_way()[:1])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    killer = threading.Thread(target=kill_one_that_has_saved)
    killer.start()
    outcome = run_study(study, store, RayExecutor, workers=2, checkpoint_every=3)
    killer.join()
    assert killed
    assert (outcome.done, outcome.failures) == (2, ())
    assert contents(store) == contents(alone)
