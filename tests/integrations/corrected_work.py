"""Trainings with importance weights, in a module of their own so that processes can import them."""

import lightning.pytorch as pl
import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from integrations.huggingface_work import X, Y, make_trainer
from integrations.lightning_work import ROWS
from integrations.streams import N_SAMPLES, labels
from tailbatch.data import MultiLabelDataset, split, stratified_split
from tailbatch.integrations.lightning import SelectionCallback
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader
from tailbatch.losses import weighted_bce
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import DistributedSelector, Trainer

EPOCHS = 3


def importance(**options):
    settings = {"batch_size": 16, "warm_up_epochs": 1, "mix": 0.2, **options}
    return make_selector("importance", labels(), **settings)


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3)


def plain_loop(accumulate=1, weighted=True, loss=None, summed=False, **options):
    """Train as one writes it by hand; what the frameworks must come to."""
    selector, model = importance(**options), linear()
    rows_of = weighted_bce(labels()).rows if loss else None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        for step, index in enumerate(selector, start=1):
            bce = binary_cross_entropy_with_logits(model(X[index]), Y[index], reduction="none")
            rows = bce if rows_of is None else rows_of(model(X[index]), Y[index])
            rows = rows.sum(1) if summed else rows
            mean = selector.mean(rows)
            ((mean if weighted else bce.mean()) / accumulate).backward()
            selector.observe(bce)
            if step % accumulate == 0 or step == len(selector):
                optimizer.step()
                optimizer.zero_grad()
    return model.weight.detach().numpy()


class Module(pl.LightningModule):
    """As the docs write it: nothing in it knows of importance weights."""

    def __init__(self, selector, scale=None):
        super().__init__()
        self.layer, self.selector, self.scale = linear(), selector, scale

    def training_step(self, batch):
        index, (x, y) = batch
        losses = binary_cross_entropy_with_logits(self.layer(x), y, reduction="none")
        loss = losses.mean() * (self.scale(index) if self.scale else 1)
        return {"loss": loss, "losses": losses, "index": index}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Weighing(Module):
    """One that takes the weights itself."""

    def training_step(self, batch):
        outputs = super().training_step(batch)
        return {**outputs, "loss": self.selector.mean(outputs["losses"], outputs["index"])}


def with_lightning(module=Module, workers=0, selector=None, scale=False, **options):
    chosen = selector or importance(max_lag=2 * workers)
    model = module(chosen, chosen.loss_scale if scale else None)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[SelectionCallback(chosen)],
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(model, SelectiveLoader(IndexedDataset(ROWS), chosen, num_workers=workers))
    assert "training_step" not in vars(model)
    return model.layer.weight.detach().numpy()


def lightning_rank(rank):
    chosen = DistributedSelector(importance())
    return with_lightning(selector=chosen, scale=True, devices=2, strategy="ddp")


def with_accelerate(folder, accumulate=1, workers=0, **options):
    from accelerate import Accelerator

    from tailbatch.integrations.huggingface import AcceleratedLoader

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, **options)
    chosen = DistributedSelector(importance(max_lag=2 * workers))
    model = linear()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows = IndexedDataset(ROWS)
    loader = AcceleratedLoader(accelerator, rows, chosen, num_workers=workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(EPOCHS):
        for index, (x, y) in loader:
            with accelerator.accumulate(model):
                bce = binary_cross_entropy_with_logits(model(x), y, reduction="none")
                accelerator.backward(chosen.mean(bce, index) * chosen.loss_scale(index))
                optimizer.step()
                optimizer.zero_grad()
            chosen.observe(bce, index)
    return accelerator.unwrap_model(model).weight.detach().numpy()


def accelerate_rank(rank, folder):
    return with_accelerate(folder)


def with_huggingface(folder, max_lag=0, loss=False, **options):
    settings = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, **options}
    own = weighted_bce(labels()) if loss else None
    trainer = make_trainer(folder, importance(max_lag=max_lag), loss=own, **settings)
    trainer.model.layer.load_state_dict(linear().state_dict())
    trainer.train()
    return trainer.model.layer.weight.detach().numpy()


def huggingface_rank(rank, folder):
    return with_huggingface(folder)


def with_trainer(rank=0):
    """Train with the package's own Trainer, alone or as one of several ranks."""
    data = MultiLabelDataset.from_arrays(
        np.random.default_rng(1).random((N_SAMPLES, 4)).astype(np.float32), labels()
    )
    parts = split(data, stratified_split(data.Y, validation=0.2, test=0.1, seed=0))
    model = make_model("mlp", parts.train, seed=0, dropout=0.0, hidden=[8])
    selector = make_selector("importance", parts.train.Y, batch_size=13, score="gradient")
    plan = TrainingPlan(epochs=EPOCHS, batch_size=13, lr=0.01, warm_up_epochs=0)
    training = Trainer(plan).fit(model, parts, selector)
    return training.batch_objectives.tolist()
