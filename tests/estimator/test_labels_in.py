"""Labels as people have them: names, sets, missing values, rows that count more."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tailbatch.data import load_dataset
from tailbatch.errors import DataError, ModelError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.metrics import evaluate

FAST = {
    "model": "mlp",
    "epochs": 3,
    "warm_up_epochs": 1,
    "batch_size": 16,
    "lr": 0.01,
    "random_state": 0,
}
NAMES = ("billing", "bug", "spam")


def rows(n=90, seed=0):
    X = np.random.default_rng(seed).random((n, 6))
    return X, X[:, :3] > [0.5, 0.7, 0.8]


def named(Y, kind=list):
    return [kind(name for name, there in zip(NAMES, row, strict=True) if there) for row in Y]


# ---- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "as_Y",
    [
        named,
        lambda Y: named(Y, set),
        lambda Y: named(Y, tuple),
        lambda Y: pd.Series(named(Y)),
        lambda Y: pd.Series([np.array(names) for names in named(Y)]),
    ],
)
def test_lists_of_names_are_labels(as_Y):
    X, Y = rows()
    plain = TailbatchClassifier(**FAST, label_names=NAMES).fit(X, Y)
    classifier = TailbatchClassifier(**FAST).fit(X, as_Y(Y))
    assert classifier.label_names_ == NAMES
    assert np.array_equal(classifier.predict_proba(X), plain.predict_proba(X))
    sets = classifier.predict(X, as_sets=True)
    assert sets == named(plain.predict(X), set)
    assert classifier.score(X, as_Y(Y)) == plain.score(X, Y)


def test_names_may_be_fixed_before():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST, label_names=["spam", "bug", "billing", "never"])
    classifier.fit(X, named(Y))
    assert classifier.label_names_ == ("spam", "bug", "billing", "never")
    assert classifier.predict(X).shape == (90, 4)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([["bug"], ["bgu"]] * 5, "unknown label 'bgu'; did you mean 'bug'"),
        ([["bug"], ["bug", 3]] * 5, "labels are named by strings, got 3 in row 1"),
        ([["bug"], None] * 5, "a list of label names for each row, got None in row 1"),
        ([["bug"], "bug"] * 5, "a list of label names for each row, got 'bug' in row 1"),
        (["bug;spam", "bug", "spam"] * 4, "or a list of names for each row"),
    ],
)
def test_lists_that_cannot_be_read_are_named(Y, message):
    X = np.random.default_rng(0).random((len(Y), 2))
    names = ["bug", "spam"] if "unknown" in message else None
    with pytest.raises(DataError, match=message):
        TailbatchClassifier(**FAST, label_names=names).fit(X, Y)


def test_no_names_at_all_are_an_error():
    with pytest.raises(DataError, match="no row of Y has a label"):
        TailbatchClassifier(**FAST).fit(np.eye(4), [set(), set(), set(), set()])


def test_two_classes_have_no_sets():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST).fit(X, Y[:, 0])
    with pytest.raises(DataError, match="as_sets=True is for many labels"):
        classifier.predict(X, as_sets=True)


# ---- missing labels --------------------------------------------------------------------------


def with_gaps(Y, share=0.3, seed=1):
    labels = Y.astype(float)
    labels[np.random.default_rng(seed).random(Y.shape) < share] = np.nan
    return labels


@pytest.mark.parametrize("as_Y", [np.asarray, pd.DataFrame, sparse.csr_array])
@pytest.mark.parametrize("model", ["mlp", "clif", "dela"])
def test_masked_labels_are_learned_around(as_Y, model):
    X, Y = rows()
    labels = with_gaps(Y)
    settings = {**FAST, "missing_labels": "mask", "model": model, "thresholds": "tuned"}
    classifier = TailbatchClassifier(**settings).fit(X, as_Y(labels))
    assert np.isfinite(classifier.predict_proba(X)).all()
    right = (classifier.predict(X) == Y) | np.isnan(labels)
    assert classifier.score(X, as_Y(labels)) == right.all(axis=1).mean()


@pytest.mark.parametrize(
    ("strategy", "loss"),
    [
        (strategy, loss)
        for loss in ("bce", "weighted_bce", "two_way", "equalized")
        # The two-way loss refuses corrected draws.
        for strategy in ("random", "hard", "minority", *(["importance"] * (loss != "two_way")))
    ],
)
def test_what_stands_in_a_masked_cell_makes_no_difference(strategy, loss):
    X, Y = rows()
    missing = np.isnan(with_gaps(Y))
    classifier = TailbatchClassifier(
        **FAST, strategy=strategy, loss=loss, missing_labels="mask", plan__training_loss_every=1
    )
    scores = []
    for truth in (Y, Y & ~missing, Y | missing):
        labels = np.where(missing, np.nan, truth.astype(float))
        scores.append(classifier.fit(X, labels).predict_proba(X))
        assert all(np.isfinite(epoch.training_bce) for epoch in classifier.history_)
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])


def test_masked_validation_labels_choose_nothing():
    X, Y = rows(200)
    Xv, Yv = rows(80, seed=7)
    gaps = with_gaps(Yv, 0.5)
    classifier = TailbatchClassifier(
        **FAST, missing_labels="mask", plan__best_by="macro_average_precision"
    )
    classifier.fit(X, Y, validation_data=(Xv, gaps))
    missing = np.isnan(gaps)
    expected = evaluate(
        np.where(missing, 0, Yv).astype(bool),
        classifier.predict_proba(Xv).astype(np.float32),
        missing=missing,
        only=["macro_average_precision"],
    )
    best = classifier.history_[classifier.best_epoch_ - 1].validation
    assert best == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("model", ["c2ae", "mpvae", "paca"])
def test_models_that_read_all_labels_refuse_gaps(model):
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST | {"model": model, "missing_labels": "mask"})
    with pytest.raises(ModelError, match=f"{model} cannot be trained with missing labels"):
        classifier.fit(X, with_gaps(Y))
    classifier.fit(X, Y)  # nothing is missing


@pytest.mark.parametrize("as_Y", [np.asarray, pd.DataFrame, sparse.csr_array])
def test_labels_that_are_all_missing_teach_nothing(as_Y):
    X, Y = rows()
    nothing = as_Y(np.full(Y.shape, np.nan))
    with pytest.raises(DataError, match="every label of the training rows is missing: there is no"):
        TailbatchClassifier(**FAST, missing_labels="mask").fit(X, nothing)


def test_gaps_are_an_error_unless_asked_for():
    X, Y = rows()
    with pytest.raises(DataError, match='set missing_labels="mask"'):
        TailbatchClassifier(**FAST).fit(X, with_gaps(Y))
    with pytest.raises(DataError, match='missing_labels must be "error" or "mask", got \'skip\''):
        TailbatchClassifier(**FAST, missing_labels="skip").fit(X, Y)


# ---- validation data -------------------------------------------------------------------------


def test_validation_data_choose_the_epoch_and_all_rows_train():
    X, Y = rows()
    Xv, Yv = rows(60, seed=3)
    classifier = TailbatchClassifier(**FAST, thresholds="tuned").fit(X, Y, validation_data=(Xv, Yv))
    assert classifier.history_[0].steps == 6  # 90 rows in batches of 16
    best = classifier.history_[classifier.best_epoch_ - 1].validation["macro_auc"]
    scores = classifier.predict_proba(Xv).astype(np.float32)
    assert best == pytest.approx(evaluate(Yv, scores, only=["macro_auc"])["macro_auc"], abs=1e-6)
    assert best == max(epoch.validation["macro_auc"] for epoch in classifier.history_)


def test_validation_data_of_two_classes():
    X, Y = rows()
    y = np.where(Y[:, 0], "yes", "no")
    classifier = TailbatchClassifier(**FAST).fit(X, y, validation_data=(X[:40], y[:40]))
    assert classifier.history_[0].validation["macro_auc"] > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda X, Y: X, r"validation_data must be a pair \(X, Y\)"),
        (lambda X, Y: (X[:, :2], Y), "X has 2 features, but"),
        (lambda X, Y: (X, Y[:, :2]), "validation_data: 2 label columns have 3 names"),
        (lambda X, Y: (X[:5], Y), "validation_data: X and Y must have the same number of rows"),
        (lambda X, Y: (X, pd.DataFrame(Y, columns=list("abc"))), "Y has the columns"),
    ],
)
def test_validation_data_must_fit(given, message):
    X, Y = rows()
    with pytest.raises(ValueError, match=message):
        TailbatchClassifier(**FAST).fit(X, Y, validation_data=given(X, Y))


# --- a Series


def test_a_series_of_tags_is_read_as_in_a_file(tmp_path):
    X = np.random.default_rng(0).random((40, 3))
    tags = pd.Series(["a; b", "a", None, "b"] * 10)
    classifier = TailbatchClassifier(epochs=1, random_state=0).fit(X, tags)
    assert classifier.label_names_ == ("a", "b")
    path = tmp_path / "x.csv"
    pd.DataFrame(X).assign(tags=tags).to_csv(path, index=False)
    data = load_dataset(path, labels="tags")
    as_read = TailbatchClassifier(epochs=1, random_state=0).fit(X, data.Y)
    assert np.array_equal(classifier.predict_proba(X), as_read.predict_proba(X))
    one = TailbatchClassifier(epochs=1, random_state=0)
    one.fit(X, tags, validation_data=(X[:4], tags[[1, 3, 1, 3]]))  # there no delimiter is needed


@pytest.mark.parametrize(
    "values", [[1.0, 0.0, np.nan], ["yes", None, "no"], [["a"], ["b"], np.nan]]
)
def test_a_missing_value_in_a_series_names_its_row(values):
    Y = pd.Series(values * 10, index=pd.RangeIndex(100, 130, name="ticket"))
    row = 101 if values[1] is None else 102
    with pytest.raises(DataError, match=f"Y has no value in ticket {row}; fill it in"):
        TailbatchClassifier(epochs=1).fit(np.ones((30, 2)), Y)
