"""The front door: names, label matrices of every kind, weights and warm-up."""

import inspect
import logging

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from tailbatch.cli.models import _fit as fit
from tailbatch.defaults import STRATEGY
from tailbatch.errors import SelectionError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.imbalance import selection_weights
from tailbatch.selection import (
    STRATEGIES,
    Geometric,
    HardSelector,
    LossDrivenSelector,
    RandomSelector,
    RankLaw,
    Selector,
    default_pressure,
    make_selector,
    register_strategy,
    strategy_place,
)
from tailbatch.selection.base import label_matrix
from tailbatch.testing.selector_contract import _drain

RNG = np.random.default_rng(0)
Y = RNG.random((40, 6)) < [0.6, 0.4, 0.3, 0.2, 0.1, 0.05]
X = RNG.random((40, 3))
Y[:3, 5] = True  # a rare label whose rows are neighbors: they get weights above 1
X[:3] = 0.5 + RNG.random((3, 3)) / 1000


def per_label(index, step):
    """Losses any strategy can use; a function of sample and step."""
    return (index[:, None] * 7 + np.arange(6) + step) % 13 / 13


def samples(batches):
    """All samples of some batches, ascending."""
    return sorted(sample for batch in batches for sample in batch)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_starts_with_the_same_warm_up(strategy):
    def batches(strategy, **settings):
        selector = make_selector(
            strategy, Y, X=X, batch_size=8, warm_up_epochs=3, epochs=5, **settings
        )
        assert selector.strategy == strategy
        return _drain(selector, per_label, epochs=5)

    plain, own = batches("random"), batches(strategy)
    warm_up = 3 * 5
    assert own[:warm_up] == plain[:warm_up]
    for epoch in range(3):
        assert samples(own[epoch * 5 : epoch * 5 + 5]) == list(range(40))
    assert own[:5] != own[5:10]
    if strategy != "random":
        assert own[warm_up:] != plain[warm_up:]
        assert samples(own[warm_up : warm_up + 5]) != list(range(40))


def test_losses_of_the_warm_up_count():
    selector = make_selector("hard", Y, batch_size=8, warm_up_epochs=1)
    assert selector.diagnostics().effective_pressure == 1
    _drain(selector, lambda index, step: index / 40)
    assert selector.probabilities().argsort().tolist() == list(range(40))


@pytest.mark.parametrize(
    "labels",
    [
        Y,
        Y.astype(int),
        Y.astype(np.float32),
        Y.tolist(),
        sparse.csr_matrix(Y),
        sparse.coo_array(Y.astype(np.int8)),
        pd.DataFrame(Y.astype(int)),
        torch.tensor(Y),
        torch.tensor(Y.astype(np.float32), requires_grad=True),
    ],
    ids=lambda labels: f"{type(labels).__name__}-{getattr(labels, 'dtype', '')}",
)
@pytest.mark.parametrize("strategy", ["balanced", "chain", "minority"])
def test_label_matrices_of_every_kind_are_the_same(strategy, labels):
    def batches(Y):
        selector = make_selector(strategy, Y, X=X, batch_size=8)
        return _drain(selector, per_label, epochs=4)

    assert batches(labels) == batches(Y)


def test_a_callers_sparse_matrix_keeps_its_stored_zeros():
    stored = sparse.csr_array(
        (np.array([1, 0]), (np.array([0, 1]), np.array([0, 0]))), shape=(2, 2)
    )
    assert label_matrix(stored).nnz == 1
    assert stored.nnz == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((0, 3)), "at least one row and one column"),
        (np.zeros((3, 0)), "at least one row and one column"),
        ([1, 0, 1], r"must be a label matrix \(n_samples, n_labels\)"),
        ([[1, 2]], "labels must be 0 or 1, got 2 in row 0, label column 1"),
        (sparse.csr_array([[0.5, 0]]), "labels must be 0 or 1, got 0.5 in row 0, label column 0"),
        ([[1, float("nan")]], "labels must be 0 or 1, got nan in row 0, label column 1"),
    ],
)
def test_unusable_labels_say_so(labels, message):
    with pytest.raises(SelectionError, match=message):
        make_selector("random", labels)


def test_weights_come_from_the_features():
    selector = make_selector("adaptive", Y, X=X)
    expected = selection_weights(X, Y)
    assert (expected > 1).any()
    assert np.array_equal(selector._score.weights, expected)
    for features in (X.tolist(), torch.tensor(X), sparse.csr_array(X)):
        other = make_selector("chain", Y, X=features)
        np.testing.assert_allclose(other._score.weights, expected)


def test_weights_can_be_left_out(caplog):
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        make_selector("adaptive", Y, X=X)
        make_selector("adaptive", Y, weights=1.0)
        make_selector("hard", Y)
        assert not caplog.records
        without = make_selector("adaptive", Y)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no features X were given: the imbalance weights are 1" in caplog.text
    assert without._score.weights == 1


def test_names_are_suggested():
    with pytest.raises(SelectionError, match="unknown strategy 'adaptve'; did you mean 'adaptive'"):
        make_selector("adaptve", Y)
    with pytest.raises(SelectionError, match=r"unknown strategy 'zzz'\. Known: random, uniform"):
        make_selector("zzz", Y)
    with pytest.raises(SelectionError, match="option of hard 'max_lags'; did you mean 'max_lag'"):
        make_selector("hard", Y, max_lags=2)
    with pytest.raises(SelectionError, match="unknown option of random 'full_batches'"):
        make_selector("random", Y, full_batches=True)


def test_without_a_name_the_estimator_and_the_command_take_the_recommended_strategy():
    command = inspect.signature(fit).parameters["strategy"].default
    assert TailbatchClassifier().strategy == command == STRATEGY


@pytest.mark.parametrize("arguments", [(), (Y,), ("hard",)])
def test_strategy_and_labels_are_required(arguments):
    with pytest.raises(TypeError, match=r"missing .* required positional argument"):
        make_selector(*arguments)


def test_labels_and_name_in_the_wrong_place_say_where_they_go():
    message = r'got ndarray: make_selector\("minority", labels\)'
    with pytest.raises(SelectionError, match=message):
        make_selector(Y, "hard")


def test_rows_must_match():
    with pytest.raises(SelectionError, match="X has 3 rows and Y has 40"):
        make_selector("adaptive", Y, X=X[:3])


def test_annealing_counts_from_the_end_of_the_warm_up():
    annealed = Geometric(64, 1)
    selector = make_selector("minority", Y, selection_pressure=annealed, epochs=5, warm_up_epochs=2)
    assert [selector._pressure(epoch) for epoch in range(3)] == pytest.approx([64, 8, 1])
    with pytest.raises(SelectionError, match="give epochs="):
        make_selector("minority", Y, selection_pressure=annealed)
    short = make_selector("adaptive", Y, weights=1, selection_pressure=Geometric(64, 1), epochs=2)
    _drain(short, per_label, epochs=2)


@pytest.mark.parametrize("strategy", ["hard", "adaptive", "chain", "minority"])
def test_a_pressure_below_one_is_an_error(strategy):
    with pytest.raises(
        SelectionError, match=r"selection_pressure must be finite and >= 1, got 0\.5"
    ):
        make_selector(strategy, Y, X=X, selection_pressure=0.5)


@pytest.mark.parametrize("strategy", ["hard", "adaptive", "chain", "minority"])
def test_a_pressure_can_follow_the_imbalance_of_the_labels(strategy):
    skewed = np.zeros((900, 3), dtype=bool)
    skewed[:, 0], skewed[:30, 1], skewed[:9, 2] = True, True, True  # IRLbl 1, 30, 100: 43.7
    for labels, expected in ((skewed, 131 / 3), (skewed[:, [0, 0]], 1), (skewed[:, [0, 2, 2]], 64)):
        made = make_selector(strategy, labels, selection_pressure="imbalance")
        assert made._pressure(0) == pytest.approx(expected)


def test_without_a_positive_the_imbalance_is_none():
    made = make_selector("minority", np.zeros((5, 2), dtype=bool), batch_size=5)
    assert made._pressure(0) == 1


def test_a_word_that_is_no_pressure_is_refused():
    with pytest.raises(SelectionError, match='must be a number, a schedule or "imbalance"'):
        make_selector("hard", Y, selection_pressure="strong")


def test_a_study_gives_each_strategy_the_pressure_that_its_selector_has():
    for strategy in STRATEGIES:
        own = default_pressure(strategy)
        named = make_selector(strategy, Y, X=X, epochs=9, selection_pressure=own)
        plain = make_selector(strategy, Y, X=X, epochs=9)
        pressure = getattr(plain, "_pressure", lambda epoch: None)
        assert pressure(0) == getattr(named, "_pressure", lambda epoch: None)(0)


def test_options_reach_the_strategy():
    selector = make_selector(
        "adaptive", Y, X=X, max_lag=3, cap_quantile=0.9, initial_losses=np.ones(40), shuffle=False
    )
    assert selector.max_lag == 3
    assert selector.labels.shape == (40, 6)
    assert np.isfinite(selector._law.scores).all()
    assert next(iter(selector)).tolist() == list(range(40))


# ---- strategies of one's own ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("random", {"selection_pressure": 64}, "random has no selection_pressure: leave it out"),
        ("uniform", {"selection_pressure": 1}, "uniform has no selection_pressure"),
        ("balanced", {"selection_pressure": "imbalance"}, "balanced has no selection_pressure"),
        ("hard", {"power": 1.0}, "unknown option of hard 'power'"),
        ("random", {"weights": 1.0}, "unknown option of random 'weights'"),
    ],
)
def test_an_option_that_a_strategy_does_not_use_is_an_error(strategy, options, message):
    with pytest.raises(SelectionError, match=message):
        make_selector(strategy, Y, X=X, **options)


class WorstLabel(LossDrivenSelector):
    """Follows each sample's worst label, times the first feature; the settings are not typed."""

    strategy = "worst_label"

    def __init__(self, Y, X, *, scale=1.0, **settings):
        def worst(losses, index):
            return scale * losses.max(axis=1) * X[index, 0]

        super().__init__(len(Y), score=worst, law=RankLaw(), **settings)
        self.scale = scale


def worst_label(Y, *, X, batch_size, seed, epochs, scale=1.0, selection_pressure=8):
    return WorstLabel(
        Y,
        X,
        batch_size=batch_size,
        seed=seed,
        epochs=epochs,
        scale=scale,
        selection_pressure=selection_pressure,
    )


@pytest.mark.parametrize("strategy", [WorstLabel, worst_label])
def test_a_class_and_a_function_are_strategies(strategy):
    options = {"selection_pressure": 8, "scale": 2.0, "batch_size": 8, "seed": 3}
    selector = make_selector(strategy, Y, X=X, warm_up_epochs=1, epochs=4, **options)
    plain = make_selector("random", Y, batch_size=8, seed=3, warm_up_epochs=1)
    assert selector.strategy == "worst_label"
    assert selector.scale == 2.0
    assert selector._pressure(0) == 8
    assert _drain(selector, per_label) == _drain(plain, per_label)
    with pytest.raises(SelectionError, match=r"unknown option of .* 'scal'; did you mean 'scale'"):
        make_selector(strategy, Y, X=X, selection_pressure=8, scal=1)


def test_a_class_that_needs_features_says_so():
    assert WorstLabel.takes_features
    assert not HardSelector.takes_features
    with pytest.raises(SelectionError, match="worst_label needs the features of the training rows"):
        make_selector(WorstLabel, Y, selection_pressure=8)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda Y, **_: 3, "must return a .*Selector, got 3"),
        (lambda Y, *, batch_size: RandomSelector(5, batch_size=batch_size), "n_samples=5, not 40"),
        (lambda Y: RandomSelector(len(Y), batch_size=9), "batch_size=9, not 128: hand on"),
    ],
)
def test_what_a_function_returns_is_checked(made, message):
    with pytest.raises(SelectionError, match=message):
        make_selector(made, Y)


def test_a_function_may_choose_the_warm_up():
    def chosen(Y, *, batch_size):
        return make_selector("hard", Y, batch_size=batch_size, warm_up_epochs=5)

    assert make_selector(chosen, Y).warm_up_epochs == 5
    assert make_selector(chosen, Y, warm_up_epochs=1).warm_up_epochs == 1


def test_a_registered_class_is_found_by_name():
    try:
        assert register_strategy(WorstLabel) is WorstLabel
        assert make_selector("worst_label", Y, X=X, selection_pressure=2).strategy == "worst_label"
        assert default_pressure("worst_label") == 16
    finally:
        STRATEGIES.remove("worst_label")
    assert default_pressure("worst_label") is None
    with pytest.raises(SelectionError, match=r"a strategy is a subclass of tailbatch\.selection"):
        register_strategy(len)
    with pytest.raises(SelectionError, match="the name of a strategy must be letters"):
        register_strategy(type("Nameless", (Selector,), {}))


@pytest.mark.parametrize(("strategy", "said"), [("minority", True), ("random", False)])
def test_a_training_that_is_all_warm_up_is_announced(strategy, said, caplog):
    make_selector(strategy, [[1, 0], [0, 1], [1, 1]], warm_up_epochs=2, epochs=2)
    assert ("all 2 epochs are warm-up" in caplog.text) is said


@pytest.mark.parametrize("strategy", ["uniform", "balanced", "class_aware", "coverage"])
def test_strategies_without_losses_need_no_warm_up(strategy):
    Y = np.eye(4, dtype=bool)[np.arange(60) % 4]
    own = make_selector(strategy, Y, batch_size=8)
    plain = make_selector(strategy, Y, batch_size=8, warm_up_epochs=0)
    assert [batch.tolist() for batch in own] == [batch.tolist() for batch in plain]


# ---- how long the training is ---------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_strategies_that_follow_losses_warm_up_by_default(strategy):
    made = make_selector(strategy, Y, X=X, batch_size=8, epochs=100)
    expected = {"uncertainty": 10, "d2ace": 10}.get(strategy, 3 if made.needs_losses else 0)
    assert made.warm_up_epochs == expected


@pytest.mark.parametrize(("epochs", "expected"), [(1, 0), (3, 0), (10, 1), (29, 2), (300, 3)])
def test_at_most_a_tenth_of_the_epochs_is_warm_up_unless_it_is_named(epochs, expected):
    told = make_selector("hard", Y, batch_size=8)
    told.plan_epochs(epochs)
    known = make_selector("hard", Y, batch_size=8, epochs=epochs)
    named = make_selector("hard", Y, batch_size=8, warm_up_epochs=2)
    named.plan_epochs(epochs)
    assert [each.warm_up_epochs for each in (told, known, named)] == [expected, expected, 2]
    assert _drain(told, per_label, epochs=epochs % 7) == _drain(known, per_label, epochs=epochs % 7)


def test_three_epochs_without_a_named_warm_up_select():
    selector = make_selector("adaptive", Y, X=X, batch_size=8, selection_pressure=64)
    selector.plan_epochs(3)
    _drain(selector, per_label, epochs=3)
    assert selector.diagnostics().distinct_share < 1


def test_a_selector_that_has_begun_keeps_its_warm_up():
    selector = make_selector("hard", Y, batch_size=8)
    _drain(selector, per_label)
    selector.plan_epochs(4)
    assert selector.warm_up_epochs == 3
    with pytest.raises(SelectionError, match="epochs must be a whole number from 1, got 0"):
        selector.plan_epochs(0)


def test_nothing_but_warm_up_is_said(caplog):
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        make_selector("hard", Y, warm_up_epochs=3).plan_epochs(4)
        make_selector("random", Y, warm_up_epochs=3).plan_epochs(3)
        assert not caplog.records
        make_selector("hard", Y, warm_up_epochs=3).plan_epochs(3)
    assert "all 3 epochs are warm-up, so hard never draws a batch" in caplog.text


def test_importance_says_its_share_of_uniform_draws():
    assert make_selector("importance", Y).mix(0) == 0.3


def test_scikit_learns_name_of_the_seed_is_suggested():
    for strategy in ("random", "adaptive", worst_label):
        with pytest.raises(SelectionError, match=r"'random_state' .* did you mean 'seed'"):
            make_selector(strategy, Y, random_state=3)


def test_every_strategy_has_a_place_of_its_own():
    places = [strategy_place(strategy) for strategy in STRATEGIES]
    assert places == sorted(set(places))
    assert strategy_place("somebody_elses") > places[-1]

    class Second(RandomSelector):
        strategy, place = "second", 1

    assert strategy_place(Second) == strategy_place("uniform") == 1
