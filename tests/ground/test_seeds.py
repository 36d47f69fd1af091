import numpy as np
import pytest

from tailbatch.seeds import integer_seed, stream


def test_a_stream_is_named_by_seed_purpose_and_counters():
    names = [
        (0, "folds"),
        (1, "folds"),
        (0, "batches"),
        (0, "batches", 1),
        (0, "batches", 1, 1),
        (0, "batches", 2, 0),
    ]
    draws = {tuple(stream(*name).integers(2**62, size=4)) for name in names}
    assert len(draws) == len(names)
    for name in names:
        assert np.array_equal(stream(*name).random(8), stream(*name).random(8))


def test_neighboring_batches_do_not_overlap():
    """A batch's stream has 2^128 blocks, so the next batch's numbers are never among them."""
    first, second = (
        stream(7, "batches", 0, 0).random(100_000),
        stream(7, "batches", 0, 1).random(100_000),
    )
    assert not np.isin(second[:100], first).any()


def test_the_host_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    stream(3, "anything").random(10)
    assert np.array_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, "folds"), "seed must be a whole number from 0, got -1"),
        ((0, "folds", -1), "at most two counters"),
        ((0, "folds", 2**64), "at most two counters"),
        ((0, "folds", 1, 2, 3), "at most two counters"),
    ],
)
def test_bad_names_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        stream(*arguments)


def test_integer_seeds_fit_torch():
    assert all(0 <= integer_seed(0, "model", i) < 2**63 for i in range(100))
