"""The command line on two processes, as a user starts it."""

import os
import subprocess
import sys

from tailbatch.estimator import TailbatchClassifier


def fit(folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "tailbatch", "fit", "debtags", "--out", str(folder)]
    command += ["--epochs", "2", "--warm-up-epochs", "1", "--device", "cpu"]
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        command,
        env={"PATH": "", "OMP_NUM_THREADS": "1", **own},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_the_first_process_refuses_ends_the_others_with_its_reason(tmp_path):
    (tmp_path / "classifier.safetensors").touch()
    done = fit(tmp_path)
    assert done.returncode != 0
    assert f"{tmp_path} holds a trained model: choose another folder" in done.stderr
    assert "gloo" not in done.stderr.lower(), done.stderr
    assert "Connection" not in done.stderr, done.stderr


def test_torchrun_fits_one_classifier(tmp_path):
    folder = tmp_path / "model"
    done = fit(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Best epoch") == 1, "one process tells and writes"
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["README.md", "classifier.safetensors"]
    assert len(TailbatchClassifier.load(folder).label_names_) == 119
