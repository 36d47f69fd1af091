"""A short deterministic pass of the fuzzing: every corpus and regression file, and changes to them.

`make fuzz` goes further, guided by coverage; both share the targets and the changes.
"""

import logging
import random
import resource
import time
from pathlib import Path

import pytest
from fuzzing.mutation import ODD_VALUES, _toml
from fuzzing.rule import Finding, accepted
from fuzzing.targets import TARGETS

from tailbatch.errors import DataError

FUZZING = Path(__file__).parents[2] / "fuzzing"
CHANGES = 400  # to each corpus file; five times as many in the slow tests
SECONDS, MEGABYTES = 5, 1_000
CORPUS = sorted(path for name in TARGETS for path in (FUZZING / "corpus" / name).iterdir())


def files(name):
    folders = (FUZZING / "corpus" / name, FUZZING / "regressions" / name)
    return sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _quiet():
    """Keep the notices about thousands of damaged files out of the log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_every_file_gives_an_object_or_a_clear_refusal(name):
    for path in files(name):
        checked(TARGETS[name], path.read_bytes())


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in CORPUS],
)
def test_changed_files_give_an_object_or_a_clear_refusal(path):
    check_changes(path, CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in CORPUS],
)
def test_many_changes_give_an_object_or_a_clear_refusal(path):
    check_changes(path, 5 * CHANGES)


def check_changes(path, changes):
    target, seed, rng = TARGETS[path.parent.name], path.read_bytes(), random.Random(0)
    target.check(seed)  # also imports what is imported late
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(changes):
        checked(target, target.mutate(seed, rng))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MEGABYTES * 1024  # ru_maxrss counts kilobytes


def checked(target, data):
    """Check one input, name it where it is a finding, and do not wait long for an answer."""
    start = time.process_time()
    try:
        target.check(data)
    except Exception as error:
        error.add_note(f"input: {data[:2000]!r}")
        raise
    assert time.process_time() - start < SECONDS, data[:2000]


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_seeds_that_are_accepted_and_changes_that_are_refused(name, monkeypatch):
    """Else the pass would prove nothing."""
    outcomes = []

    def noting(read):
        outcomes.append(accepted(read))
        return outcomes[-1]

    for module in ("datasets", "results", "states"):
        monkeypatch.setattr(f"fuzzing.{module}.accepted", noting)
    target, rng = TARGETS[name], random.Random(1)
    for path in files(name):
        target.check(path.read_bytes())
    assert any(outcome is not None for outcome in outcomes)
    outcomes.clear()
    seed = files(name)[0].read_bytes()
    for _ in range(50):
        target.check(target.mutate(seed, rng))
    assert any(outcome is None for outcome in outcomes)


def test_the_same_seed_makes_the_same_changes():
    for name, target in TARGETS.items():
        seed = files(name)[0].read_bytes()
        once, again = (target.mutate(seed, random.Random(5)) for _ in range(2))
        assert once == again, name


def test_what_counts_as_a_clear_refusal():
    def refuse(message):
        raise DataError(message)

    assert accepted(lambda: refuse("the file is odd")) is None
    assert accepted(lambda: 3) == 3
    with pytest.raises(Finding, match="not one printable line: ''"):
        accepted(lambda: refuse(""))
    with pytest.raises(KeyError):
        accepted(lambda: {}["missing"])


def test_odd_values_are_written_as_toml():
    import tomllib

    for value in ODD_VALUES:
        if value is not None and value != "\ud800":
            read = tomllib.loads(f"x = {_toml(value)}")["x"]
            assert repr(read) == repr(value)
