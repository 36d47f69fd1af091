"""The command line on two processes, as a user starts it."""

import subprocess
import sys

from tailbatch.estimator import TailbatchClassifier


def test_torchrun_fits_one_classifier(tmp_path):
    folder = tmp_path / "model"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "tailbatch", "fit", "debtags", "--out", str(folder)]
    command += ["--epochs", "2", "--warm-up", "1", "--device", "cpu"]
    done = subprocess.run(
        command,
        env={"PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Best epoch") == 1, "one process tells and writes"
    assert [path.name for path in folder.iterdir()] == ["classifier.safetensors"]
    assert len(TailbatchClassifier.load(folder).label_names_) == 119
