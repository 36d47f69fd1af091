"""Output biases that start at the labels' frequencies, so that no steps are spent learning them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tailbatch.errors import ModelError
from tailbatch.imbalance import label_counts
from tailbatch.losses import Loss
from tailbatch.losses.base import counts_with_notice, known_labels


def set_prior_bias(
    layer: nn.Module, Y: Any, weights: ArrayLike | Loss | None = None, *, missing: Any = None
) -> None:
    """Set the biases of an output layer to log(w_j pi_j / (1 - pi_j)).

    Without features, no other biases have a lower loss. A label without positives, or without
    negatives, is counted as having half of one, so that its bias is finite; labels without positives
    are logged.

    Parameters
    ----------
    layer
        One with a ``bias`` of q numbers, such as ``nn.Linear``.
    Y
        (n, q) labels of the training rows; pi_j is the share of rows with label j.
    weights
        (q,) w_j, the weights of each label's positives in the loss, or the loss itself; None means all
        1.
    missing
        (n, q) labels that are unknown, whatever `Y` says of them; they do not count as rows of their
        label.

    Examples
    --------
    >>> layer = nn.Linear(4, 2)
    >>> set_prior_bias(layer, np.array([[1, 0], [0, 0], [0, 0], [0, 0]]))
    >>> layer.bias.sigmoid()
    tensor([0.2500, 0.1250], grad_fn=<SigmoidBackward0>)
    """
    labels, unknown = known_labels(Y, missing)
    n_samples, n_labels = labels.shape
    bias = getattr(layer, "bias", None)
    if not isinstance(bias, Tensor) or bias.shape != (n_labels,):
        shape = tuple(bias.shape) if isinstance(bias, Tensor) else None
        raise ModelError(
            f"a prior bias needs a layer with one bias for each of {n_labels} labels; "
            f"{type(layer).__name__} has {'none' if shape is None else f'a bias of shape {shape}'}"
        )
    factors = _factors(weights, n_labels)
    known = np.full(n_labels, n_samples, dtype=np.float64)
    if unknown is not None:
        known -= label_counts(unknown)
    known = np.maximum(known, 1)
    counts = counts_with_notice(labels, "prior bias", "start as if they had half of one")
    positives = np.clip(counts, 0.5, known - 0.5)
    prior = np.log(factors * positives / (known - positives))
    with torch.no_grad():
        bias.copy_(torch.from_numpy(prior))


def _factors(weights: Any, n_labels: int) -> NDArray[np.float64]:
    """Return what the positives of each label weigh, (q,), or say what is wrong with the weights."""
    if weights is None:
        return np.ones(n_labels)
    given = weights
    if isinstance(weights, Loss):
        given = weights.positive_weights
        if weights.n_labels is None and len(given) == 1:  # the same for any number of labels
            given = np.broadcast_to(given, n_labels)
    elif isinstance(weights, Tensor):
        given = weights.detach().cpu()
    try:
        factors = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        factors = np.zeros(0)  # refused below
    if factors.shape != (n_labels,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ModelError(
            f"weights must be a loss made for these labels, or have one finite number above 0 for each "
            f"of {n_labels} labels, got {weights!r:.60}"
        )
    return factors
