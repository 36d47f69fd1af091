from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats as reference

from tailbatch.analysis.comparisons import _COVERAGE, held_out_ratio
from tailbatch.errors import DataError
from tailbatch.seeds import stream
from tailbatch.stats import (
    SignedRankTest,
    bootstrap_change,
    corrected_t,
    critical_difference,
    detectable,
    friedman,
    holm,
    mean_ranks,
    practical_equivalence,
    wilcoxon,
)

PRINTED = Path(__file__).parents[2] / "reproduction" / "printed"
LOWER_IS_BETTER = {"ranking_loss", "hamming_loss", "one_error"}

paired = st.integers(2, 20).flatmap(
    lambda n: st.tuples(*[hnp.arrays(np.float64, n, elements=st.integers(0, 5).map(float))] * 2)
)
tables = st.tuples(st.integers(2, 8), st.integers(3, 6)).flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.integers(0, 4).map(float))
)


def printed(name):
    return pd.read_csv(PRINTED / f"{name}.csv")


@pytest.fixture(scope="module")
def published():
    """The paper's Table 2, one row per model, metric and dataset, beside its Table 3."""
    results = printed("results").pivot_table(
        index=["model", "metric", "dataset"], columns="selection", values="value"
    )
    claims = printed("wilcoxon").set_index(["model", "metric"])
    return results, claims


def test_published_tables_are_complete(published):
    results, claims = published
    assert results.shape == (5 * 6 * 13, 2)
    assert results.notna().all(axis=None)
    assert len(claims) == 30
    assert len(printed("datasets")) == 13
    assert len(printed("adac")) == 4 * 6 * 2


def every_sign_pattern(difference):
    """Two-sided p-value by trying all signs."""
    ranks = reference.rankdata(np.abs(difference))
    signs = np.array(list(product([0, 1], repeat=len(ranks))))
    sums = np.minimum(signs @ ranks, (1 - signs) @ ranks)
    observed = min(ranks[difference > 0].sum(), ranks[difference < 0].sum())
    return np.mean(sums <= observed)


def test_p_values_of_the_published_table_equal_scipys(published):
    # SciPy takes seconds if differences are tied or zero; the slow test covers those.
    results, claims = published
    checked = 0
    for key in claims.index:
        ours, other = results.loc[key, ["adaptive", "random"]].T.to_numpy()
        difference = (ours - other)[ours != other]
        p_value = wilcoxon(ours, other).p_value
        assert p_value == pytest.approx(every_sign_pattern(difference))
        if len(np.unique(np.abs(difference))) == len(ours):
            assert p_value == pytest.approx(reference.wilcoxon(ours, other).pvalue)
            checked += 1
    assert checked >= 10


@pytest.mark.slow
def test_all_p_values_of_the_published_table_equal_scipys(published):
    results, claims = published
    for key in claims.index:
        ours, other = results.loc[key, ["adaptive", "random"]].T.to_numpy()
        expected = reference.wilcoxon(ours, other).pvalue
        assert wilcoxon(ours, other).p_value == pytest.approx(expected)


@pytest.mark.parametrize("n", [14, 50, 51, 200])
def test_larger_samples_equal_scipys(n):
    rng = np.random.default_rng(n)
    ours, other = rng.normal(0.2, 1, n), rng.normal(0, 1, n)
    expected = reference.wilcoxon(ours, other)
    assert wilcoxon(ours, other).p_value == pytest.approx(expected.pvalue)
    assert wilcoxon(ours, other).statistic == pytest.approx(expected.statistic)


def test_which_printed_p_values_do_not_follow_from_the_printed_table(published):
    results, claims = published
    off = {
        key
        for key, claim in claims.iterrows()
        if abs(
            wilcoxon(*results.loc[key, ["adaptive", "random"]].T.to_numpy()).p_value - claim.p_value
        )
        > 0.0006
    }
    assert off == {
        ("PACA", "macro_f"),
        ("CLIF", "macro_f"),
        ("CLIF", "micro_f"),
        ("PACA", "ranking_loss"),
        ("C2AE", "hamming_loss"),
        ("PACA", "hamming_loss"),
        ("DELA", "hamming_loss"),
        ("C2AE", "one_error"),
        ("PACA", "one_error"),
        ("DELA", "one_error"),
    }


def test_most_of_those_come_from_ignoring_ties(published):
    # With the exact distribution whatever the ties, and the normal one where a pair is equal,
    # as older versions of SciPy chose, all but four printed values follow to the digit.
    results, claims = published
    off = set()
    for key, claim in claims.iterrows():
        difference = results.loc[key, "adaptive"] - results.loc[key, "random"]
        method = "asymptotic" if (difference == 0).any() else "exact"
        if abs(reference.wilcoxon(difference, method=method).pvalue - claim.p_value) > 0.0001:
            off.add(key)
    assert off == {
        ("MPVAE", "hamming_loss"),
        ("DELA", "hamming_loss"),
        ("C2AE", "one_error"),
        ("DELA", "one_error"),
    }


def test_published_outcomes_at_the_printed_level(published):
    # The paper calls DELA's one error a tie; its printed table gives p = 0.04.
    results, claims = published
    for key, claim in claims.iterrows():
        better = results.loc[key, "adaptive"], results.loc[key, "random"]
        difference = np.subtract(*better) * (-1 if key[1] in LOWER_IS_BETTER else 1)
        wins, losses = (difference > 0).sum(), (difference < 0).sum()
        assert wins > losses
        significant = wilcoxon(*better).p_value < 0.05
        assert significant == (claim.outcome == "win" or key == ("DELA", "one_error"))


@given(paired)
@settings(max_examples=60, deadline=None)
def test_signed_rank_test_is_symmetric(pair):
    ours, other = pair
    forward, backward = wilcoxon(ours, other), wilcoxon(other, ours)
    assert forward.p_value == pytest.approx(backward.p_value)
    assert forward.rank_biserial == pytest.approx(-backward.rank_biserial)
    assert 0 <= forward.p_value <= 1
    assert forward.n_pairs == np.count_nonzero(ours != other)


def test_equal_values_give_no_evidence():
    test = wilcoxon([1.0, 2.0], [1.0, 2.0])
    assert test == SignedRankTest(0, 1, 0, 0)
    assert friedman(np.ones((4, 3))).p_value == 1


def test_rank_biserial_by_hand():
    # Differences 3, -1, 2: ranks 3, 1, 2, so (3 + 2 - 1) / 6.
    assert wilcoxon([3.0, 0.0, 2.0], [0.0, 1.0, 0.0]).rank_biserial == pytest.approx(4 / 6)


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
@settings(max_examples=60, deadline=None)
def test_holm_follows_its_definition(p_values):
    adjusted = holm(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    highest = 0.0
    for step, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[i]))
        assert adjusted[i] == pytest.approx(highest)
    assert (adjusted >= p_values).all()


@given(tables)
@settings(max_examples=60, deadline=None)
def test_friedman_equals_scipys(table):
    ours = friedman(table)
    if (table == table[:, :1]).all():
        assert ours.p_value == 1
    else:
        expected = reference.friedmanchisquare(*table.T)
        assert ours.statistic == pytest.approx(expected.statistic)
        assert ours.p_value == pytest.approx(expected.pvalue)
    assert ours.n_blocks == len(table)
    assert ours.mean_ranks.mean() == pytest.approx((table.shape[1] + 1) / 2)
    assert np.allclose(ours.mean_ranks, mean_ranks(-table, higher_is_better=False))


# Demsar (2006), Table 5a: q at 0.05 and 0.10 for 2 to 10 classifiers.
@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ],
)
def test_critical_differences_equal_the_published_table(level, expected):
    for k, q in enumerate(expected, start=2):
        error = np.sqrt(k * (k + 1) / (6 * 10))
        assert critical_difference(k, 10, level=level) == pytest.approx(q * error, abs=2e-3 * error)


def cross_validated(rng, k, overlap, n):
    """Return (n, k) differences of folds whose mean is 0: training rows in common correlate them."""
    shared = np.sqrt(overlap) * rng.normal(size=(n, 1))
    return shared + np.sqrt(1 - overlap) * rng.normal(size=(n, k))


@pytest.mark.parametrize("k", [3, 5, 10])
def test_the_corrected_interval_covers_as_often_as_it_says_and_students_does_not(k):
    # Nadeau and Bengio: folds of n_test rows correlate by n_test / (n_test + n_train).
    test_to_train = 1 / (k - 1)
    values = cross_validated(np.random.default_rng(k), k, 1 / k, 2000)

    def coverage(ratio):
        made = [corrected_t(row, test_to_train=ratio) for row in values]
        return np.mean([estimate.low <= 0 <= estimate.high for estimate in made])

    assert 0.94 <= coverage(test_to_train) <= 0.965
    assert coverage(0.0) < 0.91
    rejected = [corrected_t(row, test_to_train=test_to_train).p_value < 0.05 for row in values]
    assert 0.035 <= np.mean(rejected) <= 0.06


def best_feature(X, y):
    """Least squares on the feature that fits best alone: the folds tend to choose the same one."""
    products = X.T @ y
    best = np.abs(products).argmax()
    return np.eye(X.shape[1])[best] * products[best] / (X[:, best] @ X[:, best])


def ridge(decay):
    return lambda X, y: np.linalg.solve(X.T @ X + decay * np.eye(X.shape[1]), X.T @ y)


def no_feature(X, y):
    return np.zeros(X.shape[1])


def differences_by_fold(rng, n, d, learners, n_folds=5):
    """Return the differences in squared error of two learners, both fitted on each fold of new data.

    As in the evaluation: 80% of the rows for training, half of the rest for testing.
    """
    X = rng.normal(size=(n, d))
    y = X[:, :3].sum(axis=1) / 4 + rng.normal(size=n)
    fold = rng.permutation(n) % n_folds
    differences = []
    for held_out in range(n_folds):
        train, test = fold != held_out, np.flatnonzero(fold == held_out)[::2]
        errors = [np.mean((y[test] - X[test] @ fit(X[train], y[train])) ** 2) for fit in learners]
        differences.append(errors[0] - errors[1])
    return differences


@pytest.mark.parametrize(
    ("n", "d", "learners", "least"),
    [
        (100, 20, (best_feature, no_feature), 0.945),
        (100, 20, (ridge(1.0), ridge(10.0)), 0.945),
        # Hardly more rows than features: errors have long tails, and no t interval covers 95%.
        (60, 30, (ridge(0.01), ridge(10.0)), 0.885),
    ],
    ids=["one feature", "ridge", "unstable"],
)
def test_the_corrected_interval_covers_in_a_real_cross_validation(n, d, learners, least):
    rng = np.random.default_rng(0)
    values = np.array([differences_by_fold(rng, n, d, learners) for _ in range(1500)])
    true = values.mean()

    def coverage(folds, ratio):
        made = [corrected_t(row[:folds], test_to_train=ratio) for row in values]
        return np.mean([estimate.low <= true <= estimate.high for estimate in made])

    for folds in (3, 5):
        assert coverage(folds, held_out_ratio(pd.DataFrame({"n_folds": [5]}))) >= least
    assert coverage(5, 0.0) < coverage(5, 0.125) - 0.02  # Student's interval is too narrow


def test_without_shared_rows_the_corrected_interval_is_students():
    values = np.array([0.31, 0.35, 0.28, 0.33])
    theirs = reference.ttest_1samp(values, 0)
    ends = theirs.confidence_interval()
    made = corrected_t(values, test_to_train=0.0)
    assert made == pytest.approx((values.mean(), ends.low, ends.high, theirs.pvalue))


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.3]])
def test_below_three_folds_there_is_no_interval(values):
    assert np.isnan(corrected_t(values, test_to_train=0.125)[1:]).all()
    assert np.isnan(detectable(values))


def test_folds_that_all_agree_leave_no_doubt():
    assert corrected_t([0.5] * 3, test_to_train=0.1) == (0.5, 0.5, 0.5, 0.0)
    assert corrected_t([0.0] * 3, test_to_train=0.1).p_value == 1.0


def bootstrap_coverage(n, gains, n_simulations=300):
    """Return how often the 95% interval over `n` simulated datasets contains the true change.

    The baselines of datasets are uniform between 0.05 and 0.6. Their gains are ``"normal"``, 10% with a
    standard deviation of 15%; ``"exponential"`` with a mean of 100%, most small and a few large; or
    ``"lognormal"`` with a median of 100% and sigma = 1, a few very large.
    """
    rng = stream(0, "bootstrap coverage", n)
    draw, mean = {
        "normal": (partial(rng.normal, 0.1, 0.15), 0.1),
        "exponential": (partial(rng.exponential, 1.0), 1.0),
        "lognormal": (partial(rng.lognormal, 0.0, 1.0), np.exp(0.5)),
    }[gains]
    covered = 0
    for _ in range(n_simulations):
        before = rng.uniform(0.05, 0.6, n)
        low, high = bootstrap_change(before * (1 + draw(n)), before)
        covered += low <= mean <= high
    return covered / n_simulations


@pytest.mark.parametrize("n", [6, 8, 12, 16])
def test_the_interval_over_datasets_covers_95_percent_of_skewed_gains_too(n):
    # What a report says is from 2,000 simulations; 300 differ from it by at most four standard errors.
    for said, gains in zip(_COVERAGE[n], ("normal", "exponential", "lognormal"), strict=True):
        assert said >= 0.95
        error = np.sqrt(said * (1 - said) / 300)
        assert abs(bootstrap_coverage(n, gains) - said) < 4 * error


def test_the_interval_over_datasets_is_never_narrower_than_students():
    rng = np.random.default_rng(0)
    for n in (6, 12, 30):
        before = np.full(n, 0.5)
        gains = rng.normal(0.02, 0.05, n)
        low, high = bootstrap_change(before + gains, before)
        half = reference.t.ppf(0.975, n - 1) * gains.std(ddof=1) / np.sqrt(n) / 0.5
        assert low <= gains.mean() / 0.5 - half
        assert high >= gains.mean() / 0.5 + half


def test_the_bootstrap_over_datasets_is_seeded_and_needs_six():
    rng = np.random.default_rng(0)
    before = rng.uniform(0.1, 0.5, 8)
    after = before + 0.05 * rng.random(8)
    assert bootstrap_change(after, before) == bootstrap_change(after, before)
    assert bootstrap_change(after, before) != bootstrap_change(after, before, seed=1)
    narrow, wide = (bootstrap_change(after, before, level=level) for level in (0.5, 0.95))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert np.isfinite(bootstrap_change(after[:6], before[:6])).all()
    assert np.isnan(bootstrap_change(after[:5], before[:5])).all()
    assert np.isnan(bootstrap_change(after, np.zeros(8))).all()


def test_datasets_that_all_change_alike_leave_no_doubt():
    before = np.random.default_rng(0).uniform(0.1, 0.9, 7)
    assert bootstrap_change(1.1 * before, before) == pytest.approx((0.1, 0.1))


def test_a_detectable_mean_is_found_about_four_times_in_five():
    noise = np.random.default_rng(0).normal(size=(2000, 12))
    least = np.mean([detectable(row) for row in noise])
    significant = [corrected_t(row + least, test_to_train=0.0).p_value < 0.05 for row in noise]
    assert 0.74 <= np.mean(significant) <= 0.86


def test_the_next_dataset_is_as_likely_better_as_it_says():
    # Draw datasets from the model itself, and see how often one more is better, equal and worse.
    rng = np.random.default_rng(0)
    said, came = [], []
    for _ in range(400):
        mu, tau = 0.02 * rng.normal(), 0.03 * rng.random()
        true = mu + tau * rng.normal(size=13)
        errors = rng.uniform(0.005, 0.02, 12)
        made = practical_equivalence(true[:12] + errors * rng.normal(size=12), errors, region=0.01)
        said.append(made)
        came.append((true[12] < -0.01, abs(true[12]) <= 0.01, true[12] > 0.01))
    assert np.abs(np.mean(said, axis=0) - np.mean(came, axis=0)).max() < 0.05


def test_practical_equivalence_by_numerical_integration():
    means, errors, region = np.array([0.01, 0.03, -0.01]), np.array([0.01, 0.02, 0.01]), 0.015
    spread = 5 * np.sqrt(means.var() + (errors**2).mean())
    mu, tau = np.meshgrid(np.linspace(-1, 1, 4001), np.linspace(0, spread, 400))
    density = np.ones_like(mu)
    for mean, error in zip(means, errors, strict=True):
        density *= reference.norm.pdf(mean, mu, np.sqrt(error**2 + tau**2))
    scale = np.maximum(tau, 1e-9)
    better = (density * reference.norm.sf(region, mu, scale)).sum() / density.sum()
    worse = (density * reference.norm.cdf(-region, mu, scale)).sum() / density.sum()
    made = practical_equivalence(means, errors, region=region)
    assert made == pytest.approx((worse, 1 - better - worse, better), abs=2e-3)


def test_two_datasets_say_nothing_about_the_next():
    assert np.isnan(practical_equivalence([0.1, 0.2], [0.01, 0.01], region=0.01)).all()


@pytest.mark.parametrize("function", [wilcoxon, bootstrap_change])
def test_pairs_must_fit_and_be_complete(function):
    with pytest.raises(DataError, match=r"one shape \(n,\), got \(2,\) and \(3,\)"):
        function([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"got \(0,\) and \(0,\)"):
        function([], [])
    with pytest.raises(DataError, match=r"^paired values must not be missing; leave out"):
        function([1.0, np.nan], [1.0, 2.0])


def test_tables_must_be_complete_and_large_enough():
    with pytest.raises(DataError, match=r"\(blocks, methods\), got shape \(2, 3\) with missing"):
        mean_ranks([[1.0, 2.0, np.nan], [1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match=r"\(blocks, methods\), got shape \(3,\)$"):
        mean_ranks([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"got 2 and 5; compare two methods with wilcoxon$"):
        friedman(np.ones((5, 2)))
    with pytest.raises(DataError, match=r"p-values must lie in \[0, 1\], got \[0.5, nan\]"):
        holm([0.5, np.nan])
    for outside in (-0.1, 1.1):
        with pytest.raises(DataError, match=r"p-values must lie in \[0, 1\]"):
            holm([0.5, outside])
