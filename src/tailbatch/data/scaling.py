"""Scalings of features: fitted on training rows, applied to any, sparse stays sparse.

Each is a plain dataclass of (d,) arrays, so that it can be saved and made again of them.

========= ============================================================ ==================================
name      what a value becomes                                         for
========= ============================================================ ==================================
minmax    its place in the column's range, clipped to [0, 1]           measurements
maxabs    its share of the column's largest absolute value             signed or sparse numbers
bounded   the same where that value is above 1, else as it is          weighted words, and numbers beside
standard  its distance from the mean in standard deviations            measurements
tfidf     its weight by how rare the feature is, rows of length 1      counts and words
========= ============================================================ ==================================
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.data.dataset import Features
from tailbatch.errors import DataError, setting
from tailbatch.registry import check_known
from tailbatch.seeds import FloatArray, IntArray

_MOSTLY_ZEROS = 0.5  # the share of values that are not, up to which features are scaled as sparse
_TOO_SMALL = 0.01  # a column of smaller values would hardly be seen beside others
_DOMINANT = 0.5  # the mean share of a row's squared length from which on a column is no word's


@dataclass(frozen=True, eq=False)
class Scaling(ABC):
    """What training rows say about the scale of features; the fields are (d,) arrays.

    Examples
    --------
    >>> scaling = fit_scaling("minmax", np.array([[0.0, 5.0], [10.0, 5.0]]))
    >>> scaling.name, scaling.transform(np.array([[2.0, 5.0], [20.0, 7.0]])).tolist()
    ('minmax', [[0.2, 0.0], [1.0, 0.0]])
    """

    name: ClassVar[str]
    unit_rows: ClassVar[bool] = False  # whether each row is then divided by its length

    @classmethod
    @abstractmethod
    def fit(cls, X: Features) -> Self:
        """Return the scaling of these training rows."""

    @abstractmethod
    def _scale(self, values: npt.NDArray[Any], columns: IntArray | slice) -> npt.NDArray[Any]:
        """Return the scaled values, each of its column."""

    def transform(self, X: Features) -> Features:
        """Return the scaled features; sparse ones stay sparse where zeros stay zeros."""
        n_features = len(getattr(self, fields(self)[0].name))
        if X.shape[1] != n_features:
            raise DataError(f"the scaling was fitted on {n_features} features, got {X.shape[1]}")
        zeros = np.zeros((1, n_features), dtype=X.dtype)
        if isinstance(X, np.ndarray) or self._scale(zeros, slice(None)).any():
            scaled = self._scale(X if isinstance(X, np.ndarray) else X.toarray(), slice(None))
            lengths = np.linalg.norm(scaled, axis=1, keepdims=True) if self.unit_rows else None
            return scaled if lengths is None else _divided(scaled, lengths)
        result = sparse.csr_array(X, copy=True)
        result.data = self._scale(result.data, result.indices)
        result.eliminate_zeros()
        if self.unit_rows:
            rows = np.repeat(np.arange(result.shape[0]), np.diff(result.indptr))
            squares = np.bincount(rows, weights=result.data**2, minlength=result.shape[0])
            result.data /= np.sqrt(squares)[rows].astype(result.dtype)
        return result


@dataclass(frozen=True, eq=False)
class _MinMaxScaling(Scaling):
    """A value x becomes (x - shift) / width, clipped to [low, 1]; a width of 0 makes the column 0.

    In sparse features zeros stay zeros, hence a column with negative values is divided by its largest
    absolute value, into [-1, 1].
    """

    name: ClassVar[str] = "minmax"

    shift: FloatArray
    width: FloatArray
    low: FloatArray

    @classmethod
    def fit(cls, X: Features) -> Self:
        if isinstance(X, np.ndarray):
            shift, top = X.min(axis=0), X.max(axis=0)
            return cls(shift, top - shift, np.zeros_like(shift))
        shift, top = X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()
        negative = shift < 0
        width = np.where(negative, np.maximum(-shift, top), top - shift)
        return cls(np.where(negative, 0, shift), width, -negative.astype(X.dtype))

    def _scale(self, values: npt.NDArray[Any], columns: IntArray | slice) -> npt.NDArray[Any]:
        scaled = _divided(values - self.shift[columns], self.width[columns])
        return np.clip(scaled, self.low[columns], 1, out=scaled)


@dataclass(frozen=True, eq=False)
class _MaxAbsScaling(Scaling):
    """Columns over their largest absolute value in training; a column of zeros there becomes 0."""

    name: ClassVar[str] = "maxabs"

    peak: FloatArray

    @classmethod
    def fit(cls, X: Features) -> Self:
        peak = abs(X).max(axis=0)
        return cls(peak if isinstance(peak, np.ndarray) else peak.toarray().ravel())

    def _scale(self, values: npt.NDArray[Any], columns: IntArray | slice) -> npt.NDArray[Any]:
        return _divided(values, self.peak[columns])


@dataclass(frozen=True, eq=False)
class _BoundedScaling(_MaxAbsScaling):
    """Columns over their largest absolute value in training, unless they are within [-1, 1] already.

    For words that are weighted already, as ``TfidfVectorizer`` leaves them: dividing each by its largest
    weight would undo what the weights say. A column with values below 0.01 only is divided, too.
    """

    name: ClassVar[str] = "bounded"

    @classmethod
    def fit(cls, X: Features) -> Self:
        peak = super().fit(X).peak
        return cls(np.where((peak >= _TOO_SMALL) & (peak <= 1), 1, peak).astype(X.dtype))


@dataclass(frozen=True, eq=False)
class _StandardScaling(Scaling):
    """Columns over their standard deviation, dense ones minus their mean; constant ones become 0."""

    name: ClassVar[str] = "standard"

    shift: FloatArray
    width: FloatArray

    @classmethod
    def fit(cls, X: Features) -> Self:
        if isinstance(X, np.ndarray):
            mean, width = X.mean(axis=0), X.std(axis=0)
            # Summing equal values may leave a rest of rounding, which is no spread.
            return cls(mean, np.where(np.ptp(X, axis=0) > 0, width, 0).astype(X.dtype))
        (n, d), at = X.shape, X.indices
        mean = np.bincount(at, weights=X.data, minlength=d) / n
        stored = np.bincount(at, minlength=d)
        apart = np.bincount(at, weights=(X.data - mean[at]) ** 2, minlength=d)
        deviation = np.sqrt((apart + (n - stored) * mean**2) / n)
        low, high = (edge.toarray().ravel() for edge in (X.min(axis=0), X.max(axis=0)))
        width = np.where(high > low, deviation, 0).astype(X.dtype)
        return cls(np.zeros_like(width), width)

    def _scale(self, values: npt.NDArray[Any], columns: IntArray | slice) -> npt.NDArray[Any]:
        return _divided(values - self.shift[columns], self.width[columns])


@dataclass(frozen=True, eq=False)
class _TfIdfScaling(Scaling):
    """Columns times ln((1 + n) / (1 + rows that have it)) + 1, as in scikit-learn, then unit rows.

    A feature that no training row has gets the weight 0: nothing could have been learned about it.
    """

    name: ClassVar[str] = "tfidf"
    unit_rows: ClassVar[bool] = True

    idf: FloatArray

    @classmethod
    def fit(cls, X: Features) -> Self:
        lowest = X.min()
        if lowest < 0:
            raise DataError(
                f"the scaling tfidf is for counts and words, and a feature has the value {lowest:g}; "
                "use minmax, maxabs, bounded or standard"
            )
        rows: Any = X
        present = np.asarray((rows != 0).sum(axis=0)).ravel()
        idf = np.log((1 + X.shape[0]) / (1 + present)) + 1
        return cls(np.where(present > 0, idf, 0).astype(X.dtype))

    def _scale(self, values: npt.NDArray[Any], columns: IntArray | slice) -> npt.NDArray[Any]:
        return values * self.idf[columns]


SCALINGS: dict[str, type[Scaling]] = {
    scaling.name: scaling
    for scaling in (
        _MinMaxScaling,
        _MaxAbsScaling,
        _BoundedScaling,
        _StandardScaling,
        _TfIdfScaling,
    )
}
"""Every scaling by name."""


def fit_scaling(
    scale: bool | str, X: Features, *, leave: Sequence[tuple[int, int]] = ()
) -> Scaling | None:
    """Return the scaling that `scale` asks for, fitted on training rows; None for none.

    That is a name in `SCALINGS`, ``"auto"`` for `suggested_scaling`, True for ``"minmax"``, or False.
    `leave` holds first column and number of columns to leave as they are, for instance numbers of tokens;
    only ``"bounded"`` can.

    Examples
    --------
    >>> fit_scaling("maxabs", np.array([[-2.0], [1.0]])).peak.tolist()
    [2.0]
    >>> fit_scaling(False, np.eye(2)) is None
    True
    >>> fit_scaling("maxbas", np.eye(2))
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: unknown scaling 'maxbas'; did you mean 'maxabs'? Known: minmax, ...
    """
    if isinstance(scale, bool | np.bool_):
        if not scale:
            return None
        scale = "minmax"
    if X.shape[0] == 0:
        raise DataError("scaling needs at least one training row, got none")
    name = suggested_scaling(X) if scale == "auto" else scale
    check_known("scaling", name, [*SCALINGS, "auto"], error=DataError)
    if leave and name != "bounded":
        raise DataError(
            f"the tokens of texts cannot be scaled by {name!r}: choose {setting('scale', 'bounded')} or "
            "leave it out"
        )
    scaling = SCALINGS[name].fit(X)
    if isinstance(scaling, _BoundedScaling):
        for start, width in leave:
            scaling.peak[start : start + width] = 1
    return scaling


def suggested_scaling(X: Features) -> str:
    """Return a scaling by what the features are: words or counts, other sparse numbers, or dense ones.

    Mostly zeros and else whole numbers above 0 are words or counts: ``tfidf``, unless one column makes up
    most of the rows' length, as a population does beside a few yes-or-no columns. Other features that
    are mostly zeros keep their zeros and signs: ``bounded``. The rest are measurements: ``standard``.

    Examples
    --------
    >>> words = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    >>> suggested_scaling(words), suggested_scaling(words * 0.4), suggested_scaling(words + 1)
    ('tfidf', 'bounded', 'standard')
    >>> suggested_scaling(np.array([[0.0, 2.0, 5000.0, 0.0], [1.0, 0.0, 700.0, 0.0]]))
    'standard'
    """
    values = X[X != 0] if isinstance(X, np.ndarray) else X.data
    if values.size > _MOSTLY_ZEROS * X.shape[0] * X.shape[1]:
        return "standard"
    if not ((values >= 0).all() and (values == np.rint(values)).all()):
        return "bounded"
    # In double precision: squares of whole numbers overflow. A sparse matrix times itself is a product.
    wide: Any = X.astype(np.float64)
    squares = wide**2 if isinstance(X, np.ndarray) else wide.power(2)
    lengths = np.asarray(squares.sum(axis=1)).ravel()
    shares = _divided(np.ones_like(lengths), lengths) @ squares / X.shape[0]
    return "standard" if shares.max(initial=0) > _DOMINANT else "tfidf"


def _divided(values: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the quotients in the type of the values, 0 where the divisor is."""
    out = np.zeros_like(values)
    # A value far outside a narrow range may overflow.
    with np.errstate(over="ignore"):
        np.divide(values, by, out=out, where=by > 0)
    return out
