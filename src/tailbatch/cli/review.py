"""The commands ``tailbatch suggest`` and ``review``: which rows to label next, and labeling them.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailbatch.cli.options import count
from tailbatch.errors import DataError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from tailbatch.review import Question, Sheet

commands = typer.Typer()

_LONGEST = 2_000  # characters of a cell on the screen
_CELLS = 12  # columns on the screen


class _Key(StrEnum):
    """What a key does."""

    YES = "y"
    NO = "n"
    SKIP = "s"
    UNDO = "u"
    QUIT = "q"


@commands.command()
def review(
    path: Annotated[Path, typer.Argument(help="The file that `tailbatch suggest` wrote.")],
) -> None:
    """Answer the suggested rows one by one: y (yes), n (no), s (skip), u (undo), q (quit).

    Every answer is saved at once; the same command goes on where the last one stopped.

    For example:

      tailbatch review review.csv
    """
    from rich.console import Console

    from tailbatch.review import Sheet

    sheet = Sheet(path)
    if not sheet.questions:
        raise DataError(f"{path} has nothing to answer")
    if not sys.stdin.isatty():
        raise DataError(
            f"review needs a terminal; or write yes and no into {path} with a spreadsheet"
        )
    console = Console(highlight=False)
    with _keys() as read_key:
        _ask_all(sheet, console, read_key)
    _summarize(sheet, console)


def _ask_all(sheet: "Sheet", console: "Console", read_key: Callable[[], str]) -> None:
    """Ask from the first open question on, until there is none or the person stops."""
    number, shown = sheet.first_open(), -1
    while number < len(sheet.questions):
        question = sheet.questions[number]
        if question.row != shown:
            _show(sheet, question.row, console)
            shown = question.row
        key = _asked(sheet, question, number, console, read_key)
        if key is _Key.QUIT:
            break
        if key is _Key.UNDO:
            number = _undone(sheet, number)
            continue
        sheet.answer(question, {_Key.YES: "yes", _Key.NO: "no", _Key.SKIP: "?"}[key])
        number = sheet.first_open()


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Yield a function that waits for one key; keys pressed while a row is printed are not lost."""
    if sys.platform == "win32":
        yield typer.getchar
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read_key() -> str:
        return os.read(terminal, 1).decode("ascii", errors="replace") or _Key.QUIT.value

    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        yield read_key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _show(sheet: "Sheet", row: int, console: "Console") -> None:
    """Print a row's columns, and why it is here."""
    from rich.text import Text

    from tailbatch.review import WHY

    console.rule(f"row {row + 1} of {len(sheet)}")
    cells = sheet.shown(row)
    for name, cell in cells[:_CELLS]:
        text = "\n".join(map(printable, cell[:_LONGEST].splitlines()))
        cut = "..." if len(cell) > _LONGEST else ""
        console.print(Text.assemble((f"{printable(name)}: ", "bold"), f"{text}{cut}"))
    if len(cells) > _CELLS:
        console.print(Text(f"and {count(len(cells) - _CELLS, 'column')} more", style="dim"))
    console.print(Text(printable(str(sheet.cell(row, WHY))), style="dim"))


def _asked(
    sheet: "Sheet",
    question: "Question",
    number: int,
    console: "Console",
    read_key: Callable[[], str],
) -> _Key:
    """Ask until a key is one of ours."""
    from rich.text import Text

    prompt = Text.assemble(
        f"{number + 1} of {len(sheet.questions)}  ",
        (f"{printable(question.label)}?", "bold"),
        "  y n, s skip, u undo, q quit ",
    )
    while True:
        console.print(prompt, end="")
        pressed = read_key()
        console.print(Text(printable(pressed)))
        if (key := pressed.casefold()[:1]) in list(_Key):
            return _Key(key)


def _undone(sheet: "Sheet", number: int) -> int:
    """Take back the answer before a question, and return its number."""
    if number:
        number -= 1
        sheet.answer(sheet.questions[number], "")
    return number


def _summarize(sheet: "Sheet", console: "Console") -> None:
    """Print how many answers there are, and what comes next."""
    from tailbatch.review import answer_of

    answers: dict[str, list[float]] = {}
    for question in sheet.questions:
        value = answer_of(sheet.cell(*question))
        if value is not None and value == value:
            answers.setdefault(question.label, []).append(value)
    console.print()
    for label, values in answers.items():
        typer.echo(
            f"{printable(label)}: {count(int(sum(values)), 'positive')} in {len(values):,} reviewed"
        )
    left = sum(sheet.is_open(question) for question in sheet.questions)
    name = printable(str(sheet.path))
    if left:
        typer.echo(f"{count(left, 'question')} left: tailbatch review {name}")
    else:
        typer.echo(f"Next: tailbatch fit DATA --add {name} --out MODEL")
