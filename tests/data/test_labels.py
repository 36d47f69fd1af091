"""The one check of labels, wherever they come in."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer

from tailbatch.data import MultiLabelDataset, stratified_folds, stratified_split
from tailbatch.data.labels import _nearly_equal, checked_labels
from tailbatch.errors import DataError, SelectionError
from tailbatch.metrics import macro_auc, tune_thresholds
from tailbatch.report.description import describe
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


@pytest.mark.parametrize(
    ("frame", "labels"),
    [
        ({"tags": ["Bug;x", "bug", "x", "y"]}, "tags"),
        ({"tags": [["Bug", "x"], ["bug"], [], ["x"]]}, "tags"),
        ({"bug ": [0, 1, 0, 1], "bug": [1, 0, 1, 0]}, ["bug ", "bug"]),
    ],
)
def test_labels_that_differ_only_in_case_or_space_are_worth_a_look(frame, labels):
    frame = pd.DataFrame({"length": [1.5, 2.0, 4.0, 8.0]} | frame)
    data = MultiLabelDataset.from_frame(frame, labels=labels)
    [notice] = describe(data).warnings[:1]
    assert notice.startswith("the labels '")
    assert "differ only in case, accents or space; write them alike" in notice
    assert data.n_labels == len(data.label_names)


def test_of_many_nearly_equal_the_first_are_named():
    names = [f"{case}{k}" for k in range(5) for case in "aA"]
    assert "'a2' and 'A2', and 2 more such groups differ" in _nearly_equal(names, "the labels")


NAMES = [["bug", "billing"], ["bug"], []]


@pytest.mark.parametrize(
    "Y",
    [
        NAMES,
        [["bug", "billing"], ["bug", "other"]],
        [{"bug"}, {"bug", "billing"}],
        [[0, 2], [1]],
        pd.Series(NAMES),
        np.array(["bug", "other"]),
        pd.DataFrame({"tags": ["bug", "billing"]}),
    ],
    ids=["names", "as many in each row", "sets", "numbers", "series", "texts", "frame"],
)
def test_it_is_said_how_to_make_a_matrix_of_lists_of_labels(Y):
    for door, error in (("selector", SelectionError), ("dataset", DataError), ("folds", DataError)):
        with pytest.raises(error, match=r"MultiLabelBinarizer\(\).fit_transform\(Y\)"):
            DOORS[door](Y)


def test_the_matrix_made_as_told_is_one():
    Y = MultiLabelBinarizer().fit_transform(NAMES)
    assert make_selector("random", Y, batch_size=2).labels.shape == (3, 2)
