"""The learning rate of each step: a linear warm-up, then constant, a cosine, or a torch scheduler."""

import math
from typing import Any

import torch
from torch.optim import lr_scheduler

from tailbatch.errors import TrainingError
from tailbatch.registry import check_known
from tailbatch.results import TrainingPlan

_STEPS_TRIED = 1_000  # of an endless training


def cosine_factor(step: int, warm_up: int, total: int) -> float:
    """Return the factor of a cosine schedule at step t of T, with W steps of warm-up.

    (t + 1) / W below W, then (1 + cos(pi (t - W) / (T - W))) / 2, which ends at zero.

    Examples
    --------
    >>> [round(cosine_factor(step, 2, 6), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    if step < warm_up:
        return (step + 1) / warm_up
    return (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up))) / 2


class LearningRate:
    """The rates of a plan: each group's base rate times the schedule's factor for the step.

    A constant schedule rises linearly over the warm-up epochs, (t + 1) / W, and is then left to the
    torch scheduler, if any, once per epoch; a cosine one follows `cosine_factor` throughout.

    Parameters
    ----------
    optimizer
        Its groups carry their base rates.
    plan
        Gives the schedule, the warm-up, the scheduler's name and its options.
    steps_per_epoch
        Batches per epoch.

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
        self._base = [group["lr"] for group in optimizer.param_groups]
        self._warm_up_epochs = plan.warm_up_epochs
        self._warm_up_steps = plan.warm_up_epochs * steps_per_epoch
        n_epochs = plan.n_epochs(steps_per_epoch * plan.batch_size)
        self._total = plan.steps or n_epochs * steps_per_epoch
        self._is_cosine = plan.schedule == "cosine"
        if self._is_cosine:
            self._warm_up_steps = min(math.ceil(plan.warm_up_share * self._total), self._total - 1)
        self._scheduler = _scheduler(optimizer, plan)

    def before_step(self, step: int) -> None:
        """Set the rates of step `step`, counted from 0."""
        if self._is_cosine:
            factor = cosine_factor(step, self._warm_up_steps, self._total)
            rates = [base * factor for base in self._base]
        elif step < self._warm_up_steps:
            rates = [base * (step + 1) / self._warm_up_steps for base in self._base]
        else:
            return
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

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

    The scheduler is made and stepped for one weight that is never trained, so that a mistake is
    reported when training is planned, not in its last epoch.

    Examples
    --------
    >>> check_scheduler(TrainingPlan(scheduler="StepLR", scheduler_options={"step_size": 30}))
    >>> check_scheduler(TrainingPlan(scheduler="SteppLR"))
    Traceback (most recent call last):
    ...
    tailbatch.errors.TrainingError: unknown scheduler 'SteppLR'; did you mean 'StepLR'? ...
    """
    if plan.scheduler is None:
        return
    _kind(plan.scheduler)  # at once: the first optimizer of a process takes seconds to import
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=plan.lr)
    rate = LearningRate(optimizer, plan, steps_per_epoch=1)
    optimizer.step()  # torch warns if the scheduler steps first
    try:
        for number in range(1, min(plan.epochs, _STEPS_TRIED) + 1):
            rate.after_epoch(number, 0.5)
    except Exception as error:
        raise _misfit(plan, error) from error


def _scheduler(
    optimizer: torch.optim.Optimizer, plan: TrainingPlan
) -> lr_scheduler.LRScheduler | None:
    if plan.scheduler is None:
        return None
    kind = _kind(plan.scheduler)
    try:
        return kind(optimizer, **plan.scheduler_options)
    except Exception as error:  # schedulers raise errors of many kinds
        raise _misfit(plan, error) from error


def _kind(name: str) -> type[lr_scheduler.LRScheduler]:
    check_known("scheduler", name, lr_scheduler.__all__, error=TrainingError)
    kind: type[lr_scheduler.LRScheduler] = getattr(lr_scheduler, name)
    return kind


def _misfit(plan: TrainingPlan, error: Exception) -> TrainingError:
    reason = str(error) or type(error).__name__
    return TrainingError(f"scheduler_options do not fit {plan.scheduler}: {reason}")
