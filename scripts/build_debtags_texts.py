"""Build a text corpus from the package index of a Debian system: what a package is, and its tags.

A text is a package's name and the line that describes it; the labels are the tags that volunteers gave
it. The folder has the format of GoEmotions, so ``tailbatch.data.load_texts(folder)`` reads it, and
``examples/finetune_text.py --texts folder`` fine-tunes on it. The same index gives the same bytes.

Descriptions are their maintainers' words, so no such corpus is in this repository: everyone builds
it from the index that apt has fetched.

    python scripts/build_debtags_texts.py debtags-texts          # asks apt-cache for the index
    python scripts/build_debtags_texts.py debtags-texts index.txt
"""

import argparse
import csv
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from build_debtags import Package, commonest, indicator, one_per_source, packages, read_index

from tailbatch.data import stratified_split
from tailbatch.files import replacing

FEWEST_POSITIVES = 50
SEED = 0


def descriptions(index: Iterable[str]) -> dict[str, str]:
    """Return the line that describes each package; longer descriptions go on in further lines."""
    found: dict[str, str] = {}
    package = ""
    for line in index:
        field, _, value = line.partition(":")
        if field == "Package":
            package = value.strip()
        elif field in ("Description", "Description-en"):
            found.setdefault(package, " ".join(value.split()))
    return found


def write_corpus(
    folder: Path, candidates: list[Package], described: dict[str, str]
) -> dict[str, int]:
    """Write the parts, four fifths of the rows for training; return how many rows each has."""
    tags = [package.tags for package in candidates]
    names = commonest(tags, at_most=len(set().union(*tags)), at_least=FEWEST_POSITIVES)
    labels = indicator(tags, names)
    some = np.flatnonzero(labels.sum(axis=1))  # a row of the format has at least one label
    labels = labels[some]
    fold = stratified_split(labels.astype(bool), validation=0.1, test=0.1, seed=SEED)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train.tsv": fold.train, "dev.tsv": fold.validation, "test.tsv": fold.test}
    for file, rows in parts.items():
        with replacing(folder / file) as path, path.open("w", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
            for row in rows:
                name = candidates[some[row]].name
                numbers = ",".join(map(str, sorted(labels[[row]].indices)))
                writer.writerow((f"{name}: {described[name]}", numbers, name))
    with replacing(folder / "labels.txt") as path:
        path.write_text("\n".join(names) + "\n", encoding="utf-8")
    return {file: len(rows) for file, rows in parts.items()}


def digests(folder: Path) -> Iterator[str]:
    """Yield each file's SHA-256 and name."""
    for path in sorted(folder.glob("*.t*")):
        yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}"


def main() -> None:
    """Build the corpus, and print its size and hashes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write the corpus")
    parser.add_argument("index", nargs="?", help="output of `apt-cache dumpavail`; - is stdin")
    options = parser.parse_args()
    index = read_index(options.index)
    described = descriptions(index)
    tagged = [package for package in packages(index) if package.name in described]
    print(write_corpus(options.folder, one_per_source(tagged), described))
    print("\n".join(digests(options.folder)))


if __name__ == "__main__":
    main()
