"""Is the difference more than chance? Tests, intervals, effect sizes and ranks over results.

Paired values belong to the same dataset, fold or seed, in the same order.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from tailbatch.errors import DataError
from tailbatch.seeds import FloatArray, stream

#: Folds below which there is no interval: two say almost nothing about how folds vary.
FEWEST_FOLDS = 3
#: Datasets below which Wilcoxon's p-value cannot fall under 0.05, and a bootstrap covers too little.
FEWEST_DATASETS = 6
_MOST_EXACT_PAIRS = 50  # as in SciPy
# The share of each tail that the bootstrap keeps up to so many datasets.
_TAIL, _SKEWED = 0.1, 16


@dataclass(frozen=True)
class SignedRankTest:
    """Outcome of Wilcoxon's signed-rank test.

    The effect size is the rank sum of positive differences minus that of negative ones, over their
    total: in [-1, 1], and positive if the first values are larger.
    """

    statistic: float  # the smaller of the two rank sums
    p_value: float  # two-sided
    rank_biserial: float  # the effect size
    n_pairs: int  # that differ; equal ones are left out


@dataclass(frozen=True, eq=False)
class FriedmanTest:
    """Outcome of Friedman's test, of the hypothesis that all methods rank equally over blocks.

    `mean_ranks` (k,) holds the mean rank of each method; 1 is best.
    """

    statistic: float
    p_value: float
    mean_ranks: FloatArray
    n_blocks: int


class Interval(NamedTuple):
    """Ends of an interval; both are ``nan`` if there is too little data."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A mean, the ends of its interval, and the two-sided p-value of zero; ``nan`` if there is none."""

    mean: float
    low: float
    high: float
    p_value: float


class Equivalence(NamedTuple):
    """Probabilities that the next dataset is worse, practically equal, and better; they sum to 1."""

    worse: float
    equal: float
    better: float


def wilcoxon(values: npt.ArrayLike, baseline: npt.ArrayLike) -> SignedRankTest:
    """Test paired values with Wilcoxon's signed-rank test, as the paper does over datasets.

    Equal pairs are left out; if all are equal, the p-value is 1. Up to 50 pairs it is exact, even with
    ties among the differences; beyond, it is SciPy's normal approximation.

    Examples
    --------
    >>> test = wilcoxon([0.3, 0.5, 0.6, 0.4, 0.9, 0.8], [0.2, 0.3, 0.3, 0.0, 0.4, 0.1])
    >>> test.p_value, test.rank_biserial
    (0.03125, 1.0)
    """
    difference = _paired_difference(values, baseline)
    difference = difference[difference != 0]
    if not difference.size:
        return SignedRankTest(0.0, 1.0, 0.0, 0)
    ranks = stats.rankdata(np.abs(difference))
    up, down = float(ranks[difference > 0].sum()), float(ranks[difference < 0].sum())
    if difference.size <= _MOST_EXACT_PAIRS:
        p_value = _exact_signed_rank_p(ranks, min(up, down))
    else:
        p_value = float(stats.wilcoxon(difference, method="asymptotic").pvalue)
    return SignedRankTest(min(up, down), p_value, (up - down) / (up + down), difference.size)


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Return p-values adjusted for the number of tests by Holm's step-down method.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    if not ((given >= 0) & (given <= 1)).all():
        raise DataError(f"p-values must lie in [0, 1], got {given.tolist()}")
    order = np.argsort(given, kind="stable")
    steps = given[order] * np.arange(len(given), 0, -1)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def mean_ranks(values: npt.ArrayLike, *, higher_is_better: bool = True) -> FloatArray:
    """Return each method's mean rank over blocks; 1 is best, equal values share their ranks.

    `values` (n, k) has one row per block (dataset) and one column per method.

    Examples
    --------
    >>> mean_ranks([[0.9, 0.5, 0.5], [0.8, 0.9, 0.1]]).tolist()
    [1.5, 1.75, 2.75]
    """
    return np.asarray(_ranks(values, higher_is_better).mean(axis=0))


def friedman(values: npt.ArrayLike, *, higher_is_better: bool = True) -> FriedmanTest:
    """Test whether three or more methods, as in `mean_ranks`, rank equally; ties are corrected for.

    Examples
    --------
    >>> test = friedman([[0.9, 0.5, 0.1], [0.8, 0.7, 0.2], [0.6, 0.5, 0.4]])
    >>> test.statistic, round(test.p_value, 4), test.mean_ranks.tolist()
    (6.0, 0.0498, [1.0, 2.0, 3.0])
    """
    ranks = _ranks(values, higher_is_better)
    n, k = ranks.shape
    if k < 3 or n < 2:
        raise DataError(
            f"Friedman's test needs at least 3 methods and 2 blocks, got {k} and {n}; "
            "compare two methods with wilcoxon"
        )
    # Sums of squares of the ranks, which account for ties; no variance means no difference.
    between = n * float(((ranks.mean(axis=0) - (k + 1) / 2) ** 2).sum())
    within = float(((ranks - (k + 1) / 2) ** 2).sum()) / (n * (k - 1))
    statistic = between / within if within > 0 else 0.0
    return FriedmanTest(statistic, float(stats.chi2.sf(statistic, k - 1)), ranks.mean(axis=0), n)


def critical_difference(n_methods: int, n_blocks: int, *, level: float = 0.05) -> float:
    """Return by how much two mean ranks must differ to be significant after Nemenyi.

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)  # Demsar (2006): q = 2.569
    1.25
    """
    q = stats.studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    error = np.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))  # of a difference of mean ranks
    return float(q * error)


def corrected_t(values: npt.ArrayLike, *, test_to_train: float, level: float = 0.95) -> Estimate:
    """Return the mean over the folds of a cross-validation, with Nadeau and Bengio's interval.

    Folds share training rows, so Student's interval is too narrow. The variance of the mean is
    s^2 (1/k + n_test / n_train) in place of s^2 / k (Nadeau and Bengio, 2003), with k - 1 degrees of
    freedom. Below three folds there is no interval and no p-value.

    Parameters
    ----------
    values
        (k,) one value per fold, such as a paired difference; average the seeds of a fold first.
    test_to_train
        Test rows over training rows of a fold; 0 is Student's t for independent values.
    level
        How often the interval is to contain the true mean.

    Examples
    --------
    >>> estimate = corrected_t([0.02, 0.03, 0.01, 0.02, 0.02], test_to_train=1 / 8)
    >>> round(estimate.low, 4), round(estimate.high, 4), round(estimate.p_value, 4)
    (0.0088, 0.0312, 0.0077)
    """
    given = np.asarray(values, dtype=np.float64)
    k, mean = len(given), float(given.mean())
    if k < FEWEST_FOLDS:
        return Estimate(mean, np.nan, np.nan, np.nan)
    error = fold_error(given, test_to_train=test_to_train)
    if error == 0:
        return Estimate(mean, mean, mean, float(mean == 0))
    half = float(stats.t.ppf((1 + level) / 2, k - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, k - 1))
    return Estimate(mean, mean - half, mean + half, p_value)


def fold_error(values: npt.ArrayLike, *, test_to_train: float) -> float:
    """Return the standard error of a mean over folds, s sqrt(1/k + n_test / n_train).

    Examples
    --------
    >>> round(fold_error([0.02, 0.03, 0.01, 0.02, 0.02], test_to_train=1 / 8), 5)
    0.00403
    """
    given = np.asarray(values, dtype=np.float64)
    return float(given.std(ddof=1) * np.sqrt(1 / len(given) + test_to_train))


def bootstrap_change(
    after: npt.ArrayLike,
    before: npt.ArrayLike,
    *,
    level: float = 0.95,
    n_draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return the bootstrap-t interval of the change of a sum over datasets, sum(after) / sum(before) - 1.

    Datasets are resampled as a whole; each resample gives t* = (change* - change) / error*, with the
    standard error of a ratio of sums. Up to 16 datasets the quantiles of t* are those at a tenth of the
    usual tails, since a few values rarely show how skewed gains are, and they are never closer to zero
    than Student's. With more datasets the tails approach the usual ones. Gains whose few large values
    dominate are the reason: simulated normal, exponential and lognormal gains are covered at 95% or more.
    `level` is how often the interval is to contain the true change. Below six datasets there is none.

    Examples
    --------
    >>> before = [0.2, 0.3, 0.4, 0.1, 0.5, 0.6, 0.3]
    >>> low, high = bootstrap_change([0.25, 0.33, 0.41, 0.12, 0.51, 0.63, 0.35], before)
    >>> round(low, 3), round(high, 3)
    (-0.047, 0.234)
    """
    difference, base = _paired_difference(after, before), np.asarray(before, dtype=np.float64)
    n = len(difference)
    if n < FEWEST_DATASETS:
        return Interval(np.nan, np.nan)
    rows = stream(seed, "bootstrap").integers(n, size=(n_draws, n))
    if not base[rows].sum(axis=1).all():  # too many baselines of 0 for any percentage
        return Interval(np.nan, np.nan)
    change, error = _ratio_of_sums(difference, base)
    changes, errors = _ratio_of_sums(difference[rows], base[rows])
    # A resample of one dataset alone has no error; where all datasets change alike, no resample has.
    t = (changes - change) / np.maximum(errors, 1e-12)
    tail = (1 - level) * min(_TAIL * max(1.0, n / _SKEWED), 0.5)
    low, high = np.quantile(t, [tail, 1 - tail])
    student = float(stats.t.ppf((1 + level) / 2, n - 1))
    ends = change - np.array([max(high, student), min(low, -student)]) * error
    return Interval(*map(float, ends))


def _ratio_of_sums(difference: FloatArray, base: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return sum(difference) / sum(base) over the last axis, and its standard error (delta method)."""
    n, sums = base.shape[-1], base.sum(axis=-1)
    ratio = difference.sum(axis=-1) / sums
    rest = difference - ratio[..., None] * base
    return ratio, np.sqrt((rest**2).sum(axis=-1) * n / (n - 1)) / sums


def detectable(
    values: npt.ArrayLike, *, test_to_train: float = 0.0, level: float = 0.95, power: float = 0.8
) -> float:
    """Return the smallest true mean that a test over such values would detect with this `power`.

    (t(level) + t(power)) standard errors, a power analysis to first order; ``nan`` below three values.

    Examples
    --------
    >>> round(detectable([0.02, 0.03, 0.01, 0.02, 0.02], test_to_train=1 / 8), 4)
    0.015
    """
    given = np.asarray(values, dtype=np.float64)
    if len(given) < FEWEST_FOLDS:
        return float("nan")
    quantiles = stats.t.ppf([(1 + level) / 2, power], len(given) - 1)
    return float(quantiles.sum() * fold_error(given, test_to_train=test_to_train))


def practical_equivalence(
    means: npt.ArrayLike, errors: npt.ArrayLike, *, region: float
) -> Equivalence:
    """Return the probabilities that the next dataset is worse, practically equal, or better.

    A hierarchical model, as Corani and others (2017) compare classifiers: dataset i has a true difference
    d_i ~ N(mu, tau^2), measured as N(d_i, errors_i^2). With flat priors on mu and tau the posterior
    of tau is a sum over a grid and that of mu is normal (Gelman and others, Bayesian Data Analysis, 5.4);
    differences of at most `region` in size are practically equal. No sampler is needed.

    `means` and `errors` (n,) are each dataset's mean difference and its standard error, see `fold_error`.

    Examples
    --------
    >>> likely = practical_equivalence([0.04, 0.05, 0.06, 0.05], [0.01] * 4, region=0.01)
    >>> round(likely.better, 2), round(likely.worse, 2)
    (0.98, 0.01)
    """
    x = np.asarray(means, dtype=np.float64)
    variances = np.asarray(errors, dtype=np.float64) ** 2
    if len(x) < 3:
        return Equivalence(np.nan, np.nan, np.nan)
    # Beyond five times the whole spread, tau has almost no posterior mass.
    tau = np.linspace(0, 5 * float(np.sqrt(x.var() + variances.mean())) or 1e-12, 400)[:, None]
    weights = 1 / np.maximum(variances + tau**2, 1e-12)
    mu = (weights * x).sum(axis=1) / weights.sum(axis=1)
    log_posterior = np.log(weights).sum(axis=1) - np.log(weights.sum(axis=1))
    log_posterior -= (weights * (x - mu[:, None]) ** 2).sum(axis=1)
    posterior = np.exp((log_posterior - log_posterior.max()) / 2)
    spread = np.sqrt(1 / weights.sum(axis=1) + tau[:, 0] ** 2)
    below, above = (
        float(np.average(tail, weights=posterior))
        for tail in (stats.norm.cdf(-region, mu, spread), stats.norm.sf(region, mu, spread))
    )
    return Equivalence(below, 1 - below - above, above)


def _paired_difference(values: npt.ArrayLike, baseline: npt.ArrayLike) -> FloatArray:
    first, second = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise DataError(f"paired values need one shape (n,), got {first.shape} and {second.shape}")
    if np.isnan(first).any() or np.isnan(second).any():
        raise DataError("paired values must not be missing; leave out pairs with a nan")
    return np.asarray(first - second)


def _exact_signed_rank_p(ranks: FloatArray, smaller_sum: float) -> float:
    """Return the share of all 2^n sign patterns whose smaller rank sum is as small as this one.

    SciPy draws such patterns one by one if ranks are tied, which takes seconds.
    """
    doubled = np.rint(2 * ranks).astype(np.int64)  # tied ranks are halves
    ways = np.zeros(int(doubled.sum()) + 1)  # number of patterns with each doubled rank sum
    ways[0] = 1
    for rank in doubled:
        ways[rank:] = ways[rank:] + ways[:-rank]
    tail = ways[: round(2 * smaller_sum) + 1].sum() / 2.0 ** len(ranks)
    return min(2 * float(tail), 1.0)


def _ranks(values: npt.ArrayLike, higher_is_better: bool) -> FloatArray:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or np.isnan(table).any():
        raise DataError(
            f"ranks need a complete table of shape (blocks, methods), got shape {table.shape}"
            + (" with missing values" if np.isnan(table).any() else "")
        )
    return np.asarray(stats.rankdata(-table if higher_is_better else table, axis=1))
