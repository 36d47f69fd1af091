"""Parts that several models share; the models themselves never import each other."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tailbatch.errors import ModelError
from tailbatch.models.sparse_linear import SparseLinear

# Tensors of at most this many values stay in the allocator's pool; larger ones are requested from the
# system page by page each time, which costs as much as the arithmetic on them.
_CHUNK_VALUES = 2**19
# Beyond this the variance over- or underflows single precision once it is exponentiated twice.
_LOGVAR_LIMIT = 10.0


def mlp_block(
    sizes: Sequence[int],
    *,
    slope: float = 0.0,
    dropout: float = 0.0,
    norm: bool = False,
    last_act: bool = True,
    sparse_input: bool = False,
) -> nn.Sequential:
    """Return a chain of linear layers, each with BatchNorm, leaky ReLU and Dropout after it.

    The block of the CLIF, PACA and DELA authors: Kaiming-uniform weights, biases U(0, 0.1).

    Parameters
    ----------
    sizes
        Width of the input, then of every layer.
    slope
        Negative slope of the activation; 0 is ReLU.
    dropout
        Probability of dropping; 0 adds no layer.
    norm
        Whether to normalize before the activation.
    last_act
        False leaves the last layer bare: no norm, activation or dropout.
    sparse_input
        Whether the first layer also takes sparse rows, see `SparseLinear`.

    Examples
    --------
    >>> [type(layer).__name__ for layer in mlp_block([4, 8, 2], dropout=0.1, last_act=False)]
    ['Linear', 'ReLU', 'Dropout', 'Linear']
    """
    layers: list[nn.Module] = []
    for index, (width_in, width_out) in enumerate(pairwise(sizes)):
        is_sparse = sparse_input and index == 0
        layers.append(kaiming_linear(width_in, width_out, slope=slope, sparse_input=is_sparse))
        if index == len(sizes) - 2 and not last_act:
            break
        if norm:
            layers.append(nn.BatchNorm1d(width_out))
        # ReLU keeps only its result, so in-place would save nothing, and would cost four copies in the
        # backward pass if the linear layer's result is a view (for an input with three axes).
        layers.append(nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU())
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def kaiming_linear(
    width_in: int, width_out: int, *, slope: float = 0.0, sparse_input: bool = False
) -> nn.Linear:
    """Return a linear layer initialized as in `mlp_block`.

    Examples
    --------
    >>> bool(kaiming_linear(4, 8).bias.min() >= 0)
    True
    """
    linear = nn.Linear(width_in, width_out)
    nn.init.kaiming_uniform_(linear.weight, a=slope, nonlinearity="leaky_relu")
    nn.init.uniform_(linear.bias, 0.0, 0.1)
    return SparseLinear.of(linear) if sparse_input else linear


class GaussianHead(nn.Module):
    """Mean and log variance of a diagonal Gaussian, each linear in its input.

    Examples
    --------
    >>> mean, logvar = GaussianHead(8, 2)(torch.zeros(5, 8))
    >>> mean.shape, logvar.shape
    (torch.Size([5, 2]), torch.Size([5, 2]))
    """

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.mean = nn.Linear(width, latent)
        self.logvar = nn.Linear(width, latent)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance; the latter within ±10 so that exponentials stay finite."""
        return self.mean(hidden), self.logvar(hidden).clamp(-_LOGVAR_LIMIT, _LOGVAR_LIMIT)


class LabelwiseLinear(nn.Module):
    """One linear classifier per label, each on its own features: (b, q, h) to (b, q).

    Examples
    --------
    >>> LabelwiseLinear(3, 8)(torch.zeros(5, 3, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(self, n_labels: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(n_labels, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_labels).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits for label-specific features (b, q, h)."""
        # An einsum would copy the features to put the labels first.
        return (features * self.weight).sum(2) + self.bias

    def shared(self, features: Tensor) -> Tensor:
        """Return logits for features (b, h) that all labels share."""
        return F.linear(features, self.weight, self.bias)


def by_rows(function: Callable[..., Tensor], *tensors: Tensor, values_per_row: int) -> Tensor:
    """Return a row-wise function of tensors, computed in chunks of rows.

    Parameters
    ----------
    function
        Takes the same number of rows of each tensor, and returns as many.
    *tensors
        All of the same length.
    values_per_row
        Size of the function's largest intermediate for one row, which sets the chunks.

    Examples
    --------
    >>> by_rows(torch.add, torch.ones(3, 1), torch.ones(3, 1), values_per_row=2**21).T
    tensor([[2., 2., 2.]])
    """
    n_rows = max(1, _CHUNK_VALUES // values_per_row)
    parts = zip(*(torch.split(tensor, n_rows) for tensor in tensors), strict=True)
    return torch.cat([function(*part) for part in parts])


def gaussian_kl(
    mean: Tensor, logvar: Tensor, prior_mean: Tensor, prior_logvar: Tensor, *, floor: float
) -> Tensor:
    """Return KL(N(mean, e^logvar) || N(prior_mean, e^prior_logvar)) per row, summed over columns.

    Parameters
    ----------
    mean, logvar, prior_mean, prior_logvar
        (b, D).
    floor
        Added to the prior's variance where it divides, as in the authors' code.

    Examples
    --------
    >>> zero = torch.zeros(1, 3)
    >>> gaussian_kl(zero, zero, zero, zero, floor=0.0)
    tensor([0.])
    """
    distance = (prior_mean - mean).square() / (prior_logvar.exp() + floor)
    return 0.5 * (prior_logvar - logvar - 1 + (logvar - prior_logvar).exp() + distance).sum(1)


def reparameterized(mean: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """Return mean + e^(logvar/2) noise.

    Examples
    --------
    >>> reparameterized(torch.ones(1), torch.zeros(1), torch.tensor([2.0]))
    tensor([3.])
    """
    return mean + (0.5 * logvar).exp() * noise


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise unless a hyperparameter is one of the known choices.

    Examples
    --------
    >>> check_choice("gate", "linear", ["sigmoid", "linear"])
    """
    if value not in choices:
        raise ModelError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_sizes(**sizes: int) -> None:
    """Raise unless every width or count is an integer from 1.

    Examples
    --------
    >>> check_sizes(hidden=512, latent=64)
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ModelError(f"{name} must be an integer from 1, got {size!r}")


def check_dropout(**rates: float) -> None:
    """Raise unless every dropout rate is in [0, 1).

    Examples
    --------
    >>> check_dropout(dropout=0.2, decoder_dropout=0.0)
    """
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ModelError(f"{name} must be in [0, 1), got {rate!r} (0 switches it off)")
