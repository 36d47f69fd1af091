"""The laws written down naively, from the definitions: what every exact draw is compared with."""

from fractions import Fraction
from itertools import permutations
from math import ceil

import numpy as np
from scipy.stats import chi2

UNSEEN = float("nan")

LOSSES = {
    "uniform": [0.1, 0.35, 0.5, 0.62, 0.8, 1.0],
    "heavy_tailed": [0.01, 0.03, 0.2, 1.1, 6.0, 40.0],
    "all_equal": [0.7] * 6,
    "all_zero": [0.0] * 6,
    "one_outlier": [0.2, 0.1, 1e6, 0.3, 0.2, 0.15],
    "some_unseen": [0.4, UNSEEN, 0.1, 0.9, UNSEEN, 0.4],
}


def quantized(losses, cap=None):
    """Q_i = ceil(n min(l_i, l_max) / l_max), left to right; unseen samples count as l_max."""
    n = len(losses)
    largest = cap or max((loss for loss in losses if not np.isnan(loss)), default=0.0)
    if largest == 0:
        return [0] * n
    return [n if np.isnan(loss) or loss >= largest else ceil(n * loss / largest) for loss in losses]


def adaptive_law(losses, pressure, cap=None):
    """P of Eq. 6 and 7, as a plain list of probabilities."""
    n = len(losses)
    weights = [pressure ** (q / n) for q in quantized(losses, cap)]
    return np.array(weights) / sum(weights)


def rank_law(losses, pressure):
    """P of Eq. 3; ties share the total of their ranks, unseen samples tie above all others."""
    n = len(losses)
    keys = [np.inf if np.isnan(loss) else loss for loss in losses]
    by_rank = [pressure ** (rank / n) for rank in range(1, n + 1)]
    ascending = sorted(keys)
    weights = [
        np.mean([w for w, k in zip(by_rank, ascending, strict=True) if k == key]) for key in keys
    ]
    return np.array(weights) / sum(weights)


def low_score_law(scores, pressure, largest=None):
    """P proportional to s_e^(-Q / n): unseen samples count as 0, equal scores are equally likely."""
    n = len(scores)
    known = [0.0 if np.isnan(score) else score for score in scores]
    largest = max(known) if largest is None else largest
    Q = [ceil(n * score / largest) if largest else 0 for score in known]
    weights = [pressure ** (-q / n) for q in Q]
    return np.array(weights) / sum(weights)


def ordered_batches(law, size):
    """Chance of each ordered batch when samples are drawn one after the other without putting back."""
    chances = {}
    for batch in permutations(range(len(law)), size):
        left, chance = 1.0, 1.0
        for sample in batch:
            chance *= law[sample] / left
            left -= law[sample]
        chances[batch] = chance
    return chances


def ordered_chains(law, Y, size):
    """Chance of each ordered batch of AdaC, rule by rule (selection of the next from D_c)."""
    Y = np.asarray(Y, dtype=bool)
    n, q = Y.shape
    counts = Y.sum(axis=0)
    ratio = [counts.max() / c if c else np.inf for c in counts]
    both = (Y.T.astype(int) @ Y.astype(int)).astype(float)
    A = [
        [
            0.0 if i == j or not counts[i] or not counts[j]
            else (both[i, j] / counts[i] + both[i, j] / counts[j]) / 2
            for j in range(q)
        ]
        for i in range(q)
    ]  # fmt: skip
    card = ceil(Fraction(int(Y.sum()), n))

    def followers(sample, batch):
        rest = [i for i in range(n) if i not in batch]
        own = np.flatnonzero(Y[sample])
        if not len(own):
            return rest
        rarest = max(own, key=lambda j: (ratio[j], -j))
        strongest = sorted(
            (j for j in range(q) if A[rarest][j] > 0), key=lambda j: (-A[rarest][j], j)
        )
        companions = strongest[:card] or [rarest]
        return [i for i in rest if Y[i, companions].any()] or rest

    chances = {}
    for batch in permutations(range(n), size):
        chance = law[batch[0]]
        for k in range(1, size):
            allowed = followers(batch[k - 1], batch[:k])
            total = sum(law[i] for i in allowed)
            chance *= law[batch[k]] / total if batch[k] in allowed else 0.0
        chances[batch] = chance
    return chances


def p_value(drawn, chances):
    """Chi-square p-value of counted ordered batches against their chances, rare ones pooled."""
    total = sum(drawn.values())
    assert not [batch for batch in drawn if chances[batch] == 0], "an impossible batch was drawn"
    expected = np.array([chances[batch] * total for batch in chances])
    counts = np.array([drawn.get(batch, 0) for batch in chances])
    np.testing.assert_allclose(expected.sum(), total)
    rare = expected < 10
    expected = np.append(expected[~rare], expected[rare].sum())
    counts = np.append(counts[~rare], counts[rare].sum())
    if expected[-1] < 10:  # too little even together: put it with the smallest
        smallest = np.argmin(expected[:-1])
        expected[smallest] += expected[-1]
        counts[smallest] += counts[-1]
        expected, counts = expected[:-1], counts[:-1]
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, len(expected) - 1))
