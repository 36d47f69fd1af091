"""Answers of the commands: by label, by row, as tags, with the columns that were asked for."""

import json
import re
import stat

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tailbatch.cli.app import app


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.exception or result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    rng = np.random.default_rng(0)
    words = {"bug": "crash", "billing": "invoice", "rare": "phishing"}
    rows = []
    for number in range(240):
        tags = [
            tag for tag, share in zip(words, (0.5, 0.4, 0.08), strict=True) if rng.random() < share
        ]
        filler = list(rng.choice(["the", "my", "please", "again", "today"], 5))
        subject = " ".join([*(words[tag] for tag in tags), *filler])
        rows.append({"ticket": f"T{number}", "subject": subject, "tags": tags})
    pd.DataFrame(rows).to_json(folder / "t.jsonl", orient="records", lines=True)
    fast = ["--epochs", 15, "--lr", 0.01, "--batch-size", 32, "--device", "cpu"]
    run("fit", folder / "t.jsonl", "--labels", "tags", "--out", folder / "m", *fast)
    return folder


def test_evaluate_shows_the_rarest_label_first_and_knows_where_labels_are(folder):
    text = run("evaluate", folder / "m", folder / "t.jsonl", "--csv", folder / "l.csv").stdout
    assert text.index("rare *") < text.index("billing ") < text.index("bug ")
    assert "legacy" not in text
    assert text.index("\nminority_macro_f") < text.index("\nmacro_f")
    assert text.index("\nminority_average_precision") < text.index("\nmacro_f")
    table = pd.read_csv(folder / "l.csv")
    assert list(table.columns) == [
        "label", "support", "minority", "average_precision", "auc", "precision", "recall", "f",
        "threshold",
    ]  # fmt: skip
    facts = json.loads(run("evaluate", folder / "m", folder / "t.jsonl", "--json").stdout)
    assert [row["label"] for row in facts["labels"]] == table["label"].tolist()


def test_predict_keeps_columns_and_writes_tags(folder):
    run("predict", folder / "m", folder / "t.jsonl", "--out", folder / "p.csv", "--kind", "tags",
        "--keep", "ticket")  # fmt: skip
    table = pd.read_csv(folder / "p.csv", keep_default_na=False)
    assert list(table.columns) == ["ticket", "tags"]
    known = {"bug", "billing", "rare", ""}
    assert {tag for cell in table["tags"] for tag in cell.split(";")} <= known
    run("predict", folder / "m", folder / "t.jsonl", "--out", folder / "d.csv", "--digits", 2)
    values = pd.read_csv(folder / "d.csv").to_numpy()
    np.testing.assert_allclose(values, values.round(2), atol=1e-12)


def test_explain_shows_a_dash_for_a_missing_value(folder, tmp_path):
    frame = pd.read_json(folder / "t.jsonl", lines=True)
    frame.assign(note=None, due=float("nan")).to_json(
        tmp_path / "t.jsonl", orient="records", lines=True
    )
    text = run(
        *("explain", folder / "m", tmp_path / "t.jsonl", "--label", "rare", "--top", "1"),
        *("--keep", "note", "--keep", "due"),
    ).stdout
    assert "nan" not in text
    assert "None" not in text
    assert re.search(r"0\.\d{4} +- +-", text)


def test_explain_orders_rows_by_probability(folder):
    arguments = [
        "explain",
        folder / "m",
        folder / "t.jsonl",
        "--label",
        "rare",
        "--keep",
        "subject",
    ]
    rows = json.loads(run(*arguments, "--json", "--top", 4).stdout)
    missed = [row["probability"] for row in rows["missed"]]
    doubtful = [row["probability"] for row in rows["doubtful"]]
    assert missed == sorted(missed, reverse=True)
    assert doubtful == sorted(doubtful)
    assert len(missed) == 4
    assert all("phishing" in row["subject"] for row in rows["doubtful"])
    text = run(*arguments, "--cleanlab", folder / "c.npz").stdout
    assert "Rows without 'rare' that look like it" in text
    with np.load(folder / "c.npz") as arrays:
        assert arrays["labels"].shape == arrays["pred_probs"].shape == (240, 3)


def test_a_model_has_a_card_and_is_readable_as_the_umask_allows(folder):
    card = (folder / "m" / "README.md").read_text()
    assert "| subject | text |" in card
    assert "| rare |" in card
    probe = folder / "probe"
    probe.touch()
    expected = stat.S_IMODE(probe.stat().st_mode)
    for path in (folder / "m").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == expected
