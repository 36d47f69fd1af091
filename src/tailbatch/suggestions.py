"""Which rows a person should label next: probabilities in, rows, labels and reasons out.

Rare labels lack positives more than anything else. Each rare label gets a share of the rows by its
need, and its rows by the strategy; a share of random rows finds what the model does not know, and says
without bias how much is left.

The random rows use permanent random numbers (Ohlsson 1995): each row of the pool has one number, its
draw, and the random sample is the rows with the smallest. A later round takes the next smallest for
which a sought label is not known yet, so all rows up to the largest random draw, suggested ones included,
are one simple random sample of the whole pool; sampling what earlier rounds left over would not be.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import betaincinv

from tailbatch.data.dataset import rare_by_count
from tailbatch.errors import DataError, check_number, did_you_mean
from tailbatch.seeds import BoolArray, FloatArray, IntArray, stream

STRATEGIES = {"positives": 1.0, "mixed": 0.5, "uncertain": 0.0}
"""The share of the suggested rows that are likely positives; the rest are those nearest to 0.5."""
EXPLORE = 0.1

_SKETCH = 32  # dimensions in which distances are compared
_NEAR = 0.1  # squared distance of near-duplicates, relative to that of two random rows
_TWINS = 0.2  # the share of rows with a labeled near-duplicate from which these are not passed over
_SAMPLED = 500  # rows that say how far apart rows are
_COLUMNS = 16  # labels read from the probabilities at a time: a cache line of float32
_BLOCK = 1 << 16  # rows whose probabilities are summed at a time
_LIKELY = 0.5
_ALIKE = 0.15  # probabilities nearer than this are "between" two labels
_NOTABLE = 2.0  # times the usual frequency, from which the reason says so


class Suggestion(NamedTuple):
    """One row to review: its number in the pool, what to ask, how likely it is, and why."""

    row: int
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    why: str
    is_random: bool


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Rows to review, in the order in which to review them.

    Parameters
    ----------
    rows
        (n,) row numbers in the pool.
    label_names
        The k labels that were sought.
    asked
        (n, k) which labels a row is suggested for; for a random row all that nobody has answered.
    probabilities
        (n, k) of the sought labels.
    reasons
        n reasons, in words.
    is_random
        (n,) whether a row was drawn at random.
    draws
        (n,) the rows' permanent random numbers, see `random_sample`.
    seed
        What the draws came from.
    left
        (k,) how many positives the probabilities expect among the rows that nobody had answered.
    pool_size
        How many rows the pool has.

    Examples
    --------
    >>> probabilities = np.array([[0.1, 0.0], [0.9, 0.2], [0.2, 0.6], [0.3, 0.1]])
    >>> Y = np.array([[1, 0], [0, 1], [0, 0]])
    >>> chosen = suggest(
    ...     probabilities, Y, 2, label_names=["grief", "pride"], strategy="positives", explore=0
    ... )
    >>> [(each.row, each.labels, each.why) for each in chosen]
    [(1, ('grief',), "likely 'grief'"), (2, ('pride',), "likely 'pride'")]
    """

    rows: IntArray
    label_names: tuple[str, ...]
    asked: BoolArray
    probabilities: FloatArray
    reasons: tuple[str, ...]
    is_random: BoolArray
    draws: FloatArray
    seed: int
    left: FloatArray
    pool_size: int

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Suggestion]:
        for place, row in enumerate(self.rows.tolist()):
            labels = np.flatnonzero(self.asked[place]).tolist()
            yield Suggestion(
                row,
                tuple(self.label_names[label] for label in labels),
                tuple(self.probabilities[place, labels].tolist()),
                self.reasons[place],
                bool(self.is_random[place]),
            )


def suggest(
    probabilities: Any,
    Y: Any,
    n: int = 100,
    *,
    labels: Sequence[str | int] | None = None,
    label_names: Sequence[str] | None = None,
    strategy: str = "mixed",
    explore: float = EXPLORE,
    average_precision: ArrayLike | None = None,
    reviewed: ArrayLike = (),
    features: Any = None,
    labeled_features: Any = None,
    unseen: bool = False,
    seed: int = 0,
) -> Suggestions:
    """Return which rows of a pool a person should label next, and for which labels.

    Parameters
    ----------
    probabilities
        (N, q) of the pool's rows, from any model; the columns of a data frame name the labels.
    Y
        (m, q) labels of the rows that are labeled already, NaN where one is missing; or (q,) how many
        positives each label has.
    n
        How many rows.
    labels
        Names or columns of the labels to look for. None is the rare ones that have a positive
        (more seldom than the geometric mean and the median of all), or all with one where none is rare.
    label_names
        Names of the q labels.
    strategy
        ``"positives"``, the likeliest rows of each label; ``"uncertain"``, those nearest to 0.5; or
        ``"mixed"``, both (`STRATEGIES`).
    explore
        The share of rows drawn at random, whatever the model thinks; at least one row if above 0.
    average_precision
        (q,) how well each label is found on rows that the model was not trained on; a label's share
        of the rows is (1 - AP) / sqrt(positives + 1), relative to the others.
    reviewed
        Row numbers of the pool that have been reviewed already; they are passed over. Or (N, q) whether
        a cell has been: then a row may be suggested for the labels that nobody has answered.
    features
        (N, d) of the pool's rows, or embeddings; near-duplicates of rows that are chosen or labeled
        are passed over, as long as there are others.
    labeled_features
        (m, d) of the labeled rows.
    unseen
        Whether labels without a positive can be scored, as models that know the labels' texts do.
    seed
        The same seed gives the same rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.random((200, 2)) < [0.5, 0.05]
    >>> chosen = suggest(rng.random((1000, 2)), Y, 10, label_names=["joy", "grief"])
    >>> len(chosen), int(chosen.is_random.sum()), chosen.label_names
    (10, 1, ('grief',))
    """
    P = _checked_probabilities(probabilities)
    names = _names(label_names, probabilities, Y, P.shape[1])
    positives, frequencies = _counts(Y, P.shape[1])
    share = _checked_settings(strategy, explore, seed)
    sought = _sought(labels, names, positives, unseen)
    open_cells = _open_cells(P.shape, reviewed, sought, n)
    left = _expected(P, sought, open_cells)
    free = np.flatnonzero(open_cells.any(axis=1))
    draws = stream(seed, "suggest").random(len(P))
    n_random = min(math.ceil(explore * n - 1e-9), n) if explore else 0
    at_random = free[np.argsort(draws[free], kind="stable")[:n_random]]
    asked_at_random = open_cells[at_random]
    open_cells[at_random] = False
    n_chosen = n - n_random
    quotas = n_chosen * _need(positives, average_precision, P.shape[1])[sought]
    quotas /= max(quotas.sum() / max(n_chosen, 1), 1e-300)
    pool = _Candidates.of(P, sought, open_cells, 4 * n_chosen + 100 if n_chosen else 0, share)
    near = _Nearness.of(features, labeled_features, len(P), pool.rows, seed)
    places, asked = _shared_out(pool, quotas, n_chosen, near)
    order = _mixed_in(len(places), n_random, seed)
    rows = np.concatenate([pool.rows[places], at_random])[order]
    is_random = (np.arange(n_chosen + n_random) >= n_chosen)[order]
    asked = np.concatenate([asked, asked_at_random])[order]
    scores = P[rows].astype(np.float64)
    if frequencies is None:
        frequencies = P.mean(axis=0, dtype=np.float64)
    reasons = [
        "drawn at random" if random else _reason(row, wanted, sought, names, frequencies)
        for row, wanted, random in zip(scores, asked, is_random, strict=True)
    ]
    found = tuple(names[label] for label in sought)
    return Suggestions(
        rows, found, asked, scores[:, sought], tuple(reasons), is_random, draws[rows], seed,
        left, len(P),
    )  # fmt: skip


def random_sample(draws: ArrayLike, is_random: ArrayLike) -> BoolArray:
    """Return which answers are a simple random sample of the pool, over all rounds.

    Rows up to the largest draw of a random row are; suggested ones among them, too, for the random order
    has reached them (permanent random numbers).

    Parameters
    ----------
    draws
        (n,) of all reviewed rows of one pool, suggested with one seed.
    is_random
        (n,) whether a row was drawn at random, or (n, q) whether it was for a label.

    Examples
    --------
    >>> random_sample([0.1, 0.2, 0.3], [False, True, False]).tolist()
    [True, True, False]
    """
    numbers, random = np.asarray(draws, dtype=np.float64), np.asarray(is_random, dtype=np.bool_)
    if random.ndim == 2:
        numbers = numbers[:, None]
    last = np.where(random, numbers, -np.inf).max(axis=0, initial=-np.inf)
    return np.asarray(random | (numbers <= last))


class Progress(NamedTuple):
    """What reviewing has brought for one label, and what is left in the pool."""

    label: str
    reviewed: int
    found: int
    expected: float
    left: float
    lowest: int
    highest: int

    def __str__(self) -> str:
        return (
            f"{self.label}: {self.found:,} found in {self.reviewed:,} reviewed "
            f"({self.expected:.0f} expected), about {self.left:,.0f} left in the pool "
            f"(95% interval by the random rows: {self.lowest:,} to {self.highest:,})"
        )


def progress(
    answers: ArrayLike,
    expected: ArrayLike,
    is_random: ArrayLike,
    left: ArrayLike,
    *,
    pool_size: int,
    label_names: Sequence[str],
) -> list[Progress]:
    """Return what reviewing has found of each label, and how much is left in the pool.

    Parameters
    ----------
    answers
        (n, q) 1, 0, or NaN where nobody answered.
    expected
        (n, q) probabilities by which the rows were suggested; NaN where none is known.
    is_random
        (n,) whether a row belongs to the random sample of the pool (`random_sample`); or (n, q).
    left
        (q,) the sum of the probabilities of the rows that nobody has reviewed.
    pool_size
        How many rows the pool had at first.
    label_names
        Names of the q labels.

    Notes
    -----
    The interval is Clopper and Pearson's for the share of positives in the pool, from the random rows
    only, times the pool, less what was found.

    Examples
    --------
    >>> print(*progress([[1], [0], [0]], [[0.8], [0.3], [0.1]], [False, True, True], [4.2],
    ...                 pool_size=100, label_names=["grief"]))
    grief: 1 found in 3 reviewed (1 expected), about 4 left in the pool (95% interval ...: 0 to 84)
    """
    Y = np.asarray(answers, dtype=np.float64).reshape(-1, len(label_names))
    likely = np.asarray(expected, dtype=np.float64).reshape(Y.shape)
    random = np.asarray(is_random, dtype=np.bool_)
    random = np.broadcast_to(random.reshape(len(Y), -1), Y.shape)
    known = ~np.isnan(Y)
    table = []
    for label, name in enumerate(label_names):
        there = known[:, label]
        found, size = int(np.nansum(Y[:, label])), int(there.sum())
        drawn = there & random[:, label]
        low, high = _clopper_pearson(int(Y[drawn, label].sum()), int(drawn.sum()))
        most = pool_size - size
        bounds = [min(max(share * pool_size - found, 0), most) for share in (low, high)]
        table.append(
            Progress(
                name, size, found, float(np.nansum(likely[there, label])),
                float(np.asarray(left, dtype=np.float64)[label]),
                math.floor(bounds[0]), math.ceil(bounds[1]),
            )
        )  # fmt: skip
    return table


def sketch(X: Any) -> NDArray[np.float32]:
    """Return features in at most 32 dimensions that keep distances (Johnson and Lindenstrauss).

    Examples
    --------
    >>> sketch(np.eye(3)).shape, sketch(sparse.csr_array(np.eye(500))).shape
    ((3, 3), (500, 32))
    """
    d = X.shape[1]
    if d > _SKETCH:
        lot = stream(0, "sketch", d).standard_normal((d, _SKETCH), dtype=np.float32)
        X = X @ (lot / np.float32(math.sqrt(_SKETCH)))
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float32)


# ---- what was given ------------------------------------------------------------------------------


def _checked_probabilities(given: Any) -> Any:
    P = np.asarray(given)
    if P.ndim != 2 or P.dtype.kind not in "fiub":
        raise DataError(f"probabilities must be numbers of shape (rows, labels), got {P.shape}")
    if not len(P):
        raise DataError("there are no unlabeled rows: give rows to choose from")
    low, high = float(P.min()), float(P.max())
    if not (low >= 0 and high <= 1):  # NaN, too
        raise DataError(
            f"probabilities must be from 0 to 1, got {low:g} to {high:g}: give the result "
            "of predict_proba"
        )
    return P


def _names(given: Any, probabilities: Any, Y: Any, n_labels: int) -> tuple[str, ...]:
    for columns in (given, getattr(Y, "columns", None), getattr(probabilities, "columns", None)):
        if columns is not None:
            if len(columns) != n_labels:
                raise DataError(
                    f"{len(columns)} labels are named, but probabilities have {n_labels} columns"
                )
            return tuple(map(str, columns))
    return tuple(f"label_{number}" for number in range(n_labels))


def _counts(Y: Any, n_labels: int) -> tuple[IntArray, FloatArray | None]:
    """Return how many positives each label has, and its share of the rows where it is known."""
    known: Any = None
    if not sparse.issparse(Y) and np.ndim(Y) == 1:
        positives = np.asarray(Y, dtype=np.float64)
    elif sparse.issparse(Y):
        positives = np.asarray(Y.sum(axis=0), dtype=np.float64).ravel()
        known = np.full(Y.shape[1], Y.shape[0])
    else:
        values = np.asarray(Y, dtype=np.float64)
        if values.ndim != 2:
            raise DataError(f"Y must have the shape (rows, labels), got {values.shape}")
        positives, known = np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0)
    if len(positives) != n_labels:
        raise DataError(f"Y has {len(positives)} labels, but probabilities have {n_labels} columns")
    frequencies = None if known is None else positives / np.maximum(known, 1)
    return positives.astype(np.int64), frequencies


def _checked_settings(strategy: str, explore: float, seed: int) -> float:
    """Return the strategy's share of likely positives."""
    if strategy not in STRATEGIES:
        raise DataError(f"unknown strategy {strategy!r:.40}{did_you_mean(strategy, STRATEGIES)}")
    check_number("explore", explore, least=0, below=1.0000001, error=DataError)
    check_number("seed", seed, least=0, whole=True, error=DataError)
    return STRATEGIES[strategy]


def _sought(labels: Any, names: Sequence[str], positives: IntArray, unseen: bool) -> IntArray:
    """Return the columns of the labels to look for."""
    if labels is None:
        there = positives > 0
        rare = rare_by_count(positives, 1) & there  # those with few are what it is for
        if not there.any():
            raise DataError(_without_positive(names[0]))
        return np.flatnonzero(rare if rare.any() else there).astype(np.int64)
    columns: list[int] = []
    for label in [labels] if isinstance(labels, str | int) else labels:
        if isinstance(label, int | np.integer) and 0 <= label < len(names):
            columns.append(int(label))
        elif label in names:
            columns.append(list(names).index(str(label)))
        else:
            raise DataError(f"unknown label {label!r:.60}{did_you_mean(label, names)}")
        if not positives[columns[-1]] and not unseen:
            raise DataError(_without_positive(names[columns[-1]]))
    if not columns:
        raise DataError("labels= is empty: name one, or leave it out for the rare ones")
    return np.array(list(dict.fromkeys(columns)), dtype=np.int64)


def _without_positive(name: str) -> str:
    return (
        f"the label {name!r} has no positive among the labeled rows, so no model knows what to look "
        "for: label a few examples of it by hand, or fit with label_texts="
    )


def _open_cells(shape: tuple[int, int], reviewed: Any, sought: IntArray, n: int) -> BoolArray:
    """Return for which of the sought labels nobody has answered a row of the pool, (N, k).

    Raise if there are fewer than n such rows.
    """
    check_number("n", n, least=1, whole=True, error=DataError)
    given = np.asarray(reviewed)
    if given.ndim == 2:
        if given.shape != shape:
            raise DataError(
                f"reviewed must have the shape {shape} of probabilities, got {given.shape}"
            )
        open_cells = np.asarray(~given[:, sought].astype(np.bool_))
    else:
        open_cells = np.ones((shape[0], len(sought)), dtype=np.bool_)
        done = np.unique(given.astype(np.int64))
        if len(done) and not 0 <= done[0] <= done[-1] < shape[0]:
            wrong = done[0] if done[0] < 0 else done[-1]
            raise DataError(
                f"reviewed row {wrong} is not in the pool, which has the rows 0 to {shape[0] - 1}"
            )
        open_cells[done] = False
    size = int(open_cells.any(axis=1).sum())
    if size < n:
        some = f"{size:,} row{'' if size == 1 else 's'} of the pool"
        remedy = f"ask for at most {size:,}" if size else "add unlabeled rows"
        raise DataError(f"n={n} rows are asked for, but only {some} can be reviewed: {remedy}")
    return open_cells


def _expected(P: Any, sought: IntArray, open_cells: BoolArray) -> FloatArray:
    """Return the sum of the probabilities of the open cells of each sought label, (k,)."""
    every = range(0, len(P), _BLOCK)
    sums = [
        (P[i : i + _BLOCK, sought] * open_cells[i : i + _BLOCK]).sum(axis=0, dtype=np.float64)
        for i in every
    ]
    return np.asarray(np.sum(sums, axis=0))


def _need(positives: IntArray, average_precision: Any, n_labels: int) -> FloatArray:
    """Return how much each label needs positives: (1 - AP) / sqrt(positives + 1)."""
    known = np.zeros(n_labels)
    if average_precision is not None:
        known = np.nan_to_num(np.asarray(average_precision, dtype=np.float64))
        if known.shape != (n_labels,):
            raise DataError(f"average_precision needs {n_labels} numbers, got shape {known.shape}")
    need: FloatArray = np.clip(1 - known, 0.05, 1) / np.sqrt(positives + 1)
    return need


# ---- who is a candidate --------------------------------------------------------------------------


class _Candidates(NamedTuple):
    """The best rows of each label: their numbers, and for each label their places in its order."""

    rows: IntArray
    orders: list[IntArray]  # for each label the places in `rows`, best first
    ranks: NDArray[np.int32]  # (rows, labels) the position in the label's order

    @classmethod
    def of(
        cls, P: Any, sought: IntArray, open_cells: BoolArray, count: int, share: float
    ) -> "_Candidates":
        best = []
        for start in range(0, len(sought), _COLUMNS):
            block = slice(start, start + _COLUMNS)
            columns = np.ascontiguousarray(P[:, sought[block]].T), open_cells[:, block].T
            for scores, is_open in zip(*columns, strict=True):
                free = np.flatnonzero(is_open)
                here = scores[free].astype(np.float32, copy=False)
                best.append(free[_best(here, count, share)])
        rows, places = np.unique(np.concatenate(best), return_inverse=True)
        orders = np.split(places, np.cumsum([len(each) for each in best])[:-1])
        ranks = np.full((len(rows), len(sought)), np.iinfo(np.int32).max, dtype=np.int32)
        for label, order in enumerate(orders):
            ranks[order, label] = np.arange(len(order))
        return cls(rows, orders, ranks)


def _best(scores: NDArray[np.float32], count: int, share: float) -> IntArray:
    """Return a label's best rows, the best first: a share by probability, the others nearest to 0.5."""
    likely = _top(scores, count) if share else np.zeros(0, dtype=np.int64)
    if share == 1 or not count:
        return likely
    doubtful = _top(-np.abs(scores - np.float32(0.5)), count)
    rows = np.concatenate([likely, doubtful])
    # Where each list would be reached, if the two were read at their shares.
    turns = [(np.arange(len(likely)) + 0.5) / max(share, 1e-9)]
    turns += [(np.arange(len(doubtful)) + 0.5) / (1 - share)]
    rows = rows[np.argsort(np.concatenate(turns), kind="stable")]
    _, first = np.unique(rows, return_index=True)
    return np.asarray(rows[np.sort(first)])


def _top(values: NDArray[np.float32], count: int) -> IntArray:
    """Return the rows of the largest values, descending; equal ones in the pool's order."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    rows = np.arange(len(values))
    if len(rows) > 50 * count:
        # A sample says where the best begin, so that only few have to be sorted.
        every = len(rows) // (20 * count)
        sample = np.sort(values[::every])[::-1]
        best = np.flatnonzero(values >= sample[min(max(2 * count // every, 20), len(sample) - 1)])
        rows = best if len(best) >= count else rows
    if len(rows) > count:
        # All that equal the last one stay in, so that the pool's order decides among them.
        last = np.partition(values[rows], len(rows) - count)[len(rows) - count]
        rows = rows[values[rows] >= last]
    return np.asarray(rows[np.argsort(-values[rows], kind="stable")][:count])


class _Nearness(NamedTuple):
    """Which candidates are near-duplicates of labeled rows, and how to tell those of chosen rows."""

    points: NDArray[np.float32] | None
    radius: float  # squared
    known: BoolArray

    @classmethod
    def of(cls, features: Any, labeled: Any, size: int, rows: IntArray, seed: int) -> "_Nearness":
        if features is None:
            return cls(None, 0.0, np.zeros(len(rows), dtype=np.bool_))
        X = features if sparse.issparse(features) else np.asarray(features)
        X = sparse.csr_array(X) if sparse.issparse(X) else X
        if X.ndim != 2 or (len(rows) and X.shape[0] != size):
            raise DataError(f"features must have {size} rows, as probabilities do, got {X.shape}")
        lot = stream(seed, "nearness").permutation(size)[:_SAMPLED]
        sample, points = sketch(X[np.sort(lot)]), sketch(X[rows])
        radius, known = _radius(sample), np.zeros(len(rows), dtype=np.bool_)
        if labeled is not None and labeled.shape[0]:
            others = sketch(labeled)
            if others.shape[1] != points.shape[1]:
                raise DataError(
                    f"labeled_features have {labeled.shape[1]} columns, features {X.shape[1]}"
                )
            # Where so many rows have a labeled twin, these features do not tell rows apart.
            if _any_within(sample, others, radius).mean() <= _TWINS:
                known = _any_within(points, others, radius)
        return cls(points, radius, known)

    def repeats(self, place: int, chosen: list[int]) -> bool:
        """Whether a candidate is nearly one that is labeled or chosen."""
        if self.known[place]:
            return True
        if self.points is None or not chosen:
            return False
        distances = _squared_distances(self.points[[place]], self.points[chosen])
        return bool(distances.min() <= self.radius)


def _radius(points: NDArray[np.float32]) -> float:
    """Return the squared distance up to which two rows are near-duplicates.

    It is a tenth of that of two random rows, and in few dimensions, where all rows have near neighbors,
    a quarter of that of a row and its nearest.
    """
    if len(points) < 2:
        return 0.0
    distances = _squared_distances(points, points)
    typical = float(distances.sum() / (len(points) * (len(points) - 1)))
    np.fill_diagonal(distances, np.inf)
    nearest = float(np.median(distances.min(axis=1)))
    return max(min(_NEAR * typical, nearest / 4), 1e-6 * typical)


def _any_within(
    points: NDArray[np.float32], others: NDArray[np.float32], radius: float
) -> BoolArray:
    """Return which points have another one within the squared radius."""
    near = np.zeros(len(points), dtype=np.bool_)
    for start in range(0, len(points), 256):
        block = slice(start, start + 256)
        near[block] = _squared_distances(points[block], others).min(axis=1) <= radius
    return near


def _squared_distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    a, b = a.astype(np.float64), b.astype(np.float64)  # differences of nearly equal numbers
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * (a @ b.T)
    return np.asarray(np.maximum(squares, 0))


# ---- who is chosen -------------------------------------------------------------------------------


def _shared_out(
    pool: _Candidates, quotas: FloatArray, n: int, near: _Nearness
) -> tuple[IntArray, BoolArray]:
    """Return n places in the pool, and the labels each is for, by turns of the label that lacks most.

    A row counts for every label that would have taken it, too. Near-duplicates come last.
    """
    left = quotas.astype(np.float64).copy()
    cuts = np.ceil(quotas)
    waiting = [iter(order.tolist()) for order in pool.orders]
    passed: list[tuple[int, int]] = []
    taken: dict[int, int] = {}
    while len(taken) < n and np.isfinite(left).any():
        label = int(np.argmax(left))
        for place in waiting[label]:
            if place in taken:
                continue
            if near.repeats(place, list(taken)):
                passed.append((place, label))
                continue
            taken[place] = label
            left -= _counts_for(pool, place, label, cuts)
            break
        else:
            left[label] = -np.inf
    for place, label in passed:
        if len(taken) < n:
            taken.setdefault(place, label)
    places = np.array(list(taken), dtype=np.int64)
    rows = [_counts_for(pool, place, label, cuts) for place, label in taken.items()]
    return places, np.array(rows, dtype=np.bool_).reshape(len(places), len(quotas))


def _counts_for(pool: _Candidates, place: int, label: int, cuts: FloatArray) -> BoolArray:
    """Return the labels that a row is for: the one whose turn it is, and those that rank it high."""
    wanted: BoolArray = pool.ranks[place] < cuts
    wanted[label] = True
    return wanted


def _mixed_in(n_chosen: int, n_random: int, seed: int) -> IntArray:
    """Return an order that spreads the last n_random rows over the others, both in their own order."""
    slots = np.zeros(n_chosen + n_random, dtype=np.bool_)
    slots[stream(seed, "suggest order").permutation(len(slots))[:n_random]] = True
    order = np.empty(len(slots), dtype=np.int64)
    order[~slots], order[slots] = np.arange(n_chosen), n_chosen + np.arange(n_random)
    return order


# ---- in words ------------------------------------------------------------------------------------


def _reason(
    scores: FloatArray,
    wanted: BoolArray,
    sought: IntArray,
    names: Sequence[str],
    frequencies: FloatArray,
) -> str:
    """Return why a row is suggested, for its likeliest wanted label first."""
    labels = sought[wanted]
    labels = labels[np.argsort(-scores[labels], kind="stable")]
    return "; ".join(_reason_for(int(label), scores, names, frequencies) for label in labels[:3])


def _reason_for(
    label: int, scores: FloatArray, names: Sequence[str], frequencies: FloatArray
) -> str:
    name, score = names[label], scores[label]
    if score >= _LIKELY + _ALIKE:
        return f"likely {name!r}"
    gaps = np.abs(scores - score)
    gaps[label] = np.inf
    gaps[scores < _LIKELY / 2] = np.inf
    if score >= _LIKELY / 2 and gaps.min(initial=np.inf) < _ALIKE:
        return f"between {name!r} and {names[int(np.argmin(gaps))]!r}"
    if score >= _LIKELY:
        return f"likely {name!r}"
    times = score / frequencies[label] if frequencies[label] else math.inf
    if math.isfinite(times) and times >= _NOTABLE:
        return f"possibly {name!r}, {times:.0f} times as likely as in a random row"
    return f"unsure about {name!r}"


def _clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share; all of [0, 1] without a trial."""
    tail = (1 - level) / 2
    low = float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    failures = trials - successes
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0
    return low, high
