"""Compare the pinned packages with the known advisories, and say which of three things came out.

Exit code 0: all were looked up and none has a known weakness. 1: some have one. 2: the check could not
be made, for all or for some of them, so nothing is known about those.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The pins are exact and complete, so nothing has to be resolved or installed.
COMMAND = [
    *(sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"),
    *("--disable-pip", "--no-deps", "--requirement", str(ROOT / "constraints.txt")),
]


def main(command: list[str]) -> int:
    """Run the check, print what came out, and return the exit code."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    code, lines = verdict(done.stdout, done.stderr)
    print("\n".join(lines))
    return code


def verdict(answer: str, complaint: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines for what pip-audit printed."""
    try:
        packages = json.loads(answer)["dependencies"]
        skipped = [one for one in packages if "skip_reason" in one]
        found = [(one, flaw) for one in packages for flaw in one.get("vulns", ())]
        lines = [
            f"{one['name']} {one['version']}: {flaw['id']}, fixed in "
            f"{', '.join(flaw['fix_versions']) or 'no version yet'}"
            for one, flaw in found
        ]
    except (ValueError, LookupError, TypeError):
        why = [line for line in complaint.splitlines() if line.strip()][-1:] or ["no answer"]
        return 2, [not_made(why[0].strip())]
    if len(skipped) == len(packages):
        return 2, [not_made(skipped[0]["skip_reason"] if skipped else "there are no packages")]
    lines += [f"NOT CHECKED: {one['name']} ({one['skip_reason']})" for one in skipped]
    if found:
        return 1, [*lines, f"FOUND: {len(found)} known weaknesses in {len(packages)} packages"]
    if skipped:
        count = len(packages) - len(skipped)
        return 2, [*lines, f"NOT CHECKED: only {count} of {len(packages)} packages were looked up"]
    return 0, [f"NONE FOUND: {len(packages)} packages were looked up, none has a known weakness"]


def not_made(why: str) -> str:
    """Say that nothing could be looked up."""
    return (
        "NOT CHECKED: the advisory service gave no answer, so nothing is known about the pinned "
        f"packages ({why}). Try again with the network"
    )


if __name__ == "__main__":
    sys.exit(main(COMMAND))
