"""A small Lightning training, in a module of its own so that processes can import it."""

import logging
import warnings

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from integrations.ranks import kill_this_process
from integrations.streams import N_SAMPLES, labels, losses, selector
from tailbatch.integrations.lightning import SelectionCallback
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader
from tailbatch.training import DistributedSelector

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module=r"lightning\..*")

ROWS = TensorDataset(
    torch.from_numpy(np.random.default_rng(1).random((N_SAMPLES, 4), dtype=np.float32)),
    torch.from_numpy(labels().astype(np.float32)),
)


class Tiny(pl.LightningModule):
    def __init__(self, kill_at=None, scale=None):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)
        self.seen = []
        self.kill_at = kill_at
        self.scale = scale

    def training_step(self, batch):
        index, (x, y) = batch
        self.seen.append(index.tolist())
        bce = binary_cross_entropy_with_logits(self.layer(x), y, reduction="none")
        loss = bce.mean() * (self.scale(index) if self.scale else 1)
        # Those told to the selector depend on the samples alone, so that streams can be compared.
        return {"loss": loss, "losses": losses(index), "index": index}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if len(self.seen) == self.kill_at:
            kill_this_process()

    def validation_step(self, batch):
        self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train(folder, *, workers=0, resume=None, kill_at=None, save_every=8, **options):
    """Train three epochs; return the batches seen and the weights."""
    chosen = selector(max_lag=2 * workers)
    model = Tiny(kill_at)
    trainer = make_trainer(chosen, folder, save_every, **options)
    trainer.fit(
        model,
        SelectiveLoader(IndexedDataset(ROWS), chosen, num_workers=workers),
        DataLoader(ROWS, batch_size=45),
        ckpt_path=resume,
    )
    assert chosen.diagnostics().lag == 2 * workers
    return model.seen, model.layer.weight.detach().numpy().tolist()


def train_killed(folder, options):
    train(folder, kill_at=10, **options)


def train_rank(rank, folder, resume=None, kill_at=None):
    chosen = DistributedSelector(selector())
    model = Tiny(kill_at if rank == 1 else None, scale=chosen.loss_scale)
    trainer = make_trainer(chosen, folder, 8, devices=2, strategy="ddp")
    trainer.fit(model, SelectiveLoader(IndexedDataset(ROWS), chosen), ckpt_path=resume)
    return model.seen, model.layer.weight.detach().numpy().tolist()


def refuse_rank(rank):
    chosen = selector()
    trainer = make_trainer(chosen, None, None, devices=2, strategy="ddp")
    trainer.fit(Tiny(), SelectiveLoader(IndexedDataset(ROWS), chosen))


def make_trainer(chosen, folder, save_every, *, max_epochs=3, **options):
    saving = ModelCheckpoint(dirpath=folder, every_n_train_steps=save_every, save_top_k=-1)
    return pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        callbacks=[saving, SelectionCallback(chosen)]
        if save_every
        else [SelectionCallback(chosen)],
        enable_checkpointing=bool(save_every),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
