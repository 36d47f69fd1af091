"""Selectors in PyTorch: loaders, tensors, and a training that is killed and goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, Subset, TensorDataset

from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.selection import AdaptiveSelector, HardSelector, make_selector

SCRIPT = Path(__file__).with_name("killed_training.py")


def test_a_selector_is_a_batch_sampler():
    dataset = TensorDataset(torch.arange(20) * 10)
    for data in (dataset, Subset(dataset, range(20))):
        selector = HardSelector(20, batch_size=6)
        loader = DataLoader(data, batch_sampler=selector)
        assert len(loader) == 4
        seen = []
        for (values,) in loader:
            seen += values.tolist()
            selector.observe(values / 100)
        assert len(seen) == 20
        assert (selector.epoch, selector.diagnostics().lag) == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_losses_and_indices_may_be_tensors(dtype):
    selector = AdaptiveSelector(1.0, n_samples=6, batch_size=6)
    index = next(iter(selector))
    losses = torch.linspace(0, 1, 6, dtype=dtype, requires_grad=True) * 2
    selector.observe(losses, index=torch.tensor(index))
    assert selector.probabilities()[index].argmax() == 5


def test_a_loader_with_workers_needs_a_lag():
    dataset = TensorDataset(torch.arange(64))
    selector = HardSelector(64, batch_size=4)
    loader = DataLoader(dataset, batch_sampler=selector, num_workers=1)
    with pytest.raises(
        StaleSelectionError, match=r"DataLoader workers.*num_workers=0 or .*max_lag="
    ):
        next(iter(loader))
    selector = HardSelector(64, batch_size=4, max_lag=3)
    for (index,) in DataLoader(dataset, batch_sampler=selector, num_workers=1):
        selector.observe(index / 64, index=index)
    assert 0 < selector.diagnostics().lag <= 3


@pytest.mark.parametrize("strategy", ["random", "uniform", "balanced", "class_aware"])
@pytest.mark.parametrize("named", [False, True])
def test_a_baseline_takes_losses_from_a_loader_that_reads_ahead(strategy, named):
    Y = np.eye(4, dtype=bool)[np.arange(61) % 4]
    selector = make_selector(strategy, Y, batch_size=4)
    loader = DataLoader(TensorDataset(torch.arange(61)), batch_sampler=selector, num_workers=2)
    for _ in range(2):
        for (index,) in loader:
            selector.observe(index / 61, index if named else None)
    assert selector.epoch == 2


def test_an_epoch_of_one_batch_has_to_use_its_weights():
    selector = make_selector("importance", np.eye(4, dtype=bool), batch_size=8)
    assert len(list(selector)) == 1
    with pytest.raises(SelectionError, match=r"write loss = selector\.mean"):
        list(selector)


def test_two_lines_in_a_plain_loop():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.random((60, 5)), dtype=torch.float32)
    Y = torch.tensor(rng.random((60, 3)) < 0.3, dtype=torch.float32)
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.Adam(model.parameters())
    selector = make_selector("adaptive", Y, X=X, batch_size=16, warm_up_epochs=1)
    loader = DataLoader(TensorDataset(X, Y), batch_sampler=selector)
    for _ in range(3):
        for x, y in loader:
            losses = binary_cross_entropy_with_logits(model(x), y, reduction="none")
            selector.observe(losses)
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
    assert selector.epoch == 3
    assert selector.diagnostics().effective_pressure > 1


def train(strategy, folder, name, die_at):
    command = [sys.executable, SCRIPT, strategy, folder / f"{name}.pt", folder / f"{name}.weights"]
    return subprocess.run([*map(str, command), str(die_at)], check=False).returncode


@pytest.mark.parametrize(
    # Event 18 and 19 lie in the second epoch: between draw and observe, and after observe.
    ("strategy", "die_at"),
    [("adaptive", 19), pytest.param("chain", 18, marks=pytest.mark.slow)],
)
def test_a_training_killed_in_the_middle_of_an_epoch_ends_with_the_same_weights(
    strategy, die_at, tmp_path
):
    assert train(strategy, tmp_path, "whole", 0) == 0
    assert train(strategy, tmp_path, "killed", die_at) == -signal.SIGKILL
    assert not (tmp_path / "killed.weights").exists()
    assert train(strategy, tmp_path, "killed", 0) == 0
    whole = torch.load(tmp_path / "whole.weights", weights_only=True)
    killed = torch.load(tmp_path / "killed.weights", weights_only=True)
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_the_room_loads_no_torch():
    code = "import sys, tailbatch.selection; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 2, "drop_last": True}])
def test_a_selector_is_no_sampler_of_single_samples(options):
    selector = make_selector("hard", np.eye(12, dtype=bool), batch_size=4)
    loader = DataLoader(TensorDataset(torch.arange(12)), sampler=selector, **options)
    with pytest.raises(SelectionError, match=r"use DataLoader\(dataset, batch_sampler=selector\)"):
        next(iter(loader))
    assert len(next(iter(DataLoader(loader.dataset, batch_sampler=selector)))[0]) == 4
