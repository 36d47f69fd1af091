"""Exact draws of a batch, with or without replacement, at a cost that does not grow with n.

A *law* says how likely each sample is. `Law.propose` turns uniform numbers into independent draws, and
`Law.log_weights` writes the whole law down. `Law.draw` makes a batch of either: successive draws, each
in proportion to the law among the samples not yet in the batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailbatch.seeds import FloatArray, IntArray, philox_words

_WIDTH_BITS = 6
_WIDTH = 1 << _WIDTH_BITS
_TOP = 4096  # sums at the highest level, at most, which a draw adds up
_MOST_BITS = 50  # what a float64 holds without rounding, with room to multiply
# Up to this many samples for each one drawn, writing the law down is as cheap as proposing.
ENUMERATE_UP_TO = 16
# Proposals tried, as a multiple of n, before the rest of a batch is drawn by writing the law down.
PATIENCE = 1
_LARGEST_BLOCK = 65536


class Law(ABC):
    """How likely each of n samples is to be drawn, with its own exact draw.

    A law is free to reject proposals: what it returns must be independent draws in proportion to
    ``exp(log_weights)``, in the order of the pairs they came from.
    """

    n_samples: int
    # Share of the latest proposals that were accepted. It only decides how many pairs are looked at
    # in one go; the pairs are used in order, so it never changes what is drawn.
    acceptance: float = 1.0

    @abstractmethod
    def propose(self, pairs: FloatArray, pressure: float) -> IntArray:
        """Return the samples drawn by pairs (m, 2) of uniform numbers, at most one for each."""

    @abstractmethod
    def log_weights(self, pressure: float) -> FloatArray:
        """Return the logarithm of each sample's weight, shape (n,); 0 for the largest possible."""

    def probabilities(self, pressure: float) -> FloatArray:
        """Return the probabilities of all samples, shape (n,)."""
        log_weights = self.log_weights(pressure)
        weights: FloatArray = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        return weights

    def chances(self, index: IntArray, pressure: float) -> FloatArray:
        """Return the probabilities of a few samples; a law that keeps its total needs no O(n)."""
        return self.probabilities(pressure)[index]

    def draw(
        self,
        size: int,
        pressure: float,
        rng: np.random.Generator,
        *,
        taken: Sequence[int] = (),
        block: int | None = None,
    ) -> IntArray:
        """Draw `size` distinct samples, in drawing order, none of them in `taken`.

        Proposals come in drawing order and the first `size` new ones are kept. That is successive
        sampling without replacement: dropping a repeat draws again from the samples that are left.

        How many proposals are looked at in one go follows what earlier batches needed, and leaves
        `rng` at a position that depends on it. To keep using `rng` afterwards, fix it with `block`.
        """
        n = self.n_samples
        if n <= ENUMERATE_UP_TO * size:
            return _enumerate_batch(self.log_weights(pressure), size, rng, taken=taken)
        chosen = dict.fromkeys(taken)
        goal, tries_left = len(chosen) + size, int(min(PATIENCE * n, 2**62))
        rate, tried, accepted = self.acceptance, 1, 1
        while len(chosen) < goal and tries_left:
            wanted = block or 8 + int(1.15 * (goal - len(chosen)) / rate)
            tries = min(wanted, tries_left, _LARGEST_BLOCK)
            proposed = self.propose(rng.random((tries, 2)), pressure).tolist()
            # A dict keeps the place of the first of equal keys, so repeats fall away in order.
            chosen.update(dict.fromkeys(proposed))
            tries_left -= tries
            tried, accepted = tried + tries, accepted + len(proposed)
            rate = accepted / tried
        self.acceptance = (self.acceptance + rate) / 2
        batch = list(chosen)[len(taken) : goal]
        if len(batch) < size:
            # Switching in the middle of a batch stays exact: what is left follows the same law.
            left = size - len(batch)
            rest = _enumerate_batch(self.log_weights(pressure), left, rng, taken=[*taken, *batch])
            batch += rest.tolist()
        return np.array(batch, dtype=np.int64)

    def draw_independent(self, size: int, pressure: float, rng: np.random.Generator) -> IntArray:
        """Draw `size` samples independently: a sample may come up more than once."""
        found: list[IntArray] = []
        missing, tries_left = size, max(int(min(PATIENCE * self.n_samples, 2**62)), _LARGEST_BLOCK)
        while missing > 0 and tries_left > 0:
            tries = min(8 + int(1.15 * missing / self.acceptance), tries_left, _LARGEST_BLOCK)
            proposed = self.propose(rng.random((tries, 2)), pressure)
            self.acceptance = (self.acceptance + (len(proposed) + 1) / (tries + 1)) / 2
            found.append(proposed)
            missing, tries_left = missing - len(proposed), tries_left - tries
        if missing > 0:
            total = np.cumsum(self.probabilities(pressure))
            rest = np.searchsorted(total, rng.random(missing) * total[-1], side="right")
            found.append(np.minimum(rest, self.n_samples - 1))
        return np.concatenate(found)[:size]

    def settings(self) -> dict[str, Any]:
        """Return what the law is made of besides the losses, for a saved state to name."""
        return {"law": type(self).__qualname__}


@dataclass
class UniformLaw(Law):
    """Every sample is equally likely."""

    n_samples: int

    def propose(self, pairs: FloatArray, pressure: float) -> IntArray:
        """Return one sample for each pair."""
        return (pairs[:, 0] * self.n_samples).astype(np.int64)

    def log_weights(self, pressure: float) -> FloatArray:
        """Return zeros: all weights are equal."""
        return np.zeros(self.n_samples)

    def chances(self, index: IntArray, pressure: float) -> FloatArray:
        """Return 1 / n each."""
        return np.full(len(index), 1 / self.n_samples)


class StaticLaw(Law):
    """Weights that never change, drawn by bisection of their running total."""

    def __init__(self, weights: FloatArray) -> None:
        self.n_samples = len(weights)
        self._largest = float(weights.max())
        self._log_weights: FloatArray = np.log(weights / self._largest)
        self._total = np.cumsum(weights)

    def propose(self, pairs: FloatArray, pressure: float) -> IntArray:
        """Return one sample for each pair."""
        found = np.searchsorted(self._total, pairs[:, 0] * self._total[-1], side="right")
        return np.asarray(np.minimum(found, self.n_samples - 1))

    def log_weights(self, pressure: float) -> FloatArray:
        """Return the logarithms of the weights, 0 for the largest."""
        return self._log_weights

    def chances(self, index: IntArray, pressure: float) -> FloatArray:
        """Return each sample's share of the total weight."""
        return np.asarray(np.exp(self._log_weights[index]) * (self._largest / self._total[-1]))

    def settings(self) -> dict[str, Any]:
        """Return the law's name and its weights, as they add up."""
        return {**super().settings(), "law_weights": self._total}


class _BatchStreams:
    """The random stream of each (epoch, batch) of one seed.

    The same numbers as ``seeds.stream(seed, "selection", epoch, batch)``; moving one generator's
    counter takes a tenth of the time of making a new generator.
    """

    def __init__(self, seed: int) -> None:
        key, counter = philox_words(seed, "selection", 0, 0)
        self._generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        self._start = self._generator.bit_generator.state

    def at(self, epoch: int, number: int) -> np.random.Generator:
        """Return the generator at the start of this batch's stream; the previous one ends."""
        self._start["state"]["counter"][2:] = (epoch, number)
        self._generator.bit_generator.state = self._start
        return self._generator


def _enumerate_batch(
    log_weights: FloatArray, size: int, rng: np.random.Generator, *, taken: Sequence[int] = ()
) -> IntArray:
    """Return `size` distinct positions in drawing order, from a law that is written down.

    The largest of log weight plus Gumbel noise, in descending order, are successive draws without
    replacement; here with the sign turned, as minus the logarithm of an exponential is Gumbel.
    """
    with np.errstate(divide="ignore"):  # an exponential of exactly 0 is a draw that comes first
        keys = np.log(rng.standard_exponential(len(log_weights))) - log_weights
    keys[list(taken)] = np.inf
    first = np.argpartition(keys, size - 1)[:size] if size < len(keys) else np.arange(size)
    return first[np.argsort(keys[first])]


class _SumTable:
    """Whole numbers of n samples, in blocks of 64 whose sums are again in blocks of 64, and so on.

    Sums of whole numbers have no rounding error: they are the same after any number of changes, in
    any order, as if added up from scratch. A draw descends the levels, so it costs the same
    whatever the values; one that is a million times the others does not slow it down.
    """

    @staticmethod
    def bits(n_samples: int) -> int:
        """Return how many bits a value may have for the sum of n of them to stay within 62 bits."""
        return min(62 - n_samples.bit_length(), _MOST_BITS)

    def __init__(self, values: IntArray) -> None:
        levels = [_blocks(values)]
        while len(levels[-1]) > _TOP:
            levels.append(_blocks(levels[-1].sum(axis=1)))
        self._levels = levels
        self._top: IntArray = levels[-1].sum(axis=1)
        self._n = len(values)

    @property
    def values(self) -> IntArray:
        """All values, shape (n,); not to be changed."""
        # A view, made each time: a kept one would be a copy of its own in a copied table.
        return self._levels[0].reshape(-1)[: self._n]

    @property
    def total(self) -> int:
        """The sum of all values."""
        return int(self._top.sum())

    def change(self, index: IntArray, values: IntArray) -> None:
        """Set the values of distinct samples."""
        rise = values - self.values[index]
        self.values[index] = values
        place = index
        for level in self._levels[1:]:
            place = place >> _WIDTH_BITS
            np.add.at(level.reshape(-1), place, rise)
        np.add.at(self._top, place >> _WIDTH_BITS, rise)

    def find(self, targets: IntArray) -> IntArray:
        """Return the sample that holds each place from 0 to `total`, samples laid end to end."""
        ends = np.cumsum(self._top)
        place = ends.searchsorted(targets, side="right")
        rest = targets - (ends[place] - self._top[place])
        rows = np.arange(len(targets)) << _WIDTH_BITS
        for level in reversed(self._levels):
            blocks = level[place]  # (b, 64)
            ends = np.cumsum(blocks, axis=1)
            child = (ends > rest[:, None]).argmax(axis=1)
            at = rows + child
            rest = rest - (ends.reshape(-1)[at] - blocks.reshape(-1)[at])
            place = (place << _WIDTH_BITS) + child
        return place

    def draw(self, uniforms: FloatArray) -> IntArray:
        """Return samples in proportion to their values, one for each uniform number."""
        total = self.total
        return self.find(np.minimum((uniforms * total).astype(np.int64), total - 1))


def _blocks(values: IntArray) -> IntArray:
    """Return values in rows of 64, zeros at the end."""
    rows = -(-len(values) // _WIDTH)
    blocks = np.zeros((rows, _WIDTH), dtype=np.int64)
    blocks.reshape(-1)[: len(values)] = values
    return blocks
