"""The training loop: draw, step, observe."""

import inspect
import math
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from types import FrameType

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from tailbatch.data import Parts
from tailbatch.errors import TrainingError, TrainingInterrupted, setting
from tailbatch.files import sweep
from tailbatch.losses.base import refuse_weights
from tailbatch.metrics import METRICS
from tailbatch.models import MultiLabelModel, Step, own_gradients, seeded
from tailbatch.results import TrainingPlan
from tailbatch.selection import Selector
from tailbatch.training.distributed import DistributedSelector
from tailbatch.training.progress import Callback, Progress, Training
from tailbatch.training.ranks import telling_ranks, this_group

# Share of the features in a batch below which gradients are sparse, where the optimizer takes them.
_SPARSE_GRADIENTS = 0.5
# Steps without which a time limit leaves no model, if an epoch has as many.
_FEWEST_STEPS = 100


class Trainer:
    """Train any model with any selector, by one plan.

    Parameters
    ----------
    plan
        Optimizer, epochs, batch size and the rest.
    seed
        Determines the noise of each step (dropout, sampling).
    device
        ``"cpu"``, ``"cuda"``, ... or ``"auto"``: an accelerator if there is one.
    callbacks
        Listeners, for instance a progress bar.
    checkpoint
        File to save to and, if it exists, to resume from; None saves nothing.
    checkpoint_every
        Epochs between two checkpoints. With a checkpoint, SIGTERM and Ctrl-C save one after the
        current step and raise `TrainingInterrupted`.
    metrics
        Names of the validation metrics to record besides the plan's ``best_by``; None records all.
    time_limit
        Seconds of training; a rate that falls along a cosine falls faster where they end it early.

    Examples
    --------
    >>> import numpy as np
    >>> from tailbatch.data import MultiLabelDataset, split, stratified_split
    >>> from tailbatch.models import make_model
    >>> from tailbatch.selection import make_selector
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 4))
    >>> data = MultiLabelDataset.from_arrays(X, X > 0.6)
    >>> parts = split(data, stratified_split(data.Y, validation=0.2, test=0.2, seed=0))
    >>> model = make_model("mlp", parts.train, seed=0)
    >>> selector = make_selector("adaptive", parts.train.Y, X=parts.train.X, batch_size=16)
    >>> training = Trainer(TrainingPlan(epochs=5, batch_size=16)).fit(model, parts, selector)
    >>> len(training.epochs), training.best.number == training.best_epoch
    (5, True)
    """

    def __init__(
        self,
        plan: TrainingPlan,
        *,
        seed: int = 0,
        device: str = "cpu",
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        checkpoint_every: int = 10,
        metrics: Sequence[str] | None = None,
        time_limit: float | None = None,
    ) -> None:
        if plan.best_by not in METRICS:
            raise TrainingError(
                f"best_by must be one of {', '.join(METRICS)}, got {plan.best_by!r}"
            )
        self.plan = plan
        self.seed = seed
        self.device = choose_device(device)
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.time_limit = time_limit
        self.metrics = None if metrics is None else (plan.best_by, *metrics)

    def fit(
        self,
        model: MultiLabelModel,
        parts: Parts,
        selector: Selector,
        *,
        sample_weight: NDArray[np.float64] | None = None,
        part: NDArray[np.int64] | None = None,
    ) -> Training:
        """Train on ``parts.train`` and leave `model` with the best validation epoch's weights.

        The last epoch is the best if nothing can be scored. In a process group each rank trains on its
        slice of every batch, all end with the same weights, and only rank 0 writes checkpoints and calls
        callbacks.

        Parameters
        ----------
        model, parts, selector
            What to train, on which rows, drawn how.
        sample_weight
            (n,) factors of the training rows in the objective, with a mean of 1, or None. The selector
            observes unweighted losses.
        part
            (n,) the part of each training row, for a model that `cross_fits`: the members of that part do
            not train on it, and without validation rows they measure it.
        """
        # Asked of torch directly: a training in one process needs nothing else of the ranks' machinery.
        together = dist.is_available() and dist.is_initialized()
        with telling_ranks() if together else nullcontext():
            if selector.n_samples != parts.train.n_samples:
                raise TrainingError(
                    f"the selector draws from {selector.n_samples} rows, the training part has "
                    f"{parts.train.n_samples}: make it from parts.train.Y"
                )
            if selector.corrected:
                _refuse_unweighted(model, f"{selector.strategy} with correction")
            if sample_weight is not None:
                _refuse_unweighted(model, "sample_weight")
            model.to(self.device)
            progress = Progress(
                self.plan,
                model,
                parts,
                selector,
                seed=self.seed,
                device=self.device,
                metrics=self.metrics,
                sample_weight=sample_weight,
                part=part,
            )
            # Before a state is loaded, which keeps the warm-up that it was saved with.
            selector.plan_epochs(progress.n_epochs)
            if self.checkpoint is not None:
                sweep(self.checkpoint.parent)
                if self.checkpoint.exists():
                    progress.resume(self.checkpoint)
            if together:
                progress.ranks = this_group()
            if together or selector.max_lag:
                # The view over ranks also knows which batch is at hand where losses may come late.
                progress.view = DistributedSelector(selector)
            stopping: AbstractContextManager[list[signal.Signals]] = (
                _noting_signals() if self.checkpoint else nullcontext([])
            )
            gradients: AbstractContextManager[None] = nullcontext()
            # Averaging over ranks writes gradient rows that this rank's batch did not touch; clipping
            # and other optimizers need the whole gradient.
            if not together:
                few = progress.train.x.share_in_use(self.plan.batch_size) < _SPARSE_GRADIENTS
                fit = self.plan.optimizer == "adam_mini" and self.plan.gradient_clip is None
                gradients = own_gradients(model, sparse=few and fit)
            with stopping as signals, gradients:
                while not progress.finished:
                    self._train_epoch(progress, signals)
            self._refuse_too_little(progress)
            return progress.result()

    def _train_epoch(self, progress: Progress, signals: list[signal.Signals]) -> None:
        """Train on the batches of an epoch, as far as the remaining steps allow, and evaluate it."""
        is_first = progress.ranks is None or progress.ranks.rank == 0
        callbacks, selector = self.callbacks if is_first else (), progress.view
        progress.model.train()
        left = math.inf if self.plan.steps is None else self.plan.steps - progress.step
        # An epoch that is not cut short is iterated to its end: only then does the selector count it.
        batches = iter(selector) if left >= selector.batches_left else islice(selector, int(left))
        since = perf_counter()
        for index in batches:
            objective = self._train_on(index, progress)
            # The clock stands still while callbacks draw progress bars or save.
            progress.seconds += perf_counter() - since
            progress.close_batch(objective)
            for callback in callbacks:
                callback.on_batch(progress.step, len(selector), objective)
            if self.checkpoint:
                self._stop_if_asked(self.checkpoint, progress, signals)
            if self._is_out_of_time(progress):
                break
            since = perf_counter()
        else:
            progress.seconds += perf_counter() - since
        epoch = progress.close_epoch()
        for callback in callbacks:
            callback.on_epoch(epoch)
        if self.checkpoint and is_first and epoch.number % self.checkpoint_every == 0:
            progress.save(self.checkpoint)

    def _train_on(self, index: NDArray[np.int64], progress: Progress) -> float:
        """Take one step on a batch, give the selector its losses, and return its objective."""
        model, selector, weight = progress.model, progress.view, progress.sample_weight
        x, y = progress.train.fetch(index)  # (b, d), (b, q)
        known = {} if progress.part is None else {"part": progress.part[index]}
        progress.rate.before_step(progress.step, progress.share_of_time)
        with seeded(self.seed, "step", progress.step, device=self.device):
            weights = selector.unequal_weights() if selector.corrected else None
            if weight is not None:
                weights = weight[index] * (1 / len(index) if weights is None else weights)
            # None is not passed on: a model of one's own need not take weights.
            given = () if weights is None else (torch.from_numpy(weights).to(y),)
            output = model.step(x, y, *given, **known)
            # Losses that nobody listens to are not computed: a tenth of the time of a small step.
            listens = progress.selector.needs_losses or progress.selector.corrected
            losses = (
                progress.evaluation.selection_losses(output, y) if listens else torch.zeros(len(y))
            )
            objective = output.objective.item()
            # Before NaN reaches the weights. One sum shows as much as checking every loss, in a fifth of
            # the time.
            if not math.isfinite(objective + losses.sum().item()):
                values = losses if listens else output.sample_objective
                raise self._diverged(progress, values, index)
            progress.optimizer.zero_grad(set_to_none=True)
            if progress.ranks is None:
                torch.autograd.backward([output.objective])
            else:
                objective = _backward_on_ranks(progress, output)
            if self.plan.gradient_clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self.plan.gradient_clip)
            progress.optimizer.step()
        selector.observe(losses.cpu().float().numpy())
        return objective

    def _is_out_of_time(self, progress: Progress) -> bool:
        """Note how much of the time limit has passed, on average over the ranks."""
        if self.time_limit is None:
            return False
        share = torch.tensor(progress.seconds / self.time_limit, device=self.device)
        if progress.ranks is not None:
            progress.ranks.average([share])  # so that all of them stop after the same step
        progress.share_of_time = min(share.item(), 1.0)
        return progress.share_of_time == 1

    def _refuse_too_little(self, progress: Progress) -> None:
        """Refuse a training that its time limit ended before it had seen the data."""
        least = min(len(progress.selector), _FEWEST_STEPS)
        if progress.share_of_time == 1 and progress.step < least:
            raise TrainingError(
                f"{setting('time_limit')} ended the training after {progress.step} of at least {least} "
                f"steps: give it {least * progress.seconds / progress.step:.2g} seconds or more"
            )

    def _stop_if_asked(self, path: Path, progress: Progress, signals: list[signal.Signals]) -> None:
        """Save a checkpoint and stop if a signal reached this process, or that of another rank."""
        ranks = progress.ranks
        asked = torch.tensor(float(len(signals)), device=self.device)
        if ranks is not None:
            # Every rank gets the same answer, so all of them stop after the same step.
            ranks.average([asked])
        if asked == 0:
            return
        if ranks is None or ranks.rank == 0:
            progress.save(path)
        name = (signals or [signal.SIGTERM])[-1].name
        stopped = TrainingInterrupted(
            f"stopped by {name} in epoch {len(progress.epochs) + 1}; everything so far is in {path}"
        )
        stopped.signal_name = name
        raise stopped

    def _diverged(
        self, progress: Progress, values: Tensor, index: NDArray[np.int64]
    ) -> TrainingError:
        """Return an error that names the samples of a batch whose losses (b, ...) are not finite."""
        bad = index[~torch.isfinite(values.reshape(len(index), -1)).all(1).cpu().numpy()]
        samples = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        saved = self.checkpoint if self.checkpoint and self.checkpoint.exists() else "none"
        return TrainingError(
            f"the loss is no longer a number in epoch {len(progress.epochs) + 1}, "
            f"batch {progress.batch + 1} (samples {samples or 'of the batch'}); "
            f"last good checkpoint: {saved}; try a smaller lr, or gradient_clip=5"
        )


@contextmanager
def _noting_signals() -> Iterator[list[signal.Signals]]:
    """Turn SIGTERM and Ctrl-C into a list of signals that the loop reads between two steps."""
    noted: list[signal.Signals] = []
    # Python lets only the main thread set handlers; elsewhere the host hears the signals.
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(signal.Signals(number))

    former = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield noted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _backward_on_ranks(progress: Progress, output: Step) -> float:
    """Leave the gradients of the global batch on every rank, and return its objective."""
    view, ranks = progress.view, this_group()
    scale = view.loss_scale() if isinstance(view, DistributedSelector) else 1.0
    factor = torch.full_like(output.objective, scale)
    torch.autograd.backward([output.objective], [factor])
    objective = output.objective.detach() * factor
    gradients = (p.grad for p in progress.model.parameters() if p.grad is not None)
    ranks.average(chain(gradients, [objective]))
    return objective.item()


def _refuse_unweighted(model: MultiLabelModel, needed_by: str) -> None:
    """Refuse a model whose objective cannot be weighted by sample."""
    for kind in (model, model.loss):
        if kind is not None:
            refuse_weights(kind, needed_by)
    if len(inspect.signature(model.step).parameters) < 3:
        raise TrainingError(
            f"{type(model).__name__}.step takes no weights, which {needed_by} needs: write "
            "step(x, y, weights=None) and return over_samples(samples, weights) in place of "
            "samples.mean(), or train without it"
        )


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; ``"auto"`` is an accelerator if there is one.

    Examples
    --------
    >>> choose_device("cpu")
    device(type='cpu')
    >>> choose_device("gpu")
    Traceback (most recent call last):
    ...
    tailbatch.errors.TrainingError: device must be "auto" or one this machine has, got 'gpu'
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError):
        # torch raises an AssertionError if it was built without that accelerator.
        raise TrainingError(
            f'{setting("device")} must be "auto" or one this machine has, got {name!r}'
        ) from None
