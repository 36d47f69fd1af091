"""Check the pinned packages against known advisories.

Exit code 0: all were looked up and none has a known vulnerability. 1: some have one. 2: some or all could
not be looked up, so nothing is known about those.
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
    """Run the check, print its result, and return the exit code."""
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    code, lines = verdict(completed.stdout, completed.stderr)
    print("\n".join(lines))
    return code


def verdict(answer: str, complaint: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines for what pip-audit printed."""
    try:
        packages = json.loads(answer)["dependencies"]
        skipped = [package for package in packages if "skip_reason" in package]
        vulnerabilities = [
            (package, flaw) for package in packages for flaw in package.get("vulns", ())
        ]
        lines = [
            f"{package['name']} {package['version']}: {flaw['id']}, fixed in "
            f"{', '.join(flaw['fix_versions']) or 'no version yet'}"
            for package, flaw in vulnerabilities
        ]
    except (ValueError, LookupError, TypeError):
        why = [line for line in complaint.splitlines() if line.strip()][-1:] or ["no answer"]
        return 2, [not_made(why[0].strip())]
    if len(skipped) == len(packages):
        return 2, [not_made(skipped[0]["skip_reason"] if skipped else "there are no packages")]
    lines += [f"NOT CHECKED: {package['name']} ({package['skip_reason']})" for package in skipped]
    if vulnerabilities:
        count = len(vulnerabilities)
        return 1, [*lines, f"FOUND: {count} known vulnerabilities in {len(packages)} packages"]
    if skipped:
        count = len(packages) - len(skipped)
        return 2, [*lines, f"NOT CHECKED: only {count} of {len(packages)} packages were looked up"]
    return 0, [
        f"NONE FOUND: {len(packages)} packages were looked up, none has a known vulnerability"
    ]


def not_made(why: str) -> str:
    """Return the message for a check that could not be made."""
    return (
        "NOT CHECKED: the advisory service gave no answer, so nothing is known about the pinned "
        f"packages ({why}). Try again with network access"
    )


if __name__ == "__main__":
    sys.exit(main(COMMAND))
