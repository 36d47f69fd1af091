"""Batches that were handed out and wait for their losses, with the weights of their samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import FloatArray, IntArray, as_array, state_array
from tailbatch.selection.weighting import weighted_mean


@dataclass(eq=False)
class Batch:
    """A batch that was handed out, until its losses come."""

    index: IntArray
    weights: FloatArray | None  # None: 1 / b each
    epoch: int
    asked: bool = False  # somebody has taken its weights


def refuse_unweighted(batches: Sequence[Batch]) -> None:
    """Refuse to go on from corrected batches whose weights nobody has taken."""
    if any(batch.weights is not None and not batch.asked for batch in batches):
        raise SelectionError(
            "the weights of a batch were never used, so likelier samples would count for more: write "
            "loss = selector.mean(losses) instead of losses.mean(), before observe(losses). Where a "
            "loader reads ahead, allow it with max_lag= and name the batch, mean(losses, index)"
        )


class PendingBatches:
    """What a selector does with batches under way: finds them by their index, and weighs them."""

    _pending: list[Batch]
    max_lag: int
    #: Draws are independent, may repeat a sample, and have weights that must be used.
    corrected: bool = False

    def importance_weights(self, index: npt.ArrayLike | None = None) -> FloatArray:
        """Return the weights (b,) of a pending batch whose weighted sum estimates a mean over all n.

        ``1 / b`` each unless importance weights were switched on. `index` as for `observe`.
        """
        batch = self._weigh(index)
        if batch.weights is None:
            return np.full(len(batch.index), 1 / len(batch.index))
        return batch.weights.copy()

    def unequal_weights(self, index: npt.ArrayLike | None = None) -> FloatArray | None:
        """Return the `importance_weights` of a pending batch; None where a plain mean is meant."""
        return None if self._weigh(index).weights is None else self.importance_weights(index)

    def mean(self, losses: Any, index: npt.ArrayLike | None = None) -> Any:
        """Return the loss to train on: the batch's estimate of the mean loss over all n samples.

        ``losses.mean()`` where nothing is corrected; with importance weights ``sum_i w_i losses_i``.
        Losses per label (b, q) are averaged over labels too, as ``losses.mean()`` does; for another
        reduction hand over ``losses.sum(1)``.

        Parameters
        ----------
        losses
            Per sample (b,) or per label (b, q), in the order of the batch: a tensor, whose graph is
            kept, or an array. Not yet averaged: ``reduction="none"``.
        index
            As for `observe`, and before it; needed where weights are and a loader reads ahead.

        Examples
        --------
        >>> from tailbatch.selection import ImportanceSelector
        >>> selector = ImportanceSelector([[1, 0], [1, 0], [0, 1]], batch_size=3)
        >>> losses = np.ones((3, 2))
        >>> for index in selector:
        ...     assert selector.mean(losses) == selector.importance_weights().sum()
        """
        weighted = self.corrected or any(batch.weights is not None for batch in self._pending)
        if not weighted:
            return weighted_mean(losses, None)
        return weighted_mean(losses, self._weigh(index).weights)

    def weights_used(self, index: npt.ArrayLike | None = None) -> bool:
        """Tell whether somebody has taken the weights of a pending batch, for adapters."""
        return self._pending[self._find_pending(index)].asked

    def _weigh(self, index: npt.ArrayLike | None) -> Batch:
        """Return a pending batch, whose weights are now known to be used."""
        batch = self._pending[self._find_pending(index)]
        for other in self._pending:  # equal batches cannot be told apart
            other.asked |= other is batch or np.array_equal(other.index, batch.index)
        return batch

    def _find_pending(self, index: npt.ArrayLike | None) -> int:
        """Return the place of a batch among the pending ones, or say why it has none."""
        waiting = len(self._pending)
        if index is None:
            if waiting == 1:
                return 0
            raise SelectionError(
                "no batch is waiting for losses: draw one first (each is observed once)"
                if waiting == 0
                else f"{waiting} batches are waiting for losses: say which one with index="
            )
        wanted = as_array(index)
        for place, batch in enumerate(self._pending):
            if np.array_equal(batch.index, wanted):
                return place
        self._refuse(wanted)

    def _refuse(self, index: npt.NDArray[Any]) -> NoReturn:
        raise SelectionError(
            f"the batch starting with samples {index.ravel()[:3].tolist()} is not pending: it was "
            f"never drawn, is already observed, or went by (max_lag={self.max_lag}); pass the "
            "index as it was drawn, in the same order"
        )


def saved_batches(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return pending batches as the arrays of a saved state."""
    index = [batch.index for batch in batches]
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return {
        "pending_sizes": np.array([len(each) for each in index], dtype=np.int64),
        "pending": np.concatenate([np.empty(0, dtype=np.int64), *index]),
        "pending_weights": np.concatenate([np.empty(0), *weights]),
    }


def loaded_batches(
    state: Mapping[str, Any], epoch: int, n_samples: int, *, may_repeat: bool
) -> list[Batch]:
    """Read the pending batches of a saved state; only corrected ones may repeat a sample."""
    sizes = state_array(state, "pending_sizes", np.int64, most=n_samples)
    total = int(sizes.sum())
    cuts = np.cumsum(sizes)[:-1]
    samples = state_array(state, "pending", np.int64, total, most=n_samples - 1)
    index = np.split(samples, cuts)[: len(sizes)]
    least = [1 if may_repeat else max(len(each), 1) for each in index]
    if any(len(np.unique(each)) < few for each, few in zip(index, least, strict=True)):
        raise SelectionError(
            "the saved state has a pending batch that is empty or repeats a sample"
        )
    weights = state_array(state, "pending_weights", np.float64)
    if not len(weights):
        return [Batch(each, None, epoch) for each in index]
    weights = state_array(state, "pending_weights", np.float64, total)
    return [Batch(i, w, epoch) for i, w in zip(index, np.split(weights, cuts), strict=True)]
