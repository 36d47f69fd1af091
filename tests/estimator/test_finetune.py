"""Encoders that are trained: in one call, saved whole, resumed, from names, with every other column."""

import logging
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from encoder_work import tiny_encoder
from tailbatch.cli import main
from tailbatch.data import Columns, embeddings
from tailbatch.errors import DataError, ModelError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.models import FineTuned
from tailbatch.models.finetuned import label_sentences

pytest.importorskip("transformers")

N = 96
TEXTS = [
    ("the printer is broken" if k % 3 else "reset my password") + f" {k % 11}" for k in range(N)
]
Y = [
    ["hardware", "late"] if k % 3 and k % 2 else ["hardware"] if k % 3 else ["access"]
    for k in range(N)
]
# "late" is told by a number alone, which no encoder sees.
TABLE = pd.DataFrame({"body": TEXTS, "hours": [9.5 - k % 2 * 8 for k in range(N)]})
FAST = {"finetune": True, "epochs": 12, "lr": 2e-3, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    embeddings.load_encoder.cache_clear()
    return tiny_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


@pytest.fixture(scope="module")
def fitted(encoder):
    columns = Columns(text=["body"])
    return TailbatchClassifier(encoder=encoder, columns=columns, **FAST).fit(TABLE, Y)


def test_text_and_numbers_are_learned_in_one_call(fitted):
    assert isinstance(fitted.model_, FineTuned)
    assert fitted.score(TABLE, Y) > 0.9  # 1.0; without the hours "late" is chance
    assert fitted.model_.wide.weight.abs().max() > 0
    assert fitted.predict(TABLE[:1], as_sets=True) == [set(Y[0])]


def test_a_saved_model_needs_neither_the_encoder_nor_a_pickle(fitted, tmp_path):
    expected = fitted.predict_proba(TABLE)
    fitted.save(tmp_path / "model")
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    code = (
        "import sys, numpy as np, pandas as pd; from tailbatch import TailbatchClassifier; "
        "from transformers import AutoModel; AutoModel.from_pretrained = None; "
        f"c = TailbatchClassifier.load({str(tmp_path / 'model')!r}); "
        f"t = pd.read_csv({str(tmp_path / 'rows.csv')!r}); "
        f"np.save({str(tmp_path / 'scores.npy')!r}, c.predict_proba(t))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, atol=1e-6)
    (part,) = (part for part in fitted.columns_.parts if part.kind == "tokens")
    assert len(part.digest) == 64
    assert str(part.encoder) not in fitted.model_.hyperparameters["encoder"]
    again = TailbatchClassifier.load(tmp_path / "model")
    assert again.get_params()["finetune"]
    np.testing.assert_array_equal(again.predict_proba(TABLE), expected)


def test_scores_do_not_depend_on_the_rows_beside_them(fitted, monkeypatch):
    monkeypatch.setattr(embeddings, "fast_precision", lambda device: torch.float32)
    together = fitted.predict_proba(TABLE)
    alone = np.concatenate([fitted.predict_proba(TABLE[k : k + 1]) for k in range(0, N, 7)])
    np.testing.assert_allclose(alone, together[::7], atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "importance", "loss": "weighted_bce"},
        {"strategy": "adaptive", "selection_pressure": 4},
        {"loss": "focal", "model__length_groups": 1},
    ],
    ids=["importance", "adaptive", "focal"],
)
def test_every_strategy_and_loss_works(encoder, settings):
    few = FAST | {"epochs": 2} | settings
    classifier = TailbatchClassifier(encoder=encoder, **few).fit(TEXTS, Y)
    assert np.isfinite(classifier.predict_proba(TEXTS)).all()


def test_missing_labels_empty_texts_and_one_row_are_fine(encoder):
    labels = np.array([[k % 3 == 0, k % 2] for k in range(N)], dtype=float)
    labels[3, 1] = np.nan
    texts = ["", *TEXTS[1:-2], None, "word " * 20_000]
    few = FAST | {"epochs": 1}
    classifier = TailbatchClassifier(encoder=encoder, missing_labels="mask", **few).fit(
        texts, labels
    )
    assert classifier.predict_proba([""]).shape == (1, 2)


def test_a_stopped_training_continues_where_it_was(encoder, tmp_path):
    class Stop(Exception):
        pass

    def stop(step, total, objective):
        if step == 15:
            raise Stop

    settings = FAST | {"epochs": 12, "encoder": encoder, "batch_size": 32}
    whole = TailbatchClassifier(**settings).fit(TEXTS, Y)
    listener = SimpleNamespace(on_batch=stop, on_epoch=lambda epoch: None)
    with pytest.raises(Stop):
        TailbatchClassifier(**settings, checkpoint_folder=tmp_path, callbacks=[listener]).fit(
            TEXTS, Y
        )
    resumed = TailbatchClassifier(**settings, checkpoint_folder=tmp_path).fit(TEXTS, Y)
    np.testing.assert_array_equal(resumed.predict_proba(TEXTS), whole.predict_proba(TEXTS))


def test_a_head_starts_at_what_the_names_mean(encoder, caplog):
    names = ["printer broken", "password"]
    labels = np.array([[k % 3 > 0, False] for k in range(N)])
    settings = FAST | {"epochs": 1, "lr": 1e-9, "validation_fraction": 0, "encoder": encoder}
    texts = [text.rpartition(" ")[0] for text in TEXTS]
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        logging.getLogger("tailbatch.models").setLevel(logging.NOTSET)
        named = TailbatchClassifier(label_texts="names", label_names=names, **settings)
        found = named.fit(texts, labels).predict_proba(texts)
    assert "no training row has the label 'password': it is scored by its text alone" in caplog.text
    is_password = ~labels[:, 0]
    # At the start already each name finds its rows.
    assert found[is_password, 1].min() > found[~is_password, 1].max()
    assert found[is_password, 0].max() < found[~is_password, 0].min()
    sentences = {"password": "the printer is broken"}
    turned = TailbatchClassifier(label_texts=sentences, label_names=names, **settings)
    found = turned.fit(texts, labels).predict_proba(texts)
    assert found[is_password, 1].max() < found[~is_password, 1].min()


def test_names_become_texts():
    assert label_sentences(["a_mail", "role::mail-server"], "names") == [
        "a mail",
        "role mail server",
    ]
    assert label_sentences(["x1", "bug"], {"x1": "a crash"}) == ["a crash", "bug"]
    assert label_sentences(["1"], None) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_texts": "nmes"}, "label_texts must be 'names' or a table"),
        ({"label_texts": {"hardwar": "x"}}, "unknown label 'hardwar'; did you mean 'hardware'"),
        ({"label_texts": {"hardware": " "}}, "needs a text for 'hardware'"),
        (
            {"label_texts": "names", "label_names": ["1", "2", "3"]},
            "names that are words, and '1' is none",
        ),
        ({"label_texts": "names", "finetune": False}, "set finetune=True, too"),
        ({"model": "mlp"}, "a model of its own: leave model='mlp' out"),
        (
            {"encoder": lambda texts: np.zeros((len(texts), 2))},
            "a function has no weights to train",
        ),
        ({"scale": "standard"}, "the tokens of texts cannot be scaled by 'standard'"),
    ],
    ids=["word", "label", "sentence", "numbers", "frozen", "model", "function", "scaling"],
)
def test_a_mistake_is_named_before_training(encoder, settings, message, monkeypatch):
    labels = np.eye(3)[np.arange(N) % 3] if "label_names" in settings else Y
    with pytest.raises((ModelError, DataError), match=message) as caught:
        TailbatchClassifier(**{"encoder": encoder, **FAST, **settings}).fit(TEXTS, labels)
    assert "\n" not in str(caught.value)


def test_numbers_alone_are_no_text(encoder):
    with pytest.raises(DataError, match="is for text, and X has no column of text"):
        TailbatchClassifier(encoder=encoder, **FAST).fit(np.eye(40), np.eye(40, 3))


def test_the_commands_do_the_same(encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    TABLE.assign(tags=[";".join(row) for row in Y]).to_csv("train.csv", index=False)

    def command(line):
        monkeypatch.setattr(sys, "argv", line.split())
        with pytest.raises(SystemExit) as stopped:
            main()
        output = capsys.readouterr()
        assert not stopped.value.code, output.err
        return output.out

    command(
        f"tailbatch fit train.csv --labels tags --text body --encoder {encoder} --finetune --epochs 12 "
        "--lr 0.002 --out model --label-texts names"
    )
    command("tailbatch predict model train.csv --out scores.csv")
    assert "macro_f" in command("tailbatch evaluate model train.csv").lower()
    command("tailbatch explain model train.csv --label late")
    scores = pd.read_csv("scores.csv")
    assert (scores["access"][::3].min() > scores["access"][1::3].max()).all()
