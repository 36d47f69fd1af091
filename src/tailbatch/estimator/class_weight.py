"""Class weights as scikit-learn spells them: what a missed positive of each label costs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import DataError, did_you_mean
from tailbatch.imbalance import positive_weights
from tailbatch.seeds import FloatArray


def weights_of_positives(
    class_weight: Any, train: MultiLabelDataset, classes: NDArray[Any] | None = None
) -> FloatArray | None:
    """Return what the positives of each label weigh against its negatives, (q,); None for all the same.

    Parameters
    ----------
    class_weight
        None; ``"balanced"``, negatives over positives of the training rows; for many labels a table from
        names of labels (or columns) to weights of their positives, q such weights, or scikit-learn's list
        of a table ``{0: ..., 1: ...}`` per label; for two classes a table from class to weight.
    train
        The training rows.
    classes
        The two classes of a one-dimensional Y.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    >>> train = MultiLabelDataset.from_arrays(np.eye(4), Y, label_names=["bug", "billing"])
    >>> weights_of_positives("balanced", train).tolist()
    [3.0, 1.0]
    >>> weights_of_positives({"bug": 5}, train).tolist()
    [5.0, 1.0]
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(
                f'class_weight must be "balanced", a table or a list, got {class_weight!r:.60}'
            )
        return positive_weights(train.Y, power=1.0, missing=train.missing)
    if classes is not None:
        names = [_plain(value) for value in classes]
        negative, positive = _by_name(class_weight, names, "class")
        return np.array([positive / negative])
    labels = list(train.label_names)
    if isinstance(class_weight, Mapping):
        named = {
            labels[key] if isinstance(key, int) and 0 <= key < len(labels) else key: value
            for key, value in class_weight.items()
        }
        return _by_name(named, labels, "label")
    return _by_position(class_weight, len(labels))


def costly_thresholds(thresholds: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the probabilities above which a label is worth predicting if missing it costs w times more.

    logit t' = logit t - log w: with t = 0.5 a label is predicted where p w > 1 - p.

    Examples
    --------
    >>> costly_thresholds(np.array([0.5]), np.array([3.0]))
    array([0.25])
    """
    return thresholds if weights is None else np.asarray(expit(logit(thresholds) - np.log(weights)))


def _by_name(table: Any, names: Sequence[Any], what: str) -> FloatArray:
    if not isinstance(table, Mapping):
        raise DataError(f"class_weight must be a table from {what} to weight, got {table!r:.60}")
    for key in table:
        if key not in names:
            raise DataError(
                f"class_weight: unknown {what} {key!r:.60}{did_you_mean(key, map(str, names))}"
            )
    return _checked([table.get(name, 1) for name in names], table)


def _by_position(values: Any, n_labels: int) -> FloatArray:
    listed = list(values) if hasattr(values, "__iter__") else []
    if len(listed) != n_labels:
        raise DataError(
            f"class_weight must have one entry for each of {n_labels} labels, got {len(listed)}"
        )
    if all(isinstance(entry, Mapping) for entry in listed):
        pairs = [_by_name(entry, [0, 1], "class") for entry in listed]
        return np.array([positive / negative for negative, positive in pairs])
    return _checked(listed, values)


def _checked(values: Sequence[Any], given: Any) -> FloatArray:
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(1)  # refused below
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(f"class_weight must hold finite numbers above 0, got {given!r:.60}")
    return weights


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
