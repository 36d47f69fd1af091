"""DELA: learned gates find each label's non-informative features and mask them with noise.

Hang, Zhang, *Dual Perspective of Label-Specific Feature Learning for Multi-Label Classification*,
ICML 2022.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tailbatch.errors import ModelError
from tailbatch.losses import BCE, Loss
from tailbatch.models.base import MultiLabelModel, Presets, Step, over_samples
from tailbatch.models.blocks import (
    GaussianHead,
    LabelwiseLinear,
    by_rows,
    check_dropout,
    check_sizes,
    kaiming_linear,
    mlp_block,
)


class DELA(MultiLabelModel):
    """Dual perspective of label-specific features.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    latent
        Width of the latent space; None means half the features, rounded up.
    dropout, decoder_dropout
        After each layer of the encoder and of the decoder.
    temperature
        Of the relaxed binary gates.
    kl_weight
        Weight of the latent code's divergence from a standard normal.
    off_noise
        Noise that a closed gate lets through. None lets nothing through, as in the reference code; then
        the divergence pushes every gate open.
    lr_ratio
        Learning rate of the gates relative to the rest.
    decay_gates
        Whether weight decay applies to the gates.

    Examples
    --------
    >>> DELA(5, 3).hyperparameters["latent"]
    3
    """

    name = "dela"
    takes_missing_labels = True
    loss: Loss
    presets: ClassVar[Presets] = {
        "reference": {"off_noise": None, "decoder_dropout": 0.2, "lr_ratio": 1.0}
    }

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        latent: int | None = None,
        dropout: float = 0.2,
        decoder_dropout: float = 0.0,
        temperature: float = 2 / 3,
        kl_weight: float = 1e-4,
        off_noise: float | None = 0.1,
        lr_ratio: float = 0.8,
        decay_gates: bool = False,
    ) -> None:
        latent = math.ceil(n_features / 2) if latent is None else latent
        check_sizes(latent=latent)
        check_dropout(dropout=dropout, decoder_dropout=decoder_dropout)
        if temperature <= 0:
            raise ModelError(f"temperature must be positive, got {temperature}")
        super().__init__(
            n_features,
            n_labels,
            latent=latent,
            dropout=dropout,
            decoder_dropout=decoder_dropout,
            temperature=temperature,
            kl_weight=kl_weight,
            off_noise=off_noise,
            lr_ratio=lr_ratio,
            decay_gates=decay_gates,
        )
        self.temperature, self.kl_weight, self.off_noise = temperature, kl_weight, off_noise
        self.lr_ratio, self.decay_gates = lr_ratio, decay_gates
        self.encoder = mlp_block([n_features, 256, 512, 256], dropout=dropout)
        self.head = GaussianHead(256, latent)
        self.gate_table = nn.Parameter(torch.empty(n_labels, latent).uniform_(-10, 10))
        self.gate_layer = nn.Linear(latent, latent)
        nn.init.constant_(self.gate_layer.bias, 2.0)
        self.decoder_input = kaiming_linear(n_features + latent, 256)
        self.decoder = nn.Sequential(
            nn.ReLU(inplace=True),
            nn.Dropout(decoder_dropout),
            mlp_block([256, 512], dropout=decoder_dropout),
        )
        self.classifier = LabelwiseLinear(n_labels, 512)
        self.loss = BCE(n_labels)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q) without noise: all labels share one decoded row."""
        mean, _ = self.head(self.encoder(x))
        return self.clean_logits(x, mean)

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the loss summed over labels plus the weighted divergence."""
        mean, logvar = self.head(self.encoder(x))
        gates = self.gates()
        if self.training:
            noise = (0.5 * logvar).exp() * torch.randn_like(mean)
            logits = self.noisy_logits(x, mean, noise, gates)
        else:
            logits = self.clean_logits(x, mean)
        loss = self.loss.rows(logits, y)
        kl = _gated_kl(mean, logvar, gates)
        samples = loss + self.kl_weight * kl
        terms = {
            self.loss.name: loss.detach().mean(),
            "kl": kl.detach().mean(),
            "open_gates": (gates.detach() > 0.5).float().mean(),
        }
        return Step(
            over_samples(samples, weights, self.loss), logits.detach(), samples.detach(), terms
        )

    def gates(self) -> Tensor:
        """Return the gates (q, D): 1 or `off_noise` in value, relaxed in gradient.

        In training they are drawn once for the whole batch; in eval mode each takes its more likely
        value.
        """
        logits = self.gate_layer(self.gate_table)
        if self.training:
            tiny = torch.finfo(logits.dtype).eps
            u = torch.rand_like(logits).clamp(tiny, 1 - tiny)
            logits = logits + u.log() - torch.log1p(-u)
        relaxed = torch.sigmoid(logits / self.temperature)
        value = (relaxed > 0.5).to(relaxed.dtype)
        if self.off_noise is not None:
            value = value.clamp(min=self.off_noise)
        return relaxed + (value - relaxed).detach()

    def clean_logits(self, x: Tensor, mean: Tensor) -> Tensor:
        """Return logits (b, q) where every label sees the code's mean: one decoded row each."""
        return self.classifier.shared(self.decoder(self.decoder_input(torch.cat([x, mean], 1))))

    def noisy_logits(self, x: Tensor, mean: Tensor, noise: Tensor, gates: Tensor) -> Tensor:
        """Return logits (b, q) where label k sees the code mean + gates_k * noise.

        The decoder's first layer is linear in [x, code], so the part that labels share is computed once
        per sample, and only gates * noise goes through it label by label.
        """
        weight_x, weight_z = torch.split(self.decoder_input.weight, [x.shape[1], mean.shape[1]], 1)
        shared = F.linear(x, weight_x, self.decoder_input.bias) + F.linear(mean, weight_z)

        def decode(shared: Tensor, noise: Tensor) -> Tensor:
            own = F.linear(noise[:, None] * gates, weight_z)  # (b, q, 256)
            logits: Tensor = self.classifier(self.decoder(shared[:, None] + own))
            return logits

        widest = len(gates) * max(gates.shape[1], 512)
        return by_rows(decode, shared, noise, values_per_row=widest)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Give the gates their own rate and, by default, no decay."""
        gates = [self.gate_table, *self.gate_layer.parameters()]
        decay = weight_decay if self.decay_gates else 0.0
        return [
            {"params": self._parameters_except(gates), "lr": lr, "weight_decay": weight_decay},
            {"params": gates, "lr": lr * self.lr_ratio, "weight_decay": decay},
        ]


def _gated_kl(mean: Tensor, logvar: Tensor, gates: Tensor) -> Tensor:
    """Return KL(N(mean, gates^2 e^logvar) || N(0, I)) per sample, averaged over labels.

    The sum separates into a part per sample, a part per label, and one matrix product: O((b + q) D).
    """
    own = (mean.square() - logvar - 1).sum(1) + logvar.exp() @ gates.square().mean(0)
    return 0.5 * own - torch.log(gates + 1e-6).sum(1).mean()
