"""What the model card tells about a fitted classifier."""

import numpy as np

from tailbatch.estimator import TailbatchClassifier
from tailbatch.imbalance import mean_imbalance_ratio, rare_labels


def fitted(**settings):
    X = np.random.default_rng(0).random((120, 4))
    Y = X[:, :3] > [0.1, 0.5, 0.9]
    classifier = TailbatchClassifier(
        random_state=0, plan__steps=4, label_names=["often", "half", "rare"], **settings
    )
    return classifier.fit(X, Y, validation_data=(X, Y)), Y


def test_settings_are_those_used(tmp_path, card_of):
    classifier, _ = fitted()
    card = card_of(classifier)
    for line in ("lr: `0.01`", "weight_decay: `0.03`", "warm_up_epochs: `0`", "epochs: `4`",
                 "scale: `standard`", "loss: `the model's own`", "plan__schedule: `cosine`"):  # fmt: skip
        assert f"\n- {line}\n" in card
    assert "`None`" not in card
    assert "lr: `0.5`" in card_of(fitted(lr=0.5)[0])
    assert "scale: `standard`" in card_of(fitted(scale="auto")[0])
    assert "scale: `False`" in card_of(fitted(scale=False)[0])
    classifier.save(tmp_path)
    again = card_of(TailbatchClassifier.load(tmp_path))
    assert again == card.replace("- random_state: `0`\n", "")


def test_the_data_are_described_and_rare_labels_are_marked(card_of):
    classifier, Y = fitted()
    card = card_of(classifier)
    assert f"- {Y.sum(axis=1).mean():.2f} labels a row on average (label cardinality)" in card
    assert f"- mean imbalance ratio (MeanIR) {mean_imbalance_ratio(Y):.1f}: " in card
    assert rare_labels(Y).tolist() == [False, False, True]
    assert "; 1 label is rare: fewer rows than the geometric mean and the median" in card
    assert f"| rare | yes | {Y[:, 2].sum()} |" in card
    assert f"| often |  | {Y[:, 0].sum()} |" in card


def test_a_tag_on_one_row_decides_nothing(card_of):
    X = np.random.default_rng(0).random((2500, 3))
    order = np.argsort(X[:, 0])
    Y = np.zeros((2500, 6), dtype=bool)
    for label, count in enumerate((1200, 900, 52, 27, 14, 1)):
        Y[order[:count], label] = True
    classifier = TailbatchClassifier(random_state=0, plan__steps=2, model="mlp").fit(X, Y)
    assert classifier.minority_labels_.tolist() == [False, False, False, True, True, False]
    card = card_of(classifier)
    assert "nan" not in card
    assert "- Minority average precision: " in card


def test_a_metric_without_a_value_is_not_on_the_card(card_of):
    X = np.random.default_rng(0).random((60, 3))
    card = card_of(TailbatchClassifier(random_state=0, plan__steps=2).fit(X, X > 0.5))
    assert "nan" not in card
