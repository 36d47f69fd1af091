"""Rows that a person reviews: which, and below the training rows, with a note of which are random."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailbatch.data import MultiLabelDataset, stratified_parts
from tailbatch.data.cells import columns_text
from tailbatch.data.labels import LabelMatrix, stored_labels
from tailbatch.errors import DataError, require
from tailbatch.estimator.inputs import Labels, read_labels
from tailbatch.suggestions import Suggestions, suggest


def _with_reviewed(X: Any, labels: Labels, X_reviewed: Any, Y_reviewed: Any) -> tuple[Any, Labels]:
    """Return rows with reviewed ones below them, of which only the labels that are there count.

    Examples
    --------
    >>> labels = Labels(np.eye(2), None, None)
    >>> X, both = _with_reviewed(np.eye(2), labels, [[5.0, 5.0]], [[1, np.nan]])
    >>> X.shape, both.values.tolist()[2], both.missing.tolist()[2]
    ((3, 2), [1.0, 0.0], [False, True])
    """
    if X_reviewed is None or Y_reviewed is None:
        raise DataError("X_reviewed and Y_reviewed belong together: give both")
    more = read_labels(Y_reviewed, labels.names, "mask")
    shape, others = np.shape(labels.values), np.shape(more.values)
    if len(shape) != 2 or shape[1:] != others[1:]:
        raise DataError(
            f"Y_reviewed must have the columns of Y, whose shape is {shape}, got {others}"
        )
    names = tuple(map(str, labels.names or ()))
    if more.names is not None and tuple(map(str, more.names)) != (names or more.names):
        raise DataError(
            f"Y_reviewed has the columns {list(more.names)!r:.80}, Y {list(names)!r:.80}"
        )
    if others[0] != np.shape(X_reviewed)[0]:
        raise DataError(
            f"X_reviewed has {np.shape(X_reviewed)[0]:,} rows, Y_reviewed {others[0]:,}"
        )
    missing = None
    if labels.missing is not None or more.missing is not None:
        masks = (labels.missing, shape), (more.missing, others)
        empty: Any = sparse.csr_array if sparse.issparse(labels.values) else np.zeros
        filled = [empty(size, dtype=np.bool_) if mask is None else mask for mask, size in masks]
        missing = stored_labels(_below(*filled))
    values = _below(labels.values, more.values)
    return _rows_below(X, X_reviewed), Labels(values, labels.names, missing)


def _rows_below(X: Any, more: Any) -> Any:
    """Return features with others below them; columns of data frames are found by name."""
    if not hasattr(X, "iloc"):
        return _below(X, more)
    pd = require("pandas", extra="cli")
    if not hasattr(more, "iloc"):
        more = pd.DataFrame(more, columns=X.columns)
    for name in X.columns:
        if name not in more.columns:
            raise DataError(
                f"the reviewed rows have no column {str(name)!r}"
                f"{columns_text(list(map(str, more.columns)), str(name))}"
            )
    return pd.concat([X, more[list(X.columns)]], ignore_index=True)


def _below(above: Any, below: Any) -> Any:
    if sparse.issparse(above) or sparse.issparse(below):
        return sparse.vstack([sparse.csr_array(above), sparse.csr_array(below)], format="csr")
    return np.concatenate([np.asarray(above), np.asarray(below)])


def _suggested_labels(origin: Any, n_before: int, shape: tuple[int, int]) -> LabelMatrix | None:
    """Return which labels belong to rows that were suggested, (n, q); None if none does.

    Parameters
    ----------
    origin
        ``"random"`` or ``"suggested"`` for each of the last n - n_before rows, or booleans, also (n, q);
        None for suggested.
    n_before
        How many rows come before these; they were drawn at random.
    shape
        n, q.

    Examples
    --------
    >>> _suggested_labels(["random", "suggested"], 1, (3, 1)).tolist()
    [[False], [False], [True]]
    """
    n_rows = shape[0] - n_before
    given = np.zeros(n_rows, dtype=np.bool_) if origin is None else np.asarray(origin)
    if given.dtype.kind in "OUT":
        wrong = [each for each in given.ravel().tolist() if each not in ("random", "suggested")]
        if wrong:
            raise DataError(f"origin must be 'random' or 'suggested', got {wrong[0]!r:.40}")
        given = given == "random"
    if given.dtype != np.bool_ or given.shape not in ((n_rows,), (n_rows, shape[1])):
        raise DataError(
            f"origin must say 'random' or 'suggested' for each of {n_rows:,} rows, got "
            f"{given.dtype} of shape {given.shape}"
        )
    if given.all():
        return None
    suggested = np.zeros(shape, dtype=np.bool_)
    suggested[n_before:] = ~given if given.ndim == 2 else ~given[:, None]
    return stored_labels(suggested)


def _dealt(data: MultiLabelDataset, n_parts: int, seed: int) -> NDArray[np.int64]:
    """Return the part of each row, stratified by label; rows that measure nothing are dealt apart."""
    measurable = data.measurable
    part = np.arange(data.n_samples) % n_parts
    others = np.setdiff1d(np.arange(data.n_samples), measurable)
    for rows in (measurable, others):
        if len(rows) >= n_parts:
            part[rows] = stratified_parts(data.Y[rows], n_parts=n_parts, seed=seed)
    return part


def _suggested_said(facts: Mapping[str, Any]) -> list[str]:
    """Say which rows are no random sample, if any."""
    if not facts["suggested_rows"]:
        return []
    return [
        f"- {facts['suggested_rows']:,} of the training rows were suggested for review by a model: "
        "thresholds, probabilities and metrics rest on rows drawn at random"
    ]


def _rows_to_label(classifier: Any, X: Any, labeled: Any, **options: Any) -> Suggestions:
    """Return what `tailbatch.suggest` says of the rows X to a fitted classifier."""
    if not np.shape(X)[0]:
        raise DataError("there are no unlabeled rows: give rows to choose from")
    features = [classifier._features(rows) for rows in (X, labeled) if rows is not None]
    # What scikit-learn warns of, features without their names, does not occur to encoded columns.
    P = classifier.predict_proba(X if classifier.columns_ is None else features[0])
    if classifier.scaling_ is not None:
        features = [classifier.scaling_.transform(rows) for rows in features]
    return suggest(
        P[:, -len(classifier.label_names_) :],
        classifier.facts_["positives"],
        label_names=classifier.label_names_,
        average_precision=classifier.facts_.get("by_label", {}).get("average_precision"),
        features=features[0],
        labeled_features=None if labeled is None else features[1],
        unseen=getattr(classifier, "label_texts", None) is not None,
        **options,
    )
