"""The command ``tailbatch predict``: a file in, its predictions out, in pieces where it is long.

Slow imports are inside the functions, so that ``--help`` is immediate.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.cli.models import Folder, _advice_of_fit, _kept_columns, _rows_of
from tailbatch.cli.options import Data, Labels, _count, _note
from tailbatch.errors import DataError, printable

if TYPE_CHECKING:
    import pandas as pd

    from tailbatch.cli.parts import _PartedFile
    from tailbatch.estimator import TailbatchClassifier

commands = typer.Typer()


class _Kind(StrEnum):
    """What to write for each label."""

    PROBA = "proba"
    LABELS = "labels"
    TAGS = "tags"


@commands.command("predict")
def _predict(
    folder: Folder,
    data: Data,
    out: Annotated[Path, typer.Option(help="The .csv or .parquet file to write.")],
    kind: Annotated[
        _Kind,
        typer.Option(
            help="Probabilities, zeros and ones, or one column of tags: bug;billing, or a quoted list "
            "if a tag contains a semicolon."
        ),
    ] = _Kind.PROBA,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to copy as it is written, such as ticket_id; may be repeated.",
            metavar="COLUMN",
        ),
    ] = None,
    digits: Annotated[int, typer.Option(min=1, max=17, help="Digits of a probability.")] = 4,
    labels: Labels = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file, if there is one.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="auto|ADDRESS",
            help="Score the row groups of a Parquet file on a Ray cluster.",
        ),
    ] = None,
) -> None:
    """Predict the labels of a file: one row per row of the file, one column per label.

    A table (CSV, TSV, JSON lines, Parquet) needs only the feature columns, in any order. A long one is
    read and written in parts, so memory does not grow with it. If the command is stopped, the same
    command goes on after the last part.

    For example:

      tailbatch predict model new.csv --out predictions.csv

      tailbatch predict model new.csv --out tags.csv --kind tags --keep ticket_id

      tailbatch predict model big.parquet --out scores.parquet --ray auto
    """
    from tailbatch.data.text import is_table
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.estimator.scoring import TableScores

    if out.suffix not in (".csv", ".parquet"):
        raise DataError(f"{out} must end in .csv or .parquet")
    if out.exists() and not overwrite:
        raise DataError(f"{out} exists: choose another file, or add --overwrite")
    classifier = TailbatchClassifier.load(folder)
    size = TableScores(classifier).part_rows
    job = _Job(folder, Path(data), out, kind, tuple(keep or ()), digits, size)
    if job.data.is_file() and is_table(job.data):
        rows = _stopped_clearly(job, classifier, overwrite, ray)
    elif ray:
        raise DataError(f"--ray needs a Parquet file, and {data} is not one")
    else:
        rows = _predict_dataset(job, classifier, data, labels)
    names = _count(len(classifier.label_names_), "label")
    typer.echo(f"{_count(rows, 'row')} and {names} in {printable(str(out))}")


@dataclass(frozen=True)
class _Job:
    """What is to be predicted, and how; the same on each machine that takes a share."""

    folder: Path
    data: Path
    out: Path
    kind: _Kind
    keep: tuple[str, ...]
    digits: int
    rows_of_a_part: int

    def parted(self) -> "_PartedFile":
        """Return the output in parts, which another file or model would change."""
        from tailbatch import __version__
        from tailbatch.cli.parts import _PartedFile

        status = self.data.stat()
        model = b"".join(path.read_bytes() for path in sorted(self.folder.glob("*.safetensors")))
        told = {name: str(value) for name, value in asdict(self).items()} | {
            "keep": list(self.keep),
            "folder": blake2b(model, digest_size=16).hexdigest(),
            "data": str(self.data.resolve()),
            "changed": status.st_mtime_ns,
            "bytes": status.st_size,
            "version": __version__,
        }
        return _PartedFile(self.out, told)

    def values(self, classifier: "TailbatchClassifier", features: Any) -> "pd.DataFrame":
        """Return what is predicted, a row each."""
        import pandas as pd

        from tailbatch.data.labels import label_sets

        names = list(classifier.label_names_)
        if self.kind is _Kind.PROBA:
            values = classifier.predict_proba(features).round(self.digits)
            return pd.DataFrame(values, columns=names)
        predicted = classifier.predict(features)
        if self.kind is _Kind.TAGS:
            rows = [sorted(row) for row in label_sets(predicted, names)]
            return pd.DataFrame({"tags": _tags(rows, names)}, dtype=object)
        return pd.DataFrame(predicted, columns=names)


def _tags(rows: list[list[str]], names: list[str]) -> list[str]:
    """Return the tags of each row as text; with quotes if a name contains the separator."""
    if any(";" in name for name in names):
        return [json.dumps(row, ensure_ascii=False) for row in rows]
    return [";".join(row) for row in rows]


def _predict_dataset(
    job: _Job, classifier: "TailbatchClassifier", data: str, labels: str | None
) -> int:
    """Predict the rows of a file that is no table, and is read whole."""
    import pandas as pd

    from tailbatch.cli.models import _write_table

    features, _, frame = _rows_of(data, labels, classifier)
    kept = _kept_columns(frame, list(job.keep), data)
    values = job.values(classifier, features)
    _write_table(pd.concat([kept, values], axis=1), job.out)
    return len(values)


# ---- tables --------------------------------------------------------------------------------------


def _stopped_clearly(
    job: _Job, classifier: "TailbatchClassifier", overwrite: bool, ray: str | None
) -> int:
    """Predict the rows of a table; if that ends early, say where the parts are."""
    parted = job.parted()
    try:
        if ray:
            return _on_ray(job, classifier, parted, overwrite, ray)
        return _predict_table(job, classifier, parted, overwrite)
    except KeyboardInterrupt:
        if parted.folder.exists():
            typer.echo(f"\nStopped; the same command goes on. Parts: {parted.folder}", err=True)
        raise typer.Exit(130) from None
    except DataError as error:
        if "add --overwrite" in str(error) or not parted.folder.exists():
            raise
        raise DataError(
            f"{error}; {job.out} is not complete, and the parts before are in {parted.folder}"
        ) from None


def _predict_table(
    job: _Job, classifier: "TailbatchClassifier", parted: "_PartedFile", overwrite: bool
) -> int:
    from tailbatch.cli.display import _scoring_bar

    begun, done = parted.begun(overwrite=overwrite), 0
    while done in begun:
        done += 1
    rows = done * job.rows_of_a_part
    if done:
        typer.echo(f"Resuming after {_count(rows, 'row')} of {job.data}", err=True)
    with _scoring_bar() as shown:
        told = _Told()

        def tables() -> Iterator["pd.DataFrame"]:
            nonlocal rows
            for table in _part_tables(job, classifier, rows, told, shown):
                rows += len(table)
                yield table

        parted.write_all(tables(), done)
    return rows


class _Told:
    """Prints each notice about a column once, with the rows that it was first seen in."""

    def __init__(self) -> None:
        self._heard = set[str]()

    def __call__(self, first: int, notices: Sequence[str]) -> None:
        for notice in notices:
            # Counts and examples differ from piece to piece.
            what = "".join(letter for letter in notice.partition(":")[0] if not letter.isdigit())
            if what not in self._heard:
                self._heard.add(what)
                _note(f"from row {first:,} on: {notice}" if first else notice)


def _part_tables(
    job: _Job,
    classifier: "TailbatchClassifier",
    first: int,
    told: Callable[[int, Sequence[str]], None],
    shown: Callable[[float], None],
    end: int | None = None,
) -> Iterator["pd.DataFrame"]:
    """Yield what is predicted for the rows from `first` on, a table for each part."""
    import pandas as pd

    from tailbatch.data.tables import EmptyTableError
    from tailbatch.estimator.scoring import TableScores

    most, tables, held = job.rows_of_a_part, list[pd.DataFrame](), 0
    scores = TableScores(classifier)
    pieces = scores.table(job.data, most=most, keep=job.keep)
    try:
        for piece in pieces.read(first):
            if end is not None and piece.first >= end:
                break
            told(piece.first, piece.notices)
            with _advice_of_fit(str(job.data)):
                values, notices = scores.of(piece, partial(job.values, classifier))
            told(piece.first, notices)
            kept = _kept(piece.kept, as_text=job.out.suffix == ".csv")
            tables.append(pd.concat([kept, values], axis=1))
            shown(piece.share)
            held += len(values)
            if held == most:
                yield pd.concat(tables, ignore_index=True)
                tables, held = [], 0
    except EmptyTableError:
        raise DataError(f"{job.data} has no rows to predict") from None
    if tables:
        yield pd.concat(tables, ignore_index=True)


def _kept(columns: "pd.DataFrame", *, as_text: bool) -> "pd.DataFrame":
    """Return columns to copy, each cell by itself: a type that is guessed would differ by piece."""
    import pandas as pd

    kept = {}
    for name in columns.columns:
        column = columns[name].reset_index(drop=True)
        if as_text or not isinstance(column.dtype, pd.ArrowDtype):
            column = column.astype(object).where(column.notna(), None)
            column = column.map(str, na_action="ignore").astype(object)
        kept[name] = column
    return pd.DataFrame(kept, index=pd.RangeIndex(len(columns)))


# ---- on a cluster --------------------------------------------------------------------------------


def _on_ray(
    job: _Job, classifier: "TailbatchClassifier", parted: "_PartedFile", overwrite: bool, ray: str
) -> int:
    """Let a Ray cluster score the row groups of a Parquet file; its machines share the folders."""
    from tailbatch.cli.display import _scoring_bar
    from tailbatch.estimator.scoring import TableScores
    from tailbatch.integrations.ray import RayExecutor

    size = job.rows_of_a_part
    table = TableScores(classifier).table(job.data, most=size, keep=job.keep)
    runs = replace(table, rows=size).runs()
    begun, told, rows = parted.begun(overwrite=overwrite), _Told(), runs[-1].stop
    todo = [run for run in runs if not {at // size for at in run[::size]} <= begun]
    # Workers have a working directory of their own.
    job = replace(job, folder=job.folder.resolve(), data=job.data.resolve())
    parted = replace(parted, path=job.out.resolve())
    with RayExecutor.connected(ray), _scoring_bar() as shown:
        executor = RayExecutor()
        try:
            calls = [executor.submit(_score_run, job, parted, run) for run in todo]
            for number, call in enumerate(as_completed(calls), 1):
                for first, notices in call.result():
                    told(first, notices)
                shown(number / len(todo))
        finally:
            executor.shutdown(cancel_futures=True)
    parted.join(-(-rows // size))
    return rows


def _score_run(job: _Job, parted: "_PartedFile", run: range) -> list[tuple[int, Sequence[str]]]:
    """Score some parts on a worker; return the notices."""
    notices: list[tuple[int, Sequence[str]]] = []
    tables = _part_tables(
        job,
        _loaded(job.folder),
        run.start,
        lambda first, more: notices.append((first, more)),
        lambda _: None,
        run.stop,
    )
    for number, table in enumerate(tables, run.start // job.rows_of_a_part):
        parted.write(number, table)
    return notices


@lru_cache(1)
def _loaded(folder: Path) -> "TailbatchClassifier":
    from tailbatch.estimator import TailbatchClassifier

    return TailbatchClassifier.load(folder)
