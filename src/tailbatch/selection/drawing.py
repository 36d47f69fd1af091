"""Exact draws of a batch, with or without replacement, at a cost that does not grow with n.

A *law* says how likely each sample is. It offers two things: `Law.propose` turns uniform numbers
into independent draws, and `Law.log_weights` writes the whole law down. `draw_batch` makes a batch
of either: successive draws, each in proportion to the law among the samples not yet in the batch,
in drawing order. `draw_independent` lets samples repeat, so that `Law.chances` says how likely each was.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tailbatch.seeds import philox_words
from tailbatch.selection.inputs import FloatArray, IntArray

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

    def chances(self, index: IntArray, pressure: float) -> FloatArray:
        """Return the probabilities of a few samples; a law that keeps its total needs no O(n)."""
        return normalized(self.log_weights(pressure))[index]

    def settings(self) -> dict[str, Any]:
        """Return what the law is made of besides the losses, for a saved state to name."""
        return {"law": type(self).__qualname__}


class UniformLaw(Law):
    """Every sample is equally likely.

    Examples
    --------
    >>> UniformLaw(10).propose(np.array([[0.0, 0.5], [0.99, 0.5]]), pressure=1.0)
    array([0, 9])
    """

    def __init__(self, n_samples: int) -> None:
        self.n_samples = n_samples

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
    """Weights that never change, drawn by bisection of their running total.

    Examples
    --------
    >>> StaticLaw(np.array([1.0, 3.0])).propose(np.array([[0.2, 0.5], [0.3, 0.5]]), pressure=1.0)
    array([0, 1])
    """

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


class BatchStreams:
    """The random stream of each (epoch, batch) of one seed.

    The same numbers as ``seeds.stream(seed, "selection", epoch, batch)``; moving one generator's
    counter takes a tenth of the time of making a new generator.

    Examples
    --------
    >>> from tailbatch.seeds import stream
    >>> bool(BatchStreams(0).at(2, 7).random() == stream(0, "selection", 2, 7).random())
    True
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


def draw_batch(
    law: Law,
    size: int,
    pressure: float,
    rng: np.random.Generator,
    *,
    taken: Sequence[int] = (),
    block: int | None = None,
) -> IntArray:
    """Return `size` distinct samples in drawing order, none of them in `taken`.

    Proposals come in drawing order and the first `size` new ones are kept. That is successive
    sampling without replacement: dropping a repeat draws again from the samples that are left.

    How many proposals are looked at in one go follows what earlier batches needed, and leaves `rng`
    at a position that depends on it. To keep using `rng` afterwards, fix the number with `block`.

    Examples
    --------
    >>> batch = draw_batch(UniformLaw(1000), 5, 1.0, BatchStreams(0).at(0, 0))
    >>> len(set(batch.tolist()))
    5
    """
    n = law.n_samples
    if n <= ENUMERATE_UP_TO * size:
        return enumerate_batch(law.log_weights(pressure), size, rng, taken=taken)
    chosen = dict.fromkeys(taken)
    goal, tries_left = len(chosen) + size, int(min(PATIENCE * n, 2**62))
    rate, tried, accepted = law.acceptance, 1, 1
    while len(chosen) < goal and tries_left:
        wanted = block or 8 + int(1.15 * (goal - len(chosen)) / rate)
        tries = min(wanted, tries_left, _LARGEST_BLOCK)
        proposed = law.propose(rng.random((tries, 2)), pressure).tolist()
        # A dict keeps the place of the first of equal keys, so repeats fall away in order.
        chosen.update(dict.fromkeys(proposed))
        tries_left -= tries
        tried, accepted = tried + tries, accepted + len(proposed)
        rate = accepted / tried
    law.acceptance = (law.acceptance + rate) / 2
    batch = list(chosen)[len(taken) : goal]
    if len(batch) < size:
        rest = enumerate_batch(
            law.log_weights(pressure), size - len(batch), rng, taken=[*taken, *batch]
        )
        batch += rest.tolist()
    return np.array(batch, dtype=np.int64)


def draw_independent(law: Law, size: int, pressure: float, rng: np.random.Generator) -> IntArray:
    """Return `size` independent draws from a law: a sample may come up more than once.

    Examples
    --------
    >>> draw_independent(StaticLaw(np.array([1.0, 0.001])), 3, 1.0, BatchStreams(0).at(0, 0))
    array([0, 0, 0])
    """
    found: list[IntArray] = []
    missing, tries_left = size, max(int(min(PATIENCE * law.n_samples, 2**62)), _LARGEST_BLOCK)
    while missing > 0 and tries_left > 0:
        tries = min(8 + int(1.15 * missing / law.acceptance), tries_left, _LARGEST_BLOCK)
        proposed = law.propose(rng.random((tries, 2)), pressure)
        law.acceptance = (law.acceptance + (len(proposed) + 1) / (tries + 1)) / 2
        found.append(proposed)
        missing, tries_left = missing - len(proposed), tries_left - tries
    if missing > 0:
        total = np.cumsum(normalized(law.log_weights(pressure)))
        rest = np.searchsorted(total, rng.random(missing) * total[-1], side="right")
        found.append(np.minimum(rest, law.n_samples - 1))
    return np.concatenate(found)[:size]


def enumerate_batch(
    log_weights: FloatArray,
    size: int,
    rng: np.random.Generator,
    *,
    taken: Sequence[int] = (),
) -> IntArray:
    """Return `size` distinct positions in drawing order, from a law that is written down.

    The largest of log weight plus Gumbel noise, in descending order, are successive draws without
    replacement; here with the sign turned, as minus the logarithm of an exponential is Gumbel.

    Examples
    --------
    >>> enumerate_batch(np.zeros(3), 2, BatchStreams(0).at(0, 0), taken=[1]).tolist()
    [0, 2]
    """
    with np.errstate(divide="ignore"):  # an exponential of exactly 0 is a draw that comes first
        keys = np.log(rng.standard_exponential(len(log_weights))) - log_weights
    keys[list(taken)] = np.inf
    first = np.argpartition(keys, size - 1)[:size] if size < len(keys) else np.arange(size)
    return first[np.argsort(keys[first])]


def normalized(log_weights: FloatArray) -> FloatArray:
    """Return probabilities that sum to 1 from log weights of at most 0.

    Examples
    --------
    >>> normalized(np.log([0.25, 0.75]))
    array([0.25, 0.75])
    """
    weights: FloatArray = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return weights


def des_raj_weights(probabilities: FloatArray, n_samples: int) -> FloatArray:
    """Return weights u with E[sum u_k x_k] = mean of x, for a batch drawn without replacement.

    In drawing order k = 1..b: ``u_k = ((1 - sum_{j<k} p_j) / p_k + b - k) / (n b)`` (Des Raj).

    Parameters
    ----------
    probabilities
        p of the drawn samples in drawing order, shape (b,).
    n_samples
        n, over which the mean is taken.

    Examples
    --------
    >>> des_raj_weights(np.array([0.5, 0.25]), n_samples=3)
    array([0.5       , 0.33333333])
    """
    b = len(probabilities)
    before = np.concatenate(([0.0], np.cumsum(probabilities)[:-1]))
    return ((1 - before) / probabilities + np.arange(b - 1, -1, -1)) / (n_samples * b)


def tempered_weights(probabilities: FloatArray, beta: float) -> FloatArray:
    """Return ``p_k^-beta``, scaled to sum to 1: the usual choice, biased without replacement.

    Examples
    --------
    >>> tempered_weights(np.array([0.1, 0.4]), beta=0.5)
    array([0.66666667, 0.33333333])
    """
    weights: FloatArray = (probabilities / probabilities.min()) ** -beta
    weights /= weights.sum()
    return weights
