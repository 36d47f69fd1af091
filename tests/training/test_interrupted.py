"""Processes that are stopped or killed in the middle: resuming gives the same bits."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HUNG
from tailbatch.training.checkpoints import load_checkpoint
from training import interrupted_run

SCRIPT = Path(interrupted_run.__file__)


@pytest.fixture(scope="module")
def undisturbed():
    return interrupted_run.train(None)


def start(checkpoint, how, step):
    command = [sys.executable, str(SCRIPT), str(checkpoint), how, str(step)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_sigterm_in_the_middle_of_an_epoch(tmp_path, undisturbed):
    checkpoint = tmp_path / "checkpoint.safetensors"
    with start(checkpoint, "wait", 9) as process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate("\n", timeout=HUNG)
    assert process.returncode == 1
    assert "TrainingInterrupted: stopped by SIGTERM in epoch 2" in errors
    assert load_checkpoint(checkpoint)["step"] == 9
    assert interrupted_run.train(checkpoint) == undisturbed


def test_kill_9_costs_the_steps_since_the_last_checkpoint(tmp_path, undisturbed):
    checkpoint = tmp_path / "checkpoint.safetensors"
    with start(checkpoint, "kill", 21) as process:
        process.communicate(timeout=HUNG)
    assert process.returncode == -signal.SIGKILL
    assert load_checkpoint(checkpoint)["step"] == 12, "saved after two epochs of six batches"
    assert interrupted_run.train(checkpoint) == undisturbed
