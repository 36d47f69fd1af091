"""Batches that were handed out and wait for their losses, with the weights of their samples."""

import sys
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
    asked: bool = False  # its weights were taken


def refuse_unweighted(batches: Sequence[Batch]) -> None:
    """Refuse to leave corrected batches whose weights were never taken."""
    if any(batch.weights is not None and not batch.asked for batch in batches):
        raise SelectionError(
            "the weights of a batch were never used, so likelier samples would count for more: write "
            "loss = selector.mean(losses.sum(1)) in place of losses.sum(1).mean(), before "
            "observe(losses). If a loader reads ahead (DataLoader workers, prefetch), allow it with "
            f"max_lag={lag_of_loader(1)}"
        )


def lag_of_loader(waiting: int) -> int:
    """Return how many batches the loader that is asking for one reads ahead, at least `waiting`.

    The loader is found on the call stack, so this is for error messages: one with workers asks for
    ``num_workers * prefetch_factor`` batches before the first is trained on.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        loader = frame.f_locals.get("self")
        workers = getattr(loader, "_num_workers", None)
        ahead = getattr(loader, "_prefetch_factor", None)
        if isinstance(workers, int) and isinstance(ahead, int):
            return max(waiting, workers * ahead)
    return waiting


class PendingBatches:
    """What a selector does with pending batches: finds them by their index, and hands out weights."""

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
        weights = self._weigh(index).weights
        return None if weights is None else weights.copy()

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
            As for `observe`, and before it.

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
        """Tell whether the weights of a pending batch were taken, for adapters."""
        return self._pending[self._find_pending(index)].asked

    def _weigh(self, index: npt.ArrayLike | None) -> Batch:
        """Return a pending batch, whose weights are now known to be used."""
        batch = self._pending[self._find_pending(index)]
        again = index is None and batch.asked and batch.weights is not None
        if again and len(self._pending) > 1:
            raise SelectionError(
                f"{len(self._pending)} batches are pending, and the weights of the oldest were taken "
                "already: call observe(losses) after each step, or say which batch with index="
            )
        for other in self._pending:  # equal batches cannot be told apart
            other.asked |= other is batch or np.array_equal(other.index, batch.index)
        return batch

    def _find_pending(self, index: npt.ArrayLike | None) -> int:
        """Return the place of a batch among the pending ones, or say why it has none."""
        if index is None:
            if self._pending:
                return 0  # loaders hand batches over in the order drawn
            raise SelectionError(
                "no batch is waiting for losses: draw one first (each is observed once)"
            )
        wanted = as_array(index)
        for place, batch in enumerate(self._pending):
            if np.array_equal(batch.index, wanted):
                return place
        self._refuse(wanted)

    def _is_pending(self, index: npt.ArrayLike) -> bool:
        wanted = as_array(index)
        return any(np.array_equal(batch.index, wanted) for batch in self._pending)

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
