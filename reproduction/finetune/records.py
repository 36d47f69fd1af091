"""The committed records of the fine-tuning study: one file per study, rewritten only for new runs."""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "records"
SUFFIX = ".jsonl.gz"
Record = Mapping[str, Any]


@cache
def read(folder: Path = FOLDER) -> tuple[Record, ...]:
    """Return the committed records of all studies."""
    return tuple(record for path in sorted(folder.glob(f"*{SUFFIX}")) for record in _read(path))


def collect(store: Path, folder: Path = FOLDER) -> list[Path]:
    """Add the runs of a store that the committed records lack; return the files that grew.

    The same runs give the same bytes, in whatever order they were done.
    """
    new: dict[str, dict[str, Record]] = {}
    for path in store.glob("*.json"):
        record = json.loads(path.read_text())
        new.setdefault(record["run"]["study"], {})[key(record["run"])] = record
    written = []
    for study, found in sorted(new.items()):
        path = folder / f"{study}{SUFFIX}"
        kept = {key(record["run"]): record for record in _read(path)} if path.exists() else {}
        if found.keys() - kept.keys():
            folder.mkdir(exist_ok=True)
            lines = [json.dumps(record) for _, record in sorted((found | kept).items())]
            with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as stream:
                stream.write("".join(f"{line}\n" for line in lines).encode())
            written.append(path)
    read.cache_clear()
    return written


def key(run: Mapping[str, Any]) -> str:
    """Return what tells a run from all others."""
    return json.dumps(run, sort_keys=True)


def _read(path: Path) -> list[Record]:
    with gzip.open(path, "rt") as stream:
        return [json.loads(line) for line in stream]
