from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from iterstrat.ml_stratifiers import MultilabelStratifiedKFold
from scipy import sparse

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.folds import (
    Fold,
    _deal_groups,
    _dealt,
    _give_each_part_one,
    split,
    stratified_folds,
    stratified_parts,
    stratified_split,
)
from tailbatch.data.scaling import fit_scaling
from tailbatch.errors import DataError
from tailbatch.seeds import stream

labels = st.tuples(st.integers(10, 40), st.integers(1, 8)).flatmap(
    lambda shape: hnp.arrays(bool, shape)
)
labels_for_folds = st.tuples(st.integers(4, 40), st.integers(1, 8)).flatmap(
    lambda shape: st.tuples(hnp.arrays(bool, shape), st.integers(2, shape[0] // 2))
)
fractions = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5])


def assert_follows_the_published_rules(Y, part_of, shares):
    """Replay Sechidis et al. (2011) row by row in exact arithmetic; each choice must be allowed."""
    n = len(Y)
    demand = [[share * int(count) for share in shares] for count in Y.sum(axis=0)]
    overall = [share * n for share in shares]
    pending = np.ones(n, dtype=bool)

    def give(row, wanted):
        part = part_of[row]
        best = max(range(len(shares)), key=lambda p: (wanted[p], overall[p]))
        assert (wanted[part], overall[part]) == (wanted[best], overall[best])
        for label in np.flatnonzero(Y[row]):
            demand[label][part] -= 1
        overall[part] -= 1
        pending[row] = False

    while (left := (Y & pending[:, None]).sum(axis=0)).any():
        rarest = min(np.flatnonzero(left), key=lambda label: (left[label], label))
        for row in np.flatnonzero(Y[:, rarest] & pending):
            give(row, demand[rarest])
    for row in np.flatnonzero(pending):
        give(row, overall)


def parts_of(n, parts):
    part_of = np.full(n, -1)
    for number, rows in enumerate(parts):
        assert (part_of[rows] == -1).all()
        part_of[rows] = number
    assert (part_of >= 0).all()
    return part_of


@given(labels_for_folds, st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_folds_follow_the_published_rules(case, seed):
    Y, n_folds = case
    try:
        folds = stratified_folds(Y, n_folds=n_folds, seed=seed)
    except DataError:  # a fold of one row; tested below
        reject()
    held_out = [np.sort(np.r_[fold.validation, fold.test]) for fold in folds]
    parts_of(len(Y), held_out)
    dealt = _dealt(sparse.csr_array(Y), None, np.full(n_folds, 1 / n_folds), stream(seed, "folds"))
    assert_follows_the_published_rules(Y, dealt, [Fraction(1, n_folds)] * n_folds)
    for fold, rows in zip(folds, held_out, strict=True):
        half_of = parts_of(
            len(rows), [np.searchsorted(rows, r) for r in (fold.validation, fold.test)]
        )
        assert_follows_the_published_rules(Y[rows], half_of, [Fraction(1, 2)] * 2)


@given(labels_for_folds, st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_each_fold_is_disjoint_and_covers_all_rows(case, seed):
    Y, n_folds = case
    for fold in stratified_folds(Y, n_folds=n_folds, seed=seed):
        together = np.concatenate([fold.train, fold.validation, fold.test])
        assert np.array_equal(np.sort(together), np.arange(len(Y)))
        for part in (fold.train, fold.validation, fold.test):
            assert part.size > 0
            assert part.dtype == np.int64
            assert (np.diff(part) > 0).all()


@given(labels, fractions, fractions, st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_split_is_disjoint_covers_all_rows_and_follows_the_rules(Y, validation, test, seed):
    assume(validation + test < 1)
    try:
        result = stratified_split(Y, validation=validation, test=test, seed=seed)
    except DataError:  # a part without rows; tested below
        reject()
    parts = (result.train, result.validation, result.test)
    part_of = parts_of(len(Y), parts)
    shares = np.array([1 - validation - test, validation, test])
    kept = np.flatnonzero(shares)
    whole = np.maximum(np.floor(shares[kept] * len(Y)), 1)
    assume((np.bincount(part_of, minlength=3)[kept] / whole >= 0.75).all())  # else see below
    if set(shares[kept]) <= {0.25, 0.5, 0.75, 1.0}:  # exact in the implementation too
        exact = [Fraction(share) for share in shares[kept]]
        assert_follows_the_published_rules(Y, np.searchsorted(kept, part_of), exact)
    for share, part in zip(shares, parts, strict=True):
        assert (part.size > 0) == (share > 0)


@given(labels_for_folds, st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_the_seed_decides_and_storage_does_not(case, seed):
    Y, n_folds = case
    dense = stratified_folds(Y, n_folds=n_folds, seed=seed)
    stored = stratified_folds(sparse.csr_array(Y), n_folds=n_folds, seed=seed)
    for a, b in zip(dense, stored, strict=True):
        assert np.array_equal(a.train, b.train)
        assert np.array_equal(a.test, b.test)


def test_other_seeds_give_other_folds_and_the_global_generator_is_left_alone():
    Y = np.random.default_rng(0).random((200, 5)) < 0.3
    before = np.random.get_state()[1].copy()
    first, second = (stratified_folds(Y, n_folds=5, seed=seed)[0] for seed in (0, 1))
    assert not np.array_equal(first.test, second.test)
    assert np.array_equal(before, np.random.get_state()[1])


def test_explicit_zeros_in_csr_labels_are_not_labels():
    stored = sparse.csr_array(np.ones((8, 2), dtype=bool))
    stored.data[::2] = False
    folds = stratified_folds(stored, n_folds=2, seed=0)
    expected = stratified_folds(stored.toarray(), n_folds=2, seed=0)
    assert np.array_equal(folds[0].test, expected[0].test)
    assert stored.nnz == 16, "the caller's matrix is left alone"


def test_five_folds_hold_out_tenths_with_even_labels():
    Y = np.random.default_rng(1).random((1000, 4)) < [0.5, 0.2, 0.1, 0.05]
    for fold in stratified_folds(Y, n_folds=5, seed=3):
        assert len(fold.train) == 800
        for part in (fold.validation, fold.test):
            assert abs(len(part) - 100) <= 2
            assert np.abs(Y[part].sum(axis=0) - Y.sum(axis=0) / 10).max() <= 2


def test_proportions_are_at_least_as_even_as_those_of_iterative_stratification():
    rng = np.random.default_rng(2)
    topic = rng.integers(8, size=3000)
    Y = rng.random((3000, 40)) < (0.02 + 0.3 * (rng.random((8, 40)) < 0.1))[topic]

    def deviation(parts):
        return np.mean([np.abs(Y[rows].mean(axis=0) - Y.mean(axis=0)).mean() for rows in parts])

    ours, theirs = [], []
    for seed in range(3):
        folds = stratified_folds(Y, n_folds=5, seed=seed)
        ours.append(deviation([np.r_[fold.validation, fold.test] for fold in folds]))
        peer = MultilabelStratifiedKFold(n_splits=5, shuffle=True, random_state=seed)
        theirs.append(deviation([rows for _, rows in peer.split(Y, Y)]))
    assert np.mean(ours) <= 1.05 * np.mean(theirs)


@pytest.mark.parametrize("n_folds", [-1, 0, 1, 6, 10, 11])
def test_impossible_number_of_folds(n_folds):
    with pytest.raises(
        DataError, match=rf"2 to half the number of rows, got {n_folds} for 10 rows"
    ):
        stratified_folds(np.ones((10, 2), dtype=bool), n_folds=n_folds, seed=0)


def test_a_fold_of_one_row_is_an_error():
    # The first row has every label, so the rules send all others to the other fold.
    Y = np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
    with pytest.raises(DataError, match=r"fold \d gets 1 row, too few .* ask for fewer folds"):
        stratified_folds(Y, n_folds=2, seed=0)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (4,)])
def test_labels_need_rows_and_columns(shape):
    with pytest.raises(DataError, match="at least one row and one column"):
        stratified_folds(np.ones(shape, dtype=bool), n_folds=2, seed=0)


@pytest.mark.parametrize(("validation", "test"), [(-0.1, 0.5), (0.5, 0.5), (0.2, 1.0), (np.nan, 0)])
def test_impossible_fractions(validation, test):
    with pytest.raises(DataError, match="fractions from 0 that leave rows for training"):
        stratified_split(np.ones((10, 2), dtype=bool), validation=validation, test=test, seed=0)


def test_a_part_that_would_be_empty_is_an_error():
    with pytest.raises(DataError, match=r"the validation part would have no row: 0.1 of 3 rows"):
        stratified_split(np.eye(3, dtype=bool), validation=0.1, test=0, seed=0)


def some_features():
    X = np.array([[0.0, 3.0, -1.0, 7.0], [4.0, 5.0, 1.0, 7.0], [0.0, 4.0, 3.0, 7.0]])
    other = np.array([[1.0, 0.0, -5.0, 7.0], [8.0, 4.5, 1.0, 9.0]])
    return X, other


def test_dense_scaling_maps_training_ranges_and_clips_the_rest():
    X, other = some_features()
    scaling = fit_scaling("minmax", X)
    assert scaling.transform(X).tolist() == [[0, 0, 0, 0], [1, 1, 0.5, 0], [0, 0.5, 1, 0]]
    assert scaling.transform(other).tolist() == [[0.25, 0, 0, 0], [1, 0.75, 0.5, 0]]


def test_sparse_scaling_equals_dense_but_for_negative_columns():
    X, other = some_features()
    scaling = fit_scaling("minmax", sparse.csr_array(X))
    dense = fit_scaling("minmax", X).transform(other)
    stored = scaling.transform(sparse.csr_array(other))
    assert isinstance(stored, sparse.csr_array)
    assert np.array_equal(stored.toarray()[:, [0, 1, 3]], dense[:, [0, 1, 3]])
    assert stored.toarray()[:, 2].tolist() == [-1, 1 / 3]
    assert (stored.data != 0).all()


@given(hnp.arrays(np.float64, (6, 3), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=50, deadline=None)
def test_scaled_values_lie_in_the_unit_interval(X):
    scaling = fit_scaling("minmax", X[:4])
    again = type(scaling)(scaling.shift, scaling.width, scaling.low)
    scaled = again.transform(X)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    varying = X[:4].max(axis=0) > X[:4].min(axis=0)
    assert (scaled[:4].max(axis=0) == varying).all()


def test_scaling_keeps_float32_and_the_input():
    X, _ = some_features()
    X = X.astype(np.float32)
    kept = X.copy()
    assert fit_scaling("minmax", X).transform(X).dtype == np.float32
    assert (
        fit_scaling("minmax", sparse.csr_array(X)).transform(sparse.csr_array(X)).dtype
        == np.float32
    )
    assert np.array_equal(X, kept)


def test_scaling_refuses_other_widths_and_no_rows():
    with pytest.raises(DataError, match="fitted on 2 features, got 3"):
        fit_scaling("minmax", np.ones((2, 2))).transform(np.ones((2, 3)))
    with pytest.raises(DataError, match="at least one training row"):
        fit_scaling("minmax", np.ones((0, 2)))


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
def test_split_scales_with_training_rows_only(storage):
    X = np.array([[0.0, 1.0], [2.0, 2.0], [1.0, 9.0], [8.0, 1.5]])
    dataset = MultiLabelDataset.from_arrays(storage(X), np.eye(4, 2, dtype=bool))
    fold = Fold(np.array([0, 1]), np.array([2]), np.array([3]))
    parts = split(dataset, fold)
    as_lists = [
        sparse.csr_array(part.X).toarray().tolist()
        for part in (parts.train, parts.validation, parts.test)
    ]
    assert as_lists == [[[0, 0], [1, 1]], [[0.5, 1]], [[1, 0.5]]]
    assert split(dataset, fold, scale=False).test.X.sum() == 9.5
    assert parts.train.label_names == dataset.label_names


# --- rare labels and groups


def held_out_counts(Y, folds):
    return np.array([Y[np.r_[fold.validation, fold.test]].sum(axis=0) for fold in folds])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(2, 6), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_labels_of_their_own_rows_are_in_every_fold_where_their_count_allows(sizes, n_folds, seed):
    labels_of = np.repeat(np.arange(len(sizes)), sizes)
    Y = np.zeros((len(labels_of) + 4 * n_folds, len(sizes)), dtype=bool)
    Y[np.arange(len(labels_of)), labels_of] = True
    folds = stratified_folds(Y, n_folds=n_folds, seed=seed)
    held, counts = held_out_counts(Y, folds), np.array(sizes)
    assert (held[:, counts >= n_folds] > 0).all()
    train = np.array([Y[fold.train].sum(axis=0) for fold in folds])
    assert (train[:, counts >= 2] > 0).all()


@given(
    st.tuples(st.integers(12, 30), st.integers(2, 8)).flatmap(
        lambda shape: hnp.arrays(bool, shape, elements=st.sampled_from([False, False, True]))
    ),
    st.integers(2, 5),
    st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_no_single_move_gives_a_fold_a_label_it_lacks(Y, n_folds, seed):
    try:
        folds = stratified_folds(Y, n_folds=n_folds, seed=seed)
    except DataError:
        reject()
    part_of = parts_of(len(Y), [np.r_[fold.validation, fold.test] for fold in folds])
    enough = Y.sum(axis=0) >= n_folds

    def lacking(part_of):
        held = np.array([Y[part_of == part].sum(axis=0) for part in range(n_folds)])
        return {tuple(cell) for cell in np.argwhere((held == 0) & enough)}

    before = lacking(part_of)
    for part, label in before:
        for row in np.flatnonzero(Y[:, label]):
            if (part_of == part_of[row]).sum() > 2:
                moved = part_of.copy()
                moved[row] = part
                assert lacking(moved) - before, "a move that only helps was left undone"


@given(labels, st.integers(2, 3), st.integers(0, 5), st.integers(4, 9))
@settings(max_examples=100, deadline=None)
def test_groups_are_never_split(Y, n_folds, seed, n_groups):
    groups = np.random.default_rng(seed).integers(n_groups, size=len(Y))
    try:
        folds = stratified_folds(Y, n_folds=n_folds, seed=seed, groups=groups)
    except DataError:  # too few groups for two halves; tested below
        reject()
    held_out = []
    for fold in folds:
        train, validation, test = (
            set(groups[rows]) for rows in (fold.train, fold.validation, fold.test)
        )
        assert not train & validation
        assert not train & test
        assert not validation & test
        held_out += [*fold.validation, *fold.test]
    assert sorted(held_out) == list(range(len(Y)))


@given(labels, st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_groups_of_one_row_follow_the_published_rules(Y, seed):
    dealt = _deal_groups(
        sparse.csr_array(Y), np.arange(len(Y)), np.full(4, 0.25), stream(seed, "folds")
    )
    assert_follows_the_published_rules(Y, dealt, [Fraction(1, 4)] * 4)


def test_groups_of_equal_labels_are_spread_evenly():
    Y = np.repeat(np.eye(4, dtype=bool), 30, axis=0)
    groups = np.repeat([f"g{number}" for number in range(40)], 3)
    for fold in stratified_folds(Y, n_folds=5, seed=1, groups=groups):
        assert Y[np.r_[fold.validation, fold.test]].sum(axis=0).tolist() == [6, 6, 6, 6]
    fold = stratified_split(Y, validation=0.2, test=0.2, seed=1, groups=groups)
    assert Y[fold.validation].sum(axis=0).tolist() == Y[fold.test].sum(axis=0).tolist() == [6] * 4


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], r"groups must name a group for each of the 20 rows, got shape \(2,\)"),
        ([0] * 20, "1 group cannot be dealt to 3 parts"),
        ([0, 1, 2] + [3] * 17, "too few to split into validation and test; ask for fewer folds"),
    ],
)
def test_groups_that_cannot_be_dealt_are_named(groups, message):
    with pytest.raises(DataError, match=message):
        stratified_folds(np.ones((20, 1), dtype=bool), n_folds=3, seed=0, groups=groups)


@pytest.mark.parametrize("groups", [None, np.arange(60) // 3])
def test_labels_that_no_row_has_change_nothing(groups):
    rng = np.random.default_rng(0)
    Y = rng.random((60, 5)) < [0.5, 0.3, 0.3, 0.1, 0.05]
    wide = np.zeros((60, 2_000), dtype=bool)
    wide[:, [3, 4, 700, 701, 1_999]] = Y
    for labels in (wide, sparse.csr_array(wide)):
        several = stratified_folds(labels, n_folds=3, seed=1, groups=groups)
        for fold, other in zip(
            stratified_folds(Y, n_folds=3, seed=1, groups=groups), several, strict=True
        ):
            assert all(np.array_equal(a, b) for a, b in zip(parts(fold), parts(other), strict=True))
        one = stratified_split(labels, validation=0.2, test=0.1, seed=1, groups=groups)
        other = stratified_split(Y, validation=0.2, test=0.1, seed=1, groups=groups)
        assert all(np.array_equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))


def parts(fold):
    return fold.train, fold.validation, fold.test


# --- what decides where rows go


@pytest.mark.parametrize("times", [1, 2, 4])
def test_labels_with_few_positives_do_not_starve_the_validation_rows(times):
    Y = np.tile(np.eye(300 // times, dtype=bool), (times, 1))
    for labels in (Y, np.c_[Y, np.arange(300) < 20]):
        fold = stratified_split(labels, validation=0.1, test=0.2, seed=0)
        assert [len(part) for part in parts(fold)] == [210, 30, 60]


def test_labels_of_one_group_each_do_not_starve_the_validation_rows():
    groups = np.arange(300) // 5
    Y = np.eye(60, dtype=bool)[groups]
    fold = stratified_split(Y, validation=0.1, test=0, seed=0, groups=groups)
    assert len(fold.validation) == 30


def test_a_few_rare_labels_change_no_split():
    rng = np.random.default_rng(0)
    Y = rng.random((400, 6)) < [0.5, 0.3, 0.3, 0.1, 0.05, 0.05]
    Y[:, 5] = False
    Y[7, 5] = True
    fold = stratified_split(Y, validation=0.1, test=0, seed=0)
    dealt = _dealt(sparse.csr_array(Y), None, np.array([0.9, 0.1]), stream(0, "split"))
    assert np.array_equal(fold.validation, np.flatnonzero(dealt == 1))


@pytest.mark.parametrize("groups", [None, np.arange(200) // 2])
def test_other_seeds_give_other_splits(groups):
    Y = np.random.default_rng(0).random((200, 5)) < 0.3
    one, other = (
        stratified_split(Y, validation=0.2, test=0, seed=seed, groups=groups) for seed in (0, 1)
    )
    assert not np.array_equal(one.validation, other.validation)


@given(labels, st.integers(0, 5), st.integers(4, 9))
@settings(max_examples=100, deadline=None)
def test_groups_with_most_of_the_rarest_label_are_dealt_first(Y, seed, n_groups):
    rng = np.random.default_rng(seed)
    group_of = np.r_[np.arange(n_groups), rng.integers(n_groups, size=len(Y) - n_groups)]
    dealt = _deal_groups(sparse.csr_array(Y), group_of, np.full(4, 0.25), stream(seed, "folds"))
    counts = np.array([Y[group_of == group].sum(axis=0) for group in range(n_groups)])
    sizes, pending = np.bincount(group_of), np.ones(n_groups, dtype=bool)
    demand, overall = np.outer(counts.sum(axis=0), np.full(4, 0.25)), np.full(4, len(Y) / 4)
    while pending.any():
        left = counts[pending].sum(axis=0)
        rarest = min(np.flatnonzero(left), key=lambda label: (left[label], label), default=None)
        amounts = sizes if rarest is None else counts[:, rarest]
        for group in np.argsort(-amounts, kind="stable"):
            if not pending[group] or not amounts[group]:
                continue
            wanted = overall if rarest is None else demand[rarest]
            part = dealt[group_of == group][0]
            assert (wanted[part], overall[part]) == max(zip(wanted, overall, strict=True))
            demand[:, part] -= counts[group]
            overall[part] -= sizes[group]
            pending[group] = False


def given_one(rows, part_of, n_parts):
    """Return the parts after `_give_each_part_one`, for rows of label letters."""
    names = sorted({name for row in rows for name in row})
    Y = np.array([[name in row for name in names] for row in rows])
    return _give_each_part_one(sparse.csr_array(Y), np.array(part_of), n_parts).tolist()


def test_a_part_that_lacks_a_label_gets_a_row_from_the_part_with_most_of_it():
    rows = ["a", "a", "", "a", "a", "a", "", ""]
    assert given_one(rows, [0, 0, 0, 1, 1, 1, 2, 2], 3) == [0, 0, 0, 2, 1, 1, 2, 2]


def test_the_rarest_label_chooses_its_row_first():
    rows = [
        "",
        "",
        "a",
        "ab",
        "ab",
    ]  # only one row may leave; a row of "a" alone would not help "b"
    assert given_one(rows, [0, 0, 1, 1, 1], 2) == [0, 0, 1, 0, 1]


def test_two_rows_stay_in_each_part():
    assert given_one(["", "", "a", "a"], [0, 0, 1, 1], 2) == [0, 0, 1, 1]
    assert given_one(["", "", "a", "a", ""], [0, 0, 1, 1, 1], 2) == [0, 0, 0, 1, 1]


def test_a_move_may_make_room_for_one_that_was_impossible_before():
    rows = ["b", "a", "b", "b", "a", "a"]  # at first neither row of "a" may leave part 0
    assert given_one(rows, [2, 0, 2, 2, 0, 1], 3) == [0, 2, 1, 2, 0, 1]


def test_a_row_may_take_along_a_label_that_cannot_be_in_every_part():
    rows = ["a", "b", "c", "ab", "ac", "", "", ""]
    assert given_one(rows, [0, 0, 0, 1, 1, 1, 2, 2], 3) == [0, 0, 0, 2, 1, 1, 2, 2]


def test_no_row_takes_the_last_positive_of_a_label_that_every_part_can_have():
    rows = ["b", "b", "", "ab", "a", "", ""]
    assert given_one(rows, [0, 0, 0, 1, 1, 1, 1], 2) == [0, 0, 0, 1, 0, 1, 1]


class TestParts:
    """Rows dealt to parts that are each held out once."""

    def test_positives_of_every_label_are_spread(self):
        Y = np.tile(np.eye(4, dtype=bool), (25, 1))
        part = stratified_parts(Y, n_parts=5, seed=0)
        counts = np.array([Y[part == number].sum(axis=0) for number in range(5)])
        assert (counts == 5).all()

    def test_no_part_gets_two_of_a_label_that_another_lacks(self):
        Y = np.zeros((40, 2), dtype=bool)
        Y[[3, 9, 22], 0] = True
        Y[:20, 1] = True
        part = stratified_parts(Y, n_parts=5, seed=1)
        assert len(set(part[Y[:, 0]])) == 3

    def test_groups_stay_together(self):
        groups = np.repeat(np.arange(12), 5)
        Y = np.random.default_rng(0).random((60, 3)) < 0.2
        part = stratified_parts(Y, n_parts=4, seed=0, groups=groups)
        assert all(len(set(part[groups == group])) == 1 for group in range(12))
        assert set(part) == set(range(4))

    def test_too_many_parts_are_refused(self):
        Y = np.eye(4, dtype=bool)
        with pytest.raises(DataError, match="from 2 to that of the rows, 4, got 5"):
            stratified_parts(Y, n_parts=5, seed=0)
        with pytest.raises(DataError, match="2 groups cannot be dealt to 3 parts"):
            stratified_parts(Y, n_parts=3, seed=0, groups=[0, 0, 1, 1])
