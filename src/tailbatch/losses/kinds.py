"""The losses: each holds its options and what it knows of the training rows; `cells` is its formula.

Logarithms are taken of logits and never of probabilities, so nothing overflows far out.
"""

import math

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.data import LabelMatrix
from tailbatch.errors import ModelError, check_number
from tailbatch.imbalance import positive_weights
from tailbatch.losses.base import Loss, counts_with_notice


class BCE(Loss):
    """Binary cross-entropy.

    Examples
    --------
    >>> BCE(2).cells(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    tensor([[0.6931, 0.6931]])
    """

    name = "bce"

    def __init__(self, n_labels: int | None) -> None:
        super().__init__(n_labels)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return softplus(-z) for positives, softplus(z) for negatives."""
        return binary_cross_entropy_with_logits(logits, y, reduction="none")


class WeightedBCE(Loss):
    """Binary cross-entropy in which the positives of rare labels weigh more.

    Parameters
    ----------
    power
        Positives weigh (negatives / positives)^power of the training rows. Full weights, 1, hurt the
        frequent labels and gain little.
    max_weight
        The largest weight; None sets no limit.
    weights
        (q,) numbers above 0 to use instead.

    Examples
    --------
    >>> WeightedBCE(2, weights=[1, 3]).cells(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[0.6931, 2.0794]])
    """

    name = "weighted_bce"

    def __init__(
        self,
        n_labels: int | None,
        *,
        power: float = 0.5,
        max_weight: float | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        _check_range(0, power=power)
        if max_weight is not None:
            _check_range(0, max_weight=max_weight)
            if not max_weight:
                raise ModelError("max_weight must be a number above 0, got 0")
        given = None if weights is None else _checked_weights(weights, n_labels)
        super().__init__(n_labels, power=power, max_weight=max_weight, weights=given)
        weight = torch.ones(n_labels or 1) if given is None else torch.tensor(given)
        self.register_buffer("positive_weight", weight)
        self.power, self.max_weight, self.is_given = power, max_weight, given is not None

    def learn(self, Y: LabelMatrix, missing: LabelMatrix | None = None) -> None:
        """Weight the labels by how rare they are, unless their weights are given."""
        if not self.is_given:
            counts_with_notice(Y, self.name)
            weights = positive_weights(
                Y, power=self.power, max_weight=self.max_weight, missing=missing
            )
            self.positive_weight.copy_(torch.from_numpy(weights))

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return binary cross-entropy, positives times their label's weight."""
        weight = self.positive_weight.to(logits)
        return binary_cross_entropy_with_logits(logits, y, pos_weight=weight, reduction="none")


class Focal(Loss):
    """Focal loss: a cell counts less the better it is predicted.

    Lin, Goyal, Girshick, He, Dollar, *Focal Loss for Dense Object Detection*, ICCV 2017.

    Parameters
    ----------
    gamma
        How strongly easy cells are played down, from 0 (binary cross-entropy).

    Examples
    --------
    >>> Focal(1).cells(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.1733]])
    """

    name = "focal"

    def __init__(self, n_labels: int | None, *, gamma: float = 2.0) -> None:
        _check_range(0, gamma=gamma)
        super().__init__(n_labels, gamma=gamma)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return (1 - p_t)^gamma bce, where p_t is the probability of the label's true value."""
        gamma: float = self.options["gamma"]
        return y * _focused(-logits, gamma) + (1 - y) * _focused(logits, gamma)


class Asymmetric(Loss):
    """Asymmetric loss: easy negatives are played down and then ignored (Ridnik et al., ICCV 2021).

    Parameters
    ----------
    gamma_negative, gamma_positive
        How strongly easy negatives and positives are played down; 0 or at least 1.
    margin
        Negatives below this probability cost nothing.

    Examples
    --------
    >>> Asymmetric(2).cells(torch.tensor([[-100.0, -100.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[100., 0.]])
    """

    name = "asymmetric"

    def __init__(
        self,
        n_labels: int | None,
        *,
        gamma_negative: float = 4.0,
        gamma_positive: float = 0.0,
        margin: float = 0.05,
    ) -> None:
        exponents = {"gamma_negative": gamma_negative, "gamma_positive": gamma_positive}
        _check_range(0, **exponents)
        for option, value in exponents.items():
            if 0 < value < 1:  # the gradient would be infinite at 0
                raise ModelError(f"{option} must be 0 or at least 1, got {value!r}")
        _check_range(0, 1, margin=margin)
        super().__init__(n_labels, margin=margin, **exponents)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the cost of positives and of negatives.

        With p the probability and p_m = max(p - margin, 0): positives cost
        (1 - p)^gamma_positive (-log p), negatives p_m^gamma_negative (-log(1 - p_m)).
        """
        margin, gamma = self.options["margin"], self.options["gamma_negative"]
        positive: Tensor = (
            -F.logsigmoid(logits) * torch.sigmoid(-logits) ** self.options["gamma_positive"]
        )
        if margin:
            # 1 - p_m is at least the margin, so its logarithm is finite.
            shifted = (torch.sigmoid(logits) - margin).clamp(min=0)
            negative: Tensor = -torch.log1p(-shifted) * shifted**gamma
        else:
            negative = _focused(logits, gamma)
        return y * positive + (1 - y) * negative


class ClassBalanced(Loss):
    """Positives weigh by the inverse of their label's effective number, scaled to a mean of 1.

    Cui, Jia, Lin, Song, Belongie, *Class-Balanced Loss Based on Effective Number of Samples*, CVPR 2019.

    Parameters
    ----------
    beta
        Weights are (1 - beta) / (1 - beta^n_j): from 0, where all weigh alike, towards 1, where they are
        inverse to the label's positives n_j.

    Examples
    --------
    >>> Y = np.eye(4, 2, dtype=bool) | np.array([[False, True]])
    >>> ClassBalanced.for_labels(Y, beta=0.9).positive_weights.round(3).tolist()
    [1.549, 0.451]
    """

    name = "class_balanced"

    def __init__(self, n_labels: int | None, *, beta: float = 0.999) -> None:
        _check_range(0, 1, beta=beta)
        super().__init__(n_labels, beta=beta)
        self.beta = beta
        self.register_buffer("positive_weight", torch.ones(n_labels or 1))

    def learn(self, Y: LabelMatrix, missing: LabelMatrix | None = None) -> None:
        """Weight the labels by their effective number of positives."""
        counts = np.maximum(counts_with_notice(Y, self.name), 1)
        with np.errstate(divide="ignore"):  # log 0 is what beta = 0 means
            weights = 1 / -np.expm1(counts * np.log(self.beta))
        self.positive_weight.copy_(torch.from_numpy(weights / weights.mean()))

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return binary cross-entropy, positives times their label's weight."""
        weight = self.positive_weight.to(logits)
        return binary_cross_entropy_with_logits(logits, y, pos_weight=weight, reduction="none")


class DistributionBalanced(Loss):
    """Distribution-balanced loss, made for batches drawn label by label (Wu et al., ECCV 2020).

    It undoes what co-occurrence does to such batches: label j of row i weighs
    r'_ij = alpha + sigmoid(beta (r_ij - mu)). There r_ij = (1 / n_j) / sum over the labels k of the row
    of 1 / n_k says how often j would bring the row into a batch, against how often all of its labels
    do; it is infinite for a row without labels. Negatives of rare labels are let off sooner.

    Parameters
    ----------
    alpha, beta, mu
        Least weight, steepness and middle of the weights.
    kappa
        How far rare labels' logits are lowered, kappa log(n / n_j - 1) / negative_scale.
    negative_scale
        The larger, the sooner a negative costs nothing.
    gamma
        Focuses each cell as in `Focal`; 0 does not. The authors also used 2.

    Examples
    --------
    >>> Y = np.array([[1, 1], [0, 1], [0, 1], [0, 0]], dtype=bool)
    >>> DistributionBalanced.for_labels(Y)(torch.zeros(4, 2), torch.from_numpy(Y)).isfinite()
    tensor(True)
    """

    name = "distribution_balanced"
    counts: Tensor
    shift: Tensor

    def __init__(
        self,
        n_labels: int | None,
        *,
        alpha: float = 0.1,
        beta: float = 10.0,
        mu: float = 0.2,
        kappa: float = 0.05,
        negative_scale: float = 2.0,
        gamma: float = 0.0,
    ) -> None:
        _check_range(0, alpha=alpha, beta=beta, mu=mu, kappa=kappa, gamma=gamma)
        _check_range(1e-3, negative_scale=negative_scale)
        focus = {"kappa": kappa, "negative_scale": negative_scale, "gamma": gamma}
        super().__init__(n_labels, alpha=alpha, beta=beta, mu=mu, **focus)
        self.alpha, self.beta, self.mu = alpha, beta, mu
        self.kappa, self.negative_scale, self.gamma = kappa, negative_scale, gamma
        self.register_buffer("counts", torch.ones(n_labels or 1))
        self.register_buffer("shift", torch.zeros(n_labels or 1))

    def learn(self, Y: LabelMatrix, missing: LabelMatrix | None = None) -> None:
        """Count each label's positives; one without, or without negatives, is counted as having one."""
        # Missing labels are included: the shift is small, and rows are drawn by all of their labels.
        n_samples = Y.shape[0]
        counts = np.clip(counts_with_notice(Y, self.name), 1, max(1, n_samples - 1))
        shift = self.kappa * np.log(np.maximum(n_samples / counts - 1, 1 / n_samples))
        self.counts.copy_(torch.from_numpy(counts))
        self.shift.copy_(torch.from_numpy(shift / self.negative_scale))

    def cell_weights(self, y: Tensor) -> Tensor:
        """Return r'_ij."""
        labels = y if y.is_floating_point() else y.float()
        chance = 1 / self.counts.to(labels)
        share = chance / (labels * chance).sum(1, keepdim=True)
        return self.alpha + torch.sigmoid(self.beta * (share - self.mu))

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return r' times softplus(-z') for positives, softplus(scale z') / scale for negatives.

        z' = z - shift lowers rare labels' logits, and the scale lets negatives off sooner.
        """
        moved, scale = logits - self.shift.to(logits), self.negative_scale
        positive = _focused(-moved, self.gamma)
        negative = _focused(scale * moved, self.gamma) / scale
        return self.cell_weights(y) * (y * positive + (1 - y) * negative)


class TwoWay(Loss):
    """Two-way loss: the hardest positive against the hardest negative of each label and each sample.

    Over the samples of each label, and over the labels of each sample,
    softplus(T_n LSE over negatives of z / T_n + T_p LSE over positives of -z / T_p). Each direction is
    averaged over labels, or samples, with a positive; where there is none it is 0. Kobayashi, CVPR 2023.

    A label is learned from batches that hold a positive of it, and scores rank labels and samples but
    are no probabilities. Cells only spread the loss, which is no sum over them: samples cannot be
    weighted, so it is for strategies without correction, such as ``coverage``.

    Parameters
    ----------
    temperature_positive, temperature_negative
        The higher, the more samples count as hardest.

    Examples
    --------
    >>> TwoWay(1)(torch.zeros(2, 1), torch.tensor([[1], [0]]))
    tensor(0.6931)
    """

    name = "two_way"
    compares_samples = "it sets the samples of a batch against each other"

    def __init__(
        self,
        n_labels: int | None,
        *,
        temperature_positive: float = 4.0,
        temperature_negative: float = 1.0,
    ) -> None:
        temperatures = {
            "temperature_positive": temperature_positive,
            "temperature_negative": temperature_negative,
        }
        _check_range(1e-3, **temperatures)
        super().__init__(n_labels, **temperatures)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss spread over cells: their sum over labels, averaged over samples, is it."""
        of_label, label_share = _hardest_pairs(logits, y, 0, **self.options)  # (q,)
        of_sample, sample_share = _hardest_pairs(logits, y, 1, **self.options)  # (b,)
        by_label = of_label * label_share
        by_sample = of_sample * sample_share * (len(y) / y.shape[1])
        # Comparing takes NaN for a negative; a missing label is to be seen, as in the other losses.
        return (by_label + by_sample[:, None]).masked_fill(y.isnan(), torch.nan)


class Equalized(Loss):
    """Equalization loss v2: labels whose negatives outweigh their positives get the balance back.

    With g a label's positive gradients over its negative ones so far and f = sigmoid(gamma (g - mu)),
    positives weigh 1 + alpha (1 - f) and negatives f. Before the first batch both weigh 1. Tan et al.,
    *Equalization Loss v2*, CVPR 2021.

    The gradients seen so far are its state; they are renewed by each training step and saved with the
    model. In a process group they are added up over the ranks.

    Parameters
    ----------
    gamma, mu, alpha
        Steepness and middle of f, and the largest gain of a positive.

    Examples
    --------
    >>> loss = Equalized(1)
    >>> y = torch.tensor([[1.0], [0.0], [0.0]])
    >>> _ = loss(torch.zeros(3, 1), y)
    >>> loss.cell_weights(y[:2]).T
    tensor([[4.8936, 0.0266]])
    """

    name = "equalized"
    positive_gradients: Tensor
    negative_gradients: Tensor

    def __init__(
        self, n_labels: int | None, *, gamma: float = 12.0, mu: float = 0.8, alpha: float = 4.0
    ) -> None:
        _check_range(0, gamma=gamma, mu=mu, alpha=alpha)
        super().__init__(n_labels, gamma=gamma, mu=mu, alpha=alpha)
        # In double precision, because a long training adds up millions of small numbers.
        for which in ("positive_gradients", "negative_gradients"):
            self.register_buffer(which, torch.zeros(n_labels or 1, dtype=torch.float64))

    def cell_weights(self, y: Tensor) -> Tensor:
        """Return what positives and negatives weigh at the moment."""
        labels = y if y.is_floating_point() else y.float()
        positive, negative = self.positive_gradients, self.negative_gradients
        ratio = positive / negative.clamp(min=torch.finfo(negative.dtype).tiny)
        f = torch.sigmoid(self.options["gamma"] * (ratio - self.options["mu"]))
        f = torch.where(positive + negative > 0, f, 1.0)
        gain: Tensor = 1 + self.options["alpha"] * (1 - f)
        return labels * gain.to(labels) + (1 - labels) * f.to(labels)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return weighted binary cross-entropy; while training, renew the state."""
        weights = self.cell_weights(y)
        if self.training:
            self._renew(weights, logits.detach(), y)
        return weights * binary_cross_entropy_with_logits(logits, y, reduction="none")

    def _renew(self, weights: Tensor, logits: Tensor, y: Tensor) -> None:
        gradients = (weights * (logits.sigmoid() - y).abs()).double()
        sums = torch.stack([(gradients * y).sum(0), (gradients * (1 - y)).sum(0)])
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(sums)
        # Not in place: the weights of a step that is still to go backward were made of them.
        self.positive_gradients = self.positive_gradients + sums[0].to(self.positive_gradients)
        self.negative_gradients = self.negative_gradients + sums[1].to(self.negative_gradients)


def _focused(logits: Tensor, gamma: float) -> Tensor:
    """Return sigmoid(z)^gamma softplus(z): what a cell costs whose truth is on the side of -z."""
    if not gamma:
        return F.softplus(logits)
    return torch.exp(gamma * F.logsigmoid(logits)) * F.softplus(logits)


def _hardest_pairs(
    logits: Tensor, y: Tensor, dim: int, temperature_positive: float, temperature_negative: float
) -> tuple[Tensor, Tensor]:
    """Return the two-way loss along an axis, and each entry's share in the mean over valid ones."""
    relevant = y > 0.5
    # Without a negative, too, the loss is 0: the hardest of none is infinitely easy.
    valid = relevant.any(dim) & (~relevant).any(dim)
    # The most extreme finite logit stands for those of the other side: minus infinity has no gradient.
    lowest = torch.finfo(logits.dtype).min / 4
    positives = (-logits / temperature_positive).masked_fill(~relevant, lowest)
    negatives = (logits / temperature_negative).masked_fill(relevant, lowest)
    hard = temperature_positive * torch.logsumexp(positives, dim)
    easy = temperature_negative * torch.logsumexp(negatives, dim)
    pairs = torch.where(valid, hard + easy, 0.0)
    share = valid.to(logits.dtype) / relevant.any(dim).sum().clamp(min=1)
    return F.softplus(pairs), share


def _check_range(low: float, below: float = math.inf, /, **values: object) -> None:
    """Raise unless every option is a finite number from `low` and below the other bound."""
    for name, value in values.items():
        check_number(name, value, least=low, below=below, error=ModelError)


def _checked_weights(weights: ArrayLike, n_labels: int | None) -> list[float]:
    try:
        values = np.asarray(weights, dtype=np.float32)
    except (TypeError, ValueError):
        values = np.zeros(1, dtype=np.float32)  # refused below, as no numbers are
    if values.ndim != 1 or not (np.isfinite(values) & (values > 0)).all():
        raise ModelError(
            f"weights must be finite numbers above 0, one a label, got {weights!r:.80}"
        )
    if n_labels not in (None, len(values)):
        raise ModelError(
            f"weights must have one number for each of {n_labels} labels, got {len(values)}"
        )
    listed: list[float] = values.tolist()
    return listed
