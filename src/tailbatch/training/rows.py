"""Rows held in memory and returned as batches: dense tensors, or CSR for models that accept them."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tailbatch.data import Features, LabelMatrix, MultiLabelDataset
from tailbatch.models import MultiLabelModel

_SPARSE_SHARE = 0.1  # of features not zero, up to which sparse products are faster (measured)
_SCORED_ROWS = 1024  # at a time


class Rows:
    """The rows of one matrix, held once and fetched by index as float32 tensors on a device.

    A CSR matrix stays CSR, and only the rows of a batch are expanded. Batches for a `model` that accepts
    sparse features are CSR tensors if few features are not zero. Labels take one byte each.

    Examples
    --------
    >>> Rows(np.eye(3)).fetch(np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        matrix: Features | LabelMatrix,
        device: torch.device | str = "cpu",
        *,
        model: MultiLabelModel | None = None,
    ) -> None:
        self.device = torch.device(device)
        self._n_rows, n_columns = map(int, matrix.shape)
        dtype = np.bool_ if matrix.dtype == np.bool_ else np.float32
        self._matrix: Tensor | sparse.csr_array
        self._sparse_batches = False
        if sparse.issparse(matrix):
            self._matrix = sparse.csr_array(matrix, dtype=dtype)
            # On accelerators dense batches are cheap, and not every device has the sparse kernels.
            if model is not None and model.takes_sparse and self.device.type == "cpu":
                few = _SPARSE_SHARE * self._n_rows * n_columns
                self._sparse_batches = bool(self._matrix.nnz <= few)
        else:
            # A copy, so that the caller's array is not aliased and torch accepts a read-only one.
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
        shape = len(index), self._matrix.shape[1]
        # By hand, because matrix[index] builds and checks another scipy matrix: several times slower.
        start = self._matrix.indptr[index]
        length = self._matrix.indptr[index + 1] - start
        offsets = np.zeros(len(index) + 1, dtype=self._matrix.indices.dtype)
        np.cumsum(length, out=offsets[1:])
        position = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], length)
        columns, values = self._matrix.indices[position], self._matrix.data[position]
        if self._sparse_batches:
            # Checking the invariants, which hold, would take longer than the rest.
            return torch.sparse_csr_tensor(
                torch.from_numpy(offsets),
                torch.from_numpy(columns),
                torch.from_numpy(values),
                shape,
                check_invariants=False,
            ).to(self.device)
        dense = np.zeros(shape, dtype=np.float32)
        dense[np.repeat(np.arange(len(index)), length), columns] = values
        return torch.from_numpy(dense).to(self.device)

    def chunks(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in order, `size` at a time."""
        return (self.fetch(index) for index in _in_order(len(self), size))

    def share_in_use(self, size: int) -> float:
        """Return the expected share of columns with a value in a random batch of b rows.

        The mean over columns of 1 - (1 - s)^b, where s is the share of rows with a value; 1 for batches
        that are not sparse.
        """
        if isinstance(self._matrix, Tensor) or not self._sparse_batches or self._n_rows == 0:
            return 1.0
        counts = np.bincount(self._matrix.indices, minlength=self._matrix.shape[1])
        return float(np.mean(1 - (1 - counts / self._n_rows) ** size))


def score_rows(score: Callable[[Tensor], Tensor], rows: Rows) -> np.ndarray:
    """Apply a model, or its ``predict_proba``, to all rows without gradient; return (n, q).

    Examples
    --------
    >>> score_rows(lambda x: 2 * x, Rows(np.eye(2))).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    with torch.no_grad():
        return np.concatenate([score(x).cpu().numpy() for x in rows.chunks(_SCORED_ROWS)])


def held_out_logits(model: MultiLabelModel, rows: Rows, part: Tensor) -> np.ndarray:
    """Return the calibrated logits (n, q) of rows by the members that have not seen each one's part."""
    model.eval()
    parts = iter(torch.split(part, _SCORED_ROWS))
    return score_rows(lambda x: model.calibrated(model.held_out(x, next(parts))), rows)


class LabeledRows:
    """The features and labels of a dataset, held once and fetched by index; missing labels are NaN.

    Examples
    --------
    >>> data = MultiLabelDataset.from_arrays(np.eye(3), np.eye(3, 2, dtype=bool))
    >>> x, y = LabeledRows(data).fetch(np.array([2, 0]))
    >>> x.tolist(), y.tolist()
    ([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]])
    """

    def __init__(
        self,
        dataset: MultiLabelDataset,
        device: torch.device | str = "cpu",
        *,
        model: MultiLabelModel | None = None,
    ) -> None:
        self.x = Rows(dataset.X, device, model=model)
        self.y = Rows(dataset.Y, device)
        self._missing = None if dataset.missing is None else Rows(dataset.missing, device)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def has_missing(self) -> bool:
        """Whether some labels are missing, and y therefore holds NaN."""
        return self._missing is not None

    def fetch(self, index: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the rows `index` as x (b, d) and y (b, q)."""
        y = self.y.fetch(index)
        if self._missing is not None:
            y = y.masked_fill(self._missing.fetch(index) > 0, torch.nan)
        return self.x.fetch(index), y

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all rows in order, `size` at a time."""
        return (self.fetch(index) for index in _in_order(len(self), size))


def _in_order(n_rows: int, size: int) -> Iterator[np.ndarray]:
    for start in range(0, n_rows, size):
        yield np.arange(start, min(start + size, n_rows))
