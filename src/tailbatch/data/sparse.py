"""Sparse rows, block after block, into one CSR array."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array


class CsrBuilder:
    """Append blocks of sparse rows and end with a CSR array.

    Bytes are appended to `bytearray` buffers, which grow in place, and the array uses them as they
    are: the peak of memory is little more than the result.

    Parameters
    ----------
    dtype
        Of the values.

    Examples
    --------
    >>> rows = CsrBuilder(np.float64)
    >>> rows.append(np.array([2, 0]), np.array([0, 2]), np.array([0.5, 1.0]))
    >>> rows.append(np.array([1]), np.array([1]), np.array([2.0]))
    >>> rows.build(3).toarray()
    array([[0.5, 0. , 1. ],
           [0. , 0. , 0. ],
           [0. , 2. , 0. ]])
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.n_rows = 0
        self._dtype = np.dtype(dtype)
        self._counts, self._columns, self._values = bytearray(), bytearray(), bytearray()

    def append(self, counts: NDArray[Any], columns: NDArray[Any], values: NDArray[Any]) -> None:
        """Append rows, given entries per row and each entry's column and value."""
        self.n_rows += len(counts)
        self._counts += counts.astype(np.int64, copy=False).tobytes()
        self._columns += columns.astype(np.int32, copy=False).tobytes()
        self._values += values.astype(self._dtype, copy=False).tobytes()

    def build(self, n_columns: int) -> csr_array:
        """Return the rows so far, with sorted columns."""
        indptr = np.zeros(self.n_rows + 1, dtype=np.int64)
        np.cumsum(np.frombuffer(self._counts, np.int64), out=indptr[1:])
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # the type of the columns, else SciPy copies both
        values = np.frombuffer(self._values, self._dtype)
        columns = np.frombuffer(self._columns, np.int32)
        result = csr_array((values, columns, indptr), shape=(self.n_rows, n_columns))
        result.sort_indices()
        return result
