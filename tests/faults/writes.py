"""Counts the file operations of a process in a folder, and disturbs the n-th one."""

import errno
import io
import os
import shutil
import signal
from functools import partial

FAULTS = {name: getattr(errno, name) for name in ("ENOSPC", "EACCES", "EIO")}


class Writes:
    """Counts openings, writes, flushes, moves, new folders and removals below a folder.

    Parameters
    ----------
    folder
        Only what lies in it counts.
    at
        The operation to disturb, from 1; 0 disturbs none.
    fault
        An error's name; or ``"KILL"``, ``"TERM"`` for signals to itself; or ``"GONE"``: the folder
        is removed. A write that is disturbed has written half of its bytes.
    lasting
        Whether all later operations fail, too, as on a full disk.
    """

    here = True  # a study runs in the watched process

    def __init__(self, folder, at=0, fault="KILL", *, lasting=False):
        self.folder = os.path.realpath(folder)
        self.at, self.fault, self.lasting = at, fault, lasting
        self.count = 0

    def install(self):
        """Watch this process from now on, until it ends."""
        watched = partial(self._open, io.open)
        import builtins

        builtins.open = io.open = watched
        os.open = partial(self._low_open, os.open)
        os.fsync = partial(self._fsync, os.fsync)
        os.mkdir = partial(self._mkdir, os.mkdir)
        os.replace = partial(self._replace, os.replace)
        os.unlink = os.remove = partial(self._unlink, os.unlink)
        import pandas

        from tailbatch.training import checkpoints

        # These write from outside Python.
        checkpoints.save_file = partial(self._save_file, checkpoints.save_file)
        to_parquet = partial(self._to_parquet, pandas.DataFrame.to_parquet)
        pandas.DataFrame.to_parquet = lambda *table_and_path: to_parquet(*table_and_path)

    def has(self, path):
        path = os.path.realpath(os.fspath(path))
        return path == self.folder or path.startswith(self.folder + os.sep)

    def step(self, path, half=lambda: None):
        """Count an operation; if it is the n-th, do half of it and fail."""
        self.count += 1
        if not self.at or self.count < self.at or (self.count > self.at and not self.lasting):
            return
        half()
        if self.fault == "GONE":
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        if self.fault not in FAULTS:
            os.kill(os.getpid(), signal.Signals[f"SIG{self.fault}"])
            return
        number = FAULTS[self.fault]
        # Writes and flushes do not say which file they concern.
        raise OSError(number, os.strerror(number), *([os.fspath(path)] if path else []))

    def _open(self, real, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None,
              closefd=True, opener=None):  # fmt: skip
        is_path = isinstance(file, str | os.PathLike)
        if not is_path or not set(mode) & set("wax+") or not self.has(file):
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        self.step(file)
        raw = _RawFile(self, file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def _low_open(self, real, path, flags, *rest, **named):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and self.has(path):
            self.step(path)
        return real(path, flags, *rest, **named)

    def _fsync(self, real, descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.has(path):
            self.step(None)
        real(descriptor)

    def _mkdir(self, real, path, *rest, **named):
        if not os.path.exists(path) and self.has(path):
            self.step(path)
        real(path, *rest, **named)

    def _replace(self, real, source, target, **named):
        if self.has(target):
            self.step(target)
        real(source, target, **named)

    def _unlink(self, real, path, **named):
        # Deleting works on a full disk.
        if self.fault != "ENOSPC" and "dir_fd" not in named and self.has(path):
            self.step(path)
        real(path, **named)

    def _save_file(self, real, tensors, path, **named):
        def half():
            with io.FileIO(path.with_name(".tmpA1b2C3"), "w") as stream:
                stream.write(b"half of the tensors")

        self.step(path, half)
        real(tensors, path, **named)

    def _to_parquet(self, real, table, path):
        if self.has(path):
            self.step(None, lambda: path.write_bytes(b"PAR1 and no more"))
        real(table, path)


class _RawFile(io.FileIO):
    def __init__(self, writes, file, mode):
        super().__init__(file, mode)
        self._writes = writes

    def write(self, data):
        data = bytes(data)
        self._writes.step(None, lambda: super(_RawFile, self).write(data[: len(data) // 2]))
        return super().write(data)
