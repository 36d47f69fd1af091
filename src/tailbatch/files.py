"""Writing files so that a crash leaves the old one or the new one, never half of either."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hand out a temporary path and move it over `path` when the block ends well.

    The temporary file lies in the same folder, is flushed to disk before the move, and is removed
    when the block raises.

    Parameters
    ----------
    path
        The file to write; its folder is made where it is missing.

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
    # The suffix is kept, because some writers choose the format by it.
    temporary = target.with_name(f".{target.stem}-{uuid4().hex}{target.suffix}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _flush(target.parent)


def _flush(path: Path) -> None:
    """Force a file, or a folder's list of names, to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
