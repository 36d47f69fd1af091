"""Ray as the engine of a study: the executor of `concurrent.futures` over a cluster."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from tailbatch.errors import TailbatchError, require

P = ParamSpec("P")
T = TypeVar("T")

RETRIES = 3
"""How often Ray repeats a call whose worker process or machine was lost."""


class RayExecutor(Executor):
    """Runs each call on one processor of the Ray cluster that the program is connected to.

    Ray repeats a call whose worker process is lost, up to `RETRIES` times; then its future raises
    `BrokenExecutor`. Shutting down with ``cancel_futures`` interrupts running calls, as Ctrl-C would.

    Parameters
    ----------
    environment
        Variables that the workers need, for instance ``TAILBATCH_DATA``.

    Examples
    --------
    >>> with RayExecutor.connected("auto"), RayExecutor() as executor:  # doctest: +SKIP
    ...     executor.submit(divmod, 7, 3).result()
    (2, 1)
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._ray: Any = require("ray", extra="ray")
        self._call = self._ray.remote(_call).options(
            num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": dict(environment or {})}
        )
        self._under_way: dict[Future[Any], Any] = {}
        self._closed = False

    @staticmethod
    @contextmanager
    def connected(address: str = "auto") -> Iterator[None]:
        """Connect to a Ray cluster for the length of the block.

        ``"auto"`` is the cluster running on this machine, or a new local one where there is none. Others
        have an address, such as ``"ray://head:10001"``. A program that has called ``ray.init`` itself
        keeps its own connection.
        """
        ray: Any = require("ray", extra="ray")
        if ray.is_initialized():
            yield
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            if address != "auto":
                raise TailbatchError(f"no Ray cluster answers at {address}: {error}") from error
            ray.init(include_dashboard=False, **quiet)
        try:
            yield
        finally:
            ray.shutdown()

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
        self._under_way[call] = reference
        reference.future().add_done_callback(lambda done: self._finish(call, done))
        return call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the calls under way finish, or interrupt them."""
        self._closed = True
        calls = dict(self._under_way)
        if cancel_futures:
            for reference in calls.values():
                self._ray.cancel(reference)
        if wait:
            wait_for(calls)

    def _finish(self, call: "Future[Any]", done: "Future[Any]") -> None:
        """Put Ray's result or error into the future, as an executor would."""
        error = done.exception()
        cause = getattr(error, "cause", None)
        if error is None:
            call.set_result(done.result())
        elif isinstance(cause, Exception):
            call.set_exception(cause)
        else:
            lost = BrokenExecutor(f"Ray lost a worker ({type(error).__name__})")
            lost.__cause__ = error
            call.set_exception(lost)
        self._under_way.pop(call, None)


def _call(fn: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
    return fn(*args, **kwargs)
