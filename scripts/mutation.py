"""Mutation testing of the pure functions: change one thing, and check that a test fails.

    python scripts/mutation.py [--rooms stats,metrics] [--sample 250]

mutmut changes a copy of the tracked files below ``build/mutation``, not the working tree. For each room
it tries a sample of mutants, drawn with seed 0 (``--sample 0`` tries all). A mutant that no test detects
is a survivor. Survivors without visible effect are listed, with the reason, in
``scripts/mutation_explained.toml``; all others are printed.
"""

import argparse
import ast
import difflib
import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL = 0.85
# What is changed in each room, and the tests that should detect it; none of them trains a network.
ROOMS = {
    "imbalance": (
        ["src/tailbatch/imbalance.py"],
        ["tests/ground/test_imbalance.py", "tests/paper/test_imbalance_equations.py"],
    ),
    "metrics": (["src/tailbatch/metrics/*"], ["tests/metrics/test_metrics.py"]),
    "selection": (
        ["src/tailbatch/selection/*"],
        [
            *(
                f"tests/selection/test_{name}.py"
                for name in ("laws", "make", "selectors", "switches")
            ),
            "tests/selection/test_exactness.py",
            "tests/paper/test_selection_equations.py",
        ],
    ),
    "stats": (["src/tailbatch/stats.py"], ["tests/ground/test_stats.py"]),
}
# mutmut 3.8 reads a private name of pytest that newer releases lack. And of the many copies of a function
# that it puts into the module, only one needs its doctests run.
SHIM = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if not item.name.rpartition("__mutmut_")[2].isdigit()]
    for item in items:
        item._nodeid = item.nodeid
"""


def main() -> None:
    """Try the mutants of each room and print the scores and the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--sample", type=int, default=250, help="mutants per room; 0 means all")
    options = parser.parse_args()
    explained = explanations()
    survivors: list[str] = []
    rows = [
        "| room | mutants | tried | killed | explained | score |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    tried = killed = 0
    for room in options.rooms.split(","):
        outcome = try_room(room, options.sample)
        unkilled = [change for change in outcome["survivors"] if change not in explained]
        survivors += unkilled
        tried += outcome["tried"]
        killed += outcome["tried"] - len(outcome["survivors"])
        rows.append(
            f"| {room} | {outcome['mutants']} | {outcome['tried']} "
            f"| {outcome['tried'] - len(outcome['survivors'])} "
            f"| {len(outcome['survivors']) - len(unkilled)} "
            f"| {1 - len(outcome['survivors']) / outcome['tried']:.1%} |"
        )
    print("\n".join(rows))
    print(f"\nkilled {killed} of {tried}: {killed / tried:.1%} (goal {GOAL:.0%})")
    print("\n".join([f"{len(survivors)} survivors without an explanation", *survivors]))
    sys.exit(killed / tried < GOAL)


def explanations() -> set[str]:
    """Return the changes that are known to have no visible effect."""
    with open(ROOT / "scripts" / "mutation_explained.toml", "rb") as file:
        groups = tomllib.load(file)["explained"]
    return {change for group in groups for change in group["changes"]}


def try_room(room: str, sample: int) -> dict:
    """Copy the tree, run mutmut on a sample of the room's mutants, and collect the result."""
    work = ROOT / "build" / "mutation" / room
    copy_tree(work, *ROOMS[room])
    # No mutant has this name: mutmut makes the mutants, times the tests, and stops.
    mutmut(work, "run", "nothing")
    names = sorted(verdicts(work))
    if not names:
        sys.exit(f"mutmut made no mutants of {room}; look at {work}")
    if sample and sample < len(names):
        names = sorted(random.Random(0).sample(names, sample))
    output = mutmut(work, "run", "--max-children", "1", *names)
    exit_codes = verdicts(work)
    if any(exit_codes[name] is None for name in names):
        sys.exit(f"mutmut did not finish {room}:\n{output[-2000:]}")
    # 0: the tests passed; 33: no test runs the function at all. Anything else means detected.
    alive = [name for name in names if exit_codes[name] in (0, 33)]
    return {
        "mutants": len(exit_codes),
        "tried": len(names),
        "survivors": [change_of(work, name) for name in alive],
    }


def copy_tree(work: Path, changed: list[str], tests: list[str]) -> None:
    """Copy the tracked files to `work` and tell mutmut what to change and which tests to run."""
    shutil.rmtree(work, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, work / name)
    (work / "conftest.py").write_text(SHIM)
    settings = {
        "source_paths": ["src"],
        "only_mutate": changed,
        "also_copy": ["conftest.py", "docs"],
        "timeout_multiplier": 1,  # times twice the tests' time, so that an endless loop ends soon
        "pytest_add_cli_args_test_selection": [*tests, changed[0].removesuffix("/*")],
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    with open(work / "pyproject.toml", "a") as file:
        file.write("\n".join(["\n[tool.mutmut]", *lines, ""]))


def mutmut(work: Path, *arguments: str) -> str:
    """Run mutmut in `work` and return what it printed."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=work, capture_output=True, text=True, check=False).stdout


def verdicts(work: Path) -> dict[str, int | None]:
    """Return the exit code of the tests for each mutant, or None where it was not tried."""
    exit_codes: dict[str, int | None] = {}
    for file in (work / "mutants").rglob("*.meta"):
        exit_codes |= json.loads(file.read_text())["exit_code_by_key"]
    return exit_codes


def change_of(work: Path, name: str) -> str:
    """Return a mutant as ``module.function: line => changed line``, which outlives renumbering."""
    module, _, function = name.rpartition(".")
    stem = function.rpartition("__mutmut_")[0]
    plain = re.sub(r"^x_", "", re.sub(r"^xǁ(\w+)ǁ", r"\1.", stem))
    source = (work / "mutants" / "src" / module.replace(".", "/")).with_suffix(".py").read_text()
    copies = {
        node.name: ast.unparse(node).replace(node.name, plain).splitlines()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name in (function, f"{stem}__mutmut_orig")
    }
    lines = list(difflib.ndiff(copies[f"{stem}__mutmut_orig"], copies[function]))
    before, after = (
        " ".join(line[2:].strip() for line in lines if line.startswith(sign))
        for sign in ("- ", "+ ")
    )
    return f"{module}.{plain}: {before} => {after}"


if __name__ == "__main__":
    main()
