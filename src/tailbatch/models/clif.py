"""CLIF: label embeddings from the co-occurrence graph gate a shared feature code.

Hang, Zhang, *Collaborative Learning of Label Semantics and Deep Label-Specific Features for
Multi-Label Classification*, IEEE TPAMI 2022; layers and graph as in the authors' code.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.imbalance import label_cooccurrence
from tailbatch.losses import BCE, Loss
from tailbatch.models.base import MultiLabelModel, Presets, Step, over_samples
from tailbatch.models.blocks import (
    LabelwiseLinear,
    by_rows,
    check_choice,
    check_dropout,
    check_sizes,
    mlp_block,
)

_LEAK = 0.1
# So that a forged model folder cannot request an unlimited number of layers.
_MOST_LAYERS = 64


class CLIF(MultiLabelModel):
    """Collaborative learning of label semantics and label-specific features.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    embedding
        Width of the label embeddings; None means q.
    hidden, in_layers
        Width of the features, and how many layers compute them.
    dropout
        In the feature and label networks; the authors use none.
    graph
        ``"cooccurrence"`` of the training rows, computed by `for_dataset`, or ``"identity"`` (as in the
        reference code, where labels do not see each other).
    gate
        ``"sigmoid"``, or ``"linear"`` (as in the reference code).
    graph_weight
        Weight of the term that fits embeddings to the graph.

    Examples
    --------
    >>> CLIF(4, 3).predict_proba(torch.rand(2, 4)).shape
    torch.Size([2, 3])
    """

    name = "clif"
    takes_missing_labels = True
    presets: ClassVar[Presets] = {
        "reference": {
            "embedding": None,
            "hidden": 768,
            "in_layers": 3,
            "dropout": 0.2,
            "graph": "identity",
            "gate": "linear",
            "graph_weight": 1e-3,
        }
    }
    loss: Loss
    graph: Tensor
    nodes: Tensor

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        embedding: int | None = 256,
        hidden: int = 512,
        in_layers: int = 1,
        dropout: float = 0.0,
        graph: str = "cooccurrence",
        gate: str = "sigmoid",
        graph_weight: float = 1e-3,
    ) -> None:
        embedding = n_labels if embedding is None else embedding
        check_sizes(embedding=embedding, hidden=hidden, in_layers=in_layers)
        if in_layers > _MOST_LAYERS:
            raise ModelError(f"in_layers must be at most {_MOST_LAYERS}, got {in_layers}")
        check_dropout(dropout=dropout)
        check_choice("graph", graph, ("cooccurrence", "identity"))
        check_choice("gate", gate, ("sigmoid", "linear"))
        super().__init__(
            n_features,
            n_labels,
            embedding=embedding,
            hidden=hidden,
            in_layers=in_layers,
            dropout=dropout,
            graph=graph,
            gate=gate,
            graph_weight=graph_weight,
        )
        self.graph_weight, self.sigmoid_gate = graph_weight, gate == "sigmoid"
        self.register_buffer("graph", torch.eye(n_labels))
        self.register_buffer("nodes", torch.randn(n_labels, n_labels))
        # A single node has no statistics for normalization.
        norm = n_labels > 1
        self.label_layers = nn.ModuleList(
            _IsomorphismLayer(width, embedding, dropout=dropout, norm=norm)
            for width in (n_labels, embedding)
        )
        sizes = [n_features, *[hidden] * in_layers]
        self.feature_encoder = mlp_block(sizes, slope=_LEAK, dropout=dropout)
        self.gate = nn.Linear(embedding, hidden)
        nn.init.kaiming_uniform_(self.gate.weight, nonlinearity="sigmoid")
        nn.init.zeros_(self.gate.bias)
        self.fusion = mlp_block([hidden, hidden], slope=_LEAK)
        self.classifier = LabelwiseLinear(n_labels, hidden)
        self.loss = BCE(n_labels)
        self._cached_gate: Tensor | None = None
        # torch leaves the method untyped.
        register = cast(Callable[[object], object], self.register_load_state_dict_post_hook)
        register(_drop_cache)

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Build a model whose label graph comes from the training rows."""
        model = super().for_dataset(train, **hyperparameters)
        if model.hyperparameters["graph"] == "cooccurrence":
            graph = label_cooccurrence(train.Y)
            dense = graph if isinstance(graph, np.ndarray) else graph.toarray()
            model.graph.copy_(torch.from_numpy(dense))
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q); in eval mode without gradients the label gate is cached."""
        if self.training or torch.is_grad_enabled():
            self.drop_cache()
            return self._classify(x, self.label_gate(self.embed_labels()))
        gate = self._cached_gate
        if gate is None or (gate.dtype, gate.device) != (self.nodes.dtype, self.nodes.device):
            self._cached_gate = gate = self.label_gate(self.embed_labels())
        return self._classify(x, gate)

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the loss, a mean over labels, plus the weighted misfit of embeddings and graph."""
        self.drop_cache()
        embedding = self.embed_labels()
        logits = self._classify(x, self.label_gate(embedding))
        samples = self.loss.rows(logits, y, "mean")
        loss = over_samples(samples, weights, self.loss)
        misfit = _graph_misfit(embedding, self.graph)
        objective = loss + self.graph_weight * misfit
        terms = {self.loss.name: loss.detach(), "graph": misfit.detach()}
        return Step(objective, logits.detach(), samples.detach(), terms)

    def embed_labels(self) -> Tensor:
        """Return label embeddings (q, c): two isomorphism layers over fixed random nodes."""
        embedding = self.nodes
        for layer in self.label_layers:
            embedding = layer(embedding, self.graph)
        return embedding

    def label_gate(self, embedding: Tensor) -> Tensor:
        """Return the weight of each feature for each label, (q, hidden)."""
        gate: Tensor = self.gate(embedding)
        return gate.sigmoid() if self.sigmoid_gate else gate

    def drop_cache(self) -> None:
        """Drop the cached label gate."""
        self._cached_gate = None

    def train(self, mode: bool = True) -> Self:
        """Set the mode; training drops the cached label gate."""
        if mode:
            self.drop_cache()
        return super().train(mode)

    def _classify(self, x: Tensor, gate: Tensor) -> Tensor:
        def classify(features: Tensor) -> Tensor:
            own = (features[:, None] * gate).flatten(0, 1)  # two axes: see `mlp_block`
            logits: Tensor = self.classifier(self.fusion(own).unflatten(0, (-1, len(gate))))
            return logits

        # Every label has its own features, (b, q, hidden).
        return by_rows(classify, self.feature_encoder(x), values_per_row=gate.numel())


def _drop_cache(model: nn.Module, _: object) -> None:
    # A module-level function, because a model with a lambda among its hooks cannot be pickled.
    if isinstance(model, CLIF):
        model.drop_cache()


class _IsomorphismLayer(nn.Module):
    """One layer of a graph isomorphism network: MLP((1 + eps) e + A e), plus e if widths agree."""

    def __init__(
        self, width_in: int, width_out: int, *, dropout: float = 0.0, norm: bool = True
    ) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        sizes = [width_in, math.ceil(width_out / 2), width_out]
        self.body = mlp_block(sizes, slope=_LEAK, dropout=dropout, norm=norm)
        self.residual = width_in == width_out

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        """Return new node features for node features and adjacency."""
        hidden: Tensor = self.body((1 + self.eps) * nodes + graph @ nodes)
        return hidden + nodes if self.residual else hidden


def _graph_misfit(embedding: Tensor, graph: Tensor) -> Tensor:
    """Return the mean squared difference of the graph with loops and the embeddings' cosines."""
    unit = embedding / (embedding.norm(dim=1, keepdim=True) + 1e-6)
    loops = torch.eye(len(graph), dtype=graph.dtype, device=graph.device)
    return F.mse_loss(unit @ unit.T, graph + loops)
