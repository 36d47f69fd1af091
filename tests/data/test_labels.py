"""The one check of labels, wherever they come in."""

import numpy as np
import pytest
import torch
from scipy import sparse

from tailbatch.data import MultiLabelDataset, stratified_folds, stratified_split
from tailbatch.data.labels import checked_labels
from tailbatch.errors import DataError, SelectionError
from tailbatch.metrics import macro_auc, tune_thresholds
from tailbatch.selection import make_selector

SCORES = np.full((2, 2), 0.5)
DOORS = {
    "dataset": lambda Y: MultiLabelDataset.from_arrays(np.eye(2), Y),
    "folds": lambda Y: stratified_folds(Y, n_folds=2, seed=0),
    "split": lambda Y: stratified_split(Y, validation=0.5, test=0, seed=0),
    "metric": lambda Y: macro_auc(Y, SCORES),
    "thresholds": lambda Y: tune_thresholds(Y, SCORES),
    "selector": lambda Y: make_selector("random", Y),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.coo_matrix])
def test_every_door_says_the_same(door, kind):
    with pytest.raises(
        ValueError, match=r"^labels must be 0 or 1, got 3 in row 1, label column 0$"
    ):
        DOORS[door](kind([[1, 0], [3, 0]]))
    with pytest.raises(ValueError, match=r"^Y must be a label matrix .*got shape \(2, 0\)$"):
        DOORS[door](kind(np.zeros((2, 0))))


@pytest.mark.parametrize("door", DOORS)
def test_one_dimension_is_no_label_matrix(door):
    with pytest.raises(ValueError, match=r"^Y must be a label matrix .*got shape \(2,\)$"):
        DOORS[door](np.array([0, 1]))


def test_the_error_is_that_of_the_room():
    with pytest.raises(SelectionError):
        checked_labels([[2]], error=SelectionError)
    with pytest.raises(DataError):
        checked_labels([[2]])


def test_a_label_listed_twice_counts_once():
    values, columns, ends = np.ones(3, dtype=np.int8), np.array([2, 0, 2]), np.array([0, 3])
    twice = sparse.csr_array((values, columns, ends), shape=(1, 3))
    assert checked_labels(twice).indices.tolist() == [0, 2]
    assert twice.nnz == 3


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32])
def test_dense_and_sparse_hold_the_same(dtype):
    Y = np.array([[1, 0, 1], [0, 0, 0]], dtype=dtype)
    dense, stored = checked_labels(Y), checked_labels(sparse.csc_array(Y))
    assert dense.dtype == stored.dtype == bool
    assert np.array_equal(dense, stored.toarray())
    assert stored.indices.tolist() == [0, 2]


def test_a_selector_takes_tensors():
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    assert make_selector("balanced", labels).strategy == "balanced"
