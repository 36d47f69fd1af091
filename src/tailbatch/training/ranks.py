"""Ranks that wait for each other, and how one that fails tells the others why.

A collective waits for every rank. When one fails, the others would see a broken connection, or
nothing at all until torch times out. So a failing rank leaves its reason in the store that the process
group was made with, and waiting ranks check there from time to time.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed import distributed_c10d

from tailbatch.errors import TailbatchError, TrainingError

TIMEOUT = 1800.0  # seconds, torch's own default
_TIMEOUT_NAME = "TAILBATCH_RANK_TIMEOUT"
_LOOK_EVERY = timedelta(seconds=0.5)
_GOODBYE = 10.0  # seconds that a failing rank waits for the others to read its reason
_TOLD = "_tailbatch_ranks_know"


def rank_timeout() -> float:
    """Return how many seconds ranks wait for each other: ``TAILBATCH_RANK_TIMEOUT``, or 1800.

    Examples
    --------
    >>> rank_timeout()
    1800.0
    """
    text = os.environ.get(_TIMEOUT_NAME, "")
    try:
        seconds = float(text or TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise TrainingError(f"{_TIMEOUT_NAME} must be a number of seconds above 0, got {text!r}")
    return seconds


def are_together() -> bool:
    """Return whether this process belongs to a process group."""
    return dist.is_available() and dist.is_initialized()


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
        if are_together() and not hasattr(error, _TOLD):
            _conversation().tell(error)
            setattr(error, _TOLD, True)
        raise


def finish(work: Any) -> None:
    """Wait for a collective; raise a clear error if a rank has failed, died or hangs."""
    conversation = _conversation()
    conversation.number += 1
    try:
        conversation.wait_until(lambda: _is_done(work))
    except RuntimeError as error:
        if isinstance(error, TailbatchError):
            raise
        conversation.explain(error)


def meet() -> None:
    """Wait until every rank has reached this point."""
    conversation = _conversation()
    conversation.number += 1
    conversation.arrive()
    conversation.wait_until(lambda: not conversation.missing() or _pause())


def _is_done(work: Any) -> bool:
    """Wait for a collective for a short time."""
    try:
        work.wait(_LOOK_EVERY)
    except RuntimeError as error:
        if "timed out" in str(error).lower() and not work.is_completed():
            return False
        raise
    return True


def _pause() -> bool:
    time.sleep(0.02)
    return False


class Conversation:
    """Messages between the ranks of one process group besides their collectives.

    After a failure a new round begins, so that the group can be used again.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.rank, self.n_ranks = dist.get_rank(), dist.get_world_size()
        self.round = 0
        self.number = 0  # how many times this rank has waited for the others

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Poll, waiting briefly each time, until it succeeds or cannot succeed."""
        start, limit = time.monotonic(), rank_timeout()
        waited = 0.0
        while not is_done():
            if waited == 0.0:
                self.arrive()
            waited = time.monotonic() - start
            self._refuse_as_told()
            if waited > limit:
                self._raise(
                    f"{_names(self.missing())} did not arrive within {limit:g} seconds: check the "
                    f"output of that process, or wait longer with {_TIMEOUT_NAME}"
                )

    def arrive(self) -> None:
        """Record that this rank waits for the others, so that they see which rank is missing."""
        self.store.set(self._key("at", self.rank), str(self.number))

    def missing(self) -> list[int]:
        """Return the ranks that have not come as far as this one."""
        return [rank for rank in range(self.n_ranks) if self._place(rank) < self.number]

    def tell(self, error: Exception) -> None:
        """Leave a reason, if no rank has yet, and stay until the others have read it."""
        text = str(error) or type(error).__name__
        with suppress(RuntimeError):  # the rank that hosted the store may be gone
            self.store.compare_set(self._key("reason"), "", f"rank {self.rank}: {text}")
        self._part()

    def explain(self, error: RuntimeError) -> NoReturn:
        """Raise the cause of a broken connection."""
        self._refuse_as_told()
        with suppress(RuntimeError):
            self.arrive()
        reason = str(error).strip().splitlines()[0][:200]
        time.sleep(1.0)  # time for the surviving ranks to arrive
        self._refuse_as_told()
        lost = [rank for rank in self.missing() if rank != self.rank]
        self._raise(
            f"{_names(lost)} ended unexpectedly (it was killed, or its machine failed): check the "
            f"output of that process, and resume from the last checkpoint ({reason})"
        )

    def _refuse_as_told(self) -> None:
        reason = ""
        with suppress(RuntimeError):
            if self.store.check([self._key("reason")]):
                reason = self.store.get(self._key("reason")).decode()
        if reason:
            self._part()
            self._raise(f"another rank failed: {reason}")

    def _raise(self, message: str) -> NoReturn:
        error = TrainingError(message)
        setattr(error, _TOLD, True)
        raise error

    def _part(self) -> None:
        """Stay briefly until all ranks know; this process may be the one that hosts the store."""
        end = time.monotonic() + min(_GOODBYE, rank_timeout())
        with suppress(RuntimeError):
            self.store.set(self._key("knows", self.rank), "1")
            keys = [self._key("knows", rank) for rank in range(self.n_ranks)]
            while not self.store.check(keys) and time.monotonic() < end:
                time.sleep(0.02)
        self.round, self.number = (
            self.round + 1,
            0,
        )  # reset, because the ranks stopped at different counts

    def _place(self, rank: int) -> int:
        key = self._key("at", rank)
        try:
            return int(self.store.get(key)) if self.store.check([key]) else -1
        except RuntimeError:
            return -1

    def _key(self, *parts: object) -> str:
        return "/".join(map(str, ("tailbatch", self.round, *parts)))


def _names(ranks: list[int]) -> str:
    if not ranks:
        return "a rank"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


_latest: list[Conversation] = []


def _conversation() -> Conversation:
    """Return this process's messenger for its group; each group has its own."""
    store = distributed_c10d._get_default_store()
    if not _latest or _latest[0].store is not store:
        _latest[:] = [Conversation(store)]
    return _latest[0]
