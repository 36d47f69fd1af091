"""Output biases that start at the labels' frequencies, so that no steps are spent learning them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tailbatch.errors import ModelError
from tailbatch.imbalance import label_counts
from tailbatch.losses.base import known_labels


def set_prior_bias(
    layer: nn.Module, Y: Any, weights: ArrayLike | None = None, *, missing: Any = None
) -> None:
    """Set the biases of an output layer to log(w_j pi_j / (1 - pi_j)).

    Without features, no other biases have a lower loss. A label without positives, or without
    negatives, is counted as having half of one, so that its bias is finite.

    Parameters
    ----------
    layer
        One with a ``bias`` of q numbers, such as ``nn.Linear``.
    Y
        (n, q) labels of the training rows; pi_j is the share of rows with label j.
    weights
        (q,) w_j, the weights of each label's positives in the loss (``loss.positive_weights``); None
        means all 1.
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
    factors = np.ones(n_labels) if weights is None else np.asarray(weights, dtype=np.float64)
    if factors.shape != (n_labels,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ModelError(
            f"weights must have one finite number above 0 for each of {n_labels} labels, "
            f"got {weights!r:.60}"
        )
    known = np.full(n_labels, n_samples, dtype=np.float64)
    if unknown is not None:
        known -= label_counts(unknown)
    known = np.maximum(known, 1)
    positives = np.clip(label_counts(labels), 0.5, known - 0.5)
    prior = np.log(factors * positives / (known - positives))
    with torch.no_grad():
        bias.copy_(torch.from_numpy(prior))


def output_layer(module: nn.Module, n_labels: int) -> nn.Linear | None:
    """Return the last linear layer of a module with a bias for each label, if there is one.

    Examples
    --------
    >>> output_layer(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), 3)
    Linear(in_features=8, out_features=3, bias=True)
    """
    layers = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.Linear)
        and layer.bias is not None
        and layer.out_features == n_labels
    ]
    return layers[-1] if layers else None
