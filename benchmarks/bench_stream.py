"""Selection of rows that pass by: time a row in batches of 1,000, and memory at any number of rows."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import numpy as np
from scipy import sparse

from benchmarks.harness import interleaved, peak_bytes, publish, table
from tailbatch.data import load_dataset
from tailbatch.selection import StreamSelector, count_labels

BATCH = 1000
BATCHES = 20
TARGET = 2.0


def main() -> None:
    """Time each form of labels, and measure what a long stream holds."""
    parts = [
        "## Streams\n\n"
        f"`StreamSelector.draw` in batches of {BATCH:,}, processor time of one thread at load "
        f"{os.getloadavg()[1]:.0f} on {os.cpu_count()} cores; labels of debtags, 119 labels, NumPy "
        f"{np.__version__}. The same rows again and again, each time under other row numbers.",
        table(["labels are", "microseconds a row", "target"], _time_rows()),
        table(["`select` with a buffer of 4,096", "peak memory, MB", "target"], _memory_rows()),
    ]
    publish("stream", "\n\n".join(parts))


def _time_rows() -> list[list[str]]:
    data = load_dataset("debtags")
    Y = np.asarray(data.Y[:BATCH], dtype=bool)
    names = [f"label {number}" for number in range(Y.shape[1])]
    lists = [[names[column] for column in row.nonzero()[0]] for row in Y]
    forms = {
        "rows of CSR": (sparse.csr_array(Y), count_labels(data.Y)),
        "rows of a dense matrix": (Y, count_labels(data.Y)),
        "lists of names": (lists, count_labels(lists, names=names)),
    }

    def work(labels: object, selector: StreamSelector) -> None:
        for batch in range(BATCHES):
            selector.draw(labels, batch * BATCH)

    contenders: dict[str, Callable[[], object]] = {
        name: partial(work, labels, StreamSelector(counts))
        for name, (labels, counts) in forms.items()
    }
    seconds = interleaved(contenders, rounds=21, clock=time.process_time)
    return [
        [name, f"{value / (BATCH * BATCHES) * 1e6:.2f}", f"at most {TARGET:g}"]
        for name, value in seconds.items()
    ]


def _memory_rows() -> list[list[str]]:
    data = load_dataset("debtags")
    rows = [sorted(row.nonzero()[0].astype(str).tolist()) for row in np.asarray(data.Y)]
    selector = StreamSelector(count_labels(rows))

    def passing(n: int) -> Iterator[list[str]]:
        for number in range(n):
            yield list(rows[number % len(rows)])

    def pass_all(n: int) -> None:
        drawn = selector.select(passing(n), lambda row: row)
        while list(islice(drawn, BATCH)):
            pass

    peaks = {n: peak_bytes(partial(pass_all, n)) / 1e6 for n in (10**4, 10**5, 10**6)}
    return [[f"{n:.0e} rows", f"{peak:.1f}", "the same"] for n, peak in peaks.items()]


if __name__ == "__main__":
    main()
