"""Datasets in NumPy's npz files: compact, written deterministically, read without pickle."""

import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.sparse import NumberedNames
from tailbatch.data.text import MAX_COLUMNS, _array_limit, stem
from tailbatch.errors import DataError
from tailbatch.files import replacing

#: What a number and a name take once they are read.
_NUMBER_BYTES, _NAME_BYTES = 8, 128

#: What broken archives and headers raise; encryption is a RuntimeError, odd headers the last three.
_UNREADABLE = (
    BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, TokenError, SyntaxError,
    TypeError,
)  # fmt: skip


def save_npz(dataset: MultiLabelDataset, path: str | Path) -> None:
    """Write a dataset, without its notices, as an npz file; the same dataset gives the same bytes.

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
        **_named("feature", dataset.feature_names),
        **_named("label", dataset.label_names),
        **_sparse_parts("Y", csr_array(dataset.Y)),
        **(_sparse_parts("X", dataset.X) if dataset.is_sparse else {"X": dataset.X}),
    }
    with replacing(path) as temporary:
        np.savez_compressed(temporary, allow_pickle=False, **arrays)


def _named(what: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return names as an array; those a reader would give anyway are left out."""
    if names == NumberedNames(f"{what}_", range(len(names))):
        return {}
    return {f"{what}_names": np.array(list(names), dtype=np.str_)}


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


def read_npz(path: Path) -> MultiLabelDataset:
    """Read a dataset from an npz file: ours, or any with arrays ``X`` and ``Y``."""
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
    """Return the arrays of an npz file by name, each as large as its header claims."""
    try:
        with ZipFile(path) as archive:
            entries = archive.infolist()
            limit = _array_limit(path.stat().st_size)
            if sum(_memory(archive, entry) for entry in entries) > limit:
                raise DataError(
                    f"{path}: its arrays would take more than {limit >> 20:,} MiB; if you trust "
                    "it, raise tailbatch.data.text.MAX_EXPANSION"
                )
            return {
                entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries
            }
    except DataError:
        raise
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


def _memory(archive: ZipFile, entry: ZipInfo) -> int:
    """Return the bytes an array takes once it is numbers or names, as its header claims.

    Unsafe types, and sizes that are not those of the file, are refused.
    """
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"{entry.filename} has the unknown npy version {version}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it was written by Python 2
            shape, _, dtype = read_header(stream)
        size = int(np.prod([int(side) for side in shape], dtype=object))
        if dtype.hasobject:
            raise ValueError(
                f"{entry.filename} holds Python objects; save numbers and strings only"
            )
        if dtype.itemsize == 0 and size:
            raise ValueError(f"{entry.filename} has the type {dtype.str!r}, which holds nothing")
        if size * dtype.itemsize != entry.file_size - stream.tell():
            raise ValueError(
                f"{entry.filename} claims the shape {shape}, which its size contradicts"
            )
    return size * max(dtype.itemsize, _NAME_BYTES if dtype.kind in "SU" else _NUMBER_BYTES)


def _array(archive: ZipFile, entry: ZipInfo) -> NDArray[Any]:
    """Read one array, whose header was checked."""
    with archive.open(entry) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it was written by Python 2
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # the end of a member is where its checksum is compared
    return array


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
