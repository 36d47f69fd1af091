"""Writers and sweepers for `test_files.py`: many in parallel, or one system call at a time."""

import fcntl
import os
import random
import threading
from contextlib import contextmanager
from pathlib import Path

from tailbatch import files


def write_many(folder, name, count, *, kill_at=None):
    """Write a file repeatedly; return how often that failed or left other content."""
    lost = 0
    for number in range(count):
        try:
            with files.replacing(folder / name) as temporary:
                temporary.write_text(f"{name} {number}")
                if number == kill_at:
                    os._exit(9)  # as if killed: no handler runs, no folder is removed
            lost += (folder / name).read_text() != f"{name} {number}"
        except OSError:
            lost += 1
    return lost


def sweep_until(folder, is_over):
    """Sweep without a pause; return how often."""
    count = 0
    while not is_over():
        files.sweep(folder)
        count += 1
    return count


def write_in_process(folder, name, count, kill_at, results):
    """Be a process that writes and reports its losses."""
    os.fsync = lambda descriptor: None  # this does not test power failures
    results.put(write_many(Path(folder), name, count, kill_at=kill_at))


def sweep_in_process(folder, over):
    """Be a process that sweeps until it is told to stop."""
    sweep_until(Path(folder), over.is_set)


class Turns:
    """Interleaves several functions, one system call at a time.

    Each stands still before a system call on the folder until it is chosen again, so that a schedule
    (who is next, each time) names one order of all their calls.
    """

    CALLS = ("mkdir", "open", "lstat", "scandir", "listdir", "unlink", "rmdir", "replace", "close")

    def __init__(self, actors):
        self._actors = actors
        self._go = [threading.Semaphore(0) for _ in actors]
        self._back = threading.Semaphore(0)
        self._me = threading.local()
        self._blocked = set()
        self.errors = [None] * len(actors)

    def run(self, choose):
        """Run to the end, asking `choose` for the next unfinished one; return the choices."""
        threads = [
            threading.Thread(target=self._act, args=(number,))
            for number in range(len(self._actors))
        ]
        taken, done = [], set()
        with self._watching():
            for thread in threads:
                thread.start()
            while len(done) < len(threads):
                out = done | self._blocked
                waiting = [number for number in range(len(threads)) if number not in out]
                number = choose(waiting)
                taken.append((number, waiting))
                self._blocked.clear()
                self._go[number].release()
                self._back.acquire()
                if getattr(threads[number], "is_done", False):
                    threads[number].join()
                    done.add(number)
        return taken

    def _act(self, number):
        self._go[number].acquire()
        self._me.number = number
        try:
            self._actors[number]()
        except OSError as error:
            self.errors[number] = error
        finally:
            del self._me.number
            threading.current_thread().is_done = True
            self._back.release()

    def _pause(self):
        number = getattr(self._me, "number", None)
        if number is not None:
            self._back.release()
            self._go[number].acquire()

    @contextmanager
    def _watching(self):
        real = {name: getattr(os, name) for name in self.CALLS}
        flock = fcntl.flock

        def watched(call):
            def stop_first(*args, **named):
                self._pause()
                return call(*args, **named)

            return stop_first

        def lock(descriptor, flags):
            while True:
                self._pause()
                try:
                    return flock(descriptor, flags | fcntl.LOCK_NB)
                except BlockingIOError:
                    if flags & fcntl.LOCK_NB:
                        raise
                    self._blocked.add(self._me.number)  # until another one makes progress

        for name, call in real.items():
            setattr(os, name, watched(call))
        fcntl.flock = lock
        try:
            yield
        finally:
            fcntl.flock = flock
            for name, call in real.items():
                setattr(os, name, call)


def random_choice(seed):
    """Choose at random, with long and short runs of the same one."""
    rng = random.Random(seed)
    stay = rng.random()
    last = None

    def choose(waiting):
        nonlocal last
        if last not in waiting or rng.random() > stay:
            last = rng.choice(waiting)
        return last

    return choose


def every_order(run):
    """Call `run` with a choice for each possible order in turn; return how many there are.

    The orders are a tree. Each run takes one path in it, and the next one goes another way at the last
    fork that has one left.
    """
    path, count = [], 0
    while True:
        step = iter(list(path))

        def choose(waiting, step=step):
            return waiting[next(step, 0)]

        taken = [(waiting.index(number), len(waiting)) for number, waiting in run(choose)]
        count += 1
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return count
        path = [index for index, _ in taken[:-1]] + [taken[-1][0] + 1]
