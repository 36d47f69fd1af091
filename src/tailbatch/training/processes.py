"""What the loop needs to know of other processes: with one process, next to nothing."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that ``torchrun`` started, if it did, and leave them at the end.

    Examples
    --------
    >>> with process_group():
    ...     this_rank()
    0
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    try:
        yield
    finally:
        dist.destroy_process_group()


def this_rank() -> int:
    """Return this process's rank; 0 writes files and talks to callbacks."""
    return dist.get_rank() if _together() else 0


def wait_for_ranks() -> None:
    """Go on when all ranks have come here."""
    if _together():
        dist.barrier()


def average_over_ranks(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by their means over the ranks, in place and in one collective."""
    if not _together():
        return
    listed = list(tensors)
    flat = torch.cat([tensor.reshape(-1) for tensor in listed])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    means = torch.split(flat, [tensor.numel() for tensor in listed])
    for tensor, mean in zip(listed, means, strict=True):
        tensor.copy_(mean.view_as(tensor))


def on_any_rank(fact: bool, device: torch.device) -> bool:
    """Return whether something is so on any rank, and the same answer on all of them."""
    if not _together():
        return fact
    flag = torch.tensor(int(fact), device=device)
    dist.all_reduce(flag)
    return bool(flag)


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()
