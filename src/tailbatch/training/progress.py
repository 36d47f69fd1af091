"""A training under way: its records and best weights, how it is measured, saved and continued."""

import hashlib
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.data import Parts
from tailbatch.errors import TrainingError, TrainingInterrupted
from tailbatch.imbalance import minority_labels
from tailbatch.metrics import METRICS, evaluate
from tailbatch.models import MultiLabelModel, Step, seeded
from tailbatch.results import TrainingPlan
from tailbatch.selection import Selector
from tailbatch.training.checkpoints import MALFORMED, load_checkpoint, save_checkpoint
from tailbatch.training.learning_rate import LearningRate
from tailbatch.training.processes import this_rank
from tailbatch.training.records import Epoch, Training
from tailbatch.training.rows import LabeledRows

_SMALL = 20_000  # rows up to which the loss over all training rows is measured every epoch
_CHUNK = 1024  # rows scored at a time


class Clock:
    """A stopwatch that adds up the stretches between start and stop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """Go on."""
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Pause."""
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
            self._since = None


class Progress:
    """What the loop changes, what it leaves, and what a checkpoint holds."""

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
    ) -> None:
        self.plan, self.model, self.selector = plan, model, selector
        self.seed, self.device, self.checkpoint = seed, device, checkpoint
        self.parts = parts
        self.train = LabeledRows(parts.train, device)
        self.validation = LabeledRows(parts.validation, device)
        self.minority = minority_labels(parts.train.Y)
        groups = model.param_groups(plan.lr, plan.weight_decay)
        self.optimizer = torch.optim.Adam(groups, fused=True)
        self.rate = LearningRate(self.optimizer, plan, steps_per_epoch=len(selector))
        self.clock = Clock()
        self.step = 0
        self.epochs: list[Epoch] = []
        self.batch_objectives: list[float] = []
        self.sample_losses: dict[int, np.ndarray] = {}
        self.sample_objectives: dict[int, np.ndarray] = {}
        self.best_epoch = 0
        self.best_weights: dict[str, Tensor] = {}
        self.label_exposure: np.ndarray | None = None  # mean over the epochs so far
        self.warm_up_digest = "" if plan.warm_up_epochs else weights_digest(model)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or none has been better for too long."""
        patience = self.plan.early_stopping
        waited = len(self.epochs) - self.best_epoch
        return len(self.epochs) >= self.plan.epochs or (patience is not None and waited >= patience)

    @property
    def batch(self) -> int:
        """Steps since the start of the epoch."""
        return self.step - (self.epochs[-1].steps if self.epochs else 0)

    def refuse_divergence(self, output: Step, losses: Tensor, index: np.ndarray) -> None:
        """Stop before a loss that is not a number reaches the weights or the selector."""
        # One sum tells as much as a look at every loss, in a fifth of the time.
        if math.isfinite(output.objective.item()) and math.isfinite(losses.sum().item()):
            return
        bad = index[~torch.isfinite(losses.reshape(len(index), -1)).all(1).cpu().numpy()]
        samples = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        saved = self.checkpoint if self.checkpoint and self.checkpoint.exists() else "none"
        raise TrainingError(
            f"the loss is no longer a number in epoch {len(self.epochs) + 1}, "
            f"batch {self.batch + 1} (samples {samples or 'of the batch'}); "
            f"last good checkpoint: {saved}; try a smaller lr, or gradient_clip=5"
        )

    def close_batch(self, objective: float) -> None:
        """Note a finished step."""
        self.step += 1
        self.batch_objectives.append(objective)

    def close_epoch(self) -> Epoch:
        """Measure what the epoch reached, and keep its weights if they are the best so far."""
        number = len(self.epochs) + 1
        if number == min(self.plan.warm_up_epochs, self.plan.epochs):
            self.warm_up_digest = weights_digest(self.model)
        with torch.no_grad(), seeded(self.seed, "evaluation", number, device=self.device):
            objective, bce = self._training_loss(number)
            validation = self._validate()
        diagnostics = self.selector.diagnostics()
        self._add_exposure(diagnostics.label_exposure, number)
        epoch = Epoch(
            number=number,
            steps=self.step,
            seconds=self.clock.seconds,
            lr=self.optimizer.param_groups[0]["lr"],
            batch_objective=float(np.mean(self.batch_objectives[-self.batch :])),
            training_objective=objective,
            training_bce=bce,
            validation=validation,
            minority_share=diagnostics.minority_share,
            distinct_share=diagnostics.distinct_share,
        )
        if self._is_best(epoch):
            self.best_epoch = number
            # Clones: a state_dict's tensors follow the live weights.
            self.best_weights = {
                name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()
            }
        self.epochs.append(epoch)
        self.rate.after_epoch(number, self._score(epoch))
        return epoch

    def _add_exposure(self, exposure: np.ndarray | None, number: int) -> None:
        # An annealed pressure ends on the true distribution, so the last epoch alone would mislead.
        if exposure is not None:
            before = np.zeros_like(exposure) if self.label_exposure is None else self.label_exposure
            self.label_exposure = before + (exposure - before) / number

    def result(self) -> Training:
        """Put the best weights into the model and return the records."""
        self.model.load_state_dict(self.best_weights)
        self.model.eval()
        return Training(
            epochs=tuple(self.epochs),
            batch_objectives=np.array(self.batch_objectives),
            sample_losses=self.sample_losses,
            sample_objectives=self.sample_objectives,
            best_epoch=self.best_epoch,
            warm_up_digest=self.warm_up_digest,
            label_exposure=self.label_exposure,
            diagnostics=self.selector.diagnostics(),
        )

    def _is_best(self, epoch: Epoch) -> bool:
        """Whether an epoch is as good as the best so far.

        Of equally good ones the last counts: a small validation part is soon ranked perfectly, by
        weights that have hardly been trained. So it does where nothing can be scored.
        """
        best = self._score(self.epochs[self.best_epoch - 1]) if self.best_epoch else math.nan
        if math.isnan(best):
            return True
        sign = 1 if METRICS[self.plan.best_by].higher_is_better else -1
        return sign * self._score(epoch) >= sign * best

    def _score(self, epoch: Epoch) -> float:
        return epoch.validation.get(self.plan.best_by, math.nan)

    def _validate(self) -> dict[str, float]:
        if len(self.validation) == 0:
            return {}
        scores = [
            self.model.predict_proba(x).cpu().numpy() for x in self.validation.x.chunks(_CHUNK)
        ]
        return evaluate(self.parts.validation.Y, np.concatenate(scores), minority=self.minority)

    def _training_loss(self, number: int) -> tuple[float | None, float | None]:
        """Return objective and BCE over all training rows in evaluation mode, where asked for."""
        every = self.plan.training_loss_every
        if every is None:
            every = 1 if len(self.train) <= _SMALL else 10
        keep = number in self.plan.sample_loss_epochs
        if not keep and (every == 0 or number % every):
            return None, None
        self.model.eval()
        objective, losses, own = 0.0, [], []
        for x, y in self.train.chunks(self.plan.batch_size):
            output = self.model.step(x, y)
            objective += output.objective.item() * len(x)
            losses.append(selection_losses(output, y, "bce").mean(1).cpu().numpy())
            own.append(selection_losses(output, y, "model").cpu().numpy())
        bce = np.concatenate(losses)
        if keep:
            self.sample_losses[number], self.sample_objectives[number] = bce, np.concatenate(own)
        return objective / len(self.train), float(bce.mean(dtype=np.float64))

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
                "sample_losses": self.sample_losses,
                "sample_objectives": self.sample_objectives,
                "best_epoch": self.best_epoch,
                "best_weights": self.best_weights,
                "warm_up_digest": self.warm_up_digest,
                "label_exposure": self.label_exposure,
            },
        )

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint of the same plan, model, data and seed."""
        state = load_checkpoint(path)
        try:
            _refuse_other_settings(state["settings"], self._settings())
            if state["best_weights"]:
                # Only to have names and shapes checked before any epoch is trained.
                self.model.load_state_dict(state["best_weights"])
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.rate.load_state_dict(state["rate"])
            self.selector.load_state_dict(state["selector"])
            self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
            self.step, self.clock.seconds = int(state["step"]), float(state["seconds"])
            self.batch_objectives = state["batch_objectives"].tolist()
            self.sample_losses = dict(state["sample_losses"])
            self.sample_objectives = dict(state["sample_objectives"])
            self.best_epoch, self.best_weights = int(state["best_epoch"]), state["best_weights"]
            self.warm_up_digest = str(state["warm_up_digest"])
            self.label_exposure = state["label_exposure"]
        except MALFORMED as error:
            raise TrainingError(
                f"{path} belongs to another training ({error}): choose another folder, or remove it"
            ) from error

    def interrupt(self, path: Path, signal_name: str) -> NoReturn:
        """Save and stop because a signal asked for it."""
        self.save(path)
        raise TrainingInterrupted(
            f"stopped by {signal_name} in epoch {len(self.epochs) + 1}; everything so far is in {path}"
        )

    def _settings(self) -> dict[str, Any]:
        """Return what two trainings must share for one to continue the other."""
        return {
            "seed": self.seed,
            "model": self.model.name,
            **self.model.hyperparameters,
            **asdict(self.plan),
            "data": self.parts.train.digest,
        }


def _refuse_other_settings(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in wanted.keys() | saved.keys():
        if saved.get(name) != wanted.get(name):
            raise ValueError(f"its {name} is {saved.get(name)}, this one's is {wanted.get(name)}")


def selection_losses(output: Step, y: Tensor, kind: str) -> Tensor:
    """Return what the selector hears: BCE per label (b, q), or the model's own loss (b,); no gradient."""
    if kind == "model":
        return output.sample_objective
    return binary_cross_entropy_with_logits(output.logits, y, reduction="none")


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
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
