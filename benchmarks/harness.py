"""Timing for a noisy machine: contenders take turns, and only ratios count."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).with_name("README.md")


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return each contender's median seconds over rounds in which all take turns.

    With ``clock=time.process_time`` these are CPU seconds, which other work on the machine disturbs less.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            gc.collect()
            start = clock()
            work()
            seconds[name].append(clock() - start)
    return {name: median(values) for name, values in seconds.items()}


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak of memory allocated through Python and NumPy while `work` runs."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def publish(section: str, text: str, path: Path = RESULTS) -> None:
    """Print a section and replace its previous version in ``benchmarks/README.md``, or another page."""
    begin, end = f"<!-- {section} -->", f"<!-- end {section} -->"
    page = path.read_text() if path.exists() else "# Benchmarks\n"
    block = f"{begin}\n{text}\n{end}"
    if begin in page:
        page = page[: page.index(begin)] + block + page[page.index(end) + len(end) :]
    else:
        page = page.rstrip("\n") + "\n\n" + block + "\n"
    path.write_text(page)
    print(text, end="\n\n")
