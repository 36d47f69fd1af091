"""The default: linear models and small networks, trained side by side and averaged."""

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
_KEPT_LEVELS = 256  # a unit is kept by one random byte


class Ensemble(MultiLabelModel):
    """A linear model and small networks with one hidden layer each, whose logits are averaged.

    All members see the same batches, each has its own loss, and none shares weights, so it costs one
    wide network. Averaging steadies the scores of rare labels, of which each network alone has seen few.

    With several parts it is cross-fitted: each part of the rows has a linear model and networks of its
    own that never learn from that part, so `held_out` scores every training row by members that have not
    seen it. Prediction averages all of them.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    members
        How many networks; with several parts, for each of them: `for_dataset` then takes 1 for words.
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
    parts
        How many parts the training rows are dealt to, each held out from its own members; None holds
        out none.

    Examples
    --------
    >>> model = Ensemble(4, 2, members=3, hidden=8)
    >>> model.step(torch.rand(5, 4), torch.zeros(5, 2)).logits.shape
    torch.Size([5, 2])
    >>> model = Ensemble(4, 2, members=1, hidden=8, parts=5)
    >>> x, part = torch.rand(5, 4), torch.arange(5)
    >>> objective = model.step(x, torch.zeros(5, 2), part=part).objective
    >>> model.held_out(x, part).shape
    torch.Size([5, 2])
    """

    name = "ensemble"
    cross_fits = True
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
        parts: int | None = None,
    ) -> None:
        check_sizes(members=members, hidden=hidden, parts=1 if parts is None else parts)
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
            parts=parts,
        )
        self.members, self.hidden, self.parts = members, hidden, parts or 1
        self.dropout, self.input_dropout, self.prior_bias = dropout, input_dropout, prior_bias
        networks = self.parts * members
        self.body = SparseLinear(n_features, networks * hidden)
        bound = 1 / math.sqrt(hidden)
        self.output = nn.Parameter(torch.empty(networks, hidden, n_labels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(networks, n_labels))
        self.skip = None
        if linear:
            self.skip = SparseLinear(n_features, self.parts * n_labels)
            nn.init.zeros_(self.skip.weight)  # its loss is convex: nothing has to be told apart
            nn.init.zeros_(self.skip.bias)
        self.loss = BCE(n_labels)

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Build a model whose output biases start at the labels' frequencies, unless told not to."""
        if suggested_scaling(train.X) == "standard":
            hyperparameters.setdefault("input_dropout", _MEASUREMENT_DROPOUT)
        elif hyperparameters.get("parts") is not None:
            # Each part's linear model is strong on words, and more networks were level there.
            hyperparameters.setdefault("members", 1)
        model = super().for_dataset(train, **hyperparameters)
        if model.prior_bias:
            output = nn.Linear(1, train.n_labels)
            set_prior_bias(output, train.Y, model.loss, missing=train.missing)
            with torch.no_grad():
                model.bias.copy_(output.bias.expand_as(model.bias))
                if model.skip is not None:
                    model.skip.bias.copy_(output.bias.repeat(model.parts))
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return the members' mean logit, (b, q)."""
        return self._logits(x).mean((0, 1))

    def held_out(self, x: Tensor, part: Tensor) -> Tensor:
        """Return the mean logit of the members that each row's part is held out from, (b, q)."""
        return self._logits(x).mean(1)[part, torch.arange(len(x), device=part.device)]

    def step(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, part: Tensor | None = None
    ) -> Step:
        """Return the mean loss of the members that train on each row: sum over labels, mean over rows.

        `part` (b,) numbers the part of each row, which that part's members do not train on; a row of
        part -1, and every row without parts, trains all.
        """
        logits = self._logits(x)
        samples = self._sample_losses(logits, y, part)
        objective = over_samples(samples, weights, self.loss)
        terms = {self.loss.name: objective.detach()}
        return Step(objective, logits.detach().mean((0, 1)), samples.detach(), terms)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Return weights with decay and biases without: a prior is not to be unlearned."""
        biases = [self.bias, self.body.bias, *([self.skip.bias] if self.skip else [])]
        weights = self._parameters_except(biases)
        return [
            {"params": weights, "lr": lr, "weight_decay": weight_decay},
            {"params": biases, "lr": lr, "weight_decay": 0.0},
        ]

    def _logits(self, x: Tensor) -> Tensor:
        """Return every member's logits, (parts, members, b, q), each part's linear one last."""
        x = _dropped_features(x, self.input_dropout if self.training else 0.0)
        hidden = _dropped(F.relu(self.body(x)), self.dropout if self.training else 0.0)
        by_network = hidden.view(-1, self.parts * self.members, self.hidden).transpose(0, 1)
        logits = torch.baddbmm(self.bias[:, None], by_network, self.output)
        shape = self.parts, self.members, len(x), logits.shape[-1]
        logits = logits.view(shape)
        if self.skip is None:
            return logits
        linear = self.skip(x).view(len(x), self.parts, 1, shape[-1]).permute(1, 2, 0, 3)
        return torch.cat([logits, linear], 1)

    def _sample_losses(self, logits: Tensor, y: Tensor, part: Tensor | None) -> Tensor:
        """Return the mean loss of each row over the members that train on it, (b,)."""
        n_parts, members, n_rows, n_labels = logits.shape
        if part is None:
            trained = torch.ones(n_parts, n_rows, dtype=torch.bool, device=y.device)
        else:
            trained = part != torch.arange(n_parts, device=y.device)[:, None]
        if self.loss.compares_samples:  # with the rows that the member trains on, and no others
            losses = y.new_zeros(n_parts, n_rows)
            for number, kept in enumerate(trained):
                each = [self.loss.rows(member[kept], y[kept]) for member in logits[number]]
                losses[number, kept] = torch.stack(each).mean(0)
        else:
            flat = logits.reshape(-1, n_labels)
            every = self.loss.rows(flat, y.repeat(n_parts * members, 1))
            losses = every.view(n_parts, members, n_rows).mean(1) * trained
        return losses.sum(0) / trained.sum(0)


def _dropped_features(x: Tensor, share: float) -> Tensor:
    """Return features with a share of them set to 0 and the others scaled up, sparse or not."""
    if not share or x.layout != torch.sparse_csr:
        return _dropped(x, share)
    return torch.sparse_csr_tensor(
        x.crow_indices(),
        x.col_indices(),
        _dropped(x.values(), share),
        x.shape,
        check_invariants=False,
    )


def _dropped(x: Tensor, share: float) -> Tensor:
    """Return x with about a share of its values set to 0, in steps of 1/256, and the others scaled up.

    One draw decides on eight values, by a byte for each: on a CPU drawing them one by one, as torch does,
    takes ten times as long, and as long as the products of a small network.
    """
    kept = _KEPT_LEVELS - round(share * _KEPT_LEVELS)
    if kept == _KEPT_LEVELS:
        return x
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device)
    draws.random_(-(2**63), None)
    mask = draws.view(torch.uint8)[: x.numel()].view(x.shape) < max(kept, 1)
    return x * (mask * (_KEPT_LEVELS / max(kept, 1)))
