"""The selector: epochs of index batches out, losses in, and a state that continues bit for bit."""

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from time import perf_counter
from typing import Any, ClassVar, TypedDict

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.imbalance import label_counts
from tailbatch.selection.batches import (
    Batch,
    PendingBatches,
    lag_of_loader,
    loaded_batches,
    refuse_unweighted,
    saved_batches,
)
from tailbatch.selection.diagnostics import SelectionDiagnostics, label_exposure, minority_share
from tailbatch.selection.digest import (
    described,
    digest_of,
    refuse_other_settings,
    refuse_other_values,
)
from tailbatch.selection.inputs import (
    FloatArray,
    IntArray,
    LabelMatrix,
    checked_losses,
    label_matrix,
    state_array,
    state_integer,
    whole_number,
)
from tailbatch.selection.schedule import OwnPressure
from tailbatch.selection.shown import Shown
from tailbatch.selection.weighting import Efficiency, error_norms

STATE_VERSION = 2


class Settings(TypedDict, total=False):
    """Keyword settings that every selector takes; see `Selector`."""

    batch_size: int
    seed: int
    max_lag: int
    labels: object


class Selector(PendingBatches, Shown, ABC):
    """Draws each epoch's batches of sample indices; use it as ``DataLoader(batch_sampler=...)``.

    An epoch is ``ceil(n / batch_size)`` batches and n draws, the last batch short. A batch is
    *pending* from when it is drawn until its losses are observed; pending batches are part of the
    saved state and are handed out again first after loading it.

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

    Notes
    -----
    A strategy fills in `_draw` and `_probabilities`, and what it needs of the other hooks at the
    end of the class. Hooks get the epoch as an argument and remember only the losses.
    """

    strategy: str
    """What it is called everywhere."""
    default_pressure: ClassVar[OwnPressure] = None
    """Its selection pressure where none is named; None for a strategy without one."""
    takes_features: ClassVar[bool] = False
    """Whether its constructor takes features ``X``, or selection ``weights`` that are made from them."""
    place: ClassVar[int] = 100
    """Where it stands in tables and legends, the lowest first; equal ones by name."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # The signature is the declaration, so that features cannot be forgotten.
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
    ) -> None:
        self.n_samples = whole_number("n_samples", n_samples, least=1)
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        self.seed = whole_number("seed", seed, least=0)
        self.max_lag = whole_number("max_lag", max_lag, least=0)
        self.labels: LabelMatrix | None = None if labels is None else label_matrix(labels)
        if self.labels is not None and self.labels.shape[0] != self.n_samples:
            raise SelectionError(
                f"labels must have one row for each of the {self.n_samples} samples, "
                f"got {self.labels.shape[0]}"
            )
        self._epoch = 0
        self._number = 0  # batches drawn in the current epoch
        self._under_way = False  # an epoch has begun and its end has not been reached
        self._resuming = False  # that epoch comes from a saved state
        self._pending = []
        self._heard = False  # observe was called, also where no losses are needed
        # This epoch, losses without an index came while several batches waited.
        self._guessed = False
        self._gone_by = (
            0  # batches of this epoch that a loader drew ahead and nobody has to observe
        )
        self._iterator: object = None  # a token of the one live iterator
        self._seconds = 0.0
        self._lag = 0
        self._dropped = 0
        self._efficiency = Efficiency(len(self))
        # A thread may draw while another one observes: each of both is done as a whole.
        self._lock = threading.Lock()

    # ---- batches out -----------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one between epochs."""
        return self._epoch

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return -(-self.n_samples // self.batch_size)

    @property
    def batches_left(self) -> int:
        """How many batches the next ``iter()`` hands out: fewer than an epoch after loading a state."""
        return len(self) - self._number + len(self._pending) if self._resuming else len(self)

    def __iter__(self) -> Iterator[IntArray]:
        """Hand out one epoch, each batch drawn when it is asked for."""
        if self._iterator is not None:
            raise SelectionError(
                "another iterator over this selector is still in use: finish it or delete it "
                "first (set_epoch() also ends it)"
            )
        token = self._iterator = object()
        try:
            for batch in self._open_epoch():
                if batch in self._pending:  # else its losses came before it was handed out again
                    yield batch.index.copy()
                    self._check_iterator(token)
            while self._number < len(self):
                with self._lock:
                    index = self._next_batch().index.copy()
                yield index
                self._check_iterator(token)
            self._epoch, self._number, self._under_way = self._epoch + 1, 0, False
        finally:
            if self._iterator is token:
                self._iterator = None

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the next one, for frameworks that count epochs themselves.

        An epoch just loaded from a saved state continues if it has this number; any other epoch
        that has begun is left, and its pending batches are dropped.
        """
        epoch = whole_number("epoch", epoch, least=0)
        if epoch == self._epoch and (self._resuming or not self._under_way):
            return
        if self._under_way:
            self._drop_pending()
        self._epoch, self._number = epoch, 0
        self._under_way = self._resuming = False
        self._iterator = None

    def plan_epochs(self, epochs: int) -> None:
        """Tell the selector how many epochs the training has, before its first batch.

        Adapters call this, because they know the number: a warm-up that nobody named shrinks to at most
        a tenth of it. A warning is logged where nothing but warm-up remains. A selector that
        has begun, or was loaded, keeps what it has.
        """
        whole_number("epochs", epochs, least=1)

    def _open_epoch(self) -> list[Batch]:
        """Begin an epoch, or continue a loaded one and return its pending batches."""
        if self._resuming:
            self._resuming = False
            return list(self._pending)
        if self._under_way:
            self._epoch += 1  # the last one was left early
        else:
            self._check_lag()
            self._refuse_shifted()
            if self.corrected:
                refuse_unweighted(self._pending)  # all batches of the last epoch were trained on
        self._drop_pending()
        self._number, self._under_way, self._guessed, self._gone_by = 0, True, False, 0
        self._times_drawn[:] = 0
        self._start_epoch(self._epoch)
        return []

    def _next_batch(self) -> Batch:
        start = perf_counter()
        self._check_lag()
        if not self.needs_losses:
            # Nobody has to observe these, so those beyond the lag are taken as done.
            beyond = max(len(self._pending) - self.max_lag, 0)
            if self.corrected:
                refuse_unweighted(self._pending[:beyond])
            self._gone_by += beyond
            del self._pending[:beyond]
        index = self._draw(self._size(self._epoch, self._number), self._epoch, self._number)
        batch = Batch(index, self._importance(index, self._epoch), self._epoch)
        self._lag = max(self._lag, len(self._pending))
        self._pending.append(batch)
        self._number += 1
        if self.corrected:
            np.add.at(self._times_drawn, index, 1)  # a sample may be there twice
        else:
            self._times_drawn[index] += 1
        self._seconds += perf_counter() - start
        return batch

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
            f"batch {self._number} of epoch {self._epoch} was asked for while {earlier} no losses "
            f"yet (max_lag={self.max_lag}). Call observe(losses) after every step; if a loader reads "
            "ahead (DataLoader workers, prefetch, gradient accumulation), use num_workers=0 or allow "
            f"it with max_lag={lag_of_loader(waiting)}"
        )

    def _refuse_shifted(self) -> None:
        """Refuse to go on after an epoch in which losses went to the wrong batch.

        Without an index, losses belong to the oldest batch. Where all were observed none is left at the
        end; one that is left was skipped, and the batches after it have got each other's losses.
        """
        if self.needs_losses and self._guessed and self._pending:
            raise StaleSelectionError(
                f"{len(self._pending)} of the {len(self)} batches of the last epoch never got their "
                "losses, so a step was skipped and losses since then went to the wrong batches: call "
                "observe(losses) after every step, or say which batch with observe(losses, index)"
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
            The batch they belong to; the oldest pending one if left out. Needed only where batches
            are not trained on in the order drawn, as with ``DataLoader(in_order=False)``.

        Raises
        ------
        SelectionError
            If the losses cannot be used or the batch is not pending; nothing is changed then.
        """
        with self._lock:
            start = perf_counter()
            if self._went_by(index):
                self._gone_by -= 1
                return
            place = self._find_pending(index)
            batch = self._pending[place]
            if self.corrected:
                refuse_unweighted([batch])
            values = checked_losses(losses, batch.index)
            sizes = self._learn(values, batch.index)
            if self.corrected and not self.softened and batch.weights is not None:
                self._efficiency.add(error_norms(values) if sizes is None else sizes, batch.weights)
            self._guessed |= index is None and len(self._pending) > 1
            del self._pending[place]
            self._heard = True
            self._seconds += perf_counter() - start

    def _went_by(self, index: npt.ArrayLike | None) -> bool:
        """Whether losses belong to a batch drawn ahead by a loader, which nobody had to observe."""
        if not self._gone_by or self.needs_losses or self.corrected:
            return False
        return index is None or not self._is_pending(index)

    # ---- looking ---------------------------------------------------------------------------

    def probabilities(self) -> FloatArray:
        """Return each sample's chance to be drawn first, shape (n,); costs O(n)."""
        return self._probabilities(self._epoch)

    def diagnostics(self) -> SelectionDiagnostics:
        """Return a `SelectionDiagnostics`; costs O(n) each time, nothing while it is not called."""
        p = self.probabilities()
        drawn, labels = self._times_drawn, self.labels
        return SelectionDiagnostics(
            epoch=self._epoch,
            batches=self._number,
            effective_sample_size=float(1 / np.square(p).sum()),
            effective_pressure=float(p.max() / p.min()),
            distinct_share=np.count_nonzero(drawn) / self.n_samples,
            label_exposure=None if labels is None else label_exposure(labels, drawn),
            minority_share=None if labels is None else minority_share(labels, drawn),
            seconds=self._seconds,
            lag=self._lag,
            dropped_batches=self._dropped,
            batch_size=min(self.batch_size, self.n_samples),
            gain=self._efficiency.gain if self.corrected else None,
            heaviest_share=self._efficiency.heaviest_share if self.corrected else None,
            label_counts=None if labels is None else label_counts(labels),
        )

    @property
    def times_drawn(self) -> npt.NDArray[np.int32]:
        """How often each sample was drawn this epoch, shape (n,); not to be changed."""
        return self._times_drawn

    @cached_property
    def _times_drawn(self) -> npt.NDArray[np.int32]:
        # Made when first needed: a selector wrapped by another one never draws by itself.
        return np.zeros(self.n_samples, dtype=np.int32)

    # ---- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue, as plain integers, strings and arrays (copies)."""
        epoch, number, under_way = self._where_to_continue()
        return {
            **self._identity(),
            "settings": self._described,
            "epoch": epoch,
            "number": number,
            "under_way": int(under_way),
            "lag": self._lag,
            "dropped": self._dropped,
            "times_drawn": self._times_drawn.copy(),
            **saved_batches(self._pending),
            **(self._efficiency.state() if self.corrected else {}),
            **self._own_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state bit for bit; its pending batches are handed out first.

        Raises
        ------
        SelectionError
            If the state is of another version or was saved with other settings, which are named;
            nothing is changed then.

        Notes
        -----
        Three settings may differ: `max_lag` only allows, `labels` are only looked at, and
        `initial_losses` are in the state by then.
        """
        self._check_identity(state)
        counts = {key: state_integer(state, key) for key in ("epoch", "lag", "dropped")}
        number = state_integer(state, "number", most=len(self))
        under_way = bool(state_integer(state, "under_way", most=1))
        most = int(np.iinfo(np.int32).max)
        times_drawn = state_array(state, "times_drawn", np.int32, self.n_samples, most=most)
        pending = loaded_batches(state, counts["epoch"], self.n_samples, may_repeat=self.corrected)
        efficiency = self._efficiency.load(state) if self.corrected else self._efficiency
        commit = self._own_loader(state)

        commit()
        self._epoch, self._number = counts["epoch"], number
        self._lag, self._dropped = counts["lag"], counts["dropped"]
        self._under_way = self._resuming = under_way
        self._times_drawn[:] = times_drawn
        self._pending, self._efficiency = pending, efficiency
        self._iterator = None

    def digest(self) -> str:
        """Return a name of all that decides the batches to come, besides the losses to come.

        Two selectors made from the same data with the same settings, in the same state, have the same.
        """
        return digest_of(self.state_dict(), self.labels)

    @cached_property
    def _described(self) -> str:
        # Once: the digest of an array walks all of it, and a state may be saved after every batch.
        return described(self._settings())

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: it continues where this one stands, without the iterator."""
        parts = vars(self) | {"_iterator": None}
        del parts["_lock"]  # which cannot be copied
        epoch, number, under_way = self._where_to_continue()
        if self._iterator is not None or epoch < self._epoch:
            parts |= {"_epoch": epoch, "_number": number}
            parts |= {"_under_way": under_way, "_resuming": under_way}
        return parts

    def __setstate__(self, parts: dict[str, Any]) -> None:
        """Make a copy of its parts, with a lock of its own."""
        vars(self).update(parts, _lock=threading.Lock())

    def _where_to_continue(self) -> tuple[int, int, bool]:
        """Return epoch, batch number and whether it has begun, for a loaded state to continue from."""
        wanted = self._pending and (self.needs_losses or self._heard)
        if wanted and not self._under_way and self._pending[0].epoch == self._epoch - 1:
            # A loader has read to the end of the epoch; its last batches are still to be trained on.
            return self._pending[0].epoch, len(self), True
        return self._epoch, self._number, self._under_way

    def _check_identity(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another selector."""
        if not isinstance(state, Mapping):
            raise SelectionError(f"a saved state is a mapping, got a {type(state).__name__}")
        version = state_integer(state, "version")
        if version != STATE_VERSION:
            raise SelectionError(
                f"the saved state is of version {version}, this package reads version "
                f"{STATE_VERSION}, which names all settings: continue with the version of the "
                "package that saved it, or start again"
            )
        pairs: dict[str, tuple[object, object]] = {}
        for key, own in self._identity().items():
            saved = state.get(key)
            pairs[key] = (saved if isinstance(saved, str) else state_integer(state, key), own)
        refuse_other_values(pairs)
        refuse_other_settings(state.get("settings"), self._described)

    def _identity(self) -> dict[str, int | str]:
        return {
            "version": STATE_VERSION,
            "strategy": self.strategy,
            "n_samples": self.n_samples,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }

    # ---- what a strategy fills in ----------------------------------------------------------

    needs_losses: bool = False
    #: The weights undo only a part of the preference, so the gain cannot be measured.
    softened: bool = False
    #: Warm-up epochs where none are named; 0 for a strategy that draws without losses.
    warm_up_by_default: ClassVar[int] = 3

    @abstractmethod
    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        """Return `size` samples in drawing order, distinct unless they are corrected."""

    @abstractmethod
    def _probabilities(self, epoch: int) -> FloatArray:
        """Return each sample's chance to be drawn first, shape (n,)."""

    def _size(self, epoch: int, number: int) -> int:
        """Return the size of a batch; the last one of an epoch is what is left of n."""
        return min(self.batch_size, self.n_samples - number * self.batch_size)

    def _start_epoch(self, epoch: int) -> None:
        """Renew what stays fixed during an epoch."""
        return

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        """Take in checked losses (b,) or (b, q); raise before changing anything.

        May return how far each sample would move the model, (b,), where it knows better than
        `error_norms`.
        """
        return None

    def _importance(self, index: IntArray, epoch: int) -> FloatArray | None:
        """Return the importance weights of a batch just drawn; None for equal ones."""
        return None

    def _settings(self) -> dict[str, Any]:
        """Return what else decides the draws, by the names of the constructor's parameters."""
        return {}

    def _own_state(self) -> dict[str, Any]:
        """Return the strategy's part of the state."""
        return {}

    def _own_loader(self, state: Mapping[str, Any]) -> Callable[[], None]:
        """Check the strategy's part of a state and return what puts it in place."""
        return lambda: None
