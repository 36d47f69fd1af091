"""The digest of the user's code covers all that it reaches, and nothing that does not matter."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailbatch.registry import source_digest

HELPERS = """
import math
from dataclasses import dataclass, field

RATE = 0.5
NAMES = {"a", "b", "c", "d"}

def almost(x):
    return _scaled(x) * RATE

def _scaled(x):
    return math.sqrt(x)

@dataclass
class Base:
    power: int = 2
    rows: list = field(default_factory=list)

    def law(self, x):
        return x ** self.power

def unused(x):
    return x
"""
MINE = """
from functools import partial

import helpers
from helpers import Base

LEVEL = 3

class Zone(Base):
    strategy = "zone"

    @property
    def level(self):
        return LEVEL if "a" in helpers.NAMES else self

    @staticmethod
    def again(n):
        return Zone.again(n - 1) if n else Zone

    def draw(self, x):
        from helpers import almost
        # A comment.
        return almost(self.law(x))

made = partial(Zone, power=3)

if __name__ == "__main__":
    from tailbatch.registry import source_digest
    print(source_digest(Zone), source_digest(made))
"""


def digests(folder, *, helpers=HELPERS, mine=MINE, run=("mine.py",)):
    """Return the digests of the class and the partial, worked out in a process of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "helpers.py").write_text(helpers)
    (folder / "mine.py").write_text(mine)
    command = [sys.executable, "-B", *run]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


IMPORTED = (
    "-c",
    "import sys; sys.path.insert(0, '.'); import mine; from tailbatch.registry import source_digest as d;"
    "print(d(mine.Zone), d(mine.made))",
)


def test_a_script_and_an_import_of_it_have_one_digest(tmp_path):
    as_script = digests(tmp_path / "a")
    assert as_script == digests(tmp_path / "b", run=IMPORTED)
    assert len(set(as_script)) == 2


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (("RATE = 0.5", "RATE = 0.6"), True),
        (("math.sqrt(x)", "math.cbrt(x)"), True),
        (("x ** self.power", "x * self.power"), True),
        (("power: int = 2", "power: int = 4"), True),
        (('"c", "d"', '"c"'), True),
        (("LEVEL = 3", "LEVEL = 4"), True),
        (("# A comment.", "# Another comment."), False),
        (("    return x\n", "    return -x\n"), False),  # nothing uses it
    ],
)
def test_what_the_code_reaches_counts_and_nothing_else(change, differs, tmp_path):
    before = digests(tmp_path)
    assert HELPERS.replace(*change) != HELPERS or MINE.replace(*change) != MINE
    after = digests(tmp_path, helpers=HELPERS.replace(*change), mine=MINE.replace(*change))
    assert (before[0] != after[0]) == differs


def test_captured_values_count_whatever_they_are():
    def made(value):
        return lambda x: (x, value)

    values = [1, 1.0, "1", [1], (1,), {1}, {"a": 1}, made(1), made(2), Path("a"), None, b"1"]
    assert len({source_digest(made(value)) for value in values}) == len(values)
    assert source_digest(made({"a", "b"})) == source_digest(made({"b", "a"}))
    assert source_digest(made("x" * 3)) == source_digest(made("xxx"))


def test_what_cannot_be_hashed_is_never_taken_for_something_else(caplog):
    def made(value):
        return lambda x: (x, value)

    streams = [made(sys.stdout), made(sys.stderr)]
    assert source_digest(streams[0]) == source_digest(streams[0]) != source_digest(streams[1])
    assert "uses what cannot be hashed" in caplog.text
