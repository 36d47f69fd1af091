"""Every example runs as a user would run it, and shows what it claims."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
#: tickets is a module of the session; finetune_text needs texts and an encoder: test_finetune_example.py
#: brings small ones.
ALONE = sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"tickets", "finetune_text"})


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


def test_the_session_goes_from_a_messy_table_to_a_report(tmp_path):
    settings = {"PYTHON": sys.executable, "EPOCHS": "30", "FOLDS": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["sh", str(EXAMPLES / "session.sh"), str(tmp_path)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert labels["support"].is_monotonic_increasing
    assert labels.loc[labels["minority"], "f"].min() > 0.2, "rare labels are found"
    tags = pd.read_csv(tmp_path / "tags.csv", keep_default_na=False)
    assert list(tags.columns) == ["ticket_id", "tags"]
    assert (tags["tags"] != "").mean() > 0.5
    assert "the column 'plan' has values that training rows had not, in 1 row" in done.stderr
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 4
    assert "tickets" in (tmp_path / "report.html").read_text()
    assert "accessibility" in (tmp_path / "model" / "README.md").read_text()
