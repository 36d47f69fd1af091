"""Every published benchmark file loads with the facts of its manifest (needs TAILBATCH_DATA)."""

import csv
from pathlib import Path

import pytest

from tailbatch.data import load_dataset
from tailbatch.imbalance import label_cardinality, mean_imbalance_ratio

FILES = [
    "bibtex/bibtex.arff.gz",
    "cal500/cal500.arff.gz",
    "corel5k/corel5k.arff.gz",
    "emotions/emotions.arff.gz",
    "enron/enron.arff.gz",
    "flags/flags.arff.gz",
    "llog-f/langlog.arff.gz",
    "llog-f/llog-f.arff.gz",
    "rcv1subset1/rcv1subset1.arff.gz",
    "rcv1subset2/rcv1subset2.arff.gz",
    "rcv1subset3/rcv1subset3.arff.gz",
    "scene/scene.arff.gz",
    "tmc2007-500/tmc2007-500.arff.gz",
    "tmc2007/tmc2007-labels.arff.gz",
    "yahoo-arts/yahoo-arts.arff.gz",
    "yahoo-business/yahoo-business.arff.gz",
    "yeast/yeast.arff.gz",
]


@pytest.fixture(scope="module")
def manifest(benchmark_data):
    with Path(benchmark_data, "MANIFEST.tsv").open() as stream:
        return {row["file"]: row for row in csv.DictReader(stream, delimiter="\t")}


def test_the_list_of_files_is_complete(manifest):
    assert sorted(manifest) == sorted(FILES)


@pytest.mark.parametrize("file", FILES)
def test_facts_are_those_of_the_manifest(file, manifest, benchmark_data):
    data, row = load_dataset(benchmark_data / file), manifest[file]
    # The manifest counts attributes; a nominal one with several values is several features here.
    attributes = {name.partition("=")[0] for name in data.feature_names}
    n_attributes = len(attributes) if data.name == "flags" else data.n_features
    found = {
        "n": str(data.n_samples),
        "d": str(n_attributes),
        "q": str(data.n_labels),
        "Card": f"{label_cardinality(data.Y):.4f}",
        "MeanIR": f"{mean_imbalance_ratio(data.Y):.4f}",
    }
    assert found == {key: row[key] for key in found}


def test_both_layouts_of_llog_f_are_one_dataset(benchmark_data):
    first, last = (
        load_dataset(benchmark_data / "llog-f" / name)
        for name in ("llog-f.arff.gz", "langlog.arff.gz")
    )
    assert first.digest == last.digest
