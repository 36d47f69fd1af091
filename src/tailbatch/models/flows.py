"""Label-conditional normalizing flows for PACA: log p(z | label) for every row and label.

Two maps in turn: a deep sigmoidal autoregressive flow whose hidden layer is shifted by the label,
then an affine map per label; the base is a standard normal.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
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
_CHUNK_VALUES = 8192
# Dimensions are split into this many blocks to skip hidden units that a block never sees.
_BLOCKS = 8
# The slope's floor before its logarithm; far above the smallest float, as gradients divide by it.
_SLOPE_FLOOR = 1e-30

_Map = Callable[[Tensor], tuple[Tensor, Tensor]]


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
        warp = self.sigmoidal.warp()

        def density(z: Tensor) -> Tensor:
            warped, log_slope = warp(z)  # (D, b, q or 1), (b, q or 1)
            if warped.shape[2] == 1:
                squares = _shared_squares(warped[:, :, 0].T, scale, shift)
            else:
                squares = (scale.T[:, None] * warped + shift.T[:, None]).square().sum(0)
            normal = -0.5 * (squares + z.shape[1] * math.log(2 * math.pi))
            return normal + scale.log().sum(1) + log_slope

        widest = len(scale) * max(_HIDDEN, self.sigmoidal.width * z.shape[1])
        return by_rows(density, z, values_per_row=widest)


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

    def warp(self) -> _Map:
        """Return the map from z (b, D) to the warped z (D, b, q) and the sums of log slopes (b, q)."""
        inner = self.inner.weight * self.mask_in
        # A label's one-hot code times the weights is a column of the weights.
        condition = self.condition.weight.T.contiguous() + self.condition.bias
        # A matrix for each block, its rows sorted by parameter first: see `_Warp`.
        weight = (self.outer.weight * self.mask_out).view(-1, self.width, _HIDDEN)
        bias = self.outer.bias.view(-1, self.width)
        blocks = [
            (weight[i:j, :, :seen].transpose(0, 1).flatten(0, 1), bias[i:j].T.flatten())
            for i, j, seen in self.blocks
        ]
        layers = [tensor for block in blocks for tensor in block]

        def warp(z: Tensor) -> tuple[Tensor, Tensor]:
            base = F.linear(z, inner, self.inner.bias)
            hidden = F.elu(base[:, None] + condition)
            n_rows, n_labels, _ = hidden.shape
            columns = z.T.repeat_interleave(n_labels, 1)  # (D, b q)
            warped, log_slope = _warp(
                columns, hidden.flatten(0, 1), self.units.weight, self.units.bias, *layers
            )
            return warped.view(len(columns), n_rows, n_labels), log_slope.view(n_rows, n_labels)

        return warp


class _SharedSigmoidalFlow(nn.Module):
    """One mixture of sigmoids for every label and dimension; see `LabelFlow`'s `legacy_ratio`."""

    width = 0

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3 * _UNITS))

    def warp(self) -> _Map:
        """Return the map from z (b, D) to the warped z (D, b, 1) and the sums of log slopes (b, 1)."""

        def warp(z: Tensor) -> tuple[Tensor, Tensor]:
            nothing = z.new_zeros(len(z), 0)
            weight = z.new_zeros(len(self.bias), 0)
            warped, log_slope = _warp(
                z.T.contiguous(), nothing, weight, self.bias, nothing[:0], z.new_zeros(0)
            )
            return warped[:, :, None], log_slope[:, None]

        return warp


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


def _warp(
    z: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, *layers: Tensor
) -> tuple[Tensor, Tensor]:
    """Return logit(mixture of sigmoids at z), (D, n), and the sums of the log of its slope, (n,).

    A value z[i, r] has the parameters ``v = outer @ hidden[r] + outer_bias`` and the units
    ``weight @ v + bias`` = (alpha, beta, omega), m each. With slopes a = softplus(alpha), weights
    w = softmax(omega) and s = sigmoid(a z + beta), the mixture is sum w s, squeezed by 1e-6 to stay
    inside (0, 1). Values are processed in chunks and recomputed for the gradient, so memory holds the
    parameters and not 3 m numbers per value.

    Parameters
    ----------
    z, hidden
        (D, n) and (n, k).
    weight, bias
        (3 m, p) and (3 m,), for all dimensions.
    *layers
        ``outer`` and ``outer_bias`` of each block of dimensions in turn: the rows are the first
        parameter of all its dimensions, then the second, and so on; the columns are the first hidden
        units, the only ones that the block sees.
    """
    # torch leaves the method untyped.
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _Warp.apply)
    return apply(z, hidden, weight, bias, *layers)


class _Warp(torch.autograd.Function):
    # Units are the first axis everywhere: sums over them add whole rows, and all dimensions of a block
    # share one product of matrices.

    @staticmethod
    def forward(
        ctx: FunctionCtx, z: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, *layers: Tensor
    ) -> tuple[Tensor, Tensor]:
        units = _by_powers_of_two(weight, bias)
        warped = torch.empty_like(z)
        facts = z.new_empty(3, *z.shape)  # level, slope and the log of the weights' sum
        parameters = []
        for block, outer, outer_bias in _blocks(z, weight, layers):
            settings = _settings(hidden, outer, outer_bias, z[block])
            parameters.append(settings)
            for part in _chunks(settings):
                _forward_units(
                    settings[:, part],
                    z[block].view(-1)[part],
                    units,
                    facts[:, block].flatten(1)[:, part],
                )
        level, slope, _ = facts
        log_on, log_off = level.log(), torch.log1p(-level)
        torch.sub(log_on, log_off, out=warped)
        log_slope = (slope.log() - log_on - log_off).sum(0) + len(z) * math.log1p(-_EPS)
        ctx.save_for_backward(z, hidden, weight, bias, facts, *layers, *parameters)
        return warped, log_slope

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, grad_warped: Tensor, grad_log: Tensor
    ) -> tuple[Tensor, ...]:
        z, hidden, weight, bias, facts, *rest = cast(tuple[Tensor, ...], ctx.saved_tensors)
        n_blocks = len(rest) // 3
        layers, parameters = rest[: 2 * n_blocks], rest[2 * n_blocks :]
        units = _by_powers_of_two(weight, bias)
        plain = torch.cat([weight, bias[:, None]], 1)
        level, slope, _ = facts
        upstream = torch.stack(
            (
                (1 - _EPS)
                * (grad_warped / (level * (1 - level)) + grad_log * (1 / (1 - level) - 1 / level)),
                grad_log / slope,
            )
        )
        grad_z, grad_hidden = torch.empty_like(z), torch.zeros_like(hidden)
        grad_units, grad_layers = torch.zeros_like(units.T), []
        for (block, outer, _), settings in zip(_blocks(z, weight, layers), parameters, strict=True):
            grad_settings = torch.empty_like(settings)
            for part in _chunks(settings):
                grad = _backward_units(
                    settings[:, part],
                    z[block].view(-1)[part],
                    units,
                    facts[:, block].flatten(1)[:, part],
                    upstream[:, block].flatten(1)[:, part],
                    grad_z[block].view(-1)[part],
                )
                torch.mm(plain.T, grad, out=grad_settings[:, part])
                grad_units += settings[:, part] @ grad.T
            flat = grad_settings[:-1].view(len(outer), len(hidden))
            seen = hidden[:, : outer.shape[1]]
            grad_layers += [flat @ seen, flat.sum(1)]
            grad_hidden[:, : outer.shape[1]].addmm_(flat.T, outer)
        return grad_z, grad_hidden, grad_units[:-1].T, grad_units[-1], *grad_layers


def _blocks(
    z: Tensor, weight: Tensor, layers: Sequence[Tensor]
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the dimensions of each block, and its layer."""
    start = 0
    for outer, outer_bias in zip(layers[::2], layers[1::2], strict=True):
        stop = start + len(outer) // weight.shape[1] if len(outer) else len(z)
        yield slice(start, stop), outer, outer_bias
        start = stop


def _settings(hidden: Tensor, outer: Tensor, outer_bias: Tensor, z: Tensor) -> Tensor:
    """Return the parameters of a block of values, (p + 1, D n); the last row is 1, for the bias."""
    width = len(outer) // len(z)
    settings = hidden.new_empty(width + 1, z.numel())
    settings[-1] = 1
    seen = hidden[:, : outer.shape[1]].T
    if width:
        torch.addmm(
            outer_bias[:, None], outer, seen, out=settings[:-1].view(len(outer), len(hidden))
        )
    return settings


def _by_powers_of_two(weight: Tensor, bias: Tensor) -> Tensor:
    """Return (weight, bias) with omega times log2 e, as torch's exp2 takes a third of its exp's time."""
    units = torch.cat([weight, bias[:, None]], 1)
    units[2 * len(units) // 3 :] *= 1 / math.log(2)
    return units


def _chunks(settings: Tensor) -> Iterator[slice]:
    n_values = settings.shape[1]
    return (slice(i, i + _CHUNK_VALUES) for i in range(0, n_values, _CHUNK_VALUES))


def _forward_units(settings: Tensor, z: Tensor, units: Tensor, facts: Tensor) -> None:
    """Write level, slope and log of the sum of the unnormalized weights, (3, n), into `facts`."""
    alpha, beta, omega = (units @ settings).chunk(3)  # (m, n) each
    top = omega.amax(0)
    weights = omega.sub_(top).exp2_()
    total = weights.sum(0)
    a = F.softplus(alpha)
    t = beta.addcmul_(a, z)
    weights.mul_(torch.sigmoid(t, out=alpha))
    level, slope, log_total = facts
    torch.div(weights.sum(0), total, out=level).mul_(1 - _EPS).add_(_EPS / 2)
    # 1 - s as sigmoid(-t), because the difference is exactly 0 from t = 17 on.
    weights.mul_(t.neg_().sigmoid_()).mul_(a)
    torch.div(weights.sum(0), total, out=slope).clamp_(min=_SLOPE_FLOOR)
    torch.add(top, total.log2(), out=log_total)


def _backward_units(
    settings: Tensor, z: Tensor, units: Tensor, facts: Tensor, upstream: Tensor, grad_z: Tensor
) -> Tensor:
    """Return the gradient of (alpha, beta, omega), (3 m, n), and write that of z."""
    level, slope, log_total = facts
    grad_mean, grad_slope = upstream
    grad = units @ settings
    alpha, beta, omega = grad.chunk(3)
    a = F.softplus(alpha)
    t = beta.addcmul_(a, z)
    w = omega.sub_(log_total).exp2_()
    s = torch.sigmoid(t)
    off = t.neg_().sigmoid_()
    # The center of the gradient of the softmax: the mean of what it weighs.
    center = (level - _EPS / 2).div_(1 - _EPS).mul_(grad_mean).addcmul_(grad_slope, slope)
    ws = w * s
    kernel = ws * off
    torch.sub(off, s, out=s)
    steep = kernel * grad_slope
    raised = steep * a
    grad_t = torch.mul(raised, s, out=beta).addcmul_(kernel, grad_mean)
    alpha.sigmoid_().mul_(steep.addcmul_(grad_t, z))
    w.mul_(center).neg_().add_(raised).addcmul_(ws, grad_mean)
    torch.sum(a.mul_(grad_t), 0, out=grad_z)
    return grad
