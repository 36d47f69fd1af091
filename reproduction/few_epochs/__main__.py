"""What selection adds to sound training: do the runs, and write the page from their records.

    python -m reproduction.few_epochs run FOLDER rates --epochs 1 3 10 30
    python -m reproduction.few_epochs collect FOLDER
    python -m reproduction.few_epochs run FOLDER budget --epochs 1 3 10 30
    python -m reproduction.few_epochs run FOLDER later --epochs 1 3
    python -m reproduction.few_epochs run FOLDER pair --epochs 1 3
    python -m reproduction.few_epochs run FOLDER settings --epochs 1 3 10
    python -m reproduction.few_epochs run FOLDER levels --epochs 1
    python -m reproduction.few_epochs collect FOLDER
    python -m reproduction.few_epochs

FOLDER lies outside the repository and holds the stores; a run that is there is not done again. The last
command writes docs/reproduction/selection_evidence.md and its picture.
"""

import argparse
import sys
from pathlib import Path

from reproduction.few_epochs.page import PAGE, budgets, draw, page


def main() -> None:
    """Run, collect, or write the page."""
    if len(sys.argv) == 1:
        PAGE.write_text(page())
        if len(budgets()) > 1:  # one point is no line
            draw()
        return
    from reproduction.few_epochs import studies  # torch is for training only

    parser = argparse.ArgumentParser(prog="python -m reproduction.few_epochs")
    parser.add_argument("what", choices=["run", "collect"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=list(studies.KINDS), nargs="?")
    parser.add_argument("--epochs", type=int, nargs="+", choices=studies.BUDGETS, default=[1])
    parser.add_argument("--datasets", nargs="+", default=list(studies.PREPARATIONS))
    parser.add_argument("--losses", nargs="+", choices=studies.LOSSES, default=studies.LOSSES)
    given = parser.parse_args()
    if given.what == "collect":
        studies.collect(given.folder)
    for epochs in given.epochs if given.what == "run" else ():
        studies.run(given.folder, given.kind, epochs, given.datasets, given.losses)


if __name__ == "__main__":
    main()
