"""Memory stays bounded for many labels; measured in a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from pathlib import Path
from tailbatch.models import MODELS
model = MODELS["{name}"](499, 374)
x, y = torch.rand(128, 499), (torch.rand(128, 374) < 0.03).float()
for _ in range(2):
    model.step(x, y).objective.backward()
model.predict_proba(torch.rand(256, 499))
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("name", ["paca", "clif", "dela", "mpvae"])
def test_corel5k_size_stays_under_four_gigabytes(name):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(name=name)], capture_output=True, check=True, text=True
    )
    assert int(done.stdout) < 4 * 2**20
