"""Label and neighborhood statistics: how rare a label is, globally and around a row.

Every function is pure and takes the training rows only. Label matrices are boolean, dense or CSR.
Results with one value per (row, label) or per label pair are dense or CSR, like `Y`.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.data.dataset import FEWEST_POSITIVES, Features, LabelMatrix, rare_by_count
from tailbatch.errors import DataError, require
from tailbatch.seeds import BoolArray, FloatArray, IntArray

Progress = Callable[[int, int], None]
SearchMethod = Literal["exact", "faiss"]

_BLOCK_ENTRIES = 2**21  # float64 values of one working array: 16 MB
_MOST_THREADS = 8  # each needs a few working arrays


def label_counts(Y: LabelMatrix) -> IntArray:
    """Return the number of positives C_j of each label.

    Examples
    --------
    >>> label_counts(np.array([[1, 0], [1, 1]], dtype=bool)).tolist()
    [2, 1]
    """
    return np.asarray(Y.sum(axis=0), dtype=np.int64).ravel()


def imbalance_ratio(Y: LabelMatrix) -> FloatArray:
    """Return IRLbl_j = C_max / C_j (Eq. 1); a label without positives has ``inf``.

    Examples
    --------
    >>> imbalance_ratio(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool)).tolist()
    [1.0, 2.0, inf]
    """
    counts = label_counts(Y)
    ratio = np.full(len(counts), np.inf)
    np.divide(counts.max(initial=0), counts, out=ratio, where=counts > 0)
    return ratio


def mean_imbalance_ratio(Y: LabelMatrix) -> float:
    """Return MeanIR, the mean of IRLbl over labels with a positive; ``nan`` if there is none.

    Examples
    --------
    >>> mean_imbalance_ratio(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    1.5
    """
    ratio = imbalance_ratio(Y)
    finite = ratio[np.isfinite(ratio)]
    return float(finite.mean()) if finite.size else float("nan")


def minority_labels(Y: LabelMatrix) -> BoolArray:
    """Return which labels are in L_m: IRLbl_j > MeanIR; one without positives never is.

    This is the paper's definition. One label with a single positive can raise MeanIR above the ratio of
    every other label; `rare_labels` does not depend on such labels.

    Examples
    --------
    >>> minority_labels(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool)).tolist()
    [False, True, False]
    """
    ratio = imbalance_ratio(Y)
    return np.isfinite(ratio) & (ratio > mean_imbalance_ratio(Y))


def rare_labels(Y: LabelMatrix, *, min_positives: int = FEWEST_POSITIVES) -> BoolArray:
    """Return which labels are rare: IRLbl_j above both the geometric mean and the median of all ratios.

    Labels with fewer than `min_positives` positives are too few to learn or to measure: they are never
    rare, and the mean and the median leave them out. At most half of the others are rare, and
    none where all are equally frequent.

    Examples
    --------
    >>> Y = np.arange(100)[:, None] < [80, 60, 10, 8, 1]
    >>> rare_labels(Y).tolist()
    [False, False, True, True, False]
    >>> minority_labels(Y).tolist()  # the paper's: the label with one positive is the only one
    [False, False, False, False, True]
    """
    return rare_by_count(label_counts(Y), min_positives)


def positive_weights(
    Y: LabelMatrix,
    *,
    power: float = 0.5,
    max_weight: float | None = None,
    missing: LabelMatrix | None = None,
) -> FloatArray:
    """Return the weight of each label's positives in a weighted loss, (negatives / positives)^power.

    A label without positives, or without negatives, counts as having one.

    Parameters
    ----------
    power
        0 gives all labels weight 1; 1 gives a label's positives the same total weight as its negatives.
    max_weight
        The largest weight; None sets no limit.
    missing
        (n, q) labels that nobody knows, which are neither.

    Examples
    --------
    >>> Y = np.array([[1, 0], [1, 1], [1, 0], [0, 0], [0, 0]], dtype=bool)
    >>> positive_weights(Y).round(3).tolist()
    [0.816, 2.0]
    >>> positive_weights(Y, power=1, max_weight=3).round(3).tolist()
    [0.667, 3.0]
    """
    known = Y.shape[0] - (0 if missing is None else label_counts(missing))
    weights = weights_of_counts(label_counts(Y), known, power=power)
    return weights if max_weight is None else np.minimum(weights, max_weight)


def weights_of_counts(
    positives: IntArray, known: IntArray | int, *, power: float = 0.5
) -> FloatArray:
    """Return `positive_weights` of labels with these positives (q,) among `known` rows.

    Examples
    --------
    >>> weights_of_counts(np.array([50, 20, 0]), 100).tolist()
    [1.0, 2.0, 10.0]
    """
    negatives = np.maximum(known - positives, 1)
    return np.asarray((negatives / np.maximum(positives, 1)) ** power)


def label_cardinality(Y: LabelMatrix) -> float:
    """Return Card, the mean number of labels per row.

    Examples
    --------
    >>> label_cardinality(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    1.5
    """
    return float(label_counts(Y).sum()) / float(Y.shape[0])


def label_density(Y: LabelMatrix) -> float:
    """Return Dens, the label cardinality divided by the number of labels.

    Examples
    --------
    >>> label_density(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool))
    0.5
    """
    return label_cardinality(Y) / float(Y.shape[1])


def label_cooccurrence(Y: LabelMatrix) -> FloatArray | sparse.csr_array:
    """Return A_ij = (P(l_j | l_i) + P(l_i | l_j)) / 2 as (q, q), with a diagonal of 0.

    A label without positives has an all-zero row and column.

    Examples
    --------
    >>> label_cooccurrence(np.array([[1, 1], [1, 0]], dtype=bool)).tolist()
    [[0.0, 0.75], [0.75, 0.0]]
    """
    labels = _csr_labels(Y)
    pairs = (labels.T @ labels).tocoo()
    counts = label_counts(Y)
    i, j = pairs.coords
    values = (pairs.data / counts[i] + pairs.data / counts[j]) / 2
    values[i == j] = 0
    graph = sparse.csr_array((values, (i, j)), shape=pairs.shape)
    graph.eliminate_zeros()
    return _stored_as(Y, graph)


def scumble(Y: LabelMatrix) -> float:
    """Return SCUMBLE, how much rare labels come with frequent ones, as R's mldr does (Charte et al.).

    A row's is 1 minus the geometric over the arithmetic mean of IRLbl over its labels: near 1 where a
    rare label comes with a frequent one, 0 for a row with one label or none. The mean over rows.

    Examples
    --------
    >>> Y = np.array([[1, 1], [1, 0], [1, 0], [1, 0]], dtype=bool)
    >>> round(scumble(Y), 3)  # (1 - sqrt(1 * 4) / 2.5) / 4
    0.05
    """
    labels = _csr_labels(Y)
    ratio = imbalance_ratio(Y)
    size = np.maximum(labels.sum(axis=1), 1)
    geometric = np.exp(labels @ np.log(ratio) / size)
    arithmetic = np.maximum(labels @ ratio, 1) / size
    # Equal ratios may leave a rounding error below zero.
    of_rows = np.where(np.diff(labels.indptr) > 1, np.maximum(1 - geometric / arithmetic, 0), 0)
    return float(of_rows.mean())


def nearest_neighbors(
    X: Features,
    rows: npt.ArrayLike,
    k: int,
    *,
    method: SearchMethod = "exact",
    progress: Progress | None = None,
) -> IntArray:
    """Return the k nearest other rows of each of `rows` (m, k), nearest first, ties by lower index.

    Distances are Euclidean, in float64. Rows are processed in blocks, so memory never grows with the
    square of n, and sparse features are never made dense as a whole.

    Parameters
    ----------
    rows
        Indices of the rows to find neighbors for.
    k
        Number of neighbors, from 1 to n - 1.
    method
        ``"faiss"`` searches dense features in float32 (extra ``faiss``), then ranks the candidates
        in float64: the same neighbors, up to ties.
    progress
        Called as ``progress(rows_searched, rows_total)`` after each block.

    Examples
    --------
    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0], [1.0]]), [0, 2], k=2).tolist()
    [[1, 3], [1, 3]]
    """
    n = X.shape[0]
    if not 1 <= k < n:
        raise DataError(f"k must be from 1 to the number of other rows, got k={k} for n={n} rows")
    if method not in _SEARCHES:
        raise DataError(f"method must be one of {', '.join(_SEARCHES)}, got {method!r}")
    rows = np.asarray(rows, dtype=np.int64)
    search = _SEARCHES[method](X, k)
    size = max(16, _BLOCK_ENTRIES // max(X.shape))
    blocks = np.split(rows, np.arange(size, len(rows), size))
    neighbors = np.empty((len(rows), k), dtype=np.int64)
    # A sparse product uses one thread; dense ones are already multithreaded.
    threads = min(os.cpu_count() or 1, _MOST_THREADS) if sparse.issparse(X) else 1
    with ThreadPoolExecutor(threads) as pool:
        searched = 0
        for of_block in pool.map(search, blocks if len(rows) else []):
            neighbors[searched : searched + len(of_block)] = of_block
            searched += len(of_block)
            if progress is not None:
                progress(searched, len(rows))
    return neighbors


def local_imbalance(
    X: Features,
    Y: LabelMatrix,
    k: int = 5,
    *,
    method: SearchMethod = "exact",
    progress: Progress | None = None,
) -> FloatArray | sparse.csr_array:
    """Return B (Eq. 2): for y_ij = 1 the share of k neighbors without label j, else 0.

    `k`, `method` and `progress` are as in `nearest_neighbors`, which searches for rows with a label only.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [9.0]])
    >>> Y = np.array([[1], [1], [0], [0]], dtype=bool)
    >>> local_imbalance(X, Y, k=2).ravel().tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    labels = _csr_labels(Y)
    rows = np.flatnonzero(np.diff(labels.indptr))
    neighbors = nearest_neighbors(X, rows, k, method=method, progress=progress)
    starts = np.zeros(len(labels.indptr), dtype=np.int64)
    starts[rows + 1] = k
    graph = sparse.csr_array(
        (np.ones(neighbors.size), neighbors.ravel(), np.cumsum(starts)),
        shape=(len(starts) - 1,) * 2,
    )
    sharing = labels.multiply(graph @ labels)
    return _stored_as(Y, ((k * labels - sharing) / k).tocsr())


def local_imbalance_share(B: FloatArray | sparse.csr_array) -> FloatArray | sparse.csr_array:
    """Return S (Eq. 4): each column of B < 1 divided by its sum.

    B_ij = 1 (no neighbor shares the label) is noise and contributes 0, as does a column that
    sums to 0. The paper writes -1 for noise and leaves it out of every sum, which is the same.

    Examples
    --------
    >>> local_imbalance_share(np.array([[0.2, 1.0], [0.6, 0.0]])).round(2).tolist()
    [[0.25, 0.0], [0.75, 0.0]]
    """
    share = sparse.csr_array(B, copy=True)
    share.data[share.data >= 1] = 0
    total = share.sum(axis=0)
    share.data /= np.where(total > 0, total, 1)[share.indices]
    return _stored_as(B, share)


def selection_weights(
    X: Features,
    Y: LabelMatrix,
    *,
    k: int = 5,
    method: SearchMethod = "exact",
    progress: Progress | None = None,
) -> FloatArray:
    """Return w_i = 1 + the sum over minority labels j of S_ij, the weights of the selection losses.

    The sum of w - 1 is at most the number of minority labels, so most weights are close to 1.

    `X` (n, d) are the scaled features and `Y` (n, q) the labels of the training rows; `k`, `method` and
    `progress` are as in `nearest_neighbors`, which searches for rows with a minority label only.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [9.0]])
    >>> Y = np.array([[1, 1], [1, 1], [1, 0], [1, 0]], dtype=bool)
    >>> selection_weights(X, Y, k=2).tolist()
    [1.5, 1.5, 1.0, 1.0]
    """
    minority = sparse.csr_array(_csr_labels(Y)[:, np.flatnonzero(minority_labels(Y))])
    if not minority.nnz:
        return np.ones(Y.shape[0])
    share = local_imbalance_share(local_imbalance(X, minority, k, method=method, progress=progress))
    return np.asarray(1 + share.sum(axis=1))


def _csr_labels(Y: LabelMatrix) -> sparse.csr_array:
    """Return the labels as CSR, as floats so that products count them."""
    labels = sparse.csr_array(Y, dtype=np.float64, copy=True)
    labels.eliminate_zeros()
    return labels


def _stored_as(
    like: LabelMatrix | FloatArray, values: sparse.csr_array
) -> FloatArray | sparse.csr_array:
    return values if sparse.issparse(like) else values.toarray()


def _exact_search(X: Features, k: int) -> Callable[[IntArray], IntArray]:
    """Return a function from a block of rows to their neighbors.

    The fast form |a|^2 - 2ab + |b|^2 finds every candidate that could be a neighbor despite rounding.
    sum((a - b)^2) then decides, so that equal distances are exact ties.
    """
    X = (X if isinstance(X, np.ndarray) else sparse.csr_array(X)).astype(np.float64, copy=False)
    norms = np.asarray((X * X).sum(axis=1))
    if not np.isfinite(norms).all():
        row = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise DataError(f"row {row} of X has a value that is not finite or too large to square")
    margin = _rounding_margin(X, norms)

    def search(block: IntArray) -> IntArray:
        # Without |a|^2, which is the same for all candidates of a row.
        distances = np.ascontiguousarray((X @ _dense(X[block]).T).T)
        distances *= -2
        distances += norms
        distances[np.arange(len(block)), block] = np.inf
        bound = np.partition(distances, k - 1, axis=1)[:, k - 1] + margin[block]
        pairs = np.flatnonzero(distances <= bound[:, None])
        query, candidate = np.divmod(pairs, X.shape[0])
        if margin.any():
            squared = _squared_distances(X, block[query], candidate)
        else:
            squared = distances.ravel()[pairs]
        return _first_of_each(query, candidate, squared, k)

    return search


def _rounding_margin(X: Features, norms: FloatArray) -> FloatArray:
    """Return a bound on the rounding error of the difference of two fast distances of a row."""
    if isinstance(X, np.ndarray):
        values, terms = X, X.shape[1]
    else:
        values, terms = X.data, int(np.diff(X.indptr).max())
    if 4 * norms.max() <= 2**53 and np.array_equal(values, np.rint(values)):
        return np.zeros_like(norms)  # sums of whole numbers are exact
    # Two distances, each off by at most 4 (terms + 4) u (|a|^2 + |b|^2), where u = eps / 2.
    return np.asarray(4 * (terms + 4) * np.finfo(np.float64).eps * (norms + norms.max()))


def _squared_distances(X: Features, first: IntArray, second: IntArray) -> FloatArray:
    """Return sum((a - b)^2) of pairs of rows, the same bit for bit for dense and sparse X."""
    size = max(1, _BLOCK_ENTRIES // X.shape[1])
    chunks = []
    for start in range(0, len(first), size):
        chunk = slice(start, start + size)
        difference = _dense(X[first[chunk]]) - _dense(X[second[chunk]])
        chunks.append((difference**2).sum(axis=1))
    return np.concatenate(chunks)


def _first_of_each(query: IntArray, candidate: IntArray, squared: FloatArray, k: int) -> IntArray:
    """Return the k nearest candidates of each query, by distance and then index."""
    order = np.lexsort((candidate, squared, query))
    counts = np.bincount(query)
    starts = np.cumsum(counts) - counts
    return np.asarray(candidate[order][starts[:, None] + np.arange(k)])


def _faiss_search(X: Features, k: int) -> Callable[[IntArray], IntArray]:
    """Return a function from a block of rows to their neighbors, through a faiss index."""
    if sparse.issparse(X):
        raise DataError('method="faiss" needs dense features, got sparse ones; use "exact"')
    faiss = require("faiss", extra="faiss")
    single = np.ascontiguousarray(X, dtype=np.float32)
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(single)
    X = X.astype(np.float64, copy=False)
    # More than twice as many as requested, since float32 may swap near neighbors.
    n_candidates = min(2 * k + 8, X.shape[0])

    def search(block: IntArray) -> IntArray:
        _, candidates = index.search(single[block], n_candidates)
        query, candidate = np.repeat(np.arange(len(block)), n_candidates), candidates.ravel()
        others = candidate != block[query]
        query, candidate = query[others], candidate[others]
        squared = _squared_distances(X, block[query], candidate)
        return _first_of_each(query, candidate, squared, k)

    return search


_SEARCHES = {"exact": _exact_search, "faiss": _faiss_search}


def _dense(X: Features) -> FloatArray:
    return np.asarray(X if isinstance(X, np.ndarray) else X.toarray())
