"""Lightning: a callback that hands each step's losses to the selector and saves its state."""

from collections.abc import Mapping
from functools import wraps
from typing import Any

from tailbatch.errors import SelectionError, require
from tailbatch.integrations.pytorch import AnySelector, check_loader, corrected_loss
from tailbatch.selection import Selector
from tailbatch.training import DistributedSelector

require("lightning", extra="lightning")

from lightning.pytorch import Callback, LightningModule, Trainer


class SelectionCallback(Callback):
    """Lets a selector choose the training batches of a Lightning ``Trainer``.

    Make the training loader with ``SelectiveLoader(dataset, selector)``, add this callback, and return
    the losses of the batch from ``training_step`` beside the loss::

        losses = binary_cross_entropy_with_logits(self(x), y, reduction="none")
        return {"loss": losses.mean(), "losses": losses}

    With ``in_order=False`` also return ``"index"`` (`IndexedDataset`). Lightning's checkpoints include
    the selector and resume in the middle of an epoch. With ``accumulate_grad_batches`` every small batch
    is drawn and observed on its own.

    With corrected selection (``importance``, ``corrected=True``) the batch's importance weights are put
    into the loss automatically if it is ``losses.mean()`` or ``losses.sum(1).mean()``. For another loss,
    and in manual optimization, train on ``selector.mean(losses)``.

    Parameters
    ----------
    selector
        The one that the training loader draws from; a `DistributedSelector` on several devices.

    Examples
    --------
    >>> from tailbatch.selection import HardSelector
    >>> selector = HardSelector(100, batch_size=32)
    >>> trainer = Trainer(callbacks=[SelectionCallback(selector)], logger=False, accelerator="cpu")
    """

    def __init__(self, selector: AnySelector) -> None:
        self.selector = selector

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep Lightning from dealing out the batches a second time; say how many epochs there are."""
        if stage != "fit":
            return
        # Left on, it would replace the selector by a DistributedSampler, or fail to.
        trainer._accelerator_connector.use_distributed_sampler = False
        if trainer.world_size > 1 and isinstance(self.selector, Selector):
            raise SelectionError(
                f"each of {trainer.world_size} processes would train on all of every batch: give the "
                "training loader and SelectionCallback the same DistributedSelector(selector)"
            )
        # Here, because Lightning loads checkpoints next, and a loaded selector keeps its warm-up.
        steps = -(-len(self.selector) // trainer.accumulate_grad_batches)  # in an epoch
        limits = trainer.max_epochs or -1, -(-trainer.max_steps // steps)
        if known := [limit for limit in limits if limit > 0]:
            self.selector.plan_epochs(min(known))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a training loader that does not draw from the selector."""
        if getattr(trainer.train_dataloader, "batch_sampler", None) is not self.selector:
            raise SelectionError(
                "the training loader does not draw from the selector of SelectionCallback: make it "
                "with SelectiveLoader(dataset, selector), without batch_size and shuffle"
            )
        # A plain DataLoader(dataset, batch_sampler=selector) has not checked this itself.
        check_loader(self.selector, getattr(trainer.train_dataloader, "dataset", None))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the loss of each step have the weights of corrected selection."""
        if not self.selector.corrected or not pl_module.automatic_optimization:
            return
        own = pl_module.training_step

        @wraps(own)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            outputs = own(*args, **kwargs)
            if isinstance(outputs, Mapping) and {"loss", "losses"} <= outputs.keys():
                losses, index = outputs["losses"], outputs.get("index")
                loss = corrected_loss(self.selector, outputs["loss"], losses, index)
                outputs = {**outputs, "loss": loss}
            return outputs

        pl_module.training_step = training_step  # type: ignore[method-assign]

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the module its own step back."""
        vars(pl_module).pop("training_step", None)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Give the module its own step back."""
        self.on_fit_end(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the selector's epoch, as Lightning's own ``set_epoch`` does not reach batch samplers."""
        # If they agree, workers may have begun the epoch already, and it must continue.
        if self.selector.epoch != trainer.current_epoch:
            self.selector.set_epoch(trainer.current_epoch)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Hand the losses of the batch to the selector."""
        if not isinstance(outputs, Mapping) or "losses" not in outputs:
            raise SelectionError(
                'training_step must return {"loss": ..., "losses": ...}, where "losses" are those of '
                "each sample (b,) or of each label (b, q)"
            )
        self.selector.observe(outputs["losses"], outputs.get("index"))
        if trainer.is_last_batch:
            # Lightning ends the epoch here, without asking the loader for more.
            self.selector.set_epoch(trainer.current_epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the selector's state for Lightning's checkpoint."""
        if isinstance(self.selector, DistributedSelector):
            self.selector.flush()  # every rank is here
        return self.selector.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from Lightning's checkpoint."""
        self.selector.load_state_dict(state_dict)
