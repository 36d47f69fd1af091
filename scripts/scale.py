"""Measure what importance selection costs at many rows, and write it into docs/large_data.md.

    python scripts/scale.py                 one and ten million rows: a minute, 3 GB
    python scripts/scale.py 1e6 1e7 1e8     a hundred million as well: some minutes, 12 GB

The labels are as many and as rare as those of GoEmotions. A selector needs no features.
"""

import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from tailbatch.selection import ImportanceSelector

PAGE = Path(__file__).resolve().parent.parent / "docs" / "large_data.md"
MARKS = "<!-- selectors: python scripts/scale.py -->", "<!-- end of selectors -->"
LABELS, CARDINALITY, BATCH, BATCHES = 28, 1.18, 1024, 30
SHARDS = 10_000


def main() -> None:
    """Measure each size, print the tables and put them into the page."""
    sizes = [int(float(size)) for size in sys.argv[1:]] or [10**6, 10**7]
    rows, shards = [], []
    for n in sizes:
        labels = made_labels(n)
        label_bytes = (labels.data.nbytes + labels.indices.nbytes + labels.indptr.nbytes) / n
        for score in ("prior", "gradient"):
            rows.append(measured(labels, score))
            print(rows[-1], flush=True)
        shards.append(looked_up(n))
    block = "\n\n".join(
        [
            table(
                [
                    "rows",
                    "score",
                    "ready after, s",
                    "memory, bytes a row",
                    "weighted shuffle, s",
                    f"draw {BATCH:,}, ms",
                    f"observe {BATCH:,}, ms",
                    "state on disk",
                ],
                rows,
            ),
            table(["rows", f"shard and row of {BATCH:,} samples in {SHARDS:,} shards, ms"], shards),
            "Processor time of one thread. "
            f"Memory includes the selector's own copy of the\nlabels as CSR, {label_bytes:.0f} "
            "bytes a row. The weighted shuffle happens once per epoch; draws by the gradient need none.",
        ]
    )
    start, end = map(re.escape, MARKS)
    page = PAGE.read_text()
    PAGE.write_text(
        re.sub(
            f"({start}).*?({end})",
            lambda found: f"{found[1]}\n{block}\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    )
    print(block)


def made_labels(n: int) -> sparse.csr_array:
    """Return labels (n, q): one each, more for some, from a third of the rows down to one in 600."""
    rng = np.random.default_rng(0)
    shares = np.geomspace(0.33, 1 / 600, LABELS)
    first = rng.choice(LABELS, n, p=shares / shares.sum()).astype(np.int32)
    second = ((first + 1 + rng.integers(0, LABELS - 1, n)) % LABELS).astype(np.int32)
    has_second = rng.random(n) < CARDINALITY - 1
    counts = 1 + has_second
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    indices[indptr[:-1]] = first
    indices[indptr[1:][has_second] - 1] = second[has_second]
    data = np.ones(len(indices), dtype=bool)
    matrix = sparse.csr_array((data, indices, indptr), shape=(n, LABELS))
    matrix.sort_indices()
    return matrix


def measured(labels: sparse.csr_array, score: str) -> tuple[object, ...]:
    """Return the table's row of a selector for these labels."""
    n = labels.shape[0]
    tracemalloc.start()
    began = time.process_time()
    selector = ImportanceSelector(labels, score=score, batch_size=BATCH, max_lag=1)
    ready = time.process_time() - began
    batches = iter(selector)
    began = time.process_time()
    index = next(batches)
    shuffle = time.process_time() - began
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    draws, observes = [], []
    losses = np.random.default_rng(1).random((BATCH, LABELS))
    for _ in range(BATCHES):
        selector.mean(losses.mean(axis=1), index)
        observes.append(timed(lambda index=index: selector.observe(losses, index)))
        began = time.process_time()
        index = next(batches)
        draws.append(time.process_time() - began)
    saved = sum(
        value.nbytes for value in selector.state_dict().values() if hasattr(value, "nbytes")
    )
    return (
        f"{n:.0e}".replace("e+0", "e"),
        score,
        f"{ready:.2f}",
        f"{kept / n:.0f}",
        f"{shuffle:.2f}" if score == "prior" else "none",
        f"{1e3 * np.median(draws):.2f}",
        f"{1e3 * np.median(observes):.2f}",
        f"{saved / 1e6:,.0f} MB",
    )


def looked_up(n: int) -> tuple[str, str]:
    """Return how long it takes to find which shard, and which row there, samples are in."""
    rng = np.random.default_rng(0)
    starts = np.sort(rng.choice(n, SHARDS, replace=False))
    starts[0] = 0
    index = rng.integers(0, n, BATCH)

    def look_up() -> None:
        shard = np.searchsorted(starts, index, side="right") - 1
        _ = index - starts[shard]

    return f"{n:.0e}".replace(
        "e+0", "e"
    ), f"{1e3 * np.median([timed(look_up) for _ in range(50)]):.2f}"


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def table(header: list[str], rows: Sequence[tuple[object, ...]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    main()
