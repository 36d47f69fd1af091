"""The losses: each holds its options and what it knows of the training rows; formulas are elsewhere."""

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.data import LabelMatrix
from tailbatch.errors import ModelError
from tailbatch.imbalance import positive_weights
from tailbatch.losses import formulas
from tailbatch.losses.base import Loss, check_range, counts_with_notice


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
    n_labels
        How many labels there are.
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
        check_range(0, power=power)
        if max_weight is not None:
            check_range(0, max_weight=max_weight)
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

    Parameters
    ----------
    n_labels
        How many labels there are.
    gamma
        How strongly easy cells are played down, from 0 (binary cross-entropy).

    Examples
    --------
    >>> Focal(1).cells(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.1733]])
    """

    name = "focal"

    def __init__(self, n_labels: int | None, *, gamma: float = 2.0) -> None:
        check_range(0, gamma=gamma)
        super().__init__(n_labels, gamma=gamma)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return (1 - p_t)^gamma times binary cross-entropy."""
        return formulas.focal(logits, y, **self.options)


class Asymmetric(Loss):
    """Asymmetric loss: easy negatives are played down and then ignored.

    Parameters
    ----------
    n_labels
        How many labels there are.
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
        check_range(0, **exponents)
        for option, value in exponents.items():
            if 0 < value < 1:  # the gradient would be infinite at 0
                raise ModelError(f"{option} must be 0 or at least 1, got {value!r}")
        check_range(0, 0.99, margin=margin)
        super().__init__(n_labels, margin=margin, **exponents)

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return `tailbatch.losses.formulas.asymmetric`."""
        return formulas.asymmetric(logits, y, **self.options)


class ClassBalanced(Loss):
    """Positives weigh by the inverse of their label's effective number, scaled to a mean of 1.

    Cui, Jia, Lin, Song, Belongie, *Class-Balanced Loss Based on Effective Number of Samples*, CVPR 2019.

    Parameters
    ----------
    n_labels
        How many labels there are.
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
        check_range(0, 1 - 1e-9, beta=beta)
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
    """Distribution-balanced loss, made for batches drawn label by label.

    It undoes what co-occurrence does to such batches, and lets negatives of rare labels off sooner.

    Parameters
    ----------
    n_labels
        How many labels there are.
    alpha, beta, mu
        Least weight, steepness and middle of the weights, see
        `tailbatch.losses.formulas.rebalancing_weights`.
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
        check_range(0, alpha=alpha, beta=beta, mu=mu, kappa=kappa, gamma=gamma)
        check_range(1e-3, negative_scale=negative_scale)
        focus = {"kappa": kappa, "negative_scale": negative_scale, "gamma": gamma}
        super().__init__(n_labels, alpha=alpha, beta=beta, mu=mu, **focus)
        self.alpha, self.beta, self.mu = alpha, beta, mu
        self.kappa, self.negative_scale, self.gamma = kappa, negative_scale, gamma
        self.register_buffer("counts", torch.ones(n_labels or 1))
        self.register_buffer("shift", torch.zeros(n_labels or 1))

    def learn(self, Y: LabelMatrix, missing: LabelMatrix | None = None) -> None:
        """Count each label's positives; one without, or without negatives, is counted as having one."""
        n_samples = Y.shape[
            0
        ]  # missing labels included: the shift is small, and rows are drawn by all
        counts = np.clip(counts_with_notice(Y, self.name), 1, max(1, n_samples - 1))
        shift = self.kappa * np.log(np.maximum(n_samples / counts - 1, 1 / n_samples))
        self.counts.copy_(torch.from_numpy(counts))
        self.shift.copy_(torch.from_numpy(shift / self.negative_scale))

    def cell_weights(self, y: Tensor) -> Tensor:
        """Return r'_ij."""
        labels = y if y.is_floating_point() else y.float()
        counts = self.counts.to(labels)
        return formulas.rebalancing_weights(
            labels, counts, alpha=self.alpha, beta=self.beta, mu=self.mu
        )

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return `tailbatch.losses.formulas.distribution_balanced`."""
        return formulas.distribution_balanced(
            logits,
            y,
            self.cell_weights(y),
            self.shift.to(logits),
            scale=self.negative_scale,
            gamma=self.gamma,
        )


class TwoWay(Loss):
    """Two-way loss: the hardest positive against the hardest negative of each label and each sample.

    A label is learned from batches that hold a positive of it, and scores rank labels and samples but
    are no probabilities. Cells only spread the loss, which is no sum over them: samples cannot be
    weighted, so it is for strategies without correction, such as ``coverage``.

    Parameters
    ----------
    n_labels
        How many labels there are.
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
        check_range(1e-3, temperature_positive=temperature_positive)
        check_range(1e-3, temperature_negative=temperature_negative)
        super().__init__(
            n_labels,
            temperature_positive=temperature_positive,
            temperature_negative=temperature_negative,
        )

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return `tailbatch.losses.formulas.two_way`."""
        return formulas.two_way(logits, y, **self.options)


class Equalized(Loss):
    """Equalization loss v2: labels whose negatives outweigh their positives get the balance back.

    The gradients seen so far are its state; they are renewed by each training step and saved with the
    model. In a process group they are added up over the ranks.

    Parameters
    ----------
    n_labels
        How many labels there are.
    gamma, mu, alpha
        See `tailbatch.losses.formulas.equalizing_weights`.

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
        self,
        n_labels: int | None,
        *,
        gamma: float = 12.0,
        mu: float = 0.8,
        alpha: float = 4.0,
    ) -> None:
        check_range(0, gamma=gamma, mu=mu, alpha=alpha)
        super().__init__(n_labels, gamma=gamma, mu=mu, alpha=alpha)
        # In double precision, because a long training adds up millions of small numbers.
        for which in ("positive_gradients", "negative_gradients"):
            self.register_buffer(which, torch.zeros(n_labels or 1, dtype=torch.float64))

    def cell_weights(self, y: Tensor) -> Tensor:
        """Return what positives and negatives weigh at the moment."""
        labels = y if y.is_floating_point() else y.float()
        positive, negative = formulas.equalizing_weights(
            self.positive_gradients, self.negative_gradients, **self.options
        )
        return labels * positive.to(labels) + (1 - labels) * negative.to(labels)

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
