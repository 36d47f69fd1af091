"""The selection equations of the paper, with numbers worked out by hand."""

import numpy as np
import pytest

from tailbatch.selection import AdaptiveSelector, ChainSelector, HardSelector, WeightedLoss
from tailbatch.selection.chain import _LabelChains
from tailbatch.selection.laws import _quantization_index


def test_eq_3_rank_based_probabilities():
    # Ranks of (0.9, 0.1, 0.5) are (3, 1, 2); 8^(1/3) = 2, so the weights are (8, 2, 4) of 14.
    selector = HardSelector(3, batch_size=1, selection_pressure=8, initial_losses=[0.9, 0.1, 0.5])
    np.testing.assert_allclose(selector.probabilities(), np.array([8, 2, 4]) / 14)


def test_eq_3_ties_share_their_ranks():
    # Ranks 1 and 2 are shared: (2 + 4) / 2 = 3 each, and 8 for the third.
    selector = HardSelector(3, batch_size=1, selection_pressure=8, initial_losses=[0.1, 0.5, 0.1])
    np.testing.assert_allclose(selector.probabilities(), np.array([3, 8, 3]) / 14)


def test_eq_5_weighted_losses():
    score = WeightedLoss([1.0, 1.5, 2.0])
    assert score(np.array([0.5, 0.25]), np.array([2, 1])).tolist() == [1.0, 0.375]


def test_eq_6_quantization_index():
    # Delta = l_max / n = 4 / 4 = 1: Q is the loss rounded up.
    losses = np.array([0.0, 0.2, 1.0, 1.01, 3.7, 4.0])
    assert _quantization_index(losses, l_max=4.0, n_samples=4).tolist() == [0, 1, 1, 2, 4, 4]


def test_eq_7_probabilities():
    # w * l = (1, 2, 4, 0.5), l_max = 4, Q = (1, 2, 4, 1); 16^(1/4) = 2: weights (2, 4, 16, 2) of 24.
    selector = AdaptiveSelector(
        [1.0, 2.0, 1.0, 0.5],
        batch_size=1,
        selection_pressure=16,
        initial_losses=[1.0, 1.0, 4.0, 1.0],
    )
    np.testing.assert_allclose(selector.probabilities(), np.array([2, 4, 16, 2]) / 24)


def test_eq_7_is_uniform_at_pressure_1_and_without_losses():
    for settings in (
        {"selection_pressure": 1, "initial_losses": [1, 2, 3]},
        {"selection_pressure": 64, "initial_losses": [0, 0, 0]},
        {"selection_pressure": 64},
    ):
        selector = AdaptiveSelector(1.0, n_samples=3, batch_size=1, **settings)
        assert selector.probabilities() == pytest.approx([1 / 3] * 3)


def test_adac_companions_and_followers():
    # Rows: 0: a b   1: a   2: b c   3: d   4: -   C = (2, 2, 1, 1), Card = 6 / 5, so 2 companions.
    Y = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
    chains = _LabelChains(Y)
    # Row 0: a and b are equally rare, the lower index counts. Row 2: c is rarer than b.
    assert chains.rarest.tolist() == [0, 0, 2, 3, -1]
    # A_ab = (1/2 + 1/2) / 2 = 0.5 and A_bc = (1/2 + 1) / 2 = 0.75; d occurs with nothing.
    assert [labels.tolist() for labels in chains.companions] == [[1], [2, 0], [1], [3]]
    assert [chains.rows(label).tolist() for label in range(4)] == [[0, 2], [0, 1, 2], [0, 2], [3]]
    selector = ChainSelector(1.0, Y, batch_size=2)
    followers = {tuple(selector._draw(2, 0, number).tolist()) for number in range(500)}
    # After 0 only 2 of {0, 2} is left; 2's chain {0, 2} leaves 0; 3's own rows are used up: anyone.
    assert {b for a, b in followers if a == 0} == {2}
    assert {b for a, b in followers if a == 1} == {0, 2}
    assert {b for a, b in followers if a == 2} == {0}
    assert {b for a, b in followers if a == 3} == {0, 1, 2, 4}
    assert {b for a, b in followers if a == 4} == {0, 1, 2, 3}


def test_adac_rounds_a_whole_cardinality_to_itself():
    # All pairs of 4 labels: Card is 2, and each label occurs with the 3 others alike.
    Y = np.array(
        [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]]
    )
    companions = _LabelChains(Y.astype(bool)).companions
    assert [labels.tolist() for labels in companions] == [[1, 2], [0, 2], [0, 1], [0, 1]]
