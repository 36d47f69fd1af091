"""The rule every target is held to, and the folder it writes its files to."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from tailbatch.errors import TailbatchError

Outcome = TypeVar("Outcome")


class Finding(AssertionError):
    """The package did what it promises never to do."""


def accepted(read: Callable[[], Outcome]) -> Outcome | None:
    """Return what `read` returns, or None if it refuses as promised."""
    try:
        return read()
    except TailbatchError as error:
        message = str(error)
        if not message or not message.isprintable():
            raise Finding(f"the message is not one printable line: {message!r}") from error
        return None


@cache
def scratch() -> Path:
    """Return a folder of this process for the files that readers are given."""
    shared_memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None))


def written(name: str, data: bytes) -> Path:
    """Return a file of that name with these bytes."""
    path = scratch() / name
    path.write_bytes(data)
    return path
