"""Preparations of a dataset: ``full``, ``min-5``, ``paper``, ``top-2000`` and ``as-published``.

A preparation has a part that looks at the whole file, because else the number of labels would
differ from fold to fold, and a part that is fitted on the training rows of each fold.

============== ================================================= ================================
preparation    whole file                                        training rows of a fold
============== ================================================= ================================
full           nothing                                           scaling
min-N          labels with fewer than N positives are dropped    scaling
paper          labels with at most 20 positives are dropped      feature selection, scaling
top-N          nothing                                           the N largest features, scaling
as-published   the wrong columns are read as labels; then rare   nothing
               ones dropped, features selected, all scaled
============== ================================================= ================================
"""

import logging
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from tailbatch.data import catalog
from tailbatch.data.dataset import Features, MultiLabelDataset
from tailbatch.data.folds import Fold, Parts, split
from tailbatch.data.scaling import fit_scaling
from tailbatch.errors import DataError, TailbatchError
from tailbatch.registry import check_known
from tailbatch.seeds import IntArray

PAPER_PREPARATIONS = ("paper", "as-published")
"""The paper's filters, and what its script made of the files. Only here is a minority label what the
paper calls so (`tailbatch.imbalance.minority_labels`); elsewhere it is a rare one (`rare_labels`)."""

PREPARATIONS = ("full", *PAPER_PREPARATIONS)
"""What `prepare` knows: all of a dataset, or a preparation of the paper. Also ``min-N``, for instance
``min-5``, without labels of fewer than N positives; and ``top-N``, for instance ``top-2000``: all
labels, and the N features with the largest sums."""

FEW_POSITIVES = 20
"""The paper's script drops labels with at most this many positives."""

_TOP = re.compile(r"top-([1-9]\d{0,17})")
_MIN = re.compile(r"min-([1-9]\d{0,17})")

_NAMED = 10  # labels left out that a notice names

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PreparedDataset:
    """A dataset after the whole-file part of a preparation, and what is left to do in each fold.

    Parameters
    ----------
    dataset
        Its labels are final: stratify the folds on ``dataset.Y``.
    preparation
        The name of the preparation.
    n_features
        How many features each fold keeps, those with the largest sums over its training rows.
    is_scaled
        Whether the whole file is scaled already, as the paper's script did it.
    """

    dataset: MultiLabelDataset
    preparation: str
    n_features: int
    is_scaled: bool = False

    def split(self, fold: Fold, *, scale: str = "minmax") -> Parts:
        """Return the parts of a fold, with features selected and scaled by its training rows."""
        dataset = self.dataset
        if self.n_features < dataset.n_features:
            dataset = dataset.with_features(
                largest_columns(dataset.take(fold.train).X, self.n_features)
            )
        return split(dataset, fold, scale=False if self.is_scaled else scale)


def prepare(dataset: MultiLabelDataset, preparation: str = "full") -> PreparedDataset:
    """Apply the whole-file part of a preparation of a whole dataset, as loaded.

    It is ``"full"``, ``"min-5"`` or ``"top-2000"`` and the like, ``"paper"``, or ``"as-published"`` where
    the paper read the wrong columns. What the paper did to a dataset is looked up by ``dataset.name``; a
    dataset that the catalog does not know keeps all its features.

    Examples
    --------
    >>> Y = np.zeros((30, 2), dtype=bool)
    >>> Y[:25, 0] = Y[:20, 1] = True
    >>> data = MultiLabelDataset.from_arrays(np.eye(30), Y, label_names=["common", "rare"])
    >>> prepare(data, "paper").dataset.label_names
    ('common',)
    >>> prepare(data, "full").dataset.label_names
    ('common', 'rare')
    """
    check_preparation(preparation)
    if preparation == "full":
        return PreparedDataset(dataset, preparation, dataset.n_features)
    if least := _MIN.fullmatch(preparation):
        kept = with_enough_positives(dataset, int(least[1]))
        return PreparedDataset(kept, preparation, kept.n_features)
    if top := _TOP.fullmatch(preparation):
        return PreparedDataset(dataset, preparation, min(int(top[1]), dataset.n_features))
    entry = catalog.catalog().get(dataset.name)
    width = (entry and entry.paper_features) or dataset.n_features
    if preparation == "paper":
        return PreparedDataset(_without_rare_labels(dataset), preparation, width)
    if entry and entry.as_published:
        return PreparedDataset(
            _as_published(dataset, entry.as_published, width), preparation, width, is_scaled=True
        )
    mangled = [entry.name for entry in catalog.catalog().values() if entry.as_published]
    raise DataError(
        f"{dataset.name} has no preparation as-published, only {', '.join(mangled)} have; "
        "use paper or full"
    )


def check_preparation(name: str, *, error: type[TailbatchError] = DataError) -> None:
    """Raise unless `prepare` knows a preparation."""
    if not (isinstance(name, str) and (_TOP.fullmatch(name) or _MIN.fullmatch(name))):
        check_known("preparation", name, (*PREPARATIONS, "min-5", "top-2000"), error=error)


def is_whole(preparation: str) -> bool:
    """Return whether a preparation is a user's: every feature, and every label or the learnable ones."""
    return preparation == "full" or _MIN.fullmatch(preparation) is not None


def with_enough_positives(dataset: MultiLabelDataset, min_positives: int) -> MultiLabelDataset:
    """Leave out labels with fewer positives, and name them in the notices of the dataset."""
    counts = np.asarray(dataset.Y.sum(axis=0)).ravel()
    kept = np.flatnonzero(counts >= min_positives)
    if not kept.size:
        raise DataError(
            f"no label of {dataset.name} has {min_positives} positives or more, so all would be left "
            f"out; the commonest has {counts.max(initial=0):,}"
        )
    if kept.size == len(counts):
        return dataset
    dropped = [
        f"{dataset.label_names[j]!r} ({counts[j]})"
        for j in np.flatnonzero(counts < min_positives).tolist()
    ]
    more = f" and {len(dropped) - _NAMED:,} more" if len(dropped) > _NAMED else ""
    notice = (
        f"left out {len(dropped):,} of {len(counts):,} labels with fewer than {min_positives} "
        f"positives: {', '.join(dropped[:_NAMED])}{more}"
    )
    return replace(dataset.with_labels(kept), notices=(*dataset.notices, notice))


def largest_columns(X: Features, count: int) -> IntArray:
    """Return the `count` columns with the largest sums, in their order; ties go to the first."""
    order = np.argsort(-np.asarray(X.sum(axis=0)), kind="stable")
    return np.sort(order[:count])


def _without_rare_labels(dataset: MultiLabelDataset) -> MultiLabelDataset:
    common = np.flatnonzero(np.asarray(dataset.Y.sum(axis=0)) > FEW_POSITIVES)
    if not common.size:
        raise DataError(
            f"no label of {dataset.name} has more than {FEW_POSITIVES} positives, so the "
            "preparation paper would drop them all; use full"
        )
    return dataset.with_labels(common)


def _as_published(
    dataset: MultiLabelDataset, mangling: catalog._AsPublished, n_features: int
) -> MultiLabelDataset:
    _log.warning(
        "%s as published: the last %d columns of the file are taken for labels, which they are not,"
        " and features are selected and scaled on all rows, test rows included",
        dataset.name,
        mangling.n_labels,
    )
    mangled = _without_rare_labels(_last_columns_as_labels(dataset, mangling))
    selected = mangled.with_features(largest_columns(mangled.X, n_features))
    scaling: Any = fit_scaling("minmax", selected.X)
    return replace(selected, X=scaling.transform(selected.X))


def _last_columns_as_labels(
    dataset: MultiLabelDataset, mangling: catalog._AsPublished
) -> MultiLabelDataset:
    """Return the dataset with the last columns of its file as labels, as in the paper's script."""
    labels = (_csr(dataset.Y), dataset.label_names)
    features = (_csr(dataset.X), dataset.feature_names)
    left, right = (labels, features) if mangling.labels_first else (features, labels)
    cells = sparse.hstack([left[0], right[0]], format="csr")
    names = (*left[1], *right[1])
    end = len(names) - mangling.n_labels
    return MultiLabelDataset.from_arrays(
        cells[:, :end],
        cells[:, end:],
        name=dataset.name,
        feature_names=names[:end],
        label_names=names[end:],
    )


def _csr(matrix: Any) -> sparse.csr_array:
    return sparse.csr_array(matrix, dtype=np.float64)
