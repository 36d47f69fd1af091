import io

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from integrations import pytorch_work
from integrations.ranks import run_killed
from integrations.streams import N_SAMPLES, losses, selector, stream
from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader, StatefulBatches
from tailbatch.training import DistributedSelector

ROWS = TensorDataset(torch.arange(float(N_SAMPLES)))
INDEXED = IndexedDataset(ROWS)
AHEAD = {0: 0, 1: 2, 2: 4}  # batches that a loader draws ahead, by its number of workers


def train(loader, chosen, epochs=3, *, stop_after=None):
    """Observe every batch of a loader; return the batches, the state after one of them left out."""
    seen = []
    for _ in range(chosen.epoch, epochs):
        for index, _ in loader:
            seen.append(index.tolist())
            chosen.observe(losses(index), index)
            if len(seen) == stop_after:
                return seen
    return seen


def through_a_file(state):
    """Return a state as it comes back from a file that is read without pickle."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_loader_without_workers_follows_the_selector_without_lag():
    plain, chosen = selector(), selector()
    seen = []
    for _ in range(3):
        for (rows,) in DataLoader(ROWS, batch_sampler=chosen):
            seen.append(rows.int().tolist())
            chosen.observe(losses(rows.int()))
    assert seen == stream(plain)
    assert chosen.diagnostics().lag == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_lag_of_workers_is_what_they_read_ahead(workers):
    chosen = selector(max_lag=AHEAD[workers])
    train(DataLoader(INDEXED, batch_sampler=chosen, num_workers=workers), chosen)
    assert chosen.diagnostics().lag == workers * 2
    for kind in (DataLoader, StatefulDataLoader):
        told = rf"1 earlier batch has no losses .*num_workers=0 or allow it with max_lag={2 * workers}$"
        with pytest.raises(StaleSelectionError, match=told):
            next(iter(kind(INDEXED, batch_sampler=selector(), num_workers=workers)))


@pytest.mark.parametrize("strategy", ["hard", "importance"])
def test_a_loader_with_workers_needs_no_index(strategy):
    def batches(workers, named):
        chosen = selector(strategy, max_lag=4)
        loader = DataLoader(INDEXED, batch_sampler=chosen, num_workers=workers)
        weighted = []
        for _ in range(3):
            for index, _ in loader:
                given = (index,) if named else ()
                weighted.append(float(chosen.mean(losses(index), *given)))
                chosen.observe(losses(index), *given)
        return weighted, chosen.state_dict()

    (weighted, state), (expected, same) = batches(2, named=False), batches(2, named=True)
    assert weighted == expected
    assert all(np.array_equal(state[key], same[key]) for key in state)


def test_the_weights_that_a_loader_with_workers_skips_name_its_lag():
    loader = DataLoader(INDEXED, batch_sampler=selector("importance"), num_workers=2)
    list(loader)  # the warm-up, which has no weights
    with pytest.raises(
        SelectionError, match=r"selector\.mean.* in place .* allow it with max_lag=4"
    ):
        list(loader)


def test_batches_out_of_order_find_their_losses():
    chosen = selector(max_lag=4)
    loader = DataLoader(INDEXED, batch_sampler=chosen, num_workers=2, in_order=False)
    assert len(train(loader, chosen)) == 3 * len(chosen)
    seen = chosen._memory()["scores"][0]
    assert np.array_equal(seen, losses(np.arange(N_SAMPLES)))


# An epoch has 6 batches, and 2 workers have drawn 4 ahead: from batch 2 on it is drawn to its end.
@pytest.mark.parametrize(
    ("workers", "stop_after", "strategy"),
    [
        (0, 1, "chain"),
        (0, 6, "adaptive"),
        (0, 8, "random"),
        (2, 1, "adaptive"),
        (2, 6, "hard"),
        (2, 9, "adaptive"),
        (2, 11, "random"),
    ],
)
def test_a_loader_resumes_anywhere(workers, stop_after, strategy):
    def make():
        chosen = selector(strategy, max_lag=AHEAD[workers])
        return chosen, SelectiveLoader(INDEXED, chosen, num_workers=workers)

    whole = train(*make()[::-1])
    chosen, loader = make()
    head = train(loader, chosen, stop_after=stop_after)
    state = through_a_file(loader.state_dict())
    chosen, loader = make()
    loader.load_state_dict(state)
    assert head + train(loader, chosen) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_training_resumes_in_the_middle_of_an_epoch(workers, tmp_path):
    whole = pytorch_work.train(tmp_path / "none.pt", workers)
    run_killed(pytorch_work.train_killed, tmp_path / "saved.pt", workers)
    assert pytorch_work.train(tmp_path / "saved.pt", workers) == whole


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop_after", [3, 8])
def test_a_stateful_loader_resumes_in_the_middle_of_an_epoch(workers, stop_after):
    def make():
        chosen = selector(max_lag=AHEAD[workers])
        batches = StatefulBatches(chosen)
        return chosen, StatefulDataLoader(INDEXED, batch_sampler=batches, num_workers=workers)

    whole = train(*make()[::-1])
    chosen, loader = make()
    head = train(loader, chosen, stop_after=stop_after)
    state = {"loader": loader.state_dict(), "selector": chosen.state_dict()}
    chosen, loader = make()
    chosen.load_state_dict(state["selector"])
    loader.load_state_dict(state["loader"])
    assert head + train(loader, chosen) == whole


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            selector(),
            {"num_workers": 2},
            r"4 batches .* make it with max_lag=4, or use num_workers=0",
        ),
        (selector(), {"shuffle": True}, r"shuffle is decided by the selector: leave it out"),
        (selector(), {"batch_size": 8}, r"batch_size is decided by the selector: leave it out"),
        (
            DistributedSampler(selector(), num_replicas=2, rank=0),
            {},
            r"got a DistributedSampler: give .* DistributedSelector\(selector\)",
        ),
    ],
)
def test_misuse_says_what_to_change(given, options, message):
    with pytest.raises(SelectionError, match=message):
        SelectiveLoader(INDEXED, given, **options)


def test_a_loop_that_forgets_to_observe_is_told():
    with pytest.raises(StaleSelectionError, match=r"Call observe\(losses\) after every step"):
        list(SelectiveLoader(INDEXED, selector()))


def test_a_loop_that_never_draws_is_told():
    chosen = selector()
    loader = DataLoader(INDEXED, sampler=DistributedSampler(ROWS, num_replicas=2, rank=0))
    index, _ = next(iter(loader))
    with pytest.raises(SelectionError, match=r"is not pending: it was never drawn"):
        chosen.observe(losses(index), index)


def test_a_distributed_selector_is_not_wrapped_twice():
    with pytest.raises(SelectionError, match=r"of a selector, .* got a DistributedSelector"):
        DistributedSelector(DistributedSelector(selector()))
