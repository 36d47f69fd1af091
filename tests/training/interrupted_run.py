"""A small training for `test_interrupted.py`, which runs it here and in processes that are stopped."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from tailbatch.data import MultiLabelDataset, split, stratified_split
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Callback, Trainer, weights_digest


class Stop(Callback):
    """Dies at once, or waits for the parent, after a step."""

    def __init__(self, how, step):
        self.how, self.step = how, step

    def on_batch(self, step, steps_per_epoch, objective):
        if step != self.step:
            return
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        print("waiting", flush=True)  # noqa: T201 - the parent process reads it
        sys.stdin.readline()  # the parent sends the signal first, then this line


def train(checkpoint, callbacks=()):
    """Train six epochs of six batches, saving every second; return the digest of the weights."""
    X = np.random.default_rng(0).random((120, 6))
    data = MultiLabelDataset.from_arrays(X, X[:, :3] > [0.5, 0.8, 0.9])
    parts = split(data, stratified_split(data.Y, validation=0.125, test=0.125, seed=0))
    model = make_model("mpvae", parts.train, seed=0)
    selector = make_selector(
        "adaptive", parts.train.Y, X=parts.train.X, batch_size=16, warm_up_epochs=1
    )
    plan = TrainingPlan(epochs=6, batch_size=16, lr=0.01, warm_up_epochs=1)
    trainer = Trainer(plan, callbacks=callbacks, checkpoint=checkpoint, checkpoint_every=2)
    training = trainer.fit(model, parts, selector)
    return weights_digest(model), training.batch_objectives.tolist()


if __name__ == "__main__":
    train(Path(sys.argv[1]), [Stop(sys.argv[2], int(sys.argv[3]))])
