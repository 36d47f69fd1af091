"""Importance sampling of rows that pass by one after another, by their labels alone.

The law is that of `ImportanceSelector` with the prior's score. A row's share of it needs the row's own
labels and the label counts, so no more than a block of rows is ever held, whatever their number.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError, check_number, did_you_mean
from tailbatch.imbalance import weights_of_counts
from tailbatch.seeds import FloatArray, IntArray, row_uniforms
from tailbatch.selection.importance import _checked_positive_weights, _prior_norms
from tailbatch.selection.inputs import _as_array, _state_integer
from tailbatch.selection.label_counts import LabelCounts, _label_rows, count_labels

Row = TypeVar("Row")
Rows: TypeAlias = int | npt.ArrayLike
"""Which rows a batch holds: the position of the first one, or the number or name of each."""

_MOST_COPIES = 4


class StreamSelector:
    """Repeats and drops rows of a stream by their labels, and weights them so that nothing is biased.

    Row i comes up ``rate * n p_i`` times on average, rounded down or up at random, and each copy has the
    weight ``1 / (n p_i)``, at most ``1 / mix``. So the expected gradient of the weighted loss is that of
    plain shuffling at any rate, and its variance is lower than that of as many random rows. What a row
    draws depends on (seed, epoch, shard, row) only: not on the rows around it, nor on who reads them.

    Parameters
    ----------
    label_counts
        From `count_labels`; or the positives (q,) of each label, where `n_samples` is needed.
    n_samples
        n, the rows that were counted.
    loss
        The loss that is trained on, or its positive weights (q,); default those of ``weighted_bce``,
        which `positive_weights` then holds.
    mix
        mu, the share of uniform draws, above 0 and at most 1.
    rate
        How many rows come out for each that goes in, above 0 and at most 4.
    unknown
        What a label is that the counts do not have: an ``"error"``, or as ``"common"`` as the most
        frequent one.
    buffer
        Rows that `select` shuffles among each other. Copies of a row are spread evenly over them.
    adapt
        Whether `select` adds the labels of each block of rows to the counts once it has passed; they may
        be zeros at the start. Rows then depend on those before them, in the same process.
    seed
        The seed of all draws.

    Examples
    --------
    >>> labels = [["common"]] * 9 + [["rare"]]
    >>> selector = StreamSelector(count_labels(labels), rate=0.5)
    >>> copies, weights = selector.draw(labels, 0)
    >>> weights.round(2).tolist()[-2:]
    [1.45, 0.26]
    >>> texts = zip("abcdefghij", labels)
    >>> [text for (text, _), weight in selector.select(texts, lambda row: row[1])]
    ['i', 'c', 'j', 'f', 'j']
    """

    def __init__(
        self,
        label_counts: LabelCounts | npt.ArrayLike,
        n_samples: int | None = None,
        *,
        loss: object = None,
        mix: float = 0.3,
        rate: float = 1.0,
        unknown: Literal["error", "common"] = "error",
        buffer: int = 4096,
        adapt: bool = False,
        seed: int = 0,
    ) -> None:
        _check_range("rate", rate, _MOST_COPIES, "1 keeps as many rows as there are")
        _check_range("mix", mix, 1, "1 prefers no rows; 0 would leave weights without a bound")
        check_number("buffer", buffer, least=1, whole=True, error=SelectionError)
        check_number("seed", seed, least=0, whole=True, error=SelectionError)
        if unknown not in ("error", "common"):
            raise SelectionError(f"unknown must be 'error' or 'common', got {unknown!r}")
        self.rate, self.mix, self.unknown = float(rate), float(mix), unknown
        self.buffer, self.adapt, self.seed = int(buffer), adapt, int(seed)
        self.epoch = 0
        self._place = self._resumed = (
            0,
            0,
            0,
        )  # streams done, rows before the block, rows given of it
        self._loss = loss
        self._learn(_checked_counts(label_counts, n_samples, may_be_zero=adapt))

    def _learn(self, counts: LabelCounts) -> None:
        self.counts = counts
        n, q = max(counts.n_samples, 1), len(counts.counts)
        self.positive_weights: FloatArray = (
            weights_of_counts(counts.counts, n)
            if self._loss is None
            else _checked_positive_weights(self._loss, q)
        )
        self._share: FloatArray = counts.counts / n
        # While nothing is known of the labels, no row is preferred.
        self._mean_norm = 0.0
        if counts.counts.any():
            norms = _prior_norms(counts.label_sets(), self.positive_weights, self._share)
            self._mean_norm = float(norms.mean())

    # ---- a batch ---------------------------------------------------------------------------

    def draw(self, labels: Any, rows: Rows, *, shard: str = "") -> tuple[IntArray, FloatArray]:
        """Return how often each row of a batch comes up, (b,), and the weight of each copy, (b,).

        Parameters
        ----------
        labels
            Of the batch: a matrix (b, q), dense or sparse, or a list of rows as for `count_labels`.
        rows
            The position of the batch's first row, or the number or name of each row, (b,).
        shard
            Name of the part that positions count in.
        """
        Y = self._labels(labels)
        return self._drawn(Y, _row_numbers(rows, Y.shape[0]), shard)[:2]

    def _drawn(
        self, Y: sparse.csr_array, rows: IntArray, shard: str
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        times = np.ones(Y.shape[0])
        if self._mean_norm:
            times = _prior_norms(Y, self.positive_weights, self._share)
            times *= (1 - self.mix) / self._mean_norm
            times += self.mix
        chance, place = row_uniforms(self.seed, f"rows of {shard}", rows, self.epoch)
        return np.floor(self.rate * times + chance).astype(np.int64), 1 / times, place

    def take(
        self, table: Mapping[str, Any], *, labels: str = "labels", row: str = "row"
    ) -> dict[str, Any]:
        """Return the rows of a table that come up, shuffled, with their ``"weight"``.

        This is a function for ``map_batches`` of Ray Data and the like.

        Parameters
        ----------
        table
            Columns by name, of one length.
        labels
            The column of labels.
        row
            The column with a number or name of each row, which no other row of the data has.

        Examples
        --------
        >>> table = {"labels": [["common"]] * 9 + [["rare"]], "row": range(10)}
        >>> selector = StreamSelector(count_labels(table["labels"]), rate=0.5)
        >>> selector.take(table)["row"].tolist()
        [8, 2, 9, 5, 9]
        """
        for name in (labels, row):
            if name not in table:
                raise SelectionError(f"the table has no column {name!r}{did_you_mean(name, table)}")
        Y = self._labels(table[labels])
        copies, weights, place = self._drawn(Y, _row_numbers(table[row], Y.shape[0]), "")
        order = _spread(copies, place)
        columns = {name: _column(values)[order] for name, values in table.items()}
        return {**columns, "weight": weights[order]}

    # ---- a stream --------------------------------------------------------------------------

    def select(
        self, stream: Iterable[Row], labels: Callable[[Row], Any], *, shard: str = ""
    ) -> Iterator[tuple[Row, float]]:
        """Yield the rows of a stream that come up, shuffled in blocks, each with its weight.

        The copies of a row are the same object. After `load_state_dict`, hand over the same streams
        again, in the same order: those that were done yield nothing, the next one continues.

        Parameters
        ----------
        stream
            The rows, in the same order in each epoch.
        labels
            Returns a row's labels: a list of names, or q zeros and ones, dense or sparse.
        shard
            Name of the part that this stream is. If it was counted under this name, a change is noticed.
        """
        done, passed, given = self._resumed
        if done:
            self._resumed = done - 1, passed, given
            return
        self._resumed = 0, 0, 0
        rows = islice(iter(stream), passed, None)
        done = self._place[0]
        while block := list(islice(rows, self.buffer)):
            Y = self._labels([labels(row) for row in block])
            where = np.arange(passed, passed + len(block))
            self._check_shard(shard, passed + len(block), ended=False)
            copies, weights, place = self._drawn(Y, where, shard)
            order = _spread(copies, place).tolist()
            for number, row in enumerate(order[given:], given + 1):
                self._place = done, passed, number
                yield block[row], float(weights[row])
            passed, given = passed + len(block), 0
            if self.adapt:
                self._learn(self.counts + count_labels(Y, names=self.counts.names))
        self._check_shard(shard, passed, ended=True)
        self._place = done + 1, 0, 0

    def _check_shard(self, shard: str, rows: int, *, ended: bool) -> None:
        counted = self.counts.shards.get(shard)
        if self.adapt or not self.counts.shards or not shard:
            return
        if counted is None:
            raise SelectionError(
                f"the shard {shard!r} was not counted{did_you_mean(shard, self.counts.shards)}; add "
                f"count_labels(..., shard={shard!r}) to the counts"
            )
        if rows > counted or (ended and rows < counted):
            raise SelectionError(
                f"the shard {shard!r} has {'' if ended else 'at least '}{rows} rows and had {counted} "
                "when its labels were counted: count them again, and start the epoch anew"
            )

    def _labels(self, labels: Any) -> sparse.csr_array:
        return _label_rows(labels, self.counts.names, len(self.counts.counts), self._stand_in())

    def _stand_in(self) -> int | None:
        return int(self.counts.counts.argmax()) if self.unknown == "common" else None

    # ---- epochs and state ------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch, counted from 0: each draws other rows."""
        check_number("epoch", epoch, least=0, whole=True, error=SelectionError)
        self.epoch, self._place, self._resumed = int(epoch), (0, 0, 0), (0, 0, 0)

    def at(self, epoch: int) -> "StreamSelector":
        """Return a copy at the start of an epoch, to hand to processes that draw in that epoch."""
        other = copy(self)
        other.set_epoch(epoch)
        return other

    def state_dict(self) -> dict[str, Any]:
        """Return where the streams of this epoch stand: four numbers, and what identifies the draws.

        With ``adapt`` the counts are part of it.
        """
        done, passed, given = self._place
        place = {"epoch": self.epoch, "streams": done, "rows": passed, "given": given}
        counts = {"counts": self.counts} if self.adapt else {}
        return {**place, "draws": self._identity(), **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state, with the same counts, settings and streams."""
        if state.get("draws") != self._identity():
            raise SelectionError(
                "the state was saved with other label counts or settings: make the selector with the "
                "counts, loss, mix, rate, buffer and seed that it had"
            )
        if self.adapt:
            self._learn(state["counts"])
        self.set_epoch(_state_integer(state, "epoch"))
        place = [_state_integer(state, key) for key in ("streams", "rows", "given")]
        self._place = self._resumed = place[0], place[1], place[2]

    def _identity(self) -> str:
        """Return a digest of what decides the draws, besides the rows themselves."""
        told = (
            self.rate,
            self.mix,
            self.unknown,
            self.buffer,
            self.adapt,
            self.seed,
            self.counts.names,
        )
        digest = hashlib.blake2b(repr(told[: 6 if self.adapt else 7]).encode(), digest_size=16)
        if not self.adapt:
            digest.update(
                np.array([*self._share, *self.positive_weights, self._mean_norm]).tobytes()
            )
        return digest.hexdigest()


def _spread(copies: IntArray, place: FloatArray) -> IntArray:
    """Return rows as often as they come up, in random order, a row's copies evenly apart."""
    rows = np.repeat(np.arange(len(copies)), copies)
    number = np.arange(len(rows)) - (np.cumsum(copies) - copies)[rows]
    return rows[np.argsort((place[rows] + number / copies[rows]) % 1, kind="stable")]


def _row_numbers(rows: Rows, size: int) -> IntArray:
    """Return a 64-bit number of each row; names become digests."""
    if isinstance(rows, int | np.integer):
        return np.arange(rows, rows + size)
    numbers = _as_array(rows)
    if numbers.dtype.kind in "USO" and all(isinstance(name, str) for name in numbers):
        digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in numbers]
        numbers = np.frombuffer(b"".join(digests), dtype="<i8")
    if numbers.shape != (size,) or numbers.dtype.kind not in "iu":
        raise SelectionError(
            f"rows must be the position of the first row, or a whole number or name of each of the "
            f"{size} rows, got {rows!r:.60}"
        )
    return numbers.astype(np.int64, copy=False)


def _column(values: Any) -> npt.NDArray[Any]:
    """Return a column as an array of one dimension at least; lists of unequal length become objects."""
    if isinstance(values, np.ndarray) or hasattr(values, "detach"):
        return _as_array(values)
    values = list(values)
    if values and isinstance(values[0], list | tuple | set | np.ndarray):
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    return np.asarray(values)


# ---- settings --------------------------------------------------------------------------------


def _checked_counts(given: Any, n_samples: int | None, *, may_be_zero: bool) -> LabelCounts:
    counts = _as_counts(given, n_samples)
    wrong = np.flatnonzero((counts.counts < 0) | (counts.counts > counts.n_samples))
    if len(wrong):
        raise SelectionError(
            f"label {wrong[0]} has the count {counts.counts[wrong[0]]}, which must be from 0 to the "
            f"{counts.n_samples} rows"
        )
    if not counts.counts.any() and not may_be_zero:
        raise SelectionError(
            "no label has a positive, so there is nothing to prefer: check the labels, or shuffle "
            "without a selector (adapt=True counts as rows pass)"
        )
    return counts


def _as_counts(given: Any, n_samples: int | None) -> LabelCounts:
    if not isinstance(given, LabelCounts):
        if n_samples is None:
            raise SelectionError(
                "n_samples is needed beside an array of label counts: how many rows were counted"
            )
        check_number("n_samples", n_samples, least=1, whole=True, error=SelectionError)
        counts = _as_array(given)
        if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iu":
            raise SelectionError(
                "label_counts must be one whole number for each label, or count_labels(...), got "
                f"{given!r:.60}"
            )
        return LabelCounts(counts.astype(np.int64), int(n_samples))
    if n_samples not in (None, given.n_samples):
        raise SelectionError(
            f"n_samples is {n_samples}, and the labels of {given.n_samples} rows were counted: leave "
            "n_samples out"
        )
    return given


def _check_range(name: str, value: object, most: float, remark: str) -> None:
    if isinstance(value, int | float | np.number) and 0 < value <= most:
        return
    raise SelectionError(
        f"{name} must be above 0 and at most {most:g}, got {value!r:.60} ({remark})"
    )
