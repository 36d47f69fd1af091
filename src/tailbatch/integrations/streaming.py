"""Streams of shards for a ``DataLoader``: a selector repeats, drops and weights their rows."""

import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.distributed import get_rank, get_world_size, is_available, is_initialized
from torch.utils.data import IterableDataset, get_worker_info

from tailbatch.errors import DataError, SelectionError, check_number, require
from tailbatch.selection import StreamSelector


class StreamDataset(IterableDataset[Any]):
    """The rows of shards that a `StreamSelector` chooses, each with its weight, for a ``DataLoader``.

    A row that is a dict gets an entry ``"weight"``; any other comes as the pair (row, weight). Shards are
    dealt out to processes and their workers, so no row is read twice. Train on the weighted mean of the
    losses: ``(weight * losses).mean()``.

    Call `set_epoch` before each epoch, as for torch's ``DistributedSampler``. With torchdata's
    ``StatefulDataLoader`` training resumes in the middle of an epoch, with the same number of workers.

    Parameters
    ----------
    shards
        What to read, for instance file names; the same in each epoch, and at least one a worker.
    read
        Returns the rows of a shard, in the same order each time.
    labels
        Returns a row's labels, as for ``StreamSelector.select``.
    selector
        Chooses the rows.
    prepare
        Applied to each row that comes out. Decode here what is costly, so that rows that are dropped are
        never decoded.
    epochs
        How many epochs one pass goes through. Trainers that count steps, such as Hugging Face's, resume
        in the middle of a pass only: give them one that is long enough.

    Examples
    --------
    >>> from tailbatch.selection import count_labels
    >>> shards = {"a": [("x", [1, 0]), ("y", [1, 0])], "b": [("z", [0, 1])]}
    >>> counts = count_labels(labels for rows in shards.values() for _, labels in rows)
    >>> dataset = StreamDataset(list(shards), shards.get, lambda row: row[1], StreamSelector(counts))
    >>> [row for (row, _), weight in dataset]
    ['y', 'z', 'z']
    """

    def __init__(
        self,
        shards: Sequence[str],
        read: Callable[[Any], Iterable[Any]],
        labels: Callable[[Any], Any],
        selector: StreamSelector,
        *,
        prepare: Callable[[Any], Any] | None = None,
        epochs: int = 1,
    ) -> None:
        check_number("epochs", epochs, least=1, whole=True, error=SelectionError)
        self.shards = [str(shard) for shard in shards]
        if len(set(self.shards)) < len(self.shards):
            raise SelectionError(
                "the shards must differ by name, or their rows would draw the same"
            )
        self.read, self.labels, self.prepare, self.epochs = read, labels, prepare, epochs
        self.selector = copy(selector)
        # Shared with the workers, also with persistent ones, which were started in an earlier epoch.
        shared: Any = torch.zeros((), dtype=torch.int64)
        self._epoch: Tensor = shared.share_memory_()
        self._resumes = False

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be another one, counted from 0."""
        self.selector.set_epoch(epoch * self.epochs)
        self._epoch.fill_(epoch)
        self._resumes = False

    def __iter__(self) -> Iterator[Any]:
        shards, last = self._own_shards(), (int(self._epoch) + 1) * self.epochs
        for epoch in range(self.selector.epoch if self._resumes else last - self.epochs, last):
            if not self._resumes:
                self.selector.set_epoch(epoch)
            self._resumes = False
            for shard in shards:
                drawn = self.selector.select(self.read(shard), self.labels, shard=shard)
                for row, weight in drawn:
                    yield self._weighted(row, weight)

    def _weighted(self, row: Any, weight: float) -> Any:
        chosen = row if self.prepare is None else self.prepare(row)
        return {**chosen, "weight": weight} if isinstance(chosen, Mapping) else (chosen, weight)

    def _own_shards(self) -> list[str]:
        """Return the shards of this worker of this process."""
        worker = get_worker_info()
        place, parts = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if is_available() and is_initialized():
            place, parts = get_rank() * parts + place, get_world_size() * parts
        if len(self.shards) < parts:
            raise SelectionError(
                f"{len(self.shards)} shards cannot be dealt out to {parts} readers (processes times "
                "workers): lower num_workers, or split the data into more shards"
            )
        return self.shards[place::parts]

    def state_dict(self) -> dict[str, Any]:
        """Return where this worker stands."""
        return self.selector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue from a saved state."""
        self.selector.load_state_dict(state)
        self._epoch.fill_(self.selector.epoch // self.epochs)
        self._resumes = True


def tar_rows(shard: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a WebDataset tar shard: file contents as bytes, by extension.

    For ``StreamDataset(read=tar_rows)``; needs the extra ``webdataset``. Shards may also be addresses or
    ``pipe:`` commands, as the package reads them.

    Examples
    --------
    >>> rows = tar_rows("train-000.tar")
    >>> next(rows)["__key__"]  # doctest: +SKIP
    'sample-000'
    """
    require("webdataset", extra="webdataset")
    from webdataset import WebDataset

    # The whole shard: webdataset would deal out shards to workers a second time.
    samples = WebDataset(shard, shardshuffle=False, nodesplitter=None, workersplitter=None)
    try:
        for sample in samples:
            yield {
                name: value
                for name, value in sample.items()
                if name not in ("__url__", "__local_path__")
            }
    except (OSError, tarfile.TarError, ValueError) as error:
        raise DataError(f"the shard {shard} cannot be read to its end: {error}") from error
