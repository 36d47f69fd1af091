"""Hugging Face Accelerate: a loader that ``prepare`` leaves unchanged.

Run it: accelerate launch --num-processes 2 --cpu examples/accelerate_loop.py
In one process: python examples/accelerate_loop.py
"""

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import TensorDataset

from tailbatch import load_dataset, make_selector
from tailbatch.integrations.huggingface import AcceleratedLoader
from tailbatch.training import DistributedSelector

EPOCHS = 4


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = load_dataset("debtags")
    x = torch.from_numpy(data.X.toarray().astype(np.float32))
    y = torch.from_numpy(data.Y.astype(np.float32))
    selector = DistributedSelector(
        make_selector("adaptive", data.Y, X=data.X, batch_size=64, warm_up_epochs=1)
    )
    loader = AcceleratedLoader(accelerator, TensorDataset(x, y), selector)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, y.shape[1]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(selector.epoch, EPOCHS):
        for features, labels in loader:
            with accelerator.accumulate(model):
                losses = binary_cross_entropy_with_logits(model(features), labels, reduction="none")
                accelerator.backward(losses.sum(1).mean() * selector.loss_scale())
                optimizer.step()
                optimizer.zero_grad()
            selector.observe(losses)
        share = selector.selector.diagnostics().minority_share
        accelerator.print(f"epoch {epoch + 1}: {share:.0%} of the draws carry a rare label")
    # accelerator.save_state(folder) also saves the selector, at any step.


if __name__ == "__main__":
    main()
