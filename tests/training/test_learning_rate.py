"""The rate of each step: linear warm-up of every group, then torch's schedulers once an epoch."""

import pytest
import torch

from tailbatch.errors import TrainingError
from tailbatch.results import TrainingPlan
from tailbatch.training.optimizers import LearningRate


def two_groups():
    tensors = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    return torch.optim.Adam(
        [{"params": [tensors[0]], "lr": 0.1}, {"params": [tensors[1]], "lr": 0.08}]
    )


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def test_warm_up_raises_each_group_to_its_own_rate():
    optimizer = two_groups()
    rate = LearningRate(optimizer, TrainingPlan(warm_up_epochs=2), steps_per_epoch=2)
    seen = []
    for step in range(6):
        rate.before_step(step)
        seen.append(rates(optimizer))
    assert [first for first, _ in seen] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert [second for _, second in seen] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.08, 0.08])


def test_without_warm_up_the_rate_is_constant():
    optimizer = two_groups()
    LearningRate(optimizer, TrainingPlan(warm_up_epochs=0), steps_per_epoch=2).before_step(0)
    assert rates(optimizer) == [0.1, 0.08]


def test_a_scheduler_starts_after_the_warm_up():
    optimizer = two_groups()
    plan = TrainingPlan(
        warm_up_epochs=1, scheduler="StepLR", scheduler_options={"step_size": 1, "gamma": 0.5}
    )
    rate = LearningRate(optimizer, plan, steps_per_epoch=1)
    seen = []
    for epoch in range(1, 4):
        rate.before_step(epoch - 1)
        optimizer.step()
        rate.after_epoch(epoch, 0.5)
        seen.append(rates(optimizer)[0])
    assert seen == pytest.approx([0.1, 0.05, 0.025])


def test_plateau_scheduler_hears_the_validation_score():
    optimizer = two_groups()
    plan = TrainingPlan(
        warm_up_epochs=0,
        scheduler="ReduceLROnPlateau",
        scheduler_options={"mode": "max", "patience": 0, "factor": 0.5},
    )
    rate = LearningRate(optimizer, plan, steps_per_epoch=1)
    for epoch, score in enumerate([0.5, 0.6, 0.55], start=1):
        rate.after_epoch(epoch, score)
    assert rates(optimizer) == pytest.approx([0.05, 0.04])


@pytest.mark.parametrize("name", ["Cosine", "Optimizer", "LRScheduler.__init__", "warnings"])
def test_unknown_scheduler_is_named(name):
    with pytest.raises(TrainingError, match=r"unknown scheduler '" + name):
        LearningRate(two_groups(), TrainingPlan(scheduler=name), steps_per_epoch=1)


def test_wrong_scheduler_options_are_named():
    plan = TrainingPlan(scheduler="StepLR", scheduler_options={"stepsize": 1})
    with pytest.raises(TrainingError, match=r"scheduler_options do not fit StepLR.*stepsize"):
        LearningRate(two_groups(), plan, steps_per_epoch=1)
