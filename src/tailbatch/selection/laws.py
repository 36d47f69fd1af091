"""Laws that follow the scores of the samples: by their size, drawn by rejection, or by their rank."""

import math
from abc import abstractmethod
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.drawing import Law, _SumTable

_BLOCK_BITS = 12
_BLOCK = 1 << _BLOCK_BITS
_ROWS_AT_ONCE = 1 << 16
_MERGE_EVERY = 64
_AROUND = np.array([[-1], [0], [1]])
_Number = TypeVar("_Number", np.int64, np.float64)


class LossLaw(Law):
    """A law that remembers one score for each sample, infinite for those never seen.

    Everything it knows is in `scores` and `cap`: the rest can be rebuilt, so the saved state is
    small and continuing from it draws the same batches.
    """

    scores: FloatArray
    cap: float = 0.0

    def reset(self, scores: FloatArray, cap: float = 0.0) -> None:
        """Start from these scores, shape (n,), which the law keeps and changes in place."""
        self.n_samples = len(scores)
        self.scores = scores
        self.cap = cap

    @abstractmethod
    def update(self, index: IntArray, scores: FloatArray) -> None:
        """Take in new, finite scores of the distinct samples `index`."""

    def start_epoch(self) -> None:
        """Renew what stays fixed during an epoch; most laws have nothing of the kind."""


def _quantization_index(losses: FloatArray, l_max: float, n_samples: int) -> FloatArray:
    """Return Q, the rank that a loss would have if losses were spread evenly (Eq. 6).

    ``Q_i = ceil(n l_i / l_max)``, from 0 to n, in float64 from left to right. Losses above `l_max`
    (a cap, or infinite because the sample was never seen) count as `l_max`. If `l_max` is 0, every
    loss is the largest and Q is n.
    """
    if l_max == 0:
        return np.full_like(losses, n_samples)
    with np.errstate(over="ignore"):  # far above a tiny cap: infinite, and cut to n like the rest
        index = n_samples * losses
        index /= l_max
    np.ceil(index, out=index)
    return np.minimum(index, n_samples, out=index)


class QuantizationLaw(LossLaw):
    """p_i proportional to ``s_e^(Q_i / n)`` (Eq. 7), with Q of `_quantization_index`.

    Drawn by rejection: a uniform candidate is accepted with ``s_e^(Q_i / n - 1)``. So a batch takes
    at most about b * s_e candidates, whatever n. Samples never seen count as l_max.

    Parameters
    ----------
    cap_quantile
        Replace l_max by this quantile of the known losses, fixed at the start of each epoch, so
        that one outlier does not flatten the law. None is the paper's law. A quantile of 0, or no
        known loss, is no cap.

    Examples
    --------
    >>> law = QuantizationLaw()
    >>> law.reset(np.array([0.0, 1.0, 2.0, 4.0]))
    >>> np.exp(law.log_weights(pressure=16))
    array([0.0625, 0.125 , 0.25  , 1.    ])
    """

    def __init__(self, *, cap_quantile: float | None = None) -> None:
        if cap_quantile is not None and not 0 < cap_quantile <= 1:
            raise SelectionError(
                f"cap_quantile must lie in (0, 1], got {cap_quantile} (None for no cap)"
            )
        self._cap_quantile = cap_quantile
        self._total: tuple[float, int] | None = (
            None  # pressure, and the sum of all weights in units
        )

    def settings(self) -> dict[str, Any]:
        """Return the law's name and its cap."""
        return {**super().settings(), "cap_quantile": self._cap_quantile}

    @property
    def l_max(self) -> float:
        """The loss that gives the highest probability: the cap, or the largest known loss."""
        return self.cap if self.cap > 0 else self._maxima.largest

    def reset(self, scores: FloatArray, cap: float = 0.0) -> None:
        """Start from these scores and find their maxima."""
        super().reset(scores, cap)
        self._maxima = _BlockMaxima(scores)
        self._total = None

    def update(self, index: IntArray, scores: FloatArray) -> None:
        """Take in new scores, and with them perhaps a new l_max for all samples."""
        old = self.scores[index]
        self.scores[index] = scores
        l_max = self.l_max
        self._maxima.move(self.scores, index, old, scores)
        if self._total is not None and self.l_max == l_max:
            pressure, total = self._total
            rise = self._units(scores, pressure) - self._units(old, pressure)
            self._total = pressure, total + int(rise.sum())
        else:
            self._total = None

    def start_epoch(self) -> None:
        """Fix the cap for this epoch."""
        if self._cap_quantile is not None:
            known = self.scores[np.isfinite(self.scores)]
            self.cap = float(np.quantile(known, self._cap_quantile)) if known.size else 0.0
            self._total = None

    def propose(self, pairs: FloatArray, pressure: float) -> IntArray:
        """Return the uniform candidates that pass the rejection."""
        candidates = (pairs[:, 0] * self.n_samples).astype(np.int64)
        return candidates[self.passes(candidates, self.bars(pairs[:, 1], pressure))]

    def bars(self, uniforms: FloatArray, pressure: float) -> FloatArray:
        """Return the smallest Q that each uniform number u lets pass: ``s_e^(Q / n - 1) >= 1 - u``.

        A bar of 0 or less lets every sample pass.
        """
        if pressure == 1:
            return np.zeros_like(uniforms)
        # 1 - u is never 0, and as uniform as u.
        return np.asarray(self.n_samples * (1 + np.log(1 - uniforms) / math.log(pressure)))

    def passes(self, index: IntArray, bars: FloatArray) -> npt.NDArray[np.bool_]:
        """Say which uniform candidates to keep, by `bars`, to make them draws from this law."""
        return np.asarray(self._rank_by_size(self.scores[index]) >= bars)

    def log_weights(self, pressure: float) -> FloatArray:
        """Return ``(Q_i / n - 1) log s_e`` of all samples."""
        return self._log_weights(self.scores, pressure)

    def log_weights_of(self, index: IntArray, pressure: float) -> FloatArray:
        """Return the log weights of a few samples, between -log(pressure) and 0."""
        return self._log_weights(self.scores[index], pressure)

    def chances(self, index: IntArray, pressure: float) -> FloatArray:
        """Return the probabilities of a few samples, from the total weight, which is kept.

        The total follows each change, and is added up again when l_max or the pressure changes. A
        sample that holds l_max is in a batch with a chance of about b * s_e / n, so that costs
        b * s_e a batch on average, as drawing does. Whole numbers make it free of rounding.
        """
        if self._total is None or self._total[0] != pressure:
            parts = range(0, self.n_samples, _ROWS_AT_ONCE)
            units = (self._units(self.scores[i : i + _ROWS_AT_ONCE], pressure).sum() for i in parts)
            self._total = pressure, sum(int(each) for each in units)
        total = self._total[1] / 2 ** _SumTable.bits(self.n_samples)
        return np.asarray(np.exp(self.log_weights_of(index, pressure)) / total)

    def _units(self, scores: FloatArray, pressure: float) -> IntArray:
        """Return weights as whole numbers of a small unit."""
        weights = np.exp(self._log_weights(scores, pressure))
        return np.asarray(np.rint(weights * 2 ** _SumTable.bits(self.n_samples)), dtype=np.int64)

    def _log_weights(self, scores: FloatArray, pressure: float) -> FloatArray:
        relative = self._rank_by_size(scores)
        relative /= self.n_samples
        relative -= 1.0
        relative *= math.log(pressure)
        return relative

    def _rank_by_size(self, scores: FloatArray) -> FloatArray:
        """Return from 0 to n how much a score is preferred; the weight is ``s_e^(this / n - 1)``."""
        return _quantization_index(scores, self.l_max, self.n_samples)


class LowScoreLaw(QuantizationLaw):
    """p_i proportional to ``s_e^(-Q_i / n)``: the smallest scores are drawn most often.

    Drawn by rejection like `QuantizationLaw`. Samples never seen count as a score of 0.

    Parameters
    ----------
    largest
        The score that gives the lowest probability; None is the largest known score.

    Examples
    --------
    >>> law = LowScoreLaw()
    >>> law.reset(np.array([0.0, 1.0, 2.0, 4.0]))
    >>> np.exp(law.log_weights(pressure=16))
    array([1.    , 0.5   , 0.25  , 0.0625])
    """

    def __init__(self, *, largest: float | None = None) -> None:
        super().__init__()
        self._largest = largest

    @property
    def l_max(self) -> float:
        """The score that gives the lowest probability."""
        return self._maxima.largest if self._largest is None else self._largest

    def settings(self) -> dict[str, Any]:
        """Return the law's name and its largest score, if that is fixed."""
        return {**super().settings(), "largest": self._largest}

    def _rank_by_size(self, scores: FloatArray) -> FloatArray:
        if self.l_max == 0:
            return np.full_like(scores, self.n_samples)
        known = np.where(np.isinf(scores), 0.0, scores)
        return self.n_samples - _quantization_index(known, self.l_max, self.n_samples)


class _BlockMaxima:
    """The largest finite score, kept block by block so that no update walks all samples.

    A rising score raises its block's maximum in place. A block is looked through again only when a
    sample that held its maximum fell.
    """

    def __init__(self, scores: FloatArray) -> None:
        starts = range(0, len(scores), _BLOCK)
        self._maxima: FloatArray = np.empty(len(starts))
        for block, start in enumerate(starts):
            self._maxima[block] = _finite_maximum(scores[start : start + _BLOCK])
        self.largest = float(self._maxima.max())

    def move(self, scores: FloatArray, index: IntArray, old: FloatArray, new: FloatArray) -> None:
        """Follow the scores of `index` from `old` to `new`; `scores` already holds the new ones."""
        blocks = index >> _BLOCK_BITS
        fell = (old == self._maxima[blocks]) & (new < old)
        np.maximum.at(self._maxima, blocks, new)
        for block in set(blocks[fell].tolist()):
            start = block << _BLOCK_BITS
            self._maxima[block] = _finite_maximum(scores[start : start + _BLOCK])
        self.largest = float(self._maxima.max())


def _finite_maximum(scores: FloatArray) -> float:
    largest = scores.max()
    if largest == np.inf:
        largest = scores.max(where=np.isfinite(scores), initial=0.0)
    return float(largest)


class RankLaw(LossLaw):
    """p_i proportional to ``s_e^(r_i / n)``, r the ascending rank 1..n of the score (Eq. 3).

    Tied samples share the total of their ranks equally; samples never seen are one tie group above
    all others. The law of a rank has a closed inverse, so a draw is one logarithm and a bisection.

    Examples
    --------
    >>> law = RankLaw()
    >>> law.reset(np.array([5.0, 1.0, 2.0, 9.0]))
    >>> np.exp(law.log_weights(pressure=16))
    array([0.5  , 0.125, 0.25 , 1.   ])
    """

    _order: "_RankOrder | None" = None

    def reset(self, scores: FloatArray, cap: float = 0.0) -> None:
        """Start from these scores; they are sorted at the first draw."""
        super().reset(scores, cap)
        self._order = None

    def update(self, index: IntArray, scores: FloatArray) -> None:
        """Move samples to the ranks of their new scores."""
        old = self.scores[index]
        self.scores[index] = scores
        if self._order is not None:
            self._order.move(index, old, scores)

    def propose(self, pairs: FloatArray, pressure: float) -> IntArray:
        """Return one sample for each pair: a rank, then a member of its tie group."""
        order = self._sorted()
        rank = _inverse_rank_law(pairs[:, 0], pressure, self.n_samples)
        around = np.clip(rank + _AROUND, 0, self.n_samples - 1)
        samples, (below, scores, above) = order.at(around)
        drawn = samples[1]
        tied = np.flatnonzero((below == scores) | (scores == above))
        if tied.size:
            start, end = order.ties(scores[tied])
            member = start + (pairs[tied, 1] * (end - start)).astype(np.int64)
            drawn[tied] = order.at(member)[0]
        return np.asarray(drawn)

    def log_weights(self, pressure: float) -> FloatArray:
        """Return ``(r_i / n - 1) log s_e`` of all samples, or their tie group's shared weight."""
        order = np.argsort(self.scores, kind="stable")
        ascending = self.scores[order]
        starts = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))
        sizes = np.diff(np.append(starts, self.n_samples))
        weights = np.empty(self.n_samples)
        weights[order] = np.repeat(_tie_log_weights(starts, sizes, pressure, self.n_samples), sizes)
        return weights

    def chances(self, index: IntArray, pressure: float) -> FloatArray:
        """Return the share of each sample's tie group, from the closed form of the law's total."""
        n = self.n_samples
        if pressure == 1:
            return np.full(len(index), 1 / n)
        start, end = self._sorted().ties(self.scores[index])
        # The sum of s_e^(r / n - 1) over the ranks 1..n.
        total = math.expm1(-math.log(pressure)) / math.expm1(-math.log(pressure) / n)
        return np.asarray(np.exp(_tie_log_weights(start, end - start, pressure, n)) / total)

    def _sorted(self) -> "_RankOrder":
        # Sorting waits until it is asked for: small n is drawn by enumeration and never needs it.
        if self._order is None:
            self._order = _RankOrder(self.scores)
        return self._order


def _inverse_rank_law(uniforms: FloatArray, pressure: float, n_samples: int) -> IntArray:
    """Return ranks from 0 whose law is proportional to ``s_e^(rank / n)``."""
    if pressure == 1:
        return (uniforms * n_samples).astype(np.int64)
    rank = np.ceil(n_samples * np.log1p(uniforms * (pressure - 1)) / math.log(pressure))
    return np.clip(rank, 1, n_samples).astype(np.int64) - 1


def _tie_log_weights(
    starts: IntArray, sizes: IntArray, pressure: float, n_samples: int
) -> FloatArray:
    """Return the log of the mean of ``s_e^(r / n - 1)`` over the ranks r of each tie group."""
    if pressure == 1:
        return np.zeros(len(starts))
    step = math.log(pressure) / n_samples
    # The sum of a geometric series; for a group of one the last term is exactly 0.
    shared = np.log(np.expm1(step * sizes) / (sizes * math.expm1(step)))
    return np.asarray(step * (starts + 1 - n_samples) + shared)


class _RankOrder:
    """All samples in ascending order of (score, sample), cheap to change and to look into.

    A sorted base, the base positions of entries that have left it, and a short sorted list of the
    entries that came instead; every 64 changes the three become a new base. The order itself never
    depends on when that happens.
    """

    def __init__(self, scores: FloatArray) -> None:
        samples = np.argsort(scores, kind="stable")
        self._set_base(samples, scores[samples])

    def at(self, rank: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the samples at ranks from 0, and their scores."""
        nth = self._came_rank.searchsorted(rank)  # newcomers before this rank
        kept = rank - nth
        place = kept + self._left_gap.searchsorted(kept, side="right")
        # A newcomer at the very end may point past the base; what is read there is replaced.
        place = np.minimum(place, len(self._base) - 1)
        samples, scores = self._base[place], self._base_scores[place]
        if len(self._came):
            nth = np.minimum(nth, len(self._came) - 1)
            came = self._came_rank[nth] == rank
            samples[came], scores[came] = self._came[nth[came]], self._came_scores[nth[came]]
        return samples, scores

    def ties(self, scores: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the first rank of each score's tie group and the rank after its last."""
        return self._count(scores, "left"), self._count(scores, "right")

    def move(self, index: IntArray, old: FloatArray, new: FloatArray) -> None:
        """Follow the scores of the distinct samples `index` from `old` to `new`."""
        ascending = np.lexsort((index, old))  # bisection is faster for sorted questions
        self._take_out(index[ascending], old[ascending])
        ascending = np.lexsort((index, new))
        self._put_in(index[ascending], new[ascending])
        self._moves += 1
        if self._moves == _MERGE_EVERY:
            self._merge()

    def _set_base(self, samples: IntArray, scores: FloatArray) -> None:
        self._base, self._base_scores = samples, scores
        self._moved = np.zeros(len(samples), dtype=bool)
        self._left = np.empty(0, dtype=np.int64)
        self._came, self._came_scores = np.empty(0, dtype=np.int64), np.empty(0)
        self._came_place = np.empty(0, dtype=np.int64)
        self._moves = 0
        self._renew_ranks()

    def _count(self, scores: FloatArray, side: Literal["left", "right"]) -> IntArray:
        """Count the samples below each score (left) or up to it (right)."""
        base = self._base_scores.searchsorted(scores, side=side)
        left = self._left.searchsorted(base)
        return base - left + self._came_scores.searchsorted(scores, side=side)

    def _take_out(self, index: IntArray, old: FloatArray) -> None:
        moved = self._moved[index]
        fresh = ~moved
        place = _find(self._base_scores, self._base, old[fresh], index[fresh])
        place.sort()
        self._left = _insert(self._left, self._left.searchsorted(place), place)
        self._moved[index] = True
        stay = np.ones(len(self._came), dtype=bool)
        stay[_find(self._came_scores, self._came, old[moved], index[moved])] = False
        self._came, self._came_scores = self._came[stay], self._came_scores[stay]
        self._came_place = self._came_place[stay]

    def _put_in(self, index: IntArray, new: FloatArray) -> None:
        at = _find(self._came_scores, self._came, new, index)
        place = _find(self._base_scores, self._base, new, index)
        self._came = _insert(self._came, at, index)
        self._came_scores = _insert(self._came_scores, at, new)
        self._came_place = _insert(self._came_place, at, place)
        self._renew_ranks()

    def _renew_ranks(self) -> None:
        nth = np.arange(len(self._came))
        # Rank of each newcomer: base entries below it that have not left, and newcomers below it.
        gone = self._left.searchsorted(self._came_place)
        self._came_rank = self._came_place - gone + nth
        self._left_gap = self._left - nth

    def _merge(self) -> None:
        stay = np.ones(len(self._base), dtype=bool)
        stay[self._left] = False
        old = np.ones(len(self._base), dtype=bool)
        old[self._came_rank] = False
        samples, scores = np.empty_like(self._base), np.empty_like(self._base_scores)
        samples[old], samples[self._came_rank] = self._base[stay], self._came
        scores[old], scores[self._came_rank] = self._base_scores[stay], self._came_scores
        self._set_base(samples, scores)


def _find(
    scores: FloatArray, samples: IntArray, wanted: FloatArray, wanted_samples: IntArray
) -> IntArray:
    """Return where each (score, sample) belongs in a list sorted by both: bisection by pairs."""
    place = scores.searchsorted(wanted)
    # Most scores occur once; only behind the first of a tie group is anything left to bisect.
    inside = np.flatnonzero(place < len(scores))
    first = place[inside]
    tied = inside[(scores[first] == wanted[inside]) & (samples[first] < wanted_samples[inside])]
    if tied.size:
        end = scores.searchsorted(wanted[tied], side="right")
        place[tied] = _bisect(samples, place[tied], end, wanted_samples[tied])
    return place


def _bisect(samples: IntArray, low: IntArray, high: IntArray, wanted: IntArray) -> IntArray:
    """Return where each wanted sample belongs in its own ascending stretch from `low` to `high`."""
    last = len(samples) - 1
    for _ in range(int((high - low).max()).bit_length()):
        middle = (low + high) // 2
        below = (low < high) & (samples[np.minimum(middle, last)] < wanted)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def _insert(
    array: npt.NDArray[_Number], at: IntArray, values: npt.NDArray[_Number]
) -> npt.NDArray[_Number]:
    """Insert values before the ascending places `at`; a lean ``np.insert``."""
    places = at + np.arange(len(at))
    merged = np.empty(len(array) + len(values), dtype=array.dtype)
    rest = np.ones(len(merged), dtype=bool)
    rest[places] = False
    merged[places] = values
    merged[rest] = array
    return merged
