"""Importance sampling for multi-label losses: preferred samples are down-weighted accordingly."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch import imbalance
from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray, IntArray, stream
from tailbatch.selection.base import Selector, _Settings, label_matrix
from tailbatch.selection.drawing import _SumTable
from tailbatch.selection.inputs import (
    LabelMatrix,
    _as_array,
    _check_per_label,
    _label_cells,
    _last_of_each,
)
from tailbatch.selection.loss_driven import Linear, Schedule

Draws: TypeAlias = Literal["systematic", "independent"]
_CELLS_AT_ONCE = 1 << 22
_ROWS_AT_ONCE = 1 << 15


def _gradient_norms(
    losses: FloatArray, row: IntArray, label: IntArray, weights: FloatArray
) -> FloatArray:
    """Return how far samples would move the logits, from the binary cross-entropy (b, q) of each label.

    ``g_i = || a_i * e_i ||_2`` with ``e_ij = 1 - exp(-bce_ij) = |sigmoid(z_ij) - y_ij|`` and a_ij the
    loss's weight of the cell: w_j for a positive (row, label), else 1 (Katharopoulos and Fleuret, 2018).
    """
    squares = np.square(np.expm1(-losses))
    # Each row adds up by itself, so that a sample's norm does not depend on the batch around it.
    norms: FloatArray = squares.sum(axis=1)
    norms += np.bincount(row, squares[row, label] * (weights[label] ** 2 - 1), len(losses))
    return np.sqrt(np.maximum(norms, 0.0, out=norms), out=norms)


def _prior_norms(
    Y: LabelMatrix, weights: FloatArray, share: FloatArray | None = None
) -> FloatArray:
    """Return the gradient norms (n,) of a model that knows only how frequent labels are.

    It predicts the prior that the weighted loss has its minimum at,
    ``pi'_j = w_j pi_j / (1 - pi_j + w_j pi_j)``, so ``e_ij = |pi'_j - y_ij|``.
    `share` is pi (q,), by default that of Y.
    """
    if share is None:
        share = imbalance.label_counts(Y) / Y.shape[0]
    prior = weights * share / (1 - share + weights * share)
    return _row_norms(Y, np.square(weights * (1 - prior)), np.square(prior))


def _row_norms(Y: LabelMatrix, positive: FloatArray, negative: FloatArray) -> FloatArray:
    """Return each row's root of the sum over labels of `positive` where it has it, else `negative`."""
    norms: FloatArray = np.empty(Y.shape[0])
    at_once = max(_CELLS_AT_ONCE // Y.shape[1], 1)
    for start in range(0, len(norms), at_once):
        rows = slice(start, start + at_once)
        # Sparse also where Y is dense: one order of adding up, so both give the same bits.
        norms[rows] = sparse.csr_array(Y[rows]) @ (positive - negative)
    norms += negative.sum()
    return np.sqrt(np.maximum(norms, 0.0, out=norms), out=norms)


def _systematic_sample(
    times: Callable[[slice], FloatArray], n: int, start: float
) -> npt.NDArray[Any]:
    """Return n samples in ascending order, sample i as often as n p_i rounded down or up.

    It comes up ``floor(C_i + start) - floor(C_(i-1) + start)`` times, where C is the running total of
    n p; for a uniform `start` in [0, 1) that is n p_i times on average.
    """
    drawn: npt.NDArray[Any] = np.empty(n, dtype=np.int32 if n < 2**31 else np.int64)
    total, passed = 0.0, 0
    # In pieces that stay in the processor's cache: this is to cost no more than the shuffle.
    for first in range(0, n, _ROWS_AT_ONCE):
        end = min(first + _ROWS_AT_ONCE, n)
        running = np.cumsum(times(slice(first, end)))
        running += total
        total = float(running[-1])
        ends = np.floor(running + start).astype(np.int64)
        if end == n:
            ends[-1] = n  # whatever rounding made of the total
        counts = np.diff(ends, prepend=passed)
        drawn[passed : ends[-1]] = np.repeat(np.arange(first, end, dtype=drawn.dtype), counts)
        passed = int(ends[-1])
    return drawn


class ImportanceSelector(Selector):
    """Draws samples with large gradients more often, and down-weights them accordingly.

    Sample i is drawn with probability ``p_i = (1 - mix) g_i / sum(g) + mix / n``, where g is its
    gradient's norm by the logits, and its loss has the weight ``1 / (n p_i)``, at most ``1 / mix``. So
    the expected gradient is that of shuffled epochs, and its variance is lower where g is near the
    truth. Train on ``selector.mean(losses.sum(1))``.

    Parameters
    ----------
    score
        ``"prior"``: g of a model that knows only the frequency of labels (`_prior_norms`). It never
        changes, and no losses are needed. ``"gradient"``: g from each sample's last observed losses
        (`_gradient_norms`), the prior's where there are none.
    mix
        mu, the share of uniform draws, above 0 and at most 1 (plain uniform draws). A number, or a
        schedule such as ``Linear(0.3, 1)``, which ends on shuffled epochs; the pair ``(0.3, 1)`` is the
        same, for study files.
    beta
        1 corrects fully. Below, weights are ``(n p_i)^-beta`` scaled to sum to 1 in each batch: biased
        towards the preferred samples, the more the smaller beta is; 0 gives all the same weight.
    positive_weights
        w (q,), the loss's weights of positives; or the loss itself, if it has them as
        ``positive_weights`` (None there: all 1). Default `imbalance.positive_weights`, those of
        ``weighted_bce``.
    draws
        ``"systematic"``: an epoch is a weighted shuffle, in which sample i comes up n p_i times,
        rounded down or up, in random order. ``"independent"``: each draw by itself. By default the
        former for the prior's g; a g that changes needs the latter.
    **settings
        As for `Selector`. With ``"gradient"`` `observe` takes per-label losses (b, q) only: plain
        binary cross-entropy, whatever the loss that is trained on.

    Examples
    --------
    >>> Y = [[1, 0], [1, 0], [1, 0], [0, 1]]
    >>> selector = ImportanceSelector(Y, batch_size=4)
    >>> selector.probabilities().round(3).tolist()
    [0.192, 0.192, 0.192, 0.425]
    >>> for index in selector:
    ...     loss = selector.mean(np.ones(4))
    """

    strategy: str = "importance"
    place = 7
    corrected = True
    warm_up_by_default = 0

    def __init__(
        self,
        Y: object,
        *,
        score: Literal["prior", "gradient"] = "prior",
        mix: float | Schedule | tuple[float, float] = 0.3,
        beta: float = 1.0,
        positive_weights: object = None,
        draws: Draws | None = None,
        **settings: Unpack[_Settings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(labels.shape[0], **settings)
        if settings["labels"] is labels and self.labels is not None:
            labels = self.labels  # checked once more, and one copy is enough
        if not labels.sum():
            raise SelectionError(
                "Y has no positive label, so there is nothing to prefer: use random"
            )
        self._score, self._draws = _checked_ways(score, draws)
        self._beta = _checked_beta(beta)
        self.softened = self._beta < 1
        self._mix = Linear(*mix) if isinstance(mix, tuple | list) and len(mix) == 2 else mix
        self.mix(0)  # a schedule that lacks something should say so now
        self._Y = labels
        self._weights = (
            imbalance.positive_weights(labels)
            if positive_weights is None
            else _checked_positive_weights(positive_weights, labels.shape[1])
        )
        self.needs_losses = score == "gradient"
        self._weighted: tuple[int, npt.NDArray[Any]] | None = None  # this epoch's weighted shuffle
        self._bits = _SumTable.bits(self.n_samples)
        # No error exceeds 1, so no norm exceeds that of a row's weights.
        largest = _row_norms(labels, np.square(self._weights), np.ones(labels.shape[1])).max()
        self._unit = float(largest) / 2**self._bits
        self._table = _SumTable(self._in_units(_prior_norms(labels, self._weights)))

    def mix(self, epoch: int) -> float:
        """Return the share of uniform draws in an epoch, counted from 0 after the warm-up."""
        mix = self._mix(epoch, self._own_epochs) if callable(self._mix) else self._mix
        if not isinstance(mix, int | float | np.number) or not 0 < mix <= 1:
            raise SelectionError(
                f"mix must be above 0 and at most 1, got {mix!r} (1 draws uniformly; 0 would leave "
                "weights without a bound)"
            )
        return float(mix)

    def _in_units(self, norms: FloatArray) -> IntArray:
        """Return norms as whole numbers of a small unit, whose sums have no rounding error."""
        return np.asarray(np.rint(norms / self._unit), dtype=np.int64)

    # ---- drawing ---------------------------------------------------------------------------

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        if self._draws == "systematic":
            start = number * self.batch_size
            return np.array(self._weighted_shuffle(epoch)[start : start + size], dtype=np.int64)
        first, second = self._streams.at(epoch, number).random((2, size))
        drawn: IntArray = (second * self.n_samples).astype(np.int64)
        if self._table.total:
            by_norm = np.flatnonzero(first >= self.mix(epoch))
            drawn[by_norm] = self._table.draw(second[by_norm])
        return drawn

    def _weighted_shuffle(self, epoch: int) -> npt.NDArray[Any]:
        if self._weighted is None or self._weighted[0] != epoch:
            self._weighted = None  # so that two orders never exist at once
            rng = stream(self.seed, "weighted shuffle", epoch)
            mix, values = self.mix(epoch), self._table.values
            order = _systematic_sample(
                lambda rows: self._times_likely(values[rows], mix),
                self.n_samples,
                float(rng.random()),
            )
            rng.shuffle(order)
            self._weighted = epoch, order
        return self._weighted[1]

    def _times_likely(self, units: IntArray, mix: float) -> FloatArray:
        """Return n p of samples with these norms: how many times as likely as uniform they are."""
        total = self._table.total
        if not total:
            return np.ones(len(units))
        times = units * ((1 - mix) * self.n_samples / total)
        times += mix
        return np.asarray(times)

    def _probabilities(self, epoch: int) -> FloatArray:
        return self._times_likely(self._table.values, self.mix(epoch)) / self.n_samples

    def _importance(self, index: IntArray, epoch: int) -> FloatArray:
        times = self._times_likely(self._table.values[index], self.mix(epoch))
        if self.softened:
            weights: FloatArray = (times / times.min()) ** -self._beta
            return np.asarray(weights / weights.sum())
        return np.asarray(1 / (len(index) * times))

    # ---- losses ----------------------------------------------------------------------------

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        expected = len(index), self._Y.shape[1]
        if self.needs_losses:
            _check_per_label('score="gradient"', losses, expected)
        elif losses.shape != expected:
            return None
        row, label = _label_cells(self._Y, index)
        norms = _gradient_norms(losses, row, label, self._weights)
        if self.needs_losses:
            last = _last_of_each(index)
            self._table.change(index[last], self._in_units(norms[last]))
        return norms

    # ---- state -----------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        return {
            "score": self._score,
            "draws": self._draws,
            "mix": self._mix,
            "beta": self._beta,
            "epochs": self._epochs if callable(self._mix) else None,
            "shuffle": self._shuffle,
            "positive_weights": self._weights,
            "Y": sparse.csr_array(self._Y),  # the same labels, dense or sparse, are one setting
        }

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        return {"scores": (self._table.values, 2**self._bits)} if self.needs_losses else {}

    def _restore(self, loaded: Mapping[str, npt.NDArray[Any]]) -> None:
        if self.needs_losses:
            self._table = _SumTable(loaded["scores"])


def _checked_positive_weights(given: object, q: int) -> FloatArray:
    """Return the positive weights (q,) that were given as such or by a loss."""
    if hasattr(given, "positive_weights"):  # a loss
        given = given.positive_weights
        if given is None:
            return np.ones(q)
        if _as_array(given).shape == (1,):  # a loss with one weight for all labels
            given = np.repeat(_as_array(given), q)
    weights = _as_array(given)
    if weights.shape != (q,) or weights.dtype.kind not in "biuf":
        raise SelectionError(
            f"positive_weights must be one number for each of the {q} labels, or a loss that has "
            f"them, got {_told(given, weights)}"
        )
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        label = int(np.flatnonzero(wrong)[0])
        raise SelectionError(
            f"positive_weights must be finite and >= 0, got {weights[label]} for label {label} "
            "(1 counts positives and negatives alike)"
        )
    return weights.astype(np.float64)


def _told(given: object, weights: npt.NDArray[Any]) -> str:
    return f"a {type(given).__name__}" if weights.dtype == object else f"shape {weights.shape}"


def _checked_beta(beta: object) -> float:
    if isinstance(beta, int | float | np.number) and 0 <= beta <= 1:
        return float(beta)
    raise SelectionError(
        f"beta must lie in [0, 1], got {beta!r} (1 corrects fully, 0 does not correct)"
    )


def _checked_ways(score: str, draws: str | None) -> tuple[str, str]:
    if score not in ("prior", "gradient"):
        raise SelectionError(f"score must be 'prior' or 'gradient', got {score!r}")
    if draws not in (None, "systematic", "independent"):
        raise SelectionError(f"draws must be 'systematic' or 'independent', got {draws!r}")
    if score == "gradient" and draws == "systematic":
        raise SelectionError(
            "draws='systematic' plans a whole epoch, and score='gradient' changes within it: use "
            "score='prior', or draws='independent'"
        )
    return score, draws or ("systematic" if score == "prior" else "independent")
