"""The one loop: draw, step, observe; validation; the best epoch; checkpoints."""

from tailbatch.training.distributed import DistributedSelector
from tailbatch.training.optimizers import check_scheduler
from tailbatch.training.progress import Callback, Epoch, Training, weights_digest
from tailbatch.training.rows import LabeledRows, Rows, held_out_logits, score_rows
from tailbatch.training.trainer import Trainer, choose_device

__all__ = [
    "Callback",
    "DistributedSelector",
    "Epoch",
    "LabeledRows",
    "Rows",
    "Trainer",
    "Training",
    "check_scheduler",
    "choose_device",
    "held_out_logits",
    "score_rows",
    "weights_digest",
]
