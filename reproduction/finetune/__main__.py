"""Fine-tuning on GoEmotions: do the runs, and write the page from their records.

    python -m reproduction.finetune run STORE --study frozen --epochs 0.5 1 3 10
    python -m reproduction.finetune run STORE --study frozen-32 --lags
    python -m reproduction.finetune run STORE --study finetuned --rows 10000
    python -m reproduction.finetune variance STORE
    python -m reproduction.finetune padding
    python -m reproduction.finetune [STORE]

The first three do the runs that a store lacks; STORE is a folder outside the repository. The last one
collects the store's records, if one is given, and writes docs/reproduction/finetuning.md, its
picture and a part of docs/large_data.md.
"""

import argparse
import sys
from pathlib import Path

from reproduction.finetune.page import write
from reproduction.finetune.records import collect
from reproduction.finetune.tables import FACTS


def main() -> None:
    """Run, or write the page."""
    if sys.argv[1:2] == ["run"]:
        _run(sys.argv[2:])
        return
    if sys.argv[1:2] == ["variance"]:
        from reproduction.finetune.variance import measure as measure_variance

        measure_variance(Path(sys.argv[2]))
        return
    if sys.argv[1:] == ["padding"]:
        from reproduction.finetune.padding import measure

        measure()
        return
    if len(sys.argv) > 1:
        collect(Path(sys.argv[1]))
    write()


def _run(arguments: list[str]) -> None:
    from reproduction.finetune import runs  # torch and transformers are for training only

    parser = argparse.ArgumentParser(prog="python -m reproduction.finetune run")
    parser.add_argument("store", type=Path)
    parser.add_argument("--study", choices=list(runs.STUDIES), required=True)
    parser.add_argument("--epochs", type=float, nargs="+", default=[1.0])
    parser.add_argument("--losses", nargs="+", choices=runs.LOSSES, default=runs.LOSSES)
    parser.add_argument("--arms", nargs="+", choices=list(runs.ARMS), default=list(runs.ARMS))
    parser.add_argument("--rows", type=int, help="the first so many training rows; all by default")
    parser.add_argument("--lr", type=float, help="this rate, without a search on validation rows")
    parser.add_argument("--seeds", type=int, help="so many; 3 for fine-tuning, otherwise 5")
    parser.add_argument("--every-rate", action="store_true", help="every arm at every rate")
    parser.add_argument("--settings", action="store_true", help="variants of importance, too")
    parser.add_argument("--lags", action="store_true", help="losses that come late, too")
    options = vars(parser.parse_args(arguments))
    store = runs.Store(options.pop("store"))
    runs.write_facts(FACTS)
    for run in runs.planned(options.pop("study"), store, **options):
        store.done(run)


if __name__ == "__main__":
    main()
