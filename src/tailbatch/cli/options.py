"""Options that several commands share: how they are read, and how messages write them."""

import json
import logging
import math
import shlex
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.errors import DataError, StudyError, printable

if TYPE_CHECKING:
    from tailbatch.data import MultiLabelDataset

FORMATS = "ARFF, LIBSVM, CSV, TSV, JSON, Parquet, npz"

Data = Annotated[str, typer.Argument(help=f"A known name, or a file: {FORMATS}.")]
Labels = Annotated[
    str | None,
    typer.Option(
        help="Which columns are labels: 5 (first five columns), -5 (last five), names or a prefix of "
        "columns, one column that lists them (tags, or tags:; with its delimiter), or a MULAN XML file.",
        metavar="LABELS",
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option("--text", help="A column of free text; may be repeated.", metavar="COLUMN"),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kinds",
        help="How to read a column: number, category, date (date:%d/%m/%Y), text or ignore; may "
        "be repeated.",
        metavar="COLUMN=KIND",
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Embeddings of text beside its words: minilm, or a folder or hub name.", metavar="NAME"
    ),
]
MinRows = Annotated[
    int | None,
    typer.Option(
        min=1, help="Leave out labels on fewer rows than this, and name them.", metavar="N"
    ),
]
Add = Annotated[
    list[Path] | None,
    typer.Option(
        "--add", help="A file of `tailbatch suggest` with answers; may be repeated.", metavar="FILE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]


class Missing(StrEnum):
    """What to do with missing values."""

    IMPUTE = "impute"
    ERROR = "error"


MissingOption = Annotated[
    Missing, typer.Option(help="Fill in missing feature values, or reject them.")
]


def _load_for_command(
    name_or_path: str,
    labels: str | None,
    missing: Missing = Missing.IMPUTE,
    text: list[str] | None = None,
    kinds: list[str] | None = None,
    encoder: str | None = None,
) -> "MultiLabelDataset":
    """Load the dataset a command names; download a known one if it is not here yet."""
    from tailbatch.data import catalog, load_dataset

    # What a reader left out or changed is part of the description, so it is not repeated here.
    logging.getLogger("tailbatch.data").setLevel(logging.ERROR)
    logging.getLogger("tailbatch.estimator").setLevel(logging.ERROR)
    if not Path(name_or_path).is_file() and name_or_path.casefold() in catalog.catalog():
        _fetched(name_or_path)
    return load_dataset(
        name_or_path,
        labels=_label_option(labels),
        missing=missing.value,
        text=tuple(text or ()),
        kinds=_kinds_option(kinds),
        encoder=encoder,
    )


def _fetched(name: str) -> Path:
    """Return the file of a known dataset, with a progress bar while it downloads."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from tailbatch.data import catalog

    if (here := catalog.local_file(name)) is not None:
        return here
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Downloading {name}", total=None)
        return catalog.find(
            name, progress=lambda received, size: bar.update(task, completed=received, total=size)
        )


def _label_option(text: str | None) -> int | str | list[str] | None:
    """Parse --labels: a number, a list of columns, or one name."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    from tailbatch.data.text import label_file

    if "," not in text or text.endswith(":,") or label_file(text) is not None:
        return text
    return text.split(",")


def _kinds_option(entries: list[str] | None) -> dict[str, str]:
    """Parse the kinds of columns that --kinds gives."""
    kinds = {}
    for entry in entries or ():
        name, equals, kind = entry.rpartition("=")
        if not equals or not name:
            raise DataError(f"--kinds {entry}: write COLUMN=KIND, such as --kinds price=number")
        kinds[name] = kind
    return kinds


def _note(*notices: str) -> None:
    """Print notices on stderr, with option names in place of argument names."""
    for notice in notices:
        typer.echo(f"Note: {printable(notice)}", err=True)


def _print_json(value: object) -> None:
    """Print a value as JSON, with null for numbers that are not finite."""
    typer.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    """Return a value JSON can hold: paths as text, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _as_option(options: Mapping[str, str], name: str, value: Any = None) -> str | None:
    """Return a setting as an option of the command, None if it has none.

    `options` are the command's, by the names of the settings in Python; name and value are as for
    `tailbatch.errors.setting`.
    """
    option = options.get(name.rstrip("="))
    if option is None or value is None:
        return option
    pairs = [f"{key}={entry}" for key, entry in value.items()] if isinstance(value, dict) else []
    return f"{option} {shlex.quote(','.join(pairs) or str(value))}"


def _named_value(text: str) -> tuple[str, Any]:
    """Return the name and value of NAME=VALUE; a value that is not JSON is text."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _named_table(text: str) -> dict[str, Any]:
    """Return the study entry for NAME:OPTION=VALUE:OPTION=VALUE."""
    name, *settings = text.split(":")
    for setting in settings:
        if "=" not in setting:
            raise StudyError(
                f"a setting of {name} is OPTION=VALUE, as in weighted_bce:power=1, got {text!r}"
            )
    return {"name": name, **dict(map(_named_value, settings))}


def _count(number: int, noun: str) -> str:
    """Return a number and its noun, plural unless the number is one."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _number(value: float, digits: int = 2) -> str:
    """Return a number with thousands separators, or a dash if there is none."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
