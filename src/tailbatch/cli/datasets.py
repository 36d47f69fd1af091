"""The commands ``tailbatch datasets``: list, describe, get, check.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.cli.options import (
    AsJson,
    Data,
    Kinds,
    Labels,
    Missing,
    MissingOption,
    Text,
    TextEncoder,
    fetched,
    load_for_command,
    print_json,
)
from tailbatch.errors import DataError, TailbatchError, printable

if TYPE_CHECKING:
    from tailbatch.data import MultiLabelDataset

app = typer.Typer(
    help="Find, fetch, check and describe multi-label datasets.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets that tailbatch knows by name.

    For example:

      tailbatch datasets list
    """
    from tailbatch.cli import display
    from tailbatch.data import catalog

    entries = list(catalog.catalog().values())
    here = {entry.name: catalog.local_file(entry.name) for entry in entries}
    if as_json:
        print_json([{**asdict(entry), "path": here[entry.name]} for entry in entries])
    else:
        display.show_catalog(entries, {name for name, path in here.items() if path})


@app.command()
def describe(
    dataset: Data,
    labels: Labels = None,
    missing: MissingOption = Missing.IMPUTE,
    text: Text = None,
    kinds: Kinds = None,
    text_encoder: TextEncoder = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Also draw the label frequencies into this .png or .svg file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the size, imbalance and oddities of a dataset, and how its columns are read.

    For example:

      tailbatch datasets describe debtags

      tailbatch datasets describe yeast --picture yeast.png

      tailbatch datasets describe mine.csv --labels tags --text subject --kinds price=number

      tailbatch datasets describe mine.arff --labels -14 --json
    """
    from tailbatch.cli import display
    from tailbatch.data import catalog
    from tailbatch.report import description

    data = load_for_command(dataset, labels, missing, text, kinds, text_encoder)
    facts = description.describe(data)
    if picture is not None:
        from tailbatch.report import figures

        figures.save(figures.label_frequencies(facts), picture)
    if as_json:
        print_json({**asdict(facts), "columns": _columns(data)})
    else:
        name = catalog.known_name(dataset) or dataset.casefold()
        display.show_description(facts, catalog.catalog().get(name), data.columns)
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
        typer.echo(fetched(catalog.known(name).name))


@app.command()
def check(
    folder: Annotated[
        Path, typer.Argument(help="A folder of dataset files, searched recursively.")
    ],
    as_json: AsJson = False,
) -> None:
    """Compare the known files in a folder with their published hashes and facts.

    Exit code 1 if a file cannot be used. A file with different bytes but the same facts can be used:
    another tool may have rewritten it.

    For example:

      tailbatch datasets check ~/datasets
    """
    from tailbatch.cli import display
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
            display.show_check(**results[-1])
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


def _columns(data: "MultiLabelDataset") -> dict[str, dict[str, str]] | None:
    """Return how each column of a table was read, and why."""
    if data.columns is None:
        return None
    return {name: {"kind": t.kind, "why": t.why} for name, t in data.columns.taken.items()}
