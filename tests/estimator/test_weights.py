"""Rows and classes that count more, and fits that start where the last one ended."""

import numpy as np
import pytest

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import DataError, ModelError, TrainingError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.estimator.decisions import weights_of_positives
from tailbatch.selection import make_selector
from tailbatch.training import Callback

FAST = {"epochs": 3, "warm_up_epochs": 1, "batch_size": 16, "lr": 0.01, "random_state": 0}


def rows(n=90, seed=0):
    X = np.random.default_rng(seed).random((n, 6))
    return X, X[:, :3] > [0.5, 0.7, 0.8]


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"strategy": "importance"}, None),
        ({"strategy": "balanced", "strategy__corrected": True}, None),
        ({}, np.linspace(0.1, 2, 90)),
    ],
)
@pytest.mark.parametrize("kind", [{"loss": "two_way"}, {"model": "c2ae"}])
def test_what_compares_samples_refuses_their_weights_before_training(settings, weight, kind):
    class Never(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            raise AssertionError

    classifier = TailbatchClassifier(**FAST, **settings, **kind, callbacks=(Never(),))
    with pytest.raises(ModelError, match=r"cannot be trained with corrected .* with coverage"):
        classifier.fit(*rows(), sample_weight=weight)


@pytest.mark.parametrize("kind", [{"loss": "two_way"}, {"model": "c2ae"}])
def test_what_compares_samples_takes_draws_without_correction(kind):
    X, Y = rows()
    TailbatchClassifier(**FAST, strategy="coverage", **kind).fit(X, Y, sample_weight=np.ones(90))


# ---- rows ------------------------------------------------------------------------------------


def test_rows_without_weight_teach_nothing():
    X, Y = rows()
    wrong = Y.copy()
    wrong[::3] = ~wrong[::3]
    weight = np.ones(90)
    weight[::3] = 0
    settings = {**FAST, "cross_fit": 0, "validation_fraction": 0, "strategy": "random"}
    settings["model__prior_bias"] = False
    fits = [
        TailbatchClassifier(**settings).fit(X, labels, sample_weight=weight).predict_proba(X)
        for labels in (Y, wrong)
    ]
    assert np.array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], TailbatchClassifier(**settings).fit(X, Y).predict_proba(X))


def test_only_the_ratio_of_weights_counts():
    X, Y = rows()
    weight = np.random.default_rng(1).random(90) + 0.5
    one, two, even, none = (
        TailbatchClassifier(**FAST).fit(X, Y, sample_weight=w).predict_proba(X)
        for w in (weight, 8 * weight, np.full(90, 3.0), None)
    )
    assert np.array_equal(one, two)
    assert np.array_equal(even, none)
    assert not np.array_equal(one, none)


@pytest.mark.parametrize("strategy", ["random", "importance"])
def test_the_objective_of_a_batch_is_weighted(strategy):
    X, Y = rows(16)
    weight = np.linspace(0.1, 2, 16)
    settings = {
        **FAST,
        "epochs": 1,
        "validation_fraction": 0,
        "strategy": strategy,
        "model__dropout": 0.0,
        "warm_up_epochs": 0,
    }
    seen = []

    class Watch(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            seen.append(objective)

    fit = TailbatchClassifier(**settings, callbacks=(Watch(),))
    fit.fit(X, Y, sample_weight=weight)
    fit.fit(X, Y)
    assert seen[0] != pytest.approx(seen[1], rel=1e-3)
    assert seen[0] < 2 * seen[1]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(89), r"one number for each of 90 rows, got shape \(89,\)"),
        (np.ones((90, 1)), r"got shape \(90, 1\)"),
        (np.zeros(90), "sample_weight is zero for every row"),
        (np.r_[np.ones(89), -1], "finite numbers from 0"),
        (np.r_[np.ones(89), np.nan], "finite numbers from 0"),
        ("heavy", "sample_weight must hold numbers, got 'heavy'"),
    ],
)
def test_weights_of_rows_that_cannot_be(weight, message):
    with pytest.raises(DataError, match=message):
        TailbatchClassifier(**FAST).fit(*rows(), sample_weight=weight)


def test_a_checkpoint_of_other_weights_is_refused(tmp_path):
    X, Y = rows()
    settings = {**FAST, "epochs": 10, "checkpoint_folder": tmp_path}
    TailbatchClassifier(**settings).fit(X, Y, sample_weight=np.arange(1, 91))
    with pytest.raises(TrainingError, match="belongs to a different training run"):
        TailbatchClassifier(**settings).fit(X, Y)


# ---- classes ---------------------------------------------------------------------------------


def dataset(missing=None):
    Y = np.array([[1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    data = MultiLabelDataset.from_arrays(np.eye(4), Y, label_names=["bug", "billing"])
    from dataclasses import replace

    return replace(data, missing=missing)


@pytest.mark.parametrize(
    ("class_weight", "expected"),
    [
        (None, None),
        ("balanced", [3, 1]),
        ({"bug": 5}, [5, 1]),
        ({1: 2.0}, [1, 2]),
        ([4, 0.5], [4, 0.5]),
        ([{0: 1, 1: 6}, {0: 4, 1: 1}], [6, 0.25]),
    ],
)
def test_weights_of_labels_in_every_spelling(class_weight, expected):
    weights = weights_of_positives(class_weight, dataset())
    assert (None if weights is None else weights.tolist()) == expected


def test_balanced_weights_count_known_labels_only():
    missing = np.array([[0, 0], [0, 0], [1, 0], [1, 0]], dtype=bool)
    assert weights_of_positives("balanced", dataset(missing)).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("balance", "class_weight must be \"balanced\", a table or a list, got 'balance'"),
        ({"bgu": 2}, "class_weight: unknown label 'bgu'; did you mean 'bug'"),
        ([1, 2, 3], "one entry for each of 2 labels, got 3"),
        (7, "one entry for each of 2 labels, got 0"),
        ([1, -2], "finite numbers above 0"),
        ([1, "x"], "finite numbers above 0"),
        ([{0: 1, 2: 1}, {}], "unknown class 2"),
    ],
)
def test_weights_of_labels_that_cannot_be(class_weight, message):
    with pytest.raises(DataError, match=message):
        weights_of_positives(class_weight, dataset())


def test_weights_of_two_classes():
    classes = np.array(["no", "yes"])
    assert weights_of_positives({"yes": 4, "no": 2}, dataset(), classes).tolist() == [2]
    with pytest.raises(DataError, match="unknown class 'maybe'"):
        weights_of_positives({"maybe": 4}, dataset(), classes)
    with pytest.raises(DataError, match="a table from class to weight"):
        weights_of_positives([1, 2], dataset(), classes)


def test_costly_labels_are_predicted_sooner_and_stay_probable():
    X, Y = rows(300)
    settings = {**FAST, "epochs": 20}
    plain = TailbatchClassifier(**settings).fit(X, Y)
    costly = TailbatchClassifier(**settings, class_weight={"label_2": 8}).fit(X, Y)
    assert costly.thresholds_ == pytest.approx([0.5, 0.5, 1 / 9])
    assert costly.predict(X)[:, 2].sum() > plain.predict(X)[:, 2].sum()
    assert costly.predict_proba(X)[:, 2].mean() == pytest.approx(Y[:, 2].mean(), abs=0.05)
    assert costly.model_.loss.positive_weights.tolist() == [1, 1, 8]


def test_class_weight_and_a_weighted_loss_exclude_each_other():
    with pytest.raises(ModelError, match="class_weight weights the positives of binary"):
        TailbatchClassifier(**FAST, class_weight="balanced", loss="focal").fit(*rows())
    TailbatchClassifier(**FAST, class_weight="balanced", loss="bce").fit(*rows())


# ---- warm start ------------------------------------------------------------------------------


def test_a_warm_start_goes_on_from_the_last_fit():
    X, Y = rows(200)
    settings = {**FAST, "epochs": 15, "validation_fraction": 0, "lr": 0.02}
    classifier = TailbatchClassifier(**settings, warm_start=True).fit(X, Y)
    scaling, first = classifier.scaling_, classifier.history_
    classifier.fit(X[:150], Y[:150])
    assert classifier.scaling_ is scaling
    assert classifier.history_[0].batch_objective < first[0].batch_objective * 0.8
    cold = TailbatchClassifier(**settings).fit(X, Y).fit(X[:150], Y[:150])
    assert cold.history_[0].batch_objective > classifier.history_[0].batch_objective


def test_a_warm_start_needs_the_same_columns():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST, warm_start=True).fit(X, Y)
    with pytest.raises(ModelError, match="warm_start continues with the model of the earlier fit"):
        classifier.fit(X, Y[:, :2])


@pytest.mark.parametrize(("model", "epochs", "warm_up"), [("ensemble", 1, 0), ("mlp", 20, 2)])
def test_the_warm_up_is_the_plans(model, epochs, warm_up, monkeypatch):
    seen = {}

    def noted(*args, **settings):
        seen.update(settings)
        return make_selector(*args, **settings)

    monkeypatch.setattr("tailbatch.estimator.fitting.make_selector", noted)
    X, Y = rows(60)
    TailbatchClassifier(model, "minority", epochs=epochs, random_state=0).fit(X, Y)
    assert seen["warm_up_epochs"] == warm_up
