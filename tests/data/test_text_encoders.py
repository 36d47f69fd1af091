"""Text as embeddings beside words: encoded once, kept on disk, known by a digest."""

import json
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from encoder_work import tiny_encoder
from tailbatch.cli import main
from tailbatch.data import Columns, MultiLabelDataset, embeddings, split, stratified_folds
from tailbatch.data.column_parts import EmbeddingPart
from tailbatch.data.corpora import load_texts
from tailbatch.errors import DataError
from tailbatch.estimator import TailbatchClassifier

COMMENTS = [f"my printer is broken {number}" if number % 3 else "password" for number in range(40)]
TAGS = [["hardware"] if number % 3 else ["access"] for number in range(40)]

pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny encoder, with a cache folder of its own and nothing loaded before."""
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path / "cache"))
    embeddings.load_encoder.cache_clear()
    yield tiny_encoder(tmp_path / "encoder")
    embeddings.load_encoder.cache_clear()


@pytest.fixture
def encoded(folder, monkeypatch):
    """The texts that encoders encode, in order."""
    seen, encode = [], embeddings.Pretrained.encode
    monkeypatch.setattr(
        embeddings.Pretrained,
        "encode",
        lambda self, texts: seen.extend(texts) or encode(self, texts),
    )
    return seen


def frame(**columns):
    return pd.DataFrame({"comment": COMMENTS, "tags": TAGS, **columns})


def test_a_text_is_encoded_once_for_all_folds_and_processes(folder, encoded):
    data = MultiLabelDataset.from_frame(frame(), labels="tags", text=["comment"], encoder=folder)
    for fold in stratified_folds(data.Y, n_folds=4, seed=0):
        parts = split(data, fold, scale=False)
        assert {"comment:printer", "comment~15"} <= set(parts.train.feature_names)
    embeddings.load_encoder.cache_clear()  # as another process, which finds the file
    MultiLabelDataset.from_frame(frame(), labels="tags", text=["comment"], encoder=folder)
    assert sorted(encoded) == sorted(set(COMMENTS))


def test_embeddings_do_not_depend_on_what_is_encoded_together_or_kept(folder):
    together = embeddings.embedded(folder, COMMENTS, "x")
    again = embeddings.embedded(folder, COMMENTS[::-1], "x")[::-1]
    np.testing.assert_array_equal(together, again)
    alone = np.concatenate([embeddings.load_encoder(folder).encode([text]) for text in COMMENTS])
    np.testing.assert_allclose(alone, together, atol=0.02)  # bfloat16 where the processor has it


def test_an_encoder_computes_what_transformers_does(folder, monkeypatch):
    from transformers import AutoModel, AutoTokenizer

    monkeypatch.setattr(embeddings, "fast_precision", lambda device: torch.float32)
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder).eval(),
    )
    texts = ["", "printer jam", "the " * 50]
    with torch.no_grad():
        expected = [
            torch.nn.functional.normalize(
                model(
                    **tokenizer(text, return_tensors="pt", truncation=True)
                ).last_hidden_state.mean(1)
            )[0].numpy()
            for text in texts
        ]
    np.testing.assert_allclose(embeddings.embedded(folder, texts, "x"), expected, atol=1e-5)


def test_the_file_of_embeddings_is_bounded_and_a_damaged_one_is_no_error(
    folder, monkeypatch, caplog
):
    monkeypatch.setattr(embeddings, "MOST_CACHED_BYTES", 3 * (4 * 16 + 64))
    expected = embeddings.embedded(folder, COMMENTS, "comment")
    (file,) = Path(folder).parent.glob("cache/embeddings/*.sqlite")
    assert sqlite3.connect(file).execute("SELECT count(*) FROM kept").fetchone() == (3,)
    file.write_bytes(b"this is no database" * 100)
    np.testing.assert_allclose(
        embeddings.embedded(folder, COMMENTS, "comment"), expected, atol=0.02
    )
    assert "embeddings are not kept" in caplog.text


def test_a_model_says_which_encoder_it_needs_and_refuses_another(folder, tmp_path):
    classifier = TailbatchClassifier("mlp", encoder=folder, epochs=2, random_state=0)
    classifier.fit(COMMENTS, TAGS)
    expected = classifier.predict_proba(COMMENTS)
    classifier.save(tmp_path / "model")
    again = TailbatchClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(COMMENTS), expected)
    (part,) = (part for part in again.columns_.parts if isinstance(part, EmbeddingPart))
    assert (part.encoder, len(part.digest)) == (folder, 64)
    embeddings.load_encoder.cache_clear()
    tiny_encoder(folder, seed=1)
    with pytest.raises(DataError, match=r"by another .* its digest was .* fit again"):
        again.predict(COMMENTS)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda path: (path / "config.json").unlink(),
            "holds no text encoder: config.json is missing",
        ),
        (lambda path: (path / "model.safetensors").unlink(), "neither a folder with its weights"),
        (lambda path: (path / "config.json").write_text("{}"), "cannot load the text encoder"),
        (
            lambda path: (path / "modules.json").write_text(json.dumps([{"type": "a.Dense"}])),
            "does more than pool its tokens .Dense.; give a function",
        ),
    ],
    ids=["no configuration", "no weights", "empty configuration", "more modules"],
)
def test_a_folder_that_is_no_encoder_says_why_before_training(folder, spoil, message):
    spoil(Path(folder))
    with pytest.raises(DataError, match=message) as caught:
        TailbatchClassifier(encoder=folder).fit(COMMENTS, TAGS)
    assert "\n" not in str(caught.value)


def test_a_name_that_nothing_has_says_so(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r"neither a folder .* nor found on the hub"):
        TailbatchClassifier(encoder="nobody/nothing-at-all").fit(COMMENTS, TAGS)
    with pytest.raises(DataError, match="did you mean 'minilm'"):
        TailbatchClassifier(encoder="minlm").fit(COMMENTS, TAGS)


def test_an_encoder_without_text_says_so():
    with pytest.raises(
        DataError, match="encoder='minilm' is for text, and X has no column of text"
    ):
        TailbatchClassifier(encoder="minilm").fit(np.eye(40), np.eye(40, 2))
    with pytest.raises(DataError, match="differ: give one"):
        TailbatchClassifier(encoder="minilm", columns=Columns(encoder=len)).fit(COMMENTS, TAGS)


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
    classifier = TailbatchClassifier("mlp", encoder=function, epochs=2, random_state=0)
    classifier.fit(COMMENTS, TAGS)
    expected = classifier.predict_proba(COMMENTS)
    classifier.save(tmp_path)
    again = TailbatchClassifier.load(tmp_path)
    with pytest.raises(DataError, match="with_encoder"):
        again.predict(COMMENTS)
    again.columns_ = again.columns_.with_encoder(function)
    np.testing.assert_array_equal(again.predict_proba(COMMENTS), expected)


def test_what_is_no_array_of_numbers_is_an_error_that_says_so():
    with pytest.raises(DataError, match="gave no array of numbers for the column 'text'"):
        TailbatchClassifier(encoder=lambda texts: [{"a": 1} for _ in texts]).fit(COMMENTS, TAGS)


@pytest.mark.slow
def test_minilm_learns_emotions_and_is_found_again(benchmark_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TAILBATCH_DATA", str(benchmark_data))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    if not (benchmark_data / "goemotions").is_dir():
        pytest.skip("goemotions is not in TAILBATCH_DATA")
    if embeddings.packaged("minilm") is None:
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

    command("tailbatch fit train.csv --labels tags --text comment --encoder minilm --out model")
    command("tailbatch evaluate model test.csv --csv labels.csv")
    command("tailbatch predict model test.csv --out chances.csv")
    assert pd.read_csv("labels.csv")["auc"].mean() > 0.65  # 0.75; by chance: 0.5
    # From Python, the same from a data frame.
    train, test = (pd.read_csv(f"{name}.csv") for name in ("train", "test"))
    columns = Columns(text=["comment"], encoder="minilm")
    classifier = TailbatchClassifier(columns=columns, random_state=0)
    classifier.fit(train[["comment"]], train["tags"].str.split(";"))
    scores = classifier.predict_proba(test[["comment"]])
    chances = pd.read_csv("chances.csv")
    assert np.abs(chances[list(classifier.label_names_)] - scores).to_numpy().max() < 1e-3
