"""Weights that undo a preference: the weighted mean, and what the preference gains in variance."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import FloatArray, state_array

_LEAST_BATCHES = 100
_MOST = 1e300  # of a saved sum; what is observed stays far below


def weighted_mean(losses: Any, weights: FloatArray | None) -> Any:
    """Return ``sum_i w_i loss_i``, losses (b, q) averaged over labels first; without weights the mean.

    Takes tensors of any device, with their graph, and arrays; what comes out is of the same kind.

    Examples
    --------
    >>> weighted_mean(np.array([[1.0, 3.0], [4.0, 4.0]]), np.array([0.25, 0.5]))
    np.float64(2.5)
    """
    if not hasattr(losses, "mean"):
        losses = np.asarray(losses)
    if weights is None:
        return losses.mean()
    if losses.ndim not in (1, 2) or len(losses) != len(weights):
        raise SelectionError(
            f"losses must have shape ({len(weights)},) or ({len(weights)}, n_labels), one row for "
            f'each sample of the batch, got {tuple(losses.shape)}; compute them with reduction="none"'
        )
    own = losses.new_tensor(weights) if hasattr(losses, "new_tensor") else weights
    return ((losses if losses.ndim == 1 else losses.mean(1)) * own).sum()


def error_norms(losses: FloatArray) -> FloatArray:
    """Return ``||1 - exp(-loss_i)||_2``: how far each sample would move the logits, shape (b,).

    For the binary cross-entropy of a label, ``1 - exp(-bce) = |sigmoid(z) - y|`` is the size of its
    gradient by the logit. A loss (b,) counts as that of a single label.

    Examples
    --------
    >>> error_norms(np.log([[2.0, 1.0], [2.0, 2.0]])).round(3)
    array([0.5  , 0.707])
    """
    errors = -np.expm1(-losses.reshape(len(losses), -1))
    return np.asarray(np.sqrt(np.square(errors).sum(axis=1)))


class Efficiency:
    """How many uniform draws the weighted draws are worth, from what was observed.

    A sample that would move the model by g, drawn with probability p and weighted by 1 / (n p), adds
    ``E[(g / (n p))^2]`` to the second moment of the estimated gradient; drawn uniformly it would add
    ``E[g^2 / (n p)]``, as seen from the same draws. Their ratio is the gain. Earlier batches fade:
    about the latest epoch counts, and at least 100 batches.

    Parameters
    ----------
    batches
        Number of batches in an epoch.

    Examples
    --------
    >>> efficiency = Efficiency(batches=10)
    >>> efficiency.add(np.array([4.0, 1.0]), np.array([0.25, 1.0]))
    >>> efficiency.gain, efficiency.heaviest_share
    (1.25, 0.8)
    """

    def __init__(self, batches: int) -> None:
        self._keep = 1 - 1 / max(batches, _LEAST_BATCHES)
        self._sums = np.zeros(4)  # batches, uniform and weighted second moments, heaviest shares

    def add(self, sizes: FloatArray, weights: FloatArray) -> None:
        """Take in what the samples of a batch would move, (b,), and their weights 1 / (b n p)."""
        moments = np.square(sizes) * weights
        ours = len(weights) * float(moments @ weights)
        self._sums *= self._keep
        self._sums += (1.0, moments.sum(), ours, weights.max() / weights.sum())

    @property
    def gain(self) -> float | None:
        """How many uniform draws one weighted draw is worth; None before anything was observed."""
        _, uniform, ours, _ = self._sums.tolist()
        return uniform / ours if ours > 0 else None

    @property
    def heaviest_share(self) -> float | None:
        """The heaviest sample's share of a batch's weight, on average."""
        batches, _, _, heaviest = self._sums.tolist()
        return heaviest / batches if batches > 0 else None

    def state(self) -> dict[str, FloatArray]:
        """Return what was measured, for a saved state."""
        return {"measured": self._sums.copy()}

    def load(self, state: Mapping[str, Any]) -> "Efficiency":
        """Return a copy that continues from a saved state."""
        loaded = Efficiency(0)
        loaded._keep = self._keep
        loaded._sums = state_array(state, "measured", np.float64, 4, most=_MOST)
        return loaded
