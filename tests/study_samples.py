"""A tiny dataset and study for tests, and comparison of stores apart from times."""

import json
import os
import resource
import signal
from concurrent.futures import Executor, Future
from contextlib import suppress

import numpy as np

from tailbatch.data import MultiLabelDataset, save_npz
from tailbatch.results import ResultStore, TrainingPlan
from tailbatch.study import Study, run_study
from tailbatch.training import progress

CLOCKS = ("seconds", "machine", "checksum")  # the checksum covers times, too


def tiny_file(folder, *, name="tiny", n=120):
    """Write a dataset of five labels, the last one rare, and return its file."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 6))
    scores = X @ rng.normal(size=(6, 5)) + 0.1 * rng.normal(size=(n, 5))
    Y = np.stack([scores[:, j] > np.quantile(scores[:, j], q) for j, q in enumerate(
        (0.4, 0.5, 0.6, 0.8, 0.9))], axis=1)  # fmt: skip
    path = folder / f"{name}.npz"
    save_npz(MultiLabelDataset.from_arrays(X, Y, name=name), path)
    return path


def tiny_study(path, *, epochs=6, **changes):
    settings = {
        "name": "tiny",
        "datasets": [str(path)],
        "models": [{"name": "mlp", "hidden": [8]}],
        "strategies": ["random", "adaptive"],
        "n_folds": 2,
        "plan": TrainingPlan(epochs=epochs, batch_size=16, lr=1e-2, sample_loss_epochs=(2,)),
    }
    return Study(**settings | changes)


class Here(Executor):
    """Runs each call immediately, in this process."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def run_here(study, store, **settings):
    return run_study(study, store, Here, workers=1, **settings)


def contents(store):
    """Return a store's records and arrays by digest, without times and machine facts."""
    found = {}
    for path in sorted((store.path / "runs").glob("[!.]*.json")):
        found[path.name] = json.dumps(_timeless(json.loads(path.read_text())), sort_keys=True)
    for path in sorted((store.path / "runs").glob("[!.]*.npz")):
        with np.load(path) as arrays:
            found[path.name] = {name: values.tobytes() for name, values in arrays.items()}
    return found


def _timeless(value):
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if name not in CLOCKS}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def run_in_another_process(study, folder, checkpoint_every):
    run_here(study, ResultStore(folder), checkpoint_every=checkpoint_every)


def new_pages():
    """Allocate and free 16 MiB twice; return how many pages the second time had to fetch."""
    np.ones(2**21)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**21)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def die_once_saved(perform, job, died):
    """Do a job; the first process to save a checkpoint leaves a file and kills itself."""
    save = progress.Progress.save

    def save_and_die(training, path):
        save(training, path)
        with suppress(FileExistsError), died.open("x") as stream:
            stream.write("saved")
            stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    progress.Progress.save = save_and_die
    return perform(job)
