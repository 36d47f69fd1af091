"""Crash-safe writing: after a crash there is the old file or the new one, never half of either.

A writer works in a private folder, ``.tailbatch-<machine>-<32 hex digits>``, and holds a lock on a file
in it while it lives. Only such folders are ever removed, and only in these cases:

- There is no lock file and the folder is empty. If its writer is alive, it makes another folder.
- The lock is free and the folder was made on this machine since it booted, by a process that sees the
  same mounts: its writer is dead.
- The lock is free but the folder was made elsewhere or in another container, or there are no locks.
  Locks may not be visible across machines, nor across two mounts of one network file system, so the
  folder must also be unchanged for half an hour by the file system's clock.

A process that removes a folder holds its lock until the folder is gone, and deletes the lock file last.
So a writer that waits for the lock notices that its folder is gone, and an interrupted removal is
finished by the next one.
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
_UNKNOWN_MACHINE = "0" * 12
_SILENCE = 30 * 60  # seconds without a change after which a writer elsewhere is presumed dead


def cache_folder() -> Path:
    """Return where downloads and embeddings are kept: ``TAILBATCH_CACHE``, or the system's place."""
    folder = os.environ.get("TAILBATCH_CACHE")
    return Path(folder) if folder else _user_cache() / "tailbatch"


def _user_cache() -> Path:
    """Return the folder in which this system keeps a user's caches."""
    home = Path(os.path.expanduser("~"))  # unlike Path.home(), no error for a user without one
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if os.path.isabs(named) else home / ".cache"  # a relative one is invalid


@contextmanager
def replacing(path: str | os.PathLike[str], *, begin_with: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path and move it over `path` if the block succeeds.

    The temporary file is in a private hidden folder beside `path`, with any side files that libraries
    write, and is flushed to disk before the move. The folder is removed when the block ends or raises;
    `sweep` removes those of killed writers. A file `begin_with` is moved to the temporary path first.

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
        try:
            yield temporary
            _readable(temporary, like=folder / _LOCK)
            _flush(temporary)
        except OSError as error:
            # The system names no file when a write fails, such as on a full disk.
            if error.errno is not None:  # others are not the system's, and have a message only
                error.filename = error.filename or str(target)
            raise
        temporary.replace(target)
    _flush(target.parent)


def read_regular(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes; a device, a pipe or a larger file is a ValueError.

    Examples
    --------
    >>> read_regular(Path("/dev/zero"), 1 << 20)
    Traceback (most recent call last):
    ...
    ValueError: not a regular file
    """
    # Opening a pipe that nobody writes to would wait forever.
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        content = stream.read(limit + 1) if status.st_size <= limit else b""
        if max(status.st_size, len(content)) > limit:
            raise ValueError(f"larger than {limit >> 20:,} MiB")
        return content


def sweep(folder: Path) -> None:
    """Remove the leftovers of killed writers in a folder, and nothing else.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / f".backup-{uuid4().hex}").mkdir()  # another program's
    >>> sweep(folder)
    >>> len(list(folder.iterdir()))
    1
    """
    for _ in abandoned(folder):
        pass


def abandoned(folder: Path) -> Iterator[Path]:
    """Yield the private folder of each killed writer, then remove it."""
    for path in folder.glob(".tailbatch-*"):
        match = _PRIVATE.fullmatch(path.name)
        if not match or path.is_symlink():
            continue
        with _opened_lock(path) as lock:
            if lock is None or not _is_abandoned(path, lock, machine=match[1]):
                continue
            yield path
            _remove(path)
        _remove_rest(path)


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Make a folder that other processes recognize as in use while this process lives."""
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
                continue  # a sweep removed it while it was empty
            _remove(folder)
            raise
        has_locks = _acquire(lock, wait=True) is not None
        if (has_locks or machine == _UNKNOWN_MACHINE) and _is_in_place(folder, lock):
            return folder, lock
        if not has_locks:
            machine = _UNKNOWN_MACHINE  # so that a free lock does not mean that this writer is dead
        os.close(lock)
        _remove(folder)


@contextmanager
def _opened_lock(folder: Path) -> Iterator[int | None]:
    """Open the lock of a private folder; None if there is no lock file."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if error.errno == errno.ENOENT:
            # The writer died, or has not created its lock yet and will make another folder. If it
            # creates the lock right now, it is safe: rmdir does not remove a folder with a file in it.
            with suppress(OSError):
                folder.rmdir()
        yield None
        return
    try:
        yield lock
    finally:
        os.close(lock)


def _is_abandoned(folder: Path, lock: int, *, machine: str) -> bool:
    """Return whether a folder's writer is dead; if so, this process now holds its lock."""
    acquired = _acquire(lock)
    # Another sweep may have removed the folder after its lock was opened here.
    if acquired is False or not _is_in_place(folder, lock):
        return False
    if acquired and machine == _this_machine() != _UNKNOWN_MACHINE:
        return True
    try:
        return _seconds_of_silence(folder) > _SILENCE
    except OSError:
        return False  # its contents are changing


def _acquire(lock: int, *, wait: bool = False) -> bool | None:
    """Lock a file and return whether that worked; None if the file system has no locks."""
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
    """Return whether the open lock is still the folder's lock file, and a regular file."""
    try:
        on_disk = os.lstat(folder / _LOCK)
    except OSError:
        return False
    return stat.S_ISREG(on_disk.st_mode) and os.path.samestat(on_disk, os.fstat(lock))


def _seconds_of_silence(folder: Path) -> float:
    """Return how long nothing in a folder has changed.

    Both times come from the file system's clock, which may differ from this machine's.
    """
    with tempfile.TemporaryFile(dir=folder.parent) as probe:
        now = os.fstat(probe.fileno()).st_mtime
    return now - max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))


@cache
def _this_machine() -> str:
    """Return a name of this boot and mount namespace; processes that share it see each other's locks.

    Containers of one host share its boot, but each may mount a network or FUSE file system on its own,
    with locks of its own. The number of a namespace is given again only when no process is left in it.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text()
        mounts = str(Path("/proc/self/ns/mnt").readlink())
    except OSError:
        return _UNKNOWN_MACHINE
    return sha256(f"{boot_id}{mounts}".encode()).hexdigest()[: len(_UNKNOWN_MACHINE)]


def _remove(folder: Path) -> None:
    """Remove a private folder as far as possible, its lock file last."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != _LOCK:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (folder / _LOCK).unlink(missing_ok=True)
        folder.rmdir()


def _remove_rest(folder: Path) -> None:
    """Remove a folder that `_remove` could not: some file systems keep the name of an open file."""
    if sys.platform == "win32":
        _remove(folder)
    else:
        with suppress(OSError):
            folder.rmdir()


def _readable(path: Path, *, like: Path) -> None:
    """Give a file the permissions the umask allows; some libraries write for their user alone."""
    if os.name != "nt" and stat.S_IMODE(path.stat().st_mode) == 0o600:
        path.chmod(stat.S_IMODE(like.stat().st_mode))


def _flush(path: Path) -> None:
    """Flush a file, or a folder's directory entries, to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
