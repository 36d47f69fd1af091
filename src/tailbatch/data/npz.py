"""Datasets in NumPy's npz files: compact, written deterministically, read without pickle."""

import warnings
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.text import MAX_COLUMNS, stem, unpacked_limit
from tailbatch.errors import DataError
from tailbatch.files import replacing

#: What broken archives and headers raise; encryption is a RuntimeError, odd headers the last three.
_UNREADABLE = (
    BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, TokenError, SyntaxError,
    TypeError,
)  # fmt: skip


def save_npz(dataset: MultiLabelDataset, path: str | Path) -> None:
    """Write a dataset as an npz file; the same dataset gives the same bytes.

    Parameters
    ----------
    dataset
        The dataset; its notices are not kept.
    path
        The file; an existing one is replaced as a whole.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.npz")
    >>> data = MultiLabelDataset.from_arrays(np.eye(3), np.eye(3), name="tiny")
    >>> save_npz(data, path)
    >>> read_npz(path).digest == data.digest
    True
    """
    arrays = {
        "name": np.array(dataset.name),
        "feature_names": np.array(dataset.feature_names, dtype=np.str_),
        "label_names": np.array(dataset.label_names, dtype=np.str_),
        **_sparse_parts("Y", csr_array(dataset.Y)),
        **(_sparse_parts("X", dataset.X) if dataset.is_sparse else {"X": dataset.X}),
    }
    with replacing(path) as temporary:
        np.savez_compressed(temporary, allow_pickle=False, **arrays)


def _sparse_parts(key: str, matrix: csr_array) -> dict[str, NDArray[Any]]:
    # Small integers compress better as what they are than as 32 bits.
    indices, indptr = (
        part.astype(np.min_scalar_type(part.max(initial=0)))
        for part in (matrix.indices, matrix.indptr)
    )
    return {
        f"{key}_data": matrix.data,
        f"{key}_indices": indices,
        f"{key}_indptr": indptr,
        f"{key}_shape": np.array(matrix.shape, dtype=np.int64),
    }


def read_npz(path: str | Path) -> MultiLabelDataset:
    """Read a dataset from an npz file: ours, or any with arrays ``X`` and ``Y``.

    Parameters
    ----------
    path
        The file. Instead of ``X`` there may be ``X_data``, ``X_indices``, ``X_indptr`` and
        ``X_shape``, the parts of a CSR array, and the same for ``Y``; ``name``, ``feature_names``
        and ``label_names`` are optional.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "mine.npz")
    >>> np.savez(path, X=np.eye(2), Y=np.eye(2, dtype=bool))
    >>> read_npz(path)
    MultiLabelDataset('mine', 2 samples, 2 features, 2 labels)
    """
    path = Path(path)
    arrays = read_arrays(path)
    try:
        return MultiLabelDataset.from_arrays(
            _matrix(arrays, "X"),
            _matrix(arrays, "Y"),
            name=str(arrays.get("name", stem(path))),
            feature_names=_names(arrays, "feature_names"),
            label_names=_names(arrays, "label_names"),
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file by name, each as large as its header claims.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "some.npz")
    >>> np.savez(path, losses=np.arange(3))
    >>> read_arrays(path)
    {'losses': array([0, 1, 2])}
    """
    try:
        with ZipFile(path) as archive:
            limit = unpacked_limit(path.stat().st_size)
            if sum(entry.file_size for entry in archive.infolist()) > limit:
                raise ValueError(f"it would unpack to more than {limit >> 20:,} MiB")
            return {
                entry.filename.removesuffix(".npy"): _array(archive, entry.filename)
                for entry in archive.infolist()
            }
    except _UNREADABLE as error:
        raise DataError(
            f"{path} is no readable npz file ({error}); copy or write it again"
        ) from None


def _names(arrays: dict[str, NDArray[Any]], key: str) -> list[str] | None:
    if key not in arrays:
        return None
    if arrays[key].ndim != 1:
        raise DataError(f"{key} must be a list of names, got shape {arrays[key].shape}")
    return [str(name) for name in arrays[key]]


def _array(archive: ZipFile, entry: str) -> NDArray[Any]:
    """Read one array after checking that it is as large as its header claims."""
    size = archive.getinfo(entry).file_size
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"{entry} has the unknown npy version {version}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it was written by Python 2
            shape, is_fortran, dtype = read_header(stream)
        if dtype.hasobject:
            raise ValueError(f"{entry} holds Python objects; save numbers and strings only")
        count = int(np.prod([int(side) for side in shape], dtype=object))
        if count * dtype.itemsize != size - stream.tell():
            raise ValueError(f"{entry} claims the shape {shape}, which its size contradicts")
        values = np.frombuffer(bytearray(stream.read()), dtype, count)
    return values.reshape(shape, order="F" if is_fortran else "C")


def _matrix(arrays: dict[str, NDArray[Any]], key: str) -> Any:
    if key in arrays:
        return arrays[key]
    try:
        data, indices, indptr, shape = (
            arrays[f"{key}_{part}"] for part in ("data", "indices", "indptr", "shape")
        )
    except KeyError:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(
            f"there is no array {key} (nor {key}_data etc.); it holds {found}"
        ) from None
    try:
        n_rows, n_columns = (int(side) for side in shape)
        if n_columns > MAX_COLUMNS:
            raise ValueError(f"{n_columns:,} columns are too many, at most {MAX_COLUMNS:,} fit")
        matrix = csr_array(
            (data, indices.astype(np.int64), indptr.astype(np.int64)), shape=(n_rows, n_columns)
        )
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"the parts of {key} make no CSR array: {error}") from None
    return matrix
