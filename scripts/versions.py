"""Run the core tests with versions other than those in ``constraints.txt``.

    python scripts/versions.py --oldest              the oldest versions that pyproject.toml allows
    python scripts/versions.py --python python3.13   another Python, with the pinned versions

A fresh environment is made below ``build/versions``. torch stays at the pinned version, because its older
wheels take gigabytes. ``--without-torch`` leaves it out, together with the tests that need it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ["hypothesis", "iterative-stratification", "liac-arff", "pytest"]
EXTRAS = ["cli", "faiss", "parquet"]
NUMPY_ROOMS = [
    *(
        "tests/data",
        "tests/paper",
        "tests/ground/test_imbalance.py",
        "tests/metrics/test_metrics.py",
    ),
    *(
        "tests/ground/test_stats.py",
        "tests/results/test_results.py",
        "tests/ground/test_seeds.py",
        "tests/selection",
    ),
]
NEEDS_TORCH = ["tests/selection/test_torch_loop.py", "tests/selection/test_own_score.py"]
TORCH_ROOMS = ["tests/models", "tests/training", "tests/study", "tests/estimator/test_estimator.py"]


def main() -> None:
    """Make the environment, print its packages, and run the tests in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--oldest", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--without-torch", action="store_true")
    options = parser.parse_args()
    folder = ROOT / "build" / "versions" / Path(options.python).name
    shutil.rmtree(folder, ignore_errors=True)
    run(options.python, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    packages = requirements(oldest=options.oldest, torch=not options.without_torch)
    # Pins would contradict the oldest versions; pip then chooses what the tools need.
    pins = [] if options.oldest else ["--constraint", str(ROOT / "constraints.txt")]
    run(python, "-m", "pip", "install", "--quiet", *pins, *packages)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(ROOT))
    run(python, "--version")
    print(" ".join(packages), flush=True)
    without = [f"--ignore={name}" for name in NEEDS_TORCH]
    tests = NUMPY_ROOMS + (without if options.without_torch else TORCH_ROOMS)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


def requirements(*, oldest: bool, torch: bool) -> list[str]:
    """Return what to install: the ranges of pyproject.toml, or their lower bounds, and the tools."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    needs = list(project["dependencies"])
    for extra in EXTRAS:
        needs += project["optional-dependencies"][extra]
    needs = list(dict.fromkeys(needs))  # two extras may share a package
    if oldest:
        needs = [need.replace(">=", "==") for need in needs]
    needs = [need for need in needs if not need.startswith("torch")]
    return [*needs, *TOOLS, *([pinned("torch")] if torch else [])]


def pinned(name: str) -> str:
    """Return a package's line in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def run(*command: str) -> None:
    """Run a command in the repository; exit if it fails."""
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": ""}, check=False)
    if code.returncode:
        sys.exit(f"failed: {' '.join(command[:6])}")


if __name__ == "__main__":
    main()
