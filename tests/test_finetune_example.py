"""examples/finetune_text.py runs with every loop, resumes after a kill, and on two processes."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from integrations.tiny_encoder import write_corpus, write_encoder
from tailbatch.errors import MissingExtraError
from tailbatch.integrations.encoders import minilm

SCRIPT = str(Path(__file__).parent.parent / "examples" / "finetune_text.py")
LOOPS = ("trainer", "lightning", "plain")


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Return the example's arguments for a tiny encoder; texts are found where the catalog looks."""
    write_corpus(tmp_path / "goemotions")
    monkeypatch.setenv("TAILBATCH_DATA", str(tmp_path))
    encoder = write_encoder(tmp_path / "encoder")
    return ["--encoder", encoder, "--epochs", "2", "--lr", "3e-3", "--save-steps", "3"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the example in this process and returns what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [SCRIPT, *arguments])
        runpy.run_path(SCRIPT, run_name="__main__")
        return capsys.readouterr().out

    return run


def macro_ap(printed):
    return float(re.search(r"Macro-AP ([\d.]+)", printed)[1])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_killed_run_continues_as_if_nothing_had_been(loop, arguments, run, tmp_path, monkeypatch):
    whole = run(*arguments, "--loop", loop)
    assert int(re.search(r"(\d+)% of the draws", whole)[1]) > 10  # of the rows: 6%
    assert re.search(r"grief [\d.]+ \(\d+ test rows\)", whole)

    step, steps = torch.optim.AdamW.step, []

    def killed(self, *given, **named):
        steps.append(None)
        if len(steps) == 8:  # in the middle of the second epoch of 5 steps
            raise KeyboardInterrupt
        return step(self, *given, **named)

    folder = str(tmp_path / loop)
    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.AdamW, "step", killed)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            run(*arguments, "--loop", loop, "--folder", folder)
    resumed = run(*arguments, "--loop", loop, "--folder", folder)
    assert resumed.partition("% of the")[2] == whole.partition("% of the")[2]


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_two_processes_learn_what_one_does(loop, arguments, run):
    # Dropout differs from process to process, so the scores agree only roughly.
    alone = run(*arguments, "--loop", loop)
    together = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *(SCRIPT, *arguments, "--loop", loop),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"\d+% of the", together)[0] == re.search(r"\d+% of the", alone)[0]
    assert macro_ap(together) == pytest.approx(macro_ap(alone), abs=0.1)


@pytest.mark.slow
def test_minilm_learns_emotions(run, benchmark_data, monkeypatch):
    monkeypatch.setenv("TAILBATCH_DATA", str(benchmark_data))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if not (benchmark_data / "goemotions").is_dir():
        pytest.skip("goemotions is not in TAILBATCH_DATA")
    try:
        minilm()
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert macro_ap(run("--rows", "1500", "--loop", "plain")) > 0.1  # 0.136; by chance: 0.04
