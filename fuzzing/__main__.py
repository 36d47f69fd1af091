"""Fuzz every target, or those named: ``make fuzz MINUTES=10 ONLY="arff xml"``.

The last lines say how many inputs were tried and what was found; they are kept in ``figures.txt``,
one line a target. Findings are files in the folder that is printed; once fixed, they belong into
``regressions/<target>``.
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE / "figures.txt"
NAMES = (
    "arff",
    "xml",
    "libsvm",
    "csv",
    "npz",
    "study",
    "record",
    "selector",
    "checkpoint",
    "model",
)


def main() -> int:
    """Fuzz one target after the other, and return how many have findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="target", help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of a processor, for each target"
    )
    given = parser.parse_args()
    if unknown := sorted(set(given.only) - set(NAMES)):
        parser.error(f"unknown target {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    lines = {}
    for name in given.only or NAMES:
        lines[name] = fuzz(name, given.minutes)
        keep(name, lines[name])
    for line in lines.values():
        print(line)
    return sum(" 0 findings" not in line for line in lines.values())


def fuzz(name: str, minutes: float) -> str:
    """Fuzz one target in processes of its own, and return a line about it.

    Minutes are those of a processor: on a busy machine, an hour on the wall can be one of them.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"fuzzing-{name}-"))
    print(f"{name}: findings go to {folder}", flush=True)
    start, inputs = _processor_seconds(), 0
    while (seconds := round(60 * minutes - _processor_seconds() + start)) > 0:
        # Ends early on a hang or for want of memory; the next one goes on with the same corpus.
        command = [sys.executable, "-m", "fuzzing.harness", name, str(seconds), str(folder)]
        process = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
        for finding in re.findall(r"^FINDING .*", process.stderr, re.MULTILINE):
            print(finding, flush=True)
        counted = re.search(r"stat::number_of_executed_units: (\d+)", process.stderr)
        if counted is None:
            sys.exit(f"{name} could not be fuzzed:\n{process.stderr[-2000:]}")
        inputs += int(counted[1])
    # What libFuzzer calls a slow unit is below our bounds: imports, or a busy machine.
    files = [path for path in folder.iterdir() if path.is_file()]
    findings = sum(not path.name.startswith("slow-unit") for path in files)
    corpus = sum(path.is_file() for path in (folder / "corpus").iterdir())
    return (
        f"{name}: {inputs:,} inputs in {(_processor_seconds() - start) / 60:.1f} min of a processor, "
        f"{corpus:,} of them reached new code, {findings} findings"
    )


def _processor_seconds() -> float:
    """Return the time that processors have spent on the processes started here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def keep(name: str, line: str) -> None:
    """Put a target's line into the file of figures, with its day."""
    known = FIGURES.read_text().splitlines() if FIGURES.exists() else []
    figures = {line.partition(":")[0]: line for line in known}
    today = datetime.now(UTC).date().isoformat()
    figures[name] = f"{line} ({today})"
    FIGURES.write_text("".join(f"{figures[name]}\n" for name in NAMES if name in figures))


if __name__ == "__main__":
    sys.exit(main())
