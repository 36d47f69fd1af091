"""Tables for the estimator: columns into features, and found again by name."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tailbatch.data import Columns, FittedColumns, MultiLabelDataset
from tailbatch.data.column_parts import NumberPart
from tailbatch.data.columns import giveaway, needs_columns
from tailbatch.data.labels import LabelMatrix, frame_labels, stored_labels
from tailbatch.data.tables import read_frame
from tailbatch.data.text import first_repeated
from tailbatch.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from tailbatch.estimator.classifier import TailbatchClassifier

_log = logging.getLogger(__name__)


def fitted_columns(columns: Columns | None, X: Any) -> FittedColumns | None:
    """Return how the columns of X become features; None where X holds numbers already.

    Examples
    --------
    >>> fitted_columns(None, np.eye(2)) is None
    True
    """
    if columns is not None and not isinstance(columns, Columns):
        raise DataError(f"columns must be tailbatch.data.Columns, {_instead_of(columns)}")
    _refuse_texts(X)
    _refuse_repeated(X)
    if columns is None and not needs_columns(X):
        return None
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        raise DataError(
            f"columns= is for a pandas data frame, got X of type {type(X).__name__}; leave it out for "
            "numbers"
        )
    fitted = (columns or Columns()).fit(X)
    for notice in fitted.notices:
        _log.warning("%s", notice)
    return fitted


def note_giveaway(columns: FittedColumns | None, data: MultiLabelDataset) -> None:
    """Log which column tells a label of the training rows without a mistake, if one does."""
    if columns is not None and (told := giveaway(columns, data.X, data.Y, data.label_names)):
        _log.warning("%s", told)


def encoded(columns: FittedColumns | None, X: Any) -> Any:
    """Return the features of a data frame; numbers that are features already stay as they are."""
    _refuse_repeated(X)
    if columns is None:
        _refuse_texts(X)
        return X
    if not hasattr(X, "columns") and np.shape(X)[1:] == (len(columns.feature_names),):
        return X
    features, notices = columns.transform(X)
    for notice in notices:
        _log.warning("%s", notice)
    return features


def _instead_of(given: object) -> str:
    """Return what was given in place of Columns, and what to write."""
    names = [given] if isinstance(given, str) else given
    if isinstance(names, Mapping):
        remedy = f"columns=Columns(kinds={dict(names)!r:.60})"
    elif isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        remedy = f"columns=Columns(text={list(names)!r:.60}) for columns of text"
    else:
        remedy = "for instance columns=Columns(text=['subject'])"
    return f"got {given!r:.60}; write {remedy}"


def _refuse_repeated(X: Any) -> None:
    """Refuse a data frame with two columns of one name, which nothing could tell apart."""
    names = (
        [str(name) for name in X.columns] if hasattr(X, "iloc") and hasattr(X, "columns") else []
    )
    if (repeated := first_repeated(names)) is not None:
        raise DataError(f"the column {repeated!r} of X occurs twice; rename one")


def _refuse_texts(X: Any) -> None:
    """Refuse texts that are in no data frame, and say how to give them."""
    if hasattr(X, "columns") or not _holds_texts(X):
        return
    raise DataError(
        f"X holds text, such as {_first_text(X)!r:.40}, and numbers or a data frame are needed: fit on "
        "pd.DataFrame({'text': X}) with columns=Columns(text=['text']), or put scikit-learn's "
        "TfidfVectorizer before it in a pipeline"
    )


def _holds_texts(X: Any) -> bool:
    """Whether X is a list, array or series of strings that are no numbers."""
    kind = getattr(getattr(X, "dtype", None), "kind", None)
    if kind is None and not isinstance(X, list | tuple):
        return False
    return (kind is None or kind in "OUST") and _first_text(X) is not None


def _first_text(X: Any) -> str | None:
    for row in X:
        for cell in [row] if isinstance(row, str) else row if _is_row(row) else ():
            if isinstance(cell, str) and not _is_number(cell):
                return cell
    return None


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple) or getattr(row, "ndim", 0) == 1


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def columns_of(classifier: "TailbatchClassifier") -> FittedColumns:
    """Return the columns that a classifier looks for in a table; numbers, where it was fitted on none."""
    if classifier.columns_ is not None:
        return classifier.columns_
    names = getattr(classifier, "feature_names_in_", ())
    return FittedColumns(Columns(), tuple(NumberPart(str(name), None) for name in names), {})


def read_for(columns: FittedColumns, path: Path) -> tuple["pd.DataFrame", tuple[str, ...]]:
    """Read a table whose columns are looked for by name, as they were written, and notices."""
    kinds = {part.name for part in columns.parts if part.kind != "number"}
    frame, notices = read_frame(path, as_text=(*columns.columns.as_text, *kinds))
    return frame, tuple(notices)


def labels_for(
    frame: "pd.DataFrame", columns: FittedColumns, label_names: Sequence[str], labels: Any = None
) -> tuple[LabelMatrix, tuple[str, ...]]:
    """Return the known labels of a table, (n, q) in their order, and notices.

    Parameters
    ----------
    frame
        The table.
    columns
        It remembers where the training table had its labels.
    label_names
        The labels of the model.
    labels
        Where they are in this table, if elsewhere.
    """
    where = columns.columns.labels if labels is None else labels
    _, Y, found = frame_labels(frame, list(label_names) if where is None else where)
    matrix = sparse.csr_array(Y)
    place = {name: position for position, name in enumerate(found)}
    names = set(map(str, frame.columns))
    lists = isinstance(where, str) and bool({where, where.rpartition(":")[0]} & names)
    missing = [name for name in label_names if name not in place]
    if missing and not (lists and set(found) & set(label_names)):
        raise DataError(
            f"the label {missing[0]!r} of the model is missing; the labels found are: "
            + ", ".join(found[:8])
        )
    pad = sparse.csr_array((matrix.shape[0], 1), dtype=np.bool_)
    known = [matrix[:, [place[name]]] if name in place else pad for name in label_names]
    notices = []
    if unknown := [name for name in found if name not in set(label_names)]:
        shown = ", ".join(repr(name) for name in unknown[:3])
        more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
        notices.append(f"left out labels that the model does not know: {shown}{more}")
    return stored_labels(sparse.csr_array(sparse.hstack(known), dtype=np.bool_)), tuple(notices)


def aligned(
    data: MultiLabelDataset, feature_names: Sequence[str], label_names: Sequence[str]
) -> MultiLabelDataset:
    """Return a dataset with these features and labels in this order; others are left out.

    In sparse data a missing feature is 0 throughout, because LIBSVM files do not mention such.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(np.eye(2), np.eye(2, dtype=bool))
    >>> aligned(data, ["feature_1"], ["label_1", "label_0"]).Y.tolist()
    [[False, True], [True, False]]
    """
    if data.is_sparse:
        data = _with_zero_features(data, sorted(set(feature_names) - set(data.feature_names)))
    features = _positions(data.feature_names, feature_names, "feature")
    labels = _positions(data.label_names, label_names, "label")
    return data.with_features(features).with_labels(labels)


def _with_zero_features(data: MultiLabelDataset, names: Sequence[str]) -> MultiLabelDataset:
    zeros = sparse.csr_array((data.n_samples, len(names)))
    return MultiLabelDataset.from_arrays(
        sparse.hstack([data.X, zeros], format="csr"),
        data.Y,
        name=data.name,
        feature_names=[*data.feature_names, *names],
        label_names=data.label_names,
    )


def _positions(known: Sequence[str], wanted: Sequence[str], what: str) -> list[int]:
    place = {name: position for position, name in enumerate(known)}
    for name in wanted:
        if name not in place:
            raise DataError(f"the {what} {name!r} of the training data is missing")
    return [place[name] for name in wanted]
