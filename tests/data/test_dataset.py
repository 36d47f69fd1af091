"""The dataset type: what it accepts, what it refuses and how, and its digest."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csc_matrix, csr_array

from tailbatch.data import MultiLabelDataset
from tailbatch.data import dataset as module
from tailbatch.errors import DataError

X = np.array([[0.5, 0.0], [0.0, 2.0], [1.0, 1.0]])
Y = np.array([[1, 0], [1, 1], [0, 0]])


def from_arrays(**changes):
    return MultiLabelDataset.from_arrays(**({"X": X, "Y": Y} | changes))


def test_dense_stays_dense_and_sparse_stays_sparse():
    dense = from_arrays()
    sparse = from_arrays(X=coo_array(X), Y=csc_matrix(Y))
    assert not dense.is_sparse
    assert isinstance(sparse.X, csr_array)
    np.testing.assert_array_equal(sparse.X.toarray(), dense.X)
    np.testing.assert_array_equal(sparse.Y, dense.Y)
    assert sparse.Y.dtype == np.bool_


def test_sparse_features_become_canonical_and_the_users_matrix_is_left_alone():
    given_matrix = csr_array(
        (np.array([2.0, 1.0, 3.0, 0.0]), [1, 0, 1, 0], [0, 3, 4]), shape=(2, 2)
    )
    data = from_arrays(X=given_matrix, Y=Y[:2])
    np.testing.assert_array_equal(data.X.indices, [0, 1])
    np.testing.assert_array_equal(data.X.data, [1.0, 5.0])
    assert given_matrix.nnz == 4


def test_float32_stays_and_integers_become_float64():
    assert from_arrays(X=X.astype(np.float32)).X.dtype == np.float32
    assert from_arrays(X=np.ones((3, 2), dtype=int)).X.dtype == np.float64


def test_many_labels_are_stored_sparsely():
    labels = np.zeros((3, 1001), dtype=bool)
    labels[1, 1000] = True
    data = from_arrays(Y=labels)
    assert isinstance(data.Y, csr_array)
    assert isinstance(data.take([1]).Y, csr_array)
    few = data.with_labels([1000, 3])
    np.testing.assert_array_equal(few.Y, [[0, 0], [1, 0], [0, 0]])
    assert few.label_names == ("label_1000", "label_3")


def test_take_keeps_order_repetition_and_names():
    part = from_arrays(label_names=["a", "b"]).take([2, 0, 2])
    np.testing.assert_array_equal(part.X, X[[2, 0, 2]])
    np.testing.assert_array_equal(part.Y, Y[[2, 0, 2]].astype(bool))
    assert part.label_names == ("a", "b")


def test_take_nothing():
    assert from_arrays().take([]).n_samples == 0


def test_with_features_chooses_columns():
    part = from_arrays(X=csr_array(X)).with_features([1])
    np.testing.assert_array_equal(part.X.toarray(), X[:, [1]])
    assert part.feature_names == ("feature_1",)


def test_a_dataset_may_have_labels_only():
    assert from_arrays(X=np.empty((3, 0))).n_features == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": X[:2]}, "X and Y must have the same number of rows, got 2 and 3"),
        ({"X": X[0]}, r"X must have two dimensions \(samples, features\), got shape \(2,\)"),
        ({"Y": Y[0]}, r"with at least one row and one column, got shape \(2,\)"),
        ({"X": X[:0], "Y": Y[:0]}, "the dataset is empty: X has no rows"),
        ({"Y": Y[:, :0]}, r"with at least one row and one column, got shape \(3, 0\)"),
        ({"Y": Y * 2}, "labels must be 0 or 1, got 2 in row 0, label column 0"),
        ({"Y": Y - 1}, "labels must be 0 or 1, got -1 in row 0, label column 1"),
        ({"Y": csr_array(Y * 3.0)}, "labels must be 0 or 1, got 3.0 in row 0, label column 0"),
        ({"X": np.where(X == 2, np.nan, X)}, "X has NaN in row 1, column 1; remove or impute"),
        ({"X": csr_array(np.where(X == 2, np.inf, X))}, "X has inf in row 1, column 1"),
        ({"X": np.where(X == 2, -np.inf, X)}, "X has -inf in row 1, column 1"),
        ({"X": [["a", "b"]] * 3}, "X must hold real numbers, got dtype <U1; .* use from_frame"),
        ({"X": X * 1j}, "X must hold real numbers, got dtype complex128"),
        ({"label_names": ["a", "a"]}, "the label name 'a' occurs twice; names must be unique"),
        ({"feature_names": ["a", "a"]}, "the feature name 'a' occurs twice"),
        ({"feature_names": ["a"]}, "2 feature columns have 1 names"),
    ],
)
def test_what_is_refused_is_named(changes, message):
    with pytest.raises(DataError, match=message):
        from_arrays(**changes)


def test_large_finite_values_are_not_taken_for_infinite_ones():
    huge = np.full((3, 2), 1.7e308)
    np.testing.assert_array_equal(from_arrays(X=huge).X, huge)


def test_the_digest_is_of_the_content_alone():
    data = from_arrays()
    assert data.digest == from_arrays(X=csr_array(X), Y=csr_array(Y), name="other").digest
    assert data.digest == from_arrays(X=X.astype(np.float32)).digest
    assert data.digest == from_arrays(X=np.where(X == 0, -0.0, X)).digest
    assert len(data.digest) == 32


@pytest.mark.parametrize(
    "changes",
    [
        {"X": X + 1e-12},
        {"Y": 1 - Y},
        {"X": X[:, ::-1]},
        {"feature_names": ["a", "b"]},
        {"label_names": ["a", "b"]},
        {"X": X[[1, 0, 2]]},
        {"X": np.column_stack([X, np.zeros(3)])},
        {"X": X.reshape(2, 3), "Y": Y[:2]},
    ],
)
def test_the_digest_sees_every_change(changes):
    assert from_arrays(**changes).digest != from_arrays().digest


def test_names_that_run_together_give_other_digests():
    one = from_arrays(feature_names=["ab", "c"])
    two = from_arrays(feature_names=["a", "bc"])
    assert one.digest != two.digest


@settings(max_examples=30, deadline=None)
@given(
    values=arrays(np.float64, (7, 3), elements=st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-300])),
    cells=st.integers(1, 30),
)
def test_the_digest_depends_on_neither_storage_nor_block_size(values, cells):
    labels = values > 0
    reference = from_arrays(X=values, Y=labels).digest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CELLS_PER_BLOCK", cells)
        assert from_arrays(X=values, Y=labels).digest == reference
        assert from_arrays(X=csr_array(values), Y=labels).digest == reference


def test_the_digest_of_a_hand_made_dataset_sees_through_its_storage():
    untidy = csr_array((np.array([2.0, 1.0, 0.0]), [1, 0, 0], [0, 2, 3]), shape=(2, 2))
    tidy = csr_array(np.array([[1.0, 2.0], [0.0, 0.0]]))
    first, second = (
        MultiLabelDataset("x", matrix, Y[:2] > 0, ("a", "b"), ("c", "d"))
        for matrix in (untidy, tidy)
    )
    assert first.digest == second.digest


# --- data frames


FRAME = pd.DataFrame(
    {
        "length": [1.5, 2.0, 3.0, 4.0],
        "color": ["red", "blue", "green", "red"],
        "ripe": ["yes", "no", "yes", "no"],
        "tag_a": [1, 0, 1, 0],
        "tag_b": [True, True, False, False],
    }
)


def test_columns_of_a_frame_become_numbers():
    data = MultiLabelDataset.from_frame(FRAME, labels=["tag_b", "tag_a"], name="fruit")
    assert data.feature_names == (
        "length",
        "color=blue",
        "color=green",
        "color=red",
        "ripe=no",
        "ripe=yes",
    )
    np.testing.assert_array_equal(data.X[0], [1.5, 0, 0, 1, 0, 1])
    assert data.label_names == ("tag_b", "tag_a")
    np.testing.assert_array_equal(data.Y, [[1, 1], [1, 0], [0, 1], [0, 0]])
    assert data.name == "fruit"


@pytest.mark.parametrize("labels", ["tag_", -2, ["tag_a", "tag_b"]])
def test_labels_by_prefix_position_or_name(labels):
    reference = MultiLabelDataset.from_frame(FRAME, labels=["tag_a", "tag_b"])
    assert MultiLabelDataset.from_frame(FRAME, labels=labels).digest == reference.digest


@pytest.mark.parametrize("mark", [";", "|", ",", " ; "])
def test_labels_in_one_column(mark):
    cells = [f"sports{mark}politics", None, "sports", ""]
    data = MultiLabelDataset.from_frame(
        pd.DataFrame({"length": range(4), "topics": cells}), labels="topics"
    )
    assert data.label_names == ("politics", "sports")
    np.testing.assert_array_equal(data.Y, [[1, 1], [0, 0], [0, 1], [0, 0]])


def test_columns_that_identify_rows_are_left_out_with_a_notice():
    frame = FRAME.assign(id=["u1", "u2", "u3", "u4"])
    data = MultiLabelDataset.from_frame(frame, labels="tag_")
    assert data.notices == ("left out the column 'id': it identifies rows",)
    assert data.digest == MultiLabelDataset.from_frame(FRAME, labels="tag_").digest


def test_sparse_columns_stay_sparse():
    frame = pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 0.0]}).astype(pd.SparseDtype("float64", 0.0))
    data = MultiLabelDataset.from_frame(frame.assign(y=[0, 1]), labels=["y"])
    assert data.is_sparse
    np.testing.assert_array_equal(data.X.toarray(), [[0, 2], [1, 0]])


def test_categories_nullable_and_boolean_columns():
    frame = pd.DataFrame(
        {
            "size": pd.Categorical(["s", "m", "l"]),
            "count": pd.array([1, 2, 3], dtype="Int64"),
            "new": [True, False, True],
            "y": pd.array([True, False, True], dtype="boolean"),
        }
    )
    data = MultiLabelDataset.from_frame(frame, labels=["y"])
    assert data.feature_names == ("size=l", "size=m", "size=s", "count", "new")
    np.testing.assert_array_equal(data.X[0], [0, 0, 1, 1, 1])


def test_missing_values_are_imputed_when_asked():
    frame = FRAME.assign(length=[1.0, None, 3.0, 5.0], color=["red", None, "blue", "red"])
    data = MultiLabelDataset.from_frame(frame, labels="tag_", missing="impute")
    assert data.X[1, 0] == 3.0
    assert data.X[1, data.feature_names.index("color=red")] == 1


@pytest.mark.parametrize(
    ("frame", "labels", "message"),
    [
        (FRAME, ["nope"], "there is no label column 'nope'; the columns are: length, color"),
        (FRAME, [], "labels names no column; the columns are"),
        (FRAME, "zzz", "labels='zzz' is neither a column nor the beginning of one"),
        (pd.concat([FRAME, FRAME], axis=1), "tag_", "the column 'length' occurs twice; rename one"),
        (FRAME, 9, "labels=9 asks for 9 of the columns, and there are 5"),
        (FRAME, 0, "labels=0 asks for 0 of the columns, and there are 5"),
        (FRAME, "length", r"'length' holds numbers such as 1.5, neither lists"),
        (FRAME, ["length"], "labels must be 0 or 1, got 1.5 in row 0, label 'length'"),
        (FRAME, ["color"], "labels must be 0 or 1, got red in row 0, label 'color'"),
        (FRAME.assign(tag_a=[1, None, 0, 1]), "tag_", "the label 'tag_a' is missing in row 1"),
        (FRAME.assign(length=[1, None, 3, 4]), "tag_", "'length' has a missing value in row 1; .*"),
        (FRAME.assign(when=pd.Timedelta(1)), "tag_", "'when' is of type timedelta64"),
        (FRAME.assign(topics=""), "topics", "'topics' lists no labels at all"),
    ],
)
def test_what_is_refused_in_a_frame_is_named(frame, labels, message):
    with pytest.raises(DataError, match=message):
        MultiLabelDataset.from_frame(frame, labels=labels, missing="error")


def test_an_unknown_way_with_missing_values_is_refused():
    with pytest.raises(DataError, match="missing must be 'error' or 'impute', got 'drop'"):
        MultiLabelDataset.from_frame(FRAME, labels="tag_", missing="drop")


def test_a_frames_own_index_names_the_row():
    frame = FRAME.set_index(pd.Index(["w", "x", "y", "z"], name="plant"))
    with pytest.raises(DataError, match="in plant w, label 'length'"):
        MultiLabelDataset.from_frame(frame, labels=["length"])
