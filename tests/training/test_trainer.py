"""The loop: fair, exact, repeatable, and honest about what went wrong."""

import math
import random
import signal
import threading

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from tailbatch import losses
from tailbatch.data import MultiLabelDataset, Parts, split, stratified_split
from tailbatch.errors import TrainingError, TrainingInterrupted
from tailbatch.metrics import evaluate
from tailbatch.models import MODELS, make_model, wrap
from tailbatch.results import TrainingPlan
from tailbatch.selection import STRATEGIES, Geometric, Selector, make_selector
from tailbatch.training import Callback, Trainer, weights_digest


def validation_scores(model, parts):
    scores = model.predict_proba(torch.from_numpy(parts.validation.X.astype(np.float32)))
    return evaluate(parts.validation.Y, scores.numpy())


@pytest.mark.parametrize("name", MODELS)
def test_the_model_holds_the_best_epochs_weights_bit_for_bit(train, parts, name):
    model, training = train(name, epochs=6)
    best = max(epoch.validation["macro_auc"] for epoch in training.epochs)
    assert training.best.validation["macro_auc"] == best
    again = validation_scores(model, parts)
    assert {name: again[name] for name in ("macro_auc", "macro_f", "ranking_loss")} == {
        name: training.best.validation[name] for name in ("macro_auc", "macro_f", "ranking_loss")
    }


def test_the_best_weights_do_not_follow_later_steps(train):
    rng = np.random.default_rng(3)
    data = MultiLabelDataset.from_arrays(rng.random((60, 4)), rng.random((60, 3)) < 0.3)
    noise = split(data, stratified_split(data.Y, validation=0.3, test=0, seed=0))
    model = make_model("mlp", noise.train, seed=0)
    digests = []

    class Digests(Callback):
        def on_epoch(self, epoch):
            digests.append(weights_digest(model))

    _, training = train(model, parts=noise, epochs=12, trainer={"callbacks": [Digests()]})
    assert training.best_epoch < 12, "on noise the last epoch is not the best"
    assert weights_digest(model) == digests[training.best_epoch - 1]
    assert len(set(digests)) == 12


def test_every_strategy_shares_the_warm_up_bit_for_bit(train):
    runs = {name: train(strategy=name, epochs=3, warm_up_epochs=2)[1] for name in STRATEGIES}
    assert len({run.warm_up_digest for run in runs.values()}) == 1
    ends = {tuple(run.batch_objectives.tolist()) for run in runs.values()}
    assert len(ends) == len(STRATEGIES), "after the warm-up every strategy goes its own way"


def test_exposure_counts_the_draws_of_all_epochs(train):
    _, training = train(strategy="minority", pressure=Geometric(64, 1), epochs=6)
    assert training.label_exposure[2] > 1.1, "the rarest label, drawn under pressure"
    last = training.diagnostics.label_exposure
    assert training.label_exposure[2] > last[2], "the pressure is gone in the last epoch"


def test_trainings_of_one_seed_agree_and_of_two_differ(train):
    (one, first), (two, second), (three, _) = train(), train(), train(seed=1)
    assert weights_digest(one) == weights_digest(two) != weights_digest(three)
    assert np.array_equal(first.batch_objectives, second.batch_objectives)


def test_the_hosts_random_state_is_never_touched(train, parts):
    def states():
        return [
            torch.get_rng_state().tolist(),
            [part if isinstance(part, int) else list(part) for part in np.random.get_state()[1:3]],
            random.getstate(),
        ]

    class Watch(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            assert states() == before

        def on_epoch(self, epoch):
            assert states() == before

    noisy = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    before = states()
    train(wrap(noisy), epochs=2, trainer={"callbacks": [Watch()]})
    train("mpvae", epochs=2, trainer={"callbacks": [Watch()]})
    assert states() == before


def test_losses_come_from_the_training_pass_itself(train, parts):
    model = make_model("mlp", parts.train, seed=0)
    calls = {"step": 0, "forward": 0}
    step, forward = model.step, model.forward

    def counted(name, function):
        def call(*args):
            calls[name] += 1
            return function(*args)

        return call

    model.step, model.forward = counted("step", step), counted("forward", forward)
    _, training = train(model, epochs=3, training_loss_every=0)
    batches = 3 * math.ceil(parts.train.n_samples / 16)
    assert calls["step"] == len(training.batch_objectives) == batches
    assert calls["forward"] == batches + 3, "one forward a step, and one a validation"


@pytest.mark.parametrize(("kind", "per_label"), [("bce", True), ("model", False)])
def test_the_selector_hears_per_label_bce_or_the_models_own_loss(
    train, monkeypatch, kind, per_label
):
    heard = []
    observe = Selector.observe

    def listen(self, losses, index=None):
        heard.append((losses.shape, len(self._pending[0].index)))
        observe(self, losses, index)

    monkeypatch.setattr(Selector, "observe", listen)
    _, training = train("c2ae", epochs=2, selection_loss=kind)
    assert len(heard) == len(training.batch_objectives)
    assert {shape == ((size, 3) if per_label else (size,)) for shape, size in heard} == {True}


def test_the_training_loss_is_measured_over_all_rows(train, parts):
    model, training = train(epochs=3, sample_loss_epochs=(1, 3))
    assert list(training.sample_losses) == [1, 3]
    last = training.sample_losses[3]
    assert last.shape == (parts.train.n_samples,)
    assert training.epochs[2].training_bce == pytest.approx(last.mean())
    # The MLP's objective is the BCE's sum over its labels, so both agree.
    total = parts.train.n_labels * last.mean()
    assert training.epochs[2].training_objective == pytest.approx(total, rel=1e-6)
    if training.best_epoch == 3:
        p = model.predict_proba(torch.from_numpy(parts.train.X.astype(np.float32))).double()
        y = torch.from_numpy(parts.train.Y).double()
        expected = nn.functional.binary_cross_entropy(p, y, reduction="none").mean(1)
        assert last == pytest.approx(expected.numpy(), abs=1e-5)


def test_the_training_loss_every_second_epoch_or_never(train):
    _, second = train(epochs=4, training_loss_every=2)
    assert [epoch.training_bce is None for epoch in second.epochs] == [True, False, True, False]
    _, never = train(epochs=2, training_loss_every=0)
    assert all(epoch.training_objective is None for epoch in never.epochs)


def test_measuring_does_not_change_the_training(train):
    one, _ = train("mpvae", training_loss_every=0)
    two, _ = train("mpvae", training_loss_every=1, sample_loss_epochs=(2,))
    assert weights_digest(one) == weights_digest(two)


def test_early_stopping_waits_for_a_better_epoch(train):
    _, training = train(epochs=50, lr=0.3, early_stopping=2)
    assert len(training.epochs) < 50
    assert len(training.epochs) == training.best_epoch + 2


def test_lower_is_better_for_a_loss(train):
    _, training = train(epochs=6, best_by="ranking_loss")
    values = [epoch.validation["ranking_loss"] for epoch in training.epochs]
    assert training.best.validation["ranking_loss"] == min(values)
    last = len(values) - values[::-1].index(min(values))
    assert training.best_epoch == last, "of equally good epochs the last counts"


def test_gradient_clipping_bounds_a_step(train, parts):
    norms = []

    def after_step(optimizer, args, kwargs):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(torch.stack([g.norm() for g in gradients]).norm().item())

    handle = register_optimizer_step_post_hook(after_step)
    try:
        train(epochs=1, gradient_clip=0.01)
        clipped = max(norms)
        norms.clear()
        train(epochs=1)
    finally:
        handle.remove()
    assert clipped <= 0.0101 < max(norms)


def test_a_scheduler_of_torch_by_name(train):
    _, training = train(
        epochs=4, scheduler="ExponentialLR", scheduler_options={"gamma": 0.5}, lr=0.01
    )
    assert [epoch.lr for epoch in training.epochs] == pytest.approx([0.01, 0.01, 0.005, 0.0025])


def test_without_validation_rows_the_last_epoch_counts(train, parts):
    none = Parts(parts.train, parts.validation.take(np.zeros(0, int)), parts.test)
    _, training = train(parts=none, epochs=3)
    assert training.best_epoch == 3
    assert training.best.validation == {}


def test_where_no_label_can_be_scored_the_last_epoch_counts(train, parts):
    one = Parts(parts.train, parts.validation.take(np.array([0])), parts.test)
    _, training = train(parts=one, epochs=3)
    assert math.isnan(training.best.validation["macro_auc"])
    assert training.best_epoch == 3


def test_sparse_rows_train_like_dense_ones(train, parts):
    def as_csr(part):
        return MultiLabelDataset.from_arrays(sparse.csr_array(part.X), part.Y)

    csr = Parts(as_csr(parts.train), as_csr(parts.validation), as_csr(parts.test))
    assert weights_digest(train(parts=csr)[0]) == weights_digest(train()[0])


@pytest.fixture(scope="module")
def wide():
    """Rows with two of 200 features each, so that a batch has few of them."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((120, 200), density=0.01, rng=rng, format="csr")
    data = MultiLabelDataset.from_arrays(X, rng.random((120, 3)) < 0.4)
    return split(data, stratified_split(data.Y, validation=0.125, test=0.125, seed=0))


def layouts_of_gradients(train, parts, **fields):
    """Return the layouts of the first layer's gradients over a training."""
    model = make_model("ensemble", parts.train, seed=0)
    seen = set()
    hook = register_optimizer_step_post_hook(lambda *_: seen.add(model.body.weight.grad.layout))
    train(model, parts=parts, **fields)
    hook.remove()
    return seen


def test_gradients_are_sparse_where_a_batch_has_few_of_the_features(train, wide, parts):
    mini = {"optimizer": "adam_mini"}
    assert layouts_of_gradients(train, wide, **mini) == {torch.sparse_coo}
    assert layouts_of_gradients(train, wide, optimizer="adamw") == {torch.strided}
    assert layouts_of_gradients(train, wide, gradient_clip=1.0, **mini) == {torch.strided}
    assert layouts_of_gradients(train, parts, **mini) == {torch.strided}


@pytest.mark.parametrize("step", [1, 13])
def test_sparse_gradients_resume_bit_identically(train, wide, tmp_path, step):
    settings = {"parts": wide, "optimizer": "adam_mini", "weight_decay": 0.1}
    whole, _ = train("ensemble", **settings)
    checkpoint = tmp_path / "checkpoint.safetensors"
    stop = {"checkpoint": checkpoint, "callbacks": [StopAt(step)]}
    with pytest.raises(TrainingInterrupted):
        train("ensemble", **settings, trainer=stop)
    resumed, _ = train("ensemble", **settings, trainer={"checkpoint": checkpoint})
    assert weights_digest(resumed) == weights_digest(whole)


def test_callbacks_hear_every_batch_and_epoch(train):
    heard = []

    class Ear(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            heard.append((step, steps_per_epoch, objective))

        def on_epoch(self, epoch):
            heard.append(epoch)

    _, training = train(epochs=2, trainer={"callbacks": [Ear()]})
    steps = len(training.batch_objectives)
    batches = [entry for entry in heard if isinstance(entry, tuple)]
    assert [entry[0] for entry in batches] == list(range(1, steps + 1))
    assert [entry[2] for entry in batches] == training.batch_objectives.tolist()
    assert heard[-1] is training.epochs[-1]
    assert training.epochs[0].steps == batches[0][1] == steps // 2


class Explosive(nn.Module):
    """Turns to NaN for one sample, from some call on."""

    def __init__(self, after):
        super().__init__()
        self.linear, self.calls, self.after = nn.Linear(6, 3), 0, after

    def forward(self, x):
        self.calls += self.training
        logits = self.linear(x)
        if self.calls > self.after:
            logits = logits + torch.where(torch.arange(len(x)) == 2, math.nan, 0.0)[:, None]
        return logits


def test_a_loss_that_turns_nan_stops_with_all_names(train, parts, tmp_path):
    checkpoint = tmp_path / "checkpoint.safetensors"
    steps = math.ceil(parts.train.n_samples / 16)
    drawn = []
    model = wrap(Explosive(after=steps + 1))

    class Watch(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            drawn.append(weights_digest(model))

    trainer = {"checkpoint": checkpoint, "checkpoint_every": 1, "callbacks": [Watch()]}
    with pytest.raises(TrainingError) as error:
        train(model, trainer=trainer)
    message = str(error.value)
    assert "the loss is no longer a number in epoch 2, batch 2 (samples " in message
    assert f"last good checkpoint: {checkpoint}; try a smaller lr" in message
    assert weights_digest(model) == drawn[-1], "the bad step reached no weight"


def test_a_nan_without_checkpoint_says_none(train):
    with pytest.raises(TrainingError, match=r"epoch 1, batch 1 .*last good checkpoint: none"):
        train(wrap(Explosive(after=0)))


def test_unknown_best_by_and_device_are_named():
    with pytest.raises(TrainingError, match=r"best_by must be one of .*macro_auc.*, got 'auc'"):
        Trainer(TrainingPlan(best_by="auc"))
    with pytest.raises(TrainingError, match=r'device must be "auto".* got \'tpu9\''):
        Trainer(TrainingPlan(), device="tpu9")
    if not torch.cuda.is_available():
        with pytest.raises(TrainingError, match="got 'cuda'"):
            Trainer(TrainingPlan(), device="cuda")
    assert Trainer(TrainingPlan(), device="auto").device.type in ("cpu", "cuda", "mps")


class StopAt(Callback):
    """Sends a signal after a step."""

    def __init__(self, step):
        self.step = step

    def on_batch(self, step, steps_per_epoch, objective):
        if step == self.step:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("step", [1, 6, 9, 13])
def test_resuming_is_bit_identical_wherever_it_stopped(train, parts, tmp_path, strategy, step):
    settings = {
        "strategy": strategy,
        "scheduler": "CosineAnnealingLR",
        "scheduler_options": {"T_max": 3},
        "sample_loss_epochs": (1, 3),
    }
    assert math.ceil(parts.train.n_samples / 16) == 6, "step 6 is the end of an epoch"
    whole, expected = train(**settings)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(TrainingInterrupted, match=r"stopped by SIGTERM .* so far is in .*"):
        train(**settings, trainer={"checkpoint": checkpoint, "callbacks": [StopAt(step)]})
    resumed, training = train(**settings, trainer={"checkpoint": checkpoint})
    assert weights_digest(resumed) == weights_digest(whole)
    assert np.array_equal(training.batch_objectives, expected.batch_objectives)
    assert [e.validation for e in training.epochs] == [e.validation for e in expected.epochs]
    assert [e.lr for e in training.epochs] == [e.lr for e in expected.epochs]
    assert training.best_epoch == expected.best_epoch
    assert training.warm_up_digest == expected.warm_up_digest
    assert np.array_equal(training.label_exposure, expected.label_exposure)
    for number in (1, 3):
        assert np.array_equal(training.sample_losses[number], expected.sample_losses[number])


@pytest.mark.parametrize("model", ["mpvae", "dela", "clif"])
def test_models_with_noise_and_buffers_resume_bit_identically(train, tmp_path, model):
    whole, _ = train(model)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(TrainingInterrupted):
        train(model, trainer={"checkpoint": checkpoint, "callbacks": [StopAt(8)]})
    resumed, _ = train(model, trainer={"checkpoint": checkpoint})
    assert weights_digest(resumed) == weights_digest(whole)


def test_an_interrupted_training_gives_the_signals_back(train, tmp_path):
    former = signal.getsignal(signal.SIGTERM)
    trainer = {"checkpoint": tmp_path / "c.safetensors", "callbacks": [StopAt(2)]}
    with pytest.raises(TrainingInterrupted):
        train(trainer=trainer)
    assert signal.getsignal(signal.SIGTERM) is former


def test_other_threads_leave_signals_alone(train, tmp_path):
    former, seen = signal.getsignal(signal.SIGTERM), []

    class Watch(Callback):
        def on_batch(self, step, steps_per_epoch, objective):
            seen.append(signal.getsignal(signal.SIGTERM) is former)

    trainer = {"checkpoint": tmp_path / "c.safetensors", "callbacks": [Watch()]}
    thread = threading.Thread(target=train, kwargs={"trainer": trainer, "epochs": 1})
    thread.start()
    thread.join()
    assert seen == [True] * 6


def test_a_finished_checkpoint_is_read_not_trained_again(train, tmp_path):
    trainer = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 4}
    first, training = train(trainer=trainer)
    second, again = train(trainer=trainer)
    assert weights_digest(first) == weights_digest(second)
    assert [epoch.seconds for epoch in again.epochs] == [e.seconds for e in training.epochs]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": 0.02}, "its lr is 0.01, this one's is 0.02"),
        ({"seed": 1}, "its seed is 0, this one's is 1"),
        ({"model": "c2ae"}, "its .* is "),
        ({"strategy": "hard"}, "hard"),
        ({"pressure": 2}, "saved with selection_pressure 16, this selector has 2"),
    ],
)
def test_another_trainings_checkpoint_is_refused(train, tmp_path, change, named):
    trainer = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 1}
    train(trainer=trainer)
    with pytest.raises(TrainingError, match=rf"belongs to a different training run \(.*{named}"):
        train(trainer=trainer, **change)


class Halved(losses.BCE):
    """A loss that is not registered, so only its class names it."""

    def cells(self, logits, y):
        return super().cells(logits, y) / 2


class Leveled(losses.Loss):
    """A loss whose option is an array."""

    def __init__(self, n_labels, *, levels):
        super().__init__(n_labels, levels=levels)

    def cells(self, logits, y):
        return (logits - y) ** 2 * float(self.options["levels"].sum())


LOSSES_TO_RESUME = {
    "bce": lambda: "bce",
    "focal": lambda: "focal",
    "focal, gamma 1": lambda: {"name": "focal", "gamma": 1.0},
    "own": lambda: Halved(3),
    "own, array": lambda: Leveled(3, levels=np.ones(2)),
    "own, other array": lambda: Leveled(3, levels=torch.tensor([1.0, 2.0])),
}


@pytest.mark.parametrize("second", LOSSES_TO_RESUME)
@pytest.mark.parametrize("first", LOSSES_TO_RESUME)
def test_training_goes_on_with_the_loss_it_began_with_only(train, parts, tmp_path, first, second):
    trainer = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 1}

    def made(name):
        return make_model("mlp", parts.train, seed=0, loss=LOSSES_TO_RESUME[name]())

    whole, _ = train(made(first), trainer=trainer)
    if first == second:
        resumed, _ = train(made(second), trainer=trainer)
        assert weights_digest(resumed) == weights_digest(whole)
    else:
        with pytest.raises(TrainingError, match=r"different training run \(its loss(__\w+)? is "):
            train(made(second), trainer=trainer)


def test_a_refused_checkpoint_leaves_model_and_selector_as_they_were(train, parts, tmp_path):
    trainer = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 1}
    train(trainer=trainer)
    model = make_model("mlp", parts.train, seed=0)
    options = {"weights": 1.0, "batch_size": 16, "warm_up_epochs": 1, "cap_quantile": 0.9}
    selector = make_selector("adaptive", parts.train.Y, **options)
    before = weights_digest(model), selector.digest()
    plan = TrainingPlan(epochs=4, batch_size=16, lr=0.01, warm_up_epochs=1)
    with pytest.raises(
        TrainingError, match=r"cap_quantile None, this selector has 0.9, with weigh"
    ):
        Trainer(plan, **trainer).fit(model, parts, selector)
    assert (weights_digest(model), selector.digest()) == before


def test_another_datasets_checkpoint_is_refused(train, parts, tmp_path):
    trainer = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 1}
    train(trainer=trainer)
    other = Parts(parts.train.take(np.arange(parts.train.n_samples)[::-1]), *[parts.validation] * 2)
    with pytest.raises(TrainingError, match=r"belongs to a different training run \(its data is"):
        train(trainer=trainer, parts=other)
