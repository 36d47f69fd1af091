import csv
import logging

import numpy as np
import pytest
from scipy import sparse

from tailbatch.data import catalog, load_dataset
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.folds import Fold, stratified_folds
from tailbatch.data.preparation import _last_columns_as_labels, largest_columns, prepare
from tailbatch.errors import DataError
from tailbatch.imbalance import label_cardinality, mean_imbalance_ratio


def lopsided(name="mine", n=100, d=8):
    """Labels with 60, 21, 20 and 0 positives."""
    X = np.arange(n * d, dtype=float).reshape(n, d) % 7
    Y = np.arange(n)[:, None] < np.array([60, 21, 20, 0])
    return MultiLabelDataset.from_arrays(X, Y, name=name, label_names=["a", "b", "c", "d"])


def test_full_drops_nothing():
    data = lopsided()
    assert prepare(data, "full").dataset is data


def test_paper_drops_labels_with_at_most_20_positives():
    assert prepare(lopsided(), "paper").dataset.label_names == ("a", "b")


def test_labels_with_too_few_positives_are_left_out_and_named():
    kept = prepare(lopsided(), "min-21").dataset
    assert kept.label_names == ("a", "b")
    (notice,) = kept.notices
    assert notice == "left out 2 of 4 labels with fewer than 21 positives: 'c' (20), 'd' (0)"
    data = lopsided()
    assert prepare(data.with_labels([0]), "min-21").dataset.notices == ()
    with pytest.raises(DataError, match=r"no label of mine has 61 positives.*the commonest has 60"):
        prepare(data, "min-61")
    with pytest.raises(DataError, match="unknown preparation 'min-0'"):
        prepare(data, "min-0")


def test_paper_would_leave_no_label():
    data = lopsided().with_labels([2, 3])
    with pytest.raises(DataError, match=r"no label of mine has more than 20 positives.*use full"):
        prepare(data, "paper")


def test_an_unknown_dataset_keeps_its_features():
    assert prepare(lopsided(), "paper").n_features == 8


def test_the_largest_features_by_number():
    X = np.array([[1, 5, 0, 3], [2, 5, 0, 3], [0, 0, 90, 0], [0, 0, 90, 0]], dtype=float)
    data = MultiLabelDataset.from_arrays(X, np.eye(4)[:, :1], name="mine")
    fold = Fold(np.array([0, 1]), np.array([2]), np.array([3]))
    assert prepare(data, "top-2").split(fold).train.feature_names == ("feature_1", "feature_3")
    assert prepare(data, "top-9").split(fold).train.n_features == 4
    assert prepare(data, "top-2").dataset.n_labels == 1  # rare ones stay


@pytest.mark.parametrize("name", ["top-0", "top-", "top--1", "top-2000 ", "top-1e3"])
def test_a_number_of_features_is_a_whole_number(name):
    with pytest.raises(DataError, match="unknown preparation"):
        prepare(lopsided(), name)


def test_unknown_preparations_are_refused():
    with pytest.raises(
        DataError, match="unknown preparation 'papre'; did you mean 'paper'\\? Known: full, paper"
    ):
        prepare(lopsided(), "papre")
    with pytest.raises(DataError, match="yeast has no preparation as-published, only yahoo-arts"):
        prepare(lopsided("yeast"), "as-published")


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
def test_features_are_chosen_by_training_rows_alone(monkeypatch, storage):
    X = np.array([[1, 5, 0, 3], [2, 5, 0, 3], [0, 0, 90, 0], [0, 0, 90, 0]], dtype=float)
    data = MultiLabelDataset.from_arrays(storage(X), np.ones((4, 1)), name="tmc2007")
    fold = Fold(np.array([0, 1]), np.array([2]), np.array([3]))
    known = {"tmc2007": catalog.KnownDataset("tmc2007", "", "", 4, 4, 1, 1, 1, 1, (), 2)}
    monkeypatch.setattr(catalog, "catalog", lambda: known)
    monkeypatch.setattr("tailbatch.data.preparation.FEW_POSITIVES", 0)
    parts = prepare(data, "paper").split(fold)
    assert parts.train.feature_names == ("feature_1", "feature_3")
    assert parts.test.feature_names == parts.train.feature_names
    assert parts.test.is_sparse == data.is_sparse


def test_equal_sums_keep_the_first_columns():
    assert largest_columns(np.ones((3, 5)), 2).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels_first", "features", "labels"),
    [(False, ["x", "y", "a"], ["b", "c"]), (True, ["a", "b", "c"], ["x", "y"])],
)
def test_the_last_columns_of_the_file_pass_for_labels(labels_first, features, labels):
    data = MultiLabelDataset.from_arrays(
        sparse.csr_array([[1.0, 0.0], [0.0, 1.0]]),
        [[1, 0, 0], [0, 1, 1]],
        feature_names=["x", "y"],
        label_names=["a", "b", "c"],
    )
    mangled = _last_columns_as_labels(data, catalog._AsPublished(2, labels_first))
    assert list(mangled.feature_names) == features
    assert list(mangled.label_names) == labels


@pytest.fixture(scope="module")
def manifest(benchmark_data):
    with (benchmark_data / "MANIFEST.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    return {row["file"]: row for row in rows}


NAMES = [
    *("corel5k", "rcv1subset1", "rcv1subset2", "rcv1subset3", "yahoo-arts", "yahoo-business"),
    *("cal500", "tmc2007-500", "bibtex", "enron", "yeast", "llog-f", "scene", "emotions"),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_preparation_gives_the_manifests_facts(name, benchmark_data, manifest):
    row = manifest[f"{name}/{name}.arff.gz"]
    prepared = prepare(load_dataset(name), "paper")
    assert prepared.n_features == int(row["prep_d"])
    assert prepared.dataset.n_labels == int(row["prep_q"])
    assert round(label_cardinality(prepared.dataset.Y), 4) == float(row["prep_Card"])
    assert round(mean_imbalance_ratio(prepared.dataset.Y), 4) == float(row["prep_MeanIR"])


@pytest.mark.parametrize(
    ("name", "mangled", "prepared_facts"),
    [
        ("llog-f", (75, 15.9356, 5.3933), (75, 15.9356, 5.3933)),
        ("yahoo-arts", (25, 1.4296, 98.4837), (23, 1.4286, 13.8156)),
        ("yahoo-business", (28, 0.4485, 94.5521), (23, 0.4448, 11.4837)),
    ],
)
def test_as_published_reproduces_the_mangled_labels(
    name, mangled, prepared_facts, benchmark_data, caplog
):
    data = load_dataset(name)
    entry = catalog.known(name)
    raw = _last_columns_as_labels(data, entry.as_published)
    assert facts(raw) == mangled
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        prepared = prepare(data, "as-published")
    assert "taken for labels, which they are not" in caplog.text
    assert facts(prepared.dataset) == prepared_facts
    assert prepared.dataset.n_features == (entry.paper_features or entry.n_features)
    fold = stratified_folds(prepared.dataset.Y, n_folds=5, seed=0)[0]
    assert prepared.split(fold).train.feature_names == prepared.dataset.feature_names


def facts(data):
    return (
        data.n_labels,
        round(label_cardinality(data.Y), 4),
        round(mean_imbalance_ratio(data.Y), 4),
    )
