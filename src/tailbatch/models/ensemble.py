"""The default: a linear model and a few small networks, trained side by side and averaged."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tailbatch.data import MultiLabelDataset, suggested_scaling
from tailbatch.losses import BCE, Loss
from tailbatch.models.base import MultiLabelModel, Step, over_samples
from tailbatch.models.blocks import check_dropout, check_sizes
from tailbatch.models.prior import set_prior_bias
from tailbatch.models.sparse_linear import SparseLinear

_MEASUREMENT_DROPOUT = 0.5  # of input features; chosen in benchmarks/default_search.py


class Ensemble(MultiLabelModel):
    """A linear model and small networks with one hidden layer each, whose probabilities are averaged.

    All members see the same batches, each has its own loss, and none shares weights, so it costs one
    wide network. Averaging steadies the scores of rare labels, of which each network alone has seen few.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    members
        How many networks.
    hidden
        Width of each network's hidden layer.
    dropout
        Share of hidden units that a training step leaves out.
    input_dropout
        Share of features that a training step leaves out. `for_dataset` takes 0.5 for measurements, which
        tell much the same as each other, and 0.2 for features that are mostly zeros, such as words.
    linear
        Whether a linear model is a member.
    prior_bias
        Whether the output biases start at the labels' frequencies in the training rows.

    Examples
    --------
    >>> model = Ensemble(4, 2, members=3, hidden=8)
    >>> model.step(torch.rand(5, 4), torch.zeros(5, 2)).logits.shape
    torch.Size([5, 2])
    """

    name = "ensemble"
    takes_missing_labels = True
    takes_sparse = True
    #: Axis 1 of the output weights (members, hidden, q) is their input, for `AdamMini`.
    moment_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {"output": (1,)}
    loss: Loss

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        members: int = 4,
        hidden: int = 128,
        dropout: float = 0.5,
        input_dropout: float = 0.2,
        linear: bool = True,
        prior_bias: bool = True,
    ) -> None:
        check_sizes(members=members, hidden=hidden)
        check_dropout(dropout=dropout, input_dropout=input_dropout)
        super().__init__(
            n_features,
            n_labels,
            members=members,
            hidden=hidden,
            dropout=dropout,
            input_dropout=input_dropout,
            linear=linear,
            prior_bias=prior_bias,
        )
        self.members, self.hidden = members, hidden
        self.dropout, self.input_dropout, self.prior_bias = dropout, input_dropout, prior_bias
        self.body = SparseLinear(n_features, members * hidden)
        bound = 1 / math.sqrt(hidden)
        self.output = nn.Parameter(torch.empty(members, hidden, n_labels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, n_labels))
        self.skip = None
        if linear:
            self.skip = SparseLinear(n_features, n_labels)
            nn.init.zeros_(self.skip.weight)  # its loss is convex: nothing has to be told apart
            nn.init.zeros_(self.skip.bias)
        self.loss = BCE(n_labels)

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Build a model whose output biases start at the labels' frequencies, unless told not to."""
        if suggested_scaling(train.X) == "standard":
            hyperparameters.setdefault("input_dropout", _MEASUREMENT_DROPOUT)
        model = super().for_dataset(train, **hyperparameters)
        if model.prior_bias:
            output = model.skip or nn.Linear(1, train.n_labels)
            set_prior_bias(output, train.Y, model.loss, missing=train.missing)
            with torch.no_grad():
                model.bias.copy_(output.bias.expand_as(model.bias))
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return the logit of the members' mean probability, (b, q)."""
        return _mean_logit(self._logits(x))

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the members' mean loss: sum over labels, mean over samples."""
        logits = self._logits(x)
        samples = torch.stack([self.loss.rows(member, y) for member in logits]).mean(0)
        objective = over_samples(samples, weights, self.loss)
        terms = {self.loss.name: objective.detach()}
        return Step(objective, _mean_logit(logits.detach()), samples.detach(), terms)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Return weights with decay and biases without: a prior is not to be unlearned."""
        biases = [self.bias, self.body.bias, *([self.skip.bias] if self.skip else [])]
        weights = self._parameters_except(biases)
        return [
            {"params": weights, "lr": lr, "weight_decay": weight_decay},
            {"params": biases, "lr": lr, "weight_decay": 0.0},
        ]

    def _logits(self, x: Tensor) -> Tensor:
        """Return every member's logits, (members, b, q), the linear one's last."""
        x = _dropped(x, self.input_dropout if self.training else 0.0)
        hidden = F.dropout(F.relu(self.body(x)), self.dropout, self.training)
        by_member = hidden.view(-1, self.members, self.hidden).transpose(0, 1)
        logits = torch.baddbmm(self.bias[:, None], by_member, self.output)
        return logits if self.skip is None else torch.cat([logits, self.skip(x)[None]])


def _dropped(x: Tensor, share: float) -> Tensor:
    """Return features with a share of them set to 0 and the others scaled up, sparse or not."""
    if not share:
        return x
    if x.layout != torch.sparse_csr:
        return F.dropout(x, share)
    return torch.sparse_csr_tensor(
        x.crow_indices(),
        x.col_indices(),
        F.dropout(x.values(), share),
        x.shape,
        check_invariants=False,
    )


def _mean_logit(logits: Tensor) -> Tensor:
    """Return the logit of the mean over members of the sigmoid, in log space: (m, b, q) to (b, q)."""
    return F.logsigmoid(logits).logsumexp(0) - F.logsigmoid(-logits).logsumexp(0)
