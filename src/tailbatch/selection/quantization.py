"""The paper's law: probabilities from quantized losses, drawn by rejection."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import FloatArray, IntArray
from tailbatch.selection.loss_law import LossLaw
from tailbatch.selection.sums import unit_bits

_BLOCK_BITS = 12
_BLOCK = 1 << _BLOCK_BITS
_ROWS_AT_ONCE = 1 << 16


def quantization_index(losses: FloatArray, l_max: float, n_samples: int) -> FloatArray:
    """Return Q, the rank that a loss would have if losses were spread evenly (Eq. 6).

    ``Q_i = ceil(n l_i / l_max)``, from 0 to n, in float64 from left to right. Losses above `l_max`
    (a cap, or infinite because the sample was never seen) count as `l_max`. If `l_max` is 0, every
    loss is the largest and Q is n.

    Examples
    --------
    >>> quantization_index(np.array([0.0, 0.1, 0.5, 1.0, np.inf]), l_max=1.0, n_samples=5)
    array([0., 1., 3., 5., 5.])
    """
    if l_max == 0:
        return np.full_like(losses, n_samples)
    with np.errstate(over="ignore"):  # far above a tiny cap: infinite, and cut to n like the rest
        index = n_samples * losses
        index /= l_max
    np.ceil(index, out=index)
    return np.minimum(index, n_samples, out=index)


class QuantizationLaw(LossLaw):
    """p_i proportional to ``s_e^(Q_i / n)`` (Eq. 7), with Q of `quantization_index`.

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
        self._maxima = BlockMaxima(scores)
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
        total = self._total[1] / 2 ** unit_bits(self.n_samples)
        return np.asarray(np.exp(self.log_weights_of(index, pressure)) / total)

    def _units(self, scores: FloatArray, pressure: float) -> IntArray:
        """Return weights as whole numbers of a small unit."""
        weights = np.exp(self._log_weights(scores, pressure))
        return np.asarray(np.rint(weights * 2 ** unit_bits(self.n_samples)), dtype=np.int64)

    def _log_weights(self, scores: FloatArray, pressure: float) -> FloatArray:
        relative = self._rank_by_size(scores)
        relative /= self.n_samples
        relative -= 1.0
        relative *= math.log(pressure)
        return relative

    def _rank_by_size(self, scores: FloatArray) -> FloatArray:
        """Return from 0 to n how much a score is preferred; the weight is ``s_e^(this / n - 1)``."""
        return quantization_index(scores, self.l_max, self.n_samples)


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
        return self.n_samples - quantization_index(known, self.l_max, self.n_samples)


class BlockMaxima:
    """The largest finite score, kept block by block so that no update walks all samples.

    A rising score raises its block's maximum in place. A block is looked through again only when a
    sample that held its maximum fell.

    Examples
    --------
    >>> scores = np.array([1.0, 3.0, np.inf])
    >>> maxima = BlockMaxima(scores)
    >>> maxima.largest
    3.0
    >>> scores[1] = 0.5
    >>> maxima.move(scores, np.array([1]), np.array([3.0]), np.array([0.5]))
    >>> maxima.largest
    1.0
    """

    def __init__(self, scores: FloatArray) -> None:
        starts = range(0, len(scores), _BLOCK)
        self._maxima = np.array([_finite_maximum(scores[i : i + _BLOCK]) for i in starts])
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
