"""The ranks of a process group: how they wait for each other, and learn why one of them failed.

A collective waits for every rank. When one fails, the others would see a broken connection, or nothing
at all until torch times out. So a failing rank leaves its reason in the store that the process group
was made with, and waiting ranks look there from time to time.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from tailbatch.errors import TailbatchError, TrainingError

_TIMEOUT_NAME = "TAILBATCH_RANK_TIMEOUT"
_LOOK_EVERY = timedelta(seconds=0.5)
_GOODBYE = 10.0  # seconds that a failing rank waits for the others to read its reason
_TOLD = "_tailbatch_ranks_know"


class Ranks:
    """The ranks of one process group, as one of them sees them; or, without a store, one process.

    Examples
    --------
    >>> alone = Ranks()
    >>> alone.meet()
    >>> alone.rank, alone.n_ranks
    (0, 1)
    """

    def __init__(self, store: Any = None) -> None:
        self.together = store is not None
        self.rank, self.n_ranks = 0, 1
        if self.together:
            self.rank, self.n_ranks = dist.get_rank(), dist.get_world_size()
        self._store = store
        self._round = 0  # a failure ends one, and the group can be used again
        self._number = 0  # how many times this rank has waited for the others

    def finish(self, work: Any) -> None:
        """Wait for a collective; raise a clear error if a rank has failed, died or hangs."""

        def is_done() -> bool:
            try:
                work.wait(_LOOK_EVERY)
            except RuntimeError as error:
                if "timed out" in str(error).lower() and not work.is_completed():
                    return False
                raise
            return True

        self._number += 1
        self._wait_until(is_done)

    def meet(self) -> None:
        """Wait until every rank has reached this point."""

        def is_done() -> bool:
            missing = self._missing()
            if missing:
                time.sleep(0.02)
            return not missing

        if self.together:
            self._number += 1
            self._arrive()
            self._wait_until(is_done)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their means over the ranks, in place and in one collective."""
        listed = list(tensors)
        flat = torch.cat([tensor.reshape(-1) for tensor in listed])
        self.finish(dist.all_reduce(flat, async_op=True))
        flat /= self.n_ranks
        means = torch.split(flat, [tensor.numel() for tensor in listed])
        for tensor, mean in zip(listed, means, strict=True):
            tensor.copy_(mean.view_as(tensor))

    def tell(self, error: Exception) -> None:
        """Leave the reason for a failure, if no rank has yet, and stay until the others have read it."""
        text = str(error) or type(error).__name__
        with suppress(RuntimeError):  # the rank that hosted the store may be gone
            self._store.compare_set(self._key("reason"), "", f"rank {self.rank}: {text}")
        self._part()

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        """Poll until it succeeds or cannot succeed."""
        limit = _rank_timeout()
        end = time.monotonic() + limit
        try:
            while not is_done():
                self._arrive()  # only now: most collectives end at once and need no message
                self._refuse_as_told()
                if time.monotonic() > end:
                    raise _told(
                        f"{_names(self._missing())} did not arrive within {limit:g} seconds: check the "
                        f"output of that process, or wait longer with {_TIMEOUT_NAME}"
                    )
        except TailbatchError:
            raise
        except RuntimeError as error:
            self._explain(error)

    def _explain(self, error: RuntimeError) -> NoReturn:
        """Raise the cause of a broken connection."""
        self._refuse_as_told()
        self._arrive()
        time.sleep(1.0)  # time for the surviving ranks to arrive
        self._refuse_as_told()
        lost = [rank for rank in self._missing() if rank != self.rank]
        raise _told(
            f"{_names(lost)} ended unexpectedly (it was killed, or its machine failed): check the "
            "output of that process, and resume from the last checkpoint "
            f"({str(error).strip().splitlines()[0][:200]})"
        )

    def _arrive(self) -> None:
        """Record that this rank waits, so that the others see which rank is missing."""
        with suppress(RuntimeError):
            self._store.set(self._key("at", self.rank), str(self._number))

    def _missing(self) -> list[int]:
        """Return the ranks that have not come as far as this one."""
        places = [int(self._read("at", rank) or -1) for rank in range(self.n_ranks)]
        return [rank for rank, place in enumerate(places) if place < self._number]

    def _refuse_as_told(self) -> None:
        if reason := self._read("reason"):
            self._part()
            raise _told(f"another rank failed: {reason}")

    def _part(self) -> None:
        """Stay briefly until all ranks know; this process may be the one that hosts the store."""
        end = time.monotonic() + min(_GOODBYE, _rank_timeout())
        with suppress(RuntimeError):
            self._store.set(self._key("knows", self.rank), "1")
            keys = [self._key("knows", rank) for rank in range(self.n_ranks)]
            while not self._store.check(keys) and time.monotonic() < end:
                time.sleep(0.02)
        # Counts start again, because the ranks stopped at different ones.
        self._round, self._number = self._round + 1, 0

    def _read(self, *parts: object) -> str:
        """Return what a rank has written, or nothing."""
        with suppress(RuntimeError):
            if self._store.check([key := self._key(*parts)]):
                return str(self._store.get(key).decode())
        return ""

    def _key(self, *parts: object) -> str:
        return "/".join(map(str, ("tailbatch", self._round, *parts)))


_latest = [Ranks()]


def this_group() -> Ranks:
    """Return the ranks of the process group this process belongs to, or of itself alone."""
    is_together = dist.is_available() and dist.is_initialized()
    store = distributed_c10d._get_default_store() if is_together else None
    # Kept, because the ranks of a group count together how often they have waited.
    if _latest[0]._store is not store:
        _latest[0] = Ranks(store)
    return _latest[0]


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started, if it did, and leave them at the end.

    A rank that raises tells the others why. Ranks wait for each other at most
    ``TAILBATCH_RANK_TIMEOUT`` seconds, 1800 by default.

    Examples
    --------
    >>> with process_group() as ranks:
    ...     ranks.rank
    0
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    seconds = _rank_timeout()
    try:
        dist.init_process_group(timeout=timedelta(seconds=seconds))
    except RuntimeError as error:
        raise TrainingError(
            f"the {os.environ['WORLD_SIZE']} processes did not find each other within {seconds:g} "
            f"seconds ({str(error).splitlines()[0][:200]}): check the output of the others"
        ) from error
    try:
        with telling_ranks():
            yield this_group()
    finally:
        dist.destroy_process_group()


@contextmanager
def telling_ranks() -> Iterator[None]:
    """Tell the other ranks why this one stops if the block raises; do nothing in a single process.

    Examples
    --------
    >>> with telling_ranks():
    ...     pass
    """
    try:
        yield
    except Exception as error:
        ranks = this_group()
        if ranks.together and not hasattr(error, _TOLD):
            ranks.tell(error)
            setattr(error, _TOLD, True)  # such blocks are nested
        raise


def _told(message: str) -> TrainingError:
    """Return an error that no rank has to be told, because all of them know or are gone."""
    error = TrainingError(message)
    setattr(error, _TOLD, True)
    return error


def _rank_timeout() -> float:
    """Return how many seconds ranks wait for each other, half an hour unless the environment says."""
    text = os.environ.get(_TIMEOUT_NAME) or "1800"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise TrainingError(f"{_TIMEOUT_NAME} must be a number of seconds above 0, got {text!r}")
    return seconds


def _names(ranks: list[int]) -> str:
    known = ", ".join(map(str, ranks))
    return f"rank{'s' if len(ranks) > 1 else ''} {known}" if ranks else "a rank"
