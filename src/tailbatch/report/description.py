"""The facts worth knowing about a multi-label dataset before learning from it."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.imbalance import (
    imbalance_ratio,
    label_cardinality,
    label_counts,
    label_density,
    mean_imbalance_ratio,
    rare_labels,
    scumble,
)
from tailbatch.seeds import IntArray

_TOP_LABELS = 6
_LISTED_LABELS = 10_000  # up to which those without positives are listed, too


@dataclass(frozen=True)
class _LabelFacts:
    """How often one label occurs."""

    name: str
    positives: int
    share: float
    imbalance_ratio: float
    is_minority: bool


@dataclass(frozen=True)
class _Cooccurrence:
    """How often the commonest labels occur together, commonest first."""

    names: tuple[str, ...]
    share: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Description:
    """The facts of a dataset.

    Attributes
    ----------
    feature_density, minority_row_share
        Fractions of the feature values that are not zero, and of the rows with a rare label.
    distinct_label_sets
        How many different combinations of labels occur.
    labels
        Each label's ``name``, ``positives``, ``share`` of the rows, ``imbalance_ratio`` (IRLbl, Eq. 1)
        and ``is_minority``, commonest first, ties in file order; above 10,000 labels, only the first of
        those without positives: a file may claim ten million.
    cooccurrence
        Of the rows with label i of its ``names``, ``share[i][j]`` also have label j.
    warnings
        What to check first, one sentence each.
    """

    name: str
    digest: str
    n_samples: int
    n_features: int
    n_labels: int
    feature_storage: str
    feature_density: float
    label_cardinality: float
    label_density: float
    distinct_label_sets: int
    mean_imbalance_ratio: float
    scumble: float
    n_minority_labels: int
    minority_row_share: float
    labels: tuple[_LabelFacts, ...]
    cooccurrence: _Cooccurrence
    warnings: tuple[str, ...]


def describe(dataset: MultiLabelDataset) -> Description:
    """Return the facts of a dataset.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(np.eye(20), np.arange(20)[:, None] < [10, 5, 0])
    >>> facts = describe(data)
    >>> facts.label_cardinality, facts.mean_imbalance_ratio, facts.n_minority_labels
    (0.75, 1.5, 1)
    >>> facts.warnings
    ('1 label has no positive: label_2', '10 rows have no label')
    """
    X: Any = dataset.X
    Y = dataset.Y
    minority = rare_labels(Y)
    nonzero = X.count_nonzero() if sparse.issparse(X) else np.count_nonzero(X)
    with_minority = np.asarray(Y[:, np.flatnonzero(minority)].sum(axis=1)) > 0
    return Description(
        name=dataset.name,
        digest=dataset.digest,
        n_samples=dataset.n_samples,
        n_features=dataset.n_features,
        n_labels=dataset.n_labels,
        feature_storage="sparse" if dataset.is_sparse else "dense",
        feature_density=float(nonzero / max(X.shape[0] * X.shape[1], 1)),
        label_cardinality=label_cardinality(Y),
        label_density=label_density(Y),
        distinct_label_sets=len(set(_row_keys(Y))),
        mean_imbalance_ratio=mean_imbalance_ratio(Y),
        scumble=scumble(Y),
        n_minority_labels=int(minority.sum()),
        minority_row_share=float(with_minority.mean()),
        labels=_label_facts(dataset),
        cooccurrence=_cooccurrence(dataset),
        warnings=(*dataset.notices, *_warnings(dataset)),
    )


def _commonest_first(counts: IntArray, most: int) -> IntArray:
    """Return the labels with positives, then those without, up to `most` labels in all."""
    present = np.flatnonzero(counts)
    ordered = present[np.argsort(-counts[present], kind="stable")]
    absent = np.flatnonzero(counts == 0)[: max(most - len(present), 0)]
    return np.concatenate([ordered, absent])


def _label_facts(dataset: MultiLabelDataset) -> tuple[_LabelFacts, ...]:
    counts, ratios = label_counts(dataset.Y), imbalance_ratio(dataset.Y)
    minority = rare_labels(dataset.Y)
    return tuple(
        _LabelFacts(
            name=dataset.label_names[j],
            positives=int(counts[j]),
            share=float(counts[j] / dataset.n_samples),
            imbalance_ratio=float(ratios[j]),
            is_minority=bool(minority[j]),
        )
        for j in _commonest_first(counts, _LISTED_LABELS)
    )


def _cooccurrence(dataset: MultiLabelDataset) -> _Cooccurrence:
    top = _commonest_first(label_counts(dataset.Y), _TOP_LABELS)[:_TOP_LABELS]
    labels = sparse.csr_array(dataset.Y[:, top], dtype=np.int64)
    together = (labels.T @ labels).toarray()
    share = together / np.maximum(together.diagonal()[:, None], 1)
    return _Cooccurrence(
        names=tuple(dataset.label_names[j] for j in top),
        share=tuple(tuple(row) for row in share.tolist()),
    )


def _warnings(dataset: MultiLabelDataset) -> Iterator[str]:
    counts, X = label_counts(dataset.Y), dataset.X
    for what, chosen in (
        ("no positive", counts == 0),
        ("a single positive", counts == 1),
        ("no negative", counts == dataset.n_samples),
    ):
        columns = np.flatnonzero(chosen)
        if len(columns):
            names = _first_few(dataset.label_names, columns)
            yield f"{_count(len(columns), 'label')} {what}: {names}"
    if empty := int((np.asarray(dataset.Y.sum(axis=1)) == 0).sum()):
        yield f"{_count(empty, 'row')} no label"
    if dataset.n_features:
        yield from _duplicate_warning(dataset)
    low, high = (
        np.ravel(ends.toarray() if sparse.issparse(ends) else ends)
        for ends in (X.min(axis=0), X.max(axis=0))
    )
    if len(constant := np.flatnonzero(low == high)):
        names = _first_few(dataset.feature_names, constant)
        yield f"{_count(len(constant), 'feature')} the same value in every row: {names}"


def _duplicate_warning(dataset: MultiLabelDataset) -> Iterator[str]:
    labels_of: dict[bytes, set[bytes]] = {}
    for features, labels in zip(_row_keys(dataset.X), _row_keys(dataset.Y), strict=True):
        labels_of.setdefault(features, set()).add(labels)
    if repeated := dataset.n_samples - len(labels_of):
        at_odds = sum(len(labels) > 1 for labels in labels_of.values())
        odds = f"; {at_odds:,} of these groups disagree in their labels" if at_odds else ""
        yield f"{_count(repeated, 'row')} the same features as an earlier row{odds}"


def _row_keys(matrix: Any) -> Iterator[bytes]:
    """Yield a 16-byte digest of each row, so that a set of millions of wide rows stays small."""
    if sparse.issparse(matrix):
        rows = sparse.csr_array(matrix, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        ends = zip(rows.indptr, rows.indptr[1:], strict=False)
        texts = (rows.indices[i:j].tobytes() + rows.data[i:j].tobytes() for i, j in ends)
    else:
        zero = False if matrix.dtype == bool else 0.0
        texts = ((row + zero).tobytes() for row in matrix)  # turns -0.0 into 0.0
    return (hashlib.blake2b(text, digest_size=16).digest() for text in texts)


def _count(number: int, noun: str) -> str:
    """Return for instance ``1 row has`` or ``2 rows have``."""
    return f"1 {noun} has" if number == 1 else f"{number:,} {noun}s have"


def _first_few(names: Sequence[str], columns: IntArray, most: int = 5) -> str:
    rest = len(columns) - most
    return ", ".join(names[j] for j in columns[:most]) + (f" and {rest:,} more" if rest > 0 else "")
