"""The commands ``tailbatch evaluate`` and ``explain``: how good a model is, by label and by row.

Slow imports are inside the commands, so that ``--help`` is immediate.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tailbatch.cli.models import Folder, features_of, frame_of, kept_columns, write_table
from tailbatch.cli.options import (
    AsJson,
    Data,
    Labels,
    label_option,
    load_for_command,
    note,
    number,
    print_json,
)
from tailbatch.errors import DataError, did_you_mean, printable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from tailbatch.data import LabelMatrix
    from tailbatch.estimator import TailbatchClassifier


def evaluate(
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
    from tailbatch.cli.display import show_labels
    from tailbatch.estimator import TailbatchClassifier

    if csv is not None and csv.suffix != ".csv":
        raise DataError(f"{csv} must end in .csv")
    classifier = TailbatchClassifier.load(folder)
    features, Y, _ = _labeled(data, labels, classifier)
    scores = classifier.predict_proba(features)
    overall = metrics.evaluate(
        Y,
        scores,
        minority=classifier.minority_labels_,
        thresholds=classifier.thresholds_,
    )
    table = _by_label(Y, scores, classifier)
    if csv is not None:
        write_table(table, csv)
    if as_json:
        print_json({**overall, "labels": table.to_dict("records")})
        return
    show_labels(table)
    # What this package is for comes first.
    for name, value in sorted(
        overall.items(), key=lambda item: not metrics.METRICS[item[0]].minority
    ):
        direction = "higher" if metrics.METRICS[name].higher_is_better else "lower"
        typer.echo(f"{name:<34}{number(value, 4):>8}   {direction} is better")


def explain(
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

    from tailbatch.cli.display import show_rows
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.metrics.scored import dense_labels

    classifier = TailbatchClassifier.load(folder)
    names = list(classifier.label_names_)
    if label not in names:
        raise DataError(f"--label {label}: the model has no such label{did_you_mean(label, names)}")
    features, Y, frame = _labeled(data, labels, classifier)
    scores = classifier.predict_proba(features)
    if cleanlab is not None:
        _hand_over(cleanlab, Y, scores, names)
    column = names.index(label)
    has = dense_labels(Y)[:, column]
    order = np.argsort(-scores[:, column], kind="stable")
    missed = [row for row in order if not has[row]][:top]
    doubtful = [row for row in order[::-1] if has[row]][:top]
    shown = kept_columns(frame, keep, data)
    tables = {
        "missed": _rows(missed, scores[:, column], shown, frame),
        "doubtful": _rows(doubtful, scores[:, column], shown, frame),
    }
    if as_json:
        print_json({kind: table.to_dict("records") for kind, table in tables.items()})
        return
    show_rows(f"Rows without {label!r} that look like it", tables["missed"])
    show_rows(f"Rows with {label!r} that look least like it", tables["doubtful"])
    typer.echo(f"Threshold of {printable(label)}: {classifier.thresholds_[column]:.4f}")


def _labeled(
    data: str, labels: str | None, classifier: "TailbatchClassifier"
) -> "tuple[Any, LabelMatrix, pd.DataFrame | None]":
    """Return the features and labels of a file in the model's order, and the table if it is one."""
    from tailbatch.data.text import is_table
    from tailbatch.estimator.columns import aligned, columns_of, labels_for

    columns = columns_of(classifier)
    if Path(data).is_file() and is_table(data):
        features, frame = features_of(data, labels, classifier)
        try:
            Y, notices = labels_for(
                cast(Any, frame), columns, classifier.label_names_, label_option(labels)
            )
        except DataError as error:
            raise DataError(f"{data}: {error}") from None
        note(*notices)
        return features, Y, frame
    dataset = aligned(
        load_for_command(data, labels), columns.feature_names, classifier.label_names_
    )
    return frame_of(dataset) if classifier.columns_ is None else dataset.X, dataset.Y, None


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
