"""What the ranks of `test_distributed` do; in a module of its own, so that processes can import it."""

import os
import signal
from datetime import timedelta

import numpy as np
import torch
from torch import nn
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from integrations.ranks import kill_this_process
from integrations.streams import losses, selector
from tailbatch.data import load_dataset, split, stratified_split
from tailbatch.errors import SelectionError, TailbatchError
from tailbatch.losses import Equalized
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Callback, DistributedSelector, LabeledRows, Trainer, weights_digest
from tailbatch.training.ranks import telling_ranks

STRATEGIES = ["random", "balanced", "hard", "adaptive", "chain", "minority", "importance"]
ODD = {"batch_size": 89}  # the last batch holds one sample, less than there are ranks


def by_label(index):
    """Return losses (b, 3), of which the mean is the loss of the sample."""
    return losses(index)[:, None] * np.array([[0.5, 1.0, 1.5]], dtype=np.float32)


def tell(chosen, strategy, index):
    chosen.observe(by_label(index) if strategy == "minority" else losses(index))


def slices(strategy, gather_every=1, **options):
    """Draw three epochs; return this rank's slices and their loss scales."""
    chosen = DistributedSelector(selector(strategy, **options), gather_every=gather_every)
    drawn, n_ranks = [], chosen.n_ranks
    for _ in range(3):
        for index in chosen:
            assert chosen.n_ranks == n_ranks, "it is known before the first batch"
            drawn.append((index.tolist(), chosen.loss_scale(index)))
            chosen.mean(losses(index), index)
            if gather_every == 1:
                tell(chosen, strategy, index)
            else:
                chosen.observe(losses(index), index)
    return drawn


def all_streams(rank):
    return {
        **{strategy: slices(strategy) for strategy in STRATEGIES},
        "odd": slices("adaptive", **ODD),
        "gathered": slices("adaptive", gather_every=4, max_lag=3),
    }


def refused(function, kind=SelectionError):
    try:
        function()
    except kind as error:
        return str(error)
    return "no error"


def disagree(rank):
    weights = np.ones(90)
    weights[5] += rank
    others = {
        "seed": selector(seed=rank),
        "data": selector(weights=weights),
        "pressure": selector(selection_pressure=16 + rank),
        "losses": selector(initial_losses=np.full(90, 1.0 + rank)),
    }
    messages = {
        name: refused(lambda other=other: next(iter(DistributedSelector(other))))
        for name, other in others.items()
    }
    apart = DistributedSelector(selector(max_lag=1))
    batches = iter(apart)
    first, second = next(batches), next(batches)
    index = second if rank else first
    messages["order"] = refused(lambda: apart.observe(losses(index), index))
    return messages


class StepModule(nn.Module):
    """What DDP wraps: a model's training step as a forward pass."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model.step(x, y)


def train_on_debtags(rank, name, n_steps):
    data = load_dataset("debtags")
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    rows = LabeledRows(parts.train)
    model = make_model(name, parts.train, seed=0, dropout=0.0)
    step = StepModule(model)
    if torch.distributed.is_initialized():
        step = DistributedDataParallel(step)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    chosen = DistributedSelector(
        make_selector("adaptive", parts.train.Y, weights=1.0, batch_size=65, warm_up_epochs=0)
    )
    seen = []
    for _, index in zip(range(n_steps), chosen, strict=False):
        x, y = rows.fetch(index)
        output = step(x, y)
        optimizer.zero_grad()
        (output.objective * chosen.loss_scale()).backward()
        optimizer.step()
        seen.append(output.sample_objective.mean().item() * chosen.loss_scale())
        chosen.observe(output.sample_objective)
    return seen


def save_until_killed(rank, path, die_at):
    chosen = DistributedSelector(selector())
    if path.exists():
        chosen.load_state_dict(torch.load(path, weights_only=False))
    drawn = []
    for _ in range(chosen.epoch, 3):
        for index in chosen:
            drawn.append(index.tolist())
            chosen.observe(losses(index))
            if die_at is not None and rank == 0 and len(drawn) == die_at - 2:
                torch.save(chosen.state_dict(), path)
            if rank == 1 and len(drawn) == die_at:
                kill_this_process()
    return drawn


class StopAt(Callback):
    """Asks rank 0's process to stop; the others hear of it from there."""

    def __init__(self, step):
        self.step = step

    def on_batch(self, step, steps_per_epoch, objective):
        if step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def fit(rank, checkpoint=None, stop_at=None):
    """Train with the package's own Trainer; return objectives and the digest of the weights."""
    data = load_dataset("debtags").take(range(300))
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    model = make_model("mlp", parts.train, seed=0, dropout=0.0)
    chosen = make_selector("hard", parts.train.Y, batch_size=33, warm_up_epochs=1)
    trainer = Trainer(
        TrainingPlan(epochs=3, batch_size=33, warm_up_epochs=1),
        callbacks=[StopAt(stop_at)],
        checkpoint=checkpoint,
    )
    training = trainer.fit(model, parts, chosen)
    return training.batch_objectives.tolist(), training.best_epoch, weights_digest(model)


# ---- ranks that refuse, die or hang --------------------------------------------------------------


def wait_no_longer_than(seconds):
    os.environ["TAILBATCH_RANK_TIMEOUT"] = str(seconds)


def observe_too_few(rank):
    """Rank 1 hands over losses of the wrong shape; then, all do it right in the same group."""
    chosen = DistributedSelector(selector())
    index = next(iter(chosen))
    message = refused(lambda: chosen.observe(losses(index)[: -rank or None]), TailbatchError)
    again = DistributedSelector(selector())
    index = next(iter(again))
    again.observe(losses(index))
    return message, len(again.selector.state_dict()["pending"])


def refuse_before_the_first_batch(rank):
    with telling_ranks():
        if rank == 0:
            raise SelectionError("this rank has no data")
        next(iter(DistributedSelector(selector())))


def hang(rank):
    if rank == 0:
        wait_no_longer_than(3)
        chosen = DistributedSelector(selector())
        index = next(iter(chosen))
        chosen.observe(losses(index))
    else:
        next(iter(DistributedSelector(selector())))
        # Alive, and never at the next exchange, until rank 0 has given up.
        store = distributed_c10d._get_default_store()
        store.wait(["given up"], timedelta(seconds=600))


def hung(rank):
    try:
        hang(rank)
    except TailbatchError as error:
        store = distributed_c10d._get_default_store()
        store.set("given up", "1")
        # This rank keeps the store: it stays until the other has read it.
        store.wait(["read"], timedelta(seconds=600))
        return str(error)
    distributed_c10d._get_default_store().set("read", "1")
    return "waited"


class Diverge(Callback):
    """Makes the weights of this rank useless, so that its next loss is no number."""

    def __init__(self, model):
        self.model = model

    def on_batch(self, step, steps_per_epoch, objective):
        if step == 3:
            with torch.no_grad():
                for weights in self.model.parameters():
                    weights.fill_(float("nan"))


def diverge(rank):
    """Train; rank 0 alone, which has callbacks, diverges in step 4."""
    data = load_dataset("debtags").take(range(300))
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    model = make_model("mlp", parts.train, seed=0, dropout=0.0)
    chosen = make_selector("hard", parts.train.Y, batch_size=33, warm_up_epochs=1)
    plan = TrainingPlan(epochs=2, batch_size=33, warm_up_epochs=1)
    Trainer(plan, callbacks=[Diverge(model)]).fit(model, parts, chosen)


def resume_with_another_pressure(rank, checkpoint):
    """Continue a checkpoint; rank 1 has other settings."""
    data = load_dataset("debtags").take(range(300))
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    model = make_model("mlp", parts.train, seed=0, dropout=0.0)
    options = {"selection_pressure": 2} if rank else {}
    chosen = make_selector("hard", parts.train.Y, batch_size=33, warm_up_epochs=1, **options)
    plan = TrainingPlan(epochs=3, batch_size=33, warm_up_epochs=1)
    Trainer(plan, checkpoint=checkpoint).fit(model, parts, chosen)


def equalized_gradients(rank, n_ranks=1):
    """Show an equalized loss every `n_ranks`-th row of two batches; return the gradients it has seen."""
    rng = np.random.default_rng(3)
    loss = Equalized(3)
    for _ in range(2):
        logits = torch.from_numpy(rng.normal(size=(8, 3)))
        y = torch.from_numpy(rng.random((8, 3)) < 0.3)
        loss(logits[rank::n_ranks], y[rank::n_ranks])
    return [*loss.positive_gradients.tolist(), *loss.negative_gradients.tolist()]


def train_sharded(_):
    """Train with FSDP on several ranks, or plainly on one; return the weights."""
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.random((90, 6), dtype=np.float32))
    Y = (X[:, :3] > torch.tensor([0.4, 0.7, 0.9])).float()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    if torch.distributed.is_initialized():
        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    chosen = DistributedSelector(
        make_selector("importance", Y.numpy() > 0, batch_size=17, warm_up_epochs=0, seed=1)
    )
    for _ in range(3):
        for index in chosen:
            losses = nn.functional.binary_cross_entropy_with_logits(
                model(X[index]), Y[index], reduction="none"
            )
            optimizer.zero_grad()
            (chosen.mean(losses.sum(dim=1)) * chosen.loss_scale()).backward()
            optimizer.step()
            chosen.observe(losses)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return {name: value.numpy() for name, value in whole.items()}
