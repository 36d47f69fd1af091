"""The baseline everybody expects: a multi-layer perceptron with one output per label.

Reweighting the loss is what one would try instead of selecting batches, so the objective can be
plain, weighted by label frequency, or asymmetric.
"""

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tailbatch.data import MultiLabelDataset
from tailbatch.imbalance import positive_weights
from tailbatch.models.base import MultiLabelModel, Step
from tailbatch.models.blocks import (
    check_choice,
    check_dropout,
    check_sizes,
    label_bce,
    mlp_block,
)


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
    objective
        ``"bce"``; ``"weighted_bce"``, where a label's positives weigh
        `tailbatch.imbalance.positive_weights` of the training rows; or ``"asymmetric"``, see
        `asymmetric_loss`.

    Examples
    --------
    >>> model = MLP(4, 2, objective="asymmetric")
    >>> model.step(torch.rand(3, 4), torch.zeros(3, 2)).objective.shape
    torch.Size([])
    """

    name = "mlp"
    positive_weight: Tensor

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        hidden: Sequence[int] = (512,),
        dropout: float = 0.2,
        objective: str = "bce",
    ) -> None:
        check_sizes(**{f"hidden[{index}]": size for index, size in enumerate(hidden)})
        check_dropout(dropout=dropout)
        check_choice("objective", objective, ("bce", "weighted_bce", "asymmetric"))
        super().__init__(
            n_features, n_labels, hidden=tuple(hidden), dropout=dropout, objective=objective
        )
        self.objective = objective
        self.body = mlp_block([n_features, *hidden], dropout=dropout)
        self.classifier = torch.nn.Linear([n_features, *hidden][-1], n_labels)
        self.register_buffer("positive_weight", torch.ones(n_labels))

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: object) -> Self:
        """Build a model whose positive weights come from the training rows."""
        model = super().for_dataset(train, **hyperparameters)
        model.positive_weight.copy_(torch.from_numpy(positive_weights(train.Y)))
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q)."""
        logits: Tensor = self.classifier(self.body(x))
        return logits

    def step(self, x: Tensor, y: Tensor) -> Step:
        """Return the chosen loss, averaged over labels and samples."""
        logits = self(x)
        samples = self._loss(logits, y).mean(1)
        objective = samples.mean()
        terms = {self.objective: objective.detach()}
        return Step(objective, logits.detach(), samples.detach(), terms)

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.objective == "asymmetric":
            return asymmetric_loss(logits, y)
        weight = self.positive_weight if self.objective == "weighted_bce" else None
        return label_bce(logits, y, weight)


def asymmetric_loss(
    logits: Tensor,
    y: Tensor,
    *,
    gamma_negative: float = 4.0,
    gamma_positive: float = 0.0,
    margin: float = 0.05,
) -> Tensor:
    """Return the asymmetric loss per sample and label.

    With p the probability and p_m = max(p - margin, 0): positives cost (1 - p)^gamma_positive
    (-log p), negatives p_m^gamma_negative (-log(1 - p_m)), so easy negatives cost nothing.

    Parameters
    ----------
    logits, y
        (b, q); y zeros and ones as floats.
    gamma_negative, gamma_positive
        How strongly easy negatives and positives are played down; 0 or at least 1.
    margin
        Negatives below this probability are ignored.

    Examples
    --------
    >>> asymmetric_loss(torch.tensor([[-100.0, -100.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[100., 0.]])
    """
    # Logarithms come from logits, and 1 - p_m is at least the margin: nothing overflows.
    positive = -F.logsigmoid(logits) * torch.sigmoid(-logits) ** gamma_positive
    shifted = (torch.sigmoid(logits) - margin).clamp(min=0)
    negative = -torch.log1p(-shifted) * shifted**gamma_negative
    return y * positive + (1 - y) * negative
