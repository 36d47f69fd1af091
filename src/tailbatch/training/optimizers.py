"""What turns gradients into weights: optimizers, learning rates, and a moving average of the weights."""

import inspect
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from tailbatch.errors import TrainingError
from tailbatch.models import MultiLabelModel
from tailbatch.registry import check_known
from tailbatch.results import TrainingPlan

# Steps after which weights with sparse gradients are decayed, by all of these steps' decay at once.
DECAY_EVERY = 16

_BLOCK = 256  # rows
_EPOCHS_TRIED = 1_000  # of an endless training, by `check_scheduler`


class AdamMini(torch.optim.Optimizer):
    """AdamW with one second moment per output unit (Zhang et al., 2024, arXiv 2406.16793).

    Adam divides each weight's step by the size of its own gradient, so the weight between a rare feature
    and a rare label, mostly noise, moves as far as any other. Here the weights into one unit share one
    gradient size: a rare label gets its full step, and features count by their gradients within it.

    A sparse gradient, of a weight whose rows share their moments, updates only the rows it has, without
    a first moment; the decay comes every `DECAY_EVERY` steps, for all of them together.

    Parameters
    ----------
    params
        Groups of parameters. A group's ``moment_axes`` holds, for each parameter, the axes over which
        squared gradients are averaged; None averages over all but the first.
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
        defaults = {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps}
        super().__init__(params, defaults | {"moment_axes": None})

    # Torch's own import its compiler, three seconds in each process, to keep it from compiling them.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] # no closure is needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            axes = group["moment_axes"] or [None] * len(group["params"])
            for parameter, shared in zip(group["params"], axes, strict=True):
                if parameter.grad is not None:
                    axes_of = tuple(range(1, parameter.ndim)) if shared is None else shared
                    update = self._update_rows if parameter.grad.is_sparse else self._update
                    update(parameter, axes_of, group)

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
        gradient: Tensor = parameter.grad  # type: ignore[assignment] # there is one
        # A layer's own gradient has its rows in order; summing several makes torch forget that it knew.
        if not (gradient._indices()[0].diff() > 0).all():
            gradient = gradient.coalesce()
        rows, values = gradient._indices()[0], gradient._values()
        if axes != (0,):
            raise ValueError("a sparse gradient needs weights that share moments along its rows")
        state = self.state[parameter]
        if "decay" not in state:
            state["decay"] = torch.ones(())
        size, number = self._gradient_size(parameter, values, axes, group)
        state["decay"] *= 1 - group["lr"] * group["weight_decay"]
        # Decay touches every row, which would cost more than all the rest of a sparse step.
        if number % DECAY_EVERY == 0:
            parameter.mul_(state["decay"])
            state["decay"].fill_(1.0)
        for at, block in zip(torch.split(rows, _BLOCK), torch.split(values, _BLOCK), strict=True):
            parameter.index_add_(0, at, block / size, alpha=-group["lr"])

    def _gradient_size(
        self, parameter: Tensor, values: Tensor, axes: tuple[int, ...], group: dict[str, Any]
    ) -> tuple[Tensor, int]:
        """Return the running size of the gradient along some axes, and the number of the step."""
        state = self.state[parameter]
        if "exp_avg_sq" not in state:
            shape = [1 if axis in axes else n for axis, n in enumerate(parameter.shape)]
            state["step"] = torch.zeros(())
            state["exp_avg_sq"] = parameter.new_zeros(shape)
        second = group["betas"][1]
        state["step"] += 1
        number = int(state["step"].item())
        # Of the parameter, because values left out of a sparse gradient are zeros.
        count = math.prod(parameter.shape[axis] for axis in axes)
        squares = _sum_of_squares(values, axes).div_(count)
        state["exp_avg_sq"].lerp_(squares, 1 - second)
        size = (state["exp_avg_sq"] / (1 - second**number)).sqrt_().add_(group["eps"])
        return size, number


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
    # Modules declare the input axes of parameters whose first axis is not the output.
    axes: dict[int, tuple[int, ...]] = {}
    for module in model.modules():
        for name, shared in getattr(module, "moment_axes", {}).items():
            axes[id(getattr(module, name))] = shared
    for group in groups:
        members: Any = group["params"]
        group["moment_axes"] = list(map(axes.get, map(id, members)))
    return AdamMini(groups)


class LearningRate:
    """The rates of a plan: each parameter group's own rate times the schedule's factor for the step.

    Rates rise linearly over the W steps of the warm-up, (t + 1) / W. Then a torch scheduler may change
    a constant schedule once per epoch, and a cosine one ends at zero after T steps:
    (1 + cos(pi (t - W) / (T - W))) / 2.

    Examples
    --------
    >>> optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=0.1)
    >>> rate = LearningRate(optimizer, TrainingPlan(warm_up_epochs=1), steps_per_epoch=4)
    >>> rate.before_step(0)
    >>> optimizer.param_groups[0]["lr"]
    0.025
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, plan: TrainingPlan, *, steps_per_epoch: int
    ) -> None:
        self._optimizer = optimizer
        self._base = list(map(itemgetter("lr"), optimizer.param_groups))
        self._warm_up_epochs = plan.warm_up_epochs
        self._warm_up_steps = plan.warm_up_epochs * steps_per_epoch
        n_epochs = plan.n_epochs(steps_per_epoch * plan.batch_size)
        self._total = plan.steps or n_epochs * steps_per_epoch
        self._is_cosine = plan.schedule == "cosine"
        if self._is_cosine:
            self._warm_up_steps = min(math.ceil(plan.warm_up_share * self._total), self._total - 1)
        self._scheduler = None if plan.scheduler is None else _scheduler(optimizer, plan)

    def before_step(self, step: int, share_of_time: float = 0.0) -> None:
        """Set the rates of step `step`, counted from 0; a cosine is as far as the steps, or the time."""
        warm_up, factor, divisor = self._warm_up_steps, 1.0, 1
        if self._is_cosine:
            step = max(step, int(share_of_time * self._total))
        if self._is_cosine and step >= warm_up:
            factor = (1 + math.cos(math.pi * (step - warm_up) / (self._total - warm_up))) / 2
        elif self._is_cosine:
            factor = (step + 1) / warm_up
        elif step < warm_up:
            factor, divisor = step + 1, warm_up
        else:
            return  # the rate is the scheduler's, if there is one
        for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * factor / divisor

    def after_epoch(self, number: int, validation_score: float) -> None:
        """Advance the scheduler once the warm-up is over; the score is NaN if there is none."""
        if self._scheduler is None or number <= self._warm_up_epochs:
            return
        if isinstance(self._scheduler, lr_scheduler.ReduceLROnPlateau):
            if not math.isnan(validation_score):
                self._scheduler.step(validation_score)
        else:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state; the warm-up has none."""
        return {} if self._scheduler is None else self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state)


def check_scheduler(plan: TrainingPlan) -> None:
    """Raise unless a plan's scheduler is known and its options take it through all epochs.

    Examples
    --------
    >>> check_scheduler(TrainingPlan(scheduler="SteppLR"))
    Traceback (most recent call last):
    ...
    tailbatch.errors.TrainingError: unknown scheduler 'SteppLR'; did you mean 'StepLR'? ...
    """
    if plan.scheduler is None:
        return
    # It is stepped for a weight that nobody trains, so that a mistake is reported when training is
    # planned, not in its last epoch. By name first: the first optimizer of a process takes seconds.
    check_known("scheduler", plan.scheduler, lr_scheduler.__all__, error=TrainingError)
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=plan.lr)
    rate = LearningRate(optimizer, plan, steps_per_epoch=1)
    optimizer.step()  # torch warns if the scheduler steps first
    try:
        for number in range(1, min(plan.epochs, _EPOCHS_TRIED) + 1):
            rate.after_epoch(number, 0.5)
    except Exception as error:
        raise _misfit(plan, error) from error


def _scheduler(optimizer: torch.optim.Optimizer, plan: TrainingPlan) -> lr_scheduler.LRScheduler:
    name = str(plan.scheduler)
    check_known("scheduler", name, lr_scheduler.__all__, error=TrainingError)
    kind: type[lr_scheduler.LRScheduler] = getattr(lr_scheduler, name)
    try:
        return kind(optimizer, **plan.scheduler_options)
    except Exception as error:  # schedulers raise errors of many kinds
        raise _misfit(plan, error) from error


def _misfit(plan: TrainingPlan, error: Exception) -> TrainingError:
    reason = str(error) or type(error).__name__
    return TrainingError(f"scheduler_options do not fit {plan.scheduler}: {reason}")


class WeightAverage:
    """An exponential moving average of a model's parameters; the initial ones have no influence.

    After t steps the weights of step s count decay^(t - s), divided by the sum of these factors. Buffers
    are not averaged: those that change are moving averages already.

    Examples
    --------
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(layer, decay=0.5)
    >>> for step, value in enumerate([1.0, 4.0]):
    ...     _ = nn.init.constant_(layer.weight, value)
    ...     average.update(step)
    >>> with average.in_place():
    ...     round(layer.weight.item(), 6)  # (0.5 * 1 + 4) / 1.5
    3.0
    >>> layer.weight.item()
    4.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._parameters: list[Tensor] = list(model.parameters())
        self._values = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after step `step`, counted from 0."""
        share = (1 - self.decay) / (1 - self.decay ** (step + 1))
        torch._foreach_lerp_(self._values, self._parameters, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the average as the model's weights inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        # Swaps storage; nothing is copied.
        for position, parameter in enumerate(self._parameters):
            self._values[position], parameter.data = parameter.data, self._values[position]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the averages by position."""
        return {str(position): value for position, value in enumerate(self._values)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from saved averages; their number and shapes must match the parameters."""
        for value, saved in zip(self._values, state.values(), strict=True):
            if saved.shape != value.shape:
                raise ValueError(f"its averaged weights have shape {tuple(saved.shape)}")
            value.copy_(saved)
