"""MPVAE: a label and a feature autoencoder share a decoder; a probit model couples the labels.

Bai, Kong, Gomes, *Disentangled Variational Autoencoder based Multi-Label Classification with
Covariance-Aware Multivariate Probit Model*, IJCAI 2020; as in the authors' TensorFlow code.
"""

import math
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from tailbatch.models.base import MultiLabelModel, Presets, Step, over_samples, seeded
from tailbatch.models.blocks import (
    GaussianHead,
    by_rows,
    check_dropout,
    check_sizes,
    gaussian_kl,
    reparameterized,
)

# Keeps probabilities away from 0 and 1 before the logarithm, as published.
_FLOOR = 5e-7
# Values that sampled prediction holds at a time, whatever the number of draws.
_DRAWN_VALUES = 2**22


def _published(
    nll_weight: float,
    rank_weight: float,
    *,
    dropout: float = 0.5,
    samples: int = 100,
    weight_penalty: float = 1e-5,
) -> dict[str, object]:
    return {
        "nll_weight": nll_weight,
        "rank_weight": rank_weight,
        "dropout": dropout,
        "samples": samples,
        "weight_penalty": weight_penalty,
    }


class MPVAE(MultiLabelModel):
    """Multivariate-probit variational autoencoder.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    latent
        Width of the latent space.
    dropout
        After each encoder layer (one minus the authors' ``keep_prob``).
    nll_weight, rank_weight, kl_weight
        Weights of the joint likelihood, the ranking loss and the alignment of the two encoders.
    samples
        Monte Carlo draws per training step; None means 100 up to 200 labels and 20 above.
    residual_rank
        Columns of the covariance's root R; None means q.
    stable
        Take log probabilities from ``log_ndtr``, whose gradient survives for very wrong labels.
    sample_latent, prediction_samples
        Predict as published, from a sampled latent code and this many draws (from a fixed seed),
        instead of the exact marginal at the mean code.
    weight_penalty
        Squared-norm penalty in the objective, as published; it then replaces weight decay.

    Examples
    --------
    >>> MPVAE(4, 3).hyperparameters["samples"]
    100
    """

    name = "mpvae"
    without_loss = (
        "it maximizes the joint likelihood of a probit model, so it has no per-label loss to "
        "replace"
    )
    presets: ClassVar[Presets] = {
        "reference": {},
        "without-dropout": {"dropout": 0.0},
        "published": _published(0.1, 200),
        "scene": _published(0.1, 40),
        "yeast": _published(0.1, 20),
        "bibtex": _published(10, 0.1),
        "delicious": _published(10, 0.1, samples=5),
        "mirflickr": _published(0.1, 200),
        "nus-wide": _published(0.1, 20),
        "sider": _published(0.1, 20, dropout=0.1),
        "ebird": _published(0.1, 200, dropout=0.0),
        "fish": _published(10, 0.1, dropout=0.3, weight_penalty=1e-7),
    }

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        latent: int = 50,
        dropout: float = 0.5,
        nll_weight: float = 10.0,
        rank_weight: float = 0.1,
        kl_weight: float = 1.1,
        samples: int | None = None,
        residual_rank: int | None = None,
        stable: bool = False,
        sample_latent: bool = False,
        prediction_samples: int = 10_000,
        weight_penalty: float = 0.0,
    ) -> None:
        samples = (100 if n_labels <= 200 else 20) if samples is None else samples
        residual_rank = n_labels if residual_rank is None else residual_rank
        check_sizes(
            latent=latent,
            samples=samples,
            residual_rank=residual_rank,
            prediction_samples=prediction_samples,
        )
        check_dropout(dropout=dropout)
        super().__init__(
            n_features,
            n_labels,
            latent=latent,
            dropout=dropout,
            nll_weight=nll_weight,
            rank_weight=rank_weight,
            kl_weight=kl_weight,
            samples=samples,
            residual_rank=residual_rank,
            stable=stable,
            sample_latent=sample_latent,
            prediction_samples=prediction_samples,
            weight_penalty=weight_penalty,
        )
        self.nll_weight, self.rank_weight, self.kl_weight = nll_weight, rank_weight, kl_weight
        self.samples, self.prediction_samples = samples, prediction_samples
        self.stable, self.sample_latent = stable, sample_latent
        self.weight_penalty = weight_penalty
        self.label_encoder = _chain([n_features + n_labels, 512, 256], dropout)
        self.label_head = GaussianHead(256, latent)
        self.feature_encoder = _chain([n_features, 256, 512, 256], dropout)
        self.feature_head = GaussianHead(256, latent)
        self.decoder = _chain([n_features + latent, 256, 512], 0.0)
        self.label_output = nn.Linear(512, n_labels)
        self.feature_output = nn.Linear(512, n_labels)
        self.residual = nn.Parameter(torch.empty(n_labels, residual_rank))
        nn.init.xavier_uniform_(self.residual)
        self.apply(_xavier)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q) of the feature branch's marginal probabilities."""
        latent = self._sampled(*self.feature_head(self.feature_encoder(x)))
        mean: Tensor = self.feature_output(self.decoder(torch.cat([x, latent], 1)))
        return self._monte_carlo(mean) if self.sample_latent else self._marginal(mean)

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the likelihood and ranking loss of both branches plus their alignment."""
        label_code = self.label_head(self.label_encoder(torch.cat([x, y], 1)))
        feature_code = self.feature_head(self.feature_encoder(x))
        mean_y, mean_x = self._decode(x, label_code, feature_code)
        nll, rank = self._of_both_branches(mean_y, mean_x, y).unbind(1)
        kl = gaussian_kl(*label_code, *feature_code, floor=1e-6)
        samples = self.nll_weight * nll + self.rank_weight * rank + self.kl_weight * kl
        objective = over_samples(samples, weights)
        if self.weight_penalty:
            objective = objective + 0.5 * self.weight_penalty * self._squared_weights()
        with torch.no_grad():
            logits = self._marginal(mean_x)
        parts = {"nll": nll, "rank": rank, "kl": kl}
        terms = {name: part.detach().mean() for name, part in parts.items()}
        return Step(objective, logits, samples.detach(), terms)

    def predict_proba(self, x: Tensor) -> Tensor:
        """Return label probabilities (n, q); sampled ones always from the same seed."""
        if not self.sample_latent:
            return super().predict_proba(x)
        with seeded(0, "mpvae prediction", device=x.device):
            return super().predict_proba(x)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Exclude the residual from decay, and everything if the objective has its own penalty."""
        decay = 0.0 if self.weight_penalty else weight_decay
        others = self._parameters_except([self.residual])
        return [
            {"params": others, "lr": lr, "weight_decay": decay},
            {"params": [self.residual], "lr": lr, "weight_decay": 0.0},
        ]

    def _sampled(self, mean: Tensor, logvar: Tensor, noise: Tensor | None = None) -> Tensor:
        if not (self.training or self.sample_latent):
            return mean
        return reparameterized(mean, logvar, torch.randn_like(mean) if noise is None else noise)

    def _decode(
        self, x: Tensor, label_code: tuple[Tensor, Tensor], feature_code: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the probit means (b, q) of the label and the feature branch."""
        # The branches share the noise, which lowers the variance of their alignment.
        noise = torch.randn_like(label_code[0])
        latent = torch.cat([self._sampled(*label_code, noise), self._sampled(*feature_code, noise)])
        hidden_y, hidden_x = self.decoder(torch.cat([x.repeat(2, 1), latent], 1)).chunk(2)
        return self.label_output(hidden_y), self.feature_output(hidden_x)

    def _of_both_branches(self, mean_y: Tensor, mean_x: Tensor, y: Tensor) -> Tensor:
        """Return likelihood and ranking loss (b, 2), summed over the two branches."""
        size = (len(y), self.samples, self.residual.shape[1])
        draws = torch.randn(size, dtype=y.dtype, device=y.device)

        def losses(draws: Tensor, mean_y: Tensor, mean_x: Tensor, y: Tensor) -> Tensor:
            shift = draws @ self.residual.T  # (b, S, q), shared by the branches
            return _probit_losses(mean_y, shift, y, stable=self.stable) + _probit_losses(
                mean_x, shift, y, stable=self.stable
            )

        widest = self.samples * y.shape[1]
        return by_rows(losses, draws, mean_y, mean_x, y, values_per_row=widest)

    def _marginal(self, mean: Tensor) -> Tensor:
        """Return logits of Phi(mu_j / sqrt(1 + ||R_j||^2)), the exact marginals."""
        scaled = mean / (1 + self.residual.square().sum(1)).sqrt()
        logits: Tensor = torch.special.log_ndtr(scaled) - torch.special.log_ndtr(-scaled)
        return logits

    def _monte_carlo(self, mean: Tensor) -> Tensor:
        """Return logits of the average of Phi over draws of the residual."""
        rank, total = self.residual.shape[1], torch.zeros_like(mean)
        at_once = max(1, _DRAWN_VALUES // max(1, len(mean) * rank))
        for start in range(0, self.prediction_samples, at_once):
            size = (min(at_once, self.prediction_samples - start), len(mean), rank)
            draws = torch.randn(size, dtype=mean.dtype, device=mean.device)
            total = total + _ndtr(draws @ self.residual.T + mean).sum(0)
        return torch.logit(total / self.prediction_samples, eps=_FLOOR)

    def _squared_weights(self) -> Tensor:
        weights = [p for p in self._parameters_except([self.residual]) if p.ndim == 2]
        return torch.stack([weight.square().sum() for weight in weights]).sum()


def _probit_losses(mean: Tensor, shift: Tensor, y: Tensor, *, stable: bool = False) -> Tensor:
    """Return negative log likelihood and ranking loss per sample, (b, 2), in O(b S q).

    Both come from P, the probability of each label's *true* value: with U = exp(-5 P), a relevant
    label contributes U and an irrelevant one e^5 U, and the sum over pairs is a product of sums.
    """
    sign = 2 * y - 1
    signed = torch.addcmul((sign * mean)[:, None], shift, sign[:, None])
    if stable:
        log_p = torch.special.log_ndtr(signed)
        p = log_p.exp()
    else:
        p = _ndtr(signed) * (1 - 2 * _FLOOR) + _FLOOR
        log_p = p.log()
    nll = math.log(shift.shape[1]) - log_p.sum(2).logsumexp(1)
    # One product gives the sums of U over relevant and over irrelevant labels, (b, S, 2).
    sums = torch.bmm(torch.exp(-5 * p), torch.stack([y, 1 - y], 2))
    pairs = (y.sum(1) * (1 - y).sum(1)).clamp(min=1)
    rank = math.exp(5) * sums.prod(2).mean(1) / (5 * pairs)
    return torch.stack([nll, rank], 1)


def _ndtr(values: Tensor) -> Tensor:
    # One erfc is exact in both tails and cheaper than torch.special.ndtr's three branches.
    return 0.5 * torch.erfc(values * -math.sqrt(0.5))


def _chain(sizes: list[int], dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [nn.Linear(width_in, width_out), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def _xavier(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
