"""A study on a head node and two workers started by hand on this machine, killed and resumed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import HUNG
from study_samples import contents, tiny_file
from tailbatch.results import ResultStore

STUDY = """
name = "tiny"
datasets = ["{data}"]
models = [{{ name = "mlp", hidden = [8] }}]
strategies = ["random", "adaptive"]
n_folds = 3

[plan]
epochs = {epochs}
batch_size = 16
lr = 0.01
"""
RAY = str(Path(sys.executable).with_name("ray"))


def start(*arguments):
    """Start a node of Ray in the foreground, in a session of its own, so that it can be stopped whole."""
    return subprocess.Popen(
        [RAY, "start", "--block", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def cluster():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    head = ("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
    nodes = [start(*head, "--node-ip-address=127.0.0.1")]
    time.sleep(10)
    nodes += [start(f"--address={address}", "--num-cpus=1") for _ in range(2)]
    yield address
    for node in reversed(nodes):
        os.killpg(node.pid, signal.SIGKILL)  # with all that the node has started
        node.wait()


@pytest.mark.slow
def test_a_killed_study_resumes_on_nodes_started_by_hand(cluster, tmp_path):
    study = tmp_path / "tiny.toml"
    study.write_text(STUDY.format(data=tiny_file(tmp_path), epochs=60))
    alone, store = tmp_path / "alone", tmp_path / "store"

    def command(folder, *more):
        arguments = ["study", "run", str(study), "--store", str(folder), *more]
        return [sys.executable, "-m", "tailbatch", *arguments]

    subprocess.run(command(alone, "--workers", "1"), check=True, capture_output=True)
    deadline = time.monotonic() + HUNG
    while True:  # a node that is not there yet refuses
        killed = subprocess.Popen(
            command(store, "--ray", cluster), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        while killed.poll() is None and not list((store / "runs").glob("[!.]*.json")):
            time.sleep(0.05)
        if killed.poll() is None or time.monotonic() > deadline:
            break
    killed.kill()
    killed.wait()
    before = set(contents(ResultStore(store)))
    assert 0 < len(before) < len(contents(ResultStore(alone)))
    done = subprocess.run(command(store, "--ray", cluster), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert contents(ResultStore(store)) == contents(ResultStore(alone))
