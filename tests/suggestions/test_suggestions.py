"""Rows to label next: properties, statistics, and what cannot be suggested."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import tailbatch
from tailbatch.errors import DataError
from tailbatch.seeds import stream
from tailbatch.suggestions import STRATEGIES, progress, random_sample, sketch, suggest

NAMES = ["joy", "sadness", "grief"]


def pool(n, q=3, seed=0):
    rng = stream(seed, "pool")
    P = rng.random((n, q)) ** 3
    return P, rng.random((60, q)) < [0.5, 0.3, 0.1][:q]


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(5, 60),
    n=st.integers(1, 30),
    strategy=st.sampled_from(sorted(STRATEGIES)),
    explore=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 5),
    reviewed=st.integers(0, 20),
    near=st.booleans(),
)
def test_rows_are_distinct_free_and_asked_for(size, n, strategy, explore, seed, reviewed, near):
    P, Y = pool(size)
    done = np.arange(min(reviewed, size - 1))
    n = min(n, size - len(done))
    X = np.round(P, 1) if near else None
    arguments = {"strategy": strategy, "explore": explore, "seed": seed, "reviewed": done}
    chosen = suggest(P, Y, n, **arguments, features=X, labels=[0, 1, 2])
    assert len(chosen) == len(set(chosen.rows.tolist())) == n
    assert not set(chosen.rows.tolist()) & set(done.tolist())
    assert chosen.asked.any(axis=1).all()
    assert chosen.asked[chosen.is_random].all()
    assert chosen.is_random.sum() == int(np.ceil(explore * n - 1e-9))
    assert (chosen.probabilities == P[chosen.rows]).all()
    again = suggest(P, Y, n, **arguments, features=X, labels=[0, 1, 2])
    assert again.rows.tolist() == chosen.rows.tolist()
    assert again.reasons == chosen.reasons


def test_likely_positives_are_the_likeliest_rows():
    P, Y = pool(500)
    chosen = suggest(P, Y, 20, labels=[2], strategy="positives", explore=0)
    assert chosen.rows.tolist() == np.argsort(-P[:, 2], kind="stable")[:20].tolist()


def test_uncertain_rows_are_nearest_to_a_half():
    P, Y = pool(500)
    chosen = suggest(P, Y, 20, labels=[2], strategy="uncertain", explore=0)
    nearest = np.argsort(np.abs(P[:, 2].astype(np.float32) - 0.5), kind="stable")[:20]
    assert chosen.rows.tolist() == nearest.tolist()


def test_the_best_of_many_rows_are_those_of_a_full_sort():
    P = stream(1, "many").random((40_000, 1), dtype=np.float32)
    chosen = suggest(P, np.eye(1), 10, strategy="positives", explore=0)
    assert chosen.rows.tolist() == np.argsort(-P[:, 0], kind="stable")[:10].tolist()


def test_equal_probabilities_are_taken_in_the_pools_order():
    chosen = suggest(np.full((30_000, 1), 0.25), np.eye(1), 5, strategy="positives", explore=0)
    assert chosen.rows.tolist() == [0, 1, 2, 3, 4]


def test_labels_share_the_rows_by_need():
    P = np.kron(np.eye(2), np.full((50, 1), 0.9)) + 0.01  # nobody carries both
    Y = np.zeros((200, 2))
    Y[:99, 0], Y[:3, 1] = 1, 1  # 100 and 4 under the root: 5 times the need
    chosen = suggest(P, Y, 60, labels=[0, 1], strategy="positives", explore=0)
    assert chosen.asked.sum(axis=0).tolist() == [10, 50]
    good = suggest(
        P, Y, 60, labels=[0, 1], strategy="positives", explore=0, average_precision=[0.2, 0.84]
    )
    assert good.asked.sum(axis=0).tolist() == [30, 30]


def test_a_row_that_may_carry_several_labels_counts_for_all():
    P = np.array([[0.9, 0.8], [0.7, 0.0], [0.0, 0.6], [0.0, 0.0]])
    chosen = suggest(P, np.eye(2), 3, labels=[0, 1], strategy="positives", explore=0)
    assert chosen.rows[0] == 0
    assert chosen.asked[0].all()


def test_without_labels_the_rare_ones_with_a_positive_are_sought():
    Y = np.arange(100)[:, None] < [80, 60, 10, 1, 0]
    chosen = suggest(np.full((50, 5), 0.1), Y, 10)
    assert chosen.label_names == ("label_2", "label_3")


def test_missing_labels_are_no_negatives():
    Y = np.full((10, 1), np.nan)
    Y[0] = 1
    assert suggest([[0.5], [0.9]], Y, 1, explore=0).reasons == ("likely 'label_0'",)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ([0.1, 0.1, 0.9], "likely 'grief'"),
        ([0.1, 0.5, 0.45], "between 'grief' and 'sadness'"),
        ([0.1, 0.1, 0.2], "possibly 'grief', 10 times as likely as in a random row"),
        ([0.1, 0.1, 0.01], "unsure about 'grief'"),
    ],
)
def test_reasons_are_words(scores, why):
    Y = np.zeros((100, 3))
    Y[:2, 2] = 1
    chosen = suggest([scores], Y, 1, labels=["grief"], label_names=NAMES, explore=0)
    assert chosen.reasons == (why,)
    assert next(iter(chosen)).labels == ("grief",)


def test_random_rows_say_so():
    chosen = suggest([[0.9]], [[1]], 1, explore=1.0)
    assert next(iter(chosen)).why == "drawn at random"
    assert next(iter(chosen)).is_random


# ---- near-duplicates -----------------------------------------------------------------------------


def test_near_duplicates_of_chosen_rows_are_passed_over():
    X = stream(0, "points").standard_normal((300, 20))
    X[1:10] = X[0] + 1e-3
    P = np.linspace(0.9, 0.1, 300)[:, None]
    plain = suggest(P, np.eye(1), 10, strategy="positives", explore=0)
    assert plain.rows.tolist() == list(range(10))
    chosen = suggest(P, np.eye(1), 10, strategy="positives", explore=0, features=X)
    assert chosen.rows.tolist() == [0, *range(10, 19)]
    packed = suggest(
        P, np.eye(1), 10, strategy="positives", explore=0, features=sparse.csr_array(X)
    )
    assert packed.rows.tolist() == chosen.rows.tolist()


def test_near_duplicates_of_labeled_rows_are_passed_over():
    X = stream(0, "points").standard_normal((300, 20))
    P = np.linspace(0.9, 0.1, 300)[:, None]
    chosen = suggest(
        P, np.ones((3, 1)), 5, strategy="positives", explore=0, features=X, labeled_features=X[:3]
    )
    assert chosen.rows.tolist() == [3, 4, 5, 6, 7]


def test_near_duplicates_are_taken_where_nothing_else_is_left():
    P = np.array([[0.9], [0.8], [0.7]])
    chosen = suggest(P, np.eye(1), 3, strategy="positives", explore=0, features=np.ones((3, 2)))
    assert sorted(chosen.rows.tolist()) == [0, 1, 2]


def test_features_that_do_not_tell_rows_apart_pass_nothing_over():
    X = np.repeat(np.eye(4), 100, axis=0)
    P = np.linspace(0.9, 0.1, 400)[:, None]
    chosen = suggest(
        P,
        np.ones((4, 1)),
        4,
        strategy="positives",
        explore=0,
        features=X,
        labeled_features=np.eye(4),
    )
    assert chosen.rows[0] == 0


def test_sketches_keep_distances():
    X = stream(0, "far").standard_normal((40, 2_000))
    small = sketch(X)
    there = ((X[:20] - X[20:]) ** 2).sum(axis=1)
    here = ((small[:20] - small[20:]) ** 2).sum(axis=1)
    assert abs(np.mean(here / there) - 1) < 0.25
    assert sketch(sparse.csr_array(X[:2])) == pytest.approx(small[:2], rel=1e-4, abs=1e-3)


# ---- statistics ----------------------------------------------------------------------------------


def test_random_rows_are_drawn_alike():
    """Every row of the pool is equally likely to be explored, whatever the model thinks."""
    P = np.linspace(0, 1, 40)[:, None]
    times = np.zeros(40)
    for seed in range(2_000):
        chosen = suggest(P, np.eye(1), 10, seed=seed, explore=0.2)
        times[chosen.rows[chosen.is_random]] += 1
    expected = 2_000 * 2 / 40
    assert ((times - expected) ** 2 / expected).sum() < 80  # chi-square, 39 degrees: 1 in 10,000


def rounds_of(P, truth, seed, n=20, n_rounds=4):
    """Review in rounds; return rows, and which of them are a random sample of the pool."""
    rows, draws, random = [], [], []
    for _ in range(n_rounds):
        chosen = suggest(
            P, np.eye(1), n, strategy="positives", seed=seed, explore=0.2, reviewed=rows
        )
        rows += chosen.rows.tolist()
        draws += chosen.draws.tolist()
        random += chosen.is_random.tolist()
    return np.array(rows), random_sample(draws, random), np.array(random)


def test_the_random_sample_of_several_rounds_is_unbiased():
    """Suggested rows thin out the pool; rows up to the last random draw are a sample of all of it."""
    truth = np.zeros(200)
    truth[:60] = 1  # the model knows: they go first
    P = np.where(truth, 0.9, 0.1)[:, None]
    with_promoted, naive = [], []
    for seed in range(300):
        rows, sample, drawn = rounds_of(P, truth, seed)
        with_promoted.append(truth[rows[sample]].mean())
        naive.append(truth[rows[drawn]].mean())
    error = np.std(with_promoted) / np.sqrt(300)
    assert abs(np.mean(with_promoted) - 0.3) < 4 * error
    assert np.mean(naive) < 0.3 - 4 * error  # why the others have to count


def test_every_row_up_to_the_last_draw_has_been_reviewed():
    P = stream(3, "p").random((200, 1))
    rows, sample, _ = rounds_of(P, None, seed=7)
    draws = stream(7, "suggest").random(200)
    assert set(rows[sample].tolist()) == set(
        np.flatnonzero(draws <= draws[rows[sample]].max()).tolist()
    )


def test_the_interval_of_what_is_left_covers():
    """Clopper-Pearson is exact, so at least 95% of pools lie inside."""
    covered = 0
    for seed in range(300):
        rng = stream(seed, "cover")
        truth = rng.random(400) < 0.1
        rows = rng.permutation(400)[:80]
        (row,) = progress(
            truth[rows][:, None], np.full((80, 1), 0.1), np.ones(80, bool), [0.0],
            pool_size=400, label_names=["grief"],
        )  # fmt: skip
        covered += row.lowest <= truth.sum() - row.found <= row.highest
    assert covered >= 0.95 * 300


def test_progress_in_words():
    (row,) = progress([[1], [0], [np.nan]], [[0.9], [0.2], [0.5]], [True, True, False], [3.2],
                      pool_size=50, label_names=["grief"])  # fmt: skip
    assert str(row) == (
        "grief: 1 found in 2 reviewed (1 expected), about 3 left in the pool "
        "(95% interval by the random rows: 0 to 48)"
    )
    (row,) = progress([[0]], [[0.1]], [False], [0.5], pool_size=9, label_names=["grief"])
    assert (row.lowest, row.highest) == (0, 8)  # without a random row nothing is known


# ---- what cannot be suggested --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.zeros((0, 1)), [[1]], 1), {}, "there are no unlabeled rows: give rows to choose from"),
        (([[0.1]], [[1]], 2), {}, "n=2 rows are asked for, but only 1 row of the pool can be"),
        (([[0.1]], [[1]], 1), {"reviewed": [0]}, "add unlabeled rows"),
        (([[0.1]], [[1]], 1), {"reviewed": [1]}, "reviewed row 1 is not in the pool"),
        (([[0.1]], [[1]], 0), {}, "n must be a whole number from 1, got 0"),
        (([[0.1]], [[1]], 1), {"labels": ["joi"]}, "unknown label 'joi'; did you mean 'joy'?"),
        (([[0.1]], [[1]], 1), {"labels": []}, "labels= is empty"),
        (([[0.1]], [[0]], 1), {"labels": ["joy"]}, "'joy' has no positive among the labeled rows"),
        (([[0.1]], [[0]], 1), {}, "label a few examples of it by hand"),
        (([[0.1]], [[1]], 1), {"strategy": "margins"}, "unknown strategy 'margins'"),
        (([[0.1]], [[1]], 1), {"explore": 1.5}, "explore must be a number from 0"),
        (([[0.1]], [[1]], 1), {"seed": -1}, "seed must be a whole number from 0, got -1"),
        (([[1.1]], [[1]], 1), {}, "probabilities must be from 0 to 1, got 1.1 to 1.1"),
        (([[np.nan]], [[1]], 1), {}, "probabilities must be from 0 to 1, got nan"),
        (([0.1], [[1]], 1), {}, "of shape (rows, labels), got (1,)"),
        (([["a"]], [[1]], 1), {}, "probabilities must be numbers"),
        (([[0.1]], [[1, 0]], 1), {}, "Y has 2 labels, but probabilities have 1 columns"),
        (([[0.1]], [[1]], 1), {"label_names": ["joy", "x"]}, "2 labels are named"),
        (([[0.1]], [[1]], 1), {"features": np.ones((2, 2))}, "features must have 1 rows"),
        (([[0.1]], [[1]], 1), {"average_precision": [1, 2]}, "average_precision needs 1 numbers"),
    ],
)  # fmt: skip
def test_hostile_input(arguments, options, message):
    with pytest.raises(DataError) as caught:
        suggest(*arguments, **{"label_names": ["joy"], "explore": 0, **options})
    assert message in str(caught.value)


def test_labels_without_a_positive_can_be_sought_where_the_model_knows_their_texts():
    chosen = suggest(
        [[0.1], [0.8]], [[0]], 1, labels=["joy"], label_names=["joy"], explore=0, unseen=True
    )
    assert chosen.rows.tolist() == [1]


def test_the_function_is_at_the_top_of_the_package():
    assert tailbatch.suggest is suggest
