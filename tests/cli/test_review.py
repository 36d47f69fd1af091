"""The terminal reviewer, through a pseudo-terminal: keys, progress, undo, and being killed."""

import os
import select
import signal
import sys
import time

import numpy as np
import pandas as pd
import pytest

from tailbatch.cli import main
from tailbatch.review import Sheet, write_review
from tailbatch.suggestions import suggest

pty = pytest.importorskip("pty")

PATIENCE = 120  # seconds, on a machine that does other things


@pytest.fixture
def path(tmp_path):
    pool = pd.DataFrame({"text": ["so sad", "\x1b[31m[bold]red", "great"], "n": [1, 2, 3]})
    chosen = suggest([[0.9], [0.5], [0.1]], [[1]], 3, label_names=["grief"], explore=0)
    out = tmp_path / "review.jsonl"
    write_review(pool, chosen, out)
    return out


class Terminal:
    """A process that runs the reviewer at a terminal of its own."""

    def __init__(self, path):
        self.seen = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:  # pragma: no cover # the child
            os.environ["TERM"] = "dumb"
            os.execv(sys.executable, [sys.executable, "-m", "tailbatch", "review", str(path)])

    def until(self, text):
        """Read until the text is on the screen."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} did not appear in {self.seen!r}"
            try:
                piece = os.read(self.terminal, 65_536)
            except OSError:
                piece = b""
            assert piece, f"{text!r} did not appear in {self.seen!r}"
            self.seen += piece.decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def press(self, key):
        os.write(self.terminal, key.encode())

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


def answers(path):
    sheet = Sheet(path)
    return [str(sheet.cell(*question)) for question in sheet.questions]


def test_keys(path):
    session = Terminal(path)
    session.until("so sad")
    session.until("1 of 3  grief?")
    session.press("y")
    session.until("\\x1b[31m[bold]red")  # neither the terminal nor rich obeys a row
    session.until("2 of 3  grief?")
    session.press("k")  # not one of ours: asked again
    session.until("2 of 3  grief?")
    session.press("n")
    session.until("3 of 3  grief?")
    session.press("u")
    session.until("2 of 3  grief?")
    assert answers(path) == ["yes", "", ""]
    session.press("s")
    session.until("3 of 3  grief?")
    session.press("n")
    session.until("grief: 1 positive in 2 reviewed")
    session.until("--add")
    assert session.end() == 0
    assert answers(path) == ["yes", "?", "no"]


def test_a_killed_review_loses_nothing_and_goes_on(path):
    session = Terminal(path)
    session.until("1 of 3  grief?")
    session.press("y")
    session.until("2 of 3  grief?")
    os.kill(session.pid, signal.SIGKILL)
    assert session.end() == -signal.SIGKILL
    assert answers(path) == ["yes", "", ""]
    session = Terminal(path)
    session.until("2 of 3  grief?")
    session.press("q")
    session.until("2 questions left")
    assert session.end() == 0
    assert answers(path) == ["yes", "", ""]


def test_it_needs_a_terminal(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tailbatch", "review", str(path)])
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 # pytest closes it
    with pytest.raises(SystemExit):
        main()
    assert "review needs a terminal; or write yes and no into" in capsys.readouterr().err


def test_a_file_without_a_question(tmp_path, monkeypatch, capsys):
    path = tmp_path / "review.csv"
    path.write_text("text,review_labels\na,\n")
    monkeypatch.setattr(sys, "argv", ["tailbatch", "review", str(path)])
    with pytest.raises(SystemExit):
        main()
    assert "has nothing to answer" in capsys.readouterr().err
    assert np.array_equal(pd.read_csv(path).columns, ["text", "review_labels"])
