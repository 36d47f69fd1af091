"""kill -9 at any moment loses at most the unit in flight, and going on gives the same bits."""

import signal
import time

import numpy as np
import pytest

from faults.commands import COMMANDS
from faults.writes import Writes
from served_file import CONTENT


def survived(command, kills, whole, server, home, *, workers):
    """Kill a command at so many moments, half of them writes; go on and compare after each.

    With `workers`, every second of the other moments finds it as a user runs it: with worker
    processes, which are killed with it, and with the whole report.
    """
    expected, seconds, writes = whole(command)
    rng = np.random.default_rng(kills)
    steps = np.resize(rng.permutation(writes) + 1, kills - kills // 2).tolist()
    lengths = [seconds, real_seconds(command, home, server) if workers else seconds]
    done = tries = 0
    while done < kills and tries < 3 * kills:  # it may end before its kill comes
        one = COMMANDS[command](home / str(tries), server.address)
        tries += 1
        if steps:
            process = one.start(Writes(one.folder, at=steps.pop()))
        else:
            process = one.start(None if workers and tries % 2 else Writes(one.folder))
            process.process.join(rng.uniform(0, lengths[tries % 2]))
            process.kill()
        done += process.end().code == -signal.SIGKILL
        one.check()
        ended = one.start(Writes(one.folder)).end()
        assert ended.code == 0, ended.said
        assert one.result() == expected
    return done


def real_seconds(command, home, server):
    began = time.monotonic()
    ended = COMMANDS[command](home / "real", server.address).start().end()
    assert ended.code == 0, ended.said
    return time.monotonic() - began


@pytest.mark.parametrize("command", COMMANDS)
def test_a_few_kills(command, whole, server, tmp_path):
    assert survived(command, 6, whole, server, tmp_path, workers=False) == 6


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hundred_kills(command, whole, server, tmp_path, capsys):
    done = survived(command, 100, whole, server, tmp_path, workers=True)
    with capsys.disabled():
        print(f"\n{COMMANDS[command].name}: survived {done} of 100 kills")  # noqa: T201 - the figure
    assert done == 100


def test_a_killed_download_goes_on_where_it_stopped(server, tmp_path):
    get = COMMANDS["get"](tmp_path / "home", server.address)
    # The folders, the lock and two openings come first; then a write for each 64 KB.
    assert get.start(Writes(get.folder, at=9)).end().code == -signal.SIGKILL
    assert get.start(Writes(get.folder)).end().code == 0
    begun = int(server.requests[-1][1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < begun < len(CONTENT)
