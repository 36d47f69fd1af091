"""Scalings against scikit-learn's, dense and sparse, and what differs on purpose."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from tailbatch.data import SCALINGS, MultiLabelDataset, fit_scaling, split, suggested_scaling
from tailbatch.data.folds import Fold
from tailbatch.errors import DataError

STORAGES = [np.asarray, sparse.csr_array]


def plain(X):
    return X if isinstance(X, np.ndarray) else X.toarray()


def counts(seed=0, shape=(30, 6)):
    """Return counts, every feature in some row."""
    X = np.random.default_rng(seed).poisson(0.7, size=shape).astype(np.float64)
    X[np.arange(shape[1]), np.arange(shape[1])] += 1
    return X


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_is_scikit_learns(name, storage, dtype):
    X = storage(counts().astype(dtype))
    other = storage(counts(1).astype(dtype))
    is_sparse = storage is not np.asarray
    peer = {
        "minmax": MaxAbsScaler() if is_sparse else MinMaxScaler(),
        "maxabs": MaxAbsScaler(),
        "standard": StandardScaler(with_mean=not is_sparse),
        "tfidf": TfidfTransformer(),
        "bounded": MaxAbsScaler(),  # every column of these counts has a value above 1
    }[name].fit(X)
    scaling = SCALINGS[name].fit(X)
    for rows in (X, other):
        found = scaling.transform(rows)
        assert type(found) is type(rows)
        assert found.dtype == dtype
        expected = plain(peer.transform(rows))
        expected = expected.clip(0, 1) if name == "minmax" else expected
        np.testing.assert_allclose(plain(found), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_spread_is_found_beside_a_large_mean(storage):
    X = 1e8 + np.random.default_rng(0).random((50, 2))
    width = SCALINGS["standard"].fit(storage(X)).width
    np.testing.assert_allclose(width, X.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", SCALINGS)
def test_a_feature_that_training_never_saw_becomes_zero(name, storage):
    X = counts()
    X[:, 2] = 0
    other = counts(1)
    other[0, 2] = 5
    found = SCALINGS[name].fit(storage(X)).transform(storage(other))
    assert (plain(found)[:, 2] == 0).all()
    assert np.isfinite(plain(found)).all()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", ["minmax", "standard"])
def test_a_constant_feature_becomes_zero(name, storage):
    X = counts()
    X[:, 1] = 0.1
    assert (plain(SCALINGS[name].fit(storage(X)).transform(storage(X)))[:, 1] == 0).all()


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_is_made_again_of_its_arrays_and_keeps_its_input(name):
    X = sparse.csr_array(counts())
    kept = X.copy()
    scaling = SCALINGS[name].fit(X)
    arrays = asdict(scaling)
    assert all(values.shape == (6,) for values in arrays.values())
    again = type(scaling)(**arrays)
    assert (again.transform(X) != scaling.transform(X)).nnz == 0
    assert (kept != X).nnz == 0


@given(hnp.arrays(np.float64, (5, 4), elements=st.integers(0, 9)))
@settings(max_examples=50, deadline=None)
def test_tfidf_rows_have_length_one_or_zero(X):
    for storage in STORAGES:
        scaled = plain(SCALINGS["tfidf"].fit(storage(X)).transform(storage(X)))
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), X.any(axis=1), atol=1e-12)


@pytest.mark.parametrize("name", SCALINGS)
def test_no_rows_and_other_widths_are_refused(name):
    with pytest.raises(DataError, match="at least one training row"):
        fit_scaling(name, np.ones((0, 2)))
    with pytest.raises(DataError, match="fitted on 2 features, got 3"):
        SCALINGS[name].fit(np.ones((2, 2))).transform(np.ones((2, 3)))


@pytest.mark.parametrize("storage", STORAGES)
def test_tfidf_refuses_negative_values(storage):
    with pytest.raises(DataError, match=r"tfidf is for counts and words, .* value -2; use minmax"):
        SCALINGS["tfidf"].fit(storage(np.array([[1.0, -2.0]])))


def test_what_a_scale_asks_for():
    X = sparse.csr_array(np.pad(counts(), [(0, 0), (0, 20)]))  # mostly zeros
    assert fit_scaling(True, X).name == "minmax"
    assert fit_scaling(False, X) is None
    assert fit_scaling("auto", X).name == suggested_scaling(X) == "tfidf"
    assert suggested_scaling(X * -1) == "bounded"
    assert suggested_scaling(X.toarray()) == "tfidf"  # whatever the storage
    assert suggested_scaling(X.toarray() + 0.5) == "standard"
    assert suggested_scaling(X * 0) == suggested_scaling(X[:, :0]) == "tfidf"  # nothing to scale
    assert [fit_scaling(name, X).name for name in SCALINGS] == list(SCALINGS)
    with pytest.raises(DataError, match="unknown scaling 'tdidf'; did you mean 'tfidf'"):
        fit_scaling("tdidf", X)
    with pytest.raises(DataError, match=r"unknown scaling None. Known: minmax, .*, auto"):
        fit_scaling(None, X)


@pytest.mark.parametrize("storage", STORAGES)
def test_weighted_words_keep_their_weights_beside_other_columns(storage):
    words = SCALINGS["tfidf"].fit(counts()).transform(counts())
    numbers = np.random.default_rng(0).random((len(words), 2)) * [40, 0.004] + [10, 0]
    X = np.hstack([words, numbers, np.zeros((len(words), 20))])
    assert suggested_scaling(storage(X)) == "bounded"
    scaled = plain(fit_scaling("auto", storage(X)).transform(storage(X)))
    np.testing.assert_array_equal(scaled[:, :6], words)
    np.testing.assert_allclose(scaled[:, 6:8], MaxAbsScaler().fit_transform(numbers))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("storage", [*STORAGES, sparse.csr_matrix])
def test_a_column_that_outweighs_the_others_is_a_measurement(storage, dtype):
    words = np.pad(counts(), [(0, 0), (0, 20)]).astype(dtype)
    assert suggested_scaling(storage(words)) == "tfidf"
    words[:, -1] = 100_000 + np.arange(len(words))  # whose square is more than 32 bits hold
    assert suggested_scaling(storage(words)) == "standard"


def test_split_scales_by_name():
    X = np.array([[2.0, 0.0], [-4.0, 1.0], [1.0, 3.0]])
    data = MultiLabelDataset.from_arrays(X, np.ones((3, 1), dtype=bool))
    parts = split(data, Fold(np.array([0, 1]), np.array([2]), np.array([2])), scale="maxabs")
    assert parts.test.X.tolist() == [[0.25, 3.0]]
