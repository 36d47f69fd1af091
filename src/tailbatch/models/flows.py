"""Label-conditional normalizing flows for PACA: log p(z | label) for every row and label.

Two maps in turn: a deep sigmoidal autoregressive flow whose hidden layer is shifted by the label,
then an affine map per label; the base is a standard normal.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

from tailbatch.models.blocks import by_rows

_HIDDEN = 256
_UNITS = 16
# Keeps the mixture of sigmoids away from 0 and 1 before the logit.
_EPS = 1e-6
# Values (sample, label, dimension) processed at a time: 48 numbers each, so a chunk fits in the cache.
_CHUNK_VALUES = 16384
# Dimensions are split into this many blocks to skip hidden units that a block never sees.
_BLOCKS = 4
# The slope's floor before its logarithm; far above the smallest float, as gradients divide by it.
_SLOPE_FLOOR = 1e-30


class LabelFlow(nn.Module):
    """The density of one prototype per label.

    Parameters
    ----------
    n_labels
        How many labels condition the flow.
    latent
        Dimensions D of z.
    legacy_ratio
        Give each dimension 256 // D parameter rows, as in the reference code. For D > 256 that is
        none: the sigmoidal flow is then one curve for all labels and dimensions. If False, each
        dimension has at least one.

    Examples
    --------
    >>> LabelFlow(3, 4)(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, n_labels: int, latent: int, *, legacy_ratio: bool = False) -> None:
        super().__init__()
        ratio = _HIDDEN // latent if legacy_ratio else max(1, _HIDDEN // latent)
        self.sigmoidal = (
            _SigmoidalFlow(n_labels, latent, ratio) if ratio else _SharedSigmoidalFlow()
        )
        self.scale = _OneHotResidual(n_labels, latent, bias=0.5 * math.log(math.e - 1))
        self.shift = _OneHotResidual(n_labels, latent, bias=0.0)

    def forward(self, z: Tensor) -> Tensor:
        """Return log densities (b, q) for z (b, D)."""
        scale, shift = F.softplus(self.scale()), self.shift()  # (q, D)

        def density(z: Tensor) -> Tensor:
            return self._density(z, scale, shift)

        widest = len(scale) * max(_HIDDEN, self.sigmoidal.width * z.shape[1])
        return by_rows(density, z, values_per_row=widest)

    def _density(self, z: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        warped, log_slope = self.sigmoidal(z)  # (D, b, q or 1), (b, q or 1)
        if warped.shape[2] == 1:
            squares = _shared_squares(warped[:, :, 0].T, scale, shift)
        else:
            squares = (scale.T[:, None] * warped + shift.T[:, None]).square().sum(0)
        normal = -0.5 * (squares + z.shape[1] * math.log(2 * math.pi))
        density: Tensor = normal + scale.log().sum(1) + log_slope
        return density


class _SigmoidalFlow(nn.Module):
    """An autoregressive flow: each dimension is warped by a mixture of sigmoids.

    The mixture of dimension i depends on the label and on the dimensions before i only, through
    masked layers. The first dimension therefore sees neither. Hidden units are sorted by how many
    dimensions they see, so a block of early dimensions needs only the first of them.
    """

    mask_in: Tensor
    mask_out: Tensor

    def __init__(self, n_labels: int, latent: int, ratio: int) -> None:
        super().__init__()
        self.width = 3 * ratio
        degrees = sorted(unit % max(latent - 1, 1) + 1 for unit in range(_HIDDEN))
        dimensions, hidden = torch.arange(1, latent + 1), torch.tensor(degrees)
        self.register_buffer("mask_in", dimensions <= hidden[:, None])
        allowed = hidden < dimensions[:, None]
        self.register_buffer("mask_out", allowed.repeat_interleave(self.width, 0))
        # (first dimension, one past the last, hidden units that any of them sees)
        edges = sorted({latent * block // _BLOCKS for block in range(_BLOCKS + 1)})
        self.blocks = [(i, j, bisect_left(degrees, j)) for i, j in pairwise(edges)]
        self.inner = nn.Linear(latent, _HIDDEN)
        self.condition = nn.Linear(n_labels, _HIDDEN)
        nn.init.zeros_(self.condition.bias)
        self.outer = nn.Linear(_HIDDEN, latent * self.width)
        self.units = nn.Linear(self.width, 3 * _UNITS)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the warped z (D, b, q) and the sum of log slopes (b, q)."""
        base = F.linear(z, self.inner.weight * self.mask_in, self.inner.bias)
        # A label's one-hot code times the weights is a column of the weights.
        condition = self.condition.weight.T.contiguous() + self.condition.bias
        hidden = F.elu(base[:, None] + condition)
        n_rows, n_labels, _ = hidden.shape
        hidden = hidden.view(n_rows * n_labels, _HIDDEN).T
        columns = z.T.repeat_interleave(n_labels, 1)  # (D, b q)
        weight, bias = self.outer.weight * self.mask_out, self.outer.bias[:, None]
        parts = []
        for start, stop, seen in self.blocks:
            rows = slice(start * self.width, stop * self.width)
            settings = torch.addmm(bias[rows], weight[rows, :seen], hidden[:seen])
            parts.append(
                _sigmoidal_units(
                    settings.view(stop - start, self.width, -1),
                    columns[start:stop],
                    self.units.weight,
                    self.units.bias,
                )
            )
        warped, log_slope = map(torch.cat, zip(*parts, strict=True))
        shape = (z.shape[1], n_rows, n_labels)
        return warped.view(shape), log_slope.view(shape).sum(0)


class _SharedSigmoidalFlow(nn.Module):
    """One mixture of sigmoids for every label and dimension; see `LabelFlow`'s `legacy_ratio`."""

    width = 0

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3 * _UNITS))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the warped z (D, b, 1) and the sum of log slopes (b, 1)."""
        columns = z.T.contiguous()
        none, weight = z.new_zeros(len(columns), 0, len(z)), z.new_zeros(len(self.bias), 0)
        warped, log_slope = _sigmoidal_units(none, columns, weight, self.bias)
        return warped[:, :, None], log_slope.sum(0)[:, None]


class _OneHotResidual(nn.Module):
    """A residual network of one-hot labels, as a table (q, D); constant at the start."""

    def __init__(self, n_labels: int, latent: int, *, bias: float) -> None:
        super().__init__()
        self.first = nn.Linear(n_labels, latent)
        self.second = nn.Linear(latent, latent)
        self.skip = nn.Linear(n_labels, latent)
        for layer in (self.second, self.skip):
            nn.init.uniform_(layer.weight, -0.001, 0.001)
            nn.init.constant_(layer.bias, bias)

    def forward(self) -> Tensor:
        """Return the row of every label."""
        table: Tensor = self.second(F.relu(self.first.weight.T + self.first.bias))
        return table + self.skip.weight.T + self.skip.bias


def _shared_squares(z: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return the sum over i of (scale_ki z_bi + shift_ki)^2 as (b, q), without a (b, q, D) tensor."""
    cross = F.linear(z, scale * shift)
    return F.linear(z.square(), scale.square()) + 2 * cross + shift.square().sum(1)


def _sigmoidal_units(
    settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Return logit(mixture of sigmoids at z) and the log of its slope, value by value.

    The value z[i, r] has ``weight @ settings[i, :, r] + bias`` = (alpha, beta, omega), m each.
    With slopes a = softplus(alpha), weights w = softmax(omega) and s = sigmoid(a z + beta), the
    mixture is sum w s, squeezed by 1e-6 to stay inside (0, 1). Values are processed in chunks and
    recomputed for the gradient, so memory holds the arguments and not 3 m numbers per value.
    """
    # torch leaves the method untyped.
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _SigmoidalUnits.apply)
    return apply(settings, z, weight, bias)


class _SigmoidalUnits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(settings, z, weight, bias)
        warped, log_slope = torch.empty_like(z), torch.empty_like(z)
        for i, j in _chunks(*z.shape):
            _, a, w, s, off = _units(settings[i, :, j], z[i, j], weight, bias)
            ws = w.mul_(s)
            level = ws.sum(1) * (1 - _EPS) + _EPS / 2
            slope = ws.mul_(off).mul_(a).sum(1).clamp_(min=_SLOPE_FLOOR)
            log_on, log_off = level.log(), torch.log1p(-level)
            warped[i, j] = log_on - log_off
            log_slope[i, j] = slope.log_() + math.log1p(-_EPS) - log_on - log_off
        return warped, log_slope

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, grad_warped: Tensor, grad_log: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        settings, z, weight, bias = cast(tuple[Tensor, ...], ctx.saved_tensors)
        grad_settings, grad_z = torch.empty_like(settings), torch.empty_like(z)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for i, j in _chunks(*z.shape):
            part = settings[i, :, j]
            grad, grad_z[i, j] = _units_backward(
                part, z[i, j], weight, bias, grad_warped[i, j], grad_log[i, j]
            )
            grad_settings[i, :, j] = torch.bmm(weight.T.expand(len(grad), -1, -1), grad)
            grad_weight += torch.bmm(grad, part.transpose(1, 2)).sum(0)
            grad_bias += grad.sum((0, 2))
        return grad_settings, grad_z, grad_weight, grad_bias


def _chunks(n_dimensions: int, n_columns: int) -> Iterator[tuple[slice, slice]]:
    rows = max(1, _CHUNK_VALUES // max(n_columns, 1))
    for i in range(0, n_dimensions, rows):
        for j in range(0, n_columns, _CHUNK_VALUES):
            yield slice(i, i + rows), slice(j, j + _CHUNK_VALUES)


def _units(
    settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return alpha, a, w, s and 1 - s, each (D, m, n): sums over units vectorize along n."""
    # Expanded by hand: a matrix times a batch would be folded, which copies the batch.
    weights = weight.expand(len(settings), -1, -1)
    alpha, beta, omega = torch.baddbmm(bias[:, None], weights, settings).chunk(3, 1)
    a = F.softplus(alpha)
    t = torch.addcmul(beta, a, z[:, None])
    # 1 - s as sigmoid(-t), because the difference is exactly 0 from t = 17 on.
    return alpha, a, torch.softmax(omega, 1), torch.sigmoid(t), torch.sigmoid(t.neg())


def _units_backward(
    settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor, grad_warped: Tensor, grad_log: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of (alpha, beta, omega), (D, 3 m, n), and of z, (D, n)."""
    alpha, a, w, s, off = _units(settings, z, weight, bias)
    ws = w * s
    kernel = ws * off
    steep = kernel * a
    mean, slope = ws.sum(1), steep.sum(1)
    level = mean * (1 - _EPS) + _EPS / 2
    grad_mean = (1 - _EPS) * (
        grad_warped / (level * (1 - level)) + grad_log * (1 / (1 - level) - 1 / level)
    )
    grad_slope = grad_log / slope.clamp(min=_SLOPE_FLOOR)
    center = (grad_mean * mean + grad_slope * slope)[:, None]
    grad_mean, grad_slope = grad_mean[:, None], grad_slope[:, None]
    # In place from here on: this function spends its time on the (D, m, n) arrays.
    grad = alpha.new_empty(len(alpha), len(bias), alpha.shape[2])
    grad_alpha, grad_t, grad_omega = grad.chunk(3, 1)
    torch.sub(off, s, out=grad_t).mul_(steep).mul_(grad_slope).addcmul_(kernel, grad_mean)
    torch.mul(kernel, grad_slope, out=grad_alpha).addcmul_(grad_t, z[:, None])
    grad_alpha.mul_(alpha.sigmoid())
    torch.mul(ws, grad_mean, out=grad_omega).addcmul_(steep, grad_slope)
    grad_omega.addcmul_(w, center, value=-1)
    return grad, (grad_t * a).sum(1)
