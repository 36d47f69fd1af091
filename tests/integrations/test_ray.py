"""Ray as the engine of a study, against a real local cluster of two processors."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest
import ray
from typer.testing import CliRunner

from patience import HUNG
from study_samples import contents, run_here, tiny_file, tiny_study
from tailbatch.cli import parts
from tailbatch.cli.app import app
from tailbatch.errors import DataError, TailbatchError
from tailbatch.estimator import TailbatchClassifier, scoring
from tailbatch.integrations.ray import RayExecutor
from tailbatch.results import ResultStore
from tailbatch.study import run_study


@pytest.fixture(scope="module", autouse=True)
def cluster():
    for attempt in range(10):
        try:
            ray.init(
                address="local",  # never a cluster that somebody left behind
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
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


# ---- scoring ---------------------------------------------------------------------------------


def predict(*arguments):
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    if isinstance(result.exception, TailbatchError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def scored(tmp_path, monkeypatch):
    """A model, rows in uneven row groups, and the parts that one process has written of a stopped run."""
    monkeypatch.setattr(scoring, "MOST_ROWS", 1024)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.random((4000, 3)), columns=list("abc"))
    classifier = TailbatchClassifier("mlp", epochs=1, random_state=0, device="cpu")
    classifier.fit(X[:100], pd.DataFrame({"high": X["a"][:100] > 0.5})).save(tmp_path / "model")
    X.to_parquet(tmp_path / "new.parquet", row_group_size=900)
    return tmp_path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_cluster_writes_the_bytes_of_one_process(scored, suffix, monkeypatch):
    model, data = scored / "model", scored / "new.parquet"
    predict(model, data, "--out", scored / f"one.{suffix}", "--keep", "b")
    out = scored / f"two.{suffix}"
    monkeypatch.setattr(
        parts._PartedFile, "join", lambda *_: sys.exit(9)
    )  # all is done but the end
    with pytest.raises(AssertionError):
        predict(model, data, "--out", out, "--keep", "b", "--ray", "auto")
    monkeypatch.undo()
    monkeypatch.setattr(scoring, "MOST_ROWS", 1024)
    written = {path: path.stat().st_mtime_ns for path in scored.glob("two.*.partial/part-*")}
    assert len(written) == 4
    next(iter(sorted(written))).unlink()
    predict(model, data, "--out", out, "--keep", "b", "--ray", "auto")
    assert out.read_bytes() == (scored / f"one.{suffix}").read_bytes()
    assert not list(scored.glob("*.partial"))


def test_what_a_cluster_cannot_score_is_said(scored):
    (scored / "new.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(DataError, match="can only be read from its start; save it as Parquet"):
        predict(scored / "model", scored / "new.csv", "--out", scored / "x.csv", "--ray", "auto")
    pd.DataFrame({"a": [], "b": [], "c": []}).to_parquet(scored / "none.parquet")
    with pytest.raises(DataError, match=r"none\.parquet has no rows"):
        predict(
            scored / "model", scored / "none.parquet", "--out", scored / "x.csv", "--ray", "auto"
        )
