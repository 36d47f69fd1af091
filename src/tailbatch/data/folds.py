"""Fair folds by iterative stratification, scaled by what their training rows say.

Iterative stratification (Sechidis, Tsoumakas and Vlahavas, 2011) deals out the rows of the rarest
remaining label first, each to the part that still wants that label most.
"""

from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.data.dataset import FEWEST_POSITIVES, MultiLabelDataset, rare_by_count
from tailbatch.data.labels import LabelMatrix, checked_labels
from tailbatch.data.scaling import fit_scaling
from tailbatch.errors import DataError, setting
from tailbatch.seeds import FloatArray, IntArray, stream

_NEARLY_ITS_SHARE = 0.75  # a part with fewer of the rows it was to get is dealt again


@dataclass(frozen=True, eq=False)
class Fold:
    """Row indices of one train, validation and test split, each ascending.

    Examples
    --------
    >>> fold = Fold(train=np.arange(8), validation=np.array([8]), test=np.array([9]))
    >>> len(fold.train), len(fold.validation), len(fold.test)
    (8, 1, 1)
    """

    train: IntArray
    validation: IntArray
    test: IntArray


def stratified_folds(
    Y: LabelMatrix, *, n_folds: int, seed: int, groups: npt.ArrayLike | None = None
) -> tuple[Fold, ...]:
    """Return `n_folds` folds; each row is held out exactly once, for validation or for test.

    The held-out rows are split in half, stratified too, so five folds give 80/10/10.

    Rare labels: where no row has two labels, a label with at least `n_folds` positives is held out in
    every fold, and one with at least two is in the training rows of every fold. Where rows share labels
    no rule can promise that for all labels at once; then rows are moved until no single move could give
    a fold a label it lacks without taking the last positive of another such label from a fold.

    Parameters
    ----------
    n_folds
        From 2 to n / 2, so that both halves of a held-out fold have rows.
    groups
        (n,) the group of each row, such as a patient or an author: the rows of a group are never split
        between training, validation and test. Labels are then spread as evenly as whole groups allow.

    Examples
    --------
    >>> Y = np.tile(np.eye(2, dtype=bool), (10, 1))
    >>> folds = stratified_folds(Y, n_folds=5, seed=0)
    >>> [Y[fold.test].sum(axis=0).tolist() for fold in folds]
    [[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]
    """
    labels = _present(sparse.csr_array(checked_labels(Y)))
    n = labels.shape[0]
    if not 2 <= n_folds <= n // 2:
        raise DataError(
            f"{setting('n_folds')} must be from 2 to half the number of rows, got {n_folds} for {n} rows "
            "(the held-out fold is split into validation and test)"
        )
    shares = np.full(n_folds, 1 / n_folds)
    group_of = None if groups is None else _checked_groups(groups, n, n_folds)
    fold_of = _dealt(labels, group_of, shares, stream(seed, "folds"))
    if group_of is None:
        fold_of = _give_each_part_one(labels, fold_of, n_folds)
    folds = []
    for number in range(n_folds):
        held_out = np.flatnonzero(fold_of == number)
        held = None if group_of is None else group_of[held_out]
        pieces = len(held_out) if held is None else len(np.unique(held))
        if pieces < 2:  # the published rules balance labels first, sizes second
            what = "row" if held is None else "group"
            raise DataError(
                f"fold {number} gets {pieces} {what}{'' if pieces == 1 else 's'}, too few to split into "
                "validation and test; ask for fewer folds"
            )
        draws = stream(seed, "halves", number)
        half_of = _dealt(labels[held_out], held, np.full(2, 0.5), draws)
        train = np.flatnonzero(fold_of != number)
        folds.append(Fold(train, held_out[half_of == 0], held_out[half_of == 1]))
    return tuple(folds)


def stratified_parts(
    Y: LabelMatrix, *, n_parts: int, seed: int, groups: npt.ArrayLike | None = None
) -> IntArray:
    """Return the part of each row, (n,) from 0, with the positives of every label spread over the parts.

    As the held-out rows of `stratified_folds`, which halves them in addition: with fewer rows of a
    label than parts, no two of them are in the same one where rows allow it.

    There are from 2 to n parts. The rows of a group (`groups`, (n,)) stay together.

    Examples
    --------
    >>> stratified_parts(np.tile(np.eye(2, dtype=bool), (3, 1)), n_parts=3, seed=0).tolist()
    [0, 1, 1, 0, 2, 2]
    """
    labels = _present(sparse.csr_array(checked_labels(Y)))
    n = labels.shape[0]
    if not 2 <= n_parts <= n:
        raise DataError(
            f"the number of parts must be from 2 to that of the rows, {n}, got {n_parts}"
        )
    group_of = None if groups is None else _checked_groups(groups, n, n_parts)
    part_of = _dealt(labels, group_of, np.full(n_parts, 1 / n_parts), stream(seed, "parts"))
    return part_of if group_of is not None else _give_each_part_one(labels, part_of, n_parts)


def stratified_split(
    Y: LabelMatrix,
    *,
    validation: float,
    test: float,
    seed: int,
    groups: npt.ArrayLike | None = None,
) -> Fold:
    """Return one stratified split by fractions; the rest is for training.

    Where labels with few positives would leave a part far below its fraction, they are ignored.

    Parameters
    ----------
    validation, test
        Fractions of the rows, from 0 and together below 1; 0 leaves that part empty.
    groups
        (n,) the group of each row, whose rows stay together; see `stratified_folds`.

    Examples
    --------
    >>> Y = np.tile(np.eye(2, dtype=bool), (10, 1))
    >>> split = stratified_split(Y, validation=0.2, test=0, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (16, 4, 0)
    """
    labels = sparse.csr_array(checked_labels(Y))
    fractions = np.array([1 - validation - test, validation, test])
    if not (validation >= 0 and test >= 0 and fractions[0] > 0):
        raise DataError(
            "validation and test must be fractions from 0 that leave rows for training, "
            f"got {validation} and {test}"
        )
    # A part of fraction 0 wants nothing, and must not win when the others have had enough.
    wanted = np.flatnonzero(fractions)
    n, n_parts = labels.shape[0], len(wanted)
    group_of = None if groups is None else _checked_groups(groups, n, n_parts)
    part_of = wanted[_deal_to_unequal_parts(labels, group_of, fractions[wanted], seed)]
    parts = np.flatnonzero(part_of == 0), np.flatnonzero(part_of == 1), np.flatnonzero(part_of == 2)
    for part, name in enumerate(("train", "validation", "test")):
        if fractions[part] and not parts[part].size:
            raise DataError(
                f"the {name} part would have no row: {fractions[part]:g} of {len(part_of)} rows "
                "is too few; take a larger fraction or more rows"
            )
    return Fold(*parts)


def _present(Y: sparse.csr_array) -> sparse.csr_array:
    """Return the labels without the columns of those that no row has: they change no part."""
    is_present = np.bincount(Y.indices, minlength=Y.shape[1]) > 0
    places = np.cumsum(is_present, dtype=np.int32) - 1
    shape = Y.shape[0], int(is_present.sum())
    return sparse.csr_array((Y.data, places[Y.indices], Y.indptr), shape=shape)


def _deal_to_unequal_parts(
    Y: sparse.csr_array, group_of: IntArray | None, shares: FloatArray, seed: int
) -> IntArray:
    """Return the part of each row, so that no small part starves.

    The largest part wants every label most until it has its share, so it takes all rows of a label
    with a single positive, and of one with a few. Where that leaves a part far below its share, the
    rarest labels are ignored: those with one positive first, then with fewer than 4, 8, and so on.
    """
    wanted = np.maximum(np.floor(shares * Y.shape[0]), 1)
    units = Y if group_of is None else _by_group(Y, group_of)
    spread = np.bincount(units.indices, minlength=Y.shape[1])  # rows or groups with each label
    best, reached, least = np.empty(0, dtype=np.int64), -1.0, 1
    while reached < _NEARLY_ITS_SHARE:
        kept = sparse.csr_array(Y[:, np.flatnonzero(spread >= least)])
        part_of = _dealt(kept, group_of, shares, stream(seed, "split"))
        smallest = (np.bincount(part_of, minlength=len(shares)) / wanted).min()
        if smallest > reached:
            best, reached = part_of, smallest
        if least > spread.max(initial=0):
            break
        least *= 2
    return best


def _dealt(
    Y: sparse.csr_array,
    group_of: IntArray | None,
    fractions: FloatArray,
    generator: np.random.Generator,
) -> IntArray:
    """Return the part of each row, by iterative stratification, of whole groups where there are some.

    The labels of a row do not influence its own part, only what is wanted afterwards, so the rows
    of one label are dealt together. Equally rare labels go by index, their rows by row index.
    """
    if group_of is not None:
        return _deal_groups(Y, group_of, fractions, generator)
    n, q = Y.shape
    rows_of = Y.tocsc()
    remaining = np.bincount(Y.indices, minlength=q)
    # Multiples of 2^-20 stay exact under subtraction, so that equal demands compare equal.
    demand = np.rint(np.outer([*remaining, n], fractions) * 2**20) / 2**20  # last row: overall
    part_of = np.full(n, -1)
    remaining[remaining == 0] = n + 1
    while remaining.min(initial=n + 1) <= n:
        rarest = remaining.argmin()
        rows = rows_of.indices[rows_of.indptr[rarest] : rows_of.indptr[rarest + 1]]
        rows = rows[part_of[rows] < 0]
        parts = _deal(rows.size, demand[rarest], demand[q], generator)
        part_of[rows] = parts
        dealt = Y[rows]
        np.subtract.at(demand, (dealt.indices, np.repeat(parts, np.diff(dealt.indptr))), 1)
        demand[q] -= np.bincount(parts, minlength=len(fractions))
        np.subtract.at(remaining, dealt.indices, 1)
        remaining[remaining == 0] = n + 1
    rows = np.flatnonzero(part_of < 0)
    part_of[rows] = _deal(rows.size, demand[q], demand[q], generator)
    return part_of


def _checked_groups(groups: npt.ArrayLike, n: int, n_parts: int) -> IntArray:
    """Return the number of each row's group, from 0 in the order of their first rows."""
    named = np.asarray(groups)
    if named.shape != (n,):
        raise DataError(
            f"groups must name a group for each of the {n} rows, got shape {named.shape}"
        )
    _, first, number = np.unique(named, return_index=True, return_inverse=True)
    if len(first) < n_parts:
        found = f"{len(first)} group{'' if len(first) == 1 else 's'}"
        raise DataError(
            f"{found} cannot be dealt to {n_parts} parts; ask for fewer parts, or leave groups out"
        )
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[number]


def _deal_groups(
    Y: sparse.csr_array, group_of: IntArray, fractions: FloatArray, generator: np.random.Generator
) -> IntArray:
    """Return the part of each row, by iterative stratification of whole groups.

    As `_dealt` does with rows, but what a group takes of each label's demand is its number of positives,
    and the groups with most of the rarest label are dealt first. With a row in each group it is the same
    rule.
    """
    n, q = Y.shape
    sizes = np.bincount(group_of).astype(np.float64)
    counts = _by_group(Y, group_of)
    by_label = counts.tocsc()
    remaining = np.asarray(counts.sum(axis=0)).ravel()
    demand = np.rint(np.outer([*remaining, n], fractions) * 2**20) / 2**20  # last row: overall
    part_of = np.full(len(sizes), -1)

    def deal(group: int, wanted: int) -> None:
        tickets = generator.random(len(fractions))
        part = np.lexsort((tickets, -demand[q], -demand[wanted]))[0]
        part_of[group] = part
        span = slice(counts.indptr[group], counts.indptr[group + 1])
        demand[counts.indices[span], part] -= counts.data[span]
        demand[q, part] -= sizes[group]
        remaining[counts.indices[span]] -= counts.data[span]

    while (remaining > 0).any():
        rarest = int(np.where(remaining > 0, remaining, np.inf).argmin())
        span = slice(by_label.indptr[rarest], by_label.indptr[rarest + 1])
        groups, amounts = by_label.indices[span], by_label.data[span]
        for group in groups[np.argsort(-amounts, kind="stable")]:
            if part_of[group] < 0:
                deal(group, rarest)
    for group in np.argsort(-sizes, kind="stable"):
        if part_of[group] < 0:  # groups without a label
            deal(group, q)
    return part_of[group_of]


def _by_group(Y: sparse.csr_array, group_of: IntArray) -> sparse.csr_array:
    """Return how many positives of each label each group has."""
    n = Y.shape[0]
    shape = int(group_of.max()) + 1, n
    members = sparse.csr_array((np.ones(n), (group_of, np.arange(n))), shape=shape)
    return sparse.csr_array(members @ Y.astype(np.float64))


def _give_each_part_one(Y: sparse.csr_array, part_of: IntArray, n_parts: int) -> IntArray:
    """Move rows so that parts get labels they lack, where no part loses its last positive by that.

    Labels with a positive for each part are looked at, the rarest first; the row that is moved comes
    from the part with most of the label.
    """
    part_of = part_of.copy()
    totals = np.bincount(Y.indices, minlength=Y.shape[1])
    have = np.zeros((Y.shape[1], n_parts), dtype=np.int64)
    np.add.at(have, (Y.indices, np.repeat(part_of, np.diff(Y.indptr))), 1)
    lacking = np.flatnonzero((totals >= n_parts) & (have == 0).any(axis=1))
    if not lacking.size:
        return part_of
    columns = Y.tocsc()
    moved = True
    while moved:
        moved = False
        for label in lacking[np.argsort(totals[lacking], kind="stable")]:
            rows = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
            rows = rows[np.argsort(-have[label, part_of[rows]], kind="stable")]
            for part in np.flatnonzero(have[label] == 0):
                for row in rows:
                    own, home = Y.indices[Y.indptr[row] : Y.indptr[row + 1]], part_of[row]
                    # A row leaves a part that keeps others, and enough positives of its labels.
                    last = (have[own, home] == 1) & (totals[own] >= n_parts)
                    if not last.any() and (part_of == home).sum() > 2:
                        have[own, home] -= 1
                        have[own, part] += 1
                        part_of[row], moved = part, True
                        break
    return part_of


def _deal(
    count: int, demand: FloatArray, overall: FloatArray, generator: np.random.Generator
) -> IntArray:
    """Return the parts that `count` rows go to, one after the other.

    Each goes where `demand` is largest, then where `overall` is largest, then by a drawn ticket.
    """
    n_parts = len(demand)
    tickets = generator.random(n_parts + count).tolist()
    queue = list(
        zip((-demand).tolist(), (-overall).tolist(), tickets, range(n_parts), strict=False)
    )
    heapify(queue)
    parts = []
    for ticket in tickets[n_parts:]:
        wanted, wanted_overall, _, part = queue[0]
        parts.append(part)
        heapreplace(queue, (wanted + 1, wanted_overall + 1, ticket, part))
    return np.array(parts, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Parts:
    """The three datasets of a fold.

    `minority` (q,) says which labels the minority metrics cover; None is those that
    `tailbatch.imbalance.rare_labels` finds in the training rows.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(np.eye(4), np.eye(4, 2, dtype=bool))
    >>> Parts(data.take([0, 1]), data.take([2]), data.take([3])).train.n_samples
    2
    """

    train: MultiLabelDataset
    validation: MultiLabelDataset
    test: MultiLabelDataset
    minority: Any = None

    def __post_init__(self) -> None:
        """Find the rare labels unless they are given."""
        if self.minority is None:
            counts = np.asarray(self.train.Y.sum(axis=0), dtype=np.int64).ravel()
            object.__setattr__(self, "minority", rare_by_count(counts, FEWEST_POSITIVES))


def split(dataset: MultiLabelDataset, fold: Fold, *, scale: bool | str = True) -> Parts:
    """Return the datasets of a fold, scaled by its training rows.

    Words, categories and filled-in values of a table are learned from the training rows, too.

    `scale` names a scaling (`tailbatch.data.scaling`); True is ``"minmax"``, and False none.

    Examples
    --------
    >>> X = np.array([[1.0], [3.0], [2.0], [9.0]])
    >>> data = MultiLabelDataset.from_arrays(X, np.ones((4, 1), dtype=bool))
    >>> parts = split(data, Fold(np.array([0, 1]), np.array([2]), np.array([3])))
    >>> parts.train.X.ravel().tolist(), parts.validation.X.item(), parts.test.X.item()
    ([0.0, 1.0], 0.5, 1.0)
    """
    parts = [dataset.take(index) for index in (fold.train, fold.validation, fold.test)]
    parts = _with_columns_of_the_first(parts)
    scaling = fit_scaling(scale, parts[0].X)
    if scaling is not None:
        parts = [replace(part, X=scaling.transform(part.X)) for part in parts]
    return Parts(*parts)


def _with_columns_of_the_first(parts: list[MultiLabelDataset]) -> list[MultiLabelDataset]:
    """Return the parts with their columns encoded as the first one's rows say."""
    columns, frames = parts[0].columns, [part.frame for part in parts]
    if columns is None or any(frame is None for frame in frames):
        return parts
    fitted = columns.refit(frames[0])
    return [
        replace(
            part,
            X=fitted.transform(frame)[0],
            feature_names=fitted.feature_names,
            columns=fitted,
            frame=None,
        )
        for part, frame in zip(parts, frames, strict=True)
    ]
