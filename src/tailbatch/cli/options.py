"""Options that several commands share, and reading a table with them."""

import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.cli.terminal import printable
from tailbatch.errors import DataError

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
TextEncoder = Annotated[
    str | None,
    typer.Option(help="minilm: embeddings of text instead of TF-IDF.", metavar="NAME"),
]
MinRows = Annotated[
    int | None,
    typer.Option(
        min=1, help="Leave out labels on fewer rows than this, and name them.", metavar="N"
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


def load_for_command(
    name_or_path: str,
    labels: str | None,
    missing: Missing = Missing.IMPUTE,
    text: list[str] | None = None,
    kinds: list[str] | None = None,
    text_encoder: str | None = None,
) -> "MultiLabelDataset":
    """Load the dataset a command names; download a known one if it is not here yet."""
    from tailbatch.cli.datasets import fetched
    from tailbatch.data import catalog, load_dataset

    # What a reader left out or changed is part of the description, so it is not repeated here.
    logging.getLogger("tailbatch.data").setLevel(logging.ERROR)
    logging.getLogger("tailbatch.estimator").setLevel(logging.ERROR)
    if not Path(name_or_path).is_file() and name_or_path.casefold() in catalog.catalog():
        fetched(name_or_path)
    return load_dataset(
        name_or_path,
        labels=label_option(labels),
        missing=missing.value,
        text=tuple(text or ()),
        kinds=kinds_option(kinds),
        text_encoder=text_encoder,
    )


def refuse_missing_file(name_or_path: str) -> None:
    """Raise if what is clearly a file is not there; the error names one of nearly that name."""
    from tailbatch.data import catalog
    from tailbatch.data.readers import no_file

    path = Path(name_or_path)
    if path.suffix and not path.is_file() and name_or_path.casefold() not in catalog.catalog():
        raise no_file(path)


def label_option(text: str | None) -> int | str | list[str] | None:
    """Parse --labels: a number, a list of columns, or one name.

    Examples
    --------
    >>> label_option("-5"), label_option("a,b"), label_option("tags:,")
    (-5, ['a', 'b'], 'tags:,')
    """
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    from tailbatch.data.suffixes import label_file

    if "," not in text or text.endswith(":,") or label_file(text) is not None:
        return text
    return text.split(",")


def kinds_option(entries: list[str] | None) -> dict[str, str]:
    """Parse the kinds of columns that --kinds gives.

    Examples
    --------
    >>> kinds_option(["price=number", "made=date:%d/%m/%Y"])
    {'price': 'number', 'made': 'date:%d/%m/%Y'}
    """
    kinds = {}
    for entry in entries or ():
        name, equals, kind = entry.rpartition("=")
        if not equals or not name:
            raise DataError(f"--kinds {entry}: write COLUMN=KIND, such as --kinds price=number")
        kinds[name] = kind
    return kinds


def note(*notices: str) -> None:
    """Print notices on stderr, with option names in place of argument names."""
    for notice in notices:
        typer.echo(f"Note: {printable(notice)}", err=True)


def print_json(value: object) -> None:
    """Print a value as JSON, with null for numbers that are not finite."""
    import json

    typer.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    """Return a value JSON can hold: paths as text, numbers that are not finite as null."""
    import math

    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
