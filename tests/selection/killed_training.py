"""Train a small network with a checkpoint after every draw and step; run by test_torch_loop.

Arguments: strategy, checkpoint file, file for the final weights, and the event at which to die
(0: never). A checkpoint between draw and observe has a pending batch, one after observe has none.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.selection import make_selector

EPOCHS = 3


def main(strategy, checkpoint, result, die_at):
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.random((90, 6)), dtype=torch.float32)
    Y = torch.tensor(rng.random((90, 4)) < [0.5, 0.3, 0.1, 0.05], dtype=torch.float32)
    selector = make_selector(
        strategy, Y, X=X, batch_size=16, warm_up_epochs=1, epochs=EPOCHS, selection_pressure=64
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    events = 0

    def save():
        nonlocal events
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "selector": selector.state_dict()}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
        events += 1
        if events == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if checkpoint.exists():
        state = torch.load(checkpoint)  # by default, tensors and plain values only
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        selector.load_state_dict(state["selector"])
    while selector.epoch < EPOCHS:
        for index in selector:
            save()
            losses = binary_cross_entropy_with_logits(model(X[index]), Y[index], reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            selector.observe(losses)
            save()
    torch.save(model.state_dict(), result)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
