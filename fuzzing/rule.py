"""The rule for every target, and the folder for its files."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from tailbatch.errors import TailbatchError

Outcome = TypeVar("Outcome")


class Finding(AssertionError):
    """The package broke a promise."""


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
    """Return this process's folder for input files."""
    shared_memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None))


def written(name: str, data: bytes) -> Path:
    """Write a file with these bytes and return its path."""
    path = scratch() / name
    path.write_bytes(data)
    return path
