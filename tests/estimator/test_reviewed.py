"""Reviewed rows: trained on, and measured only where they were drawn at random."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tailbatch.errors import DataError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.metrics import average_precision_by_label, expected_calibration_error
from tailbatch.metrics.held_out import thresholds_for

FAST = {"random_state": 0, "batch_size": 32, "plan__steps": 40, "model__hidden": 16}


def rows(n, seed=0):
    X = np.random.default_rng(seed).random((n, 5))
    return X, (X[:, :2] > [0.5, 0.8]).astype(float)


def reviewed(n=60, seed=1):
    """Rows that were picked: the second label only, and nearly always there."""
    X, Y = rows(n, seed)
    X[: n - 10, 1] = 0.7 + 0.3 * X[: n - 10, 1]
    Y[:, 1] = X[:, 1] > 0.8
    Y[:, 0] = np.nan
    return X, Y, np.where(np.arange(n) < n - 10, "suggested", "random")


@pytest.fixture(scope="module")
def fitted():
    X, Y, origin = reviewed()
    return TailbatchClassifier(**FAST).fit(*rows(150), X_reviewed=X, Y_reviewed=Y, origin=origin)


def random_cells():
    """All labels, and which of them are known and drawn at random."""
    (_, Y), (_, more, origin) = rows(150), reviewed()
    every = np.concatenate([Y, more])
    at_random = np.concatenate([np.ones(150, bool), origin == "random"])
    return every, ~np.isnan(every) & at_random[:, None]


def test_metrics_are_those_of_the_random_rows(fitted):
    Y, counted = random_cells()
    table = fitted.facts_["by_label"]
    for label in range(2):
        cells = counted[:, label]
        assert table["support"][label] == Y[cells, label].sum()
        expected = average_precision_by_label(
            Y[cells, label : label + 1] > 0, fitted.oof_scores_[cells, label : label + 1]
        )
        assert table["average_precision"][label] == pytest.approx(expected[0])
    assert fitted.facts_["positives"][1] == np.nansum(Y[:, 1]), "all are trained on"


def test_thresholds_are_tuned_on_the_random_rows(fitted):
    Y, counted = random_cells()
    expected = thresholds_for(counted & (Y > 0), np.where(counted, fitted.oof_scores_, 0))
    assert fitted.thresholds_ == pytest.approx(expected)


def test_suggested_rows_are_no_validation_rows():
    X, Y, origin = reviewed()
    classifier = TailbatchClassifier(**FAST, validation_fraction=0.3)
    classifier.fit(*rows(150), X_reviewed=X, Y_reviewed=Y, origin=origin)
    assert classifier.facts_["validation_rows"] == round(0.3 * 160)
    support = classifier.facts_["by_label"]["support"]
    assert support[1] < 0.5 * classifier.facts_["validation_rows"]
    assert classifier.facts_["suggested_rows"] == 50


@pytest.mark.parametrize("model", ["mlp", "ensemble"])
def test_each_way_of_holding_rows_out_takes_them(model):
    X, Y, origin = reviewed()
    settings = {**FAST, "model": model, "cross_fit": 2, "plan__steps": 6}
    if model == "mlp":
        settings["model__hidden"] = (8,)
    classifier = TailbatchClassifier(**settings)
    classifier.fit(*rows(150), X_reviewed=X, Y_reviewed=Y, origin=origin)
    assert sum(classifier.facts_["by_label"]["support"]) < sum(classifier.facts_["positives"])


def test_rows_of_one_table_are_the_same(fitted):
    (X, Y), (more, answers, origin) = rows(150), reviewed()
    whole = TailbatchClassifier(**FAST, missing_labels="mask").fit(
        np.concatenate([X, more]), np.concatenate([Y, answers]),
        origin=np.concatenate([["random"] * 150, origin]),
    )  # fmt: skip
    assert np.array_equal(whole.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(whole.thresholds_, fitted.thresholds_)


@pytest.mark.parametrize("container", [sparse.csr_array, pd.DataFrame])
def test_reviewed_rows_come_in_any_container(container):
    X, Y, _ = reviewed()
    kind = TailbatchClassifier(**{**FAST, "plan__steps": 4})
    first, labels = rows(150)
    kind.fit(container(first), labels, X_reviewed=container(X), Y_reviewed=Y)
    assert kind.facts_["suggested_rows"] == 60


def test_the_flag_is_saved_and_told(fitted, tmp_path, card_of):
    fitted.save(tmp_path)
    facts = TailbatchClassifier.load(tmp_path).facts_
    assert (facts["suggested_rows"], facts["held_out_rows"]) == (50, 160)
    assert "50 of the training rows were suggested for review by a model" in card_of(fitted)
    plain = TailbatchClassifier(**{**FAST, "plan__steps": 4}).fit(*rows(60))
    assert plain.facts_["suggested_rows"] == 0
    assert "suggested" not in card_of(plain)


def test_without_origin_all_reviewed_rows_were_suggested():
    X, Y, _ = reviewed()
    classifier = TailbatchClassifier(**{**FAST, "plan__steps": 4})
    assert classifier.fit(*rows(60), X_reviewed=X, Y_reviewed=Y).facts_["suggested_rows"] == 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X_reviewed": np.ones((2, 5))}, "X_reviewed and Y_reviewed belong together"),
        ({"X_reviewed": np.ones((2, 5)), "Y_reviewed": np.ones((3, 2))}, "X_reviewed has 2 rows"),
        ({"X_reviewed": np.ones((2, 5)), "Y_reviewed": np.ones((2, 3))}, "the columns of Y"),
        ({"origin": ["chosen"] * 60}, "origin must be 'random' or 'suggested', got 'chosen'"),
        ({"origin": ["random"] * 59}, "for each of 60 rows"),
    ],
)
def test_what_does_not_fit_together(given, message):
    with pytest.raises(DataError, match=message):
        TailbatchClassifier(**FAST).fit(*rows(60), **given)


# ---- three rounds --------------------------------------------------------------------------------


def world(n, seed):
    """A common label and one on 2.5% of the rows, which no linear model knows exactly."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 6))
    rare = 1 / (1 + np.exp(-(8 * X[:, 0] + 6 * np.sin(6 * X[:, 1]) - 13.5)))
    return X, np.column_stack([X[:, 2] > 0.5, rng.random(n) < rare]).astype(float)


def test_probabilities_stay_calibrated_after_three_rounds():
    settings = {"random_state": 0, "plan__steps": 250, "model__hidden": 32}
    (X, Y), (pool, truth), (fresh, answers) = world(400, 1), world(3000, 2), world(6000, 3)
    classifier = TailbatchClassifier(**settings).fit(X, Y)
    known, random = np.zeros(truth.shape, bool), np.zeros(len(pool), bool)
    for _ in range(3):
        chosen = classifier.suggest(pool, 100, labels=[1], reviewed=known)
        known[chosen.rows, 1] = True
        random[chosen.rows] = chosen.is_random
        picked = np.flatnonzero(known[:, 1])
        review = {"X_reviewed": pool[picked], "Y_reviewed": np.where(known, truth, np.nan)[picked]}
        classifier = TailbatchClassifier(**settings).fit(X, Y, **review, origin=random[picked])
    found = truth[picked, 1].mean()
    assert found > 3 * truth[:, 1].mean(), "the reviewed rows are no random sample"

    def error(model):
        return expected_calibration_error(answers[:, 1:] > 0, model.predict_proba(fresh)[:, 1:])

    at_random = TailbatchClassifier(**settings).fit(
        np.concatenate([X, pool[:300]]), np.concatenate([Y, truth[:300]])
    )
    assert error(classifier) < error(at_random) + 0.01
    assert classifier.facts_["by_label"]["support"][1] < 60
