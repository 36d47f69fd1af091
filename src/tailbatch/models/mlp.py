"""The standard baseline: a multi-layer perceptron with one output per label."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from tailbatch.data import MultiLabelDataset
from tailbatch.losses import BCE, Loss
from tailbatch.models.base import MultiLabelModel
from tailbatch.models.blocks import check_choice, check_dropout, check_sizes, mlp_block
from tailbatch.models.prior import set_prior_bias
from tailbatch.models.sparse_linear import SparseLinear


class MLP(MultiLabelModel):
    """Hidden layers with ReLU and dropout, then one logit per label.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    hidden
        Width of each hidden layer; empty gives a linear model.
    dropout
        After each hidden layer.
    reduction
        ``"sum"`` of the loss over the labels; or their ``"mean"``, which makes L2 q times as strong
        relative to each label's loss.
    prior_bias
        Whether the output biases start at the labels' frequencies in the training rows
        (`tailbatch.models.set_prior_bias`).

    Examples
    --------
    >>> model = MLP(4, 2, hidden=[16])
    >>> model.step(torch.rand(3, 4), torch.zeros(3, 2)).objective.shape
    torch.Size([])
    """

    name = "mlp"
    takes_missing_labels = True
    takes_sparse = True
    loss: Loss

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        hidden: Sequence[int] = (512,),
        dropout: float = 0.2,
        reduction: str = "sum",
        prior_bias: bool = True,
    ) -> None:
        check_sizes(**{f"hidden[{index}]": size for index, size in enumerate(hidden)})
        check_dropout(dropout=dropout)
        check_choice("reduction", reduction, ("sum", "mean"))
        super().__init__(
            n_features,
            n_labels,
            hidden=tuple(hidden),
            dropout=dropout,
            reduction=reduction,
            prior_bias=prior_bias,
        )
        self.reduction, self.prior_bias = reduction, prior_bias
        self.body = mlp_block([n_features, *hidden], dropout=dropout, sparse_input=True)
        linear = torch.nn.Linear if hidden else SparseLinear
        self.classifier = linear([n_features, *hidden][-1], n_labels)
        self.loss = BCE(n_labels)

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Build a model whose output biases start at the labels' frequencies, by default."""
        model = super().for_dataset(train, **hyperparameters)
        if model.prior_bias:
            set_prior_bias(model.classifier, train.Y, model.loss, missing=train.missing)
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q)."""
        logits: Tensor = self.classifier(self.body(x))
        return logits
