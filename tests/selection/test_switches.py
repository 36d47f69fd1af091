"""Options beside the paper's default: habits of the authors' script, caps."""

import numpy as np
import pytest

from selection.reference import adaptive_law
from tailbatch.selection import AdaptiveSelector, HardSelector, RandomSelector
from tailbatch.testing.selector_contract import _drain

LOSSES = np.array([0.1, 0.2, 0.4, 0.6, 0.9, 1.4, 2.0, 4.0])


def test_renewal_once_an_epoch_keeps_the_law_until_the_next():
    selector = HardSelector(4, batch_size=2, reference_renewal="epoch", initial_losses=[1, 2, 3, 4])
    before = selector.probabilities()
    for index in selector:
        selector.observe(10.0 - index)
        assert np.array_equal(selector.probabilities(), before)
    next(iter(selector))
    assert not np.array_equal(selector.probabilities(), before)


def test_renewal_after_every_batch_reaches_every_sample():
    selector = AdaptiveSelector(1.0, n_samples=4, batch_size=1, initial_losses=[1, 1, 1, 1])
    (drawn,) = next(iter(selector))
    selector.observe([4.0])
    # l_max rose from 1 to 4, so the others fall from Q = n to Q = n / 4.
    expected = np.full(4, 16**0.25)
    expected[drawn] = 16
    np.testing.assert_allclose(selector.probabilities(), expected / expected.sum())


def test_full_batches_fill_up_all_but_the_warm_up():
    selector = HardSelector(401, batch_size=128, full_batches=True, warm_up_epochs=1)
    sizes = [len(batch) for batch in _drain(selector, lambda index, step: index, epochs=2)]
    assert sizes == [128, 128, 128, 17, 128, 128, 128, 128]


def test_unshuffled_order():
    selector = RandomSelector(5, batch_size=2, shuffle=False)
    assert [batch.tolist() for batch in selector] == [[0, 1], [2, 3], [4]]
    warm = HardSelector(5, batch_size=2, warm_up_epochs=1, shuffle=False)
    assert _drain(warm, lambda index, step: index) == [[0, 1], [2, 3], [4]]


def test_a_cap_keeps_an_outlier_from_flattening_the_law():
    losses = np.append(np.linspace(0, 1, 99), 1e9)
    pressures = []
    for cap in (None, 0.95):
        selector = AdaptiveSelector(
            1.0, n_samples=100, batch_size=100, initial_losses=losses, cap_quantile=cap
        )
        next(iter(selector))
        p = selector.probabilities()[1:99]
        pressures.append(p.max() / p.min())
    assert pressures[0] == pytest.approx(1)
    assert pressures[1] > 10


def test_the_cap_is_fixed_during_an_epoch():
    selector = AdaptiveSelector(
        1.0, n_samples=8, batch_size=2, initial_losses=LOSSES, cap_quantile=0.5
    )
    for index in selector:
        assert selector._law.l_max == np.quantile(LOSSES, 0.5)
        selector.observe(np.full(len(index), 50.0))
    next(iter(selector))
    assert selector._law.l_max > 1


@pytest.mark.parametrize("losses", [np.zeros(8), np.append(np.zeros(7), 3.0)])
def test_a_cap_of_zero_is_no_cap(losses):
    selector = AdaptiveSelector(
        1.0, n_samples=8, batch_size=8, initial_losses=losses, cap_quantile=0.5
    )
    next(iter(selector))
    np.testing.assert_allclose(selector.probabilities(), adaptive_law(losses, 16))


def test_the_warm_up_has_equal_weights():
    selector = AdaptiveSelector(1.0, n_samples=8, batch_size=4, corrected=True, warm_up_epochs=1)
    for _ in selector:
        assert selector.importance_weights().tolist() == [0.25] * 4
        selector.observe([0.1, 0.2, 0.3, 0.4])
    next(iter(selector))
    assert len(set(selector.importance_weights())) > 1
