"""Large jobs for `test_load.py`, each in a separate process whose memory is only the job's.

``python work.py JOB SIZE`` prints what the job measured as one line of JSON.
"""

import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

MB = 2**20


def resident():
    """Return the memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Steps:
    """Measures the steps of a job: CPU seconds, file reads, and memory."""

    def __init__(self):
        self.measured = {}
        self._since, self._before = time.process_time(), reads()

    def done(self, name):
        self.measured[f"{name}_seconds"] = round(time.process_time() - self._since, 2)
        self.measured[f"{name}_reads"] = reads() - self._before
        self.measured[f"{name}_peak_mb"] = peak_mb()
        self._since, self._before = time.process_time(), reads()


def reads():
    """Return how often this process has read from a file, not counting folders."""
    with open("/proc/self/io") as file:
        return int(dict(line.split(": ") for line in file.read().splitlines())["syscr"])


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def selector(n, batches=10_000):
    """Draw and observe batches of 128 of n samples; return the memory used along the way."""
    from tailbatch.selection import AdaptiveSelector

    rng = np.random.default_rng(0)
    steps = Steps()
    chosen = AdaptiveSelector(
        1.0, n_samples=n, batch_size=128, selection_pressure=16, seed=0,
        initial_losses=rng.random(n, dtype=np.float32),
    )  # fmt: skip
    steps.done("making")
    held = []
    for number, index in zip(range(batches), _endless(chosen), strict=False):
        chosen.observe(rng.random(len(index)))
        # The first hundred touch every array; after that, memory must not grow.
        if number >= 100 and number % 100 == 0:
            held.append(resident() / MB)
    steps.done("batches")
    return steps.measured | {
        "batches": batches, "held_mb": round(held[0]), "growth_mb": round(max(held) - held[0], 1),
    }  # fmt: skip


def _endless(chosen):
    while True:
        yield from chosen


def store(n):
    """Fill a store with n realistic records, then open, query, resume and tabulate it."""
    from study_samples import run_here, tiny_file, tiny_study
    from tailbatch.results import ResultStore, StudyPlan

    with tempfile.TemporaryDirectory() as folder:
        home, kept = Path(folder), ResultStore(Path(folder) / "store")
        run_here(tiny_study(tiny_file(home), folds=[0], strategies=["random"]), kept)
        (record,) = kept.records()
        specs = tuple(replace(record.spec, seed=seed) for seed in range(n))
        for spec in specs:
            # Without the flush to disk of add(): this measures reading.
            path = kept.path / "runs" / f"{spec.digest}.json"
            path.write_text(replace(record, spec=spec).to_json())
        kept.keep_study(StudyPlan(name="tiny", specs=specs))
        del record
        steps = Steps()
        opened = ResultStore(kept.path)
        steps.measured["has"] = sum(opened.has(spec) for spec in specs)
        steps.done("has")
        steps.measured["done"] = len(opened.done())
        steps.done("done")
        study = tiny_study(home / "tiny.npz", folds=[0], strategies=["random"], seeds=range(n))
        steps.measured["skipped"] = run_here(study, opened).skipped
        steps.done("resume")
        steps.measured["rows"] = len(opened.frame("tiny"))
        steps.done("frame")
        return steps.measured


def wide(n, *, n_labels=200, n_features=2000):
    """Return n sparse rows of 20 values, with labels whose frequencies follow a power law."""
    from tailbatch.data import MultiLabelDataset

    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(n_features, size=(n, 20)), axis=1)
    starts = np.arange(0, 20 * n + 1, 20)
    X = sparse.csr_array((rng.random(20 * n), columns.ravel(), starts), shape=(n, n_features))
    X.sum_duplicates()
    Y = np.zeros((n, n_labels), dtype=bool)
    for label in range(n_labels):
        count = max(10, int(n / 2 / (label + 1) ** 2))
        Y[rng.choice(n, size=count, replace=False), label] = True
    return MultiLabelDataset.from_arrays(X, Y, name="wide")


def dataset(n):
    """Take n sparse rows and 200 labels through description, folds and an epoch of training."""
    from tailbatch.data import split, stratified_folds
    from tailbatch.imbalance import minority_labels
    from tailbatch.models import make_model
    from tailbatch.report.description import describe
    from tailbatch.results import TrainingPlan
    from tailbatch.selection import make_selector
    from tailbatch.training import Trainer

    steps = Steps()
    data = wide(n)
    steps.done("making")
    facts = describe(data)
    steps.measured["minority_labels"] = facts.n_minority_labels
    steps.done("describe")
    folds = stratified_folds(data.Y, n_folds=5, seed=0)
    steps.done("folds")
    parts = split(data, folds[0])
    steps.done("split")
    train = parts.train
    steps.measured["minority_rows"] = int(train.Y[:, minority_labels(train.Y)].any(axis=1).sum())
    chosen = make_selector(
        "adaptive", train.Y, X=train.X, batch_size=512, warm_up_epochs=0, seed=0, epochs=1
    )
    steps.done("selector")
    plan = TrainingPlan(epochs=1, batch_size=512, lr=1e-3, warm_up_epochs=0)
    model = make_model("mlp", train, seed=0, hidden=[32])
    steps.measured["macro_auc"] = round(
        Trainer(plan).fit(model, parts, chosen).best.validation["macro_auc"], 4
    )
    steps.done("epoch")
    return steps.measured


if __name__ == "__main__":
    job = {"selector": selector, "store": store, "dataset": dataset}[sys.argv[1]]
    print(json.dumps(job(int(sys.argv[2]))))  # noqa: T201 - the parent process reads it
