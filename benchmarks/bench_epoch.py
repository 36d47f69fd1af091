"""An epoch of PACA and CLIF on bibtex, validation included, beside that of another commit.

``python -m benchmarks.bench_epoch COMMIT`` measures both in one run, in turns; by default the commit
before PACA's units were laid out for large products. An epoch is extrapolated from a few steps and a part
of the validation rows, as in ``reproduction.table_2.costs``, so that the turns are short.
"""

import math
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.harness import publish, table

ROOT = Path(__file__).parent.parent
BEFORE = "3f84b94"
MODELS = ("paca", "clif")
FEATURES, LABELS, TRAINING, VALIDATION, BATCH = 1836, 159, 5916, 740, 128
STEPS, ROUNDS = 2, 3
_SCRIPT = f"""
import sys, time, torch
from tailbatch.models import MODELS, seeded
torch.set_num_threads(1)
with seeded(0, "benchmark"):
    model = MODELS[sys.argv[1]]({FEATURES}, {LABELS})
    x = (torch.rand({BATCH}, {FEATURES}) < 0.04).float()
    y = (torch.rand({BATCH}, {LABELS}) < 0.02).float()
optimizer = torch.optim.Adam(model.param_groups(lr=1e-4, weight_decay=1e-4))
def step():
    optimizer.zero_grad()
    model.step(x, y).objective.backward()
    optimizer.step()
step()
start = time.process_time()
for _ in range({STEPS}):
    step()
print((time.process_time() - start) / {STEPS})
model.eval()
with torch.no_grad():
    model.predict_proba(x)
    start = time.process_time()
    model.predict_proba(x)
print(time.process_time() - start)
"""


def main(before: str = BEFORE) -> None:
    """Measure both and publish."""
    header = ["model", "step before", "step now", "validation before", "now", "epoch, ratio"]
    with TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", before, "src"], cwd=ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        rows = [_row(model, Path(folder)) for model in MODELS]
    publish(
        "epoch",
        "## An epoch\n\n"
        f"An epoch of {TRAINING:,} training and {VALIDATION} validation rows of bibtex's size, compared "
        f"with commit {before}: seconds of processor time, one thread, the median of {ROUNDS} turns.\n\n"
        f"{table(header, rows)}",
    )


def _row(model: str, before: Path) -> list[str]:
    turns = [(_seconds(model, before), _seconds(model, ROOT)) for _ in range(ROUNDS)]
    step_before, validation_before, step, validation = (
        median(turn[side][part] for turn in turns) for side in (0, 1) for part in (0, 1)
    )
    ratio = median(_epoch(*now) / _epoch(*then) for then, now in turns)
    return [
        model,
        *(f"{seconds:.2f}" for seconds in (step_before, step, validation_before, validation)),
        f"{ratio:.2f}",
    ]


def _epoch(step: float, validation: float) -> float:
    return math.ceil(TRAINING / BATCH) * step + validation


def _seconds(model: str, folder: Path) -> tuple[float, float]:
    """Return the seconds of a step and of the validation rows, in a process of its own."""
    completed = subprocess.run(
        [sys.executable, "-c", _SCRIPT, model],
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
        text=True,
    )
    step, validation = map(float, completed.stdout.split())
    return step, validation * VALIDATION / BATCH


if __name__ == "__main__":
    main(*sys.argv[1:])
