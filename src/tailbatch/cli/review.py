"""The commands ``tailbatch suggest`` and ``review``: which rows to label next, and labeling them.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.cli.models import Folder, _kept_columns, _rows_of
from tailbatch.cli.options import FORMATS, Add, _count
from tailbatch.errors import DataError, ModelError, did_you_mean, printable

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from tailbatch.data import MultiLabelDataset
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.review import Question, Review, Sheet
    from tailbatch.suggestions import Suggestions

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


class _Strategy(StrEnum):
    """Which rows of a label to suggest."""

    MIXED = "mixed"
    POSITIVES = "positives"
    UNCERTAIN = "uncertain"


@commands.command("suggest")
def _suggest(
    folder: Folder,
    pool: Annotated[str, typer.Argument(help=f"Unlabeled rows: {FORMATS}.", metavar="POOL")],
    out: Annotated[Path, typer.Option(help="The .csv, .jsonl or .parquet file to write.")],
    rows: Annotated[int, typer.Option(min=1, help="How many rows to review.")] = 100,
    sought: Annotated[
        str | None,
        typer.Option(
            "--labels",
            help="The labels to look for: grief,pride. By default the rare ones, by need.",
            metavar="LABELS",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to copy that the model does not read, such as ticket_id; may be repeated.",
            metavar="COLUMN",
        ),
    ] = None,
    strategy: Annotated[
        _Strategy, typer.Option(help="Likely positives, rows near 0.5, or both.")
    ] = _Strategy.MIXED,
    explore: Annotated[
        float, typer.Option(help="Share of the rows drawn at random: they say what is left.")
    ] = 0.1,
    add: Add = None,
    labeled: Annotated[
        str | None,
        typer.Option(help="The training rows: near-duplicates of them are passed over."),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="An earlier model: how average precision has changed since."),
    ] = None,
    tags: Annotated[
        bool, typer.Option("--tags", help="One column that lists guesses, not one for each label.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same rows; keep it in all rounds.")
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file, if there is one.")
    ] = False,
) -> None:
    """Write the unlabeled rows that a person should label next, with a cell for each answer.

    With --add, rows of earlier rounds are not asked again, and it says what they have found.

    For example:

      tailbatch suggest model unlabeled.csv --rows 100 --labels grief,pride --out review.csv

      tailbatch suggest model2 unlabeled.csv --add review.csv --before model --out review2.csv
    """
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.review import kind, write_review

    kind(out)
    if out.exists() and not overwrite:
        raise DataError(f"{out} exists and may hold answers: choose another file, or --overwrite")
    classifier = TailbatchClassifier.load(folder)
    names = list(classifier.label_names_)
    wanted = _names_of(sought, names)
    earlier = None if before is None else _precision(TailbatchClassifier.load(before))
    features, frame, table = _pool(pool, classifier, keep)
    review, cells = _reviewed(add, names, frame)
    chosen = classifier.suggest(
        features,
        rows,
        wanted,
        strategy=strategy.value,
        explore=explore,
        reviewed=cells,
        labeled=None if labeled is None else _rows_of(labeled, None, classifier)[0],
        seed=seed,
    )
    write_review(table, chosen, out, tags=tags)
    _say_what_was_found(review, chosen, names)
    if earlier is not None:
        _say_what_changed(earlier, _precision(classifier), chosen.label_names)
    _say_what_to_review(chosen, out)


def _names_of(text: str | None, names: Sequence[str]) -> list[str] | None:
    """Return the labels that --labels names; one may hold a comma."""
    if text is None:
        return None
    wanted = [text] if text in names else [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in names:
            raise DataError(f"--labels: unknown label {name!r:.60}{did_you_mean(name, names)}")
    return wanted


def _pool(
    pool: str, classifier: "TailbatchClassifier", keep: list[str] | None
) -> "tuple[Any, pd.DataFrame, pd.DataFrame]":
    """Return the pool's features, its table, and the columns of it to write."""
    from tailbatch.estimator.inputs import columns_of

    try:
        features, _, frame = _rows_of(pool, None, classifier, as_text=keep or ())
    except DataError as error:
        if "has no rows" not in str(error):
            raise
        raise DataError(f"{pool} has no rows to choose from: give unlabeled rows") from None
    _kept_columns(frame, keep, pool)  # says what is wrong with a name
    if frame is None:
        return features, features, features
    columns = columns_of(classifier.columns_, getattr(classifier, "feature_names_in_", None))
    read = {part.name for part in columns.parts} | set(keep or ())
    return features, frame, frame[[name for name in frame.columns if str(name) in read]]


def _reviewed(
    add: list[Path] | None, names: Sequence[str], frame: "pd.DataFrame"
) -> "tuple[Review | None, Any]":
    """Return the rows of earlier rounds, and which cells of the pool need no other look."""
    import numpy as np

    from tailbatch.review import read_reviews, rows_in_pool

    if not add:
        return None, ()
    review = read_reviews(add, names, as_text=frame)
    cells = np.zeros((len(frame), len(names)), dtype=np.bool_)
    cells[rows_in_pool(review, frame)] |= review.done
    return review, cells


def _precision(classifier: "TailbatchClassifier") -> dict[str, float]:
    """Return the average precision of each label on rows that the model has not seen."""
    values = classifier.facts_.get("by_label", {}).get("average_precision")
    if values is None:
        raise ModelError("the model has no held-out rows, so nothing says how good it is")
    return dict(zip(classifier.label_names_, values, strict=True))


def _say_what_was_found(
    review: "Review | None", chosen: "Suggestions", names: Sequence[str]
) -> None:
    if review is not None:
        for line in review.progress(chosen, names):
            typer.echo(printable(str(line)))


def _say_what_changed(
    earlier: dict[str, float], now: dict[str, float], labels: Sequence[str]
) -> None:
    for name in labels:
        was = earlier.get(name, float("nan"))
        typer.echo(f"{printable(name)}: AP {was:.3f} before, {now[name]:.3f} now, on held-out rows")


def _say_what_to_review(chosen: "Suggestions", out: Path) -> None:
    random, name = int(chosen.is_random.sum()), printable(str(out))
    asked = _count(int(chosen.asked.sum()), "question")
    typer.echo(
        f"{_count(len(chosen), 'row')} in {name}: {len(chosen) - random:,} suggested, {random:,} at "
        f"random, {asked}"
    )
    typer.echo(f"Next: tailbatch review {shlex.quote(name)}")


def _reviewed_rows(
    files: list[Path], features: "pd.DataFrame", label_names: Sequence[str]
) -> dict[str, Any]:
    """Return reviewed rows as `fit` takes them."""
    from tailbatch.review import read_reviews

    review = read_reviews(files, tuple(label_names), as_text=features).answered()
    return {"X_reviewed": review.frame, "Y_reviewed": review.Y, "origin": review.is_random}


def _reviewed_in_words(reviewed: dict[str, Any]) -> str:
    """Say how many answers are added, and which of them count where the model is judged."""
    answers = _count(int((reviewed["Y_reviewed"] == reviewed["Y_reviewed"]).sum()), "answer")
    random = int(reviewed["origin"].any(axis=1).sum())
    return (
        f"added {answers} of {_count(len(reviewed['Y_reviewed']), 'reviewed row')}; thresholds, "
        f"probabilities and metrics rest on rows drawn at random, of these {random:,}"
    )


def _used_columns(dataset: "MultiLabelDataset", features: "pd.DataFrame") -> list[str]:
    """Return the columns that are features; a review file need not have the others."""
    taken = {} if dataset.columns is None else dataset.columns.taken
    return [name for name in features if name not in taken or taken[name].kind != "ignore"]


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
        console.print(Text(f"and {_count(len(cells) - _CELLS, 'column')} more", style="dim"))
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
            f"{printable(label)}: {_count(int(sum(values)), 'positive')} in {len(values):,} reviewed"
        )
    left = sum(sheet.is_open(question) for question in sheet.questions)
    name = printable(str(sheet.path))
    if left:
        typer.echo(f"{_count(left, 'question')} left: tailbatch review {name}")
    else:
        typer.echo(f"Next: tailbatch fit DATA --add {name} --out MODEL")
