"""Every example runs as a user would run it, and shows what it claims."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
#: finetune_text needs texts and an encoder: test_finetune_example.py brings small ones.
ALONE = sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"finetune_text"})


def shares(text):
    """Return the shares of draws with rare labels that an example printed, in percent."""
    return [int(share) for share in re.findall(r"(\d+)% of the", text)]


@pytest.mark.parametrize("name", ALONE)
def test_an_example_runs_alone(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    found = shares(capsys.readouterr().out)
    assert found
    assert max(found) >= found[0], "selection shows rare labels more often than the warm-up"


def test_torchrun_draws_what_one_process_draws(capsys):
    script = str(EXAMPLES / "distributed.py")
    runpy.run_path(script, run_name="__main__")
    alone = shares(capsys.readouterr().out)
    together = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", script],
        env={"PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    # The losses of two processes differ in the last digits, which may change single draws.
    assert shares(together.stdout) == pytest.approx(alone, abs=1)
