"""Plain PyTorch: loaders that read ahead or out of order, and that resume in the middle of an epoch.

A loop without workers needs only ``DataLoader(dataset, batch_sampler=selector)``.
"""

from collections.abc import Iterator, Mapping, Sized
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tailbatch.errors import SelectionError
from tailbatch.selection import Selector
from tailbatch.training.distributed import DistributedSelector

Item = TypeVar("Item")
AnySelector: TypeAlias = Selector | DistributedSelector


class IndexedDataset(Dataset[tuple[int, Item]]):
    """Any map-style dataset with items that carry their index, for ``observe(losses, index)``.

    Needed if batches arrive in another order than drawn, as with ``in_order=False``; a useful check
    whenever a loader reads ahead.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> dataset = IndexedDataset(TensorDataset(torch.tensor([10.0, 20.0])))
    >>> dataset[1]
    (1, (tensor(20.),))
    """

    def __init__(self, dataset: Dataset[Item]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))  # torch's Dataset declares no length

    def __getitem__(self, index: int) -> tuple[int, Item]:
        return int(index), self.dataset[index]


class SelectiveLoader(DataLoader[Any]):
    """A ``DataLoader`` over a selector's batches that checks its settings and can be saved.

    Its state is the selector's, where batches that workers have fetched ahead are pending. A state saved
    after any step resumes bit for bit with any number of workers.

    Parameters
    ----------
    dataset
        Any map-style dataset, or an `IndexedDataset`.
    selector
        Chooses the batches. Its ``max_lag`` must allow what the workers read ahead.
    **options
        As for ``DataLoader``, except for what the selector decides: ``batch_size``, ``shuffle``,
        ``sampler``, ``batch_sampler`` and ``drop_last``.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> from tailbatch.selection import UniformSelector
    >>> dataset = IndexedDataset(TensorDataset(torch.arange(6.0)))
    >>> loader = SelectiveLoader(dataset, UniformSelector(6, batch_size=4))
    >>> [len(index) for index, _ in loader]
    [4, 2]
    """

    def __init__(self, dataset: Dataset[Any], selector: AnySelector, **options: Any) -> None:
        _check_selector(selector)
        for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
            if name in options:
                raise SelectionError(
                    f"{name} is decided by the selector: leave it out "
                    "(shuffling or batching a second time would undo the selection)"
                )
        super().__init__(dataset, batch_sampler=cast(Any, selector), **options)
        self.selector = selector
        check_loader(selector, dataset, ahead=self.num_workers * (self.prefetch_factor or 0))

    def state_dict(self) -> dict[str, Any]:
        """Return the selector's state, the same on every rank; every rank must ask for it.

        With ``gather_every`` above 1, losses held back are exchanged first.
        """
        if isinstance(self.selector, DistributedSelector):
            self.selector.flush()
        return self.selector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; batches that were pending come first."""
        self.selector.load_state_dict(state)


class StatefulBatches:
    """A selector for torchdata's ``StatefulDataLoader``, without a state of its own.

    Save the selector's state beside the loader's. With workers, the loader would save the sampler as it
    was when a batch was *sent out*, before the losses of the batches in between were known, and continue
    with other batches. Keep ``snapshot_every_n_steps=1``, or the loader draws batches only to drop them.

    Examples
    --------
    >>> from tailbatch.selection import UniformSelector
    >>> batches = StatefulBatches(UniformSelector(6, batch_size=4))
    >>> [len(index) for index in batches], batches.state_dict()
    ([4, 2], {})
    """

    def __init__(self, selector: AnySelector) -> None:
        _check_selector(selector)
        self.selector = selector

    def __len__(self) -> int:
        return len(self.selector)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return iter(self.selector)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the selector's state is saved beside the loader's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing; without this method the loader would draw batches again only to skip them."""


def corrected_loss(selector: AnySelector, loss: Tensor, losses: Any, index: Any) -> Tensor:
    """Return a batch's loss with the importance weights of corrected selection, if they are missing.

    Parameters
    ----------
    selector
        Drew the batch, which it has not observed yet.
    loss
        ``losses.mean()`` or ``losses.sum(1).mean()``, times `loss_scale` on several processes.
    losses
        Of each sample (b,) or label (b, q), with their graph.
    index
        The batch; None is the oldest pending one.

    Examples
    --------
    >>> from tailbatch.selection import ImportanceSelector
    >>> selector = ImportanceSelector([[1, 0], [0, 1], [0, 1]], batch_size=3)
    >>> index, losses = next(iter(selector)), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> loss = corrected_loss(selector, losses.mean(), losses, index)
    >>> bool(loss.isclose(selector.mean(losses)))
    True
    """
    if not selector.corrected or selector.weights_used(index):
        return loss
    scale = selector.loss_scale(index) if isinstance(selector, DistributedSelector) else 1.0
    if isinstance(losses, Tensor) and losses.requires_grad:
        # Over samples it is always a mean; over labels it may be a mean or a sum.
        for rows in [losses] if losses.ndim == 1 else [losses, losses.sum(1)]:
            mean = rows.mean()
            # Loosely, because mixed precision rounds; mean and sum differ by the number of labels.
            if torch.isclose(loss.detach().float(), mean.detach().float() * scale, 1e-2):
                weighted: Tensor = selector.mean(rows, index)
                corrected: Tensor = loss + (weighted - mean) * scale
                return corrected
    place, times = ("", "()") if index is None else (", index", "(index)")
    raise SelectionError(
        "cannot put the importance weights of this batch into its loss, which is neither losses.mean() "
        "nor losses.sum(1).mean() of the losses returned with their graph: train on "
        f"selector.mean(losses{place}), times selector.loss_scale{times} on several processes; for "
        "another loss of each sample, (b,), give those as losses"
    )


def check_loader(
    selector: AnySelector, dataset: object, *, ahead: int = 0, instead: str = "num_workers=0"
) -> None:
    """Refuse a loader with other rows than the selector's, or that draws further ahead than allowed.

    Rows are counted if the dataset has a length. `ahead` is the number of batches drawn before their
    losses, and `instead` the setting that makes it 0.

    Examples
    --------
    >>> from tailbatch.selection import UniformSelector
    >>> check_loader(UniformSelector(6, batch_size=4), range(6))
    """
    if isinstance(dataset, IndexedDataset):
        dataset = dataset.dataset  # which need not have a length
    if isinstance(dataset, Sized) and len(dataset) != selector.n_samples:
        raise SelectionError(
            f"the selector draws from {selector.n_samples} rows, the dataset has {len(dataset)}: make "
            "the selector from the labels of exactly these rows, in the same order"
        )
    if ahead > selector.max_lag:
        raise SelectionError(
            f"{ahead} batches are drawn ahead of their losses here, and the selector has max_lag="
            f"{selector.max_lag}: make it with max_lag={ahead}, or use {instead}"
        )


def _check_selector(selector: object) -> None:
    if not isinstance(selector, Selector | DistributedSelector):
        raise SelectionError(
            f"batches must come from a selector, got a {type(selector).__name__}: give the selector "
            "itself, or DistributedSelector(selector) on several processes"
        )
