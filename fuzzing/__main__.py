"""Fuzz every target, or those named: ``make fuzz MINUTES=10 ONLY="arff xml"``.

The last lines say how many inputs were tried and how many findings there are; ``figures.txt`` keeps them,
one line per target. Findings are files in the printed folder; once fixed, move them to
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
    "jsonl",
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
    parser.add_argument("--minutes", type=float, default=10.0, help="CPU minutes per target")
    options = parser.parse_args()
    if unknown := sorted(set(options.only) - set(NAMES)):
        parser.error(f"unknown target {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    lines = {}
    for name in options.only or NAMES:
        lines[name] = fuzz(name, options.minutes)
        keep(name, lines[name])
    for line in lines.values():
        print(line)
    return sum(" 0 findings" not in line for line in lines.values())


def fuzz(name: str, minutes: float) -> str:
    """Fuzz one target in separate processes, and return a summary line.

    Minutes are CPU minutes, so that a busy machine does not shorten the search.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"fuzzing-{name}-"))
    print(f"{name}: findings go to {folder}", flush=True)
    start, inputs = _cpu_seconds(), 0
    while (seconds := round(60 * minutes - _cpu_seconds() + start)) > 0:
        # A hang or lack of memory ends the process early; the next one resumes with the same corpus.
        command = [sys.executable, "-m", "fuzzing.harness", name, str(seconds), str(folder)]
        process = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
        for finding in re.findall(r"^FINDING .*", process.stderr, re.MULTILINE):
            print(finding, flush=True)
        counted = re.search(r"stat::number_of_executed_units: (\d+)", process.stderr)
        if counted is None:
            sys.exit(f"{name} could not be fuzzed:\n{process.stderr[-2000:]}")
        inputs += int(counted[1])
    # Slow units of libFuzzer are within our limits: imports, or a busy machine.
    files = [path for path in folder.iterdir() if path.is_file()]
    findings = sum(not path.name.startswith("slow-unit") for path in files)
    corpus = sum(path.is_file() for path in (folder / "corpus").iterdir())
    return (
        f"{name}: {inputs:,} inputs in {(_cpu_seconds() - start) / 60:.1f} CPU min, "
        f"{corpus:,} of them reached new code, {findings} findings"
    )


def _cpu_seconds() -> float:
    """Return the CPU time of the processes started here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def keep(name: str, line: str) -> None:
    """Save a target's line in the file of figures, with the date."""
    known = FIGURES.read_text().splitlines() if FIGURES.exists() else []
    figures = {line.partition(":")[0]: line for line in known}
    today = datetime.now(UTC).date().isoformat()
    figures[name] = f"{line} ({today})"
    FIGURES.write_text("".join(f"{figures[name]}\n" for name in NAMES if name in figures))


if __name__ == "__main__":
    sys.exit(main())
