"""Several processes: all ranks draw the same batch, and each trains on its slice.

Run it: torchrun --nproc-per-node 2 examples/distributed.py
In one process: python examples/distributed.py
"""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

from tailbatch import load_dataset, make_selector
from tailbatch.training import DistributedSelector

EPOCHS = 4


def main():
    is_distributed = "WORLD_SIZE" in os.environ
    if is_distributed:
        dist.init_process_group("gloo")
    data = load_dataset("debtags")
    x = torch.from_numpy(data.X.toarray().astype(np.float32))
    y = torch.from_numpy(data.Y.astype(np.float32))
    # The batch size is global: all ranks together.
    selector = DistributedSelector(
        make_selector("adaptive", data.Y, X=data.X, batch_size=128, warm_up_epochs=1)
    )

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, y.shape[1]))
    if is_distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for index in selector:
            losses = binary_cross_entropy_with_logits(model(x[index]), y[index], reduction="none")
            optimizer.zero_grad()
            # Scaled, because slices may differ in size and DDP averages all ranks equally.
            (losses.sum(1).mean() * selector.loss_scale()).backward()
            optimizer.step()
            selector.observe(losses)
        if not is_distributed or dist.get_rank() == 0:
            share = selector.selector.diagnostics().minority_share
            print(f"epoch {epoch + 1}: {share:.0%} of the draws carry a rare label")
    if is_distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
