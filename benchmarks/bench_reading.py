"""Reading ARFF, compared with liac-arff for sparse files and pandas' CSV reader for dense ones."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import arff
import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from benchmarks.harness import interleaved, peak_bytes, publish, table
from tailbatch.data import read_arff

#: Rows, features, labels and non-zeros per row of the published files, for stand-ins.
SHAPES = {
    "bibtex": (7395, 1836, 159, 71),
    "rcv1subset1": (6000, 47236, 101, 80),
    "scene": (2407, 294, 6, 0),
    "yeast": (2417, 103, 14, 0),
}


def main() -> None:
    with TemporaryDirectory() as folder:
        files = {name: _file(name, Path(folder)) for name in SHAPES}
        rows = [_sparse_row(name, files[name]) for name in ("bibtex", "rcv1subset1")]
        rows += [_dense_row(name, files[name]) for name in ("scene", "yeast")]
    header = ["file", "MB", "peer", "peer s", "ours s", "ratio", "target", "peak / file", "target"]
    kind = "the published files" if _published() else "generated files of the same shapes"
    publish(
        "reading",
        f"## Reading ARFF\n\n`make bench ONLY=reading`, on {kind}.\n\n" + table(header, rows),
    )


def _published() -> Path | None:
    folder = os.environ.get("TAILBATCH_DATA")
    return Path(folder) if folder else None


def _file(name: str, folder: Path) -> Path:
    """Put an uncompressed file and its XML into the folder."""
    path = folder / f"{name}.arff"
    source = _published()
    if source is None:
        _write_stand_in(name, path)
    else:
        with gzip.open(source / name / f"{name}.arff.gz") as packed, path.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        shutil.copy(source / name / f"{name}.xml", folder)
    return path


def _write_stand_in(name: str, path: Path) -> None:
    n, d, q, per_row = SHAPES[name]
    rng = np.random.default_rng(0)
    feature = "{0,1}" if name == "bibtex" else "numeric"
    lines = [f"@relation '{name}: -C -{q}'"]
    lines += [f"@attribute Att{i} {feature}" for i in range(d)]
    lines += [f"@attribute Class{i} {{0,1}}" for i in range(q)]
    lines.append("@data")
    for _ in range(n):
        if per_row:
            columns = np.sort(rng.choice(d + q, per_row, replace=False))
            values = np.ones(per_row) if feature == "{0,1}" else rng.random(per_row).round(6)
            values[columns >= d] = 1
            pairs = zip(columns.tolist(), values.tolist(), strict=True)
            lines.append("{" + ",".join(f"{i} {v:g}" for i, v in pairs) + "}")
        else:
            numbers = [f"{value:.6f}" for value in rng.normal(size=d)]
            lines.append(",".join(numbers + [str(bit) for bit in rng.integers(2, size=q)]))
    path.write_text("\n".join(lines) + "\n")


def _row(
    name: str, path: Path, peer: str, work: Callable[[], object], ratio: str, target: str
) -> list[str]:
    seconds = interleaved({peer: work, "ours": lambda: read_arff(path)}, rounds=9)
    size = path.stat().st_size
    quotient = seconds[peer] / seconds["ours"]
    shown = f"{quotient:.1f}x faster" if ratio == "faster" else f"{1 / quotient:.2f}x its time"
    peak = peak_bytes(lambda: read_arff(path)) / size
    times = [f"{seconds[peer]:.3f}", f"{seconds['ours']:.3f}"]
    return [name, f"{size / 1e6:.1f}", peer, *times, shown, target, f"{peak:.1f}x"]


def _sparse_row(name: str, path: Path) -> list[str]:
    def to_csr() -> csr_array:
        with path.open() as stream:
            values, rows, columns = arff.load(stream, return_type=arff.COO)["data"]
        return csr_array((np.array(values, dtype=np.float64), (rows, columns)))

    return [*_row(name, path, "liac-arff to CSR", to_csr, "faster", "5x faster"), "under 4x"]


def _dense_row(name: str, path: Path) -> list[str]:
    numbers = path.with_suffix(".csv")
    content = path.read_bytes()
    numbers.write_bytes(content[content.lower().index(b"@data") + len(b"@data\n") :])

    def to_array() -> object:
        return pd.read_csv(numbers, header=None, engine="c").to_numpy()

    return [*_row(name, path, "pandas CSV", to_array, "within", "within 2x"), ""]
