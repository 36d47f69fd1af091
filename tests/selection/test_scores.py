"""A sample's score depends on its own losses alone: not on its place, its batch, or their memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tailbatch.selection import (
    AdaptiveSelector,
    HardSelector,
    MinoritySelector,
    MissedRareLabels,
    WeightedLoss,
    mean_loss,
)

N = 40


def unaligned(losses):
    """Return an equal array that begins at an odd address."""
    memory = np.zeros(losses.nbytes + 1, dtype=np.uint8)[1:]
    shifted = memory.view(losses.dtype).reshape(losses.shape)
    shifted[...] = losses
    return shifted


LAYOUTS = {
    "row after row": np.ascontiguousarray,
    "column after column": np.asfortranarray,
    "every other row": lambda losses: np.repeat(losses, 2, axis=0)[::2],
    "every other column": lambda losses: np.repeat(losses, 2, axis=1)[:, ::2],
    "backwards": lambda losses: losses[:, ::-1].copy()[:, ::-1],
    "unaligned": unaligned,
}
#: From a few labels to more than NumPy's buffer of 8,192 numbers.
Q = st.sampled_from([1, 2, 7, 8, 9, 64, 129, 1000, 9000])


@st.composite
def batches(draw):
    """Return losses (n, q), labels (n, q), and the rows of a batch, in a layout."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    q = draw(Q)
    losses = rng.exponential(size=(N, q)) * 10.0 ** rng.integers(-3, 3, size=(1, q))
    labels = rng.random((N, q)) < draw(st.sampled_from([0.05, 0.5, 1.0]))
    labels[0] = True
    batch = rng.permutation(N)[: draw(st.integers(1, N))]
    return losses, labels, batch, LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]


def scores_of(labels):
    return {
        "mean": mean_loss,
        "weighted": WeightedLoss(1 + np.arange(N) % 3),
        "minority": MissedRareLabels(labels, power=0.5),
        "minority, sparse": MissedRareLabels(sparse.csr_array(labels), power=0.5),
    }


@settings(max_examples=60, deadline=None)
@given(batches())
def test_a_score_does_not_depend_on_the_batch_around_it(case):
    losses, labels, batch, layout = case
    for name, score in scores_of(labels).items():
        alone = [score(losses[i : i + 1].copy(), np.array([i]))[0] for i in batch]
        assert score(layout(losses[batch]), batch).tolist() == alone, name


@settings(max_examples=25, deadline=None)
@given(batches())
def test_minority_scores_add_label_after_label(case):
    losses, labels, batch, layout = case
    score = MissedRareLabels(labels, power=0.5)
    naive = []
    for i in batch:
        total = 0.0
        for label in np.flatnonzero(labels[i]):
            total += losses[i, label] * score._rarity[label]
        naive.append(total)
    assert score(layout(losses[batch]), batch).tolist() == naive


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("strategy", ["hard", "adaptive", "minority"])
def test_equal_rows_get_equal_chances_whatever_the_batch(strategy, layout):
    rng = np.random.default_rng(0)
    labels = np.tile(rng.random(37) < 0.5, (N, 1))
    make = {
        "hard": lambda: HardSelector(N, batch_size=7),
        "adaptive": lambda: AdaptiveSelector(1.0, n_samples=N, batch_size=7),
        "minority": lambda: MinoritySelector(labels, batch_size=7, selection_pressure=16),
    }
    selector = make[strategy]()
    row = rng.exponential(size=37)
    for _ in range(4):
        for index in selector:
            selector.observe(layout(np.tile(row, (len(index), 1))))
    scores = np.asarray(selector.state_dict()["scores"])
    assert len(set(scores[np.isfinite(scores)])) == 1


def test_initial_losses_count_as_observed_ones():
    losses = np.random.default_rng(0).exponential(size=(N, 37))
    given = HardSelector(N, batch_size=7, initial_losses=np.asfortranarray(losses))
    assert given.state_dict()["scores"].tolist() == mean_loss(losses, np.arange(N)).tolist()


def test_labels_listed_twice_or_out_of_order_count_once():
    twice = sparse.csr_array(
        (np.ones(4, dtype=np.int8), np.array([2, 0, 0, 1]), np.array([0, 3, 4])), shape=(2, 3)
    )
    selector = MinoritySelector(twice, batch_size=2)
    assert selector.labels.toarray().tolist() == [[True, False, True], [False, True, False]]
    assert selector.labels.indices.tolist() == [0, 2, 1]
