"""Properties of the laws, and of the structures that keep them cheap to draw from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.reference import adaptive_law, rank_law
from tailbatch.selection import AdaptiveSelector, Constant, Geometric, QuantizationLaw, RankLaw
from tailbatch.selection.drawing import StaticLaw, UniformLaw, _BatchStreams
from tailbatch.selection.laws import _BlockMaxima, _RankOrder

LAWS = {"rank": RankLaw, "quantization": QuantizationLaw}
loss = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, 0.5, 1.0, np.inf]))
losses_ = st.lists(loss, min_size=1, max_size=40).map(np.array)
pressures = st.one_of(st.floats(1, 1e6), st.sampled_from([1.0, 2.0, 1e300]))


def probabilities(law, scores, pressure):
    scores = np.array(scores)
    law.reset(scores)
    return law.probabilities(pressure)


@pytest.mark.parametrize("law", LAWS)
class TestEveryLaw:
    @given(losses_, pressures)
    def test_every_sample_can_be_drawn_and_all_sum_to_one(self, law, losses, pressure):
        p = probabilities(LAWS[law](), losses, pressure)
        assert (p > 0).all()
        assert p.sum() == pytest.approx(1)
        assert p.max() / p.min() <= pressure * (1 + 1e-9)

    @given(losses_, pressures)
    def test_a_higher_loss_is_never_less_likely_and_equal_ones_equally(self, law, losses, pressure):
        p = probabilities(LAWS[law](), losses, pressure)
        ascending = np.argsort(losses, kind="stable")
        assert (np.diff(p[ascending]) >= -1e-15).all()
        for value in np.unique(losses):
            assert len(set(p[losses == value])) == 1

    @given(losses_, pressures, st.randoms(use_true_random=False))
    def test_permuting_the_samples_permutes_the_law(self, law, losses, pressure, random):
        order = list(range(len(losses)))
        random.shuffle(order)
        p = probabilities(LAWS[law](), losses, pressure)
        permuted = probabilities(LAWS[law](), losses[order], pressure)
        np.testing.assert_allclose(permuted, p[order], rtol=1e-12)

    @given(losses_, pressures, st.integers(-40, 40))
    def test_a_power_of_two_changes_nothing(self, law, losses, pressure, power):
        tiny = (losses > 0) & (losses < 1e-250)  # scaled below the smallest float they would vanish
        losses = np.where(tiny, 0.0, losses)
        scaled = losses * 2.0**power
        pairs = np.random.default_rng(0).random((50, 2))
        one, other = LAWS[law](), LAWS[law]()
        assert np.array_equal(
            probabilities(one, losses, pressure), probabilities(other, scaled, pressure)
        )
        assert np.array_equal(one.propose(pairs, pressure), other.propose(pairs, pressure))

    @given(losses_, st.floats(1, 1e4))
    def test_the_law_is_the_definition(self, law, losses, pressure):
        reference = {"rank": rank_law, "quantization": adaptive_law}[law]
        unseen_as_nan = np.where(np.isinf(losses), np.nan, losses)
        p = probabilities(LAWS[law](), losses, pressure)
        np.testing.assert_allclose(p, reference(unseen_as_nan, pressure), rtol=1e-9)

    @pytest.mark.parametrize("acceptance", [1.0, 0.3, 0.01])
    def test_what_is_drawn_does_not_depend_on_how_many_are_proposed_at_a_time(
        self, law, acceptance
    ):
        drawn = []
        for hint in (1.0, acceptance):
            one = LAWS[law]()
            one.reset(np.random.default_rng(1).pareto(1.0, 500))
            one.acceptance = hint
            drawn.append(one.draw(30, 16.0, _BatchStreams(0).at(0, 0)).tolist())
        assert drawn[0] == drawn[1]

    def test_an_extreme_pressure_still_ends(self, law):
        one = LAWS[law]()
        one.reset(np.append(np.zeros(999), 1.0))
        batch = one.draw(40, 1e300, _BatchStreams(0).at(0, 0))
        assert len(set(batch.tolist())) == 40


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 100)), min_size=1, max_size=30),
    st.floats(1, 1e4),
)
def test_a_higher_weighted_loss_is_never_less_likely(pairs, pressure):
    weights, losses = map(np.array, zip(*pairs, strict=True))
    p = AdaptiveSelector(
        weights, batch_size=1, selection_pressure=pressure, seed=0, initial_losses=losses
    ).probabilities()
    assert (p > 0).all()
    assert p.sum() == pytest.approx(1)
    weighted = weights * losses
    assert (np.diff(p[np.argsort(weighted, kind="stable")]) >= -1e-15).all()
    for value in np.unique(weighted):
        assert np.ptp(p[weighted == value]) == pytest.approx(0)


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, np.inf]), min_size=1, max_size=30),
    st.lists(st.integers(0, 2**32), min_size=1, max_size=150),
)
@settings(max_examples=60, deadline=None)
def test_the_order_stays_sorted_through_moves_and_merges(start, seeds):
    scores = np.array(start)
    order = _RankOrder(scores)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        index = rng.permutation(len(scores))[: rng.integers(1, len(scores) + 1)]
        new = rng.choice([0.0, 0.25, 0.3, 1.0, 2.0], size=len(index))
        old, scores[index] = scores[index], new
        order.move(index, old, new)
    expected = np.argsort(scores, kind="stable")
    samples, values = order.at(np.arange(len(scores)))
    assert np.array_equal(samples, expected)
    assert np.array_equal(values, scores[expected])
    start, end = order.ties(values)
    assert np.array_equal(start, np.searchsorted(values, values, side="left"))
    assert np.array_equal(end, np.searchsorted(values, values, side="right"))


@pytest.mark.parametrize("n", [1, 4096, 4097, 10_000])
def test_the_maximum_is_right_after_every_move(n):
    rng = np.random.default_rng(n)
    scores = rng.pareto(1.0, n)
    scores[rng.random(n) < 0.3] = np.inf
    maxima = _BlockMaxima(scores)
    for _ in range(200):
        # The largest ones move most, so that maxima keep falling.
        index = np.unique(np.append(rng.integers(n, size=5), np.argsort(scores)[-3:]))
        old = scores[index]
        scores[index] = new = rng.pareto(1.0, len(index))
        maxima.move(scores, index, old, new)
        known = scores[np.isfinite(scores)]
        assert maxima.largest == known.max(initial=0.0)


def test_more_than_two_to_the_24_samples_can_all_be_drawn():
    n = 2**24 + 2**20
    pairs = np.column_stack([np.linspace(0, 1, 1001)[:-1], np.full(1000, 0.5)])
    drawn = UniformLaw(n).propose(pairs, 1.0)
    assert drawn.max() > 2**24
    law = QuantizationLaw()
    law.reset(np.zeros(n))
    law.update(np.array([n - 1]), np.array([1.0]))
    batch = law.draw(512, 16.0, _BatchStreams(0).at(0, 0))
    assert batch.max() > 2**24


def test_static_weights_at_the_ends_of_the_line():
    law = StaticLaw(np.array([1.0, 1.0, 2.0]))
    pairs = np.array([[0.0, 0], [0.25, 0], [0.5, 0], [1 - 2**-53, 0]])
    assert law.propose(pairs, 1.0).tolist() == [0, 1, 2, 2]


def test_a_schedule_of_one_epoch_starts_and_then_ends():
    assert [Geometric(64, 1)(epoch, 1) for epoch in range(3)] == [64, 1, 1]
    assert [Geometric(1, 64)(epoch, 3) for epoch in range(3)] == [1, 8, 64]
    assert Constant(4)(100, None) == 4
    for wrong in (0.5, np.inf):
        with pytest.raises(ValueError, match="selection_pressure must be finite and >= 1"):
            Geometric(16, wrong)
        with pytest.raises(ValueError, match="selection_pressure must be finite and >= 1"):
            Constant(wrong)
