"""Whole numbers that change, their exact sums, and draws in proportion to them at a flat cost."""

import numpy as np

from tailbatch.selection.inputs import FloatArray, IntArray

_WIDTH_BITS = 6
_WIDTH = 1 << _WIDTH_BITS
_TOP = 4096  # sums at the highest level, at most, which a draw adds up
_MOST_BITS = 50  # what a float64 holds without rounding, with room to multiply


def unit_bits(n_samples: int) -> int:
    """Return how many bits a value may have for the sum of n of them to stay within 62 bits.

    Examples
    --------
    >>> unit_bits(10**4), unit_bits(10**8)
    (48, 35)
    """
    return min(62 - n_samples.bit_length(), _MOST_BITS)


class SumTable:
    """Whole numbers of n samples, in blocks of 64 whose sums are again in blocks of 64, and so on.

    Sums of whole numbers have no rounding error: they are the same after any number of changes, in
    any order, as if added up from scratch. A draw descends the levels, so it costs the same
    whatever the values; one that is a million times the others does not slow it down.

    Parameters
    ----------
    values
        Whole numbers from 0, shape (n,), whose sum is below 2^62.

    Examples
    --------
    >>> table = SumTable(np.array([3, 0, 5]))
    >>> table.total, table.find(np.array([0, 2, 3, 7])).tolist()
    (8, [0, 0, 2, 2])
    >>> table.change(np.array([2]), np.array([1]))
    >>> table.total, table.values.tolist()
    (4, [3, 0, 1])
    """

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
