"""Build the embedded dataset ``debtags`` from the package index of a Debian system.

A row is a Debian package, a label is a tag assigned by volunteers, and a feature is a fact: a package
it depends on, recommends or suggests, a part of its name, or its section. Descriptions are not read.
The same index gives the same bytes.

    python scripts/build_debtags.py                              # asks apt-cache for the index
    apt-cache dumpavail > index.txt
    python scripts/build_debtags.py index.txt --card docs/debtags.md --source "Debian 12, amd64"
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from tailbatch.data import MultiLabelDataset, save_npz, stratified_split
from tailbatch.imbalance import label_cardinality, label_density, mean_imbalance_ratio

ROWS = 4000
FEATURES = 800
FEWEST_POSITIVES = 20
SEED = 0
PACKAGE_DATA = Path(__file__).parents[1] / "src" / "tailbatch" / "data" / "debtags.npz"
RELATIONS = {
    "Pre-Depends": "depends",
    "Depends": "depends",
    "Recommends": "recommends",
    "Suggests": "suggests",
}


@dataclass(frozen=True)
class Package:
    """One tagged package: its facts and its tags."""

    name: str
    source: str
    facts: frozenset[str]
    tags: frozenset[str]


def packages(index: Iterable[str]) -> Iterator[Package]:
    """Yield the tagged packages of an index in Debian's control format, each name once."""
    seen = set()
    for stanza in stanzas(index):
        name, tags = stanza.get("Package"), tags_of(stanza)
        if name and tags and name not in seen:
            seen.add(name)
            source = stanza.get("Source", name).split()[0]
            yield Package(name, source, frozenset(facts_of(stanza)), tags)


def stanzas(index: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield each paragraph as a dict; lines that begin with a space continue a field."""
    stanza: dict[str, str] = {}
    field = ""
    for line in [*index, "\n"]:
        if not line.strip():
            if stanza:
                yield stanza
            stanza = {}
        elif line[0] in " \t":
            stanza[field] += line
        else:
            field, _, value = line.partition(":")
            stanza[field] = value.strip()


def tags_of(stanza: dict[str, str]) -> frozenset[str]:
    """Return the tags, without the ``::TODO`` marks of missing ones."""
    tags = (tag.strip() for tag in stanza.get("Tag", "").split(","))
    return frozenset(tag for tag in tags if tag and not tag.endswith("::TODO"))


def facts_of(stanza: dict[str, str]) -> Iterator[str]:
    """Yield the facts of a package; each alternative (``a | b``) counts."""
    for field, relation in RELATIONS.items():
        for dependency in re.split(r"[,|]", stanza.get(field, "")):
            name = re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", dependency)
            if name:
                yield f"{relation}={name[1]}"
    for part in re.findall(r"^lib|[a-z]{2,}", stanza["Package"]):
        yield f"name={part}"
    if "Section" in stanza:
        yield f"section={stanza['Section']}"


def one_per_source(candidates: Iterable[Package]) -> list[Package]:
    """Keep one package of each source, chosen by a hash of its name.

    Packages built from one source share names and dependencies: with several of them, test rows
    would have near duplicates among the training rows.
    """
    chosen: dict[str, tuple[str, Package]] = {}
    for package in candidates:
        key = hashlib.sha256(package.name.encode()).hexdigest()
        chosen[package.source] = min(
            chosen.get(package.source, (key, package)), (key, package), key=lambda pair: pair[0]
        )
    return sorted((package for _, package in chosen.values()), key=lambda package: package.name)


def indicator(sets: list[frozenset[str]], names: list[str]) -> sparse.csr_array:
    """Return the (len(sets), len(names)) matrix of which set contains which name."""
    column = {name: j for j, name in enumerate(names)}
    rows = [sorted(column[name] for name in one if name in column) for one in sets]
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    indices = np.fromiter((j for row in rows for j in row), dtype=np.int32)
    shape = (len(sets), len(names))
    return sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=shape)


def commonest(sets: list[frozenset[str]], *, at_most: int, at_least: int) -> list[str]:
    """Return the names in the most sets, ties by name, in alphabetical order."""
    counts = Counter(name for one in sets for name in one)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    return sorted(name for name in ranked[:at_most] if counts[name] >= at_least)


def build(candidates: list[Package]) -> MultiLabelDataset:
    """Draw a stratified sample and turn it into a dataset."""
    tags = [package.tags for package in candidates]
    every_tag = sorted(set().union(*tags))
    labels = indicator(tags, every_tag)
    if len(candidates) > ROWS:
        share = ROWS / len(candidates)
        part = stratified_split(labels.astype(bool), validation=0, test=share, seed=SEED).test
        candidates = [candidates[i] for i in part]
    tags = [package.tags for package in candidates]
    facts = [package.facts for package in candidates]
    label_names = commonest(tags, at_most=len(every_tag), at_least=FEWEST_POSITIVES)
    feature_names = commonest(facts, at_most=FEATURES, at_least=1)
    return MultiLabelDataset.from_arrays(
        indicator(facts, feature_names),
        indicator(tags, label_names).toarray() > 0,
        name="debtags",
        feature_names=feature_names,
        label_names=label_names,
    )


def baseline(dataset: MultiLabelDataset) -> dict[str, float]:
    """Return the scores of one-vs-rest logistic regression on a stratified fifth of the rows."""
    # Slow to import, and only the data card needs it.
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score, roc_auc_score
    from sklearn.multiclass import OneVsRestClassifier

    fold = stratified_split(dataset.Y, validation=0, test=0.2, seed=SEED)
    train, test = dataset.take(fold.train), dataset.take(fold.test)
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear", C=1.0, random_state=SEED))
    scores = model.fit(train.X, train.Y).predict_proba(test.X)
    predicted = scores >= 0.5
    return {
        "Macro-AUC": roc_auc_score(test.Y, scores, average="macro"),
        "Macro-F": f1_score(test.Y, predicted, average="macro", zero_division=0),
        "Micro-F": f1_score(test.Y, predicted, average="micro", zero_division=0),
    }


def statistics(dataset: MultiLabelDataset, *, source: str, digest: str) -> str:
    """Return the computed part of the data card."""
    positives = np.asarray(dataset.Y.sum(axis=0))
    kinds = Counter(name.partition("=")[0] for name in dataset.feature_names)
    distinct = len(np.unique(dataset.X.toarray(), axis=0))
    commonest_label = dataset.label_names[positives.argmax()]
    facts = {
        "Index": source,
        "SHA-256 of the index's tagged stanzas": f"`{digest}`",
        "Packages (rows)": f"{dataset.n_samples:,}",
        "Features": f"{dataset.n_features}: " + ", ".join(f"{n} {k}" for k, n in kinds.items()),
        "Features set in a row, on average": f"{dataset.X.sum() / dataset.n_samples:.1f}",
        "Labels": str(dataset.n_labels),
        "Label cardinality": f"{label_cardinality(dataset.Y):.4f}",
        "Label density": f"{label_density(dataset.Y):.4f}",
        "MeanIR": f"{mean_imbalance_ratio(dataset.Y):.4f}",
        "Positives of a label": f"{positives.min()} to {positives.max()} (`{commonest_label}`)",
        "Rows without a label": str(int((~dataset.Y.any(axis=1)).sum())),
        "Rows with the features of an earlier row": f"{dataset.n_samples - distinct:,}",
        **{f"Baseline {name}": f"{value:.3f}" for name, value in baseline(dataset).items()},
    }
    lines = [f"| {key} | {value} |" for key, value in facts.items()]
    return "\n".join(["| fact | value |", "|---|---|", *lines])


def write_card(path: Path, text: str) -> None:
    """Put the statistics between the markers of the data card."""
    begin, end = "<!-- statistics -->", "<!-- end statistics -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def read_index(path: str | None) -> list[str]:
    """Return the lines of the index from a file, from standard input (``-``) or from apt-cache."""
    if path is None:
        command = ["apt-cache", "dumpavail"]
        text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    else:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    return text.splitlines(keepends=True)


def main() -> None:
    """Build the dataset, and update the data card if requested."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("index", nargs="?", help="output of `apt-cache dumpavail`; - is stdin")
    parser.add_argument("--output", type=Path, default=PACKAGE_DATA, help="the npz file to write")
    parser.add_argument("--card", type=Path, help="data card whose statistics to rewrite")
    parser.add_argument("--source", default="unnamed", help="which index this is, for the card")
    options = parser.parse_args()
    tagged = sorted(packages(read_index(options.index)), key=lambda package: package.name)
    dataset = build(one_per_source(tagged))
    save_npz(dataset, options.output)
    print(f"{options.output.name}: {options.output.stat().st_size:,} bytes")
    if options.card:
        listing = "\n".join(f"{p.name} {sorted(p.facts)} {sorted(p.tags)}" for p in tagged)
        digest = hashlib.sha256(listing.encode()).hexdigest()
        text = statistics(dataset, source=options.source, digest=digest)
        write_card(options.card, text)
        print(text)


if __name__ == "__main__":
    main()
