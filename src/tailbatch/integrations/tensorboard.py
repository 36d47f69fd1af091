"""TensorBoard: the curves of a training and where its draws went."""

from pathlib import Path

from tailbatch.errors import require
from tailbatch.selection import SelectionDiagnostics, Selector
from tailbatch.training import Callback, Epoch

require("tensorboard", extra="tensorboard")

from torch.utils.tensorboard import SummaryWriter


class TensorBoardCallback(Callback):
    """Writes each epoch of `tailbatch.training.Trainer` as TensorBoard scalars.

    Show them with ``tensorboard --logdir FOLDER``. With the training's `selector`, its diagnostics are
    written too, in O(n) per epoch.

    Examples
    --------
    >>> from tailbatch.results import TrainingPlan
    >>> from tailbatch.training import Trainer
    >>> import tempfile
    >>> trainer = Trainer(TrainingPlan(), callbacks=[TensorBoardCallback(tempfile.mkdtemp())])
    """

    def __init__(self, folder: Path | str, selector: Selector | None = None) -> None:
        self._folder = str(folder)
        self._selector = selector
        self._writer: SummaryWriter | None = None

    def on_epoch(self, epoch: Epoch) -> None:
        """Write an epoch's numbers."""
        if self._writer is None:
            # A resumed training replaces the later epochs of the one it continues.
            self._writer = SummaryWriter(self._folder, purge_step=epoch.number)
        drawn = None if self._selector is None else self._selector.diagnostics()
        for name, value in scalars(epoch, drawn).items():
            self._writer.add_scalar(name, value, epoch.number)
        self._writer.flush()


def scalars(epoch: Epoch, diagnostics: SelectionDiagnostics | None = None) -> dict[str, float]:
    """Return an epoch's numbers by name, for any logger that takes names and numbers.

    With a selector's `diagnostics`, the figures of selection are included.

    Examples
    --------
    >>> epoch = Epoch(1, 10, 0.5, 1e-3, 0.4, None, None, {"macro_auc": 0.7}, 0.2, 0.9)
    >>> scalars(epoch)["validation/macro_auc"]
    0.7
    """
    known = {
        "train/batch_objective": epoch.batch_objective,
        "train/objective": epoch.training_objective,
        "train/bce": epoch.training_bce,
        "train/lr": epoch.lr,
        "train/seconds": epoch.seconds,
        "selection/minority_share": epoch.minority_share,
        "selection/distinct_share": epoch.distinct_share,
        **{f"validation/{name}": value for name, value in epoch.validation.items()},
    }
    if diagnostics is not None:
        figures = (
            "effective_sample_size",
            "effective_pressure",
            "distinct_share",
            "minority_share",
            "seconds",
            "lag",
            "dropped_batches",
        )
        known |= {f"selection/{name}": getattr(diagnostics, name) for name in figures}
    return {name: value for name, value in known.items() if value is not None}
