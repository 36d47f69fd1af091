"""`tailbatch.compare` in a script and on a terminal: the main guard, and the progress bar."""

import io
import logging
import subprocess
import sys

import numpy as np
import pytest

from patience import HUNG
from study_samples import tiny_file
from tailbatch import compare
from tailbatch.comparison import _Bar
from tailbatch.study import StudyProgress

SCRIPT = """
import sys
from tailbatch import compare

{guard}
    result = compare(
        sys.argv[1], models=["logistic"], strategies=["random"], n_folds=2, epochs=1,
        workers=2, store=sys.argv[2],
    )
    print(result.outcome.done)
"""


def run_script(tmp_path, guard):
    (tmp_path / "mine.py").write_text(SCRIPT.format(guard=guard))
    command = [sys.executable, "mine.py", str(tiny_file(tmp_path)), "store"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HUNG)


def test_a_script_without_a_main_guard_is_told_what_to_write(tmp_path):
    done = run_script(tmp_path, "if True:")
    assert done.returncode == 1
    *trace, last = done.stderr.strip().splitlines()
    assert 'put what it does below the line if __name__ == "__main__":' in last
    assert done.stderr.count("Traceback") == 1
    assert len(trace) < 30
    assert not list((tmp_path / "store").glob("*/*.json")) or not done.stdout


def test_a_script_with_a_main_guard_runs(tmp_path):
    done = run_script(tmp_path, 'if __name__ == "__main__":')
    assert (done.stdout, done.stderr) == ("2\n", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(text):
    """Return the lines that a terminal shows at the end."""
    lines = [[]]
    at = 0
    for character in text:
        if character == "\n":
            lines.append([])
            at = 0
        elif character == "\r":
            at = 0
        else:
            lines[-1][at : at + 1] = character
            at += 1
    return ["".join(line).rstrip() for line in lines]


@pytest.fixture
def arrays():
    X = np.random.default_rng(0).random((60, 4))
    return X, X[:, :3] > 0.6


@pytest.fixture
def settings():
    models = [{"name": "mlp", "hidden": [8]}]
    return {"models": models, "strategies": ["random"], "n_folds": 2, "epochs": 1}


def test_a_terminal_shows_a_bar_that_is_gone_at_the_end(arrays, settings, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    compare(*arrays, **settings)
    assert "] 0 of 2 runs" in stream.getvalue()
    assert "] 2 of 2 runs, about 0 s left" in stream.getvalue()
    assert shown(stream.getvalue()) == [""]


@pytest.mark.parametrize("progress", [True, False])
def test_a_file_gets_no_bar_and_neither_does_who_wants_none(
    arrays, settings, progress, monkeypatch
):
    stream = io.StringIO() if progress else Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    compare(*arrays, **settings, progress=progress)
    assert stream.getvalue() == ""


def test_a_function_is_told_the_progress(arrays, settings):
    told = []
    compare(*arrays, **settings, progress=told.append)
    assert [(each.done, each.total) for each in told][:: len(told) - 1] == [(0, 2), (2, 2)]


@pytest.mark.parametrize("columns", [10, 40, 200])
def test_the_bar_fits_on_a_line(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    progress = StudyProgress(total=40, done=3, failed=1, under_way=(), seconds_left=400.0)
    _Bar(stream).update(progress)
    (line,) = shown(stream.getvalue())
    assert "4 of 40 runs, about 7 min left, 1 failed".startswith(line.rpartition("] ")[2])
    assert len(line) < columns
    assert line


def test_a_note_is_a_line_of_its_own(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    bar, logger = _Bar(stream), logging.getLogger("tailbatch")
    monkeypatch.setattr(logger, "handlers", [bar])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    progress = StudyProgress(total=4, done=1, failed=0, under_way=(), seconds_left=None)
    bar.update(progress)
    logger.warning("forest takes no loss")
    bar.update(progress)
    first, second = shown(stream.getvalue())
    assert first == "forest takes no loss"
    assert second.endswith("] 1 of 4 runs")
