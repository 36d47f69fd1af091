"""What comes in from outside, as checked NumPy arrays without torch; and batches that wait for losses."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tailbatch.data.labels import LabelMatrix as LabelMatrix
from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray, IntArray

#: Counters of a saved state end here: beyond, adding to them would leave 64 bits.
MOST = 2**62

_LEAST_BATCHES = 100
_LARGEST_SUM = 1e300  # of a saved state; what is observed stays far below


def _as_array(values: object) -> npt.NDArray[Any]:
    """Return an array of anything array-like: arrays, lists, frames, torch tensors on any device."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        # NumPy has no bfloat16, so floats are widened while they are still a tensor.
        values = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    return np.asarray(values)


def _label_cells(Y: LabelMatrix, index: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and label of the positives of a few rows, row after row."""
    if isinstance(Y, np.ndarray):
        row, label = Y[index].nonzero()
        return row, label
    # Not Y[index], which makes a new matrix at ten times the cost.
    starts = Y.indptr[index].astype(np.int64)
    sizes = Y.indptr[index + 1] - starts
    row = np.repeat(np.arange(len(index)), sizes)
    place = np.arange(len(row)) + (starts - (np.cumsum(sizes) - sizes))[row]
    return row, Y.indices[place]


def _checked_losses(losses: object, index: IntArray) -> FloatArray:
    """Return the losses of a batch as float64 of shape (b,) or (b, q), all finite and >= 0."""
    values = _in_fixed_order(_as_array(losses))
    if values.ndim not in (1, 2) or len(values) != len(index) or not values.size:
        raise SelectionError(
            f"losses must have shape ({len(index)},) or ({len(index)}, n_labels), one row for each "
            f'sample of the batch, got {values.shape}; compute the loss with reduction="none"'
        )
    _check_finite(values, index, what="loss")
    return values


def _check_per_label(who: str, losses: FloatArray, expected: tuple[int, int]) -> None:
    """Refuse losses that do not come label by label."""
    if losses.shape != expected:
        raise SelectionError(
            f"{who} needs the loss of each label, shape {expected}, got {losses.shape}; "
            'hand over binary_cross_entropy_with_logits(..., reduction="none") as it is'
        )


def _in_fixed_order(values: npt.NDArray[Any]) -> FloatArray:
    """Return values as float64, row after row in memory; a copy only where they are not yet.

    NumPy adds along a row in an order that depends on how an array lies in memory. Laid out alike,
    equal rows have equal sums, whatever the batch around them and wherever the array comes from.
    """
    ordered = np.asarray(values, dtype=np.float64, order="C")
    return ordered if ordered.flags.aligned else ordered.copy()


def _last_of_each(index: IntArray) -> IntArray:
    """Return the places of each sample's last occurrence, ascending by sample."""
    _, from_the_end = np.unique(index[::-1], return_index=True)
    return len(index) - 1 - from_the_end


def _check_finite(values: FloatArray, index: IntArray, *, what: str) -> None:
    """Refuse values that are NaN, infinite or negative, naming the first sample that has one."""
    # A comparison with NaN is false, so this one test also catches NaN.
    if values.min() >= 0 and values.max() < np.inf:
        return
    wrong = ~(np.isfinite(values) & (values >= 0))
    row = int(np.argwhere(wrong)[0][0])
    raise SelectionError(
        f"the {what} of sample {index[row]} is {values[row][wrong[row]].flat[0]}; it must be "
        "finite and >= 0: look at the sample's features, the learning rate and the loss function"
    )


def _state_integer(state: Mapping[str, Any], key: str, *, most: int = MOST) -> int:
    """Return an integer from 0 of a saved state, also when an adapter wrapped it in a tensor."""
    array = _entry(state, key)
    if array.ndim or array.dtype.kind not in "biuO" or not _is_within(array, most):
        raise SelectionError(
            f"the saved state has {key}={_shown(array)}, expected a whole number from 0"
            f"{'' if most == MOST else f' to {most}'}: it is not a state of this selector"
        )
    return int(array)


def _state_array(
    state: Mapping[str, Any],
    key: str,
    dtype: npt.DTypeLike,
    length: int | None = None,
    *,
    most: float = MOST,
) -> npt.NDArray[Any]:
    """Return a fresh copy of an array of a saved state: its length and range (from 0) are checked."""
    array = _entry(state, key)
    if array.ndim != 1 or length not in (None, len(array)):
        raise SelectionError(
            f"the saved state's {key!r} has shape {array.shape}, expected ({length},): "
            "it is not a state of this selector"
        )
    kinds = "biuf" if np.dtype(dtype).kind == "f" or not array.size else "biu"
    if array.dtype.kind not in kinds or not _is_within(array, most):
        raise SelectionError(
            f"the saved state's {key!r} holds {_shown(array)}, expected numbers from 0 to {most}: "
            "it is not a state of this selector"
        )
    return np.array(array, dtype=dtype)


def _entry(state: Mapping[str, Any], key: str) -> npt.NDArray[Any]:
    if key not in state:
        raise SelectionError(f"the saved state lacks {key!r}: it is not a state of this selector")
    try:
        return _as_array(state[key])
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, sparse tensors
        raise SelectionError(f"the saved state's {key!r} is no array: {error}") from None


def _is_within(array: npt.NDArray[Any], most: float) -> bool:
    """Tell whether all values are numbers from 0 to `most`; NaN is none."""
    try:
        return bool(((array >= 0) & (array <= most)).all())
    except TypeError:  # objects without an order
        return False


def _shown(array: npt.NDArray[Any]) -> str:
    return repr(array.tolist())[:40]


@dataclass(eq=False)
class _Batch:
    """A batch that was handed out, until its losses come."""

    index: IntArray
    weights: FloatArray | None  # None: 1 / b each
    epoch: int
    asked: bool = False  # its weights were taken


class _Pending(list[_Batch]):
    """The batches of a selector that wait for their losses, oldest first."""

    def refuse_unweighted(self) -> None:
        """Refuse to leave corrected batches whose weights were never taken."""
        if any(batch.weights is not None and not batch.asked for batch in self):
            raise SelectionError(
                "the weights of a batch were never used, so likelier samples would count for more: "
                "write loss = selector.mean(losses.sum(1)) in place of losses.sum(1).mean(), before "
                "observe(losses). If a loader reads ahead (DataLoader workers, prefetch), allow it "
                f"with max_lag={_lag_of_loader(1)}"
            )

    def find(self, index: npt.ArrayLike | None) -> _Batch:
        """Return the batch with this index, or the oldest one; say why there is none."""
        if index is None:
            if self:
                return self[0]  # loaders hand batches over in the order drawn
            raise SelectionError(
                "no batch is waiting for losses: draw one first (each is observed once)"
            )
        wanted = _as_array(index)
        for batch in self:
            if np.array_equal(batch.index, wanted):
                return batch
        raise SelectionError(
            f"the batch starting with samples {wanted.ravel()[:3].tolist()} is not pending: it was "
            "never drawn, is already observed, or went by (max_lag is too small); pass the index as "
            "it was drawn, in the same order"
        )

    def weigh(self, index: npt.ArrayLike | None) -> _Batch:
        """Return a batch, and note that its weights are used."""
        batch = self.find(index)
        again = index is None and batch.asked and batch.weights is not None
        if again and len(self) > 1:
            raise SelectionError(
                f"{len(self)} batches are pending, and the weights of the oldest were taken "
                "already: call observe(losses) after each step, or say which batch with index="
            )
        for other in self:  # equal batches cannot be told apart
            other.asked |= other is batch or np.array_equal(other.index, batch.index)
        return batch

    def saved(self) -> dict[str, Any]:
        """Return the batches as the arrays of a saved state."""
        weights = [batch.weights for batch in self if batch.weights is not None]
        return {
            "pending_sizes": np.array([len(batch.index) for batch in self], dtype=np.int64),
            "pending": np.concatenate([np.empty(0, dtype=np.int64), *(b.index for b in self)]),
            "pending_weights": np.concatenate([np.empty(0), *weights]),
        }

    @classmethod
    def loaded(
        cls, state: Mapping[str, Any], epoch: int, n_samples: int, *, may_repeat: bool
    ) -> "_Pending":
        """Read the batches of a saved state; only corrected ones may repeat a sample."""
        sizes = _state_array(state, "pending_sizes", np.int64, most=n_samples)
        total, cuts = int(sizes.sum()), np.cumsum(sizes)[:-1]
        samples = _state_array(state, "pending", np.int64, total, most=n_samples - 1)
        index = np.split(samples, cuts)[: len(sizes)]
        least = [1 if may_repeat else max(len(each), 1) for each in index]
        if any(len(np.unique(each)) < few for each, few in zip(index, least, strict=True)):
            raise SelectionError(
                "the saved state has a pending batch that is empty or repeats a sample"
            )
        weights = _state_array(state, "pending_weights", np.float64)
        if not len(weights):
            return cls(_Batch(each, None, epoch) for each in index)
        weights = _state_array(state, "pending_weights", np.float64, total)
        parts = np.split(weights, cuts)
        return cls(_Batch(i, w, epoch) for i, w in zip(index, parts, strict=True))


def _lag_of_loader(waiting: int) -> int:
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


class _Efficiency:
    """How many uniform draws the weighted draws are worth, from what was observed.

    A sample that would move the model by g, drawn with probability p and weighted by 1 / (n p), adds
    ``E[(g / (n p))^2]`` to the second moment of the estimated gradient; drawn uniformly it would add
    ``E[g^2 / (n p)]``, as seen from the same draws. Their ratio is the gain. Earlier batches fade:
    about the latest epoch counts, and at least 100 batches.
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

    def load(self, state: Mapping[str, Any]) -> "_Efficiency":
        """Return a copy that continues from a saved state."""
        loaded = _Efficiency(0)
        loaded._keep = self._keep
        loaded._sums = _state_array(state, "measured", np.float64, 4, most=_LARGEST_SUM)
        return loaded
