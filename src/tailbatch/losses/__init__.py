"""Losses for rare labels, for every model here and for a training loop of your own.

``losses.weighted_bce(Y)`` makes a loss from the labels of the training rows; called with logits and
labels it gives the sum over labels, averaged over samples. `make_loss` takes a name instead.
"""

from typing import Any

from tailbatch.losses.base import Loss
from tailbatch.losses.kinds import (
    BCE,
    Asymmetric,
    ClassBalanced,
    DistributionBalanced,
    Equalized,
    Focal,
    TwoWay,
    WeightedBCE,
)
from tailbatch.losses.make import LOSSES, LossLike, make_loss, register_loss

__all__ = [
    "BCE",
    "LOSSES",
    "Asymmetric",
    "ClassBalanced",
    "DistributionBalanced",
    "Equalized",
    "Focal",
    "Loss",
    "LossLike",
    "TwoWay",
    "WeightedBCE",
    "asymmetric",
    "bce",
    "class_balanced",
    "distribution_balanced",
    "equalized",
    "focal",
    "make_loss",
    "register_loss",
    "two_way",
    "weighted_bce",
]


def bce(Y: Any, **options: object) -> Loss:
    """Make a `BCE` for the training rows' labels (n, q).

    Examples
    --------
    >>> bce([[1, 0]]).n_labels
    2
    """
    return BCE.for_labels(Y, **options)


def weighted_bce(Y: Any, **options: object) -> Loss:
    """Make a `WeightedBCE` from the training rows' labels (n, q).

    Examples
    --------
    >>> weighted_bce([[1], [0], [0], [0], [0]]).positive_weights
    array([2.])
    """
    return WeightedBCE.for_labels(Y, **options)


def focal(Y: Any, **options: object) -> Loss:
    """Make a `Focal` for the training rows' labels (n, q).

    Examples
    --------
    >>> focal([[1, 0]], gamma=1.0)
    Focal(gamma=1.0)
    """
    return Focal.for_labels(Y, **options)


def asymmetric(Y: Any, **options: object) -> Loss:
    """Make an `Asymmetric` for the training rows' labels (n, q).

    Examples
    --------
    >>> asymmetric([[1, 0]]).options["margin"]
    0.05
    """
    return Asymmetric.for_labels(Y, **options)


def class_balanced(Y: Any, **options: object) -> Loss:
    """Make a `ClassBalanced` from the training rows' labels (n, q).

    Examples
    --------
    >>> class_balanced([[1, 1], [0, 1]], beta=0.0).positive_weights
    array([1., 1.])
    """
    return ClassBalanced.for_labels(Y, **options)


def distribution_balanced(Y: Any, **options: object) -> Loss:
    """Make a `DistributionBalanced` from the training rows' labels (n, q).

    Examples
    --------
    >>> distribution_balanced([[1, 1], [0, 1], [0, 0]]).counts
    tensor([1., 2.])
    """
    return DistributionBalanced.for_labels(Y, **options)


def two_way(Y: Any, **options: object) -> Loss:
    """Make a `TwoWay` for the training rows' labels (n, q).

    Examples
    --------
    >>> two_way([[1, 0]]).options["temperature_positive"]
    4.0
    """
    return TwoWay.for_labels(Y, **options)


def equalized(Y: Any, **options: object) -> Loss:
    """Make an `Equalized` for the training rows' labels (n, q).

    Examples
    --------
    >>> equalized([[1, 0]]).negative_gradients
    tensor([0., 0.], dtype=torch.float64)
    """
    return Equalized.for_labels(Y, **options)
