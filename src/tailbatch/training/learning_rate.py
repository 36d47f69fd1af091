"""The learning rate of each step: a linear warm-up, then any scheduler of torch."""

from typing import Any

import torch
from torch.optim import lr_scheduler

from tailbatch.errors import TrainingError
from tailbatch.results import TrainingPlan


class LearningRate:
    """A linear rise over the warm-up, (t + 1) / W of each group's own rate; then any torch scheduler.

    Parameters
    ----------
    optimizer
        Its groups carry their base rates.
    plan
        Gives the warm-up epochs, the scheduler's name and its options.
    steps_per_epoch
        Batches an epoch, so that W is their number in the warm-up.

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
        self._scheduler = _scheduler(optimizer, plan)

    def before_step(self, step: int) -> None:
        """Set the rates of step `step`, counted from 0."""
        if step < self._warm_up_steps:
            for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
                group["lr"] = base * (step + 1) / self._warm_up_steps

    def after_epoch(self, number: int, validation_score: float) -> None:
        """Let the scheduler move on, once the warm-up is over."""
        if self._scheduler is None or number <= self._warm_up_epochs:
            return
        if isinstance(self._scheduler, lr_scheduler.ReduceLROnPlateau):
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


def _scheduler(
    optimizer: torch.optim.Optimizer, plan: TrainingPlan
) -> lr_scheduler.LRScheduler | None:
    if plan.scheduler is None:
        return None
    kind = getattr(lr_scheduler, plan.scheduler, None)
    if not (isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler)):
        raise TrainingError(
            "scheduler must name a class of torch.optim.lr_scheduler, such as "
            f'"CosineAnnealingLR", got {plan.scheduler!r}'
        )
    try:
        return kind(optimizer, **plan.scheduler_options)
    except (TypeError, ValueError) as error:
        raise TrainingError(f"scheduler_options do not fit {plan.scheduler}: {error}") from error
