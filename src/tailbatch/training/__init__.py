"""The one loop: draw, step, observe; validation; the best epoch; checkpoints."""

from tailbatch.training.progress import weights_digest
from tailbatch.training.records import Callback, Epoch, Training
from tailbatch.training.rows import LabeledRows, Rows
from tailbatch.training.trainer import Trainer, choose_device

__all__ = [
    "Callback",
    "Epoch",
    "LabeledRows",
    "Rows",
    "Trainer",
    "Training",
    "choose_device",
    "weights_digest",
]
