"""The optimizers of a training plan; Adam-mini is ours, the others are torch's."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tailbatch.models import MultiLabelModel
from tailbatch.results import TrainingPlan

DECAY_EVERY = 16
"""Steps after which weights with sparse gradients are decayed, by all of these steps' decay at once."""

_BLOCK = 256  # rows


class AdamMini(torch.optim.Optimizer):
    """AdamW with one second moment per output unit (Zhang et al., 2024, arXiv 2406.16793).

    Adam divides every weight's step by the size of that weight's own gradient, so a weight between a
    rare feature and a rare label, which is mostly noise, moves as far as any other. Here the weights
    into one unit share one gradient size: a rare label still gets its full step, and within it
    features count in proportion to their gradients.

    A sparse gradient of a weight whose rows share their moments moves only the rows it has, so that a
    step costs what the batch has. Such a weight has no first moment: each gradient takes full effect at
    once, not over the next steps. That is the same as ``betas=(0, beta2)``, except that decay comes every
    `DECAY_EVERY` steps, for all of them.

    Parameters
    ----------
    params
        Groups of parameters. ``moment_axes`` of a group holds, for each of its parameters, the axes
        over which squared gradients are averaged; None averages over all but the first, and does not
        average vectors.
    lr, weight_decay
        Step size and decoupled decay: each step first shrinks weights by lr * weight_decay.
    betas, eps
        As in Adam; eps only guards against units whose gradient is zero.

    Examples
    --------
    >>> layer = nn.Linear(3, 2)
    >>> optimizer = AdamMini(layer.parameters(), lr=0.1)
    >>> layer(torch.ones(1, 3)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.state[layer.weight]["exp_avg_sq"].shape
    torch.Size([2, 1])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-12,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "betas": betas,
            "eps": eps,
            "moment_axes": None,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] # no closure is needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            axes = group["moment_axes"] or [None] * len(group["params"])
            for parameter, shared in zip(group["params"], axes, strict=True):
                if parameter.grad is None:
                    continue
                axes_of = tuple(range(1, parameter.ndim)) if shared is None else shared
                if parameter.grad.is_sparse:
                    self._update_rows(parameter, axes_of, group)
                else:
                    self._update(parameter, axes_of, group)

    def _update(self, parameter: Tensor, axes: tuple[int, ...], group: dict[str, Any]) -> None:
        gradient: Tensor = parameter.grad  # type: ignore[assignment] # there is one
        state = self.state[parameter]
        if "exp_avg" not in state:
            state["exp_avg"] = torch.zeros_like(parameter)
        first = group["betas"][0]
        size, number = self._gradient_size(parameter, gradient, axes, group)
        state["exp_avg"].lerp_(gradient, 1 - first)
        if group["weight_decay"]:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(state["exp_avg"], size, value=-group["lr"] / (1 - first**number))

    def _update_rows(self, parameter: Tensor, axes: tuple[int, ...], group: dict[str, Any]) -> None:
        """Update the rows that a sparse gradient has; all rows decay, a few steps at a time."""
        rows, values = _rows_of(parameter.grad)  # type: ignore[arg-type] # there is one
        if axes != (0,):
            raise ValueError("a sparse gradient needs weights that share moments along its rows")
        state = self.state[parameter]
        if "decay" not in state:
            state["decay"] = torch.ones(())
        size, number = self._gradient_size(parameter, values, axes, group)
        state["decay"] *= 1 - group["lr"] * group["weight_decay"]
        if number % DECAY_EVERY == 0:
            parameter.mul_(state["decay"])
            state["decay"].fill_(1.0)
        for at, block in zip(torch.split(rows, _BLOCK), torch.split(values, _BLOCK), strict=True):
            parameter.index_add_(0, at, block / size, alpha=-group["lr"])

    def _gradient_size(
        self, parameter: Tensor, values: Tensor, axes: tuple[int, ...], group: dict[str, Any]
    ) -> tuple[Tensor, int]:
        """Return the running size of the gradient along some axes, and the number of the step.

        Values left out of a sparse gradient are zeros, so the mean is over the parameter's shape.
        """
        state = self.state[parameter]
        if "exp_avg_sq" not in state:
            shape = [1 if axis in axes else n for axis, n in enumerate(parameter.shape)]
            state["step"] = torch.zeros(())
            state["exp_avg_sq"] = parameter.new_zeros(shape)
        second = group["betas"][1]
        state["step"] += 1
        number = int(state["step"].item())
        count = math.prod(parameter.shape[axis] for axis in axes)
        squares = _sum_of_squares(values, axes).div_(count)
        state["exp_avg_sq"].lerp_(squares, 1 - second)
        size = (state["exp_avg_sq"] / (1 - second**number)).sqrt_().add_(group["eps"])
        return size, number


def _rows_of(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a sparse gradient, each once, and their values."""
    rows = gradient._indices()[0]
    if not (
        rows.diff() > 0
    ).all():  # a layer's own are in order; adding them up forgets that it knew
        gradient = gradient.coalesce()
    return gradient._indices()[0], gradient._values()


def _sum_of_squares(values: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the sum of the squares over some axes, which are kept with length 1."""
    if axes != (0,):
        return values.square().sum(axes, keepdim=True) if axes else values.square()
    # Along the first axis in blocks that fit into the cache: up to 20 times faster.
    blocks = [block.square().sum(0, keepdim=True) for block in torch.split(values, _BLOCK)]
    return torch.cat(blocks).sum(0, keepdim=True)


def make_optimizer(plan: TrainingPlan, model: MultiLabelModel) -> torch.optim.Optimizer:
    """Return the optimizer a plan names, over a model's parameters.

    Examples
    --------
    >>> from tailbatch.models import MLP
    >>> type(make_optimizer(TrainingPlan(optimizer="adam_mini"), MLP(4, 2))).__name__
    'AdamMini'
    """
    groups = model.param_groups(plan.lr, plan.weight_decay)
    if plan.optimizer == "adam":
        return torch.optim.Adam(groups, fused=True)
    if plan.optimizer == "adamw":
        return torch.optim.AdamW(groups, fused=True)
    axes = _declared_axes(model)
    for group in groups:
        members: Any = group["params"]
        group["moment_axes"] = [axes.get(id(parameter)) for parameter in members]
    return AdamMini(groups)


def _declared_axes(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """Return the input axes that modules declare for parameters whose first axis is not the output."""
    return {
        id(getattr(module, name)): axes
        for module in model.modules()
        for name, axes in getattr(module, "moment_axes", {}).items()
    }
