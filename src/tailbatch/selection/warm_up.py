"""Plain shuffled epochs before any strategy, the same for all of them."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tailbatch.selection.base import Selector
from tailbatch.selection.inputs import FloatArray, IntArray, whole_number
from tailbatch.selection.random import ShuffledEpochs

logger = logging.getLogger(__name__)


class WarmUp(Selector):
    """Random order first, then the selector it wraps.

    The first epochs depend only on the seed, so models trained on them are equal whatever strategy
    follows. Losses observed meanwhile already go to the wrapped selector, which counts its own
    epochs from 0 when the warm-up ends. It must not be iterated by itself any more.

    Parameters
    ----------
    selector
        What follows; its batch size, seed, lag and labels hold for the warm-up too.
    epochs
        Number of warm-up epochs, gamma in the paper.
    shuffle
        False keeps the samples in their order, as the authors' script does.
    named
        False lets `plan_epochs` shorten the warm-up.

    Examples
    --------
    >>> from tailbatch.selection import HardSelector, UniformSelector
    >>> hard = WarmUp(HardSelector(6, batch_size=3), epochs=1)
    >>> uniform = WarmUp(UniformSelector(6, batch_size=3), epochs=1)
    >>> for a, b in zip(hard, uniform):
    ...     print(a.tolist() == b.tolist())
    ...     hard.observe([0.5, 0.1, 0.2])
    True
    True
    """

    def __init__(
        self, selector: Selector, *, epochs: int = 3, shuffle: bool = True, named: bool = True
    ) -> None:
        super().__init__(
            selector.n_samples,
            batch_size=selector.batch_size,
            seed=selector.seed,
            max_lag=selector.max_lag,
            labels=selector.labels,
        )
        self.selector = selector
        self.strategy = selector.strategy
        self.needs_losses = selector.needs_losses
        self.corrected, self.softened = selector.corrected, selector.softened
        self.warm_up_epochs = whole_number("warm-up epochs", epochs, least=0)
        self._named = named
        self._shuffle = shuffle
        self._shuffled = ShuffledEpochs(
            self.n_samples, seed=self.seed, purpose="warm_up", shuffle=shuffle
        )

    def plan_epochs(self, epochs: int) -> None:
        """Shrink a warm-up that nobody named to a tenth of the epochs, and warn if nothing is left."""
        epochs = whole_number("epochs", epochs, least=1)
        if self._epoch or self._number or self._under_way:
            return
        if not self._named:
            self.warm_up_epochs = min(self.warm_up_epochs, epochs // 10)
        if self.warm_up_epochs >= epochs and self.strategy != "random":
            logger.warning(
                "all %d epochs are warm-up, so %s never draws a batch and batches are shuffled: set "
                "warm_up_epochs below that, or train longer",
                epochs,
                self.strategy,
            )

    def _after(self, epoch: int) -> int:
        """Return the wrapped selector's own epoch, negative during the warm-up."""
        return epoch - self.warm_up_epochs

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        if self._after(epoch) < 0:
            return self._shuffled.batch(epoch, number * self.batch_size, size)
        return self.selector._draw(size, self._after(epoch), number)

    def _probabilities(self, epoch: int) -> FloatArray:
        if self._after(epoch) < 0:
            return np.full(self.n_samples, 1 / self.n_samples)
        return self.selector._probabilities(self._after(epoch))

    def _size(self, epoch: int, number: int) -> int:
        if self._after(epoch) < 0:
            return super()._size(epoch, number)
        return self.selector._size(self._after(epoch), number)

    def _importance(self, index: IntArray, epoch: int) -> FloatArray | None:
        if self._after(epoch) < 0:
            return super()._importance(index, epoch)
        return self.selector._importance(index, self._after(epoch))

    def _start_epoch(self, epoch: int) -> None:
        if self._after(epoch) >= 0:
            self._shuffled.forget()
            self.selector._start_epoch(self._after(epoch))

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        return self.selector._learn(losses, index)

    def _rows(self) -> list[tuple[str, str]]:
        return [*super()._rows(), ("warm_up_epochs", str(self.warm_up_epochs))]

    def _identity(self) -> dict[str, int | str]:
        return {**super()._identity(), "warm_up_epochs": self.warm_up_epochs}

    def _settings(self) -> dict[str, Any]:
        return {"warm_up_shuffle": self._shuffle, **self.selector._settings()}

    def _own_state(self) -> dict[str, Any]:
        return self.selector._own_state()

    def _own_loader(self, state: Mapping[str, Any]) -> Callable[[], None]:
        return self.selector._own_loader(state)
