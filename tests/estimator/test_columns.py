"""Tables and texts as people hand them to the estimator, and what it says to those it cannot use."""

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from tailbatch.data import Columns
from tailbatch.errors import DataError
from tailbatch.estimator import TailbatchClassifier

FAST = {"model": "mlp", "epochs": 2, "batch_size": 16, "random_state": 0}
TEXTS = [
    f"{('printer', 'card')[k % 2]} number {k} is {('broken', 'lost')[k // 2 % 2]}"
    for k in range(60)
]
Y = np.array([[k % 2, k // 2 % 2] for k in range(60)])
FRAME = pd.DataFrame({"body": TEXTS, "length": np.arange(60) % 7})


@pytest.mark.parametrize(
    ("columns", "remedy"),
    [
        ("body", r"got 'body'; write columns=Columns\(text=\['body'\]\) for columns of text"),
        (["body"], r"write columns=Columns\(text=\['body'\]\) for columns of text"),
        ({"length": "category"}, r"write columns=Columns\(kinds=\{'length': 'category'\}\)"),
        (3, r"got 3; write for instance columns=Columns\(text="),
    ],
)
def test_columns_that_are_none_name_what_to_write(columns, remedy):
    with pytest.raises(DataError, match=remedy):
        TailbatchClassifier(columns=columns, **FAST).fit(FRAME, Y)


@pytest.mark.parametrize(
    "X",
    [
        TEXTS,
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pd.Series(TEXTS),
        pd.Series(TEXTS, dtype="string"),
    ],
    ids=["list", "array", "objects", "series", "string series"],
)
@pytest.mark.parametrize("columns", [None, Columns(text=["body"])])
def test_texts_are_read_as_a_column_of_text(X, columns):
    expected = TailbatchClassifier(columns=Columns(text=["body"]), **FAST)
    expected = expected.fit(pd.DataFrame({"body": TEXTS}), Y).predict_proba(
        pd.DataFrame({"body": TEXTS})
    )
    fitted = TailbatchClassifier(columns=columns, **FAST).fit(X, Y)
    np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    np.testing.assert_array_equal(fitted.predict_proba(TEXTS), expected)


@pytest.mark.parametrize(
    "X", [np.array(TEXTS)[:, None], [[text] for text in TEXTS]], ids=["column", "rows"]
)
def test_texts_in_rows_name_what_to_do(X):
    with pytest.raises(DataError, match=r"'printer number 0.*a list with one text for each row"):
        TailbatchClassifier(**FAST).fit(X, Y)


def test_texts_to_predict_for_a_model_of_numbers_are_named():
    classifier = TailbatchClassifier(**FAST).fit(np.arange(60.0)[:, None], Y)
    with pytest.raises(DataError, match="X holds text, such as 'printer number 0"):
        classifier.predict(TEXTS)


@pytest.mark.parametrize(
    ("place", "cell", "message"),
    [
        (3, b"so sad", "b'so sad' in row 3: decode bytes"),
        (7, 5, "got 5 in row 7"),
        (0, [], "in row 0"),
    ],
)
def test_what_is_no_text_among_texts_is_named_by_its_row(place, cell, message):
    texts = list(TEXTS)
    texts[place] = cell
    with pytest.raises(DataError, match=message):
        TailbatchClassifier(**FAST).fit(texts, Y)


def test_a_missing_and_an_endless_text_are_texts():
    texts = [*TEXTS[:-3], None, "", "word " * 20_000]
    assert TailbatchClassifier(**FAST).fit(texts, Y).predict(texts).shape == Y.shape


def test_what_the_message_says_works():
    frame = pd.DataFrame({"text": TEXTS})
    fitted = TailbatchClassifier(columns=Columns(text=["text"]), **FAST).fit(frame, Y)
    assert fitted.predict(frame).shape == Y.shape
    pipeline = make_pipeline(TfidfVectorizer(), TailbatchClassifier(**FAST)).fit(TEXTS, Y)
    assert pipeline.predict(TEXTS).shape == Y.shape


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b", "a"]])
def test_a_column_that_occurs_twice_is_named(names):
    X = pd.DataFrame(np.random.default_rng(0).random((60, len(names))), columns=names)
    with pytest.raises(DataError, match="the column 'a' of X occurs twice; rename one"):
        TailbatchClassifier(**FAST).fit(X, Y)
    with pytest.raises(DataError, match="the column 'a' of X occurs twice; rename one"):
        TailbatchClassifier(columns=Columns(), **FAST).fit(X, Y)
    once = X.set_axis([f"c{place}" for place in range(len(names))], axis=1)
    classifier = TailbatchClassifier(**FAST).fit(once, Y)
    with pytest.raises(DataError, match="the column 'a' of X occurs twice"):
        classifier.predict(X)


def test_a_fitted_table_refuses_a_column_that_occurs_twice():
    fitted = Columns().fit(FRAME)
    twice = pd.concat([FRAME, FRAME[["length"]]], axis=1)
    with pytest.raises(DataError, match="the column 'length' occurs twice"):
        fitted.transform(twice)
