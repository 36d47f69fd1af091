import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tailbatch.data import catalog, load_dataset, load_texts
from tailbatch.imbalance import label_counts, mean_imbalance_ratio

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "build_debtags.py"

INDEX = """\
Package: libfoo-perl
Source: foo (1.0)
Pre-Depends: dpkg (>= 1.15)
Depends: perl:any | perl-base (>= 5), libc6
Recommends: bar
Suggests: baz2.0
Section: perl
Description: text that must not be read
 depends: neither this
Tag: role::shared-lib, devel::lang:perl,
 implemented-in::TODO

Package: libfoo-perl
Tag: role::program

Package: foo-doc
Source: foo
Tag: role::documentation

Package: untagged
Depends: libc6
"""


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("build_debtags", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_embedded_dataset_keeps_its_promises():
    data = load_dataset("debtags")
    assert catalog.find("debtags").stat().st_size < 500_000
    assert 3000 <= data.n_samples <= 6000
    assert 500 <= data.n_features <= 1000
    assert 60 <= data.n_labels <= 120
    assert label_counts(data.Y).min() >= 20
    assert data.is_sparse
    assert set(np.unique(data.X.data)) == {1.0}


def test_the_catalog_knows_its_facts():
    data, entry = load_dataset("debtags"), catalog.known("debtags")
    catalog.check(data, "debtags")
    assert round(mean_imbalance_ratio(data.Y), 4) == entry.mean_imbalance_ratio
    assert catalog.file_matches(catalog.find("debtags"))


def test_the_data_card_has_the_facts_and_the_baseline():
    card = (ROOT / "docs" / "debtags.md").read_text(encoding="utf-8")
    entry = catalog.known("debtags")
    assert f"| Label cardinality | {entry.label_cardinality:.4f} |" in card
    assert f"| MeanIR | {entry.mean_imbalance_ratio:.4f} |" in card
    for score in ("Macro-AUC", "Macro-F", "Micro-F"):
        assert f"| Baseline {score} | 0." in card


def test_features_are_facts_and_never_the_description(script):
    first, second = script.packages(INDEX.splitlines(keepends=True))
    assert first.facts == {
        *("depends=dpkg", "depends=perl", "depends=perl-base", "depends=libc6"),
        *("recommends=bar", "suggests=baz2.0", "section=perl"),
        *("name=lib", "name=foo", "name=perl"),
    }
    assert first.tags == {"role::shared-lib", "devel::lang:perl"}
    assert second.name == "foo-doc"


def test_one_package_is_kept_of_each_source(script):
    found = list(script.packages(INDEX.splitlines(keepends=True)))
    assert len(script.one_per_source(found)) == 1
    assert script.one_per_source(found) == script.one_per_source(found[::-1])


def test_the_same_index_gives_the_same_bytes(tmp_path):
    index = "\n".join(
        f"Package: p{i}\nDepends: lib{i % 7}, lib{i % 3}\nTag: role::a{i % 2}, use::b{i % 3}\n"
        for i in range(200)
    )
    outputs = [tmp_path / "1.npz", tmp_path / "2.npz"]
    for seed, output in enumerate(outputs):
        subprocess.run(
            [sys.executable, SCRIPT, "-", "--output", output],
            input=index,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            text=True,
            check=True,
            capture_output=True,
        )
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert load_dataset(outputs[0]).label_names == (
        *("role::a0", "role::a1"),
        *("use::b0", "use::b1", "use::b2"),
    )


def test_descriptions_and_tags_become_a_corpus_that_loads(tmp_path):
    index = "\n".join(
        f"Package: p{i}\nDescription: does\t{i % 7} things\n in {i} more lines\n"
        f"Tag: role::a{i % 2}, use::b{i % 3}, rare::c{i}\n"
        for i in range(200)
    )
    index += "\nPackage: undescribed\nTag: role::a0\n"
    for seed, folder in enumerate(("1", "2")):
        subprocess.run(
            [sys.executable, SCRIPT.with_name("build_debtags_texts.py"), tmp_path / folder, "-"],
            input=index,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            text=True,
            check=True,
            capture_output=True,
        )
    parts = load_texts(tmp_path / "1")
    texts = [*parts.train.texts, *parts.validation.texts, *parts.test.texts]
    assert sorted(texts) == sorted(f"p{i}: does {i % 7} things" for i in range(200))
    assert parts.train.label_names == ("role::a0", "role::a1", "use::b0", "use::b1", "use::b2")
    assert (parts.train.Y.sum(axis=1) == 2).all()
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes(), path.name
