"""Every selector keeps the contract."""

import queue
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from contracts.selector_contract import WholeSelectorContract
from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.selection import (
    AdaptiveSelector,
    BalancedSelector,
    ChainSelector,
    Geometric,
    HardSelector,
    ImportanceSelector,
    LossDrivenSelector,
    MinoritySelector,
    QuantizationLaw,
    RandomSelector,
    UniformSelector,
    mean_loss,
)
from tailbatch.testing.selector_contract import N, _drain


def labels(n):
    """Three labels, of which the last is rare; some rows have none."""
    row = np.arange(n)
    return np.stack([row % 2 == 0, row % 3 == 0, row % 11 == 0], axis=1)


class TestRandom(WholeSelectorContract):
    def make(self, n=N, **settings):
        return RandomSelector(n, **{"batch_size": 5, **settings})


class TestUniform(WholeSelectorContract):
    def make(self, n=N, **settings):
        return UniformSelector(n, **{"batch_size": 5, **settings})


class TestUniformFullBatches(WholeSelectorContract):
    full_batches = True

    def make(self, n=N, **settings):
        return UniformSelector(n, full_batches=True, **{"batch_size": 5, **settings})

    def test_the_last_batch_is_filled_up(self):
        assert {len(batch) for batch in _drain(self.make(), self.losses)} == {5}


class TestBalanced(WholeSelectorContract):
    def make(self, n=N, **settings):
        return BalancedSelector(labels(n), **{"batch_size": 5, **settings})

    def test_power_is_checked(self):
        with pytest.raises(SelectionError, match="power must be finite and >= 0, got -1"):
            self.make(power=-1)


class LossDrivenContract(WholeSelectorContract):
    """What selectors that follow the losses promise besides."""

    @pytest.mark.parametrize("pressure", [0.5, 0, -1, np.nan, np.inf, "16", None])
    def test_unusable_pressures_say_so(self, pressure):
        with pytest.raises(SelectionError, match="selection_pressure must be"):
            self.make(selection_pressure=pressure)

    def test_annealing_needs_the_number_of_epochs(self):
        with pytest.raises(SelectionError, match="needs the number of epochs: give epochs="):
            self.make(selection_pressure=Geometric(64, 1), epochs=None)

    def test_annealing_ends_uniform(self):
        selector = self.make(selection_pressure=Geometric(64, 1), epochs=4)
        _drain(selector, self.losses, epochs=2)
        assert selector.diagnostics().effective_pressure > 2
        _drain(selector, self.losses, epochs=2)
        assert selector.diagnostics().effective_pressure == pytest.approx(1)

    def test_a_batch_that_was_never_observed_blocks_the_next_epoch_too(self):
        selector = self.make(n=3, batch_size=3)
        for _ in selector:
            pass
        with pytest.raises(SelectionError, match="1 earlier batch has no losses yet"):
            next(iter(selector))

    @pytest.mark.parametrize("losses", [np.full(N, -1.0), np.full(N, np.inf), np.zeros(4)])
    def test_unusable_initial_losses_say_so(self, losses):
        if self.per_label and len(losses) == N:
            losses = np.repeat(losses[:, None], 3, axis=1)
        with pytest.raises(SelectionError, match=r"initial[_ ]loss"):
            self.make(initial_losses=losses)

    def test_other_settings_are_checked(self):
        for settings, message in [
            ({"reference_renewal": "week"}, "reference_renewal must be"),
            ({"epochs": 0}, "epochs must be a whole number from 1"),
        ]:
            with pytest.raises(SelectionError, match=message):
                self.make(**settings)


class TestHard(LossDrivenContract):
    def make(self, n=N, **settings):
        return HardSelector(n, **{"batch_size": 5, **settings})


class TestAdaptive(LossDrivenContract):
    def make(self, n=N, **settings):
        return AdaptiveSelector(1 + np.arange(n) % 3, **{"batch_size": 5, **settings})

    @pytest.mark.parametrize("cap", [0, 1.5, -1])
    def test_the_cap_is_checked(self, cap):
        with pytest.raises(SelectionError, match=r"cap_quantile must lie in \(0, 1\]"):
            self.make(cap_quantile=cap)


class TestAdaptiveCapped(LossDrivenContract):
    def make(self, n=N, **settings):
        return AdaptiveSelector(1.0, n_samples=n, cap_quantile=0.8, **{"batch_size": 5, **settings})


class TestAdaptiveRenewedEachEpoch(LossDrivenContract):
    def make(self, n=N, **settings):
        return AdaptiveSelector(
            1.0, n_samples=n, **{"batch_size": 5, "reference_renewal": "epoch", **settings}
        )


class TestChain(LossDrivenContract):
    def make(self, n=N, **settings):
        return ChainSelector(1.0, labels(n), **{"batch_size": 5, **settings})

    def test_importance_weights_are_refused(self):
        with pytest.raises(
            SelectionError, match=r"chain has no importance weights.*depends on the one before"
        ):
            self.make(corrected=True)


class TestMinority(LossDrivenContract):
    per_label = True

    def make(self, n=N, **settings):
        return MinoritySelector(labels(n), **{"batch_size": 5, "epochs": 3, **settings})

    def test_losses_averaged_over_labels_are_refused(self):
        selector = self.make()
        next(iterator := iter(selector))
        self.refused(selector, r"needs the loss of each label, shape \(5, 3\)", np.ones(5))
        self.refused(selector, r"needs the loss of each label", np.ones((5, 2)))
        del iterator


class TestOwnScore(LossDrivenContract):
    def make(self, n=N, **settings):
        defaults = {"batch_size": 5, "selection_pressure": 16}
        return LossDrivenSelector(
            n, score=mean_loss, law=QuantizationLaw(), **{**defaults, **settings}
        )

    @pytest.mark.parametrize(
        ("score", "message"),
        [
            (lambda losses, index: losses[:1], "the score must return one value for each"),
            (lambda losses, index: losses - 9, "the score of sample .* it must be finite and >= 0"),
        ],
    )
    def test_an_unusable_score_changes_nothing(self, score, message):
        selector = LossDrivenSelector(
            N, score=score, law=QuantizationLaw(), selection_pressure=4, batch_size=5
        )
        next(iterator := iter(selector))
        self.refused(selector, message, np.ones(5))
        del iterator


class TestImportance(WholeSelectorContract):
    repeats = True

    def make(self, n=N, **settings):
        return ImportanceSelector(labels(n), **{"batch_size": 5, **settings})


class TestImportanceIndependent(WholeSelectorContract):
    repeats = True

    def make(self, n=N, **settings):
        return ImportanceSelector(
            labels(n), draws="independent", beta=0.5, **{"batch_size": 5, **settings}
        )


class TestImportanceByGradient(WholeSelectorContract):
    per_label = True
    repeats = True

    def make(self, n=N, **settings):
        return ImportanceSelector(labels(n), score="gradient", **{"batch_size": 5, **settings})

    def test_losses_averaged_over_labels_are_refused(self):
        selector = self.make()
        next(iterator := iter(selector))
        self.refused(selector, r"needs the loss of each label, shape \(5, 3\)", np.ones(5))
        self.refused(selector, "needs the loss of each label", np.ones((5, 2)))
        del iterator


class TestBalancedCorrected(WholeSelectorContract):
    repeats = True

    def make(self, n=N, **settings):
        return BalancedSelector(labels(n), corrected=True, **{"batch_size": 5, **settings})


class TestHardCorrected(LossDrivenContract):
    repeats = True

    def make(self, n=N, **settings):
        return HardSelector(n, corrected=True, **{"batch_size": 5, **settings})


class TestAdaptiveCorrected(LossDrivenContract):
    repeats = True

    def make(self, n=N, **settings):
        weights = 1 + np.arange(n) % 3
        return AdaptiveSelector(weights, corrected=True, **{"batch_size": 5, **settings})


class TestAdaptiveCappedCorrected(LossDrivenContract):
    repeats = True

    def make(self, n=N, **settings):
        options = {"batch_size": 5, "cap_quantile": 0.8, "reference_renewal": "epoch", **settings}
        return AdaptiveSelector(1.0, n_samples=n, corrected=True, **options)


class TestMinorityCorrected(LossDrivenContract):
    per_label = True
    repeats = True

    def make(self, n=N, **settings):
        return MinoritySelector(labels(n), corrected=True, **{"batch_size": 5, **settings})


class TestWarmUpBeforeImportance(WholeSelectorContract):
    per_label = True
    repeats = True

    def make(self, n=N, **settings):
        options = {"batch_size": 5, "score": "gradient", **settings}
        return ImportanceSelector(labels(n), warm_up_epochs=1, **options)


class TestWarmUp(WholeSelectorContract):
    def make(self, n=N, **settings):
        return HardSelector(n, warm_up_epochs=1, **{"batch_size": 5, **settings})


class TestWarmUpBeforeRandom(WholeSelectorContract):
    def make(self, n=N, **settings):
        return RandomSelector(n, warm_up_epochs=1, **{"batch_size": 5, **settings})


@pytest.mark.parametrize(
    ("weights", "n_samples", "message"),
    [
        ([1.0, -1.0], None, "weights must be finite and >= 0, got -1.0"),
        ([1.0, np.nan], None, "weights must be finite and >= 0, got nan"),
        ([[1.0]], None, "weights must be one number or have shape"),
        (1.0, None, "give n_samples= as well"),
        ([1.0, 1.0], 3, "there are 2 weights for n_samples=3"),
        ([], None, "n_samples must be a whole number from 1, got 0"),
    ],
)
def test_unusable_weights_say_so(weights, n_samples, message):
    with pytest.raises(SelectionError, match=message):
        AdaptiveSelector(weights, n_samples=n_samples, batch_size=2)


def test_threads_may_draw_and_observe_at_once():
    n, b = 400, 10
    selector = AdaptiveSelector(1.0, n_samples=n, batch_size=b, max_lag=n)
    drawn, observed = queue.SimpleQueue(), np.zeros(n)

    def observe():
        while (index := drawn.get()) is not None:
            observed[index] = 1 + index % 7
            selector.observe(observed[index], index)

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(observe) for _ in range(4)]
        for index in selector:
            drawn.put(index)
        for _ in waiting:
            drawn.put(None)
        for each in waiting:
            each.result()
    assert not selector._pending
    scores = selector._law.scores
    seen = np.isfinite(scores)
    assert np.array_equal(scores[seen], observed[seen])
    assert selector._law.l_max == scores[seen].max()


@pytest.mark.parametrize("skipped", [0, 3, 9])
def test_a_skipped_step_is_an_error_where_losses_went_to_the_wrong_batch(skipped):
    selector = AdaptiveSelector(1.0, n_samples=40, batch_size=4, max_lag=2)
    for number, index in enumerate(selector):
        if number != skipped:
            selector.observe(np.ones(len(index)))
    if skipped == 9:  # the last one: no other batch could get its losses
        assert len(next(iter(selector))) == 4
        return
    with pytest.raises(
        StaleSelectionError, match=r"1 of the 10 batches .* observe\(losses, index\)"
    ):
        next(iter(selector))
    selector.observe(np.ones(4))  # nothing was lost: the batch still waits
    assert len(next(iter(selector))) == 4


def test_a_skipped_step_is_harmless_where_losses_name_their_batch():
    selector = AdaptiveSelector(1.0, n_samples=40, batch_size=4, max_lag=2)
    for number, index in enumerate(selector):
        if number != 3:
            selector.observe(np.ones(len(index)), index)
    next(iter(selector))
    assert selector.diagnostics().dropped_batches == 1


def test_using_the_weights_of_a_batch_uses_those_of_its_equals():
    equal = 0
    for seed in range(8):
        selector = UniformSelector(2, batch_size=1, corrected=True, max_lag=1, seed=seed)
        first, second = selector
        if first.tolist() != second.tolist():
            continue
        equal += 1
        assert selector.importance_weights(first).tolist() == [1.0]
        selector.observe([1.0], first)
        selector.observe([2.0], second)  # equal batches cannot be told apart, so it is used as well
        with pytest.raises(SelectionError, match="is not pending"):
            selector.observe([2.0], second)
    assert equal


def test_each_epoch_counts_its_own_draws():
    selector = HardSelector(6, batch_size=2, warm_up_epochs=3, labels=labels(6))
    for _ in range(3):
        _drain(selector, lambda index, step: index)
        assert selector.times_drawn.tolist() == [1] * 6
        assert selector.diagnostics().distinct_share == 1
    _drain(selector, lambda index, step: index)
    assert selector.times_drawn.sum() == 6


def test_label_figures_of_the_diagnostics():
    Y = np.array([[1, 0], [1, 0], [1, 0], [1, 1]] * 5, dtype=bool)
    selector = UniformSelector(20, batch_size=20, labels=Y)
    before = selector.diagnostics()
    assert np.isnan(before.label_exposure).all()
    _drain(selector, lambda index, step: np.ones(len(index)))
    report = selector.diagnostics()
    assert report.label_exposure.tolist() == [1, 1]
    assert report.minority_share == 0.25
    assert report.distinct_share == 1
    assert UniformSelector(4, batch_size=4).diagnostics().label_exposure is None


def test_seldom_drawn_labels_have_a_low_exposure():
    Y = np.repeat(np.eye(2, dtype=bool), 500, axis=0)
    losses = np.repeat([0.0, 1.0], 500)
    selector = AdaptiveSelector(
        1.0, n_samples=1000, batch_size=10, initial_losses=losses, labels=Y, selection_pressure=9
    )
    for index in selector:
        selector.observe(losses[index])
    rare, often = selector.diagnostics().label_exposure
    assert rare == pytest.approx(0.2, abs=0.08)
    assert often == pytest.approx(1.8, abs=0.08)
