"""Text from and for terminals: typed values, safe names, bars, and readable numbers."""

import json
import math
import re
import shlex
import signal
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
#: Arguments whose names are words of the language, too: options only where something is said of them.
_WORDS = ("lr", "epochs", "thresholds", "device")
#: What people call options, after other libraries.
_ELSEWHERE = {
    "learning_rate": "--lr",
    "learning_rate_init": "--lr",
    "max_epochs": "--epochs",
    "max_iter": "--epochs",
    "n_epochs": "--epochs",
    "num_epochs": "--epochs",
    "output": "--out",
    "threshold": "--thresholds",
    "validation_split": "--validation",
}
_KINDS = r"""kinds=\{(?P<column>'[^']*'|"[^"]*"): '(?P<kind>[^']*)'\}"""
_ARGUMENT = re.compile(
    _KINDS + r"|labels=\[(?P<labels>.*?)\]"
    r"|\b(?P<setting>labels|missing|text_encoder|text|kinds)="
    r"(?P<value>'[^']*'|(?:[^\s'\"()\[\]{};,]+))?"
    rf"|(?<!')\b(?P<option>{'|'.join(_OPTIONS)})\b(?!')"
    rf"|(?<!\w)(?P<word>{'|'.join(_WORDS)})(?= must be )"
)
_OF_FIT = re.compile(_KINDS + r"|missing='impute'")
_KNOWN = " Known: "


def in_the_commands_words(message: str) -> str:
    """Return a message with command-line options in place of Python arguments.

    A list of known names stays as it is.

    Examples
    --------
    >>> in_the_commands_words("pass labels='my tags' or missing='impute'")
    "pass --labels 'my tags' or --missing impute"
    >>> in_the_commands_words("leave it out with kinds={'id': 'ignore'}; pass labels= (a list)")
    'leave it out with --as id=ignore; pass --labels (a list)'
    >>> in_the_commands_words("write kinds={'text': 'text'} if it is free text")
    'write --as text=text if it is free text'
    >>> in_the_commands_words("lr must be above 0; labels=700 asks for 700")
    '--lr must be above 0; --labels 700 asks for 700'
    >>> in_the_commands_words("batch_size is none of them. Known: lr, batch_size")
    '--batch-size is none of them. Known: lr, batch_size'
    """
    said, known, names = message.partition(_KNOWN)
    return _ARGUMENT.sub(_as_option, said) + known + names


def _as_option(found: re.Match[str]) -> str:
    if found["column"] is not None:
        return "--as " + shlex.quote(f"{found['column'][1:-1]}={found['kind']}")
    if found["labels"] is not None:
        return "--labels " + found["labels"].replace("'", "").replace(" ", "")
    if found["option"] is not None:
        return _OPTIONS[found["option"]]
    if found["word"] is not None:
        return f"--{found['word']}"
    value = f" {shlex.quote(found['value'].strip(chr(39)))}" if found["value"] else ""
    name = "as" if found["setting"] == "kinds" else found["setting"].replace("_", "-")
    return f"--{name}{value}"


def advice_of_fit(message: str) -> str:
    """Return a message about a column for a command that takes columns as `tailbatch fit` did.

    Examples
    --------
    >>> advice_of_fit("'a' is no number; correct it, or write kinds={'a': 'ignore'} or missing='impute'")
    "'a' is no number; correct it, or fit the model again with --as a=ignore or --missing impute"
    """
    problem, _, advice = message.partition("; ")
    options = [in_the_commands_words(found[0]) for found in _OF_FIT.finditer(advice)]
    if not options:
        return message
    return f"{problem}; correct it, or fit the model again with {' or '.join(options)}"


def option_of(name: str) -> str | None:
    """Return the command-line option for a setting by its name in Python or elsewhere.

    Examples
    --------
    >>> option_of("learning_rate"), option_of("batch_size"), option_of("latent")
    ('--lr', '--batch-size', None)
    """
    name = name.replace("-", "_")
    known = {**_OPTIONS, **_ELSEWHERE, **{word: f"--{word}" for word in _WORDS}}
    return known.get(name)


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
