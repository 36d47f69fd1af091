"""Rows of a stream: the law of their copies, weights that leave the goal alone, resuming, bad input."""

import copy
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from selection.reference import p_value
from tailbatch import load_dataset
from tailbatch.errors import SelectionError
from tailbatch.imbalance import positive_weights
from tailbatch.losses import weighted_bce
from tailbatch.selection import (
    ImportanceSelector,
    LabelCounts,
    StreamSelector,
    count_labels,
)
from tailbatch.selection.importance import _prior_norms

Y = np.array(
    [[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]], dtype=bool
)
NAMES = ("common", "second", "third")
LISTS = [[name for name, has in zip(NAMES, row, strict=True) if has] for row in Y]


def given_whole(selector, rows=Y, shard=""):
    """Return the row numbers and weights that a stream of `rows` comes out as."""
    drawn = selector.select(enumerate(rows), lambda item: item[1], shard=shard)
    return [(number, weight) for (number, _), weight in drawn]


# ---- the law -----------------------------------------------------------------------------------


def test_the_shares_are_those_of_importance_by_the_prior():
    expected = ImportanceSelector(Y, batch_size=7, mix=0.2).probabilities() * len(Y)
    _, weights = StreamSelector(count_labels(Y), mix=0.2).draw(Y, 0)
    np.testing.assert_allclose(1 / weights, expected, rtol=1e-9)


@pytest.mark.parametrize("rate", [0.3, 1, 2.5, 4])
def test_the_joint_law_of_all_copies_is_floor_or_ceil_of_each_row_by_itself(rate):
    selector = StreamSelector(count_labels(Y[:5]), rate=rate, mix=0.5)
    norms = _prior_norms(Y[:5], positive_weights(Y[:5]))
    expected = rate * (0.5 * norms / norms.mean() + 0.5)
    low, chance = np.floor(expected).astype(int), expected % 1
    law = {
        tuple(low + more): float(np.prod(np.where(more, chance, 1 - chance)))
        for more in map(np.array, product((0, 1), repeat=5))
    }
    drawn = Counter()
    for epoch in range(10):
        selector.set_epoch(epoch)
        copies, _ = selector.draw(np.tile(Y[:5], (2000, 1)), 0)
        drawn.update(map(tuple, copies.reshape(-1, 5).tolist()))
    assert p_value(drawn, law) > 1e-6
    mean = sum(np.array(copies) * chance for copies, chance in law.items())
    _, weights = selector.draw(Y[:5], 0)
    np.testing.assert_allclose(
        mean * weights, rate, err_msg="each row counts as often as the others"
    )
    assert weights.max() <= 1 / 0.5


@given(
    st.integers(0, 2**63 - 1), st.integers(1, 5), st.floats(0.01, 4), st.floats(0.01, 1), st.data()
)
def test_copies_and_weights_keep_their_bounds(seed, q, rate, mix, data):
    labels = np.array(
        data.draw(st.lists(st.lists(st.booleans(), min_size=q, max_size=q), min_size=1))
    )
    labels[0, 0] = True
    selector = StreamSelector(count_labels(labels), rate=rate, mix=mix, seed=seed)
    copies, weights = selector.draw(labels, 5)
    assert ((weights > 0) & (weights <= 1 / mix * (1 + 1e-12))).all()
    assert (np.abs(copies - rate / weights) < 1 + 1e-9).all()
    np.testing.assert_allclose((1 / weights).mean(), 1, err_msg="at rate 1 as many rows as before")


def test_the_weighted_gradient_of_a_network_is_that_of_shuffling():
    data = load_dataset("debtags").take(range(120))
    counts = count_labels(data.Y)
    x, y = torch.tensor(data.X.toarray()).float(), torch.tensor(data.Y).float()
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(data.n_features, 8), torch.nn.ReLU(), torch.nn.Linear(8, data.n_labels)
    )
    losses = weighted_bce(data.Y).rows(network(x), y)
    parameters = list(network.parameters())
    gradients = np.array(
        [
            torch.cat([g.ravel() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
            for loss in losses
        ]
    )
    mean = gradients.mean(0)
    common, rare = np.argmax(counts.counts), np.argmin(np.where(counts.counts, counts.counts, 999))
    bias = gradients[:, -data.n_labels :]
    along = np.column_stack([gradients @ mean, bias[:, common], bias[:, rare]])
    for rate in (0.5, 1.0):
        selector = StreamSelector(counts, rate=rate)
        estimates = []
        for epoch in range(100):  # each of a hundred times the rows: 10^4 epochs' worth of draws
            selector.set_epoch(epoch)
            copies, weights = selector.draw(np.tile(data.Y, (100, 1)), 0)
            times = (copies * weights).reshape(100, -1)
            estimates.append(times @ along / (rate * data.n_samples))
        estimates = np.concatenate(estimates)
        error = estimates.std(0) / len(estimates) ** 0.5
        z = (estimates.mean(0) - along.mean(0)) / error
        assert (np.abs(z) < 3).all(), z
        unweighted = copies.reshape(100, -1) @ along / (rate * data.n_samples)
        assert np.abs((unweighted.mean(0) - along.mean(0)) / error).max() > 10, "the test can tell"


def test_the_mean_norm_of_a_sample_of_the_rows_is_near_that_of_all():
    data = load_dataset("debtags")
    parts = [count_labels(part, shard=str(k)) for k, part in enumerate(np.array_split(data.Y, 40))]
    counts = sum(parts[1:], parts[0]) + count_labels(data.Y, shard="again")
    assert counts.sample.shape == (4096, 119)
    assert counts.n_samples == 2 * data.n_samples
    np.testing.assert_array_equal(counts.counts, 2 * data.Y.sum(0))
    _, weights = StreamSelector(counts).draw(data.Y, 0)
    assert abs((1 / weights).mean() - 1) < 0.03
    _, weights = StreamSelector(data.Y.sum(0), data.n_samples).draw(data.Y, 0)
    assert 0.85 < (1 / weights).mean() < 1.15, "of the counts alone it is known roughly"


# ---- labels in any form --------------------------------------------------------------------------


def test_every_form_of_labels_draws_the_same():
    counts = count_labels(LISTS)
    assert (counts.names, counts.counts.tolist()) == (NAMES, [5, 1, 1])
    expected = given_whole(StreamSelector(counts), LISTS)
    sparse_rows = [sparse.csr_array(row[None]) for row in Y]
    tensors = [torch.tensor(row) for row in Y]
    for rows in (
        Y,
        Y.astype(int).tolist(),
        sparse_rows,
        tensors,
        [np.array(r, str) for r in LISTS],
    ):
        own = count_labels(rows)
        assert own.counts.tolist() == [5, 1, 1]
        assert given_whole(StreamSelector(own), rows) == expected
    for whole in (Y, sparse.csr_array(Y), torch.tensor(Y), LISTS):
        copies, weights = StreamSelector(counts).draw(whole, 0)
        assert Counter(n for n, _ in expected) == Counter(np.repeat(range(7), copies).tolist())
        assert dict(expected) == {n: weights[n] for n in dict(expected)}


def test_counts_of_parts_add_up_to_those_of_the_whole():
    whole = count_labels(iter(LISTS), shard="a")
    parts = count_labels(LISTS[4:], shard="b") + count_labels(LISTS[:4], shard="a")
    order = [parts.names.index(name) for name in whole.names]
    assert parts.counts[order].tolist() == whole.counts.tolist()
    assert parts.shards == {"a": 4, "b": 3}
    assert count_labels(iter([Y[:3], Y[3:]])).counts.tolist() == whole.counts.tolist()
    several = count_labels((LISTS * 500), names=NAMES)
    assert (several.n_samples, several.counts.tolist()) == (3500, [2500, 500, 500])
    assert copy.deepcopy(several).counts.tolist() == [2500, 500, 500]


def test_an_unknown_label_is_an_error_or_counts_as_the_most_common_one():
    counts = count_labels(LISTS)
    with pytest.raises(SelectionError, match="do not know the label 'thrid'; did you mean 'third'"):
        StreamSelector(counts).draw([["thrid"]], 0)
    lenient = StreamSelector(counts, unknown="common")
    same = [lenient.draw([labels], 3) for labels in (["new"], ["common"], ["new", "common", "new"])]
    assert len({(copies[0], weights[0]) for copies, weights in same}) == 1
    wide = np.eye(4, dtype=bool)
    with pytest.raises(SelectionError, match="a row has 4 labels and the counts have 3"):
        StreamSelector(counts).draw(wide, 0)
    _, weights = lenient.draw(wide, 0)
    assert weights[3] == weights[0] > weights[1]


def test_rows_without_labels_are_rows_like_others():
    selector = StreamSelector(count_labels(LISTS), rate=4)
    copies, weights = selector.draw([[], []], 0)
    assert copies.min() >= 1
    assert weights[0] == weights[1]
    assert 3 in dict(given_whole(selector, LISTS))


# ---- streams and state -----------------------------------------------------------------------


def test_a_row_draws_the_same_whoever_reads_it_and_another_in_each_epoch():
    labels = np.tile(Y, (200, 1))
    selector = StreamSelector(count_labels(labels), seed=4)
    copies, _ = selector.draw(labels, 0, shard="a")
    single = [selector.draw(labels[[row]], row, shard="a")[0][0] for row in (0, 7, 999)]
    assert single == copies[[0, 7, 999]].tolist()
    numbered, _ = selector.draw(labels[::-1], np.arange(len(labels))[::-1], shard="a")
    assert (numbered[::-1] == copies).all()
    assert (selector.draw(labels, 0, shard="b")[0] != copies).any()
    names = [f"row {number}" for number in range(len(labels))]
    named, _ = selector.draw(labels, names)
    assert (selector.draw(labels[5:], names[5:])[0] == named[5:]).all()
    selector.set_epoch(1)
    assert (selector.draw(labels, 0, shard="a")[0] != copies).any()


def test_copies_of_a_row_do_not_meet_in_the_buffer():
    labels = np.zeros((1000, 2), dtype=bool)
    labels[:900, 0] = labels[::20, 1] = True
    selector = StreamSelector(count_labels(labels), rate=4, buffer=1000)
    numbers = np.array([number for number, _ in given_whole(selector, labels)])
    copies, _ = selector.draw(labels, 0)
    assert copies.max() >= 8
    for row in np.flatnonzero(copies > 1):
        apart = np.diff(np.flatnonzero(numbers == row)).min()
        assert apart > 0.8 * len(numbers) / copies[row]
    alone = StreamSelector(count_labels(labels), rate=4, buffer=1)
    assert [n for n, _ in given_whole(alone, labels)] == np.repeat(range(1000), copies).tolist()


@pytest.mark.parametrize("adapt", [False, True])
def test_streams_resume_in_the_middle_of_an_epoch(adapt):
    rng = np.random.default_rng(0)
    shards = {
        name: rng.random((size, 5)) < 0.2 for name, size in (("a", 90), ("b", 100), ("c", 41))
    }
    counts = [count_labels(labels, shard=name) for name, labels in shards.items()]

    def make():
        return StreamSelector(counts[0] + counts[1] + counts[2], rate=0.8, buffer=32, adapt=adapt)

    def rows(selector):
        for name, labels in shards.items():
            for item in given_whole_lazily(selector, labels, name):
                yield (name, *item)

    def given_whole_lazily(selector, labels, name):
        drawn = selector.select(enumerate(labels), lambda item: item[1], shard=name)
        return ((number, weight) for (number, _), weight in drawn)

    selector = make()
    selector.set_epoch(3)
    states, whole = [selector.state_dict()], []
    for row in rows(selector):
        whole.append(row)
        states.append(selector.state_dict())
    assert {name for name, _, _ in whole} == set(shards)
    for done, state in list(enumerate(states))[::7]:
        resumed = make()
        resumed.load_state_dict(copy.deepcopy(state))
        assert list(rows(resumed)) == whole[done:]
        assert len(state) <= 6
    selector.set_epoch(4)
    assert list(rows(selector)) != whole


def test_a_selector_that_adapts_starts_with_uniform_rows_and_learns_the_counts():
    labels = np.tile(Y, (30, 1))
    empty = count_labels([], names=NAMES)
    selector = StreamSelector(empty, adapt=True, buffer=70)
    weights = dict(given_whole(selector, labels))
    assert {weight for number, weight in weights.items() if number < 70} == {1.0}
    assert len({weight for number, weight in weights.items() if number >= 70}) > 1
    assert selector.counts.counts.tolist() == (30 * Y.sum(0)).tolist()


def test_a_table_gives_the_rows_that_its_numbers_draw():
    table = {"row": np.arange(70, 77), "labels": LISTS, "text": list("abcdefg")}
    selector = StreamSelector(count_labels(LISTS), rate=3)
    taken = selector.take(table)
    copies, weights = selector.draw(LISTS, 70)
    assert Counter(taken["row"].tolist()) == Counter(np.repeat(table["row"], copies).tolist())
    for row, text, labels, weight in zip(
        *(taken[k] for k in ("row", "text", "labels", "weight")), strict=True
    ):
        assert (text, labels, weight) == ("abcdefg"[row - 70], LISTS[row - 70], weights[row - 70])
    with pytest.raises(SelectionError, match="no column 'labels'; did you mean 'label'"):
        selector.take({"label": LISTS, "row": range(7)})


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0, -1, 4.01, float("nan"), float("inf"), "1"])
def test_a_rate_outside_its_range_is_refused(rate):
    with pytest.raises(SelectionError, match="rate must be above 0 and at most 4, got"):
        StreamSelector(count_labels(Y), rate=rate)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (([5, 1, 1],), {}, "n_samples is needed beside an array"),
        (([5, 1, 9], 7), {}, "label 2 has the count 9, which must be from 0 to the 7 rows"),
        (([5, -1, 1], 7), {}, "label 1 has the count -1"),
        (([0, 0, 0], 7), {}, "no label has a positive, so there is nothing to prefer"),
        (([0.5, 0.1], 7), {}, "label_counts must be one whole number for each label"),
        ((count_labels(Y), 8), {}, "n_samples is 8, and the labels of 7 rows were counted"),
        ((count_labels(Y),), {"mix": 0}, "mix must be above 0 and at most 1, got 0"),
        ((count_labels(Y),), {"unknown": "skip"}, "unknown must be 'error' or 'common'"),
        ((count_labels(Y),), {"buffer": 0}, "buffer must be a whole number from 1"),
        ((count_labels(Y),), {"loss": [1, 2]}, "one number for each of the 3 labels"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(arguments, settings, message):
    with pytest.raises(SelectionError, match=message):
        StreamSelector(*arguments, **settings)


@pytest.mark.parametrize(
    ("labels", "rows", "message"),
    [
        (Y[:, :2], 0, "a row has 2 labels and the counts have 3"),
        ([[1, 0, 2]], 0, "labels must be 0 or 1, got 2"),
        ([["common"]], 0, "the counts know columns only"),
        (Y, [1, 2], "a whole number or name of each of the 7 rows"),
        (Y, np.zeros(7), "a whole number or name of each of the 7 rows"),
        ([[1, 0, 0], [1]], 0, "Y lists the labels"),
    ],
)
def test_batches_that_cannot_be_used(labels, rows, message):
    with pytest.raises(SelectionError, match=message):
        StreamSelector(count_labels(Y)).draw(labels, rows)


def test_a_row_that_lacks_its_labels_says_so():
    selector = StreamSelector(count_labels(LISTS))
    for row in (None, "common"):
        with pytest.raises(SelectionError, match="a row's labels must be a list of names, got"):
            selector.draw([["common"], row], 0)


def test_counts_of_other_labels_cannot_be_added():
    with pytest.raises(SelectionError, match="counts of 2 columns cannot be added to counts of 3"):
        count_labels(Y) + count_labels(Y[:, :2])
    with pytest.raises(
        SelectionError, match="3 named labels cannot be added to counts of 3 columns"
    ):
        count_labels(Y) + count_labels(LISTS)
    with pytest.raises(SelectionError, match="no rows to count labels of"):
        count_labels([])
    assert (LabelCounts(Y.sum(0), 7) + count_labels(Y)).n_samples == 14


def test_a_shard_that_changed_is_noticed():
    counts = count_labels(Y, shard="a") + count_labels(Y, shard="b")
    for rows, message in (
        (Y[:5], "has 5 rows and had 7"),
        (np.tile(Y, (2, 1)), "at least 14 rows"),
    ):
        with pytest.raises(SelectionError, match=f"the shard 'a' .*{message.split(' ', 1)[1]}"):
            given_whole(StreamSelector(counts), rows, "a")
    with pytest.raises(SelectionError, match="the shard 'c' was not counted"):
        given_whole(StreamSelector(counts), Y, "c")


def test_a_state_of_other_counts_or_settings_is_refused():
    state = StreamSelector(count_labels(Y)).state_dict()
    for counts, settings in (
        (Y, {"rate": 2}),
        (Y, {"seed": 1}),
        (Y[1:], {}),
        (Y, {"loss": [1, 1, 1]}),
    ):
        with pytest.raises(SelectionError, match="other label counts or settings"):
            StreamSelector(count_labels(counts), **settings).load_state_dict(state)
    with pytest.raises(SelectionError, match="rows"):
        StreamSelector(count_labels(Y)).load_state_dict({**state, "rows": -1})
