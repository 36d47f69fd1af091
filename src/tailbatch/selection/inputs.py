"""What comes in from outside, checked and turned into plain NumPy arrays, without importing torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tailbatch.data.labels import LabelMatrix as LabelMatrix
from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray, IntArray

#: Counters of a saved state end here: beyond, adding to them would leave 64 bits.
MOST = 2**62


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
