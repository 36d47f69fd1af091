"""The loop: against one written by hand, sparse rows against dense ones, and what is the network's share.

Run for one part only with ``python -m benchmarks.bench_training loop`` (or sparse, share, fetching).
"""

import copy
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.harness import interleaved, publish, table
from tailbatch.data import Parts, load_dataset, split, stratified_folds
from tailbatch.metrics import evaluate
from tailbatch.models import SparseLinear, make_model, own_gradients
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Callback, LabeledRows, Rows, Trainer

BATCH = 128
EPOCHS = 10
LOOP_EPOCHS = 6
SPARSE_STEPS = 8
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


# ---- fit against a loop written by hand -----------------------------------------------------


def fit(parts: Parts, strategy: str) -> None:
    """Train as the estimator does: one validation metric an epoch, the best weights kept."""
    model = make_model("mlp", parts.train, seed=0)
    selector = make_selector(strategy, parts.train.Y, X=parts.train.X, warm_up_epochs=0)
    plan = TrainingPlan(epochs=LOOP_EPOCHS, warm_up_epochs=0, training_loss_every=0)
    Trainer(plan, metrics=()).fit(model, parts, selector)


def bare_loop(parts: Parts, *, sparse_rows: bool) -> None:
    """Train for as many steps with torch alone; the first layer is ours where rows are sparse."""
    train, validation = parts.train, parts.validation
    like = make_model("mlp", train, seed=0) if sparse_rows else None
    x = Rows(train.X, model=like)
    if not sparse_rows:  # what one would write: the whole matrix as one dense tensor
        x = Rows(_dense(train.X))
    y, held_out = Rows(train.Y), next(Rows(validation.X, model=like).chunks(10**6))
    first = (SparseLinear if sparse_rows else nn.Linear)(train.n_features, 512)
    model = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, train.n_labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)
    best, kept = -1.0, model.state_dict()
    with own_gradients(model, sparse=False):
        for _ in range(LOOP_EPOCHS):
            model.train()
            for index in torch.split(torch.randperm(train.n_samples), BATCH):
                logits = model(x.fetch(index.numpy()))
                loss = F.binary_cross_entropy_with_logits(logits, y.fetch(index.numpy()))
                optimizer.zero_grad()
                torch.autograd.backward([loss])
                optimizer.step()
            model.eval()
            with torch.no_grad():
                scores = model(held_out).sigmoid().numpy()
            score = evaluate(validation.Y, scores, only=["macro_auc"])["macro_auc"]
            if score >= best:
                best, kept = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)


def loop_rows(names: tuple[str, ...]) -> list[list[str]]:
    rows = []
    for name in names:
        parts = _parts(name)
        arms: dict[str, Callable[[], object]] = {
            "bare": partial(bare_loop, parts, sparse_rows=False),
            "random": partial(fit, parts, "random"),
            "minority": partial(fit, parts, "minority"),
        }
        if parts.train.is_sparse:
            arms["bare, sparse"] = partial(bare_loop, parts, sparse_rows=True)
        seconds = interleaved(arms, rounds=ROUNDS, clock=time.process_time)
        for bare in [arm for arm in arms if arm.startswith("bare")]:
            for strategy in ("random", "minority"):
                ratio = seconds[strategy] / seconds[bare]
                rows.append(
                    [
                        f"{name}, {strategy}",
                        "sparse rows, our first layer" if "sparse" in bare else "dense rows",
                        f"{seconds[bare]:.2f}",
                        f"{seconds[strategy]:.2f}",
                        f"{ratio:.2f}x",
                        "at most 1.10x",
                    ]
                )
    return rows


# ---- sparse rows against dense ones ---------------------------------------------------------


class Steps(Callback):
    """The processor's seconds at the end of each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_batch(self, step: int, steps_per_epoch: int, objective: float) -> None:
        """Look at the clock."""
        self.ends.append(time.process_time())


def step_seconds(parts: Parts, sparse_share: float) -> float:
    """Return the seconds of a step in `fit`, the first left out; CSR batches up to a share of values."""
    plan = TrainingPlan(steps=SPARSE_STEPS, warm_up_epochs=1, training_loss_every=0)
    selector = make_selector("random", parts.train.Y, warm_up_epochs=1)
    none = Parts(parts.train, parts.validation.take(np.zeros(0, int)), parts.test)
    steps = Steps()
    with patch("tailbatch.training.rows._SPARSE_SHARE", sparse_share):
        model = make_model("mlp", parts.train, seed=0)
        Trainer(plan, metrics=(), callbacks=[steps]).fit(model, none, selector)
    return median(np.diff(steps.ends).tolist())


def sparse_rows() -> list[list[str]]:
    rows = []
    for name, target in (
        ("rcv1subset1", "at least 5x"),
        ("yahoo-arts", "at least 2x"),
        ("yahoo-business", "at least 2x"),
        ("bibtex", ""),
        ("debtags", ""),
    ):
        parts = _parts(name)
        pairs = [(step_seconds(parts, -1.0), step_seconds(parts, 1.0)) for _ in range(3)]
        dense, ours = (median(each) for each in zip(*pairs, strict=True))
        rows.append(
            [
                f"{name}, {parts.train.n_features:,} features",
                f"{sparse.csr_array(parts.train.X).nnz / parts.train.n_samples:.0f}",
                f"{1e3 * dense:.1f}",
                f"{1e3 * ours:.1f}",
                f"{dense / ours:.1f}x",
                target,
            ]
        )
    return rows


def peak_of_a_fit(name: str) -> float:
    """Return the gigabytes that a process of its own needs to load a dataset and fit two epochs."""
    code = f"from benchmarks.bench_training import print_peak; print_peak({name!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def print_peak(name: str) -> None:
    from tailbatch.estimator import TailbatchClassifier

    torch.set_num_threads(1)
    data = load_dataset(name)
    TailbatchClassifier(epochs=2, warm_up_epochs=1, random_state=0).fit(data.X, data.Y)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def _parts(name: str) -> Parts:
    data = load_dataset(name)
    return split(data, stratified_folds(data.Y, n_folds=5, seed=0)[0])


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def sections(datasets: dict[str, Parts]) -> dict[str, Callable[[], list[str]]]:
    """Return the parts of the page by name."""
    return {
        "loop": lambda: [
            f"A whole training, {LOOP_EPOCHS} epochs of batches of {BATCH}, against a loop with torch "
            "alone that takes as many steps, scores the validation rows after each epoch and keeps "
            f"the best weights; seconds of one processor, median of {ROUNDS} rounds in turn:",
            table(
                ["fit", "bare loop on", "bare (s)", "fit (s)", "ratio", "target"],
                loop_rows(("debtags", "scene", "bibtex")),
            ),
        ],
        "sparse": lambda: [
            "A training step of the MLP, Adam included, on all features; milliseconds of one processor:",
            table(
                ["dataset", "nonzero a row", "dense (ms)", "sparse (ms)", "ratio", "target"],
                sparse_rows(),
            ),
            "Peak memory of a process that loads rcv1subset1 with all 47,236 features and fits it: "
            f"{peak_of_a_fit('rcv1subset1'):.2f} GB (target: at most 1 GB).",
        ],
        "share": lambda: [
            "Share of an epoch's time inside forward, backward and optimizer (batch 128, one thread, "
            f"adaptive selection, evaluation not counted; median of {ROUNDS} trainings):",
            table(["training", "share", "target"], share_rows(datasets)),
        ],
        "fetching": lambda: [
            "Batches of an epoch against `DataLoader(TensorDataset(...), shuffle=True, "
            "num_workers=0)`, milliseconds an epoch:",
            table(["epoch", "DataLoader", "tailbatch", "ratio", "target"], fetch_rows(datasets)),
        ],
    }


def main() -> None:
    torch.set_num_threads(1)
    parts = sections({name: _parts(name) for name in ("scene", "yeast")})
    wanted = [name for name in sys.argv[1:] if name in parts]
    if wanted:
        print("\n\n".join(text for name in wanted for text in parts[name]()))
    else:
        publish("training", "\n\n".join(["## Training", *(t for p in parts.values() for t in p())]))


if __name__ == "__main__":
    main()
