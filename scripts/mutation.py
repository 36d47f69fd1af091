"""Mutation testing of the pure functions: change one thing, and see whether a test notices.

    python scripts/mutation.py [--rooms stats,metrics] [--sample 250]

mutmut changes a copy of the tracked files below ``build/mutation``; the tree itself stays as it is.
Of each room a sample of its mutants is tried, drawn with seed 0 (``--sample 0`` tries all). A mutant
that no test notices is a survivor. Survivors that change nothing a user can see are listed, with the
reason, in ``scripts/mutation_explained.toml``; all others are printed.
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
# What is changed in each room, and the tests that should notice, without those that train a network.
ROOMS = {
    "imbalance": (
        ["src/tailbatch/imbalance.py"],
        ["tests/test_imbalance.py", "tests/paper/test_imbalance_equations.py"],
    ),
    "metrics": (["src/tailbatch/metrics/*"], ["tests/test_metrics.py"]),
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
    "stats": (["src/tailbatch/stats.py"], ["tests/test_stats.py"]),
}
# mutmut 3.8 reads a private name of pytest that newer releases do not have; and of the many copies of
# a function that it puts into the module, the examples of one are enough.
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
    parser.add_argument("--sample", type=int, default=250, help="mutants a room; 0 means all")
    options = parser.parse_args()
    explained = explanations()
    survivors: list[str] = []
    rows = [
        "| room | mutants | tried | killed | explained | score |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    tried = killed = 0
    for room in options.rooms.split(","):
        found = try_room(room, options.sample)
        unkilled = [change for change in found["survivors"] if change not in explained]
        survivors += unkilled
        tried += found["tried"]
        killed += found["tried"] - len(found["survivors"])
        rows.append(
            f"| {room} | {found['mutants']} | {found['tried']} "
            f"| {found['tried'] - len(found['survivors'])} "
            f"| {len(found['survivors']) - len(unkilled)} "
            f"| {1 - len(found['survivors']) / found['tried']:.1%} |"
        )
    print("\n".join(rows))
    print(f"\nkilled {killed} of {tried}: {killed / tried:.1%} (goal {GOAL:.0%})")
    print("\n".join([f"{len(survivors)} survivors without an explanation", *survivors]))
    sys.exit(killed / tried < GOAL)


def explanations() -> set[str]:
    """Return the changes that are known to alter nothing a user can see."""
    with open(ROOT / "scripts" / "mutation_explained.toml", "rb") as file:
        groups = tomllib.load(file)["explained"]
    return {change for group in groups for change in group["changes"]}


def try_room(room: str, sample: int) -> dict:
    """Copy the tree, run mutmut on a sample of the room's mutants, and collect what it found."""
    work = ROOT / "build" / "mutation" / room
    copy_tree(work, *ROOMS[room])
    # A name that no mutant has: mutmut makes the mutants, times the tests, and stops.
    mutmut(work, "run", "nothing")
    names = sorted(verdicts(work))
    if not names:
        sys.exit(f"mutmut made no mutants of {room}; look at {work}")
    if sample and sample < len(names):
        names = sorted(random.Random(0).sample(names, sample))
    done = mutmut(work, "run", "--max-children", "1", *names)
    found = verdicts(work)
    if any(found[name] is None for name in names):
        sys.exit(f"mutmut did not finish {room}:\n{done[-2000:]}")
    # 0: the tests passed; 33: no test runs the function at all. Anything else was noticed.
    alive = [name for name in names if found[name] in (0, 33)]
    return {
        "mutants": len(found),
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
        "timeout_multiplier": 1,  # of twice the tests' time: an endless loop shall end soon
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
    found: dict[str, int | None] = {}
    for file in (work / "mutants").rglob("*.meta"):
        found |= json.loads(file.read_text())["exit_code_by_key"]
    return found


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
