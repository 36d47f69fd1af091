"""What the loop needs to know about other processes: with one process, next to nothing."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from tailbatch.errors import TrainingError
from tailbatch.training.ranks import are_together, finish, meet, rank_timeout, telling_ranks


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that ``torchrun`` started, if it did, and leave them at the end.

    A rank that raises tells the others why. Ranks wait for each other at most
    ``TAILBATCH_RANK_TIMEOUT`` seconds, 1800 by default.

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
    seconds = rank_timeout()
    try:
        dist.init_process_group(timeout=timedelta(seconds=seconds))
    except RuntimeError as error:
        raise TrainingError(
            f"the {os.environ['WORLD_SIZE']} processes did not find each other within {seconds:g} "
            f"seconds ({str(error).splitlines()[0][:200]}): check the output of the others"
        ) from error
    try:
        with telling_ranks():
            yield
    finally:
        dist.destroy_process_group()


def this_rank() -> int:
    """Return this process's rank; rank 0 writes files and calls the callbacks."""
    return dist.get_rank() if are_together() else 0


def is_alone() -> bool:
    """Return whether training runs in this process alone."""
    return not are_together()


def wait_for_ranks() -> None:
    """Wait until all ranks have reached this point."""
    if are_together():
        meet()


def average_over_ranks(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by their means over the ranks, in place and in one collective."""
    if not are_together():
        return
    listed = list(tensors)
    flat = torch.cat([tensor.reshape(-1) for tensor in listed])
    finish(dist.all_reduce(flat, async_op=True))
    flat /= dist.get_world_size()
    means = torch.split(flat, [tensor.numel() for tensor in listed])
    for tensor, mean in zip(listed, means, strict=True):
        tensor.copy_(mean.view_as(tensor))


def on_any_rank(fact: bool, device: torch.device) -> bool:
    """Return whether a condition holds on any rank; every rank gets the same answer."""
    if not are_together():
        return fact
    flag = torch.tensor(int(fact), device=device)
    finish(dist.all_reduce(flag, async_op=True))
    return bool(flag)
