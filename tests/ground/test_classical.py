"""scikit-learn's classifiers as baselines: their scores on our rows, unchanged."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from tailbatch import classical
from tailbatch.classical import CLASSICAL, make_classical
from tailbatch.data import MultiLabelDataset, Parts
from tailbatch.errors import ModelError
from tailbatch.metrics import macro_average_precision

Logistic, Forest, Boosting = (CLASSICAL[name] for name in ("logistic", "forest", "boosting"))

SMALL = {"forest": {"n_estimators": 12}, "boosting": {"max_iter": 5}}


def toy_parts(*, q=4, n=150, is_sparse=False, d=6):
    """Return a fold of sparse word features, the last of which are in a few rows only."""
    rng = np.random.default_rng(0)
    X = rng.random((n, d)) * (rng.random((n, d)) < np.linspace(0.6, 0.1, d))
    scores = X @ rng.normal(size=(d, q)) + 0.1 * rng.normal(size=(n, q))
    Y = scores > np.quantile(scores, 0.6, axis=0)
    data = MultiLabelDataset.from_arrays(sparse.csr_array(X) if is_sparse else X, Y)
    cuts = np.split(np.arange(n), [n // 2, 3 * n // 4])
    return Parts(*(data.take(rows) for rows in cuts))


def with_labels(parts, change):
    def changed(part):
        Y = part.Y.copy()
        change(Y)
        return replace(part, Y=Y)

    return Parts(changed(parts.train), parts.validation, parts.test)


def small(name):
    return make_classical(name, SMALL.get(name, {}))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", CLASSICAL)
def test_scores_are_probabilities_and_a_function_of_the_seed(name, is_sparse):
    parts = toy_parts(is_sparse=is_sparse)
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    first, again = (small(name).learn(parts, seed=3) for _ in range(2))
    assert np.array_equal(np.random.get_state()[1], before)
    for part, scores in ((parts.validation, first.validation), (parts.test, first.test)):
        assert scores.shape == part.Y.shape
        assert ((scores >= 0) & (scores <= 1)).all()
        assert macro_average_precision(part.Y, scores) > part.Y.mean(axis=0).mean() + 0.1
    assert np.array_equal(first.test, again.test)
    assert CLASSICAL[name].name == name


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_label_that_never_changes_in_training_has_a_constant_score(name):
    def change(Y):
        Y[:, 0], Y[:, 2] = False, True

    found = small(name).learn(with_labels(toy_parts(), change), seed=0)
    assert (found.test[:, 0] == 0).all()
    assert (found.test[:, 2] == 1).all()
    assert np.ptp(found.test[:, 1]) > 0


@pytest.mark.parametrize("name", CLASSICAL)
def test_no_label_that_varies(name):
    found = small(name).learn(with_labels(toy_parts(), lambda Y: Y.fill(False)), seed=0)
    assert (found.test == 0).all()


@pytest.mark.parametrize("name", CLASSICAL)
def test_one_label_alone(name):
    parts = toy_parts(q=1)
    found = small(name).learn(parts, seed=0)
    assert found.test.shape == parts.test.Y.shape
    assert np.ptp(found.test) > 0


@pytest.mark.parametrize("name", CLASSICAL)
def test_validation_rows_without_positives_choose_nothing(name):
    parts = toy_parts()
    nothing = replace(parts.validation, Y=np.zeros_like(parts.validation.Y))
    found = small(name).learn(Parts(parts.train, nothing, parts.test), seed=0)
    assert found.test.shape == parts.test.Y.shape


@pytest.mark.parametrize("name", ["logistic", "balanced_logistic"])
def test_logistic_is_scikit_learns_one_against_the_rest(name):
    parts = toy_parts(is_sparse=True)
    kind = CLASSICAL[name]
    peer = OneVsRestClassifier(LogisticRegression(C=2.0, class_weight=kind.class_weight))
    peer.fit(parts.train.X, parts.train.Y)
    found = kind(C=2.0).learn(parts, seed=0)
    np.testing.assert_allclose(found.test, peer.predict_proba(parts.test.X), atol=1e-3)


def test_the_validation_rows_choose_the_penalty():
    parts = toy_parts()
    tried = {C: Logistic(C=C).learn(parts, seed=0) for C in (0.1, 1.0, 10.0)}
    values = {
        C: macro_average_precision(parts.validation.Y, s.validation) for C, s in tried.items()
    }
    found = Logistic().learn(parts, seed=0)
    assert found.chosen["C"] == max(values, key=values.get)
    np.testing.assert_allclose(found.test, tried[found.chosen["C"]].test, atol=0.01)


def test_a_forest_is_scikit_learns():
    parts = toy_parts()
    found = Forest(n_estimators=10).learn(parts, seed=7)
    peer = RandomForestClassifier(10, random_state=classical._random_state(7, 0))
    peer.fit(parts.train.X, parts.train.Y)
    expected = np.stack([each[:, 1] for each in peer.predict_proba(parts.test.X)], axis=1)
    np.testing.assert_allclose(found.test, expected)


def test_a_forest_averages_groups_of_trees_by_their_size():
    parts = toy_parts()
    ten, twelve = (Forest(n_estimators=count).learn(parts, seed=0).test for count in (10, 12))
    two = RandomForestClassifier(2, random_state=classical._random_state(0, 10))
    two.fit(parts.train.X, parts.train.Y)
    last = np.stack([each[:, 1] for each in two.predict_proba(parts.test.X)], axis=1)
    np.testing.assert_allclose(twelve, (10 * ten + 2 * last) / 12)


def test_boosting_leaves_out_only_features_that_no_tree_could_use():
    parts = toy_parts(is_sparse=True, d=12)
    counts = parts.train.X.count_nonzero(axis=0)
    assert 0 < (counts < Boosting.min_samples_leaf).sum() < 12
    found = Boosting(max_iter=5).learn(parts, seed=0)
    for label in range(parts.train.n_labels):
        peer = HistGradientBoostingClassifier(max_iter=5, early_stopping=False)
        peer.fit(parts.train.X.toarray(), parts.train.Y[:, label])
        expected = peer.predict_proba(parts.test.X.toarray())[:, 1]
        np.testing.assert_array_equal(found.test[:, label], expected)


def test_boosting_without_a_usable_feature_scores_the_share():
    parts = toy_parts(is_sparse=True, n=32)
    found = Boosting().learn(parts, seed=0)
    assert np.array_equal(found.test[0], parts.train.Y.mean(axis=0))


def test_sparse_features_with_64_bit_indices():
    parts = toy_parts(is_sparse=True)

    def wide(part):
        X = part.X.copy()
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        return replace(part, X=X)

    same = Parts(wide(parts.train), wide(parts.validation), wide(parts.test))
    for name in CLASSICAL:
        assert np.array_equal(
            small(name).learn(same, seed=0).test, small(name).learn(parts, seed=0).test
        )


@pytest.mark.parametrize("name", ["forest", "boosting"])
def test_what_would_not_fit_into_memory_is_refused(name, monkeypatch):
    monkeypatch.setattr(classical, "MAX_BYTES", 1000)
    with pytest.raises(ModelError, match=rf"{name} would need .* GiB for .* rows.* leave it out"):
        small(name).learn(toy_parts(is_sparse=True), seed=0)


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("logistic", {"c": 1}, "unknown hyperparameter of logistic 'c'. Known: C"),
        ("logistic", {"C": "strong"}, "C of logistic must be a number above 0, got 'strong'"),
        ("balanced_logistic", {"C": -1}, "C of balanced_logistic must be a number above 0, got -1"),
        (
            "forest",
            {"n_estimators": 0},
            "n_estimators of forest must be a whole number from 1, got 0",
        ),
        (
            "boosting",
            {"max_iter": 2.5},
            "max_iter of boosting must be a whole number from 1, got 2.5",
        ),
    ],
)
def test_a_hyperparameter_that_does_not_fit_is_named(name, hyperparameters, message):
    with pytest.raises(ModelError, match=message):
        make_classical(name, hyperparameters)
