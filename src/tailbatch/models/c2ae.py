"""C2AE: features and labels embedded in one space, a decoder trained to rank labels.

Yeh, Wu, Ko, Wang, *Learning Deep Latent Spaces for Multi-Label Classification*, AAAI 2017;
architecture and loss as in the authors' MATLAB code.
"""

import math
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from tailbatch.errors import ModelError
from tailbatch.losses.base import refuse_weights
from tailbatch.models.base import MultiLabelModel, Presets, Step
from tailbatch.models.blocks import check_choice, check_sizes

_LEAK = 0.1


class C2AE(MultiLabelModel):
    """Canonical-correlated autoencoder.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    hidden
        Width of every hidden layer.
    latent
        Width of the shared space; None means 0.8 q, at least 2.
    emb_weight, out_weight
        Weight of the embedding loss and of the decoder's ranking loss.
    ortho_lambda
        Weight of orthogonality inside the embedding loss. The products are summed over the batch,
        so the term depends on its size, and has a floor of latent - b when b < latent.
    reduction
        ``"mean"`` divides the sums over the batch by its size; ``"sum"`` is as published.
    init
        ``"torch"``, or ``"published"``, whose tiny first weights start slowly under Adam.
    steepness
        How fast the ranking loss rises where an irrelevant label scores higher, see `_rank_loss`.
    code
        ``"sigmoid"`` keeps codes within ±0.5, as published; ``"leaky"`` ends in a leaky ReLU, without
        bound.

    Examples
    --------
    >>> C2AE(4, 5).hyperparameters["latent"]
    4
    """

    name = "c2ae"
    without_loss = "it ranks pairs of labels by their codes, so it has no per-label loss to replace"
    compares_samples = "the orthogonality of its codes is a term of the whole batch"
    presets: ClassVar[Presets] = {
        "reference": {},
        "port": {
            "emb_weight": 0.5,
            "out_weight": 10.0,
            "ortho_lambda": 0.01,
            "steepness": 1.0,
            "code": "leaky",
        },
    }

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        hidden: int = 512,
        latent: int | None = None,
        emb_weight: float = 1.0,
        out_weight: float = 0.5,
        ortho_lambda: float = 0.5,
        reduction: str = "mean",
        init: str = "torch",
        steepness: float = 5.0,
        code: str = "sigmoid",
    ) -> None:
        latent = max(2, round(0.8 * n_labels)) if latent is None else latent
        check_sizes(hidden=hidden, latent=latent)
        check_choice("reduction", reduction, ("mean", "sum"))
        check_choice("init", init, ("torch", "published"))
        check_choice("code", code, ("sigmoid", "leaky"))
        if not 0 < steepness < math.inf:
            raise ModelError(f"steepness must be above 0, got {steepness}")
        super().__init__(
            n_features,
            n_labels,
            hidden=hidden,
            latent=latent,
            emb_weight=emb_weight,
            out_weight=out_weight,
            ortho_lambda=ortho_lambda,
            reduction=reduction,
            init=init,
            steepness=steepness,
            code=code,
        )
        self.emb_weight, self.out_weight, self.ortho_lambda = emb_weight, out_weight, ortho_lambda
        self.reduction, self.steepness, self.bounded = reduction, steepness, code == "sigmoid"
        self.feature_encoder = _leaky_chain([n_features, hidden, hidden, latent])
        self.label_encoder = _leaky_chain([n_labels, hidden, latent])
        self.decoder = _leaky_chain([latent, hidden, n_labels])
        if init == "published":
            for chain in (self.feature_encoder, self.label_encoder, self.decoder):
                _published_init(chain)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q): the feature code through the decoder."""
        logits: Tensor = self.decoder(self._code(self.feature_encoder, x))
        return logits

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the embedding loss plus the ranking loss of the decoded label code."""
        refuse_weights(self, weights)
        code_x = self._code(self.feature_encoder, x)
        code_y = self._code(self.label_encoder, y)
        distance = (code_x - code_y).square().sum(1)
        ortho = _orthogonality(code_x) + _orthogonality(code_y)
        # Only the label code is decoded here, so ranking never trains the feature encoder.
        rank = _rank_loss(self.decoder(code_y).sigmoid(), y, self.steepness)
        samples = self.emb_weight * distance + self.out_weight * rank
        objective = samples.sum() + self.emb_weight * self.ortho_lambda * ortho
        if self.reduction == "mean":
            objective = objective / len(x)
        with torch.no_grad():
            logits = self.decoder(code_x)
        terms = {
            "distance": distance.detach().mean(),
            "orthogonality": ortho.detach(),
            "rank": rank.detach().mean(),
        }
        return Step(objective, logits, samples.detach(), terms)

    def _code(self, encoder: nn.Module, values: Tensor) -> Tensor:
        code: Tensor = encoder(values)
        return code.sigmoid() - 0.5 if self.bounded else nn.functional.leaky_relu(code, _LEAK)


def _rank_loss(p: Tensor, y: Tensor, steepness: float = 5.0) -> Tensor:
    """Return the pairwise ranking loss per sample, in O(q).

    The sum over pairs of exp(-s (p_j - p_k)), j relevant and k not, is the product of two sums;
    it is divided by s |P||N|. Rows without a pair cost 0.
    """
    relevant = (y * torch.exp(-steepness * p)).sum(1)
    irrelevant = ((1 - y) * torch.exp(steepness * p)).sum(1)
    pairs = y.sum(1) * (1 - y).sum(1)
    # Clamped before dividing: a masked 0/0 would survive as NaN in the gradient.
    return relevant * irrelevant / (steepness * pairs.clamp(min=1))


def _orthogonality(code: Tensor) -> Tensor:
    """Return the squared Frobenius norm of code' code - I, through the smaller Gram matrix."""
    n_rows, width = code.shape
    gram = code @ code.T if n_rows < width else code.T @ code
    return gram.square().sum() - 2 * code.square().sum() + width


def _leaky_chain(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [nn.Linear(width_in, width_out), nn.LeakyReLU(_LEAK)]
    return nn.Sequential(*layers[:-1])


def _published_init(chain: nn.Sequential) -> None:
    """Draw weights as the MATLAB code does; the last layer of a chain feeds a sigmoid."""
    linears = [layer for layer in chain if isinstance(layer, nn.Linear)]
    for layer in linears[:-1]:
        nn.init.uniform_(layer.weight, -0.01, 0.01)
        nn.init.uniform_(layer.bias, 0.0, 0.1)
    bound = 4 * math.sqrt(6 / (linears[-1].in_features + linears[-1].out_features))
    nn.init.uniform_(linears[-1].weight, -bound, bound)
    nn.init.zeros_(linears[-1].bias)
