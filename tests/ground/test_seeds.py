import numpy as np
import pytest
from scipy.stats import kstest

from tailbatch.seeds import _philox, integer_seed, row_uniforms, stream


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


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_philox_gives_the_published_words(counter, key, expected):
    """The known answers of Random123 for philox4x32 with ten rounds."""
    counter, key, expected = (
        np.array([int(word, 16) for word in words.split()], dtype=np.uint64)
        for words in (counter, key, expected)
    )
    assert [int(word[0]) for word in _philox(tuple(counter[:, None]), key)] == expected.tolist()


def test_a_rows_numbers_depend_on_all_of_their_name_and_on_nothing_else():
    rows = np.array([0, 1, 2**40, -3])
    numbers = row_uniforms(1, "rows", rows, 2)
    assert (numbers[:, ::-1] == row_uniforms(1, "rows", rows[::-1], 2)).all()
    others = [
        row_uniforms(*name)
        for name in [(2, "rows", rows, 2), (1, "row", rows, 2), (1, "rows", rows, 3)]
    ]
    everything = np.concatenate([numbers, *others]).ravel()
    assert len(np.unique(everything)) == everything.size
    assert ((everything >= 0) & (everything < 1)).all()


def test_row_uniforms_are_uniform_over_rows_and_epochs():
    over_rows = row_uniforms(0, "rows", np.arange(50_000))
    over_epochs = np.concatenate(
        [row_uniforms(0, "rows", np.arange(50), e) for e in range(1000)], 1
    )
    for numbers in [*over_rows, *over_epochs]:
        assert kstest(numbers, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(over_rows)[0, 1]) < 4 / 50_000**0.5
