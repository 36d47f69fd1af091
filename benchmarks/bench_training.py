"""The loop: how much of an epoch is the network itself, and fetching rows against a DataLoader."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.harness import interleaved, publish, table
from tailbatch.data import Parts, load_dataset, split, stratified_folds
from tailbatch.models import make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import LabeledRows, Trainer

BATCH = 128
EPOCHS = 10
ROUNDS = 5
Batches = Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]
Step = Callable[[torch.Tensor, torch.Tensor], None]


class Stopwatch:
    """Seconds spent between start and stop, added up."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def start(self, *_: object) -> None:
        """Go on; whatever a hook hands over is ignored."""
        self._since = time.perf_counter()

    def stop(self, *_: object) -> None:
        """Pause."""
        self.seconds += time.perf_counter() - self._since

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time added up here."""

        def call(*args: object, **kwargs: object) -> object:
            self.start()
            try:
                return function(*args, **kwargs)
            finally:
                self.stop()

        return call


@contextmanager
def watching(model: torch.nn.Module) -> Iterator[Stopwatch]:
    """Time forward and objective, backward, and the optimizer of a training."""
    watch = Stopwatch()
    hooks = [
        register_optimizer_step_pre_hook(watch.start),
        register_optimizer_step_post_hook(watch.stop),
    ]
    owners: list[tuple[Any, str]] = [
        (model, "step"),
        (torch.autograd, "backward"),
        (torch.optim.Optimizer, "zero_grad"),
    ]
    with ExitStack() as stack:
        for owner, name in owners:
            stack.enter_context(patch.object(owner, name, watch.timed(getattr(owner, name))))
        yield watch
    for hook in hooks:
        hook.remove()


def share(name: str, parts: Parts) -> float:
    """Return the share of the training time spent inside the network and its optimizer."""
    model = make_model(name, parts.train, seed=0)
    selector = make_selector("adaptive", parts.train.Y, X=parts.train.X, warm_up_epochs=1)
    plan = TrainingPlan(epochs=EPOCHS, warm_up_epochs=1, training_loss_every=0)
    with watching(model) as watch:
        training = Trainer(plan).fit(model, parts, selector)
    return watch.seconds / training.epochs[-1].seconds


def share_rows(datasets: dict[str, Parts]) -> list[list[str]]:
    rows = []
    for dataset, parts in datasets.items():
        for model in ("mlp", "dela"):
            shares = [share(model, parts) for _ in range(ROUNDS)]
            rows.append([f"{dataset}, {model}", f"{median(shares):.0%}", "at least 80%"])
    return rows


def fetch_rows(datasets: dict[str, Parts]) -> list[list[str]]:
    rows = []
    for dataset, parts in datasets.items():
        ours, theirs = _our_batches(parts), _their_batches(parts)
        step = _step(parts)
        seconds = interleaved(
            {
                "DataLoader": partial(_walk, theirs),
                "ours": partial(_walk, ours),
                "epoch, DataLoader": partial(_walk, theirs, step),
                "epoch, ours": partial(_walk, ours, step),
            },
            rounds=2 * ROUNDS + 1,
        )
        for what, prefix, target in (
            ("fetching", "", "at least 5x"),
            ("whole MLP epoch", "epoch, ", ""),
        ):
            reference, mine = seconds[f"{prefix}DataLoader"], seconds[f"{prefix}ours"]
            rows.append(
                [
                    f"{dataset}, {what}",
                    f"{1e3 * reference:.1f}",
                    f"{1e3 * mine:.1f}",
                    f"{reference / mine:.1f}x",
                    target,
                ]
            )
    return rows


def _walk(batches: Batches, step: Step | None = None) -> None:
    for x, y in batches():
        if step is not None:
            step(x, y)


def _our_batches(parts: Parts) -> Batches:
    rows = LabeledRows(parts.train)
    selector = make_selector("random", parts.train.Y, batch_size=BATCH)
    return lambda: (rows.fetch(index) for index in selector)


def _their_batches(parts: Parts) -> Batches:
    x = torch.from_numpy(parts.train.X.astype(np.float32))
    y = torch.from_numpy(parts.train.Y.astype(np.float32))
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True, num_workers=0)
    return lambda: ((x, y) for x, y in loader)


def _step(parts: Parts) -> Step:
    model = make_model("mlp", parts.train, seed=0)
    optimizer = torch.optim.Adam(model.param_groups(1e-4, 1e-4), fused=True)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([model.step(x, y).objective])
        optimizer.step()

    return step


def main() -> None:
    torch.set_num_threads(1)
    datasets = {}
    for name in ("scene", "yeast"):
        data = load_dataset(name)
        datasets[name] = split(data, stratified_folds(data.Y, n_folds=5, seed=0)[0])
    text = "\n\n".join(
        [
            "## Training",
            "Share of an epoch's time inside forward, backward and optimizer (batch 128, one thread, "
            f"adaptive selection, evaluation not counted; median of {ROUNDS} trainings):",
            table(["training", "share", "target"], share_rows(datasets)),
            "Batches of an epoch against `DataLoader(TensorDataset(...), shuffle=True, "
            "num_workers=0)`, milliseconds an epoch:",
            table(["epoch", "DataLoader", "tailbatch", "ratio", "target"], fetch_rows(datasets)),
        ]
    )
    publish("training", text)


if __name__ == "__main__":
    main()
