"""The optimizers of a training plan; Adam-mini is ours, the others are torch's."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tailbatch.models import MultiLabelModel
from tailbatch.results import TrainingPlan


class AdamMini(torch.optim.Optimizer):
    """AdamW with one second moment per output unit (Zhang et al., 2024, arXiv 2406.16793).

    Adam divides every weight's step by the size of that weight's own gradient, so a weight between a
    rare feature and a rare label, which is mostly noise, moves as far as any other. Here the weights
    into one unit share one gradient size: a rare label still gets its full step, and within it
    features count in proportion to their gradients.

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
                if parameter.grad is not None:
                    axes_of = tuple(range(1, parameter.ndim)) if shared is None else shared
                    squares = _mean_square(parameter.grad, axes_of)
                    self._update(parameter, parameter.grad, squares, group)

    def _update(
        self, parameter: Tensor, gradient: Tensor, squares: Tensor, group: dict[str, Any]
    ) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(squares)
        first, second = group["betas"]
        state["step"] += 1
        number = state["step"].item()
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].lerp_(squares, 1 - second)
        size = (state["exp_avg_sq"] / (1 - second**number)).sqrt_().add_(group["eps"])
        if group["weight_decay"]:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(state["exp_avg"], size, value=-group["lr"] / (1 - first**number))


def _mean_square(gradient: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the mean of the squares over some axes, which are kept with length 1."""
    if not axes:
        return gradient.square()
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=axes, keepdim=True)
    return norm.square_().div_(math.prod(gradient.shape[axis] for axis in axes))


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
