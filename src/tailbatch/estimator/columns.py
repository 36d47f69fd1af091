"""The columns a classifier was fitted on, found again by name in another file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from tailbatch.data import MultiLabelDataset
from tailbatch.data.suffixes import PARQUET, suffix
from tailbatch.data.text import text_blocks
from tailbatch.errors import DataError, require

if TYPE_CHECKING:
    import pandas as pd


def read_features(path: Path, names: Sequence[str]) -> "pd.DataFrame":
    """Read the named features of a table, which needs no labels; see `features_by_name`."""
    pd = require("pandas", extra="cli")
    try:
        if suffix(path) == PARQUET:
            require("pyarrow", extra="parquet")
            frame = pd.read_parquet(path)
        else:
            _, block = next(text_blocks(path), (1, b""))
            header = block.partition(b"\n")[0].decode(errors="replace")
            frame = pd.read_csv(path, sep=max("\t,;", key=header.count))
    except ValueError as error:
        raise DataError(f"{path} is no readable table: {str(error).strip()}") from None
    try:
        return features_by_name(frame, names)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def features_by_name(frame: "pd.DataFrame", names: Sequence[str]) -> "pd.DataFrame":
    """Return the named features of a table, in that order; other columns are left out.

    A feature such as ``color=red``, made of a column of text, is 1 where ``color`` is ``red``.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"id": [7, 8], "color": ["red", "blue"], "length": [1.5, 2.0]})
    >>> features_by_name(frame, ["length", "color=red"]).to_numpy()
    array([[1.5, 1. ],
           [2. , 0. ]])
    """
    pd = require("pandas", extra="cli")
    columns = {}
    for name in names:
        source, is_value, value = name.rpartition("=")
        if name in frame.columns:
            columns[name] = pd.to_numeric(frame[name], errors="coerce")
        elif is_value and source in frame.columns:
            columns[name] = (frame[source].astype(str) == value).astype(np.float64)
        else:
            raise DataError(f"the feature {name!r} of the training data is missing")
    return pd.DataFrame(columns, index=frame.index)


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
