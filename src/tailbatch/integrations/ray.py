"""Ray as the engine of a study: the executor of `concurrent.futures` over a cluster."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from typing import Any, ParamSpec, TypeVar

from tailbatch.errors import TailbatchError, require

P = ParamSpec("P")
T = TypeVar("T")

RETRIES = 3
"""How often Ray does a call again whose worker process or machine was lost."""


class RayExecutor(Executor):
    """Runs each call on one processor of a Ray cluster.

    A call whose worker process is lost is done again by Ray; when that has happened too often, its
    future raises `BrokenExecutor`. Shutting down with ``cancel_futures`` interrupts the calls under
    way as Ctrl-C would. The cluster is left running unless this executor started it.

    Parameters
    ----------
    address
        ``"auto"``: the cluster running on this machine, or a new local one where there is none;
        otherwise the address of a cluster, such as ``"ray://head:10001"`` or ``"10.0.0.1:6379"``.
        A program that has called ``ray.init`` itself keeps its own connection.
    environment
        Variables that the workers need, for instance ``TAILBATCH_DATA``.

    Examples
    --------
    >>> with RayExecutor("auto") as executor:  # doctest: +SKIP
    ...     executor.submit(divmod, 7, 3).result()
    (2, 1)
    """

    def __init__(
        self, address: str = "auto", *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._ray: Any = require("ray", extra="ray")
        self._errors: Any = require("ray.exceptions", extra="ray")
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(address)
        self._call = self._ray.remote(_call).options(
            num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": dict(environment or {})}
        )
        self._calls: dict[Future[Any], Any] = {}
        self._closed = False

    @property
    def workers(self) -> int:
        """Processors of the cluster: how many calls it runs at a time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on the cluster."""
        if self._closed:
            raise RuntimeError("cannot submit to an executor that was shut down")
        reference = self._call.remote(fn, args, kwargs)
        call: Future[T] = Future()
        call.set_running_or_notify_cancel()
        self._calls[call] = reference
        reference.future().add_done_callback(lambda done: self._finish(call, done))
        return call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let calls under way finish, or interrupt them; stop a cluster that was started here."""
        self._closed = True
        if cancel_futures:
            for reference in list(self._calls.values()):
                self._ray.cancel(reference)
        if wait:
            _settle(self._calls)
            if self._started:
                self._ray.shutdown()

    def _connect(self, address: str) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            self._ray.init(address=address, **quiet)
        except ConnectionError as error:
            if address != "auto":
                raise TailbatchError(f"there is no Ray cluster at {address}: {error}") from error
            self._ray.init(num_cpus=os.cpu_count(), include_dashboard=False, **quiet)

    def _finish(self, call: "Future[Any]", done: "Future[Any]") -> None:
        """Hand over what Ray says, as an executor would say it."""
        error = done.exception()
        if error is None:
            call.set_result(done.result())
        elif isinstance(error, self._errors.RayTaskError):
            call.set_exception(error.cause if isinstance(error.cause, Exception) else error)
        else:
            lost = BrokenExecutor(f"a worker was lost: {type(error).__name__}")
            lost.__cause__ = error
            call.set_exception(lost)
        self._calls.pop(call, None)


def _call(fn: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
    return fn(*args, **kwargs)


def _settle(calls: Mapping["Future[Any]", Any]) -> None:
    wait(list(calls))
