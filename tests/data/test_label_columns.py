"""Labels in any honest shape give the same matrix; what has two readings is an error."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MultiLabelBinarizer

from tailbatch.data import MultiLabelDataset, load_dataset
from tailbatch.data.labels import _listed_labels, label_sets
from tailbatch.errors import DataError
from tailbatch.estimator import TailbatchClassifier

TAGS = [["bug", "billing"], [], ["bug"], ["log in"]]
SHAPES = {
    "lists": TAGS,
    "tuples": [tuple(row) for row in TAGS],
    "sets": [set(row) for row in TAGS],
    "arrays": [np.array(row, dtype=object) for row in TAGS],
    "missing": [row or None for row in TAGS],
    "python": [str(row) for row in TAGS],
    "sets as text": [str(set(row)) for row in TAGS],
    "json": [json.dumps(row) for row in TAGS],
    "numpy": [str(np.array(row, dtype=str)) for row in TAGS],
    "no quotes": [f"[{', '.join(row)}]" for row in TAGS],
    "semicolons": [";".join(row) for row in TAGS],
    "commas": [", ".join(row) for row in TAGS],
    "bars": [" | ".join(row) for row in TAGS],
}


def dataset(cells, labels="tags"):
    frame = pd.DataFrame({"x": range(4), "tags": pd.Series(cells, dtype=object)})
    return MultiLabelDataset.from_frame(frame, labels=labels)


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "no quotes"])
def test_every_shape_gives_the_same_labels(shape):
    data = dataset(SHAPES[shape])
    assert data.label_names == ("billing", "bug", "log in")
    np.testing.assert_array_equal(data.Y, MultiLabelBinarizer().fit_transform(TAGS))


def test_a_list_without_quotes_that_may_be_one_name_is_an_error():
    with pytest.raises(DataError, match=r"'\[log in\]' in row 3, which is no list of names"):
        dataset(SHAPES["no quotes"])


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "ndjson.gz", "json", "json.gz"])
def test_lists_in_files(tmp_path, ending):
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "tags": TAGS})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines="json" not in ending.split("."))
    data = load_dataset(path, labels="tags")
    np.testing.assert_array_equal(data.Y, MultiLabelBinarizer().fit_transform(TAGS))
    assert data.feature_names == ("x",)


def test_a_key_that_a_line_lacks_is_missing(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"x": 1, "tags": ["a"]}\n\n{"tags": ["b"], "z": 2.5}\n')
    with pytest.raises(DataError, match="'x' has a missing value in line 3"):
        load_dataset(path, labels="tags", missing="error")
    data = load_dataset(path, labels="tags")
    assert data.X.tolist() == [[1, 2.5], [1, 2.5]]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["a;b", "c,d", "", ""], r"split at ';' it has 3 labels .*split at ',' it has 3 labels"),
        (
            ["a b", "a", "b", "b a"],
            r"with one label a cell it has 4 .*split at ' ' it has 2 labels",
        ),
        (["['a']", "['b']", "c", ""], "'c' in row 2, which is none"),
        ([["a"], [None], [], []], "lists None in row 1; a label must be text or a whole number"),
        ([["a"], [1.5], [], []], "lists 1.5 in row 1"),
        ([["a"], [["b"]], [], []], r"lists \['b'\] in row 1"),
    ],
)
def test_what_cannot_be_read_with_certainty_is_an_error(cells, message):
    with pytest.raises(DataError, match=message):
        dataset(cells)


def test_a_delimiter_decides():
    cells = ["Paris, Texas;films", "films", "", ""]
    assert dataset(cells, "tags:;").label_names == ("Paris, Texas", "films")
    assert dataset(cells, "tags:,").label_names == ("Paris", "Texas;films", "films")
    assert dataset(["a b", "a", "b", "b a"], "tags:").label_names == ("a", "a b", "b", "b a")
    assert dataset(["a b", "a", "b", "b a"], "tags: ").label_names == ("a", "b")


@pytest.mark.parametrize("kind", [int, bool, float, object])
def test_one_column_of_zeros_and_ones_is_one_label(kind):
    frame = pd.DataFrame({"x": range(4), "y": pd.Series([1, 0, 0, 1], dtype=kind)})
    data = MultiLabelDataset.from_frame(frame, labels="y")
    assert data.Y.tolist() == [[True], [False], [False], [True]]
    assert data.label_names == ("y",)


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1
)


@given(st.lists(st.lists(names, max_size=4), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_listed_labels_and_sets_are_inverse(rows):
    Y, found = _listed_labels(rows)
    assert label_sets(Y, found) == [set(row) for row in rows]


def test_the_estimator_takes_names_and_gives_sets():
    X = np.random.default_rng(0).random((80, 3))
    rows = [[name for name, hit in zip("abc", x > 0.6, strict=True) if hit] for x in X]
    classifier = TailbatchClassifier(epochs=20, lr=0.01, batch_size=16, random_state=0)
    classifier.fit(X, rows)
    assert classifier.label_names_ == ("a", "b", "c")
    same = TailbatchClassifier(epochs=20, lr=0.01, batch_size=16, random_state=0)
    same.fit(X, MultiLabelBinarizer().fit_transform(rows))
    np.testing.assert_array_equal(classifier.predict_proba(X), same.predict_proba(X))
    predicted = classifier.predict(X, as_sets=True)
    assert label_sets(classifier.predict(X), "abc") == predicted
    assert np.mean([a == set(b) for a, b in zip(predicted, rows, strict=True)]) > 0.5
