"""Training in progress: its records and best weights; how it is measured, saved and resumed."""

import hashlib
import math
import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from tailbatch.data import Parts
from tailbatch.errors import TrainingError, TrainingInterrupted
from tailbatch.losses import LOSSES, Loss
from tailbatch.metrics import METRICS
from tailbatch.models import MultiLabelModel, Step, seeded
from tailbatch.results import TrainingPlan
from tailbatch.selection import Selector
from tailbatch.selection.diagnostics import label_exposure
from tailbatch.training.averaging import WeightAverage
from tailbatch.training.checkpoints import MALFORMED, load_checkpoint, save_checkpoint
from tailbatch.training.distributed import DistributedSelector
from tailbatch.training.evaluation import Evaluation, selection_losses
from tailbatch.training.learning_rate import LearningRate
from tailbatch.training.optimizers import make_optimizer
from tailbatch.training.processes import this_rank
from tailbatch.training.records import Epoch, Training
from tailbatch.training.rows import LabeledRows, prefers_sparse

_LOSS = "loss"
"""Its key in the settings of a checkpoint; options follow as ``loss__gamma``."""


class Clock:
    """A stopwatch that adds up the time between start and stop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """Start or continue."""
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Pause."""
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
            self._since = None


class Progress:
    """The state the loop changes, the results it leaves, and the content of a checkpoint."""

    def __init__(
        self,
        plan: TrainingPlan,
        model: MultiLabelModel,
        parts: Parts,
        selector: Selector,
        *,
        seed: int,
        device: torch.device,
        checkpoint: Path | None,
        metrics: Collection[str] | None = None,
        sample_weight: np.ndarray | None = None,
    ) -> None:
        self.plan, self.model, self.selector = plan, model, selector
        self.sample_weight = sample_weight
        self.seed, self.device, self.checkpoint = seed, device, checkpoint
        self.parts = parts
        sparse = prefers_sparse(model, parts.train.X, device)
        self.train = LabeledRows(parts.train, device, sparse_batches=sparse)
        self.evaluation = Evaluation(model, parts, self.train, plan, metrics, sparse=sparse)
        self.n_epochs = plan.n_epochs(parts.train.n_samples)
        self.optimizer = make_optimizer(plan, model)
        self.rate = LearningRate(self.optimizer, plan, steps_per_epoch=len(selector))
        self.average = None if plan.ema is None else WeightAverage(model, plan.ema)
        self.clock = Clock()
        self.step = 0
        self.epochs: list[Epoch] = []
        self.batch_objectives: list[float] = []
        self.evaluated: list[int] = []  # epochs after which the validation rows were scored
        self.best_epoch = 0
        self.best_weights: dict[str, Tensor] = {}
        self.times_drawn = np.zeros(parts.train.n_samples, dtype=np.int32)  # in the epochs so far
        self._carriers = None if selector.labels is None else _minority_rows(parts)
        self.warm_up_digest = "" if plan.warm_up_epochs else weights_digest(model)

    @property
    def finished(self) -> bool:
        """Whether all epochs are complete, or none has improved for too long."""
        patience = self.plan.early_stopping
        waited = sum(number > self.best_epoch for number in self.evaluated)
        return len(self.epochs) >= self.n_epochs or (patience is not None and waited >= patience)

    def batches(self, selector: Selector | DistributedSelector) -> Iterator[np.ndarray]:
        """Return the batches of an epoch, or as many as the remaining steps allow."""
        left = math.inf if self.plan.steps is None else self.plan.steps - self.step
        # An epoch that is not cut short is iterated to its end: only then does the selector count it.
        return iter(selector) if left >= selector.batches_left else islice(selector, int(left))

    @property
    def batch(self) -> int:
        """Steps since the start of the epoch."""
        return self.step - (self.epochs[-1].steps if self.epochs else 0)

    def selection_losses(self, output: Step, y: Tensor) -> Tensor:
        """Return the losses of a batch that the selector observes; zeros if it does not use losses."""
        if self.selector.needs_losses or self.selector.corrected:
            masked = self.train.has_missing
            return selection_losses(output, y, self.plan.selection_loss, masked=masked)
        return torch.zeros(len(y))

    def finite_objective(self, output: Step, losses: Tensor, index: np.ndarray) -> float:
        """Return the objective; raise before NaN or infinity reaches the weights or the selector."""
        # One sum shows as much as checking every loss, in a fifth of the time.
        objective = output.objective.item()
        listens = self.selector.needs_losses or self.selector.corrected
        if math.isfinite(objective) and not (listens and not math.isfinite(losses.sum().item())):
            return objective
        values = losses if listens else output.sample_objective
        bad = index[~torch.isfinite(values.reshape(len(index), -1)).all(1).cpu().numpy()]
        samples = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        saved = self.checkpoint if self.checkpoint and self.checkpoint.exists() else "none"
        raise TrainingError(
            f"the loss is no longer a number in epoch {len(self.epochs) + 1}, "
            f"batch {self.batch + 1} (samples {samples or 'of the batch'}); "
            f"last good checkpoint: {saved}; try a smaller lr, or gradient_clip=5"
        )

    def close_batch(self, objective: float) -> None:
        """Record a finished step."""
        if self.average is not None:
            self.average.update(self.step)
        self.step += 1
        self.batch_objectives.append(objective)

    def close_epoch(self) -> Epoch:
        """Evaluate the epoch, and keep its weights if they are the best so far."""
        number = len(self.epochs) + 1
        if number == min(self.plan.warm_up_epochs, self.n_epochs):
            self.warm_up_digest = weights_digest(self.model)
        is_due = self._is_due(number)
        averaged = nullcontext() if self.average is None else self.average.in_place()
        with averaged:
            with torch.no_grad(), seeded(self.seed, "evaluation", number, device=self.device):
                objective, bce = self.evaluation.training_loss(number)
                validation = self.evaluation.validate() if is_due else {}
            drawn = self.selector.times_drawn
            epoch = Epoch(
                number=number,
                steps=self.step,
                seconds=self.clock.seconds,
                lr=self.optimizer.param_groups[0]["lr"],
                batch_objective=float(np.mean(self.batch_objectives[-self.batch :])),
                training_objective=objective,
                training_bce=bce,
                validation=validation,
                minority_share=self._minority_share(drawn),
                distinct_share=np.count_nonzero(drawn) / len(drawn),
            )
            if is_due and self._is_best(epoch):
                self.best_epoch = number
                self._keep_weights()
        self.times_drawn += drawn
        self.epochs.append(epoch)
        if is_due:
            self.evaluated.append(number)
        self.rate.after_epoch(number, self._score(epoch))
        return epoch

    def _is_due(self, number: int) -> bool:
        """Whether the validation rows are to be scored after this epoch."""
        every = self.plan.evaluate_every
        last = self.epochs[self.evaluated[-1] - 1].steps if self.evaluated else 0
        return every is None or self.step - last >= every or number == self.n_epochs

    def _keep_weights(self) -> None:
        for name, tensor in self.model.state_dict().items():
            # Copies: a state_dict's tensors follow the live weights.
            if name in self.best_weights:
                self.best_weights[name].copy_(tensor)
            else:
                self.best_weights[name] = tensor.detach().clone()

    def _minority_share(self, drawn: np.ndarray) -> float | None:
        if self._carriers is None:
            return None
        return float(drawn[self._carriers].sum()) / max(int(drawn.sum()), 1)

    def result(self) -> Training:
        """Put the best weights into the model and return the records."""
        self.model.load_state_dict(self.best_weights)
        self.model.eval()
        return Training(
            epochs=tuple(self.epochs),
            batch_objectives=np.array(self.batch_objectives),
            sample_losses=self.evaluation.sample_losses,
            sample_objectives=self.evaluation.sample_objectives,
            best_epoch=self.best_epoch,
            warm_up_digest=self.warm_up_digest,
            label_exposure=None
            if self.selector.labels is None
            else label_exposure(self.selector.labels, self.times_drawn),
            diagnostics=self.selector.diagnostics(),
        )

    def _is_best(self, epoch: Epoch) -> bool:
        """Whether an epoch is as good as the best so far.

        The last of equally good epochs wins: a small validation part is soon ranked perfectly, by
        weights that have hardly been trained. The last epoch also wins when nothing can be scored.
        """
        best = self._score(self.epochs[self.best_epoch - 1]) if self.best_epoch else math.nan
        if math.isnan(best):
            return True
        sign = 1 if METRICS[self.plan.best_by].higher_is_better else -1
        return sign * self._score(epoch) >= sign * best

    def _score(self, epoch: Epoch) -> float:
        return epoch.validation.get(self.plan.best_by, math.nan)

    def save(self, path: Path) -> None:
        """Write a checkpoint from which training continues bit for bit, one for all ranks."""
        if this_rank() > 0:
            return
        save_checkpoint(
            path,
            {
                "settings": self._settings(),
                "model": dict(self.model.state_dict()),
                "optimizer": self.optimizer.state_dict(),
                "rate": self.rate.state_dict(),
                "selector": self.selector.state_dict(),
                "step": self.step,
                "seconds": self.clock.seconds,
                "epochs": [asdict(epoch) for epoch in self.epochs],
                "batch_objectives": np.array(self.batch_objectives),
                "sample_losses": self.evaluation.sample_losses,
                "sample_objectives": self.evaluation.sample_objectives,
                "evaluated": self.evaluated,
                "best_epoch": self.best_epoch,
                "best_weights": self.best_weights,
                "average": {} if self.average is None else self.average.state_dict(),
                "warm_up_digest": self.warm_up_digest,
                "times_drawn": self.times_drawn,
            },
        )

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint of the same plan, model, data and seed."""
        state = load_checkpoint(path)
        try:
            _refuse_other_settings(state["settings"], self._settings())
            _refuse_other_weights(state["model"], self.model)
            if state["best_weights"]:
                _refuse_other_weights(state["best_weights"], self.model)
            self.optimizer.load_state_dict(state["optimizer"])
            _refuse_other_shapes(self.optimizer)
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            self.rate.load_state_dict(state["rate"])
            self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
            self.step, self.clock.seconds = int(state["step"]), float(state["seconds"])
            self.batch_objectives = state["batch_objectives"].tolist()
            self.evaluation.sample_losses = dict(state["sample_losses"])
            self.evaluation.sample_objectives = dict(state["sample_objectives"])
            self.evaluated = list(state["evaluated"])
            self.best_epoch, self.best_weights = int(state["best_epoch"]), state["best_weights"]
            self.warm_up_digest = str(state["warm_up_digest"])
            self.times_drawn[:] = state["times_drawn"]
            # The caller's objects come last: if anything is refused, they are unchanged.
            self.selector.load_state_dict(state["selector"])
            self.model.load_state_dict(state["model"])
        except MALFORMED as error:
            raise TrainingError(
                f"{path} belongs to a different training run ({error}): "
                "choose another folder, or remove it"
            ) from error

    def interrupt(self, path: Path, signal_name: str) -> NoReturn:
        """Save and stop because a signal requested it."""
        self.save(path)
        stopped = TrainingInterrupted(
            f"stopped by {signal_name} in epoch {len(self.epochs) + 1}; everything so far is in {path}"
        )
        stopped.signal_name = signal_name
        raise stopped

    def _settings(self) -> dict[str, Any]:
        """Return the facts two trainings must share for one to continue the other."""
        weighted = {}
        if self.sample_weight is not None:
            weighted["sample_weight"] = hashlib.sha256(self.sample_weight.tobytes()).hexdigest()
        return {
            "seed": self.seed,
            "model": self.model.name,
            **self.model.hyperparameters,
            **_loss_settings(self.model.loss),
            **asdict(self.plan),
            "data": self.parts.train.digest,
            **weighted,
        }


def _loss_settings(loss: nn.Module | None) -> dict[str, Any]:
    """Return a loss's name and options; the name of a custom loss is that of its class."""
    if loss is None:
        return {_LOSS: None}
    kind = type(loss)
    is_known = isinstance(loss, Loss) and loss.name in LOSSES and LOSSES[loss.name] is kind
    name = loss.name if is_known else f"{kind.__module__}.{kind.__qualname__}"
    options = loss.options if isinstance(loss, Loss) else {}
    return {_LOSS: name, **{f"{_LOSS}__{key}": _plain(value) for key, value in options.items()}}


def _plain(value: Any) -> Any:
    """Return an option as values that a checkpoint holds and that compare; functions by name."""
    if hasattr(value, "tolist"):  # an array, a tensor or one of their numbers
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return getattr(value, "__qualname__", type(value).__qualname__)


def _refuse_other_settings(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    if _LOSS not in saved:  # written before the loss was saved: it is not known
        wanted = {name: it for name, it in wanted.items() if name.partition("__")[0] != _LOSS}
    for name in wanted | saved:  # in this order, so that a loss is named before its options
        if saved.get(name) != wanted.get(name):
            raise ValueError(f"its {name} is {saved.get(name)}, this one's is {wanted.get(name)}")


def _refuse_other_weights(saved: dict[str, Tensor], model: nn.Module) -> None:
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    for name in shapes.keys() | saved.keys():
        if name not in saved or name not in shapes or saved[name].shape != shapes[name]:
            raise ValueError(f"its weights {name!r} do not fit the model")


def _refuse_other_shapes(optimizer: torch.optim.Optimizer) -> None:
    """Raise if the moments' shapes do not match the weights; torch itself never checks this."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if name not in ("step", "decay") and not _fits(value.shape, parameter.shape):
                raise ValueError(
                    f"its {name} has shape {tuple(value.shape)}, the weight {tuple(parameter.shape)}"
                )


def _fits(moment: torch.Size, weight: torch.Size) -> bool:
    """Whether a moment has one number per weight, or one shared along an axis."""
    return len(moment) == len(weight) and all(
        m in (1, w) for m, w in zip(moment, weight, strict=True)
    )


def _minority_rows(parts: Parts) -> np.ndarray:
    """Return which training rows carry a minority label, (n,)."""
    counts = parts.train.Y[:, np.flatnonzero(parts.minority)].sum(axis=1)
    return np.asarray(np.asarray(counts).ravel() > 0)


def weights_digest(model: nn.Module) -> str:
    """Return a digest of all weights and buffers, equal only when they are equal bit for bit.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> weights_digest(layer) == weights_digest(layer)
    True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    return digest.hexdigest()
