"""Label-conditional normalizing flows for PACA: log p(z | label) for every row and label.

Two maps in turn: a deep sigmoidal autoregressive flow whose hidden layer is shifted by the label,
then an affine map per label; the base is a standard normal.
"""

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

_HIDDEN = 256
_UNITS = 16
# Keeps the mixture of sigmoids off 0 and 1 before the logit.
_EPS = 1e-6
# Rows (sample, label, dimension) worked on at a time: 48 values each, so a chunk fits the cache.
_CHUNK_ROWS = 8192
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
        Give each dimension 256 // D parameter rows as the reference code does, which is none for
        D > 256: the sigmoidal flow then is one curve for all labels and dimensions. Otherwise at
        least one.

    Examples
    --------
    >>> LabelFlow(3, 4)(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, n_labels: int, latent: int, *, legacy_ratio: bool = False) -> None:
        super().__init__()
        ratio = _HIDDEN // latent if legacy_ratio else max(1, _HIDDEN // latent)
        self.sigmoidal = SigmoidalFlow(n_labels, latent, ratio) if ratio else SharedSigmoidalFlow()
        self.scale = OneHotResidual(n_labels, latent, bias=0.5 * math.log(math.e - 1))
        self.shift = OneHotResidual(n_labels, latent, bias=0.0)

    def forward(self, z: Tensor) -> Tensor:
        """Return log densities (b, q) for z (b, D)."""
        warped, log_slope = self.sigmoidal(z)  # (b, q or 1, D), (b, q or 1)
        scale, shift = F.softplus(self.scale()), self.shift()  # (q, D)
        if warped.shape[1] == 1:
            squares = shared_squares(warped[:, 0], scale, shift)
        else:
            squares = (scale * warped + shift).square().sum(2)
        normal = -0.5 * (squares + z.shape[1] * math.log(2 * math.pi))
        density: Tensor = normal + scale.log().sum(1) + log_slope
        return density


class SigmoidalFlow(nn.Module):
    """An autoregressive flow: each dimension is warped by a mixture of sigmoids.

    The mixture of dimension i depends on the label and on the dimensions before i only, through
    masked layers. The first dimension therefore sees neither.

    Examples
    --------
    >>> warped, log_slope = SigmoidalFlow(3, 4, ratio=2)(torch.zeros(5, 4))
    >>> warped.shape, log_slope.shape
    (torch.Size([5, 3, 4]), torch.Size([5, 3]))
    """

    mask_in: Tensor
    mask_out: Tensor

    def __init__(self, n_labels: int, latent: int, ratio: int) -> None:
        super().__init__()
        self.width = 3 * ratio
        dimensions = torch.arange(1, latent + 1)
        hidden = torch.arange(_HIDDEN) % max(latent - 1, 1) + 1
        self.register_buffer("mask_in", dimensions <= hidden[:, None])
        allowed = hidden < dimensions[:, None]
        self.register_buffer("mask_out", allowed.repeat_interleave(self.width, 0))
        self.inner = nn.Linear(latent, _HIDDEN)
        self.condition = nn.Linear(n_labels, _HIDDEN)
        nn.init.zeros_(self.condition.bias)
        self.outer = nn.Linear(_HIDDEN, latent * self.width)
        self.units = nn.Linear(self.width, 3 * _UNITS)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the warped z (b, q, D) and the sum of log slopes (b, q)."""
        base = F.linear(z, self.inner.weight * self.mask_in, self.inner.bias)
        # A label's one-hot code times the weights is a column of the weights.
        hidden = F.elu(base[:, None] + (self.condition.weight.T + self.condition.bias))
        settings = F.linear(hidden, self.outer.weight * self.mask_out, self.outer.bias)
        n_labels, latent = settings.shape[1], z.shape[1]
        rows = z[:, None].expand(-1, n_labels, -1).reshape(-1)
        warped, log_slope = sigmoidal_units(
            settings.view(-1, self.width), rows, self.units.weight, self.units.bias
        )
        shape = (len(z), n_labels, latent)
        return warped.view(shape), log_slope.view(shape).sum(2)


class SharedSigmoidalFlow(nn.Module):
    """One mixture of sigmoids for every label and dimension; see `LabelFlow`'s `legacy_ratio`.

    Examples
    --------
    >>> warped, log_slope = SharedSigmoidalFlow()(torch.zeros(5, 4))
    >>> warped.shape, log_slope.shape
    (torch.Size([5, 1, 4]), torch.Size([5, 1]))
    """

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3 * _UNITS))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the warped z (b, 1, D) and the sum of log slopes (b, 1)."""
        none = z.new_zeros(z.numel(), 0)
        weight = z.new_zeros(len(self.bias), 0)
        warped, log_slope = sigmoidal_units(none, z.reshape(-1), weight, self.bias)
        return warped.view(z.shape)[:, None], log_slope.view(z.shape).sum(1, keepdim=True)


class OneHotResidual(nn.Module):
    """A residual network of one-hot labels, as a table (q, D); constant at the start.

    Examples
    --------
    >>> table = OneHotResidual(3, 4, bias=0.5)()
    >>> table.shape, bool((table - 1).abs().max() < 0.1)
    (torch.Size([3, 4]), True)
    """

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


def shared_squares(z: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return the sum over i of (scale_ki z_bi + shift_ki)^2 as (b, q), without a (b, q, D) tensor.

    Examples
    --------
    >>> shared_squares(torch.tensor([[1.0, 2.0]]), torch.ones(1, 2), torch.ones(1, 2))
    tensor([[13.]])
    """
    cross = F.linear(z, scale * shift)
    return F.linear(z.square(), scale.square()) + 2 * cross + shift.square().sum(1)


def sigmoidal_units(
    settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Return logit(mixture of sigmoids at z) and the log of its slope, row by row.

    Row r has ``weight @ settings[r] + bias`` = (alpha, beta, omega), m each. With slopes
    a = softplus(alpha), weights w = softmax(omega) and s = sigmoid(a z + beta), the mixture is
    sum w s, squeezed by 1e-6 to stay inside (0, 1). Rows go through in chunks and are computed
    again for the gradient, so memory holds the arguments and not 3 m values a row.

    Parameters
    ----------
    settings
        (rows, o); o may be 0, then every row is warped by the bias alone.
    z
        (rows,).
    weight, bias
        (3 m, o) and (3 m,).

    Examples
    --------
    >>> warped, log_slope = sigmoidal_units(
    ...     torch.zeros(2, 0), torch.tensor([0.0, 1.0]), torch.zeros(3, 0), torch.zeros(3)
    ... )
    >>> warped  # one unit of slope softplus(0) = 0.6931
    tensor([0.0000, 0.6931])
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
        for rows in _chunks(len(z)):
            _, a, w, s, bell = _units(settings[rows], z[rows], weight, bias)
            level = (w * s).sum(0) * (1 - _EPS) + _EPS / 2
            slope = (w.mul_(a) * bell).sum(0).clamp_(min=_SLOPE_FLOOR)
            log_on, log_off = level.log(), torch.log1p(-level)
            warped[rows] = log_on - log_off
            log_slope[rows] = slope.log_() + math.log1p(-_EPS) - log_on - log_off
        return warped, log_slope

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, grad_warped: Tensor, grad_log: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        settings, z, weight, bias = cast(tuple[Tensor, ...], ctx.saved_tensors)
        grad_settings, grad_z = torch.empty_like(settings), torch.empty_like(z)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for rows in _chunks(len(z)):
            part = settings[rows]
            grad, grad_z[rows] = _units_backward(
                part, z[rows], weight, bias, grad_warped[rows], grad_log[rows]
            )
            torch.mm(grad.T, weight, out=grad_settings[rows])
            grad_weight.addmm_(grad, part)
            grad_bias += grad.sum(1)
        return grad_settings, grad_z, grad_weight, grad_bias


def _chunks(n_rows: int) -> Iterator[slice]:
    for start in range(0, n_rows, _CHUNK_ROWS):
        yield slice(start, start + _CHUNK_ROWS)


def _units(
    settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return alpha, a, w, s and s (1 - s), each (m, rows): with units first, sums vectorize."""
    alpha, beta, omega = torch.addmm(bias[:, None], weight, settings.T).chunk(3)
    a = F.softplus(alpha)
    w = torch.softmax(omega, 0)
    t = torch.addcmul(beta, a, z)
    s = torch.sigmoid(t)
    # sigmoid(-t), because 1 - sigmoid(t) is exactly 0 from t = 17 on.
    return alpha, a, w, s, torch.sigmoid(t.neg_()).mul_(s)


def _units_backward(
    settings: Tensor, z: Tensor, weight: Tensor, bias: Tensor, grad_warped: Tensor, grad_log: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of (alpha, beta, omega), (3 m, rows), and of z, (rows,)."""
    alpha, a, w, s, bell = _units(settings, z, weight, bias)
    mean, slope = (w * s).sum(0), (w * a * bell).sum(0)
    level = mean * (1 - _EPS) + _EPS / 2
    grad_mean = (1 - _EPS) * (
        grad_warped / (level * (1 - level)) + grad_log * (1 / (1 - level) - 1 / level)
    )
    grad_slope = grad_log / slope.clamp(min=_SLOPE_FLOOR)
    kernel = w * bell
    grad_t = kernel * (grad_mean + grad_slope * a * (1 - 2 * s))
    grad_a = kernel * grad_slope + grad_t * z
    grad_w = grad_mean * (s - mean) + grad_slope * (a * bell - slope)
    grad = torch.cat([grad_a * torch.sigmoid(alpha), grad_t, w * grad_w])
    return grad, (grad_t * a).sum(0)
