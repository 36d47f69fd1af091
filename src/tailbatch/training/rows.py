"""Rows held in memory and handed out as dense batches of tensors."""

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tailbatch.data import Features, LabelMatrix, MultiLabelDataset


class Rows:
    """The rows of one matrix, held once and fetched by index as dense float32 tensors.

    A dense matrix lives on the device; a CSR matrix stays CSR, and only the rows of a batch are
    written out. Labels are held as one byte each.

    Parameters
    ----------
    matrix
        Scaled features, or labels.
    device
        Where batches are wanted.

    Examples
    --------
    >>> Rows(np.eye(3)).fetch(np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    def __init__(self, matrix: Features | LabelMatrix, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._n_rows = int(matrix.shape[0])
        dtype = np.bool_ if matrix.dtype == np.bool_ else np.float32
        self._matrix: Tensor | sparse.csr_array
        if sparse.issparse(matrix):
            self._matrix = sparse.csr_array(matrix, dtype=dtype)
        else:
            # A copy, so that no caller's array is aliased and no read-only one complained about.
            self._matrix = torch.from_numpy(np.array(matrix, dtype=dtype)).to(self.device)

    def __len__(self) -> int:
        return self._n_rows

    def fetch(self, index: np.ndarray) -> Tensor:
        """Return the rows `index` in that order, (b, columns) float32."""
        if isinstance(self._matrix, Tensor):
            position = torch.from_numpy(index)
            if self.device.type != "cpu":
                position = position.to(self.device)
            rows = self._matrix.index_select(0, position)
            return rows if rows.dtype == torch.float32 else rows.float()
        return torch.from_numpy(dense_rows(self._matrix, index)).to(self.device)

    def chunks(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.fetch(np.arange(start, min(start + size, len(self))))


class LabeledRows:
    """The features and labels of a dataset, held once and fetched by index.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(np.eye(3), np.eye(3, 2, dtype=bool))
    >>> x, y = LabeledRows(data).fetch(np.array([2, 0]))
    >>> x.tolist(), y.tolist()
    ([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]])
    """

    def __init__(self, dataset: MultiLabelDataset, device: torch.device | str = "cpu") -> None:
        self.x = Rows(dataset.X, device)
        self.y = Rows(dataset.Y, device)

    def __len__(self) -> int:
        return len(self.x)

    def fetch(self, index: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the rows `index` as x (b, d) and y (b, q)."""
        return self.x.fetch(index), self.y.fetch(index)

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all rows in order, `size` at a time."""
        return zip(self.x.chunks(size), self.y.chunks(size), strict=True)


def dense_rows(matrix: sparse.csr_array, index: np.ndarray) -> np.ndarray:
    """Return the rows `index` of a CSR matrix as a dense float32 array.

    Several times faster than ``matrix[index].toarray()``, which builds a sparse matrix on the way.

    Examples
    --------
    >>> dense_rows(sparse.csr_array([[0, 2], [3, 0]]), np.array([1, 1, 0])).tolist()
    [[3.0, 0.0], [3.0, 0.0], [0.0, 2.0]]
    """
    start = matrix.indptr[index]
    length = matrix.indptr[index + 1] - start
    end = np.cumsum(length)
    row = np.repeat(np.arange(len(index)), length)
    position = np.arange(len(row)) + np.repeat(start - (end - length), length)
    out = np.zeros((len(index), matrix.shape[1]), dtype=np.float32)
    out[row, matrix.indices[position]] = matrix.data[position]
    return out
