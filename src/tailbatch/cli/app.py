"""The command ``tailbatch``: its groups of commands, and how errors reach a person."""

import sys
from typing import Annotated

import typer

from tailbatch import __version__
from tailbatch.errors import TailbatchError

app = typer.Typer(
    name="tailbatch",
    help="Choose mini-batches that show a network the rare labels. Try: tailbatch datasets list",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tailbatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Choose mini-batches that show a network the rare labels."""


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and exit code 2."""
    try:
        app()
    except TailbatchError as error:
        if "--debug" in sys.argv:
            raise
        typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
