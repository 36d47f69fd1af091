"""Importance weights arrive in every framework: the same weights of the model as a loop by hand."""

import numpy as np
import pytest

from integrations.corrected_work import (
    Module,
    Weighing,
    accelerate_rank,
    huggingface_rank,
    lightning_rank,
    plain_loop,
    with_accelerate,
    with_huggingface,
    with_lightning,
    with_trainer,
)
from integrations.ranks import run_ranks
from tailbatch.errors import SelectionError


def same(weights, expected, rtol=1e-4):
    np.testing.assert_allclose(weights, expected, rtol=rtol, atol=1e-5)


def test_the_weights_make_a_difference():
    assert not np.allclose(plain_loop(), plain_loop(weighted=False), rtol=1e-2)


@pytest.mark.parametrize("module", [Module, Weighing])
@pytest.mark.parametrize(
    ("options", "accumulate"), [({}, 1), ({"workers": 2}, 1), ({"accumulate_grad_batches": 4}, 4)]
)
def test_lightning(module, options, accumulate):
    same(with_lightning(module, **options), plain_loop(accumulate))


def test_lightning_with_mixed_precision():
    same(with_lightning(precision="bf16-mixed"), plain_loop(), rtol=0.1)


def test_lightning_on_two_processes():
    for weights in run_ranks(lightning_rank, 2):
        same(weights, plain_loop())


class Summed(Module):
    """Sums over labels and averages over samples, as the losses of this package do."""

    def training_step(self, batch):
        outputs = super().training_step(batch)
        return {**outputs, "loss": outputs["losses"].sum(1).mean()}


class SummedByHand(Module):
    """Does the same, and takes the weights itself, without an index in its batches."""

    def training_step(self, batch):
        losses = super().training_step(batch)["losses"]
        return {"loss": self.selector.mean(losses.sum(1)), "losses": losses}


@pytest.mark.parametrize("module", [Summed, SummedByHand])
def test_lightning_weighs_a_sum_over_labels(module):
    same(with_lightning(module), plain_loop(summed=True))


class Doubled(Module):
    """Trains on a loss that its losses do not explain."""

    index = True

    def training_step(self, batch):
        outputs = super().training_step(batch)
        if not self.index:
            del outputs["index"]
        return {**outputs, "loss": 2 * outputs["loss"]}


class WithoutIndex(Doubled):
    index = False


class Detached(Module):
    def training_step(self, batch):
        outputs = super().training_step(batch)
        return {**outputs, "losses": outputs["losses"].detach()}


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        (Doubled, r"train on selector\.mean\(losses, index\), times .*loss_scale\(index\) on"),
        (WithoutIndex, r"train on selector\.mean\(losses\), times .*loss_scale\(\) on"),
        (Detached, r"nor losses\.sum\(1\)\.mean\(\) of the losses returned with their graph"),
    ],
)
def test_lightning_refuses_a_loss_that_it_cannot_weigh(module, remedy):
    with pytest.raises(SelectionError, match=remedy):
        with_lightning(module)


@pytest.mark.parametrize(("accumulate", "workers"), [(1, 0), (4, 0), (1, 2)])
def test_accelerate(tmp_path, accumulate, workers):
    same(with_accelerate(tmp_path, accumulate, workers), plain_loop(accumulate))


def test_accelerate_with_mixed_precision(tmp_path):
    same(with_accelerate(tmp_path, mixed_precision="bf16"), plain_loop(), rtol=0.1)


def test_accelerate_on_two_processes(tmp_path):
    for weights in run_ranks(accelerate_rank, 2, tmp_path):
        same(weights, plain_loop())


@pytest.mark.parametrize(
    ("options", "accumulate"),
    [
        ({}, 1),
        ({"dataloader_num_workers": 2, "max_lag": 4}, 1),
        ({"gradient_accumulation_steps": 3, "max_lag": 2}, 3),
    ],
)
def test_the_trainer_of_transformers(tmp_path, options, accumulate):
    same(with_huggingface(tmp_path, **options), plain_loop(accumulate))


def test_the_trainer_of_transformers_with_a_weighted_loss(tmp_path):
    options = {"gradient_accumulation_steps": 3, "max_lag": 2}
    same(with_huggingface(tmp_path, loss=True, **options), plain_loop(3, loss=True))


def test_the_trainer_of_transformers_with_mixed_precision(tmp_path):
    same(with_huggingface(tmp_path, bf16=True), plain_loop(), rtol=0.1)


def test_the_trainer_of_transformers_on_two_processes(tmp_path):
    for weights in run_ranks(huggingface_rank, 2, tmp_path):
        same(weights, plain_loop())


def test_two_ranks_train_as_one_process():
    alone = with_trainer()
    for objectives in run_ranks(with_trainer, 2):
        same(objectives, alone, rtol=1e-3)
