"""Names as people type them: refused with the nearest known one."""

import difflib
from collections.abc import Iterable

from tailbatch.errors import StudyError


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise unless `name` is known, and suggest the nearest that is.

    Examples
    --------
    >>> check_known("strategy", "adpative", ["random", "adaptive"])
    Traceback (most recent call last):
    ...
    tailbatch.errors.StudyError: there is no strategy 'adpative'; did you mean adaptive? ...
    """
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]}? " if near else ""
    raise StudyError(f"there is no {what} {name!r}; {guess}Known: {', '.join(names)}")
