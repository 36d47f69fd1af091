"""A full, forbidden or broken disk at the n-th write: said clearly, nothing damaged, made good."""

import os

import pytest

from faults.commands import COMMANDS
from faults.writes import FAULTS, Writes


def tried(command, cases, whole, server, home):
    """Disturb a command at the n-th write for each of (n, fault, lasting); go on after each."""
    expected, _, _ = whole(command)
    done = 0
    for at, fault, lasting in cases:
        one = COMMANDS[command](home / f"{at}-{fault}-{lasting}", server.address)
        ended = one.start(Writes(one.folder, at, fault, lasting=lasting)).end()
        case = f"{command}: {fault} at write {at}{' and after' if lasting else ''}: {ended.said}"
        assert ended.code in (0, 1, 2), case
        assert "Traceback" not in ended.said, case
        assert "unexpected" not in ended.said, case
        if ended.code:
            assert os.strerror(FAULTS[fault]) in ended.said, case
        one.check()
        ended = one.start(Writes(one.folder)).end()
        assert ended.code == 0, f"{case}\n{ended.said}"
        assert one.result() == expected, case
        done += 1
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_some_writes(command, whole, server, tmp_path):
    _, _, writes = whole(command)
    step = -(-writes // 6)
    cases = [
        (at, fault, lasting)
        for (fault, lasting), at in zip(
            [(name, lasting) for lasting in (True, False) for name in FAULTS],
            range(2, writes + 1, step),
            strict=False,
        )
    ]
    assert tried(command, cases, whole, server, tmp_path) == len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_write(command, whole, server, tmp_path, capsys):
    _, _, writes = whole(command)
    cases = [
        (at, fault, lasting)
        for at in range(1, writes + 1)
        for fault in FAULTS
        for lasting in (True, False)
    ]
    done = tried(command, cases, whole, server, tmp_path)
    with capsys.disabled():
        name = COMMANDS[command].name
        print(f"\n{name}: {done} of {len(cases)} faults made good, at {writes} writes")  # noqa: T201
    assert done == len(cases)
