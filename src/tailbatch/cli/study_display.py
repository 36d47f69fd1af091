"""Terminal output of the commands that compare strategies."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from tailbatch.cli.display import _table_of
from tailbatch.cli.options import _count
from tailbatch.errors import printable
from tailbatch.registry import plain_names
from tailbatch.results import NO_BATCHES, RunFailure, RunSpec, pressure_text
from tailbatch.study import Study, StudyProgress
from tailbatch.study.sources import duration

if TYPE_CHECKING:
    from tailbatch.report.section import Brief, Section

_EVERY = 10  # seconds between lines if the output is not a terminal


def _show_studies(studies: Iterable[Study]) -> None:
    """Print the studies by name."""
    table = _table_of("study", ">runs", "what", roomy=True)
    for study in studies:
        table.add_row(study.name, f"{_n_runs(study):,}", study.title)
    console = Console(highlight=False)
    console.print(table)
    console.print("Next: tailbatch study run NAME --quick", style="bold")


def _show_study(study: Study) -> None:
    """Print what a study compares."""
    table = Table.grid(padding=(0, 2))
    for name in ("datasets", "preparations", "models", "strategies", "selection_pressures"):
        entries = getattr(study, name) or ["each strategy's own"]
        table.add_row(name.replace("_", " "), printable(", ".join(map(_entry, entries))))
        if name == "models" and study.losses:
            table.add_row("losses", printable(", ".join(map(_entry, study.losses))))
    folds = range(study.n_folds) if study.folds is None else study.folds
    table.add_row("folds", f"{len(folds)} of {study.n_folds}")
    table.add_row("seeds", ", ".join(map(str, study.seeds)))
    table.add_row("epochs", str(study.plan.epochs))
    table.add_row("batch size", ", ".join(map(str, study.batch_sizes or [study.plan.batch_size])))
    table.add_row("runs", f"{_n_runs(study):,}")
    console = Console(highlight=False)
    console.print(Text(printable(study.title or study.name), style="bold"))
    console.print(table)


def _show_status(studies: Mapping[str, StudyProgress]) -> None:
    """Print the progress of studies, and the runs in progress."""
    table = _table_of(
        "study", ">runs done", ">in progress", ">failed", "time left, one core", roomy=True
    )
    for name, progress in studies.items():
        table.add_row(
            printable(name),
            f"{progress.done:,} of {progress.total:,}",
            str(len(progress.under_way)),
            str(progress.failed),
            "" if progress.done == progress.total else duration(progress.seconds_left),
        )
    console = Console(highlight=False)
    console.print(table)
    # A run that two studies want is done once.
    under_way = {run[0].digest: run for study in studies.values() for run in study.under_way}
    for spec, epochs in under_way.values():
        # A budget in steps depends on the rows.
        planned = "" if spec.plan.steps or spec.plan.min_steps else f" of {spec.plan.epochs}"
        console.print(Text(f"{printable(_name_of(spec))}: {epochs}{planned} epochs done"))


class _Live(logging.Handler):
    """Progress of a study: bars on a terminal, otherwise an occasional line; warnings are above it."""

    def __init__(self, title: str, folder: Path, workers: int) -> None:
        super().__init__(logging.WARNING)
        self.progress: StudyProgress | None = None
        self._about = title, folder, workers
        self._console = Console(highlight=False, stderr=True)
        # Names wrap, so that nothing is cut off on a narrow terminal.
        self._bars = Progress(
            TextColumn("{task.description}", table_column=Column(overflow="fold", ratio=1)),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
            console=self._console,
            transient=True,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        logging.getLogger("tailbatch").addHandler(self)
        return self

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning above the bars."""
        self._console.print(Text(f"Note: {printable(record.getMessage())}"))

    def _announce(self, progress: StudyProgress) -> None:
        title, folder, workers = self._about
        self._console.print(Text(printable(title), style="bold"))
        self._console.print(
            f"{progress.total:,} runs, {workers} at a time; records go to {printable(str(folder))}. "
            "Press Ctrl-C to stop; run the same command again to resume."
        )
        if self._console.is_terminal:
            self._bars.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logging.getLogger("tailbatch").removeHandler(self)
        self._bars.stop()
        if kind is KeyboardInterrupt:
            at, folder = self.progress, printable(str(self._about[1]))
            finished = f"{at.done} of {at.total} runs are" if at else "No run is"
            self._console.print(
                f"Stopped. {finished} finished; {folder} keeps them. "
                "Run the same command again to resume."
            )

    def update(self, progress: StudyProgress) -> None:
        """Show the study's progress."""
        if self.progress is None:
            self._announce(progress)
        self.progress = progress
        known = progress.seconds_left is not None
        left = f", {duration(progress.seconds_left)} left" if known else ""
        if not self._console.is_terminal:
            if time.monotonic() - self._last >= _EVERY:
                self._last = time.monotonic()
                self._console.print(f"{progress.done} of {progress.total} runs done{left}")
            return
        self._bar("all runs", progress.done, progress.total, f"runs{left}")
        shown = {_name_of(spec): (spec, epoch) for spec, epoch in progress.under_way}
        for name, (spec, epoch) in shown.items():
            self._bar(name, epoch, max(epoch, spec.plan.epochs), "epochs")
        for name in set(self._tasks) - set(shown) - {"all runs"}:
            self._bars.remove_task(self._tasks.pop(name))

    def _bar(self, name: str, completed: int, total: int, note: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(printable(name), total=total, note="")
        self._bars.update(self._tasks[name], completed=completed, total=total, note=note)


def _failures(failed: Sequence[RunFailure]) -> None:
    """List the runs that failed, grouped by message."""
    if not failed:
        return
    console = Console(highlight=False, stderr=True)
    console.print(Text(f"{_count(len(failed), 'run')} failed:", style="bold red"))
    by_message: dict[str, list[str]] = {}
    for failure in failed:
        by_message.setdefault(failure.message, []).append(_name_of(failure.spec))
    for message, names in by_message.items():
        message = printable(message)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        console.print(Text(f"  {printable(names[0])}{more}: {message}"))


def _summary(sections: "Iterable[Section]") -> None:
    """Print the terminal output of a report's sections: tables and sentences."""
    console = Console(highlight=False)
    for brief in (section.brief for section in sections if section.brief is not None):
        if brief.rows:
            first, *rest = brief.header
            table = _table_of(first, *(f">{name}" for name in rest), roomy=True)
            _fit(table, brief, console)
            for row in brief.rows:
                table.add_row(*(_cell(text, bold, console) for text, bold in row))
            table.caption = Text(_encodable(brief.caption, console))
            console.print(table)
        for sentence in brief.sentences:
            console.print(Text(printable(sentence), style="bold"))


def _fit(table: Table, brief: "Brief", console: Console) -> None:
    """Wrap the titles of numbers rather than the names of settings; cut nothing off."""
    texts = ([_encodable(text, console).split("\n") for text, _ in row] for row in brief.rows)
    widest = [
        max(len(line) for lines in column for line in lines) for column in zip(*texts, strict=True)
    ]
    left = console.width - 1 - 3 * len(widest)  # without the padding and the spaces between columns
    for column, title, least in zip(table.columns[1:], brief.header[1:], widest[1:], strict=True):
        column.max_width = max([least, *map(len, title.split())])
        left -= column.max_width
    for column in table.columns:
        column.overflow = "fold"
    if left > 0:
        table.columns[0].min_width = min(widest[0], left)


def _cell(text: str, bold: bool, console: Console) -> Text:
    """Return a cell of one or more lines; control characters in them have no effect."""
    lines = "\n".join(map(printable, text.split("\n")))
    return Text(_encodable(lines, console), "bold" if bold else "")


def _encodable(text: str, console: Console) -> str:
    """Return text that a terminal without Unicode can show, too."""
    return (
        text
        if console.encoding.startswith("utf")
        else text.replace("±", "+-").replace("\N{EN DASH}", "-")
    )


def _name_of(spec: RunSpec) -> str:
    """Return a readable name of a run: dataset, model, strategy, fold and seed."""
    pressure = f" {text}" if (text := pressure_text(spec.selection_pressure)) else ""
    shown = plain_names([spec.model, spec.strategy])
    model, strategy = shown[spec.model], shown[spec.strategy]
    arm = "" if strategy == NO_BATCHES else f" {strategy}{pressure}"
    return f"{spec.dataset} {model}{arm}, fold {spec.fold}, seed {spec.seed}"


def _n_runs(study: Study) -> int:
    return len(study.specs({source.name: "" for source in study.sources}))


def _entry(entry: object) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    settings = ", ".join(f"{key} {value}" for key, value in entry.items() if key != "name")
    return f"{entry.get('name', '')} ({settings})".strip()
