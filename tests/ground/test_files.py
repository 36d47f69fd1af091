import errno
import fcntl
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from file_work import (
    Turns,
    every_order,
    random_choice,
    sweep_in_process,
    sweep_until,
    write_in_process,
    write_many,
)
from patience import HUNG
from tailbatch import files
from tailbatch.files import abandoned, replacing, sweep

spawn = multiprocessing.get_context("spawn")
MEMORY = Path("/dev/shm")
HEX = "d41d8cd98f00b204e9800998ecf8427e"
ELSEWHERE = "e" * 12


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "record.json"
    target.write_text("old")

    def write_half():
        with replacing(target) as temporary:
            temporary.write_text("ne")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "record.json"
    target.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), replacing(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_lock_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    real = os.open

    def forbidden(path, flags, *rest, **named):
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(PermissionError), replacing(tmp_path / "record.json"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_new_file_has_the_usual_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    with replacing(tmp_path / "replaced") as temporary:
        temporary.write_text("")
    assert (tmp_path / "replaced").stat().st_mode == plain.stat().st_mode


@pytest.fixture
def fast_folder(tmp_path):
    """Return a folder in memory if possible, so that many writes do not wait for a disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder)


def left_by_a_killed_writer(folder, *, machine=None, lock=True, content="half", minutes=0):
    """Make the leftovers of a writer that was killed some minutes ago."""
    path = folder / f".tailbatch-{machine or files._this_machine()}-{HEX}"
    path.mkdir()
    made = [path]
    if content is not None:
        made.append(path / "record.json")
        made[-1].write_text(content)
    if lock:
        made.append(path / files._LOCK)
        made[-1].touch()
    then = time.time() - 60 * minutes
    for one in made:
        os.utime(one, (then, then))
    return path


OTHERS = [
    f".backup-{HEX}",  # as an earlier version named them
    f".tailbatch-backup-{HEX}",
    f".tailbatch-{HEX}",
    f"tailbatch-{ELSEWHERE}-{HEX}",
    f".tailbatch-{ELSEWHERE}-{HEX}-copy",
    ".git",
]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("inside", ["thesis.tex", files._LOCK, None])
def test_folders_of_others_are_never_touched(name, inside, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    if inside is not None:
        (folder / inside).write_text("years of work")
    for path in (*folder.iterdir(), folder):
        os.utime(path, (0, 0))
    sweep(tmp_path)
    assert folder.is_dir()
    assert [path.read_text() for path in folder.iterdir()] == ["years of work"] * bool(inside)


def test_a_folder_with_files_but_without_lock_is_never_touched(tmp_path):
    folder = left_by_a_killed_writer(tmp_path, lock=False, minutes=10**6)
    sweep(tmp_path)
    assert (folder / "record.json").read_text() == "half"


def test_a_link_in_place_of_a_folder_or_lock_is_never_followed(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    folder = left_by_a_killed_writer(theirs, machine=ELSEWHERE)
    (ours / folder.name).symlink_to(folder)
    sweep(ours)
    assert (folder / "record.json").exists()
    here = left_by_a_killed_writer(ours, lock=False)
    (here / files._LOCK).symlink_to(folder / files._LOCK)
    sweep(ours)
    assert (here / "record.json").exists()


def test_what_a_killed_writer_left_here_is_handed_out_at_once_and_removed(tmp_path):
    folder = left_by_a_killed_writer(tmp_path)
    assert [(path, (path / "record.json").read_text()) for path in abandoned(tmp_path)] == [
        (folder, "half")
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("machine", [None, ELSEWHERE])
def test_a_writer_killed_before_it_locked_leaves_nothing(machine, tmp_path):
    left_by_a_killed_writer(tmp_path, machine=machine, lock=False, content=None)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_removal_that_was_cut_short_is_taken_up(tmp_path, monkeypatch):
    left_by_a_killed_writer(tmp_path)

    def killed(path, *args, **named):
        raise KeyboardInterrupt

    for step in ("unlink", "rmdir"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, killed)
            with pytest.raises(KeyboardInterrupt):
                sweep(tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_only_long_silence_tells_that_a_writer_is_dead(tmp_path):
    folder = left_by_a_killed_writer(tmp_path, machine=ELSEWHERE, minutes=29)
    sweep(tmp_path)
    assert folder.exists()
    for path in (*folder.iterdir(), folder):
        os.utime(path, (0, 0))
    os.utime(folder / "record.json")  # a slow download is still in progress
    sweep(tmp_path)
    assert folder.exists()
    os.utime(folder / "record.json", (0, 0))
    sweep(tmp_path)
    assert not folder.exists()


def test_the_clock_of_the_file_system_counts_and_not_that_of_the_machine(tmp_path, monkeypatch):
    folder = left_by_a_killed_writer(tmp_path, machine=ELSEWHERE)
    monkeypatch.setattr(time, "time", lambda: 2**33)
    sweep(tmp_path)
    assert folder.exists()
    future = folder.stat().st_mtime + 10**6
    os.utime(folder, (future, future))
    sweep(tmp_path)
    assert folder.exists()


def test_a_living_writer_elsewhere_is_known_by_its_lock_where_locks_are_seen(tmp_path):
    folder = left_by_a_killed_writer(tmp_path, machine=ELSEWHERE, minutes=10**6)
    with (folder / files._LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(tmp_path)
    assert folder.exists()


@pytest.mark.parametrize("locks_again", [True, False])
def test_without_locks_a_writer_is_safe_until_it_is_silent(tmp_path, monkeypatch, locks_again):
    def no_locks(descriptor, flags):
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        with replacing(tmp_path / "record.json") as temporary:
            temporary.write_text("new")
            if locks_again:
                patch.undo()
            sweep(tmp_path)
            assert temporary.exists()
            monkeypatch.setattr(files, "_SILENCE", -1)
            assert [path.name for path in abandoned(tmp_path)] == [temporary.parent.name]
            assert not temporary.exists()
            temporary.parent.mkdir()
            temporary.write_text("again")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_machine_without_a_name_trusts_silence_only(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_this_machine", lambda: files._UNKNOWN_MACHINE)
    folder = left_by_a_killed_writer(tmp_path)
    sweep(tmp_path)
    assert folder.exists()


def test_another_container_of_the_same_boot_is_elsewhere(tmp_path, monkeypatch):
    """It may have mounted the folder on its own, and then its locks are not seen here."""
    here = left_by_a_killed_writer(tmp_path)
    real = Path.readlink
    monkeypatch.setattr(
        Path,
        "readlink",
        lambda path: Path("mnt:[1]") if path == Path("/proc/self/ns/mnt") else real(path),
    )
    files._this_machine.cache_clear()
    try:
        assert files._this_machine() not in (here.name.split("-")[1], files._UNKNOWN_MACHINE)
        sweep(tmp_path)
        assert here.exists()
        for path in (*here.iterdir(), here):
            os.utime(path, (0, 0))
        sweep(tmp_path)
        assert not here.exists()
    finally:
        files._this_machine.cache_clear()


def taken_in_turns(folder, choose, sweepers):
    """Interleave a writer and sweepers; return the choices, or fail with what was lost."""
    target = folder / "record.json"

    def write():
        with replacing(target) as temporary:
            temporary.write_text("new")

    turns = Turns([write] + [lambda: sweep(folder)] * sweepers)
    taken = turns.run(choose)
    order = [number for number, _ in taken]
    assert turns.errors == [None] * (sweepers + 1), order
    assert [path.name for path in folder.iterdir()] == ["record.json"], order
    assert target.read_text() == "new", order
    target.unlink()
    return taken


def test_no_order_of_steps_of_a_writer_and_two_sweepers_loses_a_file(fast_folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for seed in range(1_000):
        taken_in_turns(fast_folder, random_choice(seed), 2)


@pytest.mark.slow
def test_every_order_of_steps_of_a_writer_and_a_sweeper(fast_folder, monkeypatch, capsys):
    monkeypatch.setattr(files, "_flush", lambda path: None)
    count = every_order(lambda choose: taken_in_turns(fast_folder, choose, 1))
    with capsys.disabled():
        print(f"\nevery order of a writer and a sweeper: {count:,}, none lost")  # noqa: T201
    assert count > 1_000


def lost_with_threads(folder, writers, count):
    """Count the writes that threads lose while two others sweep without a pause."""
    over = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(writers + 2) as threads:
            sweeps = [threads.submit(sweep_until, folder, over.is_set) for _ in range(2)]
            writes = [
                threads.submit(write_many, folder, f"{number}.json", count)
                for number in range(writers)
            ]
            lost = sum(write.result() for write in writes)
            over.set()
            assert min(one.result() for one in sweeps) > 0
    finally:
        over.set()
        sys.setswitchinterval(interval)
    return lost


def lost_with_processes(folder, writers, count):
    """Do the same with processes, one of which is killed in the middle of a write."""
    over, results = spawn.Event(), spawn.Queue()
    sweeps = [spawn.Process(target=sweep_in_process, args=(str(folder), over)) for _ in range(2)]
    killed_at = [None] * writers + [count // 2]
    writes = [
        spawn.Process(
            target=write_in_process, args=(str(folder), f"{number}.json", count, at, results)
        )
        for number, at in enumerate(killed_at)
    ]
    for process in (*sweeps, *writes):
        process.start()
    lost = sum(result_of(results, writes) for _ in range(writers))
    over.set()
    for process in (*writes, *sweeps):
        process.join(HUNG)
    assert [process.exitcode for process in writes] == [0] * writers + [9]
    assert (folder / f"{writers}.json").read_text() == f"{writers}.json {count // 2 - 1}"
    return lost


def result_of(results, processes):
    """Return the next result, or fail with how the processes stand."""
    try:
        return results.get(timeout=HUNG)
    except queue.Empty:
        codes = [process.exitcode for process in processes]
        raise AssertionError(f"no result in {HUNG} s; exit codes of the writers: {codes}") from None


def left_in(folder):
    sweep(folder)
    return [path.name for path in folder.iterdir() if path.name[0] == "."]


@pytest.mark.parametrize("machine", ["here", "nowhere"])
def test_many_threads_lose_nothing_while_others_sweep(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    if machine == "nowhere":
        monkeypatch.setattr(files, "_this_machine", lambda: files._UNKNOWN_MACHINE)
    assert lost_with_threads(tmp_path, 4, 300 if machine == "here" else 100) == 0
    assert left_in(tmp_path) == []


def test_many_processes_lose_nothing_while_others_sweep(tmp_path):
    assert lost_with_processes(tmp_path, 4, 300) == 0
    assert left_in(tmp_path) == []


@pytest.mark.slow
def test_a_hundred_thousand_writes_lose_nothing_while_others_sweep(tmp_path, monkeypatch, capsys):
    lost = lost_with_processes(tmp_path, 4, 20_000)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    lost += lost_with_threads(tmp_path, 4, 5_000)
    with capsys.disabled():
        print(f"\nlost {lost} of 100,000 writes")  # noqa: T201
    assert lost == 0
    assert left_in(tmp_path) == []
