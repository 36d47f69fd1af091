"""Writing files so that a crash leaves the old one or the new one, never half of either.

A writer works in a private folder, ``.tailbatch-<machine>-<32 hex digits>``, and holds a lock on a file
in it while it lives. Nothing else is ever removed, and that only in these cases:

- without the lock file: never more than an empty folder; its writer, if it lives, takes another one;
- the lock is free, and the folder was made on this machine since it started: its writer is dead;
- the lock is free, but made elsewhere, or there are no locks: it may not be seen across machines, so
  nothing in the folder must have changed for half an hour, by the clock of the file system.

Who removes a folder holds its lock until it is gone, and the lock file goes last: a writer that waits
for the lock then finds its folder gone, and a removal that was cut short is taken up by the next.
"""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

if sys.platform != "win32":
    import fcntl

_PRIVATE = re.compile(r"\.tailbatch-([0-9a-f]{12})-[0-9a-f]{32}")
_LOCK = "tailbatch.lock"
_NOWHERE = "0" * 12
_SILENCE = 30 * 60  # seconds without a change after which a writer elsewhere counts as dead


@contextmanager
def replacing(path: str | os.PathLike[str], *, begin_with: Path | None = None) -> Iterator[Path]:
    """Hand out a temporary path and move it over `path` when the block ends well.

    The temporary file lies in a hidden folder of this writer alone, beside `path`, which also takes
    in what libraries write on the way. It is flushed to disk before the move. The folder is gone
    when the block ends or raises; that of a writer who was killed is removed by `sweep`.

    Parameters
    ----------
    path
        The file to write; its folder is made where it is missing.
    begin_with
        A file that becomes the temporary one, if it exists.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "deep" / "facts.json"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("{}")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('{}', 1)
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _private_folder(target.parent) as folder:
        temporary = folder / target.name
        if begin_with is not None:
            with suppress(FileNotFoundError):
                begin_with.replace(temporary)
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    _flush(target.parent)


def sweep(folder: Path) -> None:
    """Remove what killed writers left in a folder; what a living one writes stays, and all else.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / f".tailbatch-{_NOWHERE}-{uuid4().hex}").mkdir()  # its writer died at once
    >>> (folder / f".backup-{uuid4().hex}").mkdir()  # of somebody else
    >>> sweep(folder)
    >>> [path.name[:8] for path in folder.iterdir()]
    ['.backup-']
    """
    for _ in abandoned(folder):
        pass


def abandoned(folder: Path) -> Iterator[Path]:
    """Yield the private folder of each killed writer, and remove it afterwards."""
    for path in folder.glob(".tailbatch-*"):
        named = _PRIVATE.fullmatch(path.name)
        if not named or path.is_symlink():
            continue
        with _opened_lock(path) as lock:
            if lock is None or not _is_abandoned(path, lock, machine=named[1]):
                continue
            yield path
            _remove(path)
        _remove_rest(path)


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Make a folder that is known as in use while this process lives."""
    folder, lock = _locked_folder(parent)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)
        _remove_rest(folder)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    machine = _this_machine()
    while True:
        folder = parent / f".tailbatch-{machine}-{uuid4().hex}"
        folder.mkdir()
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                continue  # a sweep found it while it was empty
            _remove(folder)
            raise
        has_locks = _takes(lock, wait=True) is not None
        if (has_locks or machine == _NOWHERE) and _is_in_place(folder, lock):
            return folder, lock
        if not has_locks:
            machine = _NOWHERE  # a free lock shall not tell that this writer is dead
        os.close(lock)
        _remove(folder)


@contextmanager
def _opened_lock(folder: Path) -> Iterator[int | None]:
    """Open the lock of a private folder; None where there is none to judge by."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if error.errno == errno.ENOENT:
            # Its writer died, or has not come to its second step, and then takes another folder. One
            # that has just come to it is safe: a folder with a file in it is not removed.
            with suppress(OSError):
                folder.rmdir()
        yield None
        return
    try:
        yield lock
    finally:
        os.close(lock)


def _is_abandoned(folder: Path, lock: int, *, machine: str) -> bool:
    """Tell whether a folder's writer has died; if so, its lock is now held here."""
    taken = _takes(lock)
    # Another sweep may have removed the folder after its lock was opened here.
    if taken is False or not _is_in_place(folder, lock):
        return False
    if taken and machine == _this_machine() != _NOWHERE:
        return True
    try:
        return _seconds_of_silence(folder) > _SILENCE
    except OSError:
        return False  # somebody works in it


def _takes(lock: int, *, wait: bool = False) -> bool | None:
    """Lock a file and tell whether that worked; None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_in_place(folder: Path, lock: int) -> bool:
    """Whether an open lock is the regular file that has its name in the folder."""
    try:
        found = os.lstat(folder / _LOCK)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.fstat(lock))


def _seconds_of_silence(folder: Path) -> float:
    """Return for how long nothing in a folder has changed.

    Both times are of the file system's own clock, which may differ from that of this machine.
    """
    with tempfile.TemporaryFile(dir=folder.parent) as probe:
        now = os.fstat(probe.fileno()).st_mtime
    return now - max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))


@cache
def _this_machine() -> str:
    """Name this machine since it last started; processes with the same name see each other's locks."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return _NOWHERE
    return sha256(started).hexdigest()[: len(_NOWHERE)]


def _remove(folder: Path) -> None:
    """Remove a private folder as far as that can be done, its lock last."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != _LOCK:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (folder / _LOCK).unlink(missing_ok=True)
        folder.rmdir()


def _remove_rest(folder: Path) -> None:
    """Remove a folder that outlived `_remove`: some file systems keep the name of an open lock."""
    if sys.platform == "win32":
        _remove(folder)
    else:
        with suppress(OSError):
            folder.rmdir()


def _flush(path: Path) -> None:
    """Force a file, or a folder's list of names, to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
