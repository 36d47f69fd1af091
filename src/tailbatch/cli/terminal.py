"""Text from and for terminals: typed values, safe names, bars, numbers a person can compare."""

import json
import math
from typing import Any

from tailbatch.errors import StudyError
from tailbatch.errors import printable as printable

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar of `width` characters for a share of 1; anything above zero is seen.

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
    """Return a number with thousands separated, or a dash where there is none.

    Examples
    --------
    >>> number(1234.5), number(float("nan")), number(7, 0)
    ('1,234.50', '-', '7')
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"


def named_value(text: str) -> tuple[str, Any]:
    """Return the name and the value of NAME=VALUE; a value that is no JSON is text.

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
    """Return what NAME:OPTION=VALUE:OPTION=VALUE means in a study.

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
