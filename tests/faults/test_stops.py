"""Stops other than crashes: SIGTERM, and a worker that runs out of memory."""

import signal
from concurrent.futures import ProcessPoolExecutor

import pytest

from faults.commands import COMMANDS, Stop
from faults.writes import Writes
from forked import context, limit_memory
from study_samples import contents, run_here, tiny_file, tiny_study
from tailbatch.results import ResultStore
from tailbatch.study import run_study


@pytest.mark.parametrize(("command", "at", "code"), [("fit", 5, 143), ("get", 9, -signal.SIGTERM)])
def test_sigterm_loses_nothing(command, at, code, whole, server, tmp_path):
    one = COMMANDS[command](tmp_path / "home", server.address)
    ended = one.start(Writes(one.folder, at, "TERM")).end()
    assert ended.code == code, ended.said
    if command == "fit":
        assert "To resume: tailbatch fit" in ended.said
    one.check()
    assert one.start(Writes(one.folder)).end().code == 0
    assert one.result() == whole(command)[0]


def test_sigterm_stops_a_comparison_with_its_workers(whole, server, tmp_path):
    compare = COMMANDS["compare"](tmp_path / "home", server.address)
    ended = compare.start(Stop(compare.folder)).end()
    assert ended.code == 143, ended.said
    compare.check()
    assert compare.start(Writes(compare.folder)).end().code == 0
    assert compare.result() == whole("compare")[0]


def test_a_run_without_memory_fails_alone_and_says_so(tmp_path):
    path = tiny_file(tmp_path)
    small = {"name": "mlp", "hidden": [8]}
    study = tiny_study(path, models=[{"name": "mlp", "hidden": [10**9]}, small], folds=[0])
    store, alone = ResultStore(tmp_path / "store"), ResultStore(tmp_path / "alone")
    outcome = run_study(
        study, store, lambda: ProcessPoolExecutor(1, context, limit_memory), workers=1
    )
    assert outcome.done == 2
    assert len(outcome.failures) == 2
    for failure in outcome.failures:
        assert failure.message.startswith("the run needs more memory than is available (")
        assert failure.message.endswith("): choose a smaller model or batch, or fewer workers")
    run_here(tiny_study(path, models=[small], folds=[0]), alone)
    assert contents(store) == contents(alone)
    assert list((store.path / "checkpoints").iterdir()) == []
