"""Several processes: every rank draws the same global batch, takes its slice, and gets all losses."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from tailbatch.errors import SelectionError
from tailbatch.selection import Selector, weighted_mean
from tailbatch.training.ranks import telling_ranks, this_group

_Losses: TypeAlias = npt.NDArray[np.float32]


class _Slice(NamedTuple):
    """A rank's share of a global batch."""

    number: int
    whole: npt.NDArray[np.int64]
    local: npt.NDArray[np.int64]
    start: int  # where the share begins in the batch
    largest: int  # rows of the largest share, which every rank's message has room for
    padded: bool


class DistributedSelector:
    """A rank's view of a selector that every rank holds in the same state; a ``batch_sampler``.

    The batches are those of one process, ``batch_size`` is global, and each rank gets a slice of every
    batch. A rank left empty by a short batch gets the batch's first sample with a `loss_scale` of 0, so
    that no rank falls behind. Without a process group there is one rank: the same script also runs alone.
    A rank that fails tells the others why; they wait at most ``TAILBATCH_RANK_TIMEOUT`` seconds (1800).

    Parameters
    ----------
    selector
        Made the same way on every rank, from the same data and seed; checked at the first batch.
    gather_every
        Number of batches between exchanges of losses, besides the end of an epoch. It is a lag of
        ``gather_every - 1`` batches, which the selector's ``max_lag`` must allow.

    Examples
    --------
    Every rank runs the same code, for instance under ``torchrun``:

    >>> from tailbatch.selection import HardSelector
    >>> selector = DistributedSelector(HardSelector(5, batch_size=4))
    >>> for index in selector:  # this rank's part of the batch
    ...     losses = torch.rand(len(index))
    ...     loss = losses.mean() * selector.loss_scale()  # what DDP is to average
    ...     selector.observe(losses)
    >>> selector.epoch
    1
    """

    def __init__(self, selector: Selector, *, gather_every: int = 1) -> None:
        if not isinstance(selector, Selector):
            raise SelectionError(
                "DistributedSelector deals out the batches of a selector, as make_selector returns "
                f"it, got a {type(selector).__name__}"
            )
        if gather_every < 1:
            raise SelectionError(f"gather_every must be at least 1, got {gather_every}")
        if gather_every - 1 > selector.max_lag:
            raise SelectionError(
                f"gather_every={gather_every} leaves {gather_every - 1} batches without losses when "
                f"another one is drawn: make the selector with max_lag={gather_every - 1}"
            )
        self.selector = selector
        self.gather_every = gather_every
        self._rank, self._n_ranks = 0, 1
        self._group: dist.ProcessGroup | None = None
        self._agreed = False  # whether the ranks' selectors are known to be the same
        self._out: list[_Slice] = []  # handed out, losses not yet observed
        self._held: list[tuple[_Slice, _Losses]] = []  # losses observed, not yet exchanged
        self._number = 0
        self._left = 0  # batches still to be drawn in this epoch

    @property
    def n_samples(self) -> int:
        """How many rows the selector draws from."""
        return self.selector.n_samples

    @property
    def epoch(self) -> int:
        """The epoch in progress, or the next one."""
        return self.selector.epoch

    @property
    def n_ranks(self) -> int:
        """How many processes take part; 1 while there is no process group."""
        return self._n_ranks if self._agreed else this_group().n_ranks

    @property
    def max_lag(self) -> int:
        """How many batches may be drawn ahead of their losses."""
        return self.selector.max_lag

    def plan_epochs(self, epochs: int) -> None:
        """Tell the selector how many epochs the training has, as `Selector.plan_epochs`."""
        self.selector.plan_epochs(epochs)

    @property
    def batches_left(self) -> int:
        """How many batches the next ``iter()`` hands out."""
        return self.selector.batches_left

    def __len__(self) -> int:
        return len(self.selector)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        """Hand out this rank's slices of one epoch."""
        with telling_ranks():
            self._join_ranks()
        self._forget()
        self._left = self.selector.batches_left
        for whole in self.selector:
            self._left -= 1
            part = self._slice(whole)
            self._out.append(part)
            if not self.selector.needs_losses:  # nobody has to observe these
                del self._out[: -self.max_lag - 1]
            yield part.local.copy()

    def loss_scale(self, index: npt.ArrayLike | None = None) -> float:
        """Return what to multiply this rank's mean loss by: local batch * ranks / global batch.

        Averaging the ranks' gradients, as DDP does, then gives the gradient of the global mean. `index`
        as for `observe`, and before it.
        """
        part = self._out[self._find(index)]
        return 0.0 if part.padded else len(part.local) * self._n_ranks / len(part.whole)

    def unequal_weights(self, index: npt.ArrayLike | None = None) -> npt.NDArray[np.float64] | None:
        """Return the importance weights of this rank's slice; None for a plain mean.

        They sum to about 1 on every rank: multiply by `loss_scale` as you would without weights.
        """
        part = self._out[self._find(index)]
        again = index is None and self.corrected and self.selector.weights_used(part.whole)
        if again and len(self._out) > 1:
            raise SelectionError(
                f"{len(self._out)} slices are pending, and the weights of the oldest were taken "
                "already: call observe(losses) after each step, or say which slice with index="
            )
        weights = self.selector.unequal_weights(part.whole)
        if weights is None:
            return None
        own = weights[part.start : part.start + len(part.local)]
        return own * (len(part.whole) / len(part.local))

    def mean(self, losses: Any, index: npt.ArrayLike | None = None) -> Any:
        """Return this rank's loss to train on, as `Selector.mean`; `loss_scale` is not yet applied."""
        return weighted_mean(losses, self.unequal_weights(index) if self.corrected else None)

    def weights_used(self, index: npt.ArrayLike | None = None) -> bool:
        """Return whether the weights of a slice's batch have been taken; for adapters."""
        return self.selector.weights_used(self._out[self._find(index)].whole)

    @property
    def corrected(self) -> bool:
        """Whether draws have importance weights that must be used."""
        return self.selector.corrected

    def observe(self, losses: Any, index: npt.ArrayLike | None = None) -> None:
        """Share the losses of this rank's slice, (b,) or (b, q); every rank does so once per batch.

        `index` is the slice they belong to, by default the oldest that is waiting for losses.
        """
        with telling_ranks():
            position = self._find(index)
            part = self._out[position]
            values = torch.as_tensor(losses).detach().to("cpu", torch.float32).numpy()
            if len(values) != len(part.local):
                raise SelectionError(
                    f"losses must have one row for each of the {len(part.local)} samples of this rank's "
                    f'slice, got {len(values)}; compute the loss with reduction="none"'
                )
            del self._out[position]
            self._held.append((part, values))
            if len(self._held) >= self.gather_every or (self._left == 0 and not self._out):
                self.flush()

    def flush(self) -> None:
        """Exchange the losses held back by `gather_every`; every rank does so before saving."""
        with telling_ranks():
            # Taken out first: what a rank refused must not come again with the next batch.
            held, self._held = self._held, []
            if self._group is None:
                for part, values in held:
                    self.selector.observe(values, part.whole)
            elif held:
                messages = self._gather(np.concatenate([self._message(*item) for item in held]))
                for part, values in held:
                    size = 1 + part.largest * values[0].size
                    self._deliver(part, values.shape[1:], messages[:, :size])
                    messages = messages[:, size:]

    def state_dict(self) -> dict[str, Any]:
        """Return the selector's state, the same on every rank and for any number of them."""
        if self._held:
            raise SelectionError(
                f"the losses of {len(self._held)} batches are held back (gather_every="
                f"{self.gather_every}): call flush() on every rank before saving"
            )
        return self.selector.state_dict() | {"gather_every": self.gather_every}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; every rank loads it. Other settings are refused."""
        saved = state.get("gather_every", 1) if isinstance(state, Mapping) else 1
        if int(saved) != self.gather_every:
            raise SelectionError(
                f"the state was saved with gather_every {int(saved)}, this DistributedSelector has "
                f"{self.gather_every}: losses would come at other batches than before"
            )
        self.selector.load_state_dict(state)
        self._agreed = False
        self._forget()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the next one, on every rank."""
        if epoch != self.epoch:
            self._forget()
        self.selector.set_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which finds the other ranks by itself at its first batch."""
        return vars(self) | {"_group": None, "_agreed": False, "_out": [], "_held": []}

    # ---- slices ------------------------------------------------------------------------------

    def _slice(self, whole: npt.NDArray[np.int64]) -> _Slice:
        parts = np.array_split(whole, self._n_ranks)  # the first ones are longer if any
        local, start = parts[self._rank], sum(map(len, parts[: self._rank]))
        self._number += 1
        if len(local) == 0:
            return _Slice(self._number, whole, whole[:1], 0, len(parts[0]), padded=True)
        return _Slice(self._number, whole, local, start, len(parts[0]), padded=False)

    def _find(self, index: npt.ArrayLike | None) -> int:
        if index is None:
            if self._out:
                return 0  # loaders hand slices over in the order drawn
            raise SelectionError(
                "no slice is waiting for losses: draw one first (each is observed once)"
            )
        wanted = np.asarray(index)
        for position, part in enumerate(self._out):
            if np.array_equal(part.local, wanted):
                return position
        raise SelectionError(
            f"the slice starting with samples {wanted.ravel()[:3].tolist()} is not waiting for losses "
            f"on rank {self._rank}: pass the index as it was drawn here, in the same order"
        )

    def _forget(self) -> None:
        self._out.clear()
        self._held.clear()

    # ---- exchange ----------------------------------------------------------------------------

    def _join_ranks(self) -> None:
        """Find the other ranks, once, and refuse those whose selector would draw other batches."""
        if self._agreed:
            return
        ranks = this_group()
        if ranks.together:
            if self._group is None:
                ranks.meet()  # creating a group waits for all ranks, and cannot learn that one has failed
                # A separate group, so that losses travel the same way whatever the gradients use.
                self._group = dist.new_group(backend="gloo")
            self._rank, self._n_ranks = ranks.rank, ranks.n_ranks
            self._refuse_other_selectors()
        elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise SelectionError(
                "this is one of several processes (WORLD_SIZE is set) without a process group: call "
                "torch.distributed.init_process_group() before the first batch"
            )
        self._agreed = True

    def _refuse_other_selectors(self) -> None:
        own = f"{self.gather_every:8} {self.selector.digest()}".encode()
        digests = self._gather(np.frombuffer(own, dtype=np.uint8))
        other = np.flatnonzero((digests != digests[0]).any(axis=1))
        if len(other):
            raise SelectionError(
                f"rank {other[0]} holds a different selector than rank 0: make it from the same data, "
                "with the same seed and settings, on every rank, and load the same state"
            )

    def _message(self, part: _Slice, values: _Losses) -> _Losses:
        """Return a slice's losses as a message: the batch number, then rows up to the largest slice."""
        # A float32 holds whole numbers below 2^24 exactly.
        message = np.zeros(1 + part.largest * values[0].size, dtype=np.float32)
        message[0] = part.number % 2**24
        if not part.padded:
            message[1 : 1 + values.size] = values.ravel()
        return message

    def _gather(self, message: npt.NDArray[Any]) -> _Losses:
        """Return the messages of all ranks, which must have the same size, one per row."""
        own = torch.from_numpy(message.astype(np.float32))
        gathered = torch.empty(self._n_ranks, len(own))
        to = list(gathered.unbind())
        this_group().finish(dist.all_gather(to, own, group=self._group, async_op=True))
        return gathered.numpy()

    def _deliver(self, part: _Slice, tail: tuple[int, ...], messages: _Losses) -> None:
        """Hand the losses of a whole batch, in its order, to the selector."""
        numbers = messages[:, 0].astype(int).tolist()
        if len(set(numbers)) > 1:
            raise SelectionError(
                f"the ranks are not at the same batch (they are at {numbers}): every rank must observe "
                "every batch, in the order drawn; nothing else may deal out the batches a second time "
                "(Accelerate's prepare, a DistributedSampler) and loaders keep in_order=True"
            )
        rows = messages[:, 1:].reshape(self._n_ranks, -1, *tail)
        sizes = [len(share) for share in np.array_split(part.whole, self._n_ranks)]
        losses = np.concatenate([own[:size] for own, size in zip(rows, sizes, strict=True)])
        self.selector.observe(losses, part.whole)
