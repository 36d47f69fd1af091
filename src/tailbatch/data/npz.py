"""Datasets in NumPy's npz files: compact, written deterministically, read without pickle."""

import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.sparse import NumberedNames
from tailbatch.data.text import MAX_COLUMNS, array_limit, stem
from tailbatch.errors import DataError
from tailbatch.files import replacing

#: What a number and a name take once they are read.
_NUMBER_BYTES, _NAME_BYTES = 8, 128
_CHUNK = 1 << 20

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
            entries = archive.infolist()
            limit = array_limit(path.stat().st_size)
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


class _Header(NamedTuple):
    """What an array claims to be."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of its values."""
        return int(np.prod([int(side) for side in self.shape], dtype=object))


def _header(stream: IO[bytes], entry: ZipInfo) -> _Header:
    """Read the header of one array; refuse unsafe types and sizes that are not those of the file."""
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"{entry.filename} has the unknown npy version {version}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it was written by Python 2
        header = _Header(*read_header(stream))
    if header.dtype.hasobject:
        raise ValueError(f"{entry.filename} holds Python objects; save numbers and strings only")
    if header.dtype.itemsize == 0 and header.size:
        raise ValueError(f"{entry.filename} has the type {header.dtype.str!r}, which holds nothing")
    if header.size * header.dtype.itemsize != entry.file_size - stream.tell():
        raise ValueError(
            f"{entry.filename} claims the shape {header.shape}, which its size contradicts"
        )
    return header


def _memory(archive: ZipFile, entry: ZipInfo) -> int:
    """Return the bytes an array takes once it is numbers or names, as its header claims."""
    with archive.open(entry) as stream:
        header = _header(stream, entry)
    least = _NAME_BYTES if header.dtype.kind in "SU" else _NUMBER_BYTES
    return header.size * max(header.dtype.itemsize, least)


def _array(archive: ZipFile, entry: ZipInfo) -> NDArray[Any]:
    """Read one array."""
    with archive.open(entry) as stream:
        header = _header(stream, entry)
        values = bytearray(header.size * header.dtype.itemsize)
        _fill(values, stream)
    array = np.frombuffer(values, header.dtype, header.size)
    return array.reshape(header.shape, order="F" if header.is_fortran else "C")


def _fill(values: bytearray, stream: IO[bytes]) -> None:
    """Read a stream into place: an array is in memory once, not twice."""
    rest = memoryview(values)
    while len(rest):
        piece = stream.read(min(len(rest), _CHUNK))
        if not piece:
            raise EOFError("it ends early")
        rest[: len(piece)] = piece
        rest = rest[len(piece) :]
    stream.read(1)  # the end of a member is where its checksum is compared


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
