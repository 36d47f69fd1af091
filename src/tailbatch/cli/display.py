"""What commands print about datasets, labels, rows and a training, for 80 columns or more."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tailbatch.cli.options import _count, _number
from tailbatch.data import FittedColumns
from tailbatch.data.catalog import KnownDataset
from tailbatch.errors import printable
from tailbatch.report.description import Description

if TYPE_CHECKING:
    from tailbatch.results import TrainingPlan
    from tailbatch.training import Callback, Epoch

_RARE = "dark_orange3"
_SHOWN_LABELS = 20
_SHOWN_COLUMNS = 30
_NAMED_LABELS = 24
_SCORED_LABELS = 40
_RAREST = 8
_BAR_WIDTH = 24
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def _show_catalog(entries: Iterable[KnownDataset], here: Collection[str]) -> None:
    """Print a table of known datasets."""
    table = _table_of(
        "dataset", "domain", ">rows", ">features", ">labels", ">card.", ">MeanIR", "file"
    )
    for entry in entries:
        table.add_row(
            entry.name,
            entry.domain,
            f"{entry.n_samples:,}",
            f"{entry.n_features:,}",
            f"{entry.n_labels:,}",
            _number(entry.label_cardinality),
            _number(entry.mean_imbalance_ratio),
            _where(entry, entry.name in here),
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "card. is the mean number of labels per row; MeanIR is how imbalanced the labels are."
    )
    console.print("Next: tailbatch datasets describe NAME", style="bold")


def _where(entry: KnownDataset, is_here: bool) -> str:
    if is_here:
        return "here"
    files = entry.files if entry.is_corpus else entry.files[:1]
    size = sum(file.bytes for file in files)
    return f"{size / 1e3:,.0f} kB" if files[0].urls else "by hand"


def _show_description(
    facts: Description, entry: KnownDataset | None = None, columns: FittedColumns | None = None
) -> None:
    """Print the facts of a dataset, its columns if it is a table, and where a known one comes from."""
    console = Console(highlight=False)
    console.print(Text(printable(facts.name), style="bold"))
    console.print(_facts_table(facts))
    if columns is not None and columns.taken:
        _section(console, "Columns", "how they are read; change it with --kinds COLUMN=KIND")
        console.print(_columns_table(columns))
    _section(console, "Label frequencies", "rare labels are marked *")
    console.print(_frequency_table(facts, ascii_only=not console.encoding.startswith("utf")))
    if len(facts.cooccurrence.names) > 1:
        _section(console, "Commonest labels together", "of the rows with one, % that have another")
        console.print(_cooccurrence_table(facts))
    rare = f"{facts.n_minority_labels:,} of {facts.n_labels:,} labels"
    share = f"{facts.minority_row_share:.1%} of the rows have one"
    _section(console, "Rare labels", f"{rare}; {share}")
    console.print(Padding(Text(_minority_names(facts)), (0, 2)))
    _bullets(console, "Worth a look", facts.warnings or ["nothing unusual"])
    if entry:
        _bullets(console, "About", filter(None, [entry.citation, entry.note]))


def _facts_table(facts: Description) -> Table:
    table = Table.grid(padding=(0, 2))
    rows = [
        ("rows", f"{facts.n_samples:,}", "label cardinality", _number(facts.label_cardinality, 4)),
        ("features", f"{facts.n_features:,}", "label density", _number(facts.label_density, 4)),
        ("labels", f"{facts.n_labels:,}", "MeanIR", _number(facts.mean_imbalance_ratio, 4)),
        ("label sets", f"{facts.distinct_label_sets:,}", "SCUMBLE", _number(facts.scumble, 4)),
        (
            "storage",
            facts.feature_storage,
            "feature values not zero",
            f"{facts.feature_density:.1%}",
        ),
    ]
    for name, value, other_name, other_value in rows:
        table.add_row(
            "", Text(name, style="dim"), value, Text(other_name, style="dim"), other_value
        )
    return table


def _columns_table(columns: FittedColumns) -> Table:
    table = _table_of("column", "taken for", ">features")
    table.add_column("because")
    width = {part.name: len(part.feature_names) for part in columns.parts}
    for name, taken in islice(columns.taken.items(), _SHOWN_COLUMNS):
        why = taken.why
        style = "dim" if taken.kind == "ignore" else ""
        kind = "left out" if taken.kind == "ignore" else taken.kind
        features = f"{width[name]:,}" if name in width else ""
        table.add_row(_name(name), kind, features, Text(printable(why)), style=style)
    if (rest := len(columns.taken) - _SHOWN_COLUMNS) > 0:
        table.add_row(f"... {_count(rest, 'more column')}", "", "", "")
    return table


def _frequency_table(facts: Description, *, ascii_only: bool) -> Table:
    table = _table_of("label", ">rows", ">share", ">IRLbl", "")
    largest = max(facts.labels[0].positives, 1)
    hidden = facts.n_labels - _SHOWN_LABELS
    for at, label in enumerate(facts.labels):
        # Of many labels, the commonest and the rarest are shown.
        if hidden > 0 and _SHOWN_LABELS // 2 <= at < len(facts.labels) - _SHOWN_LABELS // 2:
            if at == _SHOWN_LABELS // 2:
                table.add_row(f"... {hidden:,} labels in between", "", "", "", "")
            continue
        style = _RARE if label.is_minority else ""
        table.add_row(
            _label(label.name, is_minority=label.is_minority),
            f"{label.positives:,}",
            f"{label.share:.1%}",
            _number(label.imbalance_ratio, 1),
            _bar(label.positives / largest, _BAR_WIDTH, ascii_only=ascii_only),
            style=style,
        )
    return table


def _cooccurrence_table(facts: Description) -> Table:
    together = facts.cooccurrence
    table = _table_of("label", *(f">{at}" for at in range(1, len(together.names) + 1)))
    for position, (name, shares) in enumerate(zip(together.names, together.share, strict=True)):
        cells = ["" if j == position else f"{share:.0%}" for j, share in enumerate(shares)]
        table.add_row(_name(f"{position + 1} {name}"), *cells)
    return table


def _minority_names(facts: Description) -> str:
    names = [printable(label.name) for label in facts.labels if label.is_minority]
    rest = len(names) - _NAMED_LABELS
    text = ", ".join(names[:_NAMED_LABELS])
    return f"{text} and {rest:,} more (all with --json)" if rest > 0 else text or "none"


def _bullets(console: Console, title: str, sentences: Iterable[str]) -> None:
    _section(console, title)
    table = Table.grid(padding=(0, 1))
    for sentence in sentences:
        table.add_row(" -", Text(printable(sentence)))
    console.print(table)


def _show_labels(table: pd.DataFrame) -> None:
    """Print how well each label is found, the rarest first."""
    shown = _table_of("label", ">rows", ">AP", ">AUC", ">precision", ">recall", ">F", ">threshold")
    for row in table.head(_SCORED_LABELS).to_dict("records"):
        values = [row[name] for name in ("average_precision", "auc", "precision", "recall", "f",
                                         "threshold")]  # fmt: skip
        shown.add_row(
            _label(row["label"], is_minority=row["minority"]),
            f"{row['support']:,}",
            *(_number(value, 3) for value in values),
        )
    console = Console(highlight=False)
    console.print(shown)
    rest = len(table) - _SCORED_LABELS
    more = f" {_count(rest, 'more label')}: all with --csv FILE or --json." if rest > 0 else ""
    console.print(f"The rarest labels come first; rare ones are marked *.{more}\n")


def _show_beside(scores: pd.DataFrame, is_rare: NDArray[np.bool_]) -> None:
    """Print the average precision of several models on the rarest labels, and their means."""
    models = scores.columns[2:]
    shown = _table_of("rarest labels", ">rows", *(f">{model}" for model in models))
    rarest = scores.assign(rare=is_rare).sort_values("rows", kind="stable").head(_RAREST)
    for row in rarest.to_dict("records"):
        values = [_number(row[model], 3) for model in models]
        shown.add_row(_label(row["label"], is_minority=row["rare"]), str(row["rows"]), *values)
    for name, rows in ("rare labels", scores[is_rare]), ("labels", scores):
        means = [_number(rows[model].mean(), 3) for model in models]
        shown.add_row(f"mean of {len(rows):,} {name}", "", *means, style="bold")
    console = Console(highlight=False)
    console.print(shown)
    console.print("Average precision on the rows of a test part; rare labels are marked *.\n")


def _show_rows(title: str, table: pd.DataFrame) -> None:
    """Print rows of a file with the probability of a label."""
    console = Console(highlight=False)
    console.print(Text(printable(title), style="bold"))
    if table.empty:
        console.print("none\n")
        return
    shown = _table_of(*(f">{name}" for name in table.columns[:2]))
    for name in table.columns[2:]:
        shown.add_column(printable(str(name)), overflow="fold")
    for row in table.itertuples(index=False):
        shown.add_row(str(row[0]), f"{row[1]:.4f}", *(_cell(value) for value in row[2:]))
    console.print(shown)
    console.print()


def _cell(value: object) -> Text:
    """Return a cell of the file, a dash where it is missing."""
    missing = pd.api.types.is_scalar(value) and pd.isna(value)
    return Text("-" if missing else printable(str(value)))


def _show_check(path: Path, same_bytes: bool, problem: str | None) -> None:
    """Print the verdict on one file."""
    verdict = "as published" if same_bytes else "different bytes, same facts"
    line = Text(f"{printable(str(path))}: ")
    line.append(printable(problem) if problem else verdict, style="red" if problem else "green")
    Console(highlight=False).print(line, soft_wrap=True)


def _section(console: Console, title: str, remark: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"  {remark}" if remark else "", "dim")))


@contextmanager
def _training_bar(plan: "TrainingPlan", *, shown: bool) -> Iterator["Callback"]:
    """Show progress on stderr: a line about the last epoch, and below it a bar."""
    from tailbatch.training import Callback, Epoch

    class Bar(Progress):
        line = "Training"

        def get_renderables(self) -> Iterator[RenderableType]:
            yield Text(self.line)  # wraps on a narrow terminal, where a column would be cut
            yield from super().get_renderables()

    console = Console(stderr=True)
    columns = BarColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("")

        class Shown(Callback):
            epochs = plan.epochs

            def on_batch(self, step: int, steps_per_epoch: int, objective: float) -> None:
                self.epochs = plan.n_epochs(steps_per_epoch * plan.batch_size)
                bar.update(task, completed=step, total=plan.steps or self.epochs * steps_per_epoch)

            def on_epoch(self, epoch: Epoch) -> None:
                bar.line = _epoch_line(epoch, self.epochs)
                # Without a terminal there is no bar: a few lines show progress.
                if not console.is_terminal and epoch.number % max(1, self.epochs // 10) == 0:
                    typer.echo(bar.line, err=True)

        yield Shown()


@contextmanager
def _scoring_bar() -> Iterator[Callable[[float], None]]:
    """Show on stderr how much is done; yield what to tell the share to."""
    console, told = Console(stderr=True), 0
    columns = BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def show(share: float) -> None:
            nonlocal told
            bar.update(task, completed=share)
            # Without a terminal there is no bar: a few lines show progress.
            if not console.is_terminal and int(share * 10) > told and share < 1:
                told = int(share * 10)
                typer.echo(f"{told * 10}% done", err=True)

        yield show


def _epoch_line(epoch: "Epoch", epochs: int) -> str:
    """Return one line about an epoch: loss, validation scores, share of rare labels in the draws."""
    parts = [f"Epoch {epoch.number} of {epochs}", f"loss {epoch.batch_objective:.4f}"]
    parts += _scores_text(epoch)
    if epoch.minority_share is not None:
        parts.append(f"rare draws {epoch.minority_share:.0%}")
    return ", ".join(parts)


def _scores_text(epoch: "Epoch") -> list[str]:
    """Return an epoch's validation scores as text; empty if it was not evaluated."""
    from tailbatch.metrics import METRICS

    return [
        f"validation {METRICS[name].title} {_number(value, 4)}"
        for name, value in epoch.validation.items()
    ]


def _table_of(*columns: str, roomy: bool = False) -> Table:
    """Return an empty table; a column whose name starts with > is right-aligned.

    A roomy one has a margin, and its cells wrap.
    """
    table = Table(box=SIMPLE_HEAD, caption_justify="left", pad_edge=roomy, show_edge=roomy)
    table.padding = (0, 1) if roomy else (0, 1, 0, 0)
    for column in columns:
        name = column.removeprefix(">")
        side: JustifyMethod = "left" if name == column else "right"
        table.add_column(name, justify=side, no_wrap=not roomy)
    return table


def _label(name: str, *, is_minority: bool) -> Text:
    """Return a label's name for a table, marked if it is a minority label."""
    return _name(name, mark=" *" if is_minority else "")


def _name(text: str, *, mark: str = "", longest: int = 26) -> Text:
    """Return a name as plain text, cut to fit; markup and control characters have no effect."""
    shown = Text(printable(text))
    shown.truncate(longest - len(mark), overflow="ellipsis")
    return shown.append(mark)


def _bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar of `width` characters for a share of 1; any share above zero is visible."""
    if share <= 0:
        return ""
    if ascii_only:
        return "#" * max(1, round(width * share))
    whole, eighths = divmod(max(1, round(8 * width * share)), 8)
    return "█" * whole + _EIGHTHS[eighths]
