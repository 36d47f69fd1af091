"""Cross-fitting: every row trains, every row has an honest score, and these decide."""

import logging

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from torch import nn

from tailbatch.errors import DataError, TrainingError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.metrics import average_precision_by_label
from tailbatch.metrics.held_out import thresholds_for
from tailbatch.models import CrossFitted
from tailbatch.training import Callback

FAST = {"random_state": 0, "batch_size": 32, "plan__steps": 30, "model__hidden": 16}


def rows(n=150, d=6, q=3, seed=0):
    X = np.random.default_rng(seed).random((n, d))
    return X, X[:, :q] > [0.5, 0.8, 0.9][:q]


@pytest.fixture(scope="module")
def fitted():
    return TailbatchClassifier(**FAST).fit(*rows())


def test_each_row_is_scored_by_members_that_have_not_seen_it():
    # Labels of pure chance: scores of members that had seen them would rank them far above chance.
    rng = np.random.default_rng(0)
    X, Y = rng.random((200, 30)), rng.random((200, 4)) < 0.3
    fast = {**FAST, "plan__steps": 400, "model__dropout": 0.0, "model__input_dropout": 0.0}
    classifier = TailbatchClassifier(**fast).fit(X, Y)
    seen = np.nanmean(average_precision_by_label(Y, classifier.predict_proba(X)))
    held_out = np.nanmean(average_precision_by_label(Y, classifier.oof_scores_))
    assert seen > 0.8
    assert held_out < 0.42


@pytest.mark.parametrize("model", ["ensemble", "mlp"])
def test_changing_labels_of_one_part_changes_no_score_of_it(model):
    X, Y = rows()
    settings = {**FAST, "model": model, "model__hidden": 8 if model == "ensemble" else (8,)}
    settings |= {"plan__best_by": "macro_auc", "cross_fit": 3, "model__prior_bias": False}
    if model == "ensemble":  # the bias starts at the frequencies in all rows
        settings["scale"] = "minmax"
    logits = []
    groups = np.arange(150) % 3  # as many groups as parts, so a part is a group
    for flipped in (False, True):
        labels = Y.copy()
        labels[groups == 1] ^= flipped
        kept = []

        class Keep(Callback):
            pass

        classifier = TailbatchClassifier(**settings, callbacks=(Keep(),))
        classifier.fit(X, labels, groups=groups)
        scores = classifier.calibration_
        raw = np.log(classifier.oof_scores_ / (1 - classifier.oof_scores_))
        kept.append((raw - scores.offsets) / scores.slope)
        logits.append(kept[0])
    own = groups == 1
    if model == "ensemble":
        assert logits[0][own] == pytest.approx(logits[1][own], abs=1e-4)
    assert not np.allclose(logits[0][~own], logits[1][~own], atol=1e-2)


def test_thresholds_are_tuned_on_all_held_out_scores(fitted):
    X, Y = rows()
    assert fitted.oof_scores_.shape == Y.shape
    assert fitted.thresholds_ == pytest.approx(thresholds_for(Y, fitted.oof_scores_))
    assert np.array_equal(fitted.predict(X), fitted.predict_proba(X) > fitted.thresholds_)
    assert fitted.facts_["parts"] == 5
    assert fitted.facts_["held_out_rows"] == 150


def test_objectives_differ_by_label():
    X, Y = rows()
    names = ["often", "rare", "rarer"]
    classifier = TailbatchClassifier(
        **FAST, label_names=names, objective={"rare": "recall>=0.8", "rarer": "precision>=0.9"}
    ).fit(X, Y)
    found = classifier.oof_scores_ > classifier.thresholds_
    expected = [
        thresholds_for(Y, classifier.oof_scores_, objective)[label]
        for label, objective in enumerate(["f1", "recall>=0.8", "precision>=0.9"])
    ]
    assert classifier.thresholds_ == pytest.approx(expected)
    assert (found & Y).sum(axis=0)[1] >= 0.7 * Y[:, 1].sum()


def test_rows_of_a_group_are_held_out_together():
    # Twins share their labels by chance and nothing else tells them: only a leak finds them.
    rng = np.random.default_rng(0)
    half, labels = rng.random((80, 40)), rng.random((80, 3)) < 0.3
    X, Y, twins = np.repeat(half, 2, axis=0), np.repeat(labels, 2, axis=0), np.repeat(range(80), 2)
    settings = {**FAST, "plan__steps": 300, "model__dropout": 0.0, "model__input_dropout": 0.0}
    kept = TailbatchClassifier(**settings).fit(X, Y, groups=twins)
    torn = TailbatchClassifier(**settings).fit(X, Y)
    score = [np.nanmean(average_precision_by_label(Y, c.oof_scores_)) for c in (kept, torn)]
    assert score[0] < 0.5 < 0.7 < score[1]
    split = TailbatchClassifier(**settings, validation_fraction=0.2).fit(X, Y, groups=twins)
    assert split.facts_["validation_rows"] % 2 == 0


@pytest.mark.parametrize("as_X", [sparse.csr_array, pd.DataFrame])
def test_containers_give_the_same_scores(fitted, as_X):
    X, Y = rows()
    names = {"columns": [f"c{i}" for i in range(6)]} if as_X is pd.DataFrame else {}
    again = TailbatchClassifier(**FAST).fit(as_X(X, **names), Y)
    assert again.oof_scores_ == pytest.approx(fitted.oof_scores_, abs=1e-6)


@pytest.mark.parametrize("strategy", ["importance", "balanced", "minority", "adaptive", "chain"])
def test_strategies_weights_and_missing_labels_fit_together(strategy):
    X, Y = rows()
    partly = Y.astype(float)
    partly[::7, 1] = np.nan
    weight = np.random.default_rng(0).random(150) + 0.5
    classifier = TailbatchClassifier(**FAST, strategy=strategy, missing_labels="mask")
    classifier.fit(X, partly, sample_weight=weight)
    assert np.isfinite(classifier.oof_scores_).all()
    known = ~np.isnan(partly)
    expected = thresholds_for(Y & known, np.where(known, classifier.oof_scores_, 0))
    assert classifier.thresholds_ == pytest.approx(expected)


def test_a_saved_classifier_predicts_the_same_and_keeps_no_rows(fitted, tmp_path):
    X, _ = rows()
    fitted.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert not hasattr(again, "oof_scores_")
    card = (tmp_path / "README.md").read_text()
    assert "each held out from a part of the members" in card
    assert "tuned for f1 on 150 held-out rows" in card


class Net(nn.Sequential):
    def __init__(self, n_features, n_labels):
        super().__init__(nn.Linear(n_features, 8), nn.ReLU(), nn.Linear(8, n_labels))


@pytest.mark.parametrize("model", ["clif", Net])
def test_other_models_are_fitted_once_for_each_part(model, tmp_path):
    X, Y = rows()
    classifier = TailbatchClassifier(
        model=model, cross_fit=3, epochs=3, batch_size=32, random_state=0, loss="weighted_bce"
    ).fit(X, Y)
    assert isinstance(classifier.model_, CrossFitted)
    assert len(classifier.model_.fits) == 3
    assert classifier.oof_scores_.shape == Y.shape
    classifier.save(tmp_path)
    own = {} if isinstance(model, str) else {"model": model}
    again = TailbatchClassifier.load(tmp_path, **own)
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_a_stopped_training_resumes_to_the_same_scores(fitted, tmp_path):
    X, Y = rows()

    class Stop(Callback):
        def on_epoch(self, epoch):
            if epoch.number == 4:
                raise KeyboardInterrupt

    settings = {**FAST, "checkpoint_folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        TailbatchClassifier(**settings, callbacks=(Stop(),)).fit(X, Y)
    again = TailbatchClassifier(**settings).fit(X, Y)
    assert np.array_equal(again.oof_scores_, fitted.oof_scores_)


def test_warm_start_continues_with_the_same_parts(caplog):
    rng = np.random.default_rng(0)
    X, Y = rng.random((200, 30)), rng.random((200, 4)) < 0.3
    fast = {**FAST, "plan__steps": 200, "model__dropout": 0.0, "model__input_dropout": 0.0}
    classifier = TailbatchClassifier(**fast, warm_start=True).fit(X, Y)
    for seed in (1, None):
        classifier.set_params(random_state=seed).fit(X, Y)
        assert np.nanmean(average_precision_by_label(Y, classifier.oof_scores_)) < 0.42
    assert caplog.text == ""
    classifier.fit(X[::-1], Y[::-1])
    assert "not the rows of the former fit" in caplog.text


def test_validation_data_takes_the_place_of_parts():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST).fit(X, Y, validation_data=rows(seed=1))
    assert classifier.oof_scores_ is None
    assert classifier.facts_["validation_rows"] == 150
    assert classifier.calibration_ is not None
    with pytest.raises(DataError, match="validation_data and cross_fit=5 both hold out rows"):
        TailbatchClassifier(**FAST, cross_fit=5).fit(X, Y, validation_data=(X, Y))


def test_costs_and_two_classes_keep_their_own_thresholds():
    X, Y = rows()
    assert TailbatchClassifier(**FAST).fit(X, Y[:, 1]).thresholds_.tolist() == [0.5]
    costs = TailbatchClassifier(**FAST, class_weight={1: 3}).fit(X, Y)
    assert costs.thresholds_ == pytest.approx([0.5, 0.25, 0.5])
    assert TailbatchClassifier(**FAST, thresholds=0.3).fit(X, Y).thresholds_.tolist() == [0.3] * 3


# ---- bad input ---------------------------------------------------------------------------------


def test_few_rows_and_groups_make_fewer_parts():
    X, Y = rows()
    assert TailbatchClassifier(**FAST).fit(X[:3], Y[:3]).facts_["parts"] == 3
    groups = np.arange(150) % 2
    assert TailbatchClassifier(**FAST).fit(X, Y, groups=groups).facts_["parts"] == 2
    with pytest.raises(DataError, match="2 groups cannot be dealt to 4 parts"):
        TailbatchClassifier(**FAST, cross_fit=4).fit(X, Y, groups=groups)
    with pytest.raises(DataError, match="groups must name a group for each of the 150 rows"):
        TailbatchClassifier(**FAST).fit(X, Y, groups=groups[:9])


def test_a_label_with_one_positive_takes_the_common_threshold_and_is_named(caplog):
    X, Y = rows()
    Y = np.column_stack([Y, np.arange(150) == 7])
    with caplog.at_level(logging.WARNING, "tailbatch"):
        classifier = TailbatchClassifier(**FAST).fit(X, Y)
    without = Y.copy()
    without[7, 3] = False
    assert classifier.thresholds_ == pytest.approx(thresholds_for(without, classifier.oof_scores_))
    assert "1 label has a single positive" in caplog.text
    assert "'label_3'" in caplog.text


def test_a_label_that_is_missing_everywhere_is_no_error():
    X, Y = rows()
    unknown = np.column_stack([Y, np.full(150, np.nan)]).astype(float)
    classifier = TailbatchClassifier(**FAST, missing_labels="mask").fit(X, unknown)
    assert np.isfinite(classifier.predict_proba(X)).all()
    with pytest.raises(DataError, match="every label of the training rows is missing"):
        TailbatchClassifier(**FAST, missing_labels="mask").fit(X, np.full((150, 2), np.nan))


def test_no_time_leaves_the_former_model():
    X, Y = rows()
    classifier = TailbatchClassifier(**FAST).fit(X, Y)
    before = classifier.predict_proba(X)
    with pytest.raises(TrainingError, match="time_limit ended the training after 1 of at least 5"):
        classifier.set_params(time_limit=1e-6).fit(X, Y)
    assert np.array_equal(classifier.predict_proba(X), before)
    classifier.set_params(time_limit=1000).fit(X, Y)
    assert np.array_equal(classifier.predict_proba(X), before)
