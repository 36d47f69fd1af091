"""Hugging Face: a loader for Accelerate, and a mixin for ``transformers.Trainer``."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, Dataset

from tailbatch.errors import SelectionError, require
from tailbatch.integrations.pytorch import (
    AnySelector,
    IndexedDataset,
    SelectiveLoader,
    check_loader,
    corrected_loss,
)
from tailbatch.losses import Loss
from tailbatch.selection import Selector
from tailbatch.training.checkpoints import load_checkpoint, save_checkpoint
from tailbatch.training.distributed import DistributedSelector

require("accelerate", extra="huggingface")
require("transformers", extra="huggingface")

from accelerate import Accelerator
from accelerate.data_loader import DataLoaderStateMixin
from accelerate.state import GradientState
from accelerate.utils import send_to_device
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

INDEX = "selection_index"  # the batch's entry that says which samples it holds
STATE = "selector.safetensors"


class AcceleratedLoader(DataLoaderStateMixin, SelectiveLoader):  # type: ignore[misc]  # base untyped
    """A `SelectiveLoader` for Accelerate, whose ``prepare`` returns it unchanged.

    A prepared ``DataLoader`` would split batches a second time and read one batch ahead. This one moves
    batches to the device and marks the end of an epoch for gradient accumulation.
    ``accelerator.save_state`` and ``load_state`` include it and resume in the middle of an epoch.

    Parameters
    ----------
    accelerator
        Gives the device and the number of processes.
    dataset, selector, **options
        As for `SelectiveLoader`; a `DistributedSelector` on several processes.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> from tailbatch.selection import UniformSelector
    >>> dataset = TensorDataset(torch.arange(6.0))
    >>> loader = AcceleratedLoader(Accelerator(cpu=True), dataset, UniformSelector(6, batch_size=4))
    >>> [len(x) for x, in loader]
    [4, 2]
    """

    def __init__(
        self, accelerator: Accelerator, dataset: Dataset[Any], selector: AnySelector, **options: Any
    ) -> None:
        super().__init__(dataset, selector, **options)
        if accelerator.num_processes > 1 and isinstance(selector, Selector):
            raise SelectionError(
                f"each of {accelerator.num_processes} processes would train on all of every batch: "
                "give the loader DistributedSelector(selector)"
            )
        self.device = accelerator.device
        self.gradient_state = GradientState()
        self._is_accelerate_prepared = True
        accelerator.register_for_checkpointing(self)

    def __iter__(self) -> Any:
        """Yield an epoch's batches on the accelerator's device, the last one marked."""
        self.begin()
        try:
            left = self.selector.batches_left
            for batch in super().__iter__():
                left -= 1
                self.end_of_dataloader = left == 0
                yield send_to_device(batch, self.device)
        finally:
            self.end()


# What the mixin's methods call with super() is a Trainer's, and only a type checker wants to know.
if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class SelectiveTrainerMixin(_Base):
    """Lets a selector choose the training batches of ``transformers.Trainer``.

    The selector's batch size replaces ``per_device_train_batch_size`` and counts over all processes.
    Checkpoints include the selector and resume in the middle of an epoch. The Trainer reads
    ``gradient_accumulation_steps`` batches at a time, so ``max_lag`` must be at least one less.

    Put the mixin first among the bases. A Trainer with its own ``compute_loss`` comes after it, and must
    return ``(loss, outputs)`` when asked for the outputs.

    Parameters
    ----------
    selector
        Chooses the batches of ``train_dataset``; the same on every process.
    loss
        A loss of `tailbatch.losses` that replaces the model's own. The selector still observes plain
        binary cross-entropy.
    *args, **kwargs
        As for ``Trainer``.

    Examples
    --------
    >>> class SelectiveTrainer(SelectiveTrainerMixin, Trainer):
    ...     pass

    Then ``SelectiveTrainer(model=..., args=..., train_dataset=..., selector=selector).train()``.
    """

    _reached = False  # compute_loss below was called in this training step

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        places = {kind: place for place, kind in enumerate(cls.__mro__)}
        if places.get(Trainer, len(places)) < places[SelectiveTrainerMixin]:
            bases = [base.__name__ for base in cls.__bases__ if base is not SelectiveTrainerMixin]
            raise SelectionError(
                f"{cls.__name__} has the mixin behind Trainer, which would never call it: write class "
                f"{cls.__name__}(SelectiveTrainerMixin, {', '.join(bases)})"
            )

    def __init__(
        self, *args: Any, selector: AnySelector, loss: Loss | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(loss, Loss | None):
            raise SelectionError(
                f"loss must be one of tailbatch.losses, such as weighted_bce(Y), got a "
                f"{type(loss).__name__}; for another one override compute_loss and training_losses"
            )
        # Its mean over a small batch is still to be divided by the number of accumulated ones.
        self._own_loss = None if loss is None else loss.to(self.args.device)
        if loss is not None:
            self.loss_is_scaled_for_ga = False
        if self.args.ignore_data_skip:
            raise SelectionError(
                "ignore_data_skip=True would train the rest of an interrupted epoch as a whole one: "
                "leave it False (nothing is drawn and thrown away when training resumes)"
            )
        self.selector = (
            DistributedSelector(selector) if isinstance(selector, Selector) else selector
        )
        self.add_callback(_SaveSelector(self.selector))

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Train, or continue from a checkpoint."""
        # Before a state is loaded, which keeps the warm-up that it was saved with.
        steps = -(-len(self.selector) // self.args.gradient_accumulation_steps)  # in an epoch
        epochs = math.ceil(self.args.num_train_epochs)
        self.selector.plan_epochs(
            -(-self.args.max_steps // steps) if self.args.max_steps > 0 else epochs
        )
        if resume_from_checkpoint:
            folder = resume_from_checkpoint
            if folder is True:
                folder = cast(Any, get_last_checkpoint)(self.args.output_dir)
            if folder is not None:  # else the Trainer says that there is none
                self._load_selector(Path(folder))
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_selector(self, folder: Path) -> None:
        if not (folder / STATE).exists():
            raise SelectionError(
                f"{folder} has no {STATE}: it was saved without a selector, or cut short; "
                "resume from another checkpoint"
            )
        self.selector.load_state_dict(load_checkpoint(folder / STATE))
        if self.selector.batches_left == 0:
            # The Trainer takes an epoch as done with its last batch, not when the loader says so.
            self.selector.set_epoch(self.selector.epoch + 1)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader over the selector's batches, which Accelerate does not split again."""
        usual = super().get_train_dataloader()
        workers = usual.num_workers * (usual.prefetch_factor or 0)
        check_loader(
            self.selector,
            usual.dataset,
            ahead=workers + self.args.gradient_accumulation_steps - 1,
            instead="dataloader_num_workers=0 and gradient_accumulation_steps=1",
        )
        return DataLoader(
            IndexedDataset(usual.dataset),
            batch_sampler=cast(Any, _Unskipped(self.selector)),
            collate_fn=_WithIndex(usual.collate_fn),
            num_workers=usual.num_workers,
            pin_memory=usual.pin_memory,
            worker_init_fn=usual.worker_init_fn,
            prefetch_factor=usual.prefetch_factor,
            persistent_workers=usual.persistent_workers,
            multiprocessing_context=usual.multiprocessing_context,
            in_order=usual.in_order,
        )

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any) -> Tensor:
        """Train on a batch, and refuse a ``compute_loss`` that leaves the selector out."""
        self._reached, cause = False, None
        try:
            loss: Tensor = super().training_step(model, inputs, *args)
        except TypeError as error:  # such as a model that does not know the index of the batch
            if self._reached:
                raise
            cause = error
        if self._reached:
            return loss
        kinds = type(self).__mro__
        before = kinds[: kinds.index(SelectiveTrainerMixin)]
        own = next((kind for kind in before if "compute_loss" in vars(kind)), type(self))
        raise SelectionError(
            f"{own.__name__}.compute_loss never reached SelectiveTrainerMixin.compute_loss, so the "
            "selector hears no losses: put the mixin first and your own compute_loss in a Trainer after "
            "it, class SelectiveTrainer(SelectiveTrainerMixin, MyTrainer), or call "
            "super().compute_loss(...)"
        ) from cause

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the Trainer's loss; the selector observes the losses of a training batch."""
        self._reached = True
        index = inputs.pop(INDEX, None)
        labels = inputs.get("labels")  # which the Trainer may take out
        loss, outputs = self._loss_and_outputs(model, inputs, num_items_in_batch)
        if index is None:  # evaluation
            return (loss, outputs) if return_outputs else loss
        if labels is None:
            raise SelectionError(
                'a training batch has no "labels", which the selector\'s losses are computed from: '
                "name the label column so, or override selection_losses and training_losses"
            )
        index = index.cpu().numpy()
        loss = loss * self.selector.loss_scale(index)
        if self.selector.corrected:
            losses = self.training_losses(outputs, labels)
            loss = corrected_loss(self.selector, loss, losses, index)
        self.selector.observe(self.selection_losses(outputs, labels), index)
        return (loss, outputs) if return_outputs else loss

    def _loss_and_outputs(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None,
    ) -> tuple[Tensor, Any]:
        if self._own_loss is not None and "labels" in inputs:
            outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
            loss: Tensor = self._own_loss(_logits(outputs).float(), inputs["labels"])
            return loss, outputs
        both = super().compute_loss(model, inputs, True, num_items_in_batch)
        if not isinstance(both, tuple):
            raise SelectionError(
                "the compute_loss below SelectiveTrainerMixin must return (loss, outputs) when "
                f"return_outputs is True, got a {type(both).__name__}"
            )
        return both

    def training_losses(self, outputs: Any, labels: Tensor) -> Tensor:
        """Return the losses whose mean is the Trainer's loss, with their graph: (b,) or (b, q).

        Corrected selection (``importance``, ``corrected=True``) weights them. They are those of `loss`,
        or else binary cross-entropy, as for ``problem_type="multi_label_classification"``; override this
        for another loss.
        """
        if self._own_loss is not None:
            return self._own_loss.rows(_logits(outputs).float(), labels)
        return binary_cross_entropy_with_logits(
            _logits(outputs).float(), labels.float(), reduction="none"
        )

    def selection_losses(self, outputs: Any, labels: Tensor) -> Tensor:
        """Return the losses that the selector observes, (b,) or (b, q); may be overridden."""
        return binary_cross_entropy_with_logits(
            _logits(outputs).detach().float(), labels.float(), reduction="none"
        )


def _logits(outputs: Any) -> Tensor:
    if isinstance(outputs, dict):
        return cast(Tensor, outputs["logits"])
    # A tuple begins with the loss, unless the model was called without labels.
    return cast(Tensor, outputs[1] if outputs[0].ndim == 0 else outputs[0])


class _SaveSelector(TrainerCallback):
    """Writes the selector's state into each of the Trainer's checkpoints."""

    def __init__(self, selector: DistributedSelector) -> None:
        self.selector = selector

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.selector.flush()
        if args.should_save:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            save_checkpoint(folder / STATE, self.selector.state_dict())


class _Unskipped:
    """The selector's batches, after empty ones for those that a resumed Trainer skips.

    A loaded selector already continues behind them.
    """

    def __init__(self, selector: DistributedSelector) -> None:
        self.selector = selector

    def __len__(self) -> int:
        return len(self.selector)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        for _ in range(len(self.selector) - self.selector.batches_left):
            yield np.array([], dtype=np.int64)
        yield from self.selector


class _WithIndex:
    """A collator for an `IndexedDataset` that adds the index to another collator's batch."""

    def __init__(self, collate: Callable[[list[Any]], dict[str, Any]]) -> None:
        self.collate = collate

    def __call__(self, items: list[tuple[int, Any]]) -> dict[str, Any]:
        batch = self.collate([item for _, item in items])
        return {**batch, INDEX: torch.tensor([index for index, _ in items])}
