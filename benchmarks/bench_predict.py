"""``tailbatch predict`` of long Parquet files: memory and throughput, from 10^4 rows on."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.harness import publish, table
from tailbatch.estimator import TailbatchClassifier

COLUMNS, LABELS, GROUP = 50, 10, 100_000
SIZES = [10**4, 10**5, 10**6, *([10**7] if os.environ.get("ROWS_1E7") else [])]
MOST_BYTES, LEAST_SPEED = 1.5e9, 0.8

# Processor time and the peak of a process of its own, as a user's command is one.
MEASURED = """
import json, resource, sys, time
from tailbatch.cli import app
start = time.process_time()
try:
    app.app(sys.argv[1:], standalone_mode=False)
finally:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("measured", json.dumps([time.process_time() - start, peak]))
"""


def main() -> None:
    """Fit a small network, and score files of growing length."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _fit(folder / "model")
        found = {n: _score(folder, n) for n in SIZES}
    rows = [
        [f"{n:.0e}", f"{peak / 1e6:,.0f}", f"{seconds:.1f}", _speed(n, found)]
        for n, (seconds, peak) in found.items()
    ]
    header = ["rows", "peak memory, MB", "seconds", "speed against 1e+05"]
    publish(
        "predict",
        "## Predicting long files\n\n"
        f"`tailbatch predict` from Parquet to Parquet, {COLUMNS} numbers a row, {LABELS} labels, an MLP; "
        f"row groups of {GROUP:,}. Resident memory of the process; processor seconds of one thread, "
        f"imports included, which the speed leaves out by taking off the time of 1e+04 rows. At most "
        f"{MOST_BYTES / 1e9:g} GB and at least {LEAST_SPEED:g} of the speed is the aim.\n\n"
        + table(header, rows),
    )


def _speed(n: int, found: dict[int, tuple[float, float]]) -> str:
    """Return rows a second against those at 10^5, both without what 10^4 rows cost."""
    least = min(found)
    if n == least:
        return ""
    cost = {m: (found[m][0] - found[least][0]) / (m - least) for m in (n, 10**5)}
    return f"{cost[10**5] / cost[n]:.2f}"


def _fit(folder: Path) -> None:
    X = pd.DataFrame(next(_blocks(5_000))).add_prefix("x")
    Y = X.iloc[:, :LABELS] > 0.7
    classifier = TailbatchClassifier("mlp", epochs=2, random_state=0, device="cpu")
    classifier.fit(X, Y.add_prefix("y").astype(int)).save(folder)


def _blocks(n: int) -> Iterator[NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    for start in range(0, n, GROUP):
        yield rng.random((min(GROUP, n - start), COLUMNS))


def _score(folder: Path, n: int) -> tuple[float, float]:
    data, out = folder / "data.parquet", folder / "scores.parquet"
    names = [f"x{k}" for k in range(COLUMNS)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pq.ParquetWriter(data, schema) as writer:
        for block in _blocks(n):
            writer.write_table(pa.table(list(block.T), names=names))
    command = ["predict", folder / "model", data, "--out", out, "--overwrite"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, command)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = json.loads(done.stdout.split("measured")[1])
    assert pq.ParquetFile(out).metadata.num_rows == n  # noqa: S101 # else the figures mean nothing
    print(f"{n:,} rows: {seconds:.1f} s, {peak / 1e6:,.0f} MB", flush=True)
    return seconds, peak


if __name__ == "__main__":
    main()
