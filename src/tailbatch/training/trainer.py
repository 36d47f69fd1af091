"""The training loop: draw, step, observe."""

import inspect
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailbatch.data import Parts
from tailbatch.errors import TrainingError, setting
from tailbatch.files import sweep
from tailbatch.losses.base import refuse_weights
from tailbatch.metrics import METRICS
from tailbatch.models import (
    MultiLabelModel,
    Step,
    reusing_gradients,
    seeded,
    sparse_gradients,
)
from tailbatch.results import TrainingPlan
from tailbatch.selection import Selector
from tailbatch.training.checkpoints import StopRequest, stopping_on_signals
from tailbatch.training.distributed import DistributedSelector
from tailbatch.training.processes import average_over_ranks, is_alone, on_any_rank, this_rank
from tailbatch.training.progress import Progress
from tailbatch.training.ranks import telling_ranks
from tailbatch.training.records import Callback, Training

_SPARSE_GRADIENTS = 0.5
"""Share of the features in a batch below which gradients are sparse, where the optimizer takes them."""


class Trainer:
    """Train any model with any selector, by one plan.

    Parameters
    ----------
    plan
        Optimizer, epochs, batch size and the rest.
    seed
        Determines the noise of each step (dropout, sampling): training with the same seed agrees.
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
        self.metrics = None if metrics is None else (plan.best_by, *metrics)

    def fit(
        self,
        model: MultiLabelModel,
        parts: Parts,
        selector: Selector,
        *,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> Training:
        """Train on ``parts.train`` and leave `model` with the best validation epoch's weights.

        Without validation rows, or where no label can be scored on them, the last epoch counts as the
        best. In a process group each rank trains on its slice of every batch, all end with the same
        weights, and only rank 0 writes checkpoints and calls callbacks; a rank that cannot continue
        tells the others why.

        Parameters
        ----------
        model, parts, selector
            What to train, on which rows, drawn how.
        sample_weight
            (n,) factors of the training rows' shares of the objective, with a mean of 1; None weights all
            rows the same. The selector observes unweighted losses.
        """
        with telling_ranks():
            return self._fit(model, parts, selector, sample_weight)

    def _fit(
        self,
        model: MultiLabelModel,
        parts: Parts,
        selector: Selector,
        sample_weight: NDArray[np.float64] | None,
    ) -> Training:
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
        # The view over ranks also knows which batch is at hand where losses may come late.
        direct = is_alone() and not selector.max_lag
        shared = selector if direct else DistributedSelector(selector)
        callbacks = self.callbacks if this_rank() == 0 else ()
        progress = Progress(
            self.plan,
            model,
            parts,
            selector,
            seed=self.seed,
            device=self.device,
            checkpoint=self.checkpoint,
            metrics=self.metrics,
            sample_weight=sample_weight,
        )
        if self.checkpoint is not None:
            sweep(self.checkpoint.parent)
            if self.checkpoint.exists():
                progress.restore(self.checkpoint)
        stopping = stopping_on_signals() if self.checkpoint else nullcontext(StopRequest())
        with stopping as stop, self._gradients_of(progress):
            while not progress.finished:
                model.train()
                progress.clock.start()
                for index in progress.batches(shared):
                    objective = self._train_on(index, progress, shared)
                    progress.clock.stop()
                    progress.close_batch(objective)
                    for callback in callbacks:
                        callback.on_batch(
                            progress.step, len(selector), progress.batch_objectives[-1]
                        )
                    if self.checkpoint and on_any_rank(stop.signal is not None, self.device):
                        progress.interrupt(self.checkpoint, (stop.signal or signal.SIGTERM).name)
                    progress.clock.start()
                progress.clock.stop()
                epoch = progress.close_epoch()
                for callback in callbacks:
                    callback.on_epoch(epoch)
                if self.checkpoint and epoch.number % self.checkpoint_every == 0:
                    progress.save(self.checkpoint)
        return progress.result()

    def _gradients_of(self, progress: Progress) -> AbstractContextManager[None]:
        """Return how the sparse layers of the model make their gradients."""
        if not is_alone():
            # Averaging over ranks writes gradient rows that this rank's batch did not touch.
            return nullcontext()
        takes_sparse = self.plan.optimizer == "adam_mini" and self.plan.gradient_clip is None
        in_use = progress.train.x.share_in_use(self.plan.batch_size)
        if takes_sparse and in_use < _SPARSE_GRADIENTS:
            return sparse_gradients(progress.model)
        return reusing_gradients(progress.model)

    def _train_on(
        self,
        index: NDArray[np.int64],
        progress: Progress,
        selector: Selector | DistributedSelector,
    ) -> float:
        """Take one step on a batch, give the selector its losses, and return its objective."""
        model, rows = progress.model, progress.sample_weight
        x, y = progress.train.fetch(index)  # (b, d), (b, q)
        progress.rate.before_step(progress.step)
        with seeded(self.seed, "step", progress.step, device=self.device):
            output = weighted_step(model, x, y, selector, None if rows is None else rows[index])
            losses = progress.selection_losses(output, y)
            objective = progress.finite_objective(output, losses, index)
            progress.optimizer.zero_grad(set_to_none=True)
            if isinstance(selector, DistributedSelector) and selector.n_ranks > 1:
                objective = self._backward_on_ranks(model, output, selector.loss_scale())
            else:
                torch.autograd.backward([output.objective])
            if self.plan.gradient_clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self.plan.gradient_clip)
            progress.optimizer.step()
        selector.observe(losses.cpu().float().numpy())
        return objective

    def _backward_on_ranks(self, model: MultiLabelModel, output: Step, scale: float) -> float:
        """Leave the gradients of the global batch on every rank, and return its objective."""
        factor = torch.full_like(output.objective, scale)
        torch.autograd.backward([output.objective], [factor])
        objective = output.objective.detach() * factor
        gradients = (p.grad for p in model.parameters() if p.grad is not None)
        average_over_ranks(chain(gradients, [objective]))
        return objective.item()


def weighted_step(
    model: MultiLabelModel,
    x: Tensor,
    y: Tensor,
    selector: Selector | DistributedSelector,
    sample_weight: NDArray[np.float64] | None = None,
) -> Step:
    """Return a model's step, with the latest batch's importance weights and its rows' own, if any."""
    weights = selector.unequal_weights() if selector.corrected else None
    if sample_weight is not None:
        weights = sample_weight * (1 / len(sample_weight) if weights is None else weights)
    if weights is None:
        return model.step(x, y)
    return model.step(x, y, torch.from_numpy(weights).to(y))


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
