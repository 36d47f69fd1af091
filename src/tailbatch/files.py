"""Writing files so that a crash leaves the old one or the new one, never half of either."""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

if sys.platform != "win32":
    import fcntl

_PRIVATE = re.compile(r"\..+-[0-9a-f]{32}")
_LOCK = "lock"
_DAY = 24 * 3600


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
    with _private_folder(target) as folder:
        temporary = folder / target.name
        if begin_with is not None:
            with suppress(FileNotFoundError):
                begin_with.replace(temporary)
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    _flush(target.parent)


def sweep(folder: Path) -> None:
    """Remove what killed writers left in a folder; what a living one writes stays.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / f".facts-{uuid4().hex}").mkdir()  # its writer died before it wrote
    >>> sweep(folder)
    >>> list(folder.iterdir())
    []
    """
    for _ in abandoned(folder):
        pass


def abandoned(folder: Path) -> Iterator[Path]:
    """Yield the private folder of each killed writer, and remove it afterwards."""
    for path in folder.glob(".*"):
        if _PRIVATE.fullmatch(path.name):
            with _taken_over(path) as is_abandoned:
                if is_abandoned:
                    yield path
                    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _private_folder(target: Path) -> Iterator[Path]:
    """Make a folder that is known as in use while this process lives."""
    folder, lock = _locked_folder(target)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(target: Path) -> tuple[Path, int]:
    while True:
        folder = target.with_name(f".{target.stem}-{uuid4().hex}")
        folder.mkdir()
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR)
        except FileNotFoundError:
            continue  # a sweep found it before it was locked
        if sys.platform != "win32":
            with suppress(OSError):  # not every file system has locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)


@contextmanager
def _taken_over(folder: Path) -> Iterator[bool]:
    """Tell whether the writer of a private folder has died, and keep others off meanwhile."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        yield True  # it died between its first two steps, or takes another folder
        return
    except OSError:
        yield False
        return
    try:
        yield _is_free(lock)
    finally:
        os.close(lock)


def _is_free(lock: int) -> bool:
    """Lock a file that a living writer would have locked; without locks, only a day tells."""
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        else:
            return True
    return os.fstat(lock).st_mtime < time.time() - _DAY


def _flush(path: Path) -> None:
    """Force a file, or a folder's list of names, to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
