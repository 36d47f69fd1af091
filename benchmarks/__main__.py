"""Run the benchmarks: all of them, or those named (``make bench ONLY="reading folds"``).

A benchmark is a file ``bench_<name>.py`` in this folder whose ``main()`` calls `publish`.
"""

import sys
from importlib import import_module
from pathlib import Path


def main(names: list[str]) -> None:
    """Run each named benchmark in turn."""
    known = sorted(
        path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
    )
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in names or known:
        import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
