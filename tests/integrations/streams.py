"""Small selectors whose losses depend only on what was drawn, so that streams can be compared."""

import numpy as np

from tailbatch.selection import make_selector

N_SAMPLES = 90


def labels():
    return np.random.default_rng(0).random((N_SAMPLES, 3)) < [0.5, 0.3, 0.1]


def selector(strategy="adaptive", **options):
    settings = {"batch_size": 16, "warm_up_epochs": 1, "selection_pressure": 64} | options
    if strategy in ("random", "uniform", "balanced", "importance"):
        del settings["selection_pressure"]
    elif strategy in ("adaptive", "chain"):
        settings.setdefault("weights", 1.0)
    return make_selector(strategy, labels(), **settings)


def losses(index):
    """Return a loss (b,) that differs from sample to sample and has exact float32 values."""
    return (np.asarray(index) * 37 % N_SAMPLES + 1).astype(np.float32) / 64


def stream(selector, epochs=3):
    """Draw `epochs` epochs one batch at a time and return them as lists."""
    batches = []
    for _ in range(epochs):
        for index in selector:
            batches.append(index.tolist())
            selector.mean(losses(index))
            selector.observe(losses(index))
    return batches
