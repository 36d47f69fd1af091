"""Ray Train on a local cluster: a worker is killed, and the weights are those of an undisturbed run."""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch import make_selector
from tailbatch.integrations.ray import RayLoop, train_loop
from tailbatch.selection import StreamSelector, count_labels

N = 90


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    for attempt in range(10):
        try:
            ray.init(
                address="local",  # never a cluster that somebody left behind
                num_cpus=4,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
            break
        except Exception:  # Ray gives itself half a minute, too little on a busy machine
            ray.shutdown()
            if attempt == 9:
                raise
    yield
    ray.shutdown()


def arrays():
    rng = np.random.default_rng(0)
    X = rng.random((N, 4), dtype=np.float32)
    return X, X[:, :3] > [0.3, 0.6, 0.9]


def loop_that_dies_once(marker):
    """Return what makes a loop with dropout; the second worker kills itself once, in its second epoch."""

    def make():
        from ray.train import get_context

        X, Y = map(torch.tensor, arrays())
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 3))
        calls = []

        def losses(logits, y):
            calls.append(1)
            if marker and len(calls) == 11 and get_context().get_world_rank() == 1:
                try:
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            return binary_cross_entropy_with_logits(logits, y.float(), reduction="none")

        return RayLoop(
            model,
            torch.optim.Adam(model.parameters(), lr=0.05),
            make_selector(
                "hard", Y.numpy(), batch_size=16, selection_pressure=8, warm_up_epochs=1, seed=3
            ),
            lambda index: (X[index], Y[index]),
            losses,
        )

    return make


def weights_of(name, folder, marker=None):
    fitted = TorchTrainer(
        train_loop(loop_that_dies_once(marker), epochs=3, checkpoint_every=4),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=name, storage_path=str(folder), failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()
    assert fitted.error is None
    with fitted.checkpoint.as_directory() as path:
        state = torch.load(Path(path) / "state.pt", weights_only=True)
    assert state["step"] == 3 * 6
    return state["model"]


@pytest.mark.slow
def test_a_killed_worker_changes_no_weight(tmp_path):
    marker = tmp_path / "killed"
    undisturbed = weights_of("whole", tmp_path)
    resumed = weights_of("killed", tmp_path, str(marker))
    assert marker.exists()
    assert all(torch.equal(undisturbed[name], resumed[name]) for name in undisturbed)


@pytest.mark.slow
def test_ray_data_feeds_ray_train_with_the_rows_that_the_selector_draws(tmp_path):
    names = np.array(["common", "second", "rare"])
    X, Y = arrays()
    labels = [names[row].tolist() for row in Y]
    selector = StreamSelector(count_labels(labels), rate=0.8)
    items = [{"row": k, "labels": labels[k], "x": X[k]} for k in range(N)]
    rows = ray.data.from_items(items, override_num_blocks=3)
    epochs = {f"epoch {e}": rows.map_batches(selector.at(e).take) for e in (0, 1)}

    def train():
        import ray.train
        from ray.train.torch import prepare_model

        model = prepare_model(torch.nn.Linear(4, 1))
        rank, seen = ray.train.get_context().get_world_rank(), []
        for name in epochs:
            for batch in ray.train.get_dataset_shard(name).iter_batches(batch_size=8):
                logits = model(torch.tensor(np.stack(batch["x"])))
                loss = (torch.tensor(batch["weight"]) * logits.square().sum(dim=1)).mean()
                loss.backward()
                seen.append((name, batch["row"].tolist(), batch["weight"].tolist()))
        (tmp_path / f"seen-{rank}.json").write_text(json.dumps(seen))

    fitted = TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "runs")),
        datasets=epochs,
    ).fit()
    assert fitted.error is None
    seen = [
        entry
        for rank in (0, 1)
        for entry in json.loads((tmp_path / f"seen-{rank}.json").read_text())
    ]
    for epoch, name in enumerate(epochs):
        copies, weights = selector.at(epoch).draw(labels, 0)
        drawn = Counter({row: count for row, count in enumerate(copies.tolist()) if count})
        given = Counter()
        for which, batch, told in seen:
            if which == name:
                given.update(batch)
                np.testing.assert_allclose(told, weights[batch])
        # Ray Train hands out equally many rows to each worker, and may leave out one for that.
        assert given <= drawn
        assert drawn.total() - given.total() <= 1
