"""Text from and for terminals: typed values, safe names, bars, and readable numbers."""

import json
import math
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tailbatch.errors import DataError, StudyError, in_python, spelled
from tailbatch.errors import printable as printable

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def as_option(options: Mapping[str, str], name: str, value: Any = None) -> str:
    """Return a setting as an option of the command, or as in Python if it has none.

    Parameters
    ----------
    options
        The command's options, by the names of the settings in Python.
    name, value
        As for `tailbatch.errors.setting`.

    Examples
    --------
    >>> options = {"random_state": "--seed", "kinds": "--kinds"}
    >>> as_option(options, "kinds", {"an id": "ignore"}), as_option(options, "random_state")
    ("--kinds 'an id=ignore'", '--seed')
    >>> as_option(options, "decay", 0.9)
    'decay=0.9'
    """
    option = options.get(name.rstrip("="))
    return _written(option, value) if option else in_python(name, value)


def _written(option: str, value: Any) -> str:
    if value is None:
        return option
    pairs = [f"{key}={entry}" for key, entry in value.items()] if isinstance(value, dict) else []
    return f"{option} {shlex.quote(','.join(pairs) or str(value))}"


@contextmanager
def advice_of_fit(data: str) -> Iterator[None]:
    """Name a file in errors about its columns, for commands that read them as `fit` was told to."""
    asked = []

    def option_of_fit(name: str, value: Any = None) -> str:
        asked.append(as_option({"kinds": "--kinds", "missing": "--missing"}, name, value))
        return asked[-1]

    with spelled(option_of_fit):
        try:
            yield
        except DataError as error:
            problem, _, advice = str(error).partition("; ")
            options = [option for option in asked if option in advice]
            if options:
                remedy = " or ".join(options)
                problem += f"; correct it, or fit the model again with {remedy}"
            raise DataError(f"{data}: {problem if options else error}") from None


def count(number: int, noun: str) -> str:
    """Return a number and its noun, plural unless the number is one.

    Examples
    --------
    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar of `width` characters for a share of 1; any share above zero is visible.

    Examples
    --------
    >>> bar(1, 4), bar(0.4, 4), bar(0.001, 4), bar(0, 4)
    ('████', '█▋', '▏', '')
    >>> bar(0.4, 4, ascii_only=True)
    '##'
    """
    if share <= 0:
        return ""
    if ascii_only:
        return "#" * max(1, round(width * share))
    whole, eighths = divmod(max(1, round(8 * width * share)), 8)
    return "█" * whole + _EIGHTHS[eighths]


def number(value: float, digits: int = 2) -> str:
    """Return a number with thousands separators, or a dash if there is none.

    Examples
    --------
    >>> number(1234.5), number(float("nan")), number(7, 0)
    ('1,234.50', '-', '7')
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"


def exit_code(signal_name: str) -> int:
    """Return the exit code of a process that a signal stopped, as shells count.

    Examples
    --------
    >>> exit_code("SIGINT"), exit_code("SIGTERM")
    (130, 143)
    """
    return 128 + signal.Signals[signal_name]


def named_value(text: str) -> tuple[str, Any]:
    """Return the name and value of NAME=VALUE; a value that is not JSON is text.

    Examples
    --------
    >>> named_value("latent=64"), named_value("gate=linear")
    (('latent', 64), ('gate', 'linear'))
    """
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def named_table(text: str) -> dict[str, Any]:
    """Return the study entry for NAME:OPTION=VALUE:OPTION=VALUE.

    Examples
    --------
    >>> named_table("weighted_bce:power=1:max_weight=20")
    {'name': 'weighted_bce', 'power': 1, 'max_weight': 20}
    """
    name, *settings = text.split(":")
    for setting in settings:
        if "=" not in setting:
            raise StudyError(
                f"a setting of {name} is OPTION=VALUE, as in weighted_bce:power=1, got {text!r}"
            )
    return {"name": name, **dict(map(named_value, settings))}
