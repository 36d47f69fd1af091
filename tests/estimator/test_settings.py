"""Names of settings: nested ones, and suggestions for those there are not."""

import re

import numpy as np
import pytest
from sklearn.base import clone

from tailbatch.errors import DataError, ModelError, SettingError, TrainingError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.training import Callback

X = np.random.default_rng(0).random((40, 2))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("learning_rate", "lr"),
        ("max_epochs", "epochs"),
        ("epoch", "epochs"),
        ("patience", "plan__early_stopping"),
        ("early_stopping", "plan__early_stopping"),
        ("ema", "plan__ema"),
        ("dropout", "model__dropout"),
        ("hidden_layer_sizes", "model__hidden"),
        ("threshold", "thresholds"),
        ("seed", "random_state"),
        ("class_weights", "class_weight"),
        ("monitor", "plan__best_by"),
        ("lr_schedule", "plan__schedule"),
        ("sampler", "strategy"),
        ("validation_split", "validation_fraction"),
    ],
)
def test_a_wrong_name_suggests_the_right_one(wrong, right):
    message = re.escape(f"TailbatchClassifier has no setting {wrong!r}; did you mean {right!r}?")
    with pytest.raises(TypeError, match=message):
        TailbatchClassifier(**{wrong: 1})
    with pytest.raises(ValueError, match=message):
        TailbatchClassifier().set_params(**{wrong: 1})


def test_a_name_like_no_other_gets_no_suggestion():
    with pytest.raises(TypeError, match=r"no setting 'zzz'\. Nested settings begin with model__"):
        TailbatchClassifier(zzz=1)


def test_settings_are_read_changed_and_cloned():
    classifier = TailbatchClassifier(model__hidden=(4,), plan__ema=0.9)
    classifier.set_params(model__hidden=(8,), epochs=3)
    params = clone(classifier).get_params()
    assert params["model__hidden"] == (8,)
    assert params["plan__ema"] == 0.9
    assert params["epochs"] == 3


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"plan__ema": "x"}, TrainingError, "does not fit: ema must be a number, got 'x'"),
        ({"epochs": "ten"}, TrainingError, "does not fit: epochs must be a number, got 'ten'"),
        ({"lr": [0.1]}, TrainingError, r"does not fit: lr must be a number, got \[0\.1\]"),
        (
            {"plan__best_by": "macro_averge_precision", "verbose": 1},
            TrainingError,
            "plan__best_by 'macro_averge_precision'; did you mean 'macro_average_precision'",
        ),
        ({"plan__best_by": ["macro_auc"]}, TrainingError, "unknown plan__best_by"),
        (
            {"plan__early_stopping": 3, "validation_fraction": 0, "cross_fit": 0},
            DataError,
            "plan__early_stopping=3 needs validation rows: set validation_fraction above 0",
        ),
        (
            {"thresholds": "tuned", "validation_fraction": 0, "cross_fit": 0},
            DataError,
            'thresholds="tuned" needs validation rows: set validation_fraction above 0',
        ),
        ({"thresholds": [0.5] * 6}, ModelError, "one probability for each of 2 labels, got 6"),
        ({"thresholds": [0.5, 1.0]}, ModelError, "a probability between 0 and 1"),
        ({"thresholds": ["a", "b"]}, ModelError, "a probability between 0 and 1"),
        ({"objective": "precision>=2"}, DataError, 'must be "f1", or a level between 0 and 1'),
        ({"objective": {"bgu": "f1"}}, DataError, "objective: unknown label 'bgu'"),
        ({"objective": ["f1"]}, DataError, "one entry for each of 2 labels, got 1"),
        ({"objective": "recall>=0.8", "thresholds": 0.5}, DataError, "leave thresholds out"),
        ({"cross_fit": 1}, DataError, "cross_fit=1 would hold out every row: choose 0"),
        ({"cross_fit": -1}, SettingError, "cross_fit must be"),
        ({"cross_fit": 41}, DataError, "cross_fit=41 needs as many rows, and there are 40"),
        ({"cross_fit": 5, "validation_fraction": 0.2}, DataError, "both hold out rows"),
        ({"model__parts": 3}, TrainingError, "model__parts is the setting cross_fit"),
        ({"time_limit": 0}, SettingError, "time_limit must be a number above 0"),
    ],
)
def test_a_setting_that_cannot_be_is_named_before_training(settings, error, message):
    class Never(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            raise AssertionError

    with pytest.raises(error, match=message):
        TailbatchClassifier(**settings, callbacks=(Never(),)).fit(X, X > 0.5)


def test_early_stopping_takes_validation_rows_of_its_own():
    classifier = TailbatchClassifier(epochs=2, plan__early_stopping=1, validation_fraction=0)
    classifier.fit(X, X > 0.5, validation_data=(X, X > 0.5))
    assert len(classifier.history_) <= 2


@pytest.mark.parametrize("kind", [list, tuple, np.asarray])
def test_every_label_may_have_its_threshold(kind, tmp_path):
    classifier = TailbatchClassifier(epochs=2, thresholds=kind([0.2, 0.6]), random_state=0)
    clone(classifier).fit(X, X > 0.5).save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert again.thresholds_.tolist() == [0.2, 0.6]
    assert np.array_equal(again.predict(X), again.predict_proba(X) > [0.2, 0.6])
    costly = classifier.set_params(class_weight=[1.0, 3.0]).fit(X, X > 0.5)
    assert costly.thresholds_.tolist() == pytest.approx([0.2, 1 / 3])


def test_an_unknown_field_of_the_plan_is_named():
    with pytest.raises(TrainingError, match="no field 'stepps'; did you mean 'steps'"):
        TailbatchClassifier(plan__stepps=3).fit([[0.0], [1.0]], [[0], [1]])
