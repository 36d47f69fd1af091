"""How a model is measured during training: on the validation rows, and over all training rows."""

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.data import Parts
from tailbatch.metrics import evaluate
from tailbatch.models import MultiLabelModel, Step
from tailbatch.results import TrainingPlan
from tailbatch.training.rows import LabeledRows, Rows, prefers_sparse, score_rows

_SMALL = 20_000  # rows up to which the loss over all training rows is measured every epoch


class Evaluation:
    """Scores of the validation rows, and the training loss in epochs where the plan asks for it.

    The model is measured in its state at the time of the call; `train` holds the training rows as the
    loop does, and `metrics` names the validation metrics, None for all.
    """

    def __init__(
        self,
        model: MultiLabelModel,
        parts: Parts,
        train: LabeledRows,
        plan: TrainingPlan,
        metrics: Collection[str] | None,
    ) -> None:
        self._model, self._plan, self._metrics = model, plan, metrics
        self._train, self._validation = train, parts.validation
        # The validation rows come in the layout that the model is trained on.
        device = train.x.device
        sparse = prefers_sparse(model, parts.train.X, device)
        self._features = Rows(parts.validation.X, device, sparse_batches=sparse)
        self._minority = parts.minority
        rare = parts.train.Y[:, np.flatnonzero(parts.minority)]
        self._carriers = np.asarray(rare.sum(axis=1)).ravel() > 0
        self.sample_losses: dict[int, np.ndarray] = {}
        self.sample_objectives: dict[int, np.ndarray] = {}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return the metrics of the validation rows by name; none without such rows."""
        if len(self._features) == 0:
            return {}
        return evaluate(
            self._validation.Y,
            score_rows(self._model.predict_proba, self._features),
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
        """Return the losses of a batch that the selector observes, without gradient.

        As the plan says: BCE per label (b, q), or the model's own loss per sample, (b,).
        """
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
