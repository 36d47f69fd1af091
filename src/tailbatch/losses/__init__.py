"""Losses for rare labels, for every model here and for a training loop of your own.

``losses.weighted_bce(Y)`` makes a loss from the labels of the training rows; called with logits and
labels it gives the sum over labels, averaged over samples. `make_loss` takes a name instead.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from tailbatch.errors import ModelError
from tailbatch.losses.base import Loss, known_labels
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
from tailbatch.registry import Registry

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
    "empty_loss",
    "equalized",
    "focal",
    "loss_table",
    "make_loss",
    "register_loss",
    "two_way",
    "weighted_bce",
]

LossLike: TypeAlias = str | Mapping[str, Any] | Loss | type[Loss] | Callable[[Any], Loss]
"""A name, a table with a name and options, a loss, its class, or a function of the training labels."""

LOSSES: Registry[type[Loss] | Callable[[Any], Loss]] = Registry(
    "loss", "tailbatch.losses", ModelError
)
"""Every loss by name; those of other packages come from entry points."""

_Kind = TypeVar("_Kind", bound=type[Loss])


def register_loss(kind: _Kind) -> _Kind:
    """Make a loss of your own known by its name, in Python, on the command line and in study files.

    A package does the same for all its users with an entry point of the group ``tailbatch.losses``.

    Examples
    --------
    >>> @register_loss
    ... class Doubled(BCE):
    ...     name = "doubled"
    ...     def cells(self, logits, y):
    ...         return 2 * super().cells(logits, y)
    >>> make_loss("doubled", [[1, 0]]).name
    'doubled'
    >>> LOSSES.remove("doubled")
    """
    if not (isinstance(kind, type) and issubclass(kind, Loss)):
        raise ModelError(f"a loss is a subclass of tailbatch.losses.Loss, got {kind!r:.80}")
    if kind.name == Loss.name:
        raise ModelError(f"{kind.__name__} has no name of its own: set its class attribute name")
    LOSSES.add(kind.name, kind)
    return kind


for _kind in (
    BCE,
    WeightedBCE,
    Focal,
    Asymmetric,
    ClassBalanced,
    DistributionBalanced,
    TwoWay,
    Equalized,
):
    register_loss(_kind)

# Each makes its loss from the labels (n, q) of the training rows: ``weighted_bce(Y, power=1.0)``.
bce = BCE.for_labels
"""Make binary cross-entropy from the training labels (n, q), see `BCE`."""
weighted_bce = WeightedBCE.for_labels
"""Make cross-entropy with heavier positives from the training labels (n, q), see `WeightedBCE`."""
focal = Focal.for_labels
"""Make the focal loss from the training labels (n, q), see `Focal`."""
asymmetric = Asymmetric.for_labels
"""Make the asymmetric loss from the training labels (n, q), see `Asymmetric`."""
class_balanced = ClassBalanced.for_labels
"""Make the class-balanced loss from the training labels (n, q), see `ClassBalanced`."""
distribution_balanced = DistributionBalanced.for_labels
"""Make the distribution-balanced loss from the training labels (n, q), see `DistributionBalanced`."""
two_way = TwoWay.for_labels
"""Make the two-way loss from the training labels (n, q), see `TwoWay`."""
equalized = Equalized.for_labels
"""Make the equalized loss from the training labels (n, q), see `Equalized`."""


def make_loss(loss: LossLike, Y: Any, *, missing: Any = None, **options: object) -> Loss:
    """Make a loss for the training rows' labels.

    Parameters
    ----------
    loss
        A name in `LOSSES`, a table such as ``{"name": "weighted_bce", "power": 1.0}``, a class, a
        function of the labels that returns a loss, or a loss, which is returned as it is.
    Y
        (n, q) labels of the training rows: an array, a sparse matrix or a tensor of zeros and ones.
    missing
        (n, q) which of them nobody knows; see `Loss.for_labels`.
    **options
        See the class; they win over those of a table.

    Examples
    --------
    >>> make_loss({"name": "weighted_bce", "power": 1.0}, [[1], [0], [0], [0]]).positive_weights
    array([3.])
    >>> make_loss("focal", [[1], [0]], gama=1)
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: focal has no option 'gama'; did you mean 'gamma'? Known: gamma
    """
    if isinstance(loss, str | Mapping):
        name, given = loss_table(loss)
        kind, settings = LOSSES[name], {**given, **options}
        if isinstance(kind, type) and issubclass(kind, Loss):
            kind.check_names(settings)  # in a table "missing" is none of them
        return make_loss(kind, Y, missing=missing, **settings)
    if isinstance(loss, type) and issubclass(loss, Loss):
        return _fitting(loss.for_labels(Y, missing=missing, **options), Y, missing)
    if options:
        raise ModelError(
            f"the options {', '.join(options)} are for a loss by name, not a ready one"
        )
    plain: Any = loss  # a type checker cannot tell a function from a loss, which is callable, too
    made = plain
    if callable(plain) and not isinstance(plain, Loss):
        made = plain(Y if missing is None else known_labels(Y, missing)[0])
    if not isinstance(made, Loss):
        raise ModelError(
            "a loss is a name, a table, a tailbatch.losses.Loss or a function of the labels that returns "
            f"one, got {made!r:.80}"
        )
    if missing is not None:
        made.masks_missing = True
    return _fitting(made, Y, missing)


def loss_table(loss: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options in a name or table.

    Examples
    --------
    >>> loss_table("bce"), loss_table({"name": "focal", "gamma": 1})
    (('bce', {}), ('focal', {'gamma': 1}))
    """
    if isinstance(loss, str):
        return loss, {}
    options = dict(loss) if isinstance(loss, Mapping) else {}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ModelError(f"a table of a loss needs a name, got {loss!r:.80}")
    return name, options


def empty_loss(loss: str | Mapping[str, Any], n_labels: int | None = None) -> Loss:
    """Make a loss of this name and these options that has seen no labels.

    With the number of labels, a saved state can be loaded into it. Without, it shows whether the options
    fit; a loss that is made by a function of the labels then counts as ``bce``.

    Examples
    --------
    >>> empty_loss({"name": "weighted_bce", "power": 1.0}, 3).positive_weights
    array([1., 1., 1.])
    >>> empty_loss("focal")
    Focal(gamma=2.0)
    """
    name, options = loss_table(loss)
    kind = LOSSES[name]
    if isinstance(kind, type) and issubclass(kind, Loss):
        kind.check_names(options)
        return kind(n_labels, **options)
    if n_labels is not None:
        raise ModelError(f"the loss {name} is made by a function of the labels, not by its class")
    if options:
        raise ModelError(f"the loss {name} is a function of the labels and has no options")
    return BCE(None)  # what the function makes is known with the labels only


def _fitting(loss: Loss, Y: Any, missing: Any) -> Loss:
    n_labels = Y.shape[1] if hasattr(Y, "shape") else known_labels(Y, missing)[0].shape[1]
    if loss.n_labels not in (None, n_labels):
        raise ModelError(f"{loss.name} was made for {loss.n_labels} labels, and Y has {n_labels}")
    return loss
