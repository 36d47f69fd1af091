"""A full, read-only, broken or missing disk: a clear message, nothing damaged, and recovery."""

import os
import subprocess

import pytest

from faults.commands import COMMANDS, WRITERS
from faults.writes import FAULTS, Writes


def tried(command, cases, whole, server, home):
    """Disturb a command at the n-th write for each of (n, fault, lasting); resume after each."""
    expected, _, _ = whole(command)
    done = 0
    for at, fault, lasting in cases:
        one = WRITERS[command](home / f"{at}-{fault}-{lasting}", server.address)
        ended = one.start(Writes(one.folder, at, fault, lasting=lasting)).end()
        case = f"{command}: {fault} at write {at}{' and after' if lasting else ''}: {ended.said}"
        assert ended.code in (0, 1, 2), case
        assert "Traceback" not in ended.said, case
        assert "unexpected" not in ended.said, case
        if ended.code:
            assert (os.strerror(FAULTS[fault]) if fault in FAULTS else "Error: ") in ended.said, (
                case
            )
        one.check(expected)
        ended = one.start(Writes(one.folder)).end()
        assert ended.code == 0, f"{case}\n{ended.said}"
        assert one.result() == expected, case
        done += 1
    return done


WAYS = [(fault, lasting) for lasting in (True, False) for fault in FAULTS]


@pytest.mark.parametrize("command", WRITERS)
def test_some_writes(command, whole, server, tmp_path):
    _, _, writes = whole(command)
    ways = WAYS[: WRITERS[command].ways]
    places = range(2, writes + 1, -(-writes // len(ways)))
    cases = [(at, *way) for at, way in zip(places, ways, strict=False)]
    assert tried(command, cases, whole, server, tmp_path) == len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITERS)
def test_every_write(command, whole, server, tmp_path, capsys):
    """A report takes seconds, so each of its writes is disturbed in one way only, in turn."""
    _, _, writes = whole(command)
    each = 1 if WRITERS[command].ways == 1 else len(WAYS)
    cases = [
        (at, *WAYS[(at + turn) % len(WAYS)]) for at in range(1, writes + 1) for turn in range(each)
    ]
    done = tried(command, cases, whole, server, tmp_path)
    with capsys.disabled():
        name = WRITERS[command].name
        print(f"\n{name}: {done} of {len(cases)} faults made good, at {writes} writes")  # noqa: T201
    assert done == len(cases)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_vanishes(command, whole, server, tmp_path):
    _, _, writes = whole(command)
    cases = [(at, "GONE", False) for at in (3, writes // 2, writes - 1)]
    assert tried(command, cases, whole, server, tmp_path) == 3


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITERS)
def test_a_folder_that_vanishes_at_any_write(command, whole, server, tmp_path, capsys):
    _, _, writes = whole(command)
    cases = [(at, "GONE", False) for at in range(1, writes + 1)]
    done = tried(command, cases, whole, server, tmp_path)
    with capsys.disabled():
        print(f"\n{WRITERS[command].name}: {done} of {writes} vanished folders made good")  # noqa: T201
    assert done == writes


@pytest.fixture
def disk():
    """Return a function that mounts a file system of a given size, or enlarges it."""
    mounted = []

    def mount(folder, size):
        options = f"size={size}" + (",remount" if folder in mounted else "")
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        mounted.append(folder)

    yield mount
    for folder in set(mounted):
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", [4096, 20_480, 40_960])
def test_a_disk_that_is_full_and_then_larger(size, disk, whole, server, tmp_path):
    compare = COMMANDS["compare"](tmp_path / "home", server.address)
    compare.folder.mkdir()
    disk(compare.folder, size)
    ended = compare.start(Writes(compare.folder)).end()
    assert ended.code == 2, ended.said
    assert "No space left on device" in ended.said
    assert "unexpected" not in ended.said
    compare.check()
    disk(compare.folder, 10_000_000)
    ended = compare.start(Writes(compare.folder)).end()
    assert ended.code == 0, ended.said
    assert compare.result() == whole("compare")[0]
