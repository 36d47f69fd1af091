"""What a plan may ask of the loop: a schedule, an optimizer, averaged weights, a budget in steps."""

import math
import signal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import sparse
from torch import nn

from tailbatch.data import MultiLabelDataset, Parts
from tailbatch.errors import TrainingError, TrainingInterrupted
from tailbatch.models import make_model, wrap
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Callback, Trainer, weights_digest
from tailbatch.training.checkpoints import load_checkpoint, save_checkpoint
from tailbatch.training.optimizers import LearningRate, WeightAverage

STEPS = 6  # an epoch of the small problem


class StopAt(Callback):
    """Sends a signal after a step."""

    def __init__(self, step):
        self.step = step

    def on_batch(self, step, steps_per_epoch, objective):
        if step == self.step:
            signal.raise_signal(signal.SIGTERM)


def rates_of(plan, n_steps, steps_per_epoch=10):
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=2.0)
    rate = LearningRate(optimizer, plan, steps_per_epoch=steps_per_epoch)
    rates = []
    for step in range(n_steps):
        rate.before_step(step)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def test_a_cosine_rises_over_a_tenth_and_falls_to_zero():
    rates = rates_of(TrainingPlan(schedule="cosine", epochs=10, warm_up_epochs=7), 100)
    assert rates[:10] == pytest.approx([2.0 * (t + 1) / 10 for t in range(10)])
    falling = [1 + math.cos(math.pi * (t - 10) / 90) for t in range(10, 100)]
    assert rates[10:] == pytest.approx(falling)
    assert rates[-1] < 1e-3


def test_a_cosine_ends_with_the_budget_of_steps():
    plan = TrainingPlan(schedule="cosine", steps=25, warm_up_share=0.2)
    rates = rates_of(plan, 25)
    assert rates.index(max(rates)) in (4, 5)
    assert rates[-1] == pytest.approx(1 + math.cos(math.pi * 19 / 20))


@pytest.mark.parametrize("share", [0.0, 0.99])
def test_a_cosine_of_one_step_is_a_step(share):
    assert rates_of(TrainingPlan(schedule="cosine", steps=1, warm_up_share=share), 1) == [2.0]


def test_adam_couples_the_decay_and_adamw_does_not(train):
    (coupled, _), (apart, _) = (
        train(optimizer=name, weight_decay=0.1, epochs=2) for name in ("adam", "adamw")
    )
    none, _ = train(weight_decay=0.0, epochs=2)
    assert len({weights_digest(model) for model in (coupled, apart, none)}) == 3
    one, two = (train(optimizer=name, weight_decay=0.0)[0] for name in ("adam", "adamw"))
    assert weights_digest(one) == weights_digest(two), "without decay they are one"


def test_steps_decide_the_epochs_and_the_last_one_is_cut_short(train, parts):
    assert math.ceil(parts.train.n_samples / 16) == STEPS
    _, training = train(steps=15, epochs=1, strategy="minority")
    assert [epoch.steps for epoch in training.epochs] == [6, 12, 15]
    assert training.epochs[-1].validation
    assert training.epochs[-1].batch_objective == pytest.approx(
        training.batch_objectives[12:].mean()
    )
    _, whole = train(steps=12, epochs=1)
    assert [epoch.steps for epoch in whole.epochs] == [6, 12]


def test_the_steps_of_a_budget_are_those_of_whole_epochs(train):
    _, longer = train(steps=20)
    _, shorter = train(steps=15)
    assert np.array_equal(shorter.batch_objectives, longer.batch_objectives[:15])


def test_evaluation_waits_for_so_many_steps_and_the_end(train):
    _, training = train(steps=33, evaluate_every=10)
    scored = [epoch.number for epoch in training.epochs if epoch.validation]
    assert [epoch.steps for epoch in training.epochs] == [6, 12, 18, 24, 30, 33]
    assert scored == [2, 4, 6]
    assert training.best_epoch in scored
    best = max(training.epochs[number - 1].validation["macro_auc"] for number in scored)
    assert training.best.validation["macro_auc"] == best


def test_early_stopping_counts_evaluated_epochs(train):
    _, training = train(epochs=200, lr=0.3, early_stopping=2, evaluate_every=12)
    scored = [epoch.number for epoch in training.epochs if epoch.validation]
    assert len(training.epochs) < 200
    assert [number > training.best_epoch for number in scored[-2:]] == [True, True]
    assert scored[-3] <= training.best_epoch


def test_only_the_metrics_asked_for_are_computed(train):
    _, training = train(trainer={"metrics": ["micro_f"]}, best_by="macro_average_precision")
    assert list(training.best.validation) == ["micro_f", "macro_average_precision"]
    _, one = train(trainer={"metrics": ()})
    assert list(one.best.validation) == ["macro_auc"]


def test_the_average_is_the_weighted_mean_of_all_steps():
    layer = nn.Linear(3, 2)
    average, seen = WeightAverage(layer, 0.9), []
    for step in range(7):
        nn.init.normal_(layer.weight)
        seen.append(layer.weight.detach().clone())
        average.update(step)
    shares = torch.tensor([0.9 ** (6 - step) for step in range(7)])
    expected = (torch.stack(seen) * (shares / shares.sum())[:, None, None]).sum(0)
    with average.in_place():
        torch.testing.assert_close(layer.weight.detach(), expected)
    assert torch.equal(layer.weight, seen[-1])


def test_averaged_weights_are_evaluated_and_kept_but_not_trained_on(train, parts):
    plain, without = train(epochs=3)
    averaged, training = train(epochs=3, ema=0.9)
    assert np.array_equal(training.batch_objectives, without.batch_objectives)
    assert training.warm_up_digest == without.warm_up_digest
    assert weights_digest(averaged) != weights_digest(plain)
    again = averaged.predict_proba(torch.from_numpy(parts.validation.X.astype(np.float32)))
    assert torch.isfinite(again).all()
    nearly, _ = train(epochs=3, ema=1e-9)
    for name, weight in nearly.state_dict().items():
        torch.testing.assert_close(weight, plain.state_dict()[name])


def test_buffers_of_an_averaged_model_are_the_live_ones(train):
    def build():
        torch.manual_seed(0)
        return wrap(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))

    fields = {"epochs": 2, "best_by": "macro_f", "evaluate_every": 10**6}  # the last epoch is kept
    plain, _ = train(build(), **fields)
    averaged, _ = train(build(), ema=0.9, **fields)
    live, kept = plain.state_dict(), averaged.state_dict()
    assert torch.equal(live["module.1.running_mean"], kept["module.1.running_mean"])
    assert kept["module.1.num_batches_tracked"] == 2 * STEPS
    assert not torch.equal(live["module.0.weight"], kept["module.0.weight"])


def as_csr(part, wide=60):
    """The rows with many more features that are nearly always zero."""
    rng = np.random.default_rng(1)
    rest = sparse.random_array((part.n_samples, wide), density=0.02, rng=rng)
    few = part.X * (rng.random(part.X.shape) < 0.2)
    X = sparse.hstack([sparse.csr_array(few), rest], format="csr")
    return MultiLabelDataset.from_arrays(X, part.Y)


@pytest.fixture(scope="module")
def sparse_parts(parts):
    return Parts(as_csr(parts.train), as_csr(parts.validation), as_csr(parts.test))


@pytest.mark.parametrize("fields", [{}, {"optimizer": "adamw", "gradient_clip": 0.1, "ema": 0.9}])
def test_sparse_batches_train_like_dense_ones(train, sparse_parts, monkeypatch, fields):
    seen = []
    model = make_model("mlp", sparse_parts.train, seed=0)
    step = model.step
    model.step = lambda x, y: seen.append(x.layout) or step(x, y)
    train(model, parts=sparse_parts, **fields)
    assert set(seen) == {torch.sparse_csr}
    monkeypatch.setattr("tailbatch.training.rows._SPARSE_SHARE", -1.0)
    dense, _ = train(parts=sparse_parts, **fields)
    for name, weight in dense.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-3, atol=1e-4)


def test_models_that_take_dense_rows_get_them(train, sparse_parts):
    layouts = set()

    class Watch(nn.Linear):
        def forward(self, x):
            layouts.add(x.layout)
            return super().forward(x)

    train(wrap(Watch(66, 3)), parts=sparse_parts, epochs=1)
    assert layouts == {torch.strided}


@pytest.mark.parametrize("step", [6, 9, 14, 15])
def test_everything_new_resumes_bit_identically(train, sparse_parts, tmp_path, step):
    settings = {
        "parts": sparse_parts,
        "schedule": "cosine",
        "optimizer": "adamw",
        "ema": 0.95,
        "steps": 15,
        "evaluate_every": 8,
        "early_stopping": 5,
        "best_by": "macro_average_precision",
    }
    whole, expected = train(**settings)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(TrainingInterrupted):
        train(**settings, trainer={"checkpoint": checkpoint, "callbacks": [StopAt(step)]})
    resumed, training = train(**settings, trainer={"checkpoint": checkpoint})
    assert weights_digest(resumed) == weights_digest(whole)
    assert np.array_equal(training.batch_objectives, expected.batch_objectives)
    assert [e.validation for e in training.epochs] == [e.validation for e in expected.epochs]
    assert [e.lr for e in training.epochs] == [e.lr for e in expected.epochs]
    assert np.array_equal(training.label_exposure, expected.label_exposure)
    assert training.best_epoch == expected.best_epoch


def test_early_stopping_counts_on_after_a_resume(train, parts, tmp_path):
    settings = {
        "epochs": 60,
        "lr": 0.3,
        "early_stopping": 3,
        "schedule": "cosine",
        "optimizer": "adamw",
        "ema": 0.5,
        "best_by": "macro_average_precision",
    }
    whole, expected = train(**settings)
    assert len(expected.epochs) < 60
    checkpoint = tmp_path / "checkpoint.safetensors"
    stop = StopAt(expected.epochs[-1].steps - STEPS - 1)  # within the patience
    with pytest.raises(TrainingInterrupted):
        train(**settings, trainer={"checkpoint": checkpoint, "callbacks": [stop]})
    resumed, training = train(**settings, trainer={"checkpoint": checkpoint})
    assert len(training.epochs) == len(expected.epochs)
    assert weights_digest(resumed) == weights_digest(whole)


def test_moments_of_another_shape_are_refused(train, parts, tmp_path):
    trainer = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 1}
    train(trainer=trainer, epochs=2)
    saved = load_checkpoint(trainer["checkpoint"])
    moments = saved["optimizer"]["state"][0]
    moments["exp_avg"] = moments["exp_avg"].t()
    save_checkpoint(trainer["checkpoint"], saved)
    with pytest.raises(TrainingError, match=r"different training run \(its exp_avg has shape"):
        train(trainer=trainer, epochs=2)


def test_a_plan_needs_no_epochs_of_the_selector(parts):
    plan = TrainingPlan(steps=8, batch_size=16, warm_up_epochs=0)
    selector = make_selector("random", parts.train.Y, batch_size=16, warm_up_epochs=0)
    model = make_model("mlp", parts.train, seed=0)
    assert Trainer(plan).fit(model, parts, selector).epochs[-1].steps == 8


@pytest.fixture(params=[True, False])
def alone(request):
    """Whether training runs outside of a process group."""
    if not request.param:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield request.param
    if not request.param:
        dist.destroy_process_group()


def test_gradients_that_ranks_average_are_not_reused(train, sparse_parts, alone):
    # The average has rows that this rank's batch has not, so they would never be zeroed again.
    model = make_model("mlp", sparse_parts.train, seed=0)
    reused = set()

    class Watch(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            reused.add(model.body[0]._make_gradient is not None)

    train(model, parts=sparse_parts, epochs=1, trainer={"callbacks": [Watch()]})
    assert reused == {alone}


def test_a_cosine_ends_with_the_training_also_where_steps_are_the_least(parts):
    plan = TrainingPlan(
        epochs=1, min_steps=40, batch_size=16, schedule="cosine", warm_up_epochs=0, lr=0.1
    )
    selector = make_selector("random", parts.train.Y, batch_size=16, warm_up_epochs=0)
    model = make_model("mlp", parts.train, seed=0)
    epochs = Trainer(plan).fit(model, parts, selector).epochs
    rates = [epoch.lr for epoch in epochs]
    assert epochs[-1].steps >= 40
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.001
