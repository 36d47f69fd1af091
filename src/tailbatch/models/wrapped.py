"""Any module from features to logits as a model, and several models as one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tailbatch.errors import ModelError
from tailbatch.losses import BCE, Loss, LossLike, make_loss
from tailbatch.losses.base import known_labels
from tailbatch.models.base import MultiLabelModel
from tailbatch.models.blocks import check_choice
from tailbatch.models.prior import set_prior_bias


class _WrappedModel(MultiLabelModel):
    """Any module from features to logits, trained with a loss; see `wrap`."""

    name = "wrapped"
    takes_missing_labels = True
    loss: Loss

    def __init__(self, module: nn.Module, loss: Loss, reduction: str = "sum") -> None:
        check_choice("reduction", reduction, ("sum", "mean"))
        super().__init__(None, None)
        self.module = module
        self.takes_sparse = bool(getattr(module, "takes_sparse", False))
        self.loss = loss
        self.reduction = reduction

    def forward(self, x: Tensor) -> Tensor:
        """Return the module's logits."""
        logits: Tensor = self.module(x)
        return logits


class CrossFitted(MultiLabelModel):
    """Models that were each trained without one part of the rows, as one whose logits are their mean.

    Parameters
    ----------
    fits
        The models, the one trained without part 0 first.

    Examples
    --------
    >>> model = CrossFitted([wrap(nn.Linear(2, 3)) for _ in range(4)])
    >>> model.held_out(torch.rand(2, 2), torch.tensor([3, 0])).shape
    torch.Size([2, 3])
    """

    name = "cross-fitted"
    without_loss = "its models are trained already"

    def __init__(self, fits: Sequence[MultiLabelModel]) -> None:
        first = fits[0]
        super().__init__(first.n_features, first.n_labels, **first.hyperparameters)
        self.fits = nn.ModuleList(fits)
        self.loss, self.takes_sparse = first.loss, first.takes_sparse

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the models' calibrated logits."""
        return self._logits(x).mean(0)

    def held_out(self, x: Tensor, part: Tensor) -> Tensor:
        """Return the calibrated logits of the model that has not seen each row's part."""
        return self._logits(x)[part, torch.arange(len(x), device=part.device)]

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logits: each model has taken its own loss's weights off already."""
        return logits

    def _logits(self, x: Tensor) -> Tensor:
        models: list[Any] = list(self.fits)
        return torch.stack([model.calibrated(model(x)) for model in models])


def wrap(
    module: nn.Module,
    *,
    loss: LossLike | None = None,
    Y: Any = None,
    missing: Any = None,
    reduction: str = "sum",
    prior_bias: bool | None = None,
    output_layer: str | nn.Module | None = None,
) -> MultiLabelModel:
    """Return a module from features (b, d) to logits (b, q) as a `MultiLabelModel`.

    A module that already is one is returned itself, with `loss` in place of its own.

    Parameters
    ----------
    module
        Any module; it is trained in place, not copied.
    loss
        As for `tailbatch.losses.make_loss`; None is binary cross-entropy. Anything other than a finished
        loss object needs `Y`.
    Y
        (n, q) labels of the training rows, for the loss and the prior bias.
    missing
        (n, q) which of them are unknown. The model then also takes batches of labels with NaN, which
        have no loss.
    reduction
        ``"sum"`` over the labels; or their ``"mean"``, which makes L2 q times as strong relative to each
        label's loss.
    prior_bias
        Whether the output layer's biases start at the labels' frequencies in `Y` (`set_prior_bias`);
        None does so if there is `Y` and such a layer.
    output_layer
        The layer that returns the logits, or its name in the module; None finds the last linear one with
        a bias for each label.

    Examples
    --------
    >>> import torch
    >>> from tailbatch import losses
    >>> Y = torch.eye(5, 3)
    >>> model = wrap(nn.Linear(2, 3), loss=losses.weighted_bce(Y), Y=Y)
    >>> model.predict_proba(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """
    made = _made_loss(loss, Y, missing)
    if isinstance(module, MultiLabelModel):
        if made is not None:
            module.use_loss(made)
        if missing is not None:
            module.mask_missing_labels()
        return module
    model = _WrappedModel(module, made or BCE(None), reduction)
    if missing is not None:
        model.mask_missing_labels()
    if prior_bias and Y is None:
        raise ModelError("prior_bias needs the labels of the training rows: give Y")
    if Y is not None and prior_bias is not False:
        n_labels = known_labels(Y, missing)[0].shape[1]
        layer = _found_layer(module, output_layer, n_labels)
        if layer is not None:
            set_prior_bias(layer, Y, model.loss, missing=missing)
        elif prior_bias:
            raise ModelError(
                f"prior_bias: {type(module).__name__} has no linear layer with a bias for each of "
                f"{n_labels} labels; name the layer that gives the logits with output_layer=, or leave "
                "prior_bias out"
            )
    return model


def _made_loss(loss: LossLike | None, Y: Any, missing: Any) -> Loss | None:
    if loss is None:
        return None if Y is None else make_loss(BCE, Y, missing=missing)
    if Y is not None:
        return make_loss(loss, Y, missing=missing)
    if not isinstance(loss, Loss):
        raise ModelError(
            f"the loss {loss!r:.60} is made from the labels of the training rows: give Y, or a ready "
            "loss such as losses.weighted_bce(Y)"
        )
    return loss


def _found_layer(module: nn.Module, given: str | nn.Module | None, n_labels: int) -> Any:
    if given is None:
        linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
        fitting = [x for x in linear if x.bias is not None and x.out_features == n_labels]
        return fitting[-1] if fitting else None
    if isinstance(given, nn.Module):
        return given
    try:
        return module.get_submodule(given)
    except AttributeError:
        names = ", ".join(name for name, _ in module.named_modules() if name)
        raise ModelError(
            f"{type(module).__name__} has no layer {given!r}; it has: {names or 'none'}"
        ) from None
