"""Print the branch coverage of each core room, from the data of ``coverage run``."""

import json
import subprocess
import sys
from collections import defaultdict

# The rooms whose results users rely on; commands, reports and adapters have their own tests.
CORE = [
    "data",
    "imbalance",
    "selection",
    "models",
    "metrics",
    "stats",
    "results",
    "training",
    "study",
    "estimator",
]
GOAL = 0.95
COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main() -> None:
    """Print one row per room, then the lines and branches that no test reaches."""
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", "-"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = {
        name.replace("\\", "/").split("src/tailbatch/")[1]: facts
        for name, facts in json.loads(shown)["files"].items()
    }
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, facts in files.items():
        room = name.split("/")[0].removesuffix(".py")
        part = [facts["summary"][key] for key in COUNTS]
        totals[room] = [old + new for old, new in zip(totals[room], part, strict=True)]
    print("| room | lines | branches | both |\n|---|---:|---:|---:|")
    for room in CORE:
        print(row(room, totals[room]))
    core = [sum(column) for column in zip(*(totals[room] for room in CORE), strict=True)]
    print(row("all core rooms", core), f"\n\ngoal {GOAL:.0%}; not reached:")
    for name, facts in sorted(files.items()):
        if name.split("/")[0].removesuffix(".py") in CORE and (missing := not_reached(facts)):
            print(f"{name}: {missing}")
    sys.exit((core[0] + core[2]) / (core[1] + core[3]) < GOAL)


def row(name: str, counts: list[int]) -> str:
    """Return a table row: the shares of lines, of branches, and of both together."""
    lines, all_lines, branches, all_branches = counts
    shares = [
        (lines, all_lines),
        (branches, all_branches),
        (lines + branches, all_lines + all_branches),
    ]
    cells = [f"{part / whole:.1%}" if whole else "-" for part, whole in shares]
    return f"| {name} | {' | '.join(cells)} |"


def not_reached(facts: dict) -> str:
    """Return the lines never run, and the branches never taken between lines that run."""
    lines = set(facts["missing_lines"])
    branches = [f"{a}->{b}" for a, b in facts["missing_branches"] if not {a, b} & lines]
    return ", ".join([*map(str, sorted(lines)), *branches])


if __name__ == "__main__":
    main()
