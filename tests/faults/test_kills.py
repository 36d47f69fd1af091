"""kill -9 at any moment loses at most the unit in flight, and going on gives the same bits."""

import signal
import time

import numpy as np
import pytest

from faults.commands import COMMANDS
from faults.writes import Writes
from served_file import CONTENT


def survived(command, kills, whole, server, home, *, workers):
    """Kill a command at many moments, half of them writes; resume and compare after each.

    With `workers`, every second of the other moments finds it as a user runs it: with worker
    processes, which are killed with it, and with the whole report.
    """
    expected, seconds, writes = whole(command)
    rng = np.random.default_rng(kills)
    steps = np.resize(rng.permutation(writes) + 1, kills - kills // 2).tolist()
    lengths = {False: seconds, True: seconds}
    done = 0
    for number in range(50 * kills):  # it may end before it is killed
        one = COMMANDS[command](home / str(number), server.address)
        as_a_user = workers and not steps and number % 2 == 0
        began = time.monotonic()
        if steps:
            process = one.start(Writes(one.folder, at=steps.pop()))
        else:
            process = one.start(None if as_a_user else Writes(one.folder))
            process.process.join(rng.uniform(0, lengths[as_a_user]))
            process.kill()
        ended = process.end()
        if ended.code == -signal.SIGKILL:
            done += 1
            # If kills come too early, try later ones, and the other way around.
            lengths[as_a_user] *= 1.05
        else:
            assert ended.code == 0, ended.said
            lengths[as_a_user] = time.monotonic() - began
        one.check()
        ended = one.start(Writes(one.folder)).end()
        assert ended.code == 0, ended.said
        assert one.result() == expected
        if done == kills:
            break
    return done


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


def test_a_killed_download_resumes_where_it_stopped(server, tmp_path):
    get = COMMANDS["get"](tmp_path / "home", server.address)
    # The folders, the lock and two openings come first; then a write for each 64 KB.
    assert get.start(Writes(get.folder, at=9)).end().code == -signal.SIGKILL
    assert get.start(Writes(get.folder)).end().code == 0
    begun = int(server.requests[-1][1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < begun < len(CONTENT)
