"""The selector: epochs of index batches out, losses in, and a state that resumes bit for bit."""

import inspect
import logging
import operator
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from tailbatch.data.labels import checked_labels
from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.seeds import FloatArray, IntArray, stream
from tailbatch.selection.drawing import Law, UniformLaw, _BatchStreams
from tailbatch.selection.inputs import (
    LabelMatrix,
    _as_array,
    _Batch,
    _checked_losses,
    _Efficiency,
    _lag_of_loader,
    _Pending,
)
from tailbatch.selection.record import _Place, _SelectorRecord

logger = logging.getLogger(__name__)

label_matrix = partial(checked_labels, error=SelectionError)
"""Labels as `checked_labels` returns them, or a `SelectionError`."""

OwnPressure: TypeAlias = float | tuple[float, float] | Literal["imbalance"] | None
"""A strategy's default pressure: a number, (start, end), MeanIR, or None if it has no pressure."""


class _Settings(TypedDict, total=False):
    """Keyword settings that every selector takes; see `Selector`."""

    batch_size: int
    seed: int
    max_lag: int
    labels: object
    warm_up_epochs: int
    epochs: int | None
    shuffle: bool


class _LawSettings(_Settings, total=False):
    """Keyword settings of selectors that draw each batch from a law; see `Selector`."""

    full_batches: bool
    corrected: bool


class Selector(_SelectorRecord):
    """Draws each epoch's batches of sample indices; use it as ``DataLoader(batch_sampler=...)``.

    An epoch is ``ceil(n / batch_size)`` batches and n draws; the last batch is short. A batch is
    *pending* from when it is drawn until its losses are observed. Pending batches are part of the
    saved state, and are handed out again first after loading it.

    Parameters
    ----------
    n_samples
        n, the number of training samples.
    batch_size
        Samples in a batch; one batch of n if it is larger than n.
    seed
        A batch depends only on (seed, epoch, batch number) and on the observed losses.
    max_lag
        How many batches may be pending when another one is drawn. 0 suits a plain loop; loaders
        that read ahead need more.
    labels
        Label matrix (n, q), only for the label figures of `diagnostics`.
    warm_up_epochs
        Shuffled epochs before the strategy starts. They depend only on the seed, so models trained on
        them are equal under every strategy. Losses observed meanwhile count.
    epochs
        All epochs of the training, warm-up included; only schedules need it. See `plan_epochs`.
    shuffle
        False keeps the warm-up in the order of the rows, as the authors' script does.
    law
        How likely each sample is; uniform by default.
    full_batches
        Fill up the last batch of an epoch, as the authors' script does.
    corrected
        Draw each sample independently, so a batch may repeat one, and weight it by ``1 / (n p_i)``:
        training on `mean` then has the same expected gradient as shuffled epochs.

    Notes
    -----
    Strategies take `n_samples` or `Y`, the label matrix (n, q) of the training rows, and all settings of
    the class they are made of as ``**settings``.

    A strategy overrides one method: `_draw`, or `LossDrivenSelector.score`. It may override the other
    hooks at the end of the class. Hooks get the epoch, counted from 0 after the warm-up.
    """

    strategy: str
    """Its name in reports, studies and on the command line."""
    default_pressure: ClassVar[OwnPressure] = None
    """The selection pressure if none is given; None for a strategy without one."""
    takes_features: ClassVar[bool] = False
    """Whether its constructor takes features ``X``, or selection ``weights`` that are made from them."""
    place: ClassVar[int] = 100
    """Its position in tables and legends, lowest first; ties are broken by name."""
    warm_up_by_default: ClassVar[int] = 3
    """Warm-up epochs that `make_selector` adds if none are given; 0 for strategies without losses."""
    needs_losses: bool = False
    #: Draws are independent, may repeat a sample, and have weights that must be used.
    corrected: bool = False
    #: The weights undo only part of the preference, so the gain cannot be measured.
    softened: bool = False
    #: Why a strategy cannot draw with correction; empty if it can.
    _uncorrectable: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # The signature is the declaration, so a strategy cannot forget to declare its features.
        takes = {"X", "weights"} & inspect.signature(cls.__init__).parameters.keys()
        cls.takes_features = cls.takes_features or bool(takes)

    def __init__(
        self,
        n_samples: int,
        *,
        batch_size: int,
        seed: int = 0,
        max_lag: int = 0,
        labels: object = None,
        warm_up_epochs: int = 0,
        epochs: int | None = None,
        shuffle: bool = True,
        law: Law | None = None,
        full_batches: bool = False,
        corrected: bool = False,
    ) -> None:
        if corrected and self._uncorrectable:
            raise SelectionError(self._uncorrectable)
        self.n_samples = _whole_number("n_samples", n_samples, least=1)
        self.batch_size = _whole_number("batch_size", batch_size, least=1)
        self.seed = _whole_number("seed", seed, least=0)
        self.max_lag = _whole_number("max_lag", max_lag, least=0)
        self.labels: LabelMatrix | None = None if labels is None else label_matrix(labels)
        if self.labels is not None and self.labels.shape[0] != self.n_samples:
            raise SelectionError(
                f"labels must have one row for each of the {self.n_samples} samples, "
                f"got {self.labels.shape[0]}"
            )
        self.warm_up_epochs = _whole_number("warm_up_epochs", warm_up_epochs, least=0)
        self._warm_up_named = True
        self._epochs = None if epochs is None else _whole_number("epochs", epochs, least=1)
        self._planned: int | None = None  # epochs, as `plan_epochs` was last told
        self._shuffle = shuffle
        self._order: tuple[tuple[str, int], IntArray] | None = None
        self._law = law or UniformLaw(self.n_samples)
        self._full_batches = full_batches
        self.corrected = self.corrected or bool(corrected)
        self._at = _Place()
        self._pending = _Pending()
        self._heard = False  # observe was called, even if no losses are needed
        self._iterator: object = None  # identifies the one live iterator
        self._times_drawn: npt.NDArray[np.int32] = np.zeros(self.n_samples, dtype=np.int32)
        self._seconds, self._lag, self._dropped = 0.0, 0, 0
        self._efficiency = _Efficiency(len(self)) if self.corrected else None
        # One thread may draw while another observes; the lock makes each of them atomic.
        self._lock = threading.Lock()

    def plan_epochs(self, epochs: int) -> None:
        """Tell the selector how many epochs the training has, before its first batch.

        Adapters call this because they know the number. A warm-up that nobody asked for shrinks to at
        most a tenth of the epochs. A warning is logged if all epochs are warm-up. A selector
        that has already begun, or was loaded, stays as it is.
        """
        epochs = _whole_number("epochs", epochs, least=1)
        if self._at != _Place():
            return
        if not self._warm_up_named:
            self.warm_up_epochs = min(self.warm_up_epochs, epochs // 10)
        if self._epochs is None:
            self._epochs = epochs
            vars(self).pop("_settings_text", None)  # it names the number of epochs
        # make_selector and then a trainer may say the same: one warning is enough.
        told, self._planned = self._planned, epochs
        if self.warm_up_epochs >= epochs != told and self.strategy != "random":
            logger.warning(
                "all %d epochs are warm-up, so %s never draws a batch and batches are shuffled: set "
                "warm_up_epochs below that, or train longer",
                epochs,
                self.strategy,
            )

    # ---- batches out -----------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one between epochs."""
        return self._at.epoch

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return -(-self.n_samples // self.batch_size)

    @property
    def batches_left(self) -> int:
        """How many batches the next ``iter()`` hands out: fewer than an epoch after loading a state."""
        at = self._at
        return len(self) - at.number + len(self._pending) if at.resuming else len(self)

    def __iter__(self) -> Iterator[IntArray]:
        """Hand out one epoch, each batch drawn when it is asked for."""
        if self._iterator is not None:
            raise SelectionError(
                "another iterator over this selector is still in use: finish it or delete it "
                "first (set_epoch() also ends it)"
            )
        frame = sys._getframe(1)  # whoever asks for the first batch
        if getattr(frame.f_locals.get("self"), "sampler", None) is self:
            raise SelectionError(
                "a selector hands out whole batches, so it is no sampler of single samples: use "
                "DataLoader(dataset, batch_sampler=selector), without batch_size and shuffle"
            )
        token = self._iterator = object()
        try:
            for batch in self._open_epoch():
                if batch in self._pending:  # else its losses came before it was handed out again
                    yield batch.index.copy()
                    self._check_iterator(token)
            while self._at.number < len(self):
                with self._lock:
                    index = self._next_batch().index.copy()
                yield index
                self._check_iterator(token)
            self._at = replace(self._at, epoch=self._at.epoch + 1, number=0, under_way=False)
        finally:
            if self._iterator is token:
                self._iterator = None

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the next one, for frameworks that count epochs themselves.

        An epoch just loaded from a saved state continues if it has this number. Any other epoch
        that has begun is abandoned, and its pending batches are dropped.
        """
        epoch, at = _whole_number("epoch", epoch, least=0), self._at
        if epoch == at.epoch and (at.resuming or not at.under_way):
            return
        if at.under_way:
            self._drop_pending()
        self._at = replace(at, epoch=epoch, number=0, under_way=False, resuming=False)
        self._iterator = None

    def _open_epoch(self) -> list[_Batch]:
        """Begin an epoch, or continue a loaded one and return its pending batches."""
        at = self._at
        if at.resuming:
            at.resuming = False
            return list(self._pending)
        if not at.under_way:  # else the last epoch was left early
            self._check_lag()
            # Without an index, losses belong to the oldest batch. If all were observed, none is left;
            # one that is left was skipped, so the batches after it got each other's losses.
            if self.needs_losses and at.guessed and self._pending:
                raise StaleSelectionError(
                    f"{len(self._pending)} of the {len(self)} batches of the last epoch never got their "
                    "losses, so a step was skipped and losses since then went to the wrong batches: "
                    "call observe(losses) after every step, or say which batch with "
                    "observe(losses, index)"
                )
            if self.corrected:
                self._pending.refuse_unweighted()  # the last epoch was trained on in full
        self._drop_pending()
        self._at = _Place(at.epoch + at.under_way, under_way=True)
        self._times_drawn[:] = 0
        own_epoch = self._at.epoch - self.warm_up_epochs
        if own_epoch >= 0:
            self._order = None  # gives back the memory of the warm-up's last permutation
            self._start_epoch(own_epoch)
        return []

    def _next_batch(self) -> _Batch:
        start, at = perf_counter(), self._at
        self._check_lag()
        if not self.needs_losses:
            # Nobody has to observe these, so those beyond the lag count as done.
            beyond = max(len(self._pending) - self.max_lag, 0)
            if self.corrected:
                _Pending(self._pending[:beyond]).refuse_unweighted()
            at.gone_by += beyond
            del self._pending[:beyond]
        batch = self._drawn(at.epoch, at.number)
        self._lag = max(self._lag, len(self._pending))
        self._pending.append(batch)
        at.number += 1
        if self.corrected:
            np.add.at(self._times_drawn, batch.index, 1)  # a sample may be in a batch twice
        else:
            self._times_drawn[batch.index] += 1
        self._seconds += perf_counter() - start
        return batch

    def _drawn(self, epoch: int, number: int) -> _Batch:
        """Draw a batch of the warm-up, or of the strategy after it."""
        start, own_epoch = number * self.batch_size, epoch - self.warm_up_epochs
        size = min(self.batch_size, self.n_samples - start)
        if own_epoch < 0:
            return _Batch(self._shuffled("warm_up", epoch, start, size), None, epoch)
        if self._full_batches:
            size = min(self.batch_size, self.n_samples)
        index = self._draw(size, own_epoch, number)
        weights = self._importance(index, own_epoch) if self.corrected else None
        return _Batch(index, weights, epoch)

    def _shuffled(self, purpose: str, epoch: int, start: int, size: int) -> IntArray:
        """Return `size` samples, from place `start` on, of the order that an epoch shuffles them into."""
        if not self._shuffle:
            return np.arange(start, start + size)
        if self._order is None or self._order[0] != (purpose, epoch):
            self._order = None  # so that two permutations never exist at once
            order = stream(self.seed, purpose, epoch).permutation(self.n_samples)
            self._order = (purpose, epoch), order
        return self._order[1][start : start + size].copy()

    def _drop_pending(self) -> None:
        if self.needs_losses:
            self._dropped += len(self._pending)
        self._pending.clear()

    def _check_iterator(self, token: object) -> None:
        if self._iterator is not token:
            raise SelectionError(
                "this iterator has ended: set_epoch() or load_state_dict() moved the selector on; "
                "start a new one"
            )

    def _check_lag(self) -> None:
        waiting = len(self._pending)
        if not self.needs_losses or waiting <= self.max_lag:
            return
        earlier = "1 earlier batch has" if waiting == 1 else f"{waiting} earlier batches have"
        raise StaleSelectionError(
            f"batch {self._at.number} of epoch {self._at.epoch} was asked for while {earlier} no "
            f"losses yet (max_lag={self.max_lag}). Call observe(losses) after every step; if a loader "
            "reads ahead (DataLoader workers, prefetch, gradient accumulation), use num_workers=0 or "
            f"allow it with max_lag={_lag_of_loader(waiting)}"
        )

    # ---- losses in -------------------------------------------------------------------------

    def observe(self, losses: npt.ArrayLike, index: npt.ArrayLike | None = None) -> None:
        """Tell the selector the losses of a pending batch.

        Parameters
        ----------
        losses
            Per sample (b,) or per label (b, q), in the order of the batch, finite and >= 0. Arrays,
            lists and torch tensors on any device.
        index
            The batch they belong to; the oldest pending one by default. Needed only if batches
            are not trained on in the order drawn, as with ``DataLoader(in_order=False)``.

        Raises
        ------
        SelectionError
            If the losses cannot be used or the batch is not pending; nothing changes then.
        """
        with self._lock:
            start, at = perf_counter(), self._at
            if self._went_by(index):
                at.gone_by -= 1
                return
            batch = self._pending.find(index)
            if self.corrected:
                _Pending([batch]).refuse_unweighted()
            values = _checked_losses(losses, batch.index)
            sizes = self._learn(values, batch.index)
            if self._efficiency and not self.softened and batch.weights is not None:
                self._efficiency.add(
                    _error_norms(values) if sizes is None else sizes, batch.weights
                )
            at.guessed |= index is None and len(self._pending) > 1
            self._pending.remove(batch)
            self._heard = True
            self._seconds += perf_counter() - start

    def _went_by(self, index: npt.ArrayLike | None) -> bool:
        """Whether losses belong to a batch drawn ahead by a loader, which nobody had to observe."""
        if not self._at.gone_by or self.needs_losses or self.corrected:
            return False
        wanted = None if index is None else _as_array(index)
        return wanted is None or not any(np.array_equal(b.index, wanted) for b in self._pending)

    # ---- what a strategy may override --------------------------------------------------------

    @property
    def _own_epochs(self) -> int | None:
        """How many epochs follow the warm-up, if that is known; at least 1."""
        # A training that ends within its warm-up never asks for more.
        return None if self._epochs is None else max(self._epochs - self.warm_up_epochs, 1)

    def _pressure(self, epoch: int) -> float:
        """Return the selection pressure of an epoch."""
        return 1.0

    @cached_property
    def _streams(self) -> _BatchStreams:
        return _BatchStreams(self.seed)

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        """Return `size` samples in drawing order, distinct unless they are corrected."""
        rng = self._streams.at(epoch, number)
        draw = self._law.draw_independent if self.corrected else self._law.draw
        return draw(size, self._pressure(epoch), rng)

    def _probabilities(self, epoch: int) -> FloatArray:
        """Return each sample's chance to be drawn first, shape (n,)."""
        return self._law.probabilities(self._pressure(epoch))

    def _importance(self, index: IntArray, epoch: int) -> FloatArray:
        """Return the importance weights of a corrected batch just drawn."""
        chances = self._law.chances(index, self._pressure(epoch))
        return np.asarray(1 / (len(index) * self.n_samples * chances))

    def _start_epoch(self, epoch: int) -> None:
        """Renew what stays fixed during an epoch."""
        return

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        """Take in checked losses (b,) or (b, q); raise before changing anything.

        May return how far each sample would move the model, (b,), if it knows better than
        1 minus exp(-loss).
        """
        return None


def _error_norms(losses: FloatArray) -> FloatArray:
    """Return ``||1 - exp(-loss_i)||_2``: how far each sample would move the logits, shape (b,).

    For the binary cross-entropy of a label, ``1 - exp(-bce) = |sigmoid(z) - y|`` is the size of its
    gradient by the logit. A loss (b,) counts as that of a single label.
    """
    errors = -np.expm1(-losses.reshape(len(losses), -1))
    return np.asarray(np.sqrt(np.square(errors).sum(axis=1)))


def _whole_number(name: str, value: object, *, least: int) -> int:
    """Return `value` as an integer of at least `least`, or say what is wrong with it."""
    if hasattr(value, "__index__") and operator.index(value) >= least:
        return operator.index(value)
    raise SelectionError(f"{name} must be a whole number from {least}, got {value!r}")


class RandomSelector(Selector):
    """Plain shuffled epochs: every sample once, in random order.

    Parameters
    ----------
    n_samples
        n, the number of training samples.
    **settings
        As for `Selector`; ``shuffle=False`` keeps the samples in their order.

    Examples
    --------
    >>> [batch.tolist() for batch in RandomSelector(5, batch_size=2, seed=0)]
    [[4, 1], [0, 3], [2]]
    """

    strategy: str = "random"
    place = 0
    warm_up_by_default = 0
    _uncorrectable = "random draws every sample equally often, so it has nothing to correct"

    def __init__(self, n_samples: int, **settings: Unpack[_Settings]) -> None:
        super().__init__(n_samples, **settings)

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        return self._shuffled("shuffle", epoch, number * self.batch_size, size)
