"""The doors of the estimator: names of arguments, one home for each setting, what is said of labels."""

import numpy as np
import pandas as pd
import pytest

from tailbatch import TailbatchClassifier
from tailbatch.errors import TrainingError

X = np.random.default_rng(0).random((120, 3))
Y = X > [0.3, 0.5, 0.8]


def made(**settings):
    return TailbatchClassifier(random_state=0, **({"plan__steps": 3} | settings))


def test_labels_may_be_given_by_keyword():
    by_place, by_keyword = made().fit(X, Y), made().fit(X=X, y=Y)
    assert np.array_equal(by_place.predict_proba(X), by_keyword.predict_proba(X))


@pytest.mark.parametrize("name", ["batch_size", "epochs", "lr", "weight_decay", "warm_up_epochs"])
def test_a_setting_has_one_home(name):
    with pytest.raises(TrainingError, match=f"plan__{name} is the setting {name}: write {name}="):
        made(**{f"plan__{name}": 2}).fit(X, Y)


def test_the_selector_draws_batches_of_the_plan():
    classifier = made(batch_size=16, plan__steps=14).fit(X, Y)
    assert classifier.history_[0].steps == 8  # of all 120 rows
    split = made(batch_size=16, plan__steps=14, validation_fraction=0.1).fit(X, Y)
    assert split.history_[0].steps == 7  # of 108 training rows


def test_a_frame_names_the_columns_that_went_in(tmp_path):
    frame = pd.DataFrame(X, columns=["length", "width", "height"])
    frame["color"] = np.where(X[:, 0] > 0.5, "red", "blue")
    classifier = made().fit(frame, Y)
    assert classifier.feature_names_in_.tolist() == ["length", "width", "height", "color"]
    assert classifier.n_features_in_ == 4
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    assert again.feature_names_in_.tolist() == classifier.feature_names_in_.tolist()
    assert again.n_features_in_ == 4
    assert np.array_equal(again.predict_proba(frame), classifier.predict_proba(frame))


def test_a_label_without_positives_is_named_once(caplog):
    labels = pd.DataFrame(Y, columns=["often", "half", "rare"]).assign(never=False)
    made(
        model="mlp", loss="distribution_balanced", strategy="hard", selection_pressure="auto",
        model__prior_bias=True,
    ).fit(X, labels)  # fmt: skip
    said = [record.getMessage() for record in caplog.records if "no positive" in record.message]
    assert said == [
        "1 of 4 labels have no positive in the training rows, so nothing can be learned of them, "
        "among them 'never'"
    ]


def test_no_name_reaches_the_card_as_markup(card_of):
    evil = ["<script>alert(1)</script>", "a|b\x1b[31m", "*x* [y](z) \u202etxt"]
    frame = pd.DataFrame(X, columns=["<img src=x>", "b`c", "d"])
    frame["text\x1b[2J"] = np.where(X[:, 0] > 0.5, "red", "blue")
    classifier = made(label_names=evil).fit(frame, Y)
    classifier.set_params(model__note="`<b>")
    card = card_of(classifier)
    for raw in ("<script", "\x1b", "<img", "\u202e", "[y](z)", "*x*", "`<b>"):
        assert raw not in card
    assert r"\*x\* \[y\](z) \\u202etxt" in card
    assert "&lt;script>alert(1)&lt;/script>" in card
