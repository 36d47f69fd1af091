"""PACA: every label has a positive and a negative prototype distribution in a latent space.

Hang, Zhang, Feng, Song, *End-to-End Probabilistic Label-Specific Feature Learning for Multi-Label
Classification*, AAAI 2022.
"""

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from tailbatch.data import Features, MultiLabelDataset
from tailbatch.losses import BCE, Loss
from tailbatch.models.base import MultiLabelModel, Presets, Step, over_samples
from tailbatch.models.blocks import (
    GaussianHead,
    check_choice,
    check_dropout,
    check_sizes,
    gaussian_kl,
    mlp_block,
    reparameterized,
)
from tailbatch.models.flows import LabelFlow

_LARGEST_LATENT = 64


class PACA(MultiLabelModel):
    """Probabilistic label-specific features with normalizing-flow prototypes.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    latent
        Width of the latent space; None means half the features but at most 64, ``"half"`` means
        half the features whatever the cost.
    dropout, decoder_dropout
        In the two encoders; in the instance map and the two decoders.
    regularization_weight, classification_weight
        Weights gamma of the label autoencoder with its alignment, and alpha of the classifier's loss.
    binary_features
        Reconstruct features by cross-entropy rather than squared error; by default `for_dataset`
        decides from the training rows.
    legacy_ratio
        See `tailbatch.models.flows.LabelFlow`.

    Examples
    --------
    >>> PACA(300, 3).hyperparameters["latent"], PACA(300, 3, latent="half").hyperparameters["latent"]
    (64, 150)
    """

    name = "paca"
    loss: Loss
    presets: ClassVar[Presets] = {
        "reference": {
            "latent": "half",
            "legacy_ratio": True,
            "decoder_dropout": 0.2,
            "binary_features": False,
        }
    }

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        latent: int | str | None = None,
        dropout: float = 0.1,
        decoder_dropout: float = 0.0,
        regularization_weight: float = 10.0,
        classification_weight: float = 2.0,
        binary_features: bool = False,
        legacy_ratio: bool = False,
    ) -> None:
        latent = _latent_width(latent, n_features)
        check_dropout(dropout=dropout, decoder_dropout=decoder_dropout)
        super().__init__(
            n_features,
            n_labels,
            latent=latent,
            dropout=dropout,
            decoder_dropout=decoder_dropout,
            regularization_weight=regularization_weight,
            classification_weight=classification_weight,
            binary_features=binary_features,
            legacy_ratio=legacy_ratio,
        )
        self.regularization_weight = regularization_weight
        self.classification_weight = classification_weight
        self.binary_features = binary_features
        self.feature_encoder = mlp_block([n_features, 256, 512, 256], dropout=dropout)
        self.feature_head = GaussianHead(256, latent)
        self.label_encoder = mlp_block([n_labels, 512, 256], dropout=dropout)
        self.label_head = GaussianHead(256, latent)
        self.instance_map = mlp_block(
            [n_features + latent, 256, 256, latent], dropout=decoder_dropout, last_act=False
        )
        self.feature_decoder = mlp_block(
            [latent, 256, 512, 256, n_features], dropout=decoder_dropout, last_act=False
        )
        self.label_decoder = nn.Sequential(
            mlp_block([latent, 256, 512], dropout=decoder_dropout), nn.Linear(512, n_labels)
        )
        self.positive = LabelFlow(n_labels, latent, legacy_ratio=legacy_ratio)
        self.negative = LabelFlow(n_labels, latent, legacy_ratio=legacy_ratio)
        self.loss = BCE(n_labels)

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Build a model that reconstructs features as the training rows suggest."""
        if "binary_features" not in hyperparameters:
            hyperparameters["binary_features"] = _is_binary(train.X)
        return super().for_dataset(train, **hyperparameters)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q): log density of the positive minus the negative prototype."""
        mean, _ = self.feature_head(self.feature_encoder(x))
        return self._logits(self.instance_map(torch.cat([x, mean], 1)))

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return reconstruction, label regularization and classification, weighted."""
        feature_code = self.feature_head(self.feature_encoder(x))
        label_code = self.label_head(self.label_encoder(y))
        z = self.instance_map(torch.cat([x, self._sampled(*feature_code)], 1))
        logits = self._logits(z)
        labels = self.label_decoder(self._sampled(*label_code))
        reconstruction = self._reconstruction(self.feature_decoder(z), x)
        kl = gaussian_kl(*feature_code, *label_code, floor=1e-8)
        regularization = kl + bce(labels, y, reduction="none").sum(1)
        loss = self.loss.rows(logits, y)
        samples = (
            reconstruction
            + self.regularization_weight * regularization
            + self.classification_weight * loss
        )
        parts = {
            "reconstruction": reconstruction,
            "regularization": regularization,
            self.loss.name: loss,
        }
        terms = {name: part.detach().mean() for name, part in parts.items()}
        return Step(
            over_samples(samples, weights, self.loss), logits.detach(), samples.detach(), terms
        )

    def _logits(self, z: Tensor) -> Tensor:
        logits: Tensor = self.positive(z) - self.negative(z)
        return logits

    def _sampled(self, mean: Tensor, logvar: Tensor) -> Tensor:
        if not self.training:
            return mean
        return reparameterized(mean, logvar, torch.randn_like(mean))

    def _reconstruction(self, decoded: Tensor, x: Tensor) -> Tensor:
        if self.binary_features:
            return bce(decoded, x, reduction="none").sum(1)
        return (decoded.sigmoid() - x).square().sum(1)


def _latent_width(latent: int | str | None, n_features: int) -> int:
    half = math.ceil(n_features / 2)
    if latent is None:
        return min(half, _LARGEST_LATENT)
    if isinstance(latent, str):
        check_choice("latent", latent, ("half",))
        return half
    check_sizes(latent=latent)
    return latent


def _is_binary(X: Features) -> bool:
    values = X.data if issparse(X) else X
    return bool(np.isin(values, (0.0, 1.0)).all())
