"""Training in progress: the state that the loop changes, and the records it leaves."""

import hashlib
import math
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.data import Parts
from tailbatch.errors import TrainingError
from tailbatch.losses import LOSSES, Loss
from tailbatch.metrics import METRICS, evaluate
from tailbatch.models import MultiLabelModel, Step, seeded
from tailbatch.results import TrainingPlan
from tailbatch.selection import SelectionDiagnostics, Selector
from tailbatch.selection.shown import label_exposure
from tailbatch.training.checkpoints import MALFORMED, load_checkpoint, save_checkpoint
from tailbatch.training.distributed import DistributedSelector
from tailbatch.training.optimizers import LearningRate, WeightAverage, make_optimizer
from tailbatch.training.ranks import Ranks
from tailbatch.training.rows import LabeledRows, Rows, held_out_logits, score_rows

_SMALL = 20_000  # rows up to which the loss over all training rows is measured every epoch
# What a `Progress` saves as it is.
_PLAIN = ("step", "seconds", "best_epoch", "best_weights", "evaluated_at", "waited", "warm_up_digest",
          "times_drawn")  # fmt: skip


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch: losses, validation metrics, and where the draws went.

    ``seconds`` (without evaluation) and ``steps`` count from the start. ``training_objective`` and
    ``training_bce`` are measured in evaluation mode over all training rows, because the losses of
    selected and shuffled batches do not compare; None where they were not requested.
    """

    number: int
    steps: int
    seconds: float
    lr: float
    batch_objective: float
    training_objective: float | None
    training_bce: float | None
    validation: dict[str, float]
    minority_share: float | None
    distinct_share: float


@dataclass(frozen=True, eq=False)
class Training:
    """The results of training besides the model, which holds the best epoch's weights.

    ``warm_up_digest`` identifies the weights at the end of the warm-up, which all strategies of a fair
    comparison share. ``sample_losses`` maps an epoch to each training sample's BCE after it, and
    ``sample_objectives`` to its share of the model's objective. ``label_exposure`` is each label's share
    of all draws over its share of the rows, or None if the selector does not know the labels.
    """

    epochs: tuple[Epoch, ...]
    batch_objectives: np.ndarray
    sample_losses: dict[int, np.ndarray]
    sample_objectives: dict[int, np.ndarray]
    best_epoch: int
    warm_up_digest: str
    label_exposure: np.ndarray | None
    diagnostics: SelectionDiagnostics

    @property
    def best(self) -> Epoch:
        """The epoch whose weights the model holds."""
        return self.epochs[self.best_epoch - 1]


class Callback:
    """A listener to training; override what you need. Callbacks see the host's own random state.

    Examples
    --------
    >>> class Losses(Callback):
    ...     def on_epoch(self, epoch):
    ...         print(epoch.number, round(epoch.batch_objective, 3))
    """

    def on_batch(self, step: int, steps_per_epoch: int, objective: float) -> None:
        """React to a finished step, counted from 1."""

    def on_epoch(self, epoch: Epoch) -> None:
        """React to a finished epoch, validation included."""


class Progress:
    """What the loop changes from step to step, and what has to be saved for it to continue."""

    def __init__(
        self,
        plan: TrainingPlan,
        model: MultiLabelModel,
        parts: Parts,
        selector: Selector,
        *,
        seed: int,
        device: torch.device,
        metrics: Collection[str] | None = None,
        sample_weight: np.ndarray | None = None,
        part: np.ndarray | None = None,
    ) -> None:
        self.plan, self.model, self.parts, self.selector = plan, model, parts, selector
        self.seed, self.device, self.metrics = seed, device, metrics
        self.sample_weight = sample_weight
        self.part = None if part is None else torch.from_numpy(part).to(device)
        self.view: Selector | DistributedSelector = selector  # what the loop draws from
        self.ranks: Ranks | None = None
        self.train = LabeledRows(parts.train, device, model=model)
        self.n_epochs = plan.n_epochs(parts.train.n_samples)
        self.optimizer = make_optimizer(plan, model)
        self.rate = LearningRate(self.optimizer, plan, steps_per_epoch=len(selector))
        self.average = None if plan.ema is None else WeightAverage(model, plan.ema)
        self.step = 0
        self.seconds = 0.0
        self.share_of_time = 0.0  # that has passed, of a time limit
        self.epochs: list[Epoch] = []
        self.batch_objectives: list[float] = []
        self.best_epoch = 0
        self.best_weights: dict[str, Tensor] = {}
        self.evaluated_at = 0  # the step of the latest evaluation
        self.waited = 0  # evaluations since the best one
        self.times_drawn = np.zeros(parts.train.n_samples, dtype=np.int32)  # in the epochs so far
        self.warm_up_digest = "" if plan.warm_up_epochs else weights_digest(model)

    @cached_property
    def evaluation(self) -> "_Evaluation":
        """How the model is measured."""
        return _Evaluation(self.model, self.parts, self.train, self.plan, self.metrics, self.part)

    @property
    def finished(self) -> bool:
        """Whether all epochs are complete, or none has improved for too long."""
        patience = self.plan.early_stopping
        return (
            len(self.epochs) >= self.n_epochs
            or self.share_of_time == 1
            or (patience is not None and self.waited >= patience)
        )

    @property
    def batch(self) -> int:
        """Steps since the start of the epoch."""
        return self.step - (self.epochs[-1].steps if self.epochs else 0)

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
        since = self.step - self.evaluated_at
        is_last = number == self.n_epochs or self.share_of_time == 1
        is_due = is_last or since >= self.plan.evaluate_every
        with nullcontext() if self.average is None else self.average.in_place():
            epoch = self._measured(number, is_due=is_due)
            if is_due:
                # The average is what was measured, so it is what has to be kept.
                self._note_evaluation(epoch)
        self.times_drawn += self.selector.times_drawn
        self.epochs.append(epoch)
        self.rate.after_epoch(number, self._score(epoch))
        return epoch

    def _measured(self, number: int, *, is_due: bool) -> Epoch:
        # Models with noise draw from torch's generator: a seed of their own keeps what follows the same
        # whether or not an epoch is measured.
        with seeded(self.seed, "evaluation", number, device=self.device):
            objective, bce = self.evaluation.training_loss(number)
            validation = self.evaluation.validate() if is_due else {}
        drawn = self.selector.times_drawn
        return Epoch(
            number=number,
            steps=self.step,
            seconds=self.seconds,
            lr=self.optimizer.param_groups[0]["lr"],
            batch_objective=float(np.mean(self.batch_objectives[-self.batch :])),
            training_objective=objective,
            training_bce=bce,
            validation=validation,
            minority_share=None
            if self.selector.labels is None
            else self.evaluation.minority_share(drawn),
            distinct_share=np.count_nonzero(drawn) / len(drawn),
        )

    def _note_evaluation(self, epoch: Epoch) -> None:
        self.evaluated_at = epoch.steps
        self.waited += 1
        if not self._is_best(epoch):
            return
        self.best_epoch, self.waited = epoch.number, 0
        for name, tensor in self.model.state_dict().items():
            # Copies: a state_dict's tensors follow the live weights.
            if name in self.best_weights:
                self.best_weights[name].copy_(tensor)
            else:
                self.best_weights[name] = tensor.detach().clone()

    def _is_best(self, epoch: Epoch) -> bool:
        """Whether an epoch is as good as the best so far; the last wins when nothing can be scored."""
        # The last of equals wins, too: a small validation part is soon ranked perfectly, by weights
        # that have hardly been trained.
        best = self._score(self.epochs[self.best_epoch - 1]) if self.best_epoch else math.nan
        if math.isnan(best):
            return True
        sign = 1 if METRICS[self.plan.best_by].higher_is_better else -1
        return sign * self._score(epoch) >= sign * best

    def _score(self, epoch: Epoch) -> float:
        return epoch.validation.get(self.plan.best_by, math.nan)

    def result(self) -> Training:
        """Put the best weights into the model and return the records."""
        self.model.load_state_dict(self.best_weights)
        self.model.eval()
        labels = self.selector.labels
        return Training(
            epochs=tuple(self.epochs),
            batch_objectives=np.array(self.batch_objectives),
            sample_losses=self.evaluation.sample_losses,
            sample_objectives=self.evaluation.sample_objectives,
            best_epoch=self.best_epoch,
            warm_up_digest=self.warm_up_digest,
            label_exposure=None if labels is None else label_exposure(labels, self.times_drawn),
            diagnostics=self.selector.diagnostics(),
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint from which `resume` continues bit for bit."""
        state = {
            "settings": _settings(self),
            **{name: getattr(self, name) for name in _PLAIN},
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "rate": self.rate.state_dict(),
            "selector": self.selector.state_dict(),
            "average": {} if self.average is None else self.average.state_dict(),
            "epochs": [asdict(epoch) for epoch in self.epochs],
            # As an array, because a list of millions would be JSON.
            "batch_objectives": np.array(self.batch_objectives),
            "sample_losses": self.evaluation.sample_losses,
            "sample_objectives": self.evaluation.sample_objectives,
        }
        save_checkpoint(path, state)

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint of the same training; another is refused, and changes nothing."""
        state = load_checkpoint(path)
        try:
            _refuse_other_settings(state["settings"], _settings(self))
            _refuse_other_weights(state["model"], self.model)
            if state["best_weights"]:
                _refuse_other_weights(state["best_weights"], self.model)
            self._load(state)
            _refuse_other_shapes(self.optimizer)
            # The caller's objects come last: whatever was refused has not changed them.
            self.selector.load_state_dict(state["selector"])
            self.model.load_state_dict(state["model"])
        except MALFORMED as error:
            raise TrainingError(
                f"{path} belongs to a different training run ({error}): choose another folder, or "
                "remove it"
            ) from error

    def _load(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.rate.load_state_dict(state["rate"])
        for name in _PLAIN:
            setattr(self, name, state[name])
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.batch_objectives = state["batch_objectives"].tolist()
        self.evaluation.sample_losses = dict(state["sample_losses"])
        self.evaluation.sample_objectives = dict(state["sample_objectives"])


class _Evaluation:
    """Scores of the rows that are held out, and the training loss in epochs where the plan asks for it.

    The model is measured in its state at the time of the call; `train` holds the training rows as the
    loop does, and `metrics` names the validation metrics, None for all. Without validation rows, the
    training rows take their place where the model holds out the `part` of each.
    """

    def __init__(
        self,
        model: MultiLabelModel,
        parts: Parts,
        train: LabeledRows,
        plan: TrainingPlan,
        metrics: Collection[str] | None,
        part: Tensor | None = None,
    ) -> None:
        self._model, self._plan, self._metrics = model, plan, metrics
        self._train, self._validation, self._part = train, parts.validation, part
        if part is not None and not parts.validation.n_samples:
            self._validation = parts.train.measured
        self._features = Rows(parts.validation.X, train.x.device, model=model)
        self._minority = parts.minority
        rare = parts.train.Y[:, np.flatnonzero(parts.minority)]
        self._carriers = np.asarray(rare.sum(axis=1)).ravel() > 0
        self.sample_losses: dict[int, np.ndarray] = {}
        self.sample_objectives: dict[int, np.ndarray] = {}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return the metrics of the validation rows by name; none without such rows."""
        if not self._validation.n_samples:
            return {}
        if self._part is None or len(self._features):
            scores = score_rows(self._model.predict_proba, self._features)
        else:
            scores = expit(held_out_logits(self._model, self._train.x, self._part))
        return evaluate(
            self._validation.Y,
            scores,
            minority=self._minority,
            only=self._metrics,
            missing=self._validation.missing,
        )

    @torch.no_grad()
    def training_loss(self, number: int) -> tuple[float | None, float | None]:
        """Return objective and BCE over all training rows in evaluation mode, if requested."""
        every = self._plan.training_loss_every
        if every is None:
            every = 1 if len(self._train) <= _SMALL else 10
        keep = number in self._plan.sample_loss_epochs
        if not keep and (every == 0 or number % every):
            return None, None
        self._model.eval()
        objective, losses, own = 0.0, [], []
        for x, y in self._train.chunks(self._plan.batch_size):
            output = self._model.step(x, y)
            objective += output.objective.item() * len(x)
            losses.append(self._bce(output, y).mean(1).cpu().numpy())
            own.append(output.sample_objective.cpu().numpy())
        every_bce = np.concatenate(losses)
        if keep:
            self.sample_losses[number] = every_bce
            self.sample_objectives[number] = np.concatenate(own)
        # In float64, because millions of float32 summands lose digits.
        return objective / len(self._train), float(every_bce.mean(dtype=np.float64))

    def selection_losses(self, output: Step, y: Tensor) -> Tensor:
        """Return what the selector observes of a batch: BCE (b, q), or the model's own loss (b,)."""
        if self._plan.selection_loss == "model":
            return output.sample_objective
        return self._bce(output, y)

    def _bce(self, output: Step, y: Tensor) -> Tensor:
        losses = binary_cross_entropy_with_logits(output.logits, y, reduction="none")
        # A missing label is NaN in y; a loss of 0 says nothing of its sample.
        return losses.masked_fill(y.isnan(), 0) if self._train.has_missing else losses

    def minority_share(self, drawn: np.ndarray) -> float:
        """Return the share of draws that went to samples with a minority label."""
        return float(drawn[self._carriers].sum()) / max(int(drawn.sum()), 1)


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


# ---- what two trainings must share for one to continue the other


def _settings(progress: Progress) -> dict[str, Any]:
    model, weight, part = progress.model, progress.sample_weight, progress.part
    return {
        "seed": progress.seed,
        "model": model.name,
        **model.hyperparameters,
        **_loss_settings(model.loss),
        **asdict(progress.plan),
        "data": progress.parts.train.digest,
        "sample_weight": None if weight is None else hashlib.sha256(weight.tobytes()).hexdigest(),
        "part": None if part is None else hashlib.sha256(part.cpu().numpy().tobytes()).hexdigest(),
    }


def _loss_settings(loss: nn.Module | None) -> dict[str, Any]:
    """Return a loss's name and options; the name of a custom loss is that of its class."""
    if loss is None:
        return {"loss": None}
    kind = type(loss)
    is_known = isinstance(loss, Loss) and loss.name in LOSSES and LOSSES[loss.name] is kind
    name = loss.name if is_known else f"{kind.__module__}.{kind.__qualname__}"
    options = loss.options if isinstance(loss, Loss) else {}
    return {"loss": name, **{f"loss__{key}": _plain(value) for key, value in options.items()}}


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
            # A moment has one number per weight, or one that is shared along an axis.
            fits = value.ndim == parameter.ndim and all(
                m in (1, w) for m, w in zip(value.shape, parameter.shape, strict=True)
            )
            if name not in ("step", "decay") and not fits:
                raise ValueError(
                    f"its {name} has shape {tuple(value.shape)}, the weight {tuple(parameter.shape)}"
                )
