"""The report of a study as large as the paper's: 5 models, 13 datasets, 5 folds, 5 arms."""

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import publish, table
from tailbatch.metrics import METRICS
from tailbatch.results import RunRecord, RunSpec, TrainingPlan

LABELS = {
    "corel5k": 149,
    "rcv1subset1": 80,
    "rcv1subset2": 81,
    "rcv1subset3": 82,
    "yahoo-arts": 26,
    "yahoo-business": 30,
    "cal500": 119,
    "tmc2007": 22,
    "bibtex": 159,
    "enron": 33,
    "yeast": 14,
    "llog-f": 75,
    "scene": 6,
}
MODELS = ("c2ae", "mpvae", "paca", "clif", "dela")
ARMS = (("random", None), *(("adaptive", pressure) for pressure in (2.0, 8.0, 16.0, 64.0)))


def made_up(spec: RunSpec) -> RunRecord:
    """Return a synthetic record of realistic size: every metric in every epoch, every label."""
    rng = np.random.default_rng(int(spec.digest[:8], 16))
    numbers = np.arange(1, spec.plan.epochs + 1)
    losses = 0.2 + 0.5 * np.exp(-numbers / 20) + rng.normal(0, 0.01, len(numbers))
    scores = rng.uniform(0.2, 0.8, (len(numbers), len(METRICS)))
    history = tuple(
        {
            "number": int(number),
            "steps": int(number) * 38,
            "seconds": float(number) * 0.4,
            "lr": 1e-4,
            "batch_objective": float(loss),
            "training_objective": float(loss),
            "training_bce": float(loss),
            "validation": dict(zip(METRICS, row.tolist(), strict=True)),
            "minority_share": 0.3,
            "distinct_share": 0.6,
        }
        for number, loss, row in zip(numbers, losses, scores, strict=True)
    )
    labels = tuple(
        {
            "name": f"label {rank}",
            "positives": int(5000 / (rank + 1)) + 1,
            "minority": rank > 10,
            "f": 0.4,
            "auc": 0.8,
            "average_precision": float(rng.random()),
            "exposure": float(1 + rng.random()),
        }
        for rank in range(LABELS[spec.dataset])
    )
    final = dict(zip(METRICS, scores[-1].tolist(), strict=True))
    return RunRecord(
        spec=spec,
        validation=final,
        test=final,
        history=history,
        best_epoch=len(history),
        warm_up_digest="c0ffee",
        labels=labels,
        diagnostics={"steps": 3800, "drawn_samples": 480_000},
    )


def fill(store: Path) -> int:
    """Write the records without flushing each to disk, and return how many there are."""
    (store / "runs").mkdir(parents=True)
    cells = itertools.product(LABELS, MODELS, range(5), ARMS)
    count = 0
    for dataset, model, fold, (strategy, pressure) in cells:
        spec = RunSpec(
            dataset=dataset,
            dataset_digest="ab12",
            preparation="paper",
            fold=fold,
            model=model,
            strategy=strategy,
            selection_pressure=pressure,
            plan=TrainingPlan(),
        )
        (store / "runs" / f"{spec.digest}.json").write_text(made_up(spec).to_json())
        objectives = np.full(3800, 0.5, dtype=np.float32)
        np.savez_compressed(store / "runs" / f"{spec.digest}.npz", batch_objectives=objectives)
        count += 1
    return count


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, page = Path(folder) / "store", Path(folder) / "report.html"
        count = fill(store)
        code = f"""
from pathlib import Path
from tailbatch.report.page import write_report
write_report(Path({str(store)!r}), Path({str(page)!r}))
"""
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            seconds.append(time.perf_counter() - start)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        # The peak of all child processes so far; Linux counts in kilobytes.
        peak = children.ru_maxrss / 1e6
        # CPU time measures the cost on a busy machine, too.
        work = (children.ru_utime + children.ru_stime) / len(seconds)
        size = page.stat().st_size / 1e6
    rows = [
        ["seconds, including interpreter start", f"{sorted(seconds)[1]:.1f}", "under 20"],
        ["CPU seconds, mean", f"{work:.1f}", ""],
        ["peak memory, GB", f"{peak:.2f}", "under 1"],
        ["size of the page, MB", f"{size:.2f}", "under 2"],
    ]
    title = f"## Report\n\nPage, tables and figures of {count:,} runs, median of three.\n\n"
    publish("report", title + table(["what", "measured", "target"], rows))


if __name__ == "__main__":
    main()
