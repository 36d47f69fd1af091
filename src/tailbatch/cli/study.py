"""The commands that compare strategies: compare, study, demo and report.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tailbatch import defaults
from tailbatch.cli.models import _write_table
from tailbatch.cli.options import (
    EncoderOption,
    Kinds,
    Labels,
    MinRows,
    Missing,
    MissingOption,
    Text,
    _kinds_option,
    _label_option,
    _named_table,
)
from tailbatch.errors import ResultError, StudyError, printable, require

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from tailbatch.cli.study_display import _Live
    from tailbatch.study import Study, StudyOutcome

commands = typer.Typer()
app = typer.Typer(
    help="Run the paper's tables and figures, or a custom study.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

StoreOption = Annotated[
    Path, typer.Option("--store", help="Folder of the records; runs found there are not repeated.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Parallel runs, one core each.  [default: all cores]"),
]
RayOption = Annotated[
    str | None, typer.Option("--ray", metavar="auto|ADDRESS", help="Run on a Ray cluster instead.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of downloaded datasets; same as TAILBATCH_DATA."),
]
StudyArgument = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="A name from `study list`, or a TOML file.")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="The study's quick variant: small data, few epochs.")
]


@commands.command("compare")
def _compare(
    data: Annotated[list[str], typer.Argument(help="Datasets: names, or files.")],
    labels: Labels = None,
    missing: MissingOption = Missing.IMPUTE,
    text: Text = None,
    kinds: Kinds = None,
    encoder: EncoderOption = None,
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated; settings follow a colon: mlp:dropout=0. Baselines without batches: "
            "logistic, balanced_logistic, forest, boosting."
        ),
    ] = defaults.MODEL,
    losses: Annotated[
        str | None,
        typer.Option(
            help="Training losses, comma-separated; options follow a colon: "
            "bce,weighted_bce:power=1. By default each model's own.",
            show_default=False,
        ),
    ] = None,
    strategies: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(
        defaults.STRATEGIES
    ),
    selection_pressures: Annotated[
        str | None,
        typer.Option(
            help="Selection pressures, comma-separated: numbers from 1; 64:1, which falls from 64 to 1; "
            "imbalance, which is MeanIR. By default each strategy's own: 16, or imbalance for minority.",
            show_default=False,
        ),
    ] = None,
    preparations: Annotated[
        str, typer.Option(help="Comma-separated: full, paper, top-2000 or as-published.")
    ] = defaults.PREPARATION,
    min_rows: MinRows = None,
    n_folds: Annotated[int, typer.Option(min=2, help="Cross-validation folds.")] = defaults.N_FOLDS,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per fold, from 0.")] = 1,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes over the rows; the default depends on the models."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = defaults.BATCH_SIZE,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate; the default depends on the models.")
    ] = None,
    store: StoreOption = Path("tailbatch-store"),
    workers: WorkersOption = None,
    ray: RayOption = None,
    data_home: DataOption = None,
) -> None:
    """Compare strategies fairly on your data: same folds, weights, steps and samples.

    For example:

      tailbatch compare mine.csv --labels tags --text subject

      tailbatch compare scene yeast --models dela,clif --strategies random,hard,adaptive,chain

      tailbatch compare mine.arff --losses bce,weighted_bce

      tailbatch compare debtags --models mlp,logistic,balanced_logistic,forest
    """
    from tailbatch.comparison import compare
    from tailbatch.data import Columns

    if min_rows is not None and preparations != defaults.PREPARATION:
        raise StudyError(f"--min-rows {min_rows} needs --preparations full, got {preparations}")
    _use_data(data_home)
    for name in data:
        _refuse_missing_file(name)
    columns = Columns(
        text=text or (),
        kinds=_kinds_option(kinds) or {},
        missing=missing.value,
        encoder=encoder,
    )
    title = f"Strategies compared on {', '.join(Path(name).name for name in data)}"
    with _watched(title, store, workers, ray) as (executor, count, live):
        result = compare(
            data,
            _label_option(labels),
            columns=columns,
            models=[_named_table(text) for text in _names(models)],
            losses=[_named_table(text) for text in _names(losses)] or None,
            strategies=_names(strategies),
            selection_pressures=_names(selection_pressures) or None,
            preparations=_names(preparations),
            min_positives=min_rows,
            n_folds=n_folds,
            seeds=range(seeds),
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            store=store,
            workers=count,
            executor=executor,
            progress=live.update,
            allow_failures=True,
        )
    _report_on(result.outcome, store)


@commands.command("demo")
def _demo(store: StoreOption = Path("tailbatch-demo"), workers: WorkersOption = None) -> None:
    """Fit the dataset inside the package, show its rare labels, and compare strategies.

    For example:

      tailbatch demo
    """
    from tailbatch.cli.display import _show_beside
    from tailbatch.study import load_study

    typer.echo("Fitting debtags: package descriptions and their tags.", err=True)
    scores, rare = _beside_logistic_regression()
    _show_beside(scores, rare)
    _run(load_study("demo"), store, workers, None)


def _beside_logistic_regression() -> "tuple[pd.DataFrame, NDArray[np.bool_]]":
    """Return each label's rows and average precision on debtags, and which labels are rare."""
    import pandas as pd

    from tailbatch import TailbatchClassifier, load_dataset
    from tailbatch.classical import make_classical
    from tailbatch.data import Parts, fit_scaling, stratified_split
    from tailbatch.metrics import by_label

    data = load_dataset("debtags")
    fold = stratified_split(data.Y, validation=0.1, test=0.3, seed=0)
    scaling: Any = fit_scaling("auto", data.take(fold.train).X)
    scaled = replace(data, X=scaling.transform(data.X))
    parts = Parts(*(scaled.take(rows) for rows in (fold.train, fold.validation, fold.test)))
    train, validation, test = parts.train, parts.validation, parts.test
    classifier = TailbatchClassifier(random_state=0, scale=False)
    classifier.fit(train.X, train.Y, validation_data=(validation.X, validation.Y))
    scores = {
        "tailbatch": classifier.predict_proba(test.X),
        "logistic regression": make_classical("logistic", {}).learn(parts, seed=0).test,
    }
    found = {name: by_label(test.Y, of)["average_precision"] for name, of in scores.items()}
    rows = train.Y.sum(axis=0)
    return pd.DataFrame({"label": data.label_names, "rows": rows, **found}), parts.minority


@commands.command("report")
def _report(
    store: Annotated[
        Path, typer.Argument(help="Folder of the records, or a file from `study export`.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    study: Annotated[str | None, typer.Option(help="Only the runs of this study.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write one row per run to a CSV file.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="Also write one row per run to a Parquet file.")
    ] = None,
) -> None:
    """Write one page of tables, curves and figures from a store.

    For example:

      tailbatch report tailbatch-demo --out report.html

      tailbatch report tailbatch-demo --csv runs.csv --parquet runs.parquet
    """
    from tailbatch.report.page import write_report
    from tailbatch.results.archive import open_records

    records = open_records(store)
    if parquet is not None:
        require("pyarrow", extra="parquet")
    write_report(records, out, study=study)
    typer.echo(f"Report: {printable(str(out))}")
    for path, suffix in ((csv, ".csv"), (parquet, ".parquet")):
        if path is not None:
            _write_table(records.frame(study), path, suffix)
            typer.echo(f"Runs: {printable(str(path))}")


@app.command("list")
def _list_studies() -> None:
    """List the studies inside the package.

    For example:

      tailbatch study list
    """
    from tailbatch.cli.study_display import _show_studies
    from tailbatch.study import known_studies, load_study

    _show_studies([load_study(name) for name in known_studies()])


@app.command("show")
def _show(name: StudyArgument, quick: QuickOption = False) -> None:
    """Show what a study compares, and how many runs it has.

    For example:

      tailbatch study show table-2 --quick
    """
    from tailbatch.cli.study_display import _show_study
    from tailbatch.study import load_study

    _show_study(load_study(name, quick=quick))


@app.command("run")
def _run_one(
    name: StudyArgument,
    quick: QuickOption = False,
    store: StoreOption = Path("tailbatch-store"),
    workers: WorkersOption = None,
    ray: RayOption = None,
    data_home: DataOption = None,
) -> None:
    """Run a study, then write its report. Stop it anytime: the same command resumes it.

    A study of the same name in the store and its report are replaced; its runs are kept.

    For example:

      tailbatch study run table-2 --quick

      tailbatch study run mine.toml --store records --workers 4
    """
    from tailbatch.study import load_study

    _use_data(data_home)
    _run(load_study(name, quick=quick), store, workers, ray)


@app.command("status")
def _status(store: StoreOption = Path("tailbatch-store")) -> None:
    """Show the progress of the studies of a store, including those running on other machines.

    For example:

      tailbatch study status --store records
    """
    from tailbatch.cli.study_display import _show_status
    from tailbatch.results import ResultStore
    from tailbatch.study import study_progress

    studies = study_progress(ResultStore(store))
    if not studies:
        raise ResultError(f"there is no study in {store}: start one with `tailbatch study run`")
    _show_status(studies)


@app.command("export")
def _export(
    store: Annotated[Path, typer.Argument(help="Folder of the records.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("records.jsonl.gz"),
    study: Annotated[str | None, typer.Option(help="Only the runs of this study.")] = None,
) -> None:
    """Write all records to one compact file, from which `report` makes the same report.

    For example:

      tailbatch study export records --out records.jsonl.gz
    """
    from tailbatch.results.archive import open_records, write_archive

    count = write_archive(open_records(store), out, study=study)
    typer.echo(f"{count:,} runs, {out.stat().st_size / 1e6:.1f} MB: {printable(str(out))}")


@app.command("import")
def _import(
    file: Annotated[Path, typer.Argument(help="A file from `study export`.")],
    store: StoreOption = Path("tailbatch-store"),
) -> None:
    """Add the records of an exported file to a store, so that a study can resume from them.

    For example:

      tailbatch study import records.jsonl.gz --store records
    """
    from tailbatch.results import ResultStore
    from tailbatch.results.archive import Archive

    if not file.is_file():
        raise ResultError(f"there is no file {file}: make one with `tailbatch study export`")
    kept = ResultStore(store)
    kept.tidy()
    count = kept.add_missing(Archive(file))
    typer.echo(f"{count:,} runs added to {printable(str(store))}")


def _run(study: "Study", folder: Path, workers: int | None, ray: str | None) -> None:
    """Run a study with live progress, then report."""
    from tailbatch.results import ResultStore
    from tailbatch.study import run_study

    store, title = ResultStore(folder), study.title or study.name
    with _watched(title, folder, workers, ray) as (executor, count, live):
        outcome = run_study(study, store, executor, workers=count, listen=live.update)
    _report_on(outcome, folder)


@contextmanager
def _watched(
    title: str, folder: Path, workers: int | None, ray: str | None
) -> Iterator[tuple[Callable[[], Executor], int, "_Live"]]:
    """Yield what makes the workers, their number, and a display to tell the progress to."""
    from tailbatch.cli.study_display import _Live

    with _engine(workers, ray) as (executor, count):
        live = _Live(title, folder, count)
        try:
            with _terminable(), live:
                yield executor, count, live
        except KeyboardInterrupt as stop:
            raise typer.Exit(128 + signal.Signals[str(stop) or "SIGINT"]) from None


def _report_on(outcome: "StudyOutcome", folder: Path) -> None:
    """Report what a study found; exit with code 1 if runs failed."""
    from tailbatch.cli import study_display as display
    from tailbatch.report.page import write_report
    from tailbatch.results import ResultStore

    # The report says what it leaves out.
    logging.getLogger("tailbatch").setLevel(logging.ERROR)
    display._failures(outcome.failures)
    if outcome.failures and not outcome.done + outcome.skipped:
        raise typer.Exit(1)  # there is nothing to report
    page = folder / f"{outcome.plan.name}.html"
    # Another study may have taken the name meanwhile, so the report is on the runs done here.
    records = ResultStore(folder, outcome.plan)
    sections = write_report(records, page, study=outcome.plan.name)
    display._summary(sections)
    typer.echo(f"Report: {printable(str(page))}")
    if outcome.failures:
        raise typer.Exit(1)


@contextmanager
def _engine(workers: int | None, ray: str | None) -> Iterator[tuple[Callable[[], Executor], int]]:
    """Yield the function that makes the workers, and the number of runs in progress at a time."""
    if ray is None:
        from joblib import cpu_count

        from tailbatch.study import WorkerPool

        count = workers or cpu_count()  # those that this process may use
        yield partial(WorkerPool, count), count
        return
    from tailbatch.integrations.ray import RayExecutor

    # Workers on other machines do not inherit this process's variables.
    environment = {name: os.environ[name] for name in ("TAILBATCH_DATA",) if name in os.environ}
    with RayExecutor.connected(ray):
        yield partial(RayExecutor, environment), workers or RayExecutor().workers


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop a study as Ctrl-C does."""

    def stop(number: int, _: object) -> NoReturn:
        raise KeyboardInterrupt(signal.Signals(number).name)

    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _use_data(folder: Path | None) -> None:
    if folder is not None:
        os.environ["TAILBATCH_DATA"] = str(folder.resolve())


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _refuse_missing_file(name_or_path: str) -> None:
    """Raise if what is clearly a file is not there; the error names one of nearly that name."""
    from tailbatch.data import catalog
    from tailbatch.data.readers import no_file

    path = Path(name_or_path)
    if path.suffix and not path.is_file() and name_or_path.casefold() not in catalog.catalog():
        raise no_file(path)
