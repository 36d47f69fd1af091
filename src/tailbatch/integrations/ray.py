"""Ray as the engine of a study, and of a training loop whose workers may be lost."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tailbatch.errors import TailbatchError, check_number, require

if TYPE_CHECKING:
    import torch

    from tailbatch.selection import Selector
    from tailbatch.training import DistributedSelector

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


# ---- Ray Train -----------------------------------------------------------------------------------


@dataclass
class RayLoop:
    """What each worker of Ray Train trains: made by a function of yours, the same on every worker.

    Parameters
    ----------
    model
        The module, on the CPU; it is moved and wrapped in ``DistributedDataParallel``.
    optimizer
        Of the model's parameters.
    selector
        Chooses the batches, which are those of all workers together.
    batch
        Returns the features and labels of a batch for the numbers of its rows, as tensors.
    losses
        Returns the losses (b, q) for logits and labels; what is minimized is their sum over labels,
        averaged over rows with the selector's weights.
    """

    model: "torch.nn.Module"
    optimizer: "torch.optim.Optimizer"
    selector: "Selector"
    batch: "Callable[[Any], tuple[torch.Tensor, torch.Tensor]]"
    losses: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"


def train_loop(
    make: Callable[[], RayLoop], *, epochs: int, checkpoint_every: int = 100, seed: int = 0
) -> Callable[[], None]:
    """Return a training function for Ray's ``TorchTrainer``, with checkpoints of model and selector.

    Give the trainer a ``RunConfig`` with a ``storage_path`` that all machines share and a
    ``FailureConfig(max_failures=...)``: after a worker is lost, all continue from the last checkpoint,
    in the middle of an epoch, and two workers end with the weights that they would have had.

    Parameters
    ----------
    make
        Makes model, optimizer, selector and data; called once on each worker.
    epochs
        Epochs of the selector.
    checkpoint_every
        Batches between checkpoints. The last weights are a checkpoint, too.
    seed
        Of dropout and the like, in each batch anew.

    Examples
    --------
    >>> train = train_loop(make, epochs=4)  # doctest: +SKIP
    >>> TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()  # doctest: +SKIP
    """
    check_number("epochs", epochs, least=1, whole=True)
    check_number("checkpoint_every", checkpoint_every, least=1, whole=True)

    def train() -> None:
        import torch

        from tailbatch.models.base import seeded
        from tailbatch.training import DistributedSelector

        require("ray", extra="ray")
        from ray import train as workers
        from ray.train.torch import get_device, prepare_model

        loop, device = make(), get_device()
        loop.selector.plan_epochs(epochs)
        model, selector = prepare_model(loop.model), DistributedSelector(loop.selector)
        rank, step = workers.get_context().get_world_rank(), 0
        if last := workers.get_checkpoint():
            with last.as_directory() as folder:
                state = torch.load(Path(folder) / _STATE, map_location=device, weights_only=True)
            loop.model.load_state_dict(state["model"])
            loop.optimizer.load_state_dict(state["optimizer"])
            selector.load_state_dict(state["selector"])
            step = state["step"]
        while selector.epoch < epochs:
            for index in selector:
                with seeded(seed, "ray train", step, rank, device=device):
                    x, y = loop.batch(index)
                    losses = loop.losses(model(x.to(device)), y.to(device))
                    loop.optimizer.zero_grad()
                    loss = selector.mean(losses.sum(dim=1)) * selector.loss_scale()
                    loss.backward()
                    loop.optimizer.step()
                selector.observe(losses)
                step += 1
                if step % checkpoint_every == 0:
                    _save(loop, selector, step, rank, float(loss.detach()))
        _save(loop, selector, step, rank, float(loss.detach()))

    return train


_STATE = "state.pt"


def _save(
    loop: RayLoop, selector: "DistributedSelector", step: int, rank: int, loss: float
) -> None:
    """Report to Ray on every worker; the first one brings the checkpoint."""
    import torch
    from ray import train as workers

    told = {"step": step, "epoch": selector.epoch, "loss": loss}
    state = {
        "selector": selector.state_dict(),
        "step": step,
    }  # on each rank: it may exchange losses
    if rank:
        workers.report(told)
        return
    state |= {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}
    with TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / _STATE)
        workers.report(told, checkpoint=workers.Checkpoint.from_directory(folder))
