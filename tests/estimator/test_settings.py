"""Names of settings: nested ones, and suggestions for those there are not."""

import re

import pytest
from sklearn.base import clone

from tailbatch.errors import TrainingError
from tailbatch.estimator import TailbatchClassifier


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


def test_every_suggestion_is_a_setting():
    from tailbatch.estimator.settings import _ELSEWHERE

    for right in set(_ELSEWHERE.values()):
        TailbatchClassifier(**{right: None})
        if right.startswith("plan__"):
            from tailbatch.estimator.settings import check_plan_fields

            check_plan_fields([right.removeprefix("plan__")])


def test_settings_are_read_changed_and_cloned():
    classifier = TailbatchClassifier(model__hidden=(4,), plan__ema=0.9)
    classifier.set_params(model__hidden=(8,), epochs=3)
    params = clone(classifier).get_params()
    assert params["model__hidden"] == (8,)
    assert params["plan__ema"] == 0.9
    assert params["epochs"] == 3


def test_an_unknown_field_of_the_plan_is_named():
    with pytest.raises(TrainingError, match="no field 'stepps'; did you mean 'steps'"):
        TailbatchClassifier(plan__stepps=3).fit([[0.0], [1.0]], [[0], [1]])
