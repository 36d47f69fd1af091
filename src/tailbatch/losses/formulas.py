"""The losses as pure functions: logits and labels (b, q) in, one value a cell (b, q) out.

Logarithms are taken of logits and never of probabilities, so nothing overflows far out. A sample's loss
is the sum of its row, a batch's the mean over samples (`tailbatch.losses.Loss`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def focal(logits: Tensor, y: Tensor, *, gamma: float) -> Tensor:
    """Return (1 - p_t)^gamma bce, where p_t is the probability of the label's true value.

    Lin, Goyal, Girshick, He, Dollar, *Focal Loss for Dense Object Detection*, ICCV 2017.

    Examples
    --------
    >>> focal(torch.zeros(1, 1), torch.ones(1, 1), gamma=2.0)
    tensor([[0.1733]])
    """
    return y * _focused(-logits, gamma) + (1 - y) * _focused(logits, gamma)


def _focused(logits: Tensor, gamma: float) -> Tensor:
    """Return sigmoid(z)^gamma softplus(z): what a cell costs whose truth is on the side of -z."""
    if not gamma:
        return F.softplus(logits)
    return torch.exp(gamma * F.logsigmoid(logits)) * F.softplus(logits)


def asymmetric(
    logits: Tensor,
    y: Tensor,
    *,
    gamma_negative: float = 4.0,
    gamma_positive: float = 0.0,
    margin: float = 0.05,
) -> Tensor:
    """Return the asymmetric loss, in which easy negatives cost nothing.

    With p the probability and p_m = max(p - margin, 0): positives cost (1 - p)^gamma_positive
    (-log p), negatives p_m^gamma_negative (-log(1 - p_m)). Ridnik et al., ICCV 2021.

    Examples
    --------
    >>> asymmetric(torch.tensor([[-100.0, -100.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[100., 0.]])
    """
    positive = -F.logsigmoid(logits) * torch.sigmoid(-logits) ** gamma_positive
    if margin:
        # 1 - p_m is at least the margin, so its logarithm is finite.
        shifted = (torch.sigmoid(logits) - margin).clamp(min=0)
        negative = -torch.log1p(-shifted) * shifted**gamma_negative
    else:
        negative = _focused(logits, gamma_negative)
    return y * positive + (1 - y) * negative


def rebalancing_weights(
    y: Tensor, counts: Tensor, *, alpha: float, beta: float, mu: float
) -> Tensor:
    """Return r'_ij = alpha + sigmoid(beta (r_ij - mu)), the weights of `distribution_balanced`.

    r_ij = (1 / n_j) / sum over the labels k of row i of 1 / n_k: how often label j would bring the row
    into a batch, against how often all of its labels do; infinite for a row without labels.

    Examples
    --------
    >>> y, counts = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([10.0, 2.0])
    >>> rebalancing_weights(y, counts, alpha=0.1, beta=10.0, mu=0.2)
    tensor([[0.5174, 1.0982],
            [0.6000, 1.0997]])
    """
    chance = 1 / counts
    share = chance / (y * chance).sum(1, keepdim=True)
    return alpha + torch.sigmoid(beta * (share - mu))


def distribution_balanced(
    logits: Tensor, y: Tensor, weights: Tensor, shift: Tensor, *, scale: float, gamma: float
) -> Tensor:
    """Return weights times softplus(-z') for positives, softplus(scale z') / scale for negatives.

    z' = z - shift lowers rare labels' logits, and the scale lets negatives off sooner. Wu, Huang, Liu,
    Wang, Lin, ECCV 2020. With gamma > 0 each cell is focused as in `focal`.

    Examples
    --------
    >>> one = torch.ones(1, 1)
    >>> distribution_balanced(0 * one, 0 * one, one, 0 * one, scale=2.0, gamma=0.0)
    tensor([[0.3466]])
    """
    moved = logits - shift
    positive, negative = _focused(-moved, gamma), _focused(scale * moved, gamma) / scale
    return weights * (y * positive + (1 - y) * negative)


def two_way(
    logits: Tensor, y: Tensor, *, temperature_positive: float, temperature_negative: float
) -> Tensor:
    """Return the two-way loss spread over cells: their sum over labels, averaged over samples, is it.

    Over the samples of each label, and over the labels of each sample,
    softplus(T_n LSE over negatives of z / T_n + T_p LSE over positives of -z / T_p): the hardest negative
    against the hardest positive. Each direction is averaged over labels, or samples, with a positive;
    where there is none it is 0. Kobayashi, CVPR 2023.

    Examples
    --------
    >>> cells = two_way(torch.zeros(2, 1), torch.tensor([[1.0], [0.0]]),
    ...                 temperature_positive=4.0, temperature_negative=1.0)
    >>> cells.sum(1).mean()  # log 2 over the samples; within a sample there is no pair
    tensor(0.6931)
    """
    n_samples, n_labels = logits.shape
    temperatures = temperature_positive, temperature_negative
    of_label, label_share = _hardest_pairs(logits, y, 0, *temperatures)  # (q,)
    of_sample, sample_share = _hardest_pairs(logits, y, 1, *temperatures)  # (b,)
    by_label = of_label * label_share
    by_sample = of_sample * sample_share * (n_samples / n_labels)
    # Comparing takes NaN for a negative; a label that is not there is to be seen, as in the other losses.
    return (by_label + by_sample[:, None]).masked_fill(y.isnan(), torch.nan)


def _hardest_pairs(
    logits: Tensor, y: Tensor, dim: int, positive: float, negative: float
) -> tuple[Tensor, Tensor]:
    """Return the loss along an axis, and each entry's share in the mean over those with a positive.

    Without a negative, too, the loss is 0: the hardest of none is infinitely easy.
    """
    relevant = y > 0.5
    valid = relevant.any(dim) & (~relevant).any(dim)
    # The most extreme finite logit stands for those of the other side: minus infinity has no gradient.
    lowest = torch.finfo(logits.dtype).min / 4
    hard = positive * torch.logsumexp((-logits / positive).masked_fill(~relevant, lowest), dim)
    easy = negative * torch.logsumexp((logits / negative).masked_fill(relevant, lowest), dim)
    pairs = torch.where(valid, hard + easy, 0.0)
    share = valid.to(logits.dtype) / relevant.any(dim).sum().clamp(min=1)
    return F.softplus(pairs), share


def equalizing_weights(
    positive: Tensor, negative: Tensor, *, gamma: float, mu: float, alpha: float
) -> tuple[Tensor, Tensor]:
    """Return what positives and what negatives of each label weigh in `equalized`, (q,) each.

    With g the label's positive gradients over its negative ones so far and f = sigmoid(gamma (g - mu)):
    positives weigh 1 + alpha (1 - f), negatives f. Before the first batch both weigh 1. Tan et al.,
    *Equalization Loss v2*, CVPR 2021.

    Examples
    --------
    >>> equalizing_weights(torch.tensor([0.0, 8.0]), torch.tensor([0.0, 10.0]),
    ...                    gamma=12.0, mu=0.8, alpha=4.0)
    (tensor([1., 3.]), tensor([1.0000, 0.5000]))
    """
    ratio = positive / negative.clamp(min=torch.finfo(negative.dtype).tiny)
    seen = positive + negative > 0
    share = torch.where(seen, torch.sigmoid(gamma * (ratio - mu)), 1.0)
    return 1 + alpha * (1 - share), share
