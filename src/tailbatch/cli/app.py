"""The command ``tailbatch``: its groups of commands, and how errors are printed."""

import sys
from functools import partial
from typing import Annotated, Any

import typer

from tailbatch import __version__
from tailbatch.cli import answers, models, predict, review, study
from tailbatch.cli.options import _as_option
from tailbatch.errors import StudyError, TailbatchError, printable, spelled, synonym

#: Commands by names that people try.
_ELSEWHERE = {
    "describe": "datasets describe",
    "get": "datasets get",
    "download": "datasets get",
    "train": "fit",
    "test": "evaluate",
    "score": "evaluate",
    "run": "study run",
}

# Options and arguments that cannot be read.
_UNREADABLE: Any = typer.BadParameter.__base__
#: The first sentence is the README's.
_HELP = """
Learn the rare labels of imbalanced multi-label data, in PyTorch.

[bold]Start here[/bold], with your own table, whose column tags lists the labels of each row

  tailbatch fit mine.csv --labels tags --out model

  tailbatch predict model new.csv --out predictions.csv

  tailbatch datasets describe mine.csv --labels tags    what it holds, and what is odd

  tailbatch datasets describe debtags                   the dataset inside the package
"""

app = typer.Typer(
    name="tailbatch",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (
    models.commands,
    predict.commands,
    review.commands,
    answers.commands,
    study.commands,
):
    app.add_typer(commands)  # without a name: the commands stand beside each other
app.add_typer(study.app, name="study")
app.add_typer(answers.app, name="datasets")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tailbatch {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def _options(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options of all commands, and let errors name settings by them."""
    commands: Any = context.command
    options = _options_of(commands.commands[context.invoked_subcommand])
    context.with_resource(spelled(partial(_as_option, options)))


def main() -> None:
    """Run the command line.

    A user error prints one sentence and exits with code 2, Ctrl-C exits with 130, and a bug with 1.
    Tracebacks are shown only with ``--debug``.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        _refuse_other_names(arguments)
        sys.exit(app(arguments, prog_name="tailbatch", standalone_mode=False) or 0)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message, code = _explain(error)
        if message:  # without arguments the help is shown, and that is all
            typer.secho(f"Error: {printable(message)}", fg=typer.colors.RED, err=True)
        sys.exit(code)


def _refuse_other_names(arguments: list[str]) -> None:
    """Name the command or option that goes by another name elsewhere."""
    if arguments and arguments[0] in _ELSEWHERE:
        other = _ELSEWHERE[arguments[0]]
        raise StudyError(f"there is no command {arguments[0]}; did you mean tailbatch {other}?")
    known = _options_of(typer.main.get_command(app))
    for argument in arguments:
        flag = argument.partition("=")[0]
        if not flag.startswith("--") or flag in known.values():
            continue
        if near := synonym(flag[2:].replace("-", "_"), known):
            raise StudyError(f"there is no option {flag}; did you mean {known[near]}?")


def _options_of(command: Any) -> dict[str, str]:
    """Return the options of a command and of those in it, by the names of their parameters."""
    options = {each.name: each.opts[0] for each in command.params if each.opts[0][:2] == "--"}
    for inner in getattr(command, "commands", {}).values():
        options |= _options_of(inner)
    return options


def _explain(error: Exception) -> tuple[str, int]:
    """Return a one-sentence message and the exit code."""
    if isinstance(error, TailbatchError):
        return str(error), 2
    if isinstance(error, _UNREADABLE):
        path = getattr(error.ctx, "command_path", "tailbatch")
        message = error.format_message().rstrip(".")
        return f"{message} (see {path} --help)" if message else "", 2
    if isinstance(error, OSError) and error.strerror:
        # The system names no file when a write or a flush fails.
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 2
    return f"unexpected {type(error).__name__}: {error} (add --debug to see where)", 1
