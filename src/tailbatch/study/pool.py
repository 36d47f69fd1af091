"""Worker processes that save and stop when their study stops or dies."""

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

_busy = threading.Lock()
_GRACE = 5  # seconds
_UNGUARDED = 77  # the exit code of a worker whose script has no main guard
_said: list[str] = []
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them


class WorkerPool(ProcessPoolExecutor):
    """Single-threaded processes that never outlive the process that made them.

    Each worker holds one end of a pipe whose other end only this process has. The pipe closes when
    this process dies, for whatever reason, or asks to stop (`shutdown` with ``cancel_futures``). A run
    in progress then saves a checkpoint and ends, as on Ctrl-C.

    Parameters
    ----------
    workers
        Number of processes; they start when they are first needed.

    Examples
    --------
    >>> with WorkerPool(1) as pool:
    ...     pool.submit(divmod, 7, 3).result()
    (2, 1)
    """

    def __init__(self, workers: int) -> None:
        self.leave_if_unguarded()
        self.ran_the_script_again = False  # a worker, which then ended; known once the pool has
        context = multiprocessing.get_context("spawn")
        theirs, self._lifeline = context.Pipe(duplex=False)
        super().__init__(workers, context, initializer=_start_worker, initargs=(theirs,))

    @staticmethod
    def leave_if_unguarded() -> None:
        """End a worker that was about to start workers of its own, because its script has no main guard.

        A new process first runs the script that started it, all but what is guarded by
        ``if __name__ == "__main__"``. The process that started it says so (`run_study`).
        """
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            os._exit(_UNGUARDED)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; with `cancel_futures` they stop the runs in progress."""
        if cancel_futures:
            self._lifeline.close()
        processes = list((self._processes or {}).values())
        super().shutdown(wait, cancel_futures=cancel_futures)
        # Not before: the pool's own thread waits for the same processes, and may take their codes.
        self.ran_the_script_again |= any(each.exitcode == _UNGUARDED for each in processes)


class ThisProcess(Executor):
    """Runs each call immediately in this process, without workers; for small studies and notebooks.

    Ctrl-C saves the current run and ends the study.

    Examples
    --------
    >>> with ThisProcess() as process:
    ...     process.submit(divmod, 7, 3).result()
    (2, 1)
    """

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function and return its result as a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        if getattr(future.exception() or future.result(), "interrupted", False):
            raise KeyboardInterrupt
        return future


class _Said(logging.Handler):
    """Keeps what a worker warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        _said.append(record.getMessage())


def said() -> tuple[str, ...]:
    """Return what this worker warned of since the last call; the process that asked says it, once."""
    texts = tuple(_said)
    _said.clear()
    return texts


def _start_worker(lifeline: Connection) -> None:
    """Prepare a worker: Ctrl-C affects only a run in progress, and the worker ends with the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The process that hands out the runs has said what the data is like.
    logging.getLogger("tailbatch.data").setLevel(logging.ERROR)
    logging.getLogger("tailbatch").addHandler(_Said(logging.WARNING))
    _keep_freed_memory()
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _keep_freed_memory() -> None:
    """Keep freed memory for the next step, which allocates the same sizes again.

    The Linux C library returns large blocks to the system immediately and gets them back page by page,
    which takes a fifth of a training step of CLIF or DELA.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**30)
        mallopt(_MMAP_THRESHOLD, 2**25)  # the maximum allowed


def _watch(lifeline: Connection) -> None:
    lifeline.poll(None)  # nothing is ever sent: this returns when the other end is closed
    os.kill(os.getpid(), signal.SIGINT)
    with _busy:  # the run in progress has saved
        # Allow time to return the outcome and be asked to end. The workers of a broken pool get only
        # SIGTERM (since Python 3.12), which a run treats as a request to save.
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join(_GRACE)
        os._exit(1)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in this block, in workers too."""
    with _busy:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)
