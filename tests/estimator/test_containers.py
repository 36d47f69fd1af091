"""The same values in another container are the same data: equal scores, and one scaling."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tailbatch import TailbatchClassifier, compare
from tailbatch.data import load_dataset
from tailbatch.data.dataset import stored_by_values

CONTAINERS = {
    "array": np.asarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "frame": lambda X: pd.DataFrame(X, columns=[f"f{number}" for number in range(X.shape[1])]),
}


def measurements(low=0.0):
    """Dense features as of scene and yeast; the labels depend on differences around their mean."""
    rng = np.random.default_rng(3)
    X = 0.5 + 0.1 * rng.normal(size=(240, 12)).clip(-4, 4) + low
    return X, X[:, :4] - X[:, 4:8] > [0.0, 0.05, 0.1, 0.15]


def words():
    """A dense array of word counts, nearly all of them zero."""
    data = load_dataset("debtags")
    return data.X[:300].toarray(), data.Y[:300, :20]


def half_empty():
    """A fifth of the values is not zero, some of them below."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(240, 10)) * (rng.random((240, 10)) < 0.2)
    return X, X[:, :3] + X[:, 3:6] > 0


DATASETS = {"measurements": measurements, "words": words, "half empty": half_empty}


def fitted(X, Y, **settings):
    return TailbatchClassifier(plan__steps=30, batch_size=32, random_state=0, **settings).fit(X, Y)


@pytest.mark.parametrize("settings", [{}, {"model": "mlp"}], ids=["ensemble", "mlp"])
@pytest.mark.parametrize("name", DATASETS)
def test_four_containers_give_one_model(name, settings):
    X, Y = DATASETS[name]()
    models = {kind: fitted(made(X), Y, **settings) for kind, made in CONTAINERS.items()}
    one = models["array"].predict_proba(X)
    scalings = {type(model.scaling_) for model in models.values()}
    assert len(scalings) == 1
    for kind, made in CONTAINERS.items():
        same = models[kind].predict_proba(made(X))
        np.testing.assert_allclose(same, one, rtol=1e-5, atol=1e-6, err_msg=kind)
        across = models["array"].predict_proba(made(X)) if kind != "frame" else same
        np.testing.assert_allclose(across, one, rtol=1e-5, atol=1e-6, err_msg=kind)


@pytest.mark.parametrize("name", ["scene", "yeast", "flags"])
def test_benchmarks_score_the_same_in_every_container(name, benchmark_data):
    data = load_dataset(name)
    X, Y = np.asarray(data.X)[:500], data.Y[:500]
    models = [fitted(made(X), Y).predict_proba(made(X)) for made in CONTAINERS.values()]
    for other in models[1:]:
        np.testing.assert_allclose(other, models[0], rtol=1e-5, atol=1e-6)


def test_zeros_of_a_sparse_matrix_are_scaled_as_those_of_an_array():
    X, Y = measurements(low=-0.5)
    X[::7, 0] = 0
    classifier = fitted(X, Y)
    np.testing.assert_allclose(
        classifier.predict_proba(sparse.csr_array(X)), classifier.predict_proba(X), rtol=1e-5
    )


def test_storage_is_by_values_and_within_memory(monkeypatch):
    full, few = np.ones((4, 5)), np.eye(20)
    for made in (np.asarray, sparse.csr_array):
        assert isinstance(stored_by_values(made(full)), np.ndarray)
        assert sparse.issparse(stored_by_values(made(few)))
    third = np.eye(3)
    assert isinstance(stored_by_values(sparse.csr_array(third)), np.ndarray)
    monkeypatch.setattr("tailbatch.data.dataset._MOST_CELLS", 8)
    assert sparse.issparse(stored_by_values(sparse.csr_array(third)))
    assert isinstance(stored_by_values(sparse.csr_array(full)), np.ndarray)


def test_compare_gives_one_result_for_every_container():
    X, Y = measurements()
    tables = [
        compare(made(X), Y, n_folds=2, epochs=2, strategies=["random"]).table(["macro_auc"])
        for made in (np.asarray, sparse.csr_array)
    ]
    assert tables[0]["macro_auc"].tolist() == tables[1]["macro_auc"].tolist()
