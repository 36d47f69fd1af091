import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from tailbatch import imbalance
from tailbatch.data import SCALINGS, load_dataset
from tailbatch.errors import DataError, MissingExtraError
from tailbatch.imbalance import (
    imbalance_ratio,
    label_cardinality,
    label_cooccurrence,
    label_counts,
    local_imbalance,
    local_imbalance_share,
    mean_imbalance_ratio,
    minority_labels,
    nearest_neighbors,
    rare_labels,
    scumble,
    selection_weights,
)

label_matrices = st.tuples(st.integers(2, 25), st.integers(1, 6)).flatmap(
    lambda shape: hnp.arrays(bool, shape)
)
# Coarse values make duplicates and ties; fine ones make rounding matter.
values = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, 1.0, -1.0, 1e6 + 0.1]) | st.floats(-10, 10)
feature_matrices = st.tuples(st.integers(2, 25), st.integers(1, 9)).flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=values)
)


def naive_neighbors(X, row, k):
    others = [other for other in range(len(X)) if other != row]
    return sorted(others, key=lambda other: (((X[row] - X[other]) ** 2).sum(), other))[:k]


def naive_weights(X, Y, k):
    """Compute the definitions literally, cell by cell."""
    n, q = Y.shape
    counts = [sum(Y[:, j]) for j in range(q)]
    ratios = [max(counts) / count if count else None for count in counts]
    mean = np.mean([ratio for ratio in ratios if ratio])
    weights = np.ones(n)
    for j in range(q):
        if not ratios[j] or ratios[j] <= mean:
            continue
        column = np.zeros(n)
        for i in np.flatnonzero(Y[:, j]):
            column[i] = sum(not Y[m, j] for m in naive_neighbors(X, i, k)) / k
        column[column == 1] = 0
        if column.sum() > 0:
            weights += column / column.sum()
    return weights


@given(feature_matrices, st.data())
@settings(max_examples=200, deadline=None)
def test_neighbors_equal_the_naive_ones_dense_and_sparse(X, data):
    k = data.draw(st.integers(1, len(X) - 1))
    expected = [naive_neighbors(X, row, k) for row in range(len(X))]
    everyone = np.arange(len(X))
    assert nearest_neighbors(X, everyone, k).tolist() == expected
    assert nearest_neighbors(sparse.csr_array(X), everyone, k).tolist() == expected


@given(hnp.arrays(np.float64, (12, 4), elements=st.integers(-3, 3)), st.integers(1, 11))
@settings(max_examples=50, deadline=None)
def test_neighbors_of_whole_numbers_with_many_ties(X, k):
    expected = [naive_neighbors(X, row, k) for row in (7, 2)]
    assert nearest_neighbors(X, [7, 2], k).tolist() == expected
    assert nearest_neighbors(sparse.csr_matrix(X), [7, 2], k).tolist() == expected


def test_a_row_is_never_its_own_neighbor_even_among_duplicates():
    X = np.full((6, 3), 0.1)
    assert nearest_neighbors(X, [0, 3], k=3).tolist() == [[1, 2, 3], [0, 1, 2]]


def test_neighbors_come_in_blocks_with_progress(monkeypatch):
    X = np.random.default_rng(0).random((50, 3))
    whole = nearest_neighbors(X, np.arange(50), k=4)
    monkeypatch.setattr(imbalance, "_BLOCK_ENTRIES", 1)  # the smallest blocks: 16 rows
    calls = []
    found = nearest_neighbors(X, range(50), k=4, progress=lambda *call: calls.append(call))
    assert np.array_equal(found, whole)
    assert calls == [(16, 50), (32, 50), (48, 50), (50, 50)]
    assert np.array_equal(nearest_neighbors(sparse.csr_array(X), range(50), k=4), whole)


def test_no_rows_and_no_features():
    assert nearest_neighbors(np.ones((4, 2)), [], k=2).shape == (0, 2)
    assert nearest_neighbors(np.ones((4, 0)), [2], k=2).tolist() == [[0, 1]]


def test_far_from_the_origin_rounding_does_not_decide():
    X = 1e7 + np.random.default_rng(1).integers(0, 50, size=(40, 3)) / 8
    expected = [naive_neighbors(X, row, 5) for row in range(40)]
    assert nearest_neighbors(X, np.arange(40), k=5).tolist() == expected


@pytest.mark.parametrize("k", [0, 4, 9])
def test_impossible_k_names_k_and_n(k):
    with pytest.raises(DataError, match=f"got k={k} for n=4 rows"):
        nearest_neighbors(np.ones((4, 2)), [0], k)


def test_features_must_be_finite_and_the_method_known():
    X = np.ones((4, 2))
    with pytest.raises(DataError, match="method must be one of exact, faiss, got 'kd_tree'"):
        nearest_neighbors(X, [0], 1, method="kd_tree")
    X[2, 1] = np.nan
    with pytest.raises(DataError, match="row 2 of X has a value that is not finite"):
        nearest_neighbors(X, [0], 1)


def test_faiss_finds_the_same_neighbors():
    pytest.importorskip("faiss")
    X = np.random.default_rng(0).random((300, 8))
    rows = np.arange(0, 300, 7)
    exact = nearest_neighbors(X, rows, 5)
    assert np.array_equal(nearest_neighbors(X, rows, 5, method="faiss"), exact)
    with pytest.raises(DataError, match=r'^method="faiss" needs dense features'):
        nearest_neighbors(sparse.csr_array(X), rows, 5, method="faiss")


def test_without_faiss_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"tailbatch\[faiss\]"):
        nearest_neighbors(np.ones((4, 2)), [0], 1, method="faiss")


def test_faiss_with_as_few_rows_as_can_be():
    pytest.importorskip("faiss")
    X = np.array([[0.0], [1.0], [5.0]])
    assert nearest_neighbors(X, [0, 2], 2, method="faiss").tolist() == [[1, 2], [1, 0]]


@given(label_matrices, st.data())
@settings(max_examples=100, deadline=None)
def test_weights_equal_the_naive_ones_for_every_storage(Y, data):
    n = len(Y)
    X = data.draw(hnp.arrays(np.float64, (n, 3), elements=values))
    k = data.draw(st.integers(1, n - 1))
    expected = naive_weights(X, Y, k) if Y.any() else np.ones(n)
    assert selection_weights(X, Y, k=k) == pytest.approx(expected)
    stored = selection_weights(sparse.csr_array(X), sparse.csr_array(Y), k=k)
    assert stored == pytest.approx(expected)
    assert (stored >= 1).all()
    assert stored.sum() - n <= minority_labels(Y).sum() + 1e-9


@given(label_matrices)
@settings(max_examples=60, deadline=None)
def test_label_facts_do_not_depend_on_storage_and_follow_the_columns(Y):
    order = np.random.default_rng(0).permutation(Y.shape[1])
    stored = sparse.csr_array(Y)
    for fact in (label_counts, imbalance_ratio, minority_labels):
        assert np.allclose(fact(Y), fact(stored))
        assert np.allclose(fact(Y)[order], fact(Y[:, order]))
    for fact in (mean_imbalance_ratio, label_cardinality, scumble):
        assert fact(Y) == pytest.approx(fact(stored), nan_ok=True)
        assert fact(Y) == pytest.approx(fact(Y[:, order]), nan_ok=True)


@given(label_matrices)
@settings(max_examples=60, deadline=None)
def test_cooccurrence_is_symmetric_and_keeps_the_storage(Y):
    graph = label_cooccurrence(Y)
    assert isinstance(graph, np.ndarray)
    assert np.array_equal(graph, graph.T)
    assert (np.diag(graph) == 0).all()
    assert ((graph >= 0) & (graph <= 1)).all()
    stored = label_cooccurrence(sparse.csr_array(Y))
    assert isinstance(stored, sparse.csr_array)
    assert np.array_equal(stored.toarray(), graph)


def test_a_label_without_positives():
    Y = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0]], dtype=bool)
    assert imbalance_ratio(Y).tolist() == [1, np.inf, 3]
    assert mean_imbalance_ratio(Y) == 2
    assert minority_labels(Y).tolist() == [False, False, True]
    assert (label_cooccurrence(Y)[1] == 0).all()


def test_labels_without_any_positive():
    Y = np.zeros((4, 2), dtype=bool)
    assert imbalance_ratio(Y).tolist() == [np.inf, np.inf]
    assert np.isnan(mean_imbalance_ratio(Y))
    assert not minority_labels(Y).any()
    assert scumble(Y) == 0
    assert selection_weights(np.ones((4, 1)), Y).tolist() == [1] * 4


def test_five_neighbors_unless_told_otherwise():
    rng = np.random.default_rng(0)
    X, Y = rng.random((60, 3)), rng.random((60, 4)) < (0.5, 0.3, 0.2, 0.1)
    default = selection_weights(X, Y)
    assert np.array_equal(default, selection_weights(X, Y, k=5))
    assert not np.array_equal(default, selection_weights(X, Y, k=6))


def test_shares_leave_what_they_are_given_as_it_is():
    B = sparse.csr_array(np.array([[0.2, 1.0], [0.6, 0.0]]))
    before = B.copy()
    local_imbalance_share(B)
    assert np.array_equal(B.toarray(), before.toarray())


def test_weights_search_only_rows_with_a_minority_label():
    X = np.random.default_rng(0).random((40, 2))
    Y = np.zeros((40, 2), dtype=bool)
    Y[:, 0] = True
    Y[:6, 1] = True
    calls = []
    selection_weights(X, Y, k=3, progress=lambda *call: calls.append(call))
    assert calls == [(6, 6)]


def test_local_imbalance_keeps_the_storage_of_the_labels():
    rng = np.random.default_rng(0)
    X, Y = rng.random((30, 2)), rng.random((30, 4)) < 0.3
    dense = local_imbalance(X, Y, k=3)
    stored = local_imbalance(X, sparse.csr_array(Y), k=3)
    assert isinstance(dense, np.ndarray)
    assert isinstance(stored, sparse.csr_array)
    assert np.array_equal(stored.toarray(), dense)
    kept = dense.copy()
    assert np.array_equal(local_imbalance_share(stored).toarray(), local_imbalance_share(dense))
    assert np.array_equal(dense, kept)


@given(label_matrices)
@settings(max_examples=60, deadline=None)
def test_scumble_follows_its_definition(Y):
    ratio = imbalance_ratio(Y)
    expected = []
    for row in Y:
        present = ratio[row]
        several = len(present) > 1
        geometric = np.prod(present) ** (1 / max(len(present), 1))
        expected.append(1 - geometric / present.mean() if several else 0)
    assert scumble(Y) == pytest.approx(np.mean(expected), abs=1e-12)
    assert scumble(Y) >= 0


def test_scumble_of_emotions_is_the_one_mldr_prints(benchmark_data):
    emotions = load_dataset(benchmark_data / "emotions" / "emotions.arff.gz")
    assert scumble(emotions.Y) == pytest.approx(0.01095238, abs=5e-9)
    assert mean_imbalance_ratio(emotions.Y) == pytest.approx(1.478068, abs=5e-7)


def test_weights_of_real_data_equal_the_naive_ones(benchmark_data):
    dataset = load_dataset(benchmark_data / "flags" / "flags.arff.gz")
    X = SCALINGS["minmax"].fit(dataset.X).transform(dataset.X)
    weights = selection_weights(X, dataset.Y)
    assert weights == pytest.approx(naive_weights(X, dataset.Y, 5))


def _labels_with(*counts: int) -> np.ndarray:
    return np.arange(max(counts))[:, None] < counts


def test_a_few_freak_labels_do_not_decide_which_labels_are_rare():
    counts = [1800, 1500, 900, 52, 27, 14]
    alone = rare_labels(_labels_with(*counts))
    assert alone.tolist() == [False, False, False, True, True, True]
    for freaks in ([1], [1, 1, 1], [0, 2], [1] * 40):
        with_freaks = rare_labels(_labels_with(*counts, *freaks))
        assert with_freaks.tolist() == [*alone.tolist(), *[False] * len(freaks)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(0, 9))
def test_rare_labels_are_the_least_frequent_half_at_most_of_those_with_enough(counts, fewest):
    Y = _labels_with(*counts, 1)[:, :-1]
    rare, counts = rare_labels(Y, min_positives=fewest), np.array(counts)
    enough = counts >= max(fewest, 1)
    assert not rare[~enough].any()
    assert rare.sum() <= enough.sum() / 2
    if rare.any():
        assert counts[rare].max() < counts[enough & ~rare].min()
    if len(set(counts[enough])) < 2:
        assert not rare.any()
