"""Lightning: one callback, one loader, and the losses returned from ``training_step``.

Run it: python examples/lightning_module.py
"""

import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import TensorDataset

from tailbatch import load_dataset, make_selector
from tailbatch.integrations.lightning import SelectionCallback
from tailbatch.integrations.pytorch import SelectiveLoader


class Classifier(pl.LightningModule):
    """A network with one hidden layer."""

    def __init__(self, n_features, n_labels):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, 128), nn.ReLU(), nn.Linear(128, n_labels))

    def training_step(self, batch):
        """Return the loss to minimize and the losses for the selector."""
        features, labels = batch
        losses = binary_cross_entropy_with_logits(self.layers(features), labels, reduction="none")
        return {"loss": losses.sum(1).mean(), "losses": losses.detach()}

    def configure_optimizers(self):
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    data = load_dataset("debtags")
    x = torch.from_numpy(data.X.toarray().astype(np.float32))
    y = torch.from_numpy(data.Y.astype(np.float32))
    # On several devices: selector = DistributedSelector(make_selector(...)), and multiply the loss in
    # training_step by selector.loss_scale().
    selector = make_selector("adaptive", data.Y, X=data.X, warm_up_epochs=1)
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        callbacks=[SelectionCallback(selector)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(
        Classifier(*x.shape[1:], *y.shape[1:]), SelectiveLoader(TensorDataset(x, y), selector)
    )
    share = selector.diagnostics().minority_share
    print(f"{share:.0%} of the last epoch's draws carry a rare label")


if __name__ == "__main__":
    main()
