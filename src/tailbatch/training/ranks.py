"""Ranks that wait for each other, and what one tells the others when it cannot go on.

A collective waits for every rank. When one refuses, the others would see a broken connection, or
nothing at all until torch loses patience. So whoever refuses leaves its reason in the store that the
process group was made with, and whoever waits looks there now and then.
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

TIMEOUT = 1800.0  # seconds, as torch waits
_TIMEOUT_NAME = "TAILBATCH_RANK_TIMEOUT"
_LOOK_EVERY = timedelta(seconds=0.5)
_GOODBYE = 10.0  # seconds that a refusing rank waits for the others to hear of it
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
    """Tell whether this process belongs to a process group."""
    return dist.is_available() and dist.is_initialized()


@contextmanager
def telling_ranks() -> Iterator[None]:
    """Tell the other ranks why this one stops, if the block raises; alone, do nothing.

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
    """Wait for a collective; end with a clear error where a rank has refused, died or hangs."""
    conversation = _conversation()
    conversation.number += 1
    try:
        conversation.wait_until(lambda: _is_done(work))
    except RuntimeError as error:
        if isinstance(error, TailbatchError):
            raise
        conversation.explain(error)


def meet() -> None:
    """Go on when every rank has come here."""
    conversation = _conversation()
    conversation.number += 1
    conversation.arrive()
    conversation.wait_until(lambda: not conversation.missing() or _pause())


def _is_done(work: Any) -> bool:
    """Wait a little for a collective."""
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
    """What the ranks of one process group tell each other beside their collectives.

    After a refusal a new round begins, so that a group may be used again.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.rank, self.n_ranks = dist.get_rank(), dist.get_world_size()
        self.round = 0
        self.number = 0  # how many times this rank has waited for the others

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Ask again and again, each time waiting a little, until it is done or cannot be."""
        start, limit = time.monotonic(), rank_timeout()
        waited = 0.0
        while not is_done():
            if waited == 0.0:
                self.arrive()
            waited = time.monotonic() - start
            self._refuse_as_told()
            if waited > limit:
                self._raise(
                    f"{_names(self.missing())} did not come within {limit:g} seconds: look at the "
                    f"output of that process, or wait longer with {_TIMEOUT_NAME}"
                )

    def arrive(self) -> None:
        """Note that this rank waits for the others, for them to see who is missing."""
        self.store.set(self._key("at", self.rank), str(self.number))

    def missing(self) -> list[int]:
        """Return the ranks that have not come as far as this one."""
        return [rank for rank in range(self.n_ranks) if self._place(rank) < self.number]

    def tell(self, error: Exception) -> None:
        """Leave a reason, if nobody has yet, and stay until the others have read it."""
        text = str(error) or type(error).__name__
        with suppress(RuntimeError):  # a store that is gone was kept by a rank that is
            self.store.compare_set(self._key("reason"), "", f"rank {self.rank}: {text}")
        self._part()

    def explain(self, error: RuntimeError) -> NoReturn:
        """Raise what lies behind a broken connection."""
        self._refuse_as_told()
        with suppress(RuntimeError):
            self.arrive()
        reason = str(error).strip().splitlines()[0][:200]
        time.sleep(1.0)  # for the others that are alive to arrive
        self._refuse_as_told()
        lost = [rank for rank in self.missing() if rank != self.rank]
        self._raise(
            f"{_names(lost)} ended without a word (it was killed, or its machine failed): look at the "
            f"output of that process, and continue from the last checkpoint ({reason})"
        )

    def _refuse_as_told(self) -> None:
        reason = ""
        with suppress(RuntimeError):
            if self.store.check([self._key("reason")]):
                reason = self.store.get(self._key("reason")).decode()
        if reason:
            self._part()
            self._raise(f"another rank cannot go on: {reason}")

    def _raise(self, message: str) -> NoReturn:
        error = TrainingError(message)
        setattr(error, _TOLD, True)
        raise error

    def _part(self) -> None:
        """Stay, for a while, until all ranks know; the process that keeps the store may be this one."""
        end = time.monotonic() + min(_GOODBYE, rank_timeout())
        with suppress(RuntimeError):
            self.store.set(self._key("knows", self.rank), "1")
            keys = [self._key("knows", rank) for rank in range(self.n_ranks)]
            while not self.store.check(keys) and time.monotonic() < end:
                time.sleep(0.02)
        self.round, self.number = (
            self.round + 1,
            0,
        )  # counted anew: they stopped at different places

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
    """Return this process's part in the talk of its group; another group has one of its own."""
    store = distributed_c10d._get_default_store()
    if not _latest or _latest[0].store is not store:
        _latest[:] = [Conversation(store)]
    return _latest[0]
