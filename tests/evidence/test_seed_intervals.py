"""Intervals over the seeds of one split: how often they contain the truth, and when there is none."""

import math

import numpy as np
import pytest
from reproduction.measures import change_over_seeds, over_seeds

from tailbatch.errors import DataError

TRIALS = 4000


def coverage(seeds, correlation, change, noise=0.15):
    """Return how often the interval contains the true change, with paired normal noise."""
    rng = np.random.default_rng([seeds, int(100 * correlation)])
    shared = rng.normal(size=(TRIALS, seeds))
    own = rng.normal(size=(2, TRIALS, seeds))
    before, after = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    before, after = 0.2 * (1 + noise * before), 0.2 * (1 + change) * (1 + noise * after)
    found = [change_over_seeds(*pair) for pair in zip(after, before, strict=True)]
    return np.mean([each.low <= 100 * change <= each.high for each in found])


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_the_interval_of_a_change_contains_the_truth_as_often_as_it_says(seeds, correlation):
    # Fine-tuning's minority AP varies by 15% from seed to seed; three seeds are the hardest case.
    assert coverage(seeds, correlation, change=0.1) == pytest.approx(0.95, abs=0.015)


def test_the_p_value_of_no_change_is_wrong_one_time_in_twenty():
    rng = np.random.default_rng(0)
    pairs = rng.normal(0.2, 0.02, size=(TRIALS, 2, 5))
    p_values = [change_over_seeds(after, before).p_value for after, before in pairs]
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_what_both_runs_of_a_seed_share_cancels():
    before = np.array([0.1, 0.2, 0.3])
    exact = change_over_seeds(1.1 * before, before)
    assert exact.mean == pytest.approx(10)
    assert exact.high - exact.low == pytest.approx(0, abs=1e-9)
    shuffled = change_over_seeds(1.1 * before[[1, 2, 0]], before)
    assert shuffled.mean == pytest.approx(10)
    assert shuffled.high - shuffled.low > 100


def test_the_interval_excludes_zero_exactly_where_p_is_below_the_level():
    rng = np.random.default_rng(1)
    for after, before in rng.normal(0.2, 0.02, size=(300, 2, 4)):
        found = change_over_seeds(after, before)
        assert (found.low > 0 or found.high < 0) == (found.p_value < 0.05)


@pytest.mark.parametrize("seeds", [1, 2])
def test_below_three_seeds_there_is_an_estimate_without_an_interval(seeds):
    after, before = np.arange(seeds) + 3.0, np.arange(seeds) + 2.0
    for found in (change_over_seeds(after, before), over_seeds(after)):
        assert math.isfinite(found.mean)
        assert all(map(math.isnan, found[1:]))


def test_a_change_needs_pairs_and_a_baseline():
    assert all(map(math.isnan, change_over_seeds([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])))
    for values, baseline in (([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]])):
        with pytest.raises(DataError, match="paired seeds"):
            change_over_seeds(values, baseline)
