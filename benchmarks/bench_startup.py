"""How long a user waits for the import and for the help text."""

import subprocess
import sys

from benchmarks.harness import interleaved, publish, table


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def main() -> None:
    seconds = interleaved(
        {
            "python": lambda: _run("-c", "pass"),
            "import": lambda: _run("-c", "import tailbatch"),
            "help": lambda: _run("-m", "tailbatch", "--help"),
            "typer": lambda: _run("-c", "import typer, rich.console"),
        },
        rounds=11,
    )
    own = {name: value - seconds["python"] for name, value in seconds.items()}
    rows = [
        ["empty Python process", f"{seconds['python']:.3f} s", "", ""],
        ["`import tailbatch`, on top of that", f"{own['import']:.3f} s", "< 0.1 s", ""],
        [
            "`tailbatch --help`, whole process",
            f"{seconds['help']:.3f} s",
            "< 0.5 s",
            f"importing typer and rich alone: {seconds['typer']:.3f} s",
        ],
    ]
    publish("startup", "## Starting up\n\n" + table(["what", "median of 11", "target", ""], rows))
