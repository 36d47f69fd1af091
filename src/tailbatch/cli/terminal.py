"""Text from and for terminals: typed values, safe names, bars, and readable numbers."""

import json
import math
import re
import shlex
from typing import Any

from tailbatch.errors import StudyError
from tailbatch.errors import printable as printable

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


#: Command-line options of Python arguments.
_OPTIONS = {
    "selection_pressure": "--pressure",
    "validation_fraction": "--validation",
    "batch_size": "--batch-size",
    "warm_up_epochs": "--warm-up",
    "n_folds": "--folds",
    "random_state": "--seed",
}
_ARGUMENT = re.compile(
    r"""kinds=\{(?P<column>'[^']*'|"[^"]*"): '(?P<kind>[^']*)'\}"""
    r"|labels=\[(?P<labels>.*?)\]"
    r"|\b(?P<setting>labels|missing|text|text_encoder)=(?P<value>'[^']*')?"
    rf"|\b(?P<option>{'|'.join(_OPTIONS)})\b"
)


def in_the_commands_words(message: str) -> str:
    """Return a message with command-line options in place of Python arguments.

    Examples
    --------
    >>> in_the_commands_words("pass labels='my tags' or missing='impute'")
    "pass --labels 'my tags' or --missing impute"
    >>> in_the_commands_words("leave it out with kinds={'id': 'ignore'}; pass labels= (a list)")
    'leave it out with --as id=ignore; pass --labels (a list)'
    >>> in_the_commands_words("write kinds={'text': 'text'} if it is free text")
    'write --as text=text if it is free text'
    """
    return _ARGUMENT.sub(_as_option, message)


def _as_option(found: re.Match[str]) -> str:
    if found["column"] is not None:
        return "--as " + shlex.quote(f"{found['column'][1:-1]}={found['kind']}")
    if found["labels"] is not None:
        return "--labels " + found["labels"].replace("'", "").replace(" ", "")
    if found["option"] is not None:
        return _OPTIONS[found["option"]]
    value = f" {shlex.quote(found['value'][1:-1])}" if found["value"] else ""
    return f"--{found['setting'].replace('_', '-')}{value}"


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
