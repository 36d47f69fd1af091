"""The same seed gives the same records, whatever does the runs and whatever else draws numbers."""

import os
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from forked import context
from study_samples import contents, run_here, tiny_file, tiny_study
from tailbatch.results import ResultStore
from tailbatch.study import WorkerPool, run, run_study
from tailbatch.training import Callback

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A strategy of each kind, two models, one of which draws noise in every step."""
    return tiny_study(
        tiny_file(tmp_path_factory.mktemp("data")),
        models=[{"name": "mlp", "hidden": [8]}, "mpvae"],
        strategies=["random", "adaptive", "chain", "minority"],
        folds=[0],
        epochs=4,
    )


@pytest.fixture(scope="module")
def records(study, tmp_path_factory):
    """What one process makes of the study."""
    store = ResultStore(tmp_path_factory.mktemp("alone"))
    run_here(study, store)
    found = contents(store)
    assert sum(name.endswith(".json") for name in found) == 8
    return found


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers(workers, study, records, tmp_path):
    store = ResultStore(tmp_path)
    run_study(study, store, lambda: ProcessPoolExecutor(workers, context), workers=workers)
    assert contents(store) == records


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_of_the_command_line(workers, study, records, tmp_path):
    store = ResultStore(tmp_path)
    run_study(study, store, lambda: WorkerPool(workers), workers=workers)
    assert contents(store) == records


@pytest.mark.slow
def test_a_ray_cluster(study, records, tmp_path):
    ray = pytest.importorskip("ray")
    from tailbatch.integrations.ray import RayExecutor

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=2, **quiet)
    try:
        run_study(study, ResultStore(tmp_path), RayExecutor, workers=2)
    finally:
        ray.shutdown()
    assert contents(ResultStore(tmp_path)) == records


SCRIPT = """
import sys
from study_samples import run_here, tiny_study
from tailbatch.results import ResultStore
study = tiny_study(
    sys.argv[1], models=[{"name": "mlp", "hidden": [8]}], strategies=["chain"], folds=[0], epochs=4
)
run_here(study, ResultStore(sys.argv[2]))
"""


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_any_order_of_sets(hash_seed, study, records, tmp_path):
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": _path()}
    command = [sys.executable, "-c", SCRIPT, study.sources[0].file, str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    found = contents(ResultStore(tmp_path))
    assert len(found) == 2  # a record and its arrays
    assert found.items() <= records.items()


def _path():
    return os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


class Draws(Callback):
    """Another library that seeds and draws from every global generator between two steps."""

    def on_batch(self, step, steps_per_epoch, objective):
        random.seed(step)
        np.random.seed(step)
        torch.manual_seed(step)
        random.random(), np.random.random(3), torch.rand(3)

    def on_epoch(self, epoch):
        self.on_batch(epoch.number, 0, 0.0)


def test_others_who_draw_in_between(study, records, tmp_path):
    source, store = study.sources[0], ResultStore(tmp_path)
    for spec in study.specs({source.name: source.load().digest}):
        store.add(*run(spec, source=source, callbacks=[Draws()]))
    assert contents(store) == records
