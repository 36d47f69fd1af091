"""The commands suggest and fit --add: from a model to a review file and back to a better model."""

import numpy as np
import pandas as pd
import pytest
from examples.tickets import TOPICS, tickets
from typer.testing import CliRunner

from tailbatch.cli.app import app
from tailbatch.errors import DataError, TailbatchError
from tailbatch.estimator import TailbatchClassifier

KINDS = ["--kinds", "paid=number"]
FIT = ["--labels", "tags", *KINDS, "--set", "plan__steps=120"]


def run(*arguments):
    """Run a command; an error of ours is raised, as `main` gets it."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, TailbatchError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a messy table, a pool whose tags are hidden, and a model."""
    folder = tmp_path_factory.mktemp("tickets")
    table = tickets(700)
    table["ticket_id"] = [f"{number:05}" for number in range(len(table))]
    table[:300].to_csv(folder / "train.csv", index=False)
    table[300:].to_csv(folder / "truth.csv", index=False)
    table[300:].drop(columns="tags").to_csv(folder / "pool.csv", index=False)
    run("fit", folder / "train.csv", *FIT, "--out", folder / "model")
    return folder


def answer(path, folder, change=None):
    """Answer a review file as the hidden tags say, and return its table."""
    truth = pd.read_csv(folder / "truth.csv", dtype={"ticket_id": str}).set_index("ticket_id")
    review = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    for place, row in review.iterrows():
        tags = str(truth.loc[row["ticket_id"], "tags"]).split(";")
        for label in row["review_labels"].split("; "):
            review.loc[place, label] = "yes" if label in tags else "no"
    if change is not None:
        change(review)
    review.to_csv(path, index=False)
    return review


def test_a_round_trip(folder, tmp_path):
    first, second = tmp_path / "review.csv", tmp_path / "review2.csv"
    labels = ["--labels", "security,accessibility", "--keep", "ticket_id"]
    result = run("suggest", folder / "model", folder / "pool.csv", "--rows", 40, *labels, "--out", first,
                 "--labeled", folder / "train.csv")  # fmt: skip
    assert "40 rows in" in result.stdout
    assert "36 suggested, 4 at random" in result.stdout
    review = answer(first, folder)
    found = (review[["security", "accessibility"]] == "yes").to_numpy().sum()
    assert found > 5  # random rows would hold two
    result = run("fit", folder / "train.csv", *FIT, "--add", first, "--out", tmp_path / "model2")
    assert "answers of 40 reviewed rows" in result.stderr
    model = TailbatchClassifier.load(tmp_path / "model2")
    assert model.facts_["suggested_rows"] > 30
    assert "suggested" in (tmp_path / "model2" / "README.md").read_text()
    result = run("suggest", tmp_path / "model2", folder / "pool.csv", "--rows", 20, *labels, "--out",
                 second, "--add", first, "--before", folder / "model")  # fmt: skip
    assert "security: " in result.stdout
    assert "left in the pool (95% interval by the random rows: " in result.stdout
    assert "now, on held-out rows" in result.stdout
    again = pd.read_csv(second, dtype=str, encoding="utf-8-sig")
    known = {(i, label) for i, row in review.set_index("ticket_id").iterrows()
             for label in row["review_labels"].split("; ")}  # fmt: skip
    asked = {(i, label) for i, row in again.set_index("ticket_id").iterrows()
             for label in row["review_labels"].split("; ")}  # fmt: skip
    assert asked
    assert not asked & known, "no cell is asked twice"


def test_identifiers_stay_as_they_are_and_only_needed_columns_are_written(folder, tmp_path):
    out = tmp_path / "review.jsonl"
    run(
        "suggest",
        folder / "model",
        folder / "pool.csv",
        "--rows",
        5,
        "--keep",
        "ticket_id",
        "--out",
        out,
    )
    table = pd.read_json(out, lines=True, dtype=False)
    assert all(name.startswith("00") for name in table["ticket_id"])
    run("suggest", folder / "model", folder / "pool.csv", "--rows", 5, "--out", tmp_path / "r.csv")
    assert "ticket_id" not in pd.read_csv(tmp_path / "r.csv").columns


def test_tags_are_reviewed_in_one_column(folder, tmp_path):
    out = tmp_path / "review.csv"
    run("suggest", folder / "model", folder / "pool.csv", "--rows", 9, "--tags", "--out", out)
    table = pd.read_csv(out, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    assert not set(TOPICS) & set(table.columns)
    table["review_tags"], table["review_done"] = "security; bug", "yes"
    table.to_csv(out, index=False)
    run("fit", folder / "train.csv", *FIT, "--add", out, "--out", tmp_path / "model2")
    facts = TailbatchClassifier.load(tmp_path / "model2").facts_
    before = TailbatchClassifier.load(folder / "model").facts_
    assert sum(facts["positives"]) > sum(before["positives"])


def test_the_embedded_dataset_goes_around(tmp_path):
    from tailbatch import load_dataset

    data = load_dataset("debtags")
    fit = ["fit", "debtags", "--min-rows", 20, "--set", "plan__steps=20"]
    run(*fit, "--out", tmp_path / "model")
    out = tmp_path / "review.parquet"
    result = run("suggest", tmp_path / "model", "debtags", "--rows", 10, "--out", out)
    assert "10 rows" in result.stdout
    table = pd.read_parquet(out)
    asked = table["review_labels"].str.split("; ")
    names = list(data.label_names)
    for place, labels in enumerate(asked):
        for label in labels:
            value = data.Y[table["review_row"][place], names.index(label)]
            table.loc[place, label] = "yes" if value else "no"
    table.to_parquet(out, index=False)
    run(*fit, "--add", out, "--out", tmp_path / "model2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", 401], "n=401 rows are asked for, but only 400 rows of the pool can be reviewed"),
        (["--labels", "secure"], "unknown label 'secure'; did you mean 'security'?"),
        (["--keep", "ticket"], "--keep ticket: "),
        (["--explore", 2], "explore must be a number from 0"),
        (["--out", "review.xlsx"], "must end in .csv, .jsonl or .parquet"),
        (["--add", "empty.csv"], "no row has an answer yet"),
        (["--add", "other.csv"], "is not in the pool"),
        (["--add", "perhaps.csv"], "line 2, column 'bug': expected yes or no, found 'perhaps'"),
        (["--add", "twice.csv"], "'bug' is answered twice for one row: yes in twice.csv, line 2, no in"),
        (["--before", "nowhere"], "there is no classifier in nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_done(folder, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    header = "created,subject,plan,paid,age_days,bug,review_labels,review_row\n"
    pool = pd.read_csv(folder / "pool.csv", dtype=str, keep_default_na=False)
    row = ",".join(pool.loc[0, ["created", "subject", "plan", "paid", "age_days"]])
    for name, rows in {"empty": f"{row},,bug,0\n", "other": "2020-01-01,x,y,1,2,yes,bug,0\n",
                       "perhaps": f"{row},perhaps,bug,0\n",
                       "twice": f"{row},yes,bug,0\n{row},no,bug,0\n"}.items():  # fmt: skip
        (tmp_path / f"{name}.csv").write_text(header + rows)
    with pytest.raises(TailbatchError) as caught:
        run("suggest", folder / "model", folder / "pool.csv", "--out", "review.csv", *arguments)
    assert message in str(caught.value)
    assert not (tmp_path / "review.csv").exists()


def test_a_file_with_answers_is_not_overwritten(folder, tmp_path):
    out = tmp_path / "review.csv"
    out.write_text("mine")
    with pytest.raises(DataError, match="may hold answers"):
        run("suggest", folder / "model", folder / "pool.csv", "--out", out)
    assert out.read_text() == "mine"


def test_a_pool_without_rows(folder, tmp_path):
    (tmp_path / "none.csv").write_text("created,subject,plan,paid,age_days\n")
    with pytest.raises(DataError, match="has no rows to choose from: give unlabeled rows"):
        run("suggest", folder / "model", tmp_path / "none.csv", "--out", tmp_path / "review.csv")


def test_review_files_of_other_columns(folder, tmp_path):
    (tmp_path / "review.csv").write_text("subject,bug\nhello,yes\n")
    with pytest.raises(DataError, match="the reviewed rows have no column 'created'"):
        run(
            "fit",
            folder / "train.csv",
            *FIT,
            "--add",
            tmp_path / "review.csv",
            "--out",
            tmp_path / "m",
        )
    assert np.array_equal(sorted(p.name for p in tmp_path.iterdir()), ["review.csv"])
