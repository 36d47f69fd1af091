"""Commands that look at data: ``tailbatch datasets``, and ``evaluate`` and ``explain`` for a model.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailbatch.cli.models import Folder, _kept_columns, _rows_of, _write_table
from tailbatch.cli.options import (
    AsJson,
    Data,
    EncoderOption,
    Kinds,
    Labels,
    Missing,
    MissingOption,
    Text,
    _fetched,
    _load_for_command,
    _number,
    _print_json,
)
from tailbatch.errors import DataError, TailbatchError, did_you_mean, printable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from tailbatch.data import LabelMatrix
    from tailbatch.estimator import TailbatchClassifier

commands = typer.Typer()
app = typer.Typer(
    help="Find, fetch, check and describe multi-label datasets.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("list")
def _list_datasets(as_json: AsJson = False) -> None:
    """List the datasets that tailbatch knows by name.

    For example:

      tailbatch datasets list
    """
    from tailbatch.cli import display
    from tailbatch.data import catalog

    entries = list(catalog.catalog().values())
    here = {entry.name: catalog.local_file(entry.name) for entry in entries}
    if as_json:
        _print_json([{**asdict(entry), "path": here[entry.name]} for entry in entries])
    else:
        display._show_catalog(entries, {name for name, path in here.items() if path})


@app.command("describe")
def _describe(
    dataset: Data,
    labels: Labels = None,
    missing: MissingOption = Missing.IMPUTE,
    text: Text = None,
    kinds: Kinds = None,
    encoder: EncoderOption = None,
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

    data = _load_for_command(dataset, labels, missing, text, kinds, encoder)
    facts = description.describe(data)
    if picture is not None:
        from tailbatch.report import figures

        figures.save(figures.label_frequencies(facts), picture)
    if as_json:
        read = data.columns and data.columns.taken.items()
        kinds_read = read and {name: {"kind": t.kind, "why": t.why} for name, t in read}
        _print_json({**asdict(facts), "columns": kinds_read})
    else:
        found = catalog.known_file(Path(dataset))
        name = found[0].name if found else dataset.casefold()
        display._show_description(facts, catalog.catalog().get(name), data.columns)
        if picture is not None:
            typer.echo(f"\nPicture: {printable(str(picture))}")


@app.command("get")
def _get(
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


@app.command("check")
def _check(
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
    files = sorted(path for path in folder.rglob("*") if catalog.known_file(path))
    if not files:
        raise DataError(f"{folder} has no file that the catalog knows by name, such as yeast.arff")
    results = []
    for path in files:
        results.append(_checked(path))
        if not as_json:
            display._show_check(**results[-1])
    if as_json:
        _print_json(results)
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


@commands.command("evaluate")
def _evaluate(
    folder: Folder,
    data: Data,
    labels: Labels = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the table by label to this .csv file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with the labels of a file: by label, the rarest first, and overall.

    The labels are read from the same columns as in the training file.

    For example:

      tailbatch evaluate model test.csv

      tailbatch evaluate model test.csv --csv labels.csv

      tailbatch evaluate model test.arff --json
    """
    from tailbatch import metrics
    from tailbatch.cli.display import _show_labels
    from tailbatch.estimator import TailbatchClassifier

    if csv is not None and csv.suffix != ".csv":
        raise DataError(f"{csv} must end in .csv")
    classifier = TailbatchClassifier.load(folder)
    features, Y, _ = _rows_of(data, labels, classifier, labeled=True)
    scores = classifier.predict_proba(features)
    overall = metrics.evaluate(
        Y, scores, minority=classifier.minority_labels_, thresholds=classifier.thresholds_
    )
    table = _by_label(Y, scores, classifier)
    if csv is not None:
        _write_table(table, csv)
    if as_json:
        _print_json({**overall, "labels": table.to_dict("records")})
        return
    _show_labels(table)
    # What this package is for comes first.
    for name, value in sorted(
        overall.items(), key=lambda item: not metrics.METRICS[item[0]].minority
    ):
        direction = "higher" if metrics.METRICS[name].higher_is_better else "lower"
        typer.echo(f"{name:<34}{_number(value, 4):>8}   {direction} is better")


@commands.command("explain")
def _explain(
    folder: Folder,
    data: Data,
    label: Annotated[str, typer.Option(help="The label to explain.")],
    top: Annotated[int, typer.Option(min=1, help="Rows to show of each kind.")] = 10,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column to show, such as subject; may be repeated.", metavar="COLUMN"),
    ] = None,
    labels: Labels = None,
    cleanlab: Annotated[
        Path | None,
        typer.Option(
            help="Also write labels and pred_probs of all labels to this .npz file, for cleanlab's "
            "multilabel_classification."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where a model and the labels of a file disagree most about one label.

    Missed: rows without the label for which the model predicts it with the highest probability.
    Doubtful: rows with the label for which it predicts the lowest. Either the model is wrong there, or
    the label is.

    For example:

      tailbatch explain model test.csv --label billing --keep subject
    """
    import numpy as np

    from tailbatch.cli.display import _show_rows
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.metrics.scored import dense_labels

    classifier = TailbatchClassifier.load(folder)
    names = list(classifier.label_names_)
    if label not in names:
        raise DataError(f"--label {label}: the model has no such label{did_you_mean(label, names)}")
    features, Y, frame = _rows_of(data, labels, classifier, labeled=True)
    scores = classifier.predict_proba(features)
    if cleanlab is not None:
        _hand_over(cleanlab, Y, scores, names)
    column = names.index(label)
    has = dense_labels(Y)[:, column]
    order = np.argsort(-scores[:, column], kind="stable")
    missed = [row for row in order if not has[row]][:top]
    doubtful = [row for row in order[::-1] if has[row]][:top]
    shown = _kept_columns(frame, keep, data)
    tables = {
        "missed": _rows(missed, scores[:, column], shown, frame),
        "doubtful": _rows(doubtful, scores[:, column], shown, frame),
    }
    if as_json:
        _print_json({kind: table.to_dict("records") for kind, table in tables.items()})
        return
    _show_rows(f"Rows without {label!r} that look like it", tables["missed"])
    _show_rows(f"Rows with {label!r} that look least like it", tables["doubtful"])
    typer.echo(f"Threshold of {printable(label)}: {classifier.thresholds_[column]:.4f}")


def _by_label(
    Y: "LabelMatrix", scores: "NDArray[np.float64]", classifier: "TailbatchClassifier"
) -> "pd.DataFrame":
    """Return the table by label, rarest first."""
    import pandas as pd

    from tailbatch.metrics import by_label

    table = pd.DataFrame(by_label(Y, scores, classifier.thresholds_)).round(6)
    table.insert(0, "label", list(classifier.label_names_))
    table.insert(2, "minority", classifier.minority_labels_)
    table["support"] = table["support"].astype(int)
    return table.sort_values("support", kind="stable").reset_index(drop=True)


def _rows(
    rows: list[int],
    scores: "NDArray[np.float64]",
    shown: "pd.DataFrame",
    frame: "pd.DataFrame | None",
) -> "pd.DataFrame":
    """Return rows by their position in the file, with the probability and the chosen columns."""
    import pandas as pd

    what = "row" if frame is None else str(frame.index.name or "row")
    where = rows if frame is None else [frame.index[row] for row in rows]
    table = pd.DataFrame({what: where, "probability": scores[rows].round(4)})
    return (
        pd.concat([table, shown.iloc[rows].reset_index(drop=True)], axis=1) if len(shown) else table
    )


def _hand_over(
    path: Path, Y: "LabelMatrix", scores: "NDArray[np.float64]", names: list[str]
) -> None:
    """Write labels and probabilities to a file for cleanlab."""
    import numpy as np

    from tailbatch.files import replacing
    from tailbatch.metrics.scored import dense_labels

    if path.suffix != ".npz":
        raise DataError(f"--cleanlab {path} must end in .npz")
    labels = dense_labels(Y).astype(np.int8)
    with replacing(path) as temporary:
        np.savez_compressed(
            temporary, labels=labels, pred_probs=scores, label_names=np.array(names)
        )
    typer.echo(f"For cleanlab: {printable(str(path))}", err=True)
