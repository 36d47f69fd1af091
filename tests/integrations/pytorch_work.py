"""A training with a plain loader, in a module of its own so that processes can import it."""

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from integrations.ranks import kill_this_process
from integrations.streams import N_SAMPLES, losses, selector
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader

ROWS = IndexedDataset(TensorDataset(torch.arange(float(N_SAMPLES)) / N_SAMPLES))


def train(path, workers, *, kill_at=None):
    """Train three epochs, saving after batch 8; go on from there if it was saved. Return the weight."""
    chosen = selector(max_lag=2 * workers)
    loader = SelectiveLoader(ROWS, chosen, num_workers=workers)
    weight = torch.zeros(1, requires_grad=True)
    step = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        step, weight.data = state["step"], state["weight"]
        loader.load_state_dict(state["selector"])
    for _ in range(chosen.epoch, 3):
        for index, (x,) in loader:
            mse_loss(weight * x, 1 - x).backward()
            weight.data -= 0.1 * weight.grad
            weight.grad = None
            chosen.observe(losses(index), index)
            step += 1
            if step == 8 and kill_at is not None:
                state = {"step": step, "weight": weight.data, "selector": loader.state_dict()}
                torch.save(state, path)
            if step == kill_at:
                kill_this_process()
    return weight.item(), step


def train_killed(path, workers):
    train(path, workers, kill_at=10)
