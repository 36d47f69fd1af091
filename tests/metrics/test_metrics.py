import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.special import expit, logit
from sklearn import metrics as reference

from tailbatch import metrics
from tailbatch.errors import DataError
from tailbatch.metrics import METRICS, Scored, evaluate, tune_thresholds

# Few distinct values make ties; -0.0 must tie with 0.0.
coarse = st.sampled_from([0.0, -0.0, 0.25, 0.5, 0.75, 1.0])
fine = st.floats(0, 1, width=32)


@st.composite
def cases(draw, *, min_side=1):
    shape = draw(st.tuples(st.integers(min_side, 12), st.integers(min_side, 8)))
    Y = draw(hnp.arrays(bool, shape))
    elements = draw(st.sampled_from([coarse, fine]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return Y, draw(hnp.arrays(dtype, shape, elements=elements))


def quietly(function, *arguments, **options):
    """Call scikit-learn, which warns where a class is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def naive_auc(relevant, scores, tie):
    pairs = [(p, m) for p in scores[relevant] for m in scores[~relevant]]
    return np.mean([1 if p > m else tie if p == m else 0 for p, m in pairs]) if pairs else np.nan


def naive_top_share(relevant, scores, k):
    """Expected share of relevant labels in the k best, over random orders of equal scores."""
    k = min(k, len(scores))
    total = 0.0
    for j in np.flatnonzero(relevant):
        above, tied = (scores > scores[j]).sum(), (scores == scores[j]).sum()
        total += min(max((k - above) / tied, 0), 1)
    return total / k


@given(cases(min_side=2))
@settings(max_examples=60, deadline=None)
def test_parity_with_scikit_learn_where_definitions_agree(case):
    Y, scores = case
    predictions = scores > 0.5
    ours = evaluate(Y, scores)
    assert ours["ranking_loss"] == pytest.approx(reference.label_ranking_loss(Y, scores))
    assert ours["coverage"] == pytest.approx(reference.coverage_error(Y, scores))
    assert ours["label_ranking_average_precision"] == pytest.approx(
        reference.label_ranking_average_precision_score(Y, scores)
    )
    for k in (1, 3, 5):
        assert ours[f"ndcg_at_{k}"] == pytest.approx(
            reference.ndcg_score(Y, scores.astype(np.float64), k=k)
        )
    assert ours["hamming_loss"] == pytest.approx(reference.hamming_loss(Y, predictions))
    assert ours["subset_accuracy"] == pytest.approx(reference.accuracy_score(Y, predictions))
    for name, average in (("macro_f", "macro"), ("micro_f", "micro"), ("example_f", "samples")):
        expected = quietly(reference.f1_score, Y, predictions, average=average)
        assert ours[name] == pytest.approx(expected)
    if Y.any():
        assert ours["micro_average_precision"] == pytest.approx(
            reference.average_precision_score(Y, scores, average="micro")
        )
    for j in range(Y.shape[1]):
        if Y[:, j].any():
            expected = reference.average_precision_score(Y[:, j], scores[:, j])
            assert metrics.average_precision_by_label(Y, scores)[j] == pytest.approx(expected)
        if Y[:, j].any() and not Y[:, j].all():
            expected = reference.roc_auc_score(Y[:, j], scores[:, j])
            assert metrics.auc_by_label(Y, scores)[j] == pytest.approx(expected)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_metrics_of_our_own_follow_their_definitions(case):
    Y, scores = case
    n, q = Y.shape
    ours = evaluate(Y, scores, only=METRICS)
    areas = [naive_auc(Y[:, j], scores[:, j], tie=0.5) for j in range(q)]
    assert ours["macro_auc"] == pytest.approx(
        np.nan if np.isnan(areas).all() else np.nanmean(areas), nan_ok=True
    )
    legacy = [np.nan_to_num(naive_auc(Y[:, j], scores[:, j], tie=1)) for j in range(q)]
    assert ours["macro_auc_legacy"] == pytest.approx(np.mean(legacy))
    for k in (1, 3, 5):
        shares = [naive_top_share(Y[i], scores[i], k) for i in range(n)]
        assert ours[f"precision_at_{k}"] == pytest.approx(np.mean(shares))
    assert ours["one_error"] == pytest.approx(1 - ours["precision_at_1"])
    top = [max(range(q), key=lambda j: (row[j], -j)) for row in scores]
    assert ours["one_error_legacy"] == pytest.approx(np.mean([not Y[i, top[i]] for i in range(n)]))


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_the_order_of_labels_and_rows_changes_no_metric(case, random):
    Y, scores = case
    minority = np.arange(Y.shape[1]) % 2 == 0
    columns = np.array(random.sample(range(Y.shape[1]), Y.shape[1]))
    rows = np.array(random.sample(range(len(Y)), len(Y)))
    before = evaluate(Y, scores, minority=minority, only=METRICS)
    Y, scores = Y[rows][:, columns], scores[rows][:, columns]
    after = evaluate(Y, scores, minority=minority[columns], only=METRICS)
    for name in METRICS.keys() - {"one_error_legacy"}:
        assert after[name] == pytest.approx(before[name], nan_ok=True), name


@given(cases())
@settings(max_examples=80, deadline=None)
def test_values_lie_in_the_stated_range(case):
    Y, scores = case
    found = evaluate(Y, scores, minority=np.ones(Y.shape[1], dtype=bool), only=METRICS)
    assert list(found) == list(METRICS)
    for name, value in found.items():
        low, high = METRICS[name].range
        assert np.isnan(value) or low <= value <= (Y.shape[1] if high is None else high), name


@given(cases())
@settings(max_examples=50, deadline=None)
def test_evaluate_equals_each_function_called_alone(case):
    Y, scores = case
    minority = np.arange(Y.shape[1]) % 2 == 1
    found = evaluate(Y, scores, minority=minority, thresholds=0.25, only=METRICS)
    given_to = {"scores": scores, "predictions": metrics.decide(scores, 0.25)}
    for name, metric in METRICS.items():
        more = [minority] if metric.minority else []
        alone = metric.function(Y, given_to[metric.needs], *more)
        assert found[name] == pytest.approx(alone, nan_ok=True), name
        assert isinstance(found[name], float)


def test_perfect_scores_are_best_and_reversed_ones_worst():
    Y = np.random.default_rng(0).random((30, 9)) < 0.3
    minority = np.arange(9) < 4
    best = evaluate(Y, Y * 1.0, minority=minority, only=METRICS)
    worst = evaluate(Y, 1.0 - Y, minority=minority, only=METRICS)
    for name, metric in METRICS.items():
        assert (best[name] > worst[name]) == metric.higher_is_better, name


def test_blocks_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(0)
    Y, scores = rng.random((40, 7)) < 0.3, rng.integers(0, 5, size=(40, 7)) / 4
    whole, thresholds = evaluate(Y, scores), tune_thresholds(Y, scores)
    monkeypatch.setattr("tailbatch.metrics.scored.BLOCK_ENTRIES", 20)
    monkeypatch.setattr("tailbatch.metrics.decisions.BLOCK_ENTRIES", 100)
    assert evaluate(Y, scores) == whole
    assert np.array_equal(tune_thresholds(Y, scores), thresholds)


def test_labels_may_be_csr_or_integers():
    rng = np.random.default_rng(0)
    Y, scores = rng.random((40, 4)) < [0.7, 0.6, 0.2, 0.3], rng.random((40, 4))
    assert evaluate(sparse.csr_array(Y), scores) == evaluate(Y, scores)
    assert evaluate(Y.astype(int), scores) == evaluate(Y, scores)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, object])
def test_scores_of_any_kind_of_number(dtype):
    Y = np.array([[1, 0], [1, 1], [1, 0]] * 5, dtype=bool)
    scores = np.array([[1, 0], [1, 0], [0, 1]] * 5)
    assert evaluate(Y, scores.astype(dtype)) == evaluate(Y, scores.astype(np.float64))


def test_only_equal_scores_are_tied():
    low = np.float32(0.5)
    high = np.nextafter(low, np.float32(1))  # differs from `low` in its last bit
    Y, scores = np.array([[0], [0], [1]], dtype=bool), np.array([[low], [high], [high]])
    assert metrics.macro_auc(Y, scores) == 0.75  # above one, tied with one


def test_scored_sorts_once(monkeypatch):
    Y = np.eye(3, dtype=bool)
    scored = Scored(Y, np.eye(3))
    metrics.ranking_loss(Y, scored)
    monkeypatch.setattr("tailbatch.metrics.scored._rank", None)
    assert metrics.coverage(Y, scored) == 1
    assert metrics.one_error(Y, scored) == 0


def test_a_collapsed_model_is_perfect_only_in_the_legacy_metric():
    Y = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    found = evaluate(Y, np.full((3, 2), 0.5), only=METRICS)
    assert found["macro_auc"] == 0.5
    assert found["macro_auc_legacy"] == 1
    assert found["ranking_loss"] == pytest.approx(2 / 3)


def test_minority_metrics_look_at_minority_labels_only():
    rng = np.random.default_rng(1)
    Y, scores = rng.random((50, 4)) < 0.4, rng.random((50, 4))
    minority = np.array([False, True, False, True])
    found = evaluate(Y, scores, minority=minority)
    alone = evaluate(Y[:, minority], scores[:, minority])
    assert found["minority_macro_f"] == alone["macro_f"]
    assert found["minority_average_precision"] == alone["macro_average_precision"]


def test_minority_metrics_come_without_being_asked_for_and_legacy_ones_do_not():
    rng = np.random.default_rng(1)
    Y, scores = rng.random((200, 3)) < [0.5, 0.4, 0.05], rng.random((200, 3))
    found = evaluate(Y, scores)
    assert list(found) == [name for name, metric in METRICS.items() if not metric.legacy]
    rare = np.array([False, False, True])
    assert found == evaluate(Y, scores, minority=rare)


def test_without_any_label_there_is_no_minority():
    found = evaluate(np.zeros((4, 2), dtype=bool), np.full((4, 2), 0.2))
    assert np.isnan(found["minority_average_precision"])


@pytest.mark.parametrize("bad", [-0.1, 1.5, np.nan, np.inf])
def test_a_score_outside_the_unit_interval_is_named(bad):
    scores = np.full((3, 4), 0.5)
    scores[1, 2] = bad
    with pytest.raises(DataError, match=rf"in \[0, 1\], got {bad} in row 1, label 2 .*sigmoid"):
        evaluate(np.ones((3, 4), dtype=bool), scores)


def test_arrays_that_do_not_fit():
    Y = np.ones((3, 4), dtype=bool)
    with pytest.raises(DataError, match=r"scores have shape \(3, 3\), the labels \(3, 4\)"):
        evaluate(Y, np.ones((3, 3)))
    with pytest.raises(DataError, match=r"predictions have shape \(3, 3\), the labels \(3, 4\)"):
        metrics.macro_f(Y, Y[:, :3])
    with pytest.raises(DataError, match="at least one row and one column"):
        evaluate(Y[:0], np.ones((0, 4)))
    with pytest.raises(DataError, match="labels must be 0 or 1"):
        evaluate(Y * 2, np.ones((3, 4)))
    with pytest.raises(DataError, match=r"one per label \(4\), got shape \(3,\)"):
        evaluate(Y, np.ones((3, 4)), thresholds=[0.5] * 3)
    with pytest.raises(DataError, match=r"thresholds must lie in \[0, 1\], got 1.5"):
        evaluate(Y, np.ones((3, 4)), thresholds=1.5)
    with pytest.raises(DataError, match="k must be at least 1, got 0"):
        metrics.precision_at_k(Y, np.ones((3, 4)), k=0)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_no_threshold_beats_the_tuned_one(case):
    Y, scores = case
    tuned = tune_thresholds(Y, scores, shrinkage=0)
    assert ((tuned >= 0) & (tuned <= 1)).all()
    best = metrics.f_by_label(Y, metrics.decide(scores, tuned))
    for threshold in np.unique(np.append(scores, 0)):
        assert (metrics.f_by_label(Y, metrics.decide(scores, threshold)) <= best + 1e-12).all()
    assert (tuned[~Y.any(axis=0)] == 0.5).all()


def test_tuned_thresholds_lie_midway_and_prefer_the_higher():
    Y = np.array([[1], [0], [1], [0]], dtype=bool)
    # Above 0.8: 2 * 1 / (2 + 1); above 0.4: 2 * 2 / (2 + 3), better.
    assert tune_thresholds(Y, np.array([[0.9], [0.7], [0.6], [0.1]]), shrinkage=0).tolist() == [
        0.35
    ]
    # Equal F of 2/3 above 0.75 and above nothing at all.
    Y = np.array([[1], [0], [0], [1]], dtype=bool)
    assert tune_thresholds(Y, np.array([[0.9], [0.6], [0.4], [0.2]]), shrinkage=0).tolist() == [
        0.75
    ]


def test_neighboring_floats_are_still_told_apart():
    low = 0.3
    high = np.nextafter(low, 1)
    tuned = tune_thresholds(np.array([[True], [False]]), np.array([[high], [low]]), shrinkage=0)
    assert metrics.decide(np.array([[high], [low]]), tuned).ravel().tolist() == [True, False]


def test_positives_that_all_score_zero_keep_the_default_threshold():
    assert tune_thresholds(np.array([[True], [False]]), np.zeros((2, 1)), shrinkage=0).tolist() == [
        0.5
    ]


def naive_tuned(Y, scores, shrinkage):
    """Return the thresholds by trying every common one in turn."""
    grid = np.linspace(-6, 3, 37)
    some = Y.any(axis=0)
    curve = [metrics.f_by_label(Y, scores > expit(at))[some].mean() for at in grid]
    smooth = [np.mean([curve[min(max(at + k, 0), 36)] for k in range(-2, 3)]) for at in range(37)]
    best = max(range(37), key=lambda at: (round(smooth[at], 12), -abs(grid[at])))
    own = logit(np.clip(tune_thresholds(Y, scores, shrinkage=0), 1e-6, 1 - 1e-6))
    weight = Y.sum(axis=0) / (Y.sum(axis=0) + shrinkage)
    return expit(weight * own + (1 - weight) * grid[best])


@given(cases(), st.sampled_from([0.5, 10.0, 100.0]))
@settings(max_examples=50, deadline=None)
def test_shrunken_thresholds_are_what_their_definition_says(case, shrinkage):
    Y, scores = case
    assume(Y.any())
    found = tune_thresholds(Y, scores, shrinkage=shrinkage)
    np.testing.assert_allclose(found, naive_tuned(Y, scores, shrinkage), rtol=1e-9)


def test_few_positives_take_the_common_threshold_and_many_their_own():
    rng = np.random.default_rng(0)
    Y = np.zeros((4000, 3), dtype=bool)
    Y[:2000, 0], Y[:2, 1] = True, True
    scores = np.where(Y, 0.25, 0.15) + rng.uniform(-0.1, 0.1, size=Y.shape)
    scores[:, 0] = np.where(Y[:, 0], 0.8, 0.6)
    own, tuned = tune_thresholds(Y, scores, shrinkage=0), tune_thresholds(Y, scores)
    common = tune_thresholds(Y, scores, shrinkage=1e12)[0]  # nothing of its own is left
    assert abs(tuned[0] - own[0]) < 0.01
    assert abs(logit(tuned[1]) - logit(common)) < abs(logit(own[1]) - logit(common)) / 2
    assert tuned[2] == pytest.approx(common)


def test_no_positive_at_all_leaves_one_half():
    assert tune_thresholds(np.zeros((4, 2), bool), np.full((4, 2), 0.2)).tolist() == [0.5, 0.5]


def test_shrinkage_is_a_number_from_0():
    with pytest.raises(DataError, match="shrinkage must be a number from 0, got -1"):
        tune_thresholds(np.ones((2, 1), bool), np.ones((2, 1)), shrinkage=-1)


def test_calibration_error_of_bins_worked_out_by_hand():
    Y = np.array([[0, 0, 1, 1, 0, 1]], dtype=bool).T
    scores = np.array([[0.1, 0.2, 0.3, 0.6, 0.7, 0.8]]).T
    # Two bins of three cells: |0.6 - 1| and |2.1 - 2|, over six cells.
    assert metrics.expected_calibration_error(Y, scores, bins=2) == pytest.approx(0.5 / 6)
    assert metrics.expected_calibration_error(Y, scores, bins=1) == pytest.approx(0.3 / 6)
    assert metrics.expected_calibration_error(Y, Y * 1.0) == 0
    with pytest.raises(DataError, match="bins must be at least 1, got 0"):
        metrics.expected_calibration_error(Y, scores, bins=0)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_calibration_error_does_not_depend_on_the_order_of_rows(case):
    Y, scores = case
    order = np.random.default_rng(0).permutation(len(Y))
    error = metrics.expected_calibration_error
    assert error(Y, scores) == pytest.approx(error(Y[order], scores[order]), abs=1e-12)


def test_probabilities_are_calibrated_and_weighted_scores_are_not():
    rng = np.random.default_rng(0)
    scores = rng.random((20_000, 2)) ** 3
    Y = rng.random(scores.shape) < scores
    weighted = expit(logit(scores) + 2)  # as from a loss with weight e^2 on positives
    assert metrics.expected_calibration_error(Y, scores) < 0.01
    assert metrics.expected_calibration_error(Y, weighted) > 0.1
    again = expit(logit(weighted) - 2)
    assert metrics.expected_calibration_error(Y, again) < 0.01
