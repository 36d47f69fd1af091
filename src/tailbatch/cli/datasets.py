"""The commands ``tailbatch datasets``: list, describe, get, check.

Imports that take time are made inside the commands, so that ``--help`` answers at once.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.cli.terminal import printable
from tailbatch.errors import DataError, TailbatchError

if TYPE_CHECKING:
    from tailbatch.data.dataset import MultiLabelDataset

app = typer.Typer(
    help="Find, fetch, check and describe multi-label datasets.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]


class Missing(StrEnum):
    """What to do with missing values."""

    ERROR = "error"
    IMPUTE = "impute"


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets that are known by name.

    For example:

      tailbatch datasets list
    """
    from tailbatch.cli import pictures
    from tailbatch.data import catalog

    entries = list(catalog.catalog().values())
    here = {entry.name: catalog.local_file(entry.name) for entry in entries}
    if as_json:
        print_json([{**asdict(entry), "path": here[entry.name]} for entry in entries])
    else:
        pictures.show_catalog(entries, {name for name, path in here.items() if path})


@app.command()
def describe(
    dataset: Annotated[
        str, typer.Argument(help="A known name, or a file: ARFF, LIBSVM, CSV, TSV, Parquet, npz.")
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            help="Where the labels are: 5 (first five columns), -5 (last five), names or a prefix "
            "of columns, one column that lists them, or a MULAN XML file.",
            metavar="LABELS",
        ),
    ] = None,
    missing: Annotated[
        Missing, typer.Option(help="Refuse missing feature values, or fill them in.")
    ] = Missing.ERROR,
    picture: Annotated[
        Path | None,
        typer.Option(help="Also draw the label frequencies into this .png or .svg file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the size, imbalance and oddities of a dataset.

    For example:

      tailbatch datasets describe debtags

      tailbatch datasets describe yeast --picture yeast.png

      tailbatch datasets describe mine.csv --labels topic_

      tailbatch datasets describe mine.arff --labels -14 --json
    """
    from tailbatch.cli import pictures
    from tailbatch.data import catalog
    from tailbatch.report import description

    facts = description.describe(load_for_command(dataset, labels, missing))
    if picture is not None:
        from tailbatch.report import figures

        figures.save(figures.label_frequencies(facts), picture)
    if as_json:
        print_json(asdict(facts))
    else:
        name = catalog.known_name(dataset) or dataset.casefold()
        pictures.show_description(facts, catalog.catalog().get(name))
        if picture is not None:
            typer.echo(f"\nPicture: {printable(str(picture))}")


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(help="Names from `tailbatch datasets list`.")],
) -> None:
    """Download datasets once and print where they are.

    For example:

      tailbatch datasets get yeast

      tailbatch datasets get yeast scene emotions
    """
    from tailbatch.data import catalog

    for name in names:
        typer.echo(_fetched(catalog.known(name).name))


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A folder of dataset files, searched throughout.")],
    as_json: AsJson = False,
) -> None:
    """Compare the known files in a folder with their published hash and facts.

    Exit code 1 if a file cannot be used. A file that differs in its bytes and agrees in its facts
    can: it may have been written anew by another tool.

    For example:

      tailbatch datasets check ~/datasets
    """
    from tailbatch.cli import pictures
    from tailbatch.data import catalog

    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder")
    files = sorted(path for path in folder.rglob("*") if catalog.known_name(path))
    if not files:
        raise DataError(f"{folder} has no file that the catalog knows by name, such as yeast.arff")
    results = []
    for path in files:
        results.append(_checked(path))
        if not as_json:
            pictures.show_check(**results[-1])
    if as_json:
        print_json(results)
    if any(result["problem"] for result in results):
        raise typer.Exit(1)


def _checked(path: Path) -> dict[str, Any]:
    from tailbatch.data import catalog, load_dataset

    try:
        same_bytes, problem = catalog.file_matches(path), None
        load_dataset(path)
    except TailbatchError as error:
        same_bytes, problem = False, str(error)
    return {"path": path, "same_bytes": same_bytes, "problem": problem}


def load_for_command(
    name_or_path: str, labels: str | None, missing: Missing
) -> "MultiLabelDataset":
    """Load the dataset a command names, fetching it first where it is known and not here."""
    from tailbatch.data import catalog, load_dataset

    # What a reader left out or changed is part of the description: say it there, not here too.
    logging.getLogger("tailbatch.data").setLevel(logging.ERROR)
    if not Path(name_or_path).is_file() and name_or_path.casefold() in catalog.catalog():
        _fetched(name_or_path)
    return load_dataset(name_or_path, labels=_label_option(labels), missing=missing.value)


def _label_option(text: str | None) -> int | str | list[str] | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    from tailbatch.data.suffixes import label_file

    return text.split(",") if "," in text and label_file(text) is None else text


def _fetched(name: str) -> Path:
    """Return the file of a known dataset, with a progress bar while it downloads."""
    from tailbatch.data import catalog

    here = catalog.local_file(name)
    if here is not None:
        return here
    with _progress(name) as progress:
        return catalog.find(name, progress=progress)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(f"Downloading {name}", total=None)
        yield lambda received, size: bar.update(task, completed=received, total=size)


def print_json(value: object) -> None:
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
