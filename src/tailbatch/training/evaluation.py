"""How a model is measured during training: on the validation rows, and over all training rows."""

from collections.abc import Collection

import numpy as np
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch.data import Parts
from tailbatch.metrics import evaluate
from tailbatch.models import MultiLabelModel, Step
from tailbatch.results import TrainingPlan
from tailbatch.training.rows import LabeledRows, Rows, score_rows

_SMALL = 20_000  # rows up to which the loss over all training rows is measured every epoch


class Evaluation:
    """Scores of the validation rows, and the training loss in epochs where the plan asks for it.

    Parameters
    ----------
    model
        Measured in its state at the time of the call.
    parts, train
        The data, and its training rows in the form the loop holds them.
    plan
        Specifies the epochs in which the training loss is measured and kept for every sample.
    metrics
        Names of the validation metrics; None: all.
    sparse
        Whether the model gets sparse batches.
    """

    def __init__(
        self,
        model: MultiLabelModel,
        parts: Parts,
        train: LabeledRows,
        plan: TrainingPlan,
        metrics: Collection[str] | None,
        *,
        sparse: bool,
    ) -> None:
        self._model, self._plan, self._metrics = model, plan, metrics
        self._train, self._validation = train, parts.validation
        self._features = Rows(parts.validation.X, train.x.device, sparse_batches=sparse)
        self._minority = parts.minority
        self.sample_losses: dict[int, np.ndarray] = {}
        self.sample_objectives: dict[int, np.ndarray] = {}

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
            bce = selection_losses(output, y, "bce", masked=self._train.has_missing)
            losses.append(bce.mean(1).cpu().numpy())
            own.append(output.sample_objective.cpu().numpy())
        every_bce = np.concatenate(losses)
        if keep:
            self.sample_losses[number] = every_bce
            self.sample_objectives[number] = np.concatenate(own)
        return objective / len(self._train), float(every_bce.mean(dtype=np.float64))


def selection_losses(output: Step, y: Tensor, kind: str, *, masked: bool = False) -> Tensor:
    """Return the losses of a batch that the selector observes, without gradient.

    BCE per label (b, q), with 0 for missing labels (NaN) where they are masked; or the model's own
    loss per sample, (b,).
    """
    if kind == "model":
        return output.sample_objective
    losses = binary_cross_entropy_with_logits(output.logits, y, reduction="none")
    return losses.masked_fill(y.isnan(), 0) if masked else losses
