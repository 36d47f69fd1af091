"""What a selector tells: the weights of its batches, figures about itself, and saved states."""

import hashlib
import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.seeds import FloatArray
from tailbatch.selection import shown
from tailbatch.selection.drawing import Law
from tailbatch.selection.inputs import (
    LabelMatrix,
    _as_array,
    _Efficiency,
    _Pending,
    _state_array,
    _state_integer,
    weighted_mean,
)

_MOST_SHOWN = 60  # characters of a value in a message
STATE_VERSION = 3


@dataclass
class _Place:
    """Where a selector stands: which epoch, and how far into it."""

    epoch: int = 0
    number: int = 0  # batches drawn
    under_way: bool = False  # begun, and its end not reached
    resuming: bool = False  # restored from a saved state, and not yet iterated
    guessed: bool = False  # losses came without an index while several batches were pending
    gone_by: int = 0  # batches a loader drew ahead that nobody has to observe


class _SelectorRecord:
    """What a selector tells: the weights of its batches, figures about itself, and saved states."""

    strategy: str
    n_samples: int
    batch_size: int
    seed: int
    max_lag: int
    labels: LabelMatrix | None
    warm_up_epochs: int
    needs_losses: bool
    corrected: bool
    _at: _Place
    _pending: _Pending
    _efficiency: _Efficiency | None
    _times_drawn: npt.NDArray[np.int32]
    _law: Law
    _full_batches: bool
    _shuffle: bool
    _warm_up_named: bool
    _heard: bool
    _iterator: object
    _seconds: float
    _lag: int
    _dropped: int
    _lock: threading.Lock

    def __len__(self) -> int:
        raise NotImplementedError

    def _probabilities(self, epoch: int) -> FloatArray:
        raise NotImplementedError

    # ---- weights ---------------------------------------------------------------------------

    def importance_weights(self, index: npt.ArrayLike | None = None) -> FloatArray:
        """Return the weights (b,) of a pending batch whose weighted sum estimates a mean over all n.

        ``1 / b`` each unless draws are corrected. `index` as for `observe`.
        """
        batch = self._pending.weigh(index)
        if batch.weights is None:
            return np.full(len(batch.index), 1 / len(batch.index))
        return batch.weights.copy()

    def unequal_weights(self, index: npt.ArrayLike | None = None) -> FloatArray | None:
        """Return the `importance_weights` of a pending batch; None if a plain mean is meant."""
        weights = self._pending.weigh(index).weights
        return None if weights is None else weights.copy()

    def mean(self, losses: Any, index: npt.ArrayLike | None = None) -> Any:
        """Return the loss to train on: the batch's estimate of the mean loss over all n samples.

        ``losses.mean()`` if nothing is corrected; with importance weights ``sum_i w_i losses_i``.
        Losses per label (b, q) are averaged over labels too, as ``losses.mean()`` does; for another
        reduction hand over ``losses.sum(1)``.

        Parameters
        ----------
        losses
            Per sample (b,) or per label (b, q), in the order of the batch: a tensor, whose graph is
            kept, or an array. Not yet averaged: ``reduction="none"``.
        index
            As for `observe`, and before it.

        Examples
        --------
        >>> from tailbatch.selection import ImportanceSelector
        >>> selector = ImportanceSelector([[1, 0], [1, 0], [0, 1]], batch_size=3)
        >>> losses = np.ones((3, 2))
        >>> for index in selector:
        ...     assert selector.mean(losses) == selector.importance_weights().sum()
        """
        weights = self.unequal_weights(index) if self.corrected else None
        return weighted_mean(losses, weights)

    def weights_used(self, index: npt.ArrayLike | None = None) -> bool:
        """Whether the weights of a pending batch were taken; for adapters."""
        return self._pending.find(index).asked

    # ---- looking ---------------------------------------------------------------------------

    def probabilities(self) -> FloatArray:
        """Return each sample's chance to be drawn first, shape (n,); costs O(n)."""
        own_epoch = self._at.epoch - self.warm_up_epochs
        if own_epoch < 0:
            return np.full(self.n_samples, 1 / self.n_samples)
        return self._probabilities(own_epoch)

    def diagnostics(self) -> shown.SelectionDiagnostics:
        """Return a `SelectionDiagnostics`; costs O(n) each time, nothing while it is not called."""
        at, efficiency = self._at, self._efficiency
        return shown.SelectionDiagnostics.of(
            self.probabilities(),
            self._times_drawn,
            self.labels,
            epoch=at.epoch,
            batches=at.number,
            seconds=self._seconds,
            lag=self._lag,
            dropped_batches=self._dropped,
            batch_size=min(self.batch_size, self.n_samples),
            gain=efficiency.gain if efficiency else None,
            heaviest_share=efficiency.heaviest_share if efficiency else None,
        )

    @property
    def times_drawn(self) -> npt.NDArray[np.int32]:
        """How often each sample was drawn this epoch, shape (n,); not to be changed."""
        return self._times_drawn

    def plot(self, ax: Any = None) -> Any:
        """Plot how many times as likely as uniform each sample is now; return matplotlib's axes.

        ``diagnostics().plot()`` shows what was drawn, label by label.

        Parameters
        ----------
        ax
            Axes to draw into; new ones if None.
        """
        return shown._plot_probabilities(self.probabilities(), ax)

    def __repr__(self) -> str:
        """Return what it draws and where it stands, one item a line."""
        return shown._as_lines(self._rows())

    def _repr_html_(self) -> str:
        """Return the same as a table for a notebook."""
        return shown._as_html(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        labels = "" if self.labels is None else f", {self.labels.shape[1]:,} labels"
        at, settings = self._at, self._settings()
        if self._shuffle:
            del settings["shuffle"]  # as everybody expects
        return [
            ("strategy", self.strategy),
            ("samples", f"{self.n_samples:,}{labels}"),
            ("batches", f"{len(self):,} of {self.batch_size:,} an epoch"),
            ("next", f"epoch {at.epoch}, batch {at.number}"),
            ("seed", str(self.seed)),
            *_plain_rows({"max_lag": self.max_lag or None, **settings}),
            *_plain_rows({"warm_up_epochs": self.warm_up_epochs or None}),
        ]

    # ---- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue, as numbers, strings and arrays (copies).

        Arrays are tensors if torch is loaded, so ``torch.load`` reads a saved state by default.
        """
        return {name: _portable(value) for name, value in self._state().items()}

    def _state(self) -> dict[str, Any]:
        at = self._to_continue()
        return {
            **self._identity(),
            "settings": self._settings_text,
            "epoch": at.epoch,
            "number": at.number,
            "under_way": int(at.under_way),
            "lag": self._lag,
            "dropped": self._dropped,
            "times_drawn": self._times_drawn.copy(),
            **self._pending.saved(),
            **(self._efficiency.state() if self._efficiency else {}),
            **{name: each.ravel().copy() for name, (each, _) in self._memory().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state bit for bit; its pending batches are handed out first.

        Raises
        ------
        SelectionError
            If the state is of another version or was saved with other settings, which are named;
            nothing changes then.

        Notes
        -----
        Some settings may differ: `max_lag` only allows, `labels` are only looked at, `initial_losses`
        are in the state by then, and a warm-up that nobody asked for becomes that of the state.
        """
        identity = self._checked_identity(state)
        counts = {key: _state_integer(state, key) for key in ("epoch", "lag", "dropped")}
        number = _state_integer(state, "number", most=len(self))
        under_way = bool(_state_integer(state, "under_way", most=1))
        most = int(np.iinfo(np.int32).max)
        times_drawn = _state_array(state, "times_drawn", np.int32, self.n_samples, most=most)
        epoch = counts["epoch"]
        batches = _Pending.loaded(state, epoch, self.n_samples, may_repeat=self.corrected)
        efficiency = self._efficiency.load(state) if self._efficiency else None
        loaded = {
            name: _state_array(state, name, each.dtype, each.size, most=most)
            for name, (each, most) in self._memory().items()
        }

        # Everything has been checked: only now does anything change.
        self._restore(loaded)
        self.warm_up_epochs = int(identity["warm_up_epochs"])
        self._at = _Place(epoch, number, under_way, resuming=under_way)
        self._lag, self._dropped = counts["lag"], counts["dropped"]
        self._times_drawn[:] = times_drawn
        self._pending, self._efficiency = batches, efficiency
        self._iterator = None

    def digest(self) -> str:
        """Return a name of all that decides the batches to come, besides the losses to come.

        Two selectors made from the same data with the same settings, in the same state, have the same.
        """
        return _digest_of(self._state(), self.labels)

    @cached_property
    def _settings_text(self) -> str:
        # Once: the digest of an array walks all of it, and a state may be saved after every batch.
        return _described(self._settings())

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: it continues where this one stands, without the iterator."""
        at = self._to_continue()
        live = self._iterator is not None or at.epoch < self._at.epoch
        at = replace(at, resuming=at.under_way if live else self._at.resuming)
        parts = vars(self) | {"_iterator": None, "_at": at}
        del parts["_lock"]  # which cannot be copied
        return parts

    def __setstate__(self, parts: dict[str, Any]) -> None:
        """Make a copy of its parts, with a lock of its own."""
        vars(self).update(parts, _lock=threading.Lock())

    def _to_continue(self) -> _Place:
        """Return the place that a loaded state or a copy continues from."""
        at, waiting = self._at, self._pending
        wanted = waiting and (self.needs_losses or self._heard)
        if wanted and not at.under_way and waiting[0].epoch == at.epoch - 1:
            # A loader has read to the end of the epoch; its last batches are still to be trained on.
            return replace(at, epoch=waiting[0].epoch, number=len(self), under_way=True)
        return at

    def _checked_identity(self, state: Mapping[str, Any]) -> dict[str, int | str]:
        """Refuse the state of another selector; return what both are."""
        if not isinstance(state, Mapping):
            raise SelectionError(f"a saved state is a mapping, got a {type(state).__name__}")
        version = _state_integer(state, "version")
        if version != STATE_VERSION:
            raise SelectionError(
                f"the saved state is of version {version}, this package reads version "
                f"{STATE_VERSION}: continue with the version of the package that saved it, or start "
                "again"
            )
        identity = self._identity()
        if not self._warm_up_named:
            identity["warm_up_epochs"] = _state_integer(state, "warm_up_epochs")
        pairs: dict[str, tuple[object, object]] = {}
        for key, own in identity.items():
            saved = state.get(key)
            pairs[key] = (saved if isinstance(saved, str) else _state_integer(state, key), own)
        _refuse_other_values(pairs)
        _refuse_other_settings(state.get("settings"), self._settings_text)
        return identity

    def _identity(self) -> dict[str, int | str]:
        return {
            "version": STATE_VERSION,
            "strategy": self.strategy,
            "n_samples": self.n_samples,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "warm_up_epochs": self.warm_up_epochs,
        }

    # ---- what a strategy adds --------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        """Return what else decides the draws, by the names of the constructor's parameters."""
        return {
            **self._law.settings(),
            "full_batches": self._full_batches,
            "corrected": self.corrected,
            "shuffle": self._shuffle,
        }

    def _memory(self) -> dict[str, tuple[npt.NDArray[Any], float]]:
        """Return the arrays in which the strategy remembers losses, each with its largest value."""
        return {}

    def _restore(self, loaded: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put loaded arrays, which are checked, in place of those of `_memory`."""
        for name, (array, _) in self._memory().items():
            array[...] = loaded[name].reshape(array.shape)


def _portable(value: Any) -> Any:
    """Return an array of a state as a tensor if torch is loaded, so that ``torch.load`` reads it.

    By default ``torch.load`` refuses NumPy's arrays; whoever saves with torch has it loaded.
    """
    torch = sys.modules.get("torch")
    return torch.from_numpy(value) if torch and isinstance(value, np.ndarray) else value


def _digest_of(*values: object) -> str:
    """Return a hexadecimal digest of plain values, arrays, functions and simple objects.

    Functions count by their name, objects by their class and attributes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        _feed(digest, value)
    return digest.hexdigest()


def _described(settings: Mapping[str, object]) -> str:
    """Return settings as JSON: plain values as they are, arrays and objects by a digest."""
    return json.dumps(
        {name: _description(value) for name, value in settings.items()}, sort_keys=True
    )


def _refuse_other_settings(saved: object, own: str) -> None:
    """Refuse a saved state whose settings, as `_described`, are not a selector's own."""
    if isinstance(saved, str) and saved == own:
        return
    try:
        before = json.loads(saved) if isinstance(saved, str) else None
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise SelectionError(
            "the saved state does not say its 'settings': it is not a state of this selector"
        )
    now = json.loads(own)
    # Readable values come first.
    names = sorted(
        before.keys() | now.keys(), key=lambda name: ("digest" in str(now.get(name)), name)
    )
    _refuse_other_values({name: (before.get(name), now.get(name)) for name in names})


def _refuse_other_values(pairs: Mapping[str, tuple[object, object]]) -> None:
    """Refuse pairs of a saved value and a selector's own that are not equal, naming them."""
    other = [
        f"with {name} {_shown(saved)}, this selector has {_shown(own)}"
        for name, (saved, own) in pairs.items()
        if saved != own
    ]
    if other:
        raise SelectionError(
            f"the state was saved {', '.join(other)}: make the selector as it was when the state "
            "was saved"
        )


def _description(value: Any) -> bool | int | float | str | None:
    """Return a setting as a plain value; what is none is named by its digest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return _description(value.item())
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    name = type(value).__qualname__
    if is_dataclass(value):
        parts = (f"{f.name}={_shown(_description(getattr(value, f.name)))}" for f in fields(value))
        return f"{name}({', '.join(parts)})"
    if hasattr(value, "shape"):
        name = " x ".join(map(str, value.shape)) + " values"
    return f"{name}, digest {_digest_of(value)[:16]}"


def _shown(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 16.0 and 16 are one setting
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _feed(digest: Any, value: Any) -> None:
    if hasattr(value, "detach"):
        value = _as_array(value)
    if isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value))
    elif sparse.issparse(value):
        places = (part.astype(np.int64) for part in (value.indptr, value.indices))
        _feed(digest, (value.shape, *places, value.data))
    elif isinstance(value, Mapping):
        _feed(digest, sorted(value.items()))
    elif isinstance(value, list | tuple):
        digest.update(f"sequence {len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif value is None or isinstance(value, bool | int | float | str | np.generic):
        digest.update(f"value {value!r}".encode())
    elif isinstance(value, partial):
        _feed(digest, (value.func, value.args, value.keywords))
    elif hasattr(value, "__qualname__"):
        digest.update(f"function {value.__module__} {value.__qualname__}".encode())
    else:
        digest.update(f"object {type(value).__qualname__}".encode())
        _feed(digest, getattr(value, "__dict__", {}))


def _plain_rows(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return settings as names and text, without what is off and what has no short text."""
    shown = [(name, _plain(value)) for name, value in settings.items()]
    return [(name, text) for name, text in shown if text]


def _plain(value: object) -> str:
    """Return a setting as text; empty for what is off, and for arrays, classes and functions."""
    if value is None or value is False:
        return ""
    if isinstance(value, bool | int | float | str | np.number) or (
        is_dataclass(value) and not isinstance(value, type)
    ):
        return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
    return ""
