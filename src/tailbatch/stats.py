"""Is the difference more than luck? Tests, intervals, effect sizes and ranks over results.

Paired values belong to the same dataset, fold or seed, in the same order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from tailbatch.errors import DataError
from tailbatch.seeds import stream

FloatArray = npt.NDArray[np.float64]

_MOST_EXACT_PAIRS = 50  # as SciPy has it


class WinTieLoss(NamedTuple):
    """How often the first of two methods was better, equal and worse."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True)
class SignedRankTest:
    """Outcome of Wilcoxon's signed-rank test.

    Parameters
    ----------
    statistic
        The smaller of the two rank sums.
    p_value
        Two-sided.
    rank_biserial
        Effect size in [-1, 1]: the rank sum of positive differences minus that of negative ones,
        over their total; positive where the first values are larger.
    n_pairs
        Number of pairs that differ; equal ones are left out.
    """

    statistic: float
    p_value: float
    rank_biserial: float
    n_pairs: int


@dataclass(frozen=True, eq=False)
class FriedmanTest:
    """Outcome of Friedman's test over blocks such as datasets.

    Parameters
    ----------
    statistic, p_value
        Of the hypothesis that all methods rank alike.
    mean_ranks
        (k,) mean rank of each method, 1 is best.
    n_blocks
        Number of blocks.
    """

    statistic: float
    p_value: float
    mean_ranks: FloatArray
    n_blocks: int


class Interval(NamedTuple):
    """Ends of a bootstrap interval; both are ``nan`` if there was nothing to resample."""

    low: float
    high: float


class Change(NamedTuple):
    """A change as a share of the baseline, with the ends of its interval, ``nan`` if there is none."""

    estimate: float
    low: float
    high: float


def win_tie_loss(
    values: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    higher_is_better: bool = True,
    tolerance: float = 0.0,
) -> WinTieLoss:
    """Count the pairs in which the first value is better, equal and worse.

    Parameters
    ----------
    values, baseline
        (n,) paired values.
    higher_is_better
        Which direction is good.
    tolerance
        Differences up to this size are ties.

    Examples
    --------
    >>> win_tie_loss([0.3, 0.5, 0.2], [0.2, 0.5, 0.4])
    WinTieLoss(wins=1, ties=1, losses=1)
    """
    difference = _paired_difference(values, baseline) * (1 if higher_is_better else -1)
    wins = int(np.count_nonzero(difference > tolerance))
    losses = int(np.count_nonzero(difference < -tolerance))
    return WinTieLoss(wins, len(difference) - wins - losses, losses)


def wilcoxon(values: npt.ArrayLike, baseline: npt.ArrayLike) -> SignedRankTest:
    """Test paired values with Wilcoxon's signed-rank test, as the paper does over datasets.

    Equal pairs are left out; if all are equal, the p-value is 1. Up to 50 pairs it is exact, ties
    among the differences included; beyond, it is SciPy's normal approximation.

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


def cohens_dz(values: npt.ArrayLike, baseline: npt.ArrayLike) -> float:
    """Return the mean paired difference in units of its standard deviation.

    It is ``nan`` for fewer than two pairs and for differences that are all the same.

    Examples
    --------
    >>> round(cohens_dz([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]), 3)
    2.0
    """
    difference = _paired_difference(values, baseline)
    spread = difference.std(ddof=1) if len(difference) > 1 else 0.0
    return float(difference.mean() / spread) if spread > 0 else float("nan")


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

    Parameters
    ----------
    values
        (n, k) one row a block (dataset), one column a method.
    higher_is_better
        Which direction is good.

    Examples
    --------
    >>> mean_ranks([[0.9, 0.5, 0.5], [0.8, 0.9, 0.1]]).tolist()
    [1.5, 1.75, 2.75]
    """
    return np.asarray(_ranks(values, higher_is_better).mean(axis=0))


def friedman(values: npt.ArrayLike, *, higher_is_better: bool = True) -> FriedmanTest:
    """Test whether three or more methods rank alike, with the correction for ties.

    Parameters
    ----------
    values, higher_is_better
        As in `mean_ranks`.

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
    # Sums of squares of the ranks, which take care of ties; no spread at all means no difference.
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
    return float(q * _rank_error(n_methods, n_blocks))


def nemenyi(ranks: npt.ArrayLike, n_blocks: int) -> FloatArray:
    """Return the (k, k) p-values of Nemenyi's test for each pair of mean ranks.

    Examples
    --------
    >>> nemenyi([1.0, 2.0, 3.0], n_blocks=3).round(3)[0].tolist()
    [1.0, 0.438, 0.038]
    """
    given = np.asarray(ranks, dtype=np.float64)
    distance = np.abs(given[:, None] - given) / _rank_error(len(given), n_blocks)
    return np.asarray(stats.studentized_range.sf(distance * np.sqrt(2), len(given), np.inf))


def bootstrap_interval(
    values: npt.ArrayLike, *, level: float = 0.95, n_draws: int = 2000, seed: int = 0
) -> Interval:
    """Return the percentile bootstrap interval of a mean.

    Parameters
    ----------
    values
        (runs,) values or paired differences; or (folds, seeds), where folds and seeds are each
        resampled as a whole, because runs of one fold are not independent.
    level
        Share of the bootstrap means inside the interval.
    n_draws
        Number of resamples.
    seed
        The same seed gives the same interval.

    Examples
    --------
    >>> low, high = bootstrap_interval([0.1, 0.2, 0.3, 0.2])
    >>> round(low, 3), round(high, 3)
    (0.125, 0.275)
    """
    given = np.asarray(values, dtype=np.float64)
    generator = stream(seed, "bootstrap")
    means = _resampled(given, n_draws, generator).mean(axis=tuple(range(1, given.ndim + 1)))
    return _interval(means, level, resampled=given.size > 1)


def relative_change(
    cells: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], *, level: float = 0.95
) -> Change:
    """Return by what share the average over cells changes, with its Student interval.

    A cell is a dataset with a model. Its runs vary, the cells are kept; a cell with one run has no
    spread of its own and is taken to vary as the runs of the others do. A bootstrap would give such
    a cell no spread at all, and hardly any to a cell of two.

    Parameters
    ----------
    cells
        For each cell the (runs,) values and those of the baseline on the same folds and seeds.
    level
        How often the interval is to hold the true change.

    Examples
    --------
    >>> change = relative_change([([0.2, 0.4], [0.1, 0.3]), ([0.6, 0.6], [0.5, 0.6])])
    >>> round(change.estimate, 3)  # (0.3 + 0.6) / (0.2 + 0.55) - 1
    0.2
    """
    pairs = [np.column_stack(np.broadcast_arrays(*cell)) for cell in cells]
    after, before = np.sum([pair.mean(axis=0) for pair in pairs], axis=0)
    ratio = after / before
    # To first order the ratio moves with these, over the baseline: the delta method.
    errors = [pair[:, 0] - ratio * pair[:, 1] for pair in pairs]
    half = _half_width_of_a_sum_of_means(errors, level) / before
    return Change(float(ratio - 1), float(ratio - 1 - half), float(ratio - 1 + half))


def _half_width_of_a_sum_of_means(samples: Sequence[FloatArray], level: float) -> float:
    """Return half of Student's interval, ``nan`` where no sample has two values."""
    several = [sample for sample in samples if len(sample) > 1]
    if not several:
        return float("nan")
    freedom = np.array([len(sample) - 1 for sample in several])
    # Each single value has the pooled variance of the others.
    share = 1 / (freedom + 1) + (len(samples) - len(several)) * freedom / freedom.sum()
    variances = share * np.array([sample.var(ddof=1) for sample in several])
    total = variances.sum()
    if total == 0:
        return 0.0
    satterthwaite = total**2 / (variances**2 / freedom).sum()
    return float(stats.t.ppf((1 + level) / 2, satterthwaite) * np.sqrt(total))


def _paired_difference(values: npt.ArrayLike, baseline: npt.ArrayLike) -> FloatArray:
    first, second = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise DataError(f"paired values need one shape (n,), got {first.shape} and {second.shape}")
    if np.isnan(first).any() or np.isnan(second).any():
        raise DataError("paired values must not be missing; leave out pairs with a nan")
    return np.asarray(first - second)


def _exact_signed_rank_p(ranks: FloatArray, smaller_sum: float) -> float:
    """Return the share of all 2^n sign patterns whose smaller rank sum is as small as this one.

    SciPy draws such patterns one by one where ranks are tied, which takes seconds.
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


def _rank_error(n_methods: int, n_blocks: int) -> float:
    """Return the standard error of a difference of two mean ranks."""
    return float(np.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks)))


def _resampled(values: FloatArray, n_draws: int, generator: np.random.Generator) -> FloatArray:
    """Return (n_draws, *shape): the values with each axis resampled on its own."""
    index = [
        np.expand_dims(
            generator.integers(size, size=(n_draws, size)),
            axis=tuple(other + 1 for other in range(values.ndim) if other != axis),
        )
        for axis, size in enumerate(values.shape)
    ]
    return values[tuple(index)]


def _interval(draws: FloatArray, level: float, *, resampled: bool) -> Interval:
    if not resampled:
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
