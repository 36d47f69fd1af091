"""Each model's training step against its formula as written, at two real sizes, on one thread."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import interleaved, publish, table
from tailbatch.models import MODELS, MultiLabelModel, seeded

SIZES = {"bibtex": (1836, 159), "Corel5k": (499, 374)}
BATCH = 128
ROUNDS = 5
# (model, size): the target speedup over the formula, and the rows and Monte-Carlo draws to time it with.
# MPVAE's formula at Corel5k size needs 7 GB for each copy of one tensor, PACA's 0.6 GB each for dozens.
# Both are linear in draws and rows, so the largest part that fits in memory is timed and scaled. The fast
# form is always timed whole.
STEPS = {
    ("c2ae", "bibtex"): (2.5, BATCH, 1),
    ("c2ae", "Corel5k"): (15, BATCH, 1),
    ("mpvae", "bibtex"): (40, BATCH, 4),
    ("mpvae", "Corel5k"): (100, BATCH, 2),
    ("dela", "bibtex"): (2.3, BATCH, 1),
    ("dela", "Corel5k"): (1.7, BATCH, 1),
    ("paca", "bibtex"): (2.5, BATCH // 2, 1),
    ("paca", "Corel5k"): (2.5, BATCH // 4, 1),
    ("clif", "bibtex"): (1.05, BATCH, 1),
    ("clif", "Corel5k"): (1.05, BATCH, 1),
}
DRAWS = 100
INFERENCE = {"bibtex": 50, "Corel5k": 100}
MEMORY_LIMIT_GB = 4


def main() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [_step_row(name, size, *setting) for (name, size), setting in STEPS.items()]
        rows += [_inference_row(size, target) for size, target in INFERENCE.items()]
    finally:
        torch.set_num_threads(threads)
    memory = [
        [name, f"{_peak_gigabytes(name):.1f} GB", f"{MEMORY_LIMIT_GB} GB"]
        for name in ("paca", "clif")
    ]
    header = ["model", "size", "fast (ms)", "formula (ms)", "ratio", "target"]
    publish(
        "models",
        "## Models\n\n"
        f"One training step (forward, backward, Adam) of {BATCH} rows, one thread, compared with the "
        "formula implemented literally. bibtex has d = 1836 and q = 159, Corel5k d = 499 and q = 374. "
        f"MPVAE draws {DRAWS} samples. A star means: timed on part of the batch or of the draws "
        "and scaled, because the whole does not fit in memory.\n\n"
        f"{table(header, rows)}\n\n"
        "Peak memory of a process that trains at Corel5k size:\n\n"
        f"{table(['model', 'peak', 'limit'], memory)}",
    )


def _step_row(name: str, size: str, target: float, n_rows: int, n_draws: int) -> list[str]:
    sampled = name == "mpvae"
    model, x, y = _problem(name, size, **({"samples": DRAWS} if sampled else {}))
    other, _, _ = _problem(name, size, **({"samples": n_draws} if sampled else {}))
    formula = getattr(_naive(), name)
    learn, learn_other = _optimizing(model), _optimizing(other)

    def fast() -> None:
        learn(model.step(x, y).objective)

    def naive() -> None:
        learn_other(formula(other, x[:n_rows], y[:n_rows]))

    scale = BATCH / n_rows * (DRAWS / n_draws if sampled else 1)
    return _row(name, size, fast, naive, target, scale)


def _optimizing(model: MultiLabelModel) -> Callable[[Tensor], None]:
    optimizer = torch.optim.Adam(model.param_groups(lr=1e-4, weight_decay=1e-4))

    def learn(objective: Tensor) -> None:
        optimizer.zero_grad()
        torch.autograd.backward(objective)
        optimizer.step()

    return learn


def _inference_row(size: str, target: float) -> list[str]:
    model, x, _ = _problem("dela", size)
    naive = partial(_naive().dela_predict, model, x)
    model.eval()
    return _row("dela inference", size, partial(model.predict_proba, x), naive, target, 1.0)


def _row(
    name: str,
    size: str,
    fast: Callable[[], object],
    naive: Callable[[], object],
    target: float,
    scale: float,
) -> list[str]:
    seconds = interleaved({"fast": fast, "naive": naive}, rounds=ROUNDS)
    formula = seconds["naive"] * scale
    star = "*" if scale > 1 else ""
    return [
        name,
        size,
        f"{1e3 * seconds['fast']:,.0f}",
        f"{1e3 * formula:,.0f}{star}",
        f"{formula / seconds['fast']:.2f}x",
        f"{target}x",
    ]


def _problem(name: str, size: str, **options: object) -> tuple[MultiLabelModel, Tensor, Tensor]:
    n_features, n_labels = SIZES[size]
    with seeded(0, "benchmark"):
        model: Any = MODELS[name](n_features, n_labels, **options)
        return model, torch.rand(BATCH, n_features), (torch.rand(BATCH, n_labels) < 0.03).float()


def _naive() -> ModuleType:
    """Load the formulas that the tests compare with."""
    path = Path(__file__).parent.parent / "tests" / "models" / "naive.py"
    spec = spec_from_file_location("naive", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _peak_gigabytes(name: str) -> float:
    """Return the peak memory of a fresh process that takes two training steps (Linux)."""
    script = f"""
from pathlib import Path
from benchmarks.bench_models import _problem
model, x, y = _problem({name!r}, "Corel5k")
for _ in range(2):
    model.step(x, y).objective.backward()
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    return int(completed.stdout) / 2**20
