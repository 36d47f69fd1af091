"""The cost of selection on two processes, compared with a shuffling DistributedSampler."""

import multiprocessing
import os
import socket
import time
from multiprocessing.queues import SimpleQueue
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DistributedSampler

from benchmarks.harness import publish, table
from tailbatch.selection import AdaptiveSelector, Selector
from tailbatch.training import DistributedSelector

N_SAMPLES, BATCH, N_RANKS, BATCHES, ROUNDS = 10**6, 128, 2, 400, 5


def _selector(max_lag: int = 0) -> Selector:
    losses = np.random.default_rng(0).exponential(size=N_SAMPLES)
    return AdaptiveSelector(
        1.0,
        n_samples=N_SAMPLES,
        batch_size=BATCH * N_RANKS,
        selection_pressure=16,
        initial_losses=losses,
        max_lag=max_lag,
    )


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(start: tuple[float, float], n_batches: int) -> dict[str, float]:
    """Return wall-clock and CPU seconds per batch; other work on the machine does not add CPU time."""
    wall, processor = _clocks()
    return {
        "whole": (wall - start[0]) / n_batches,
        "processor": (processor - start[1]) / n_batches,
    }


class _Selected:
    """Draws and observes, and times the collective separately."""

    def __init__(self, gather_every: int = 1) -> None:
        self.selector = DistributedSelector(_selector(gather_every - 1), gather_every=gather_every)
        self.collective = 0.0
        gather = self.selector._gather

        def timed(message: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            start = time.perf_counter()
            gathered = gather(message)
            self.collective += time.perf_counter() - start
            return gathered

        self.selector._gather = timed  # type: ignore[method-assign]  # to look inside
        next(iter(self.selector))  # the ranks check once that they agree

    def run(self) -> dict[str, float]:
        self.collective = 0.0
        losses = torch.rand(BATCH)
        start = _clocks()
        for _, index in zip(range(BATCHES), self.selector, strict=False):
            self.selector.observe(losses, index)
        return {**_since(start, BATCHES), "collective": self.collective / BATCHES}


def _shuffled(epoch: int) -> dict[str, float]:
    """Time a whole epoch, since most of its cost is the permutation at the start."""
    sampler: DistributedSampler[int] = DistributedSampler(range(N_SAMPLES))  # type: ignore[arg-type]  # any sized thing
    sampler.set_epoch(epoch)
    start = _clocks()
    n_batches = sum(1 for _ in BatchSampler(sampler, BATCH, drop_last=False))
    return _since(start, n_batches)


def _alone() -> dict[str, float]:
    selector = _selector()
    losses = torch.rand(BATCH * N_RANKS)
    start = _clocks()
    for _, _index in zip(range(BATCHES), selector, strict=False):
        selector.observe(losses)
    return _since(start, BATCHES)


def _rank(rank: int, port: int, results: "SimpleQueue[dict[str, dict[str, float]]]") -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=N_RANKS)
    every, seldom = _Selected(), _Selected(gather_every=8)
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(ROUNDS):
        rounds.append({"shuffled": _shuffled(number), "alone": _alone()})
        dist.barrier()
        rounds[-1] |= {"every": every.run(), "seldom": seldom.run()}
    if rank == 0:
        results.put(
            {
                name: {part: median(r[name][part] for r in rounds) for part in rounds[0][name]}
                for name in rounds[0]
            }
        )
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results: SimpleQueue[dict[str, dict[str, float]]] = context.SimpleQueue()
    ranks = [context.Process(target=_rank, args=(rank, port, results)) for rank in range(N_RANKS)]
    for rank in ranks:
        rank.start()
    timings = results.get()
    for rank in ranks:
        rank.join()
    shuffled = timings["shuffled"]["processor"]
    names = {
        "shuffled": "`DistributedSampler`, a shuffled epoch",
        "alone": "`AdaptiveSelector` in one process, batches of 256",
        "every": "`DistributedSelector`, losses gathered every batch",
        "seldom": "`DistributedSelector`, `gather_every=8` (lag 7)",
    }
    rows = [
        [
            text,
            f"{timings[name]['whole'] * 1e3:.3f}",
            f"{timings[name]['collective'] * 1e3:.3f}" if "collective" in timings[name] else "",
            f"{timings[name]['processor'] * 1e3:.3f}",
            f"{timings[name]['processor'] / shuffled:.1f}",
        ]
        for name, text in names.items()
    ]
    note = (
        f"{N_RANKS} gloo ranks on one machine, n = 10^6, {BATCH} samples per rank, median of {ROUNDS} "
        f"rounds of {BATCHES} batches: drawing, exchanging and observing, without training. "
        "The collective includes waiting for the other rank."
    )
    header = [
        "one batch on one rank",
        "wall-clock ms",
        "of which in the collective",
        "CPU ms",
        "times DistributedSampler (CPU)",
    ]
    publish("distributed", f"## Several processes\n\n{note}\n\n{table(header, rows)}")
