"""The mistakes users make: each is answered before any training, in one line that says what to do."""

import re
import sys

import numpy as np
import pandas as pd
import pytest

from tailbatch.cli import main
from tailbatch.data import Columns
from tailbatch.estimator import TailbatchClassifier
from tailbatch.training import Trainer

ROWS = 40
WORDS = ["crash", "invoice", "login", "export", "refund", "again", "today", "please"]


def tickets():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "ticket_id": [f"T-{number}" for number in range(ROWS)],
            "created": [
                f"2025-{1 + number % 12:02}-{1 + number % 28:02}" for number in range(ROWS)
            ],
            "subject": [" ".join(rng.choice(WORDS, 6)) for _ in range(ROWS)],
            "plan": rng.choice(["free", "pro", "team"], ROWS),
            "length": rng.random(ROWS).round(3),
            "tag_a": rng.integers(0, 2, ROWS),
            "tag_b": rng.integers(0, 2, ROWS),
            "tags": rng.choice(["bug;billing", "bug", "login", ""], ROWS),
        }
    )


def saved(change=lambda frame: frame, **options):
    """Return what writes the changed table to a file."""
    return lambda path: change(tickets()).to_csv(path, **{"index": False, **options})


def text(content):
    return lambda path: path.write_bytes(content)


def cell(column, value, row=3):
    def change(frame):
        frame[column] = frame[column].astype(object)
        frame.loc[row, column] = value
        return frame

    return saved(change)


def column(**columns):
    return saved(lambda frame: frame.assign(**columns))


FIT = "fit data.csv --out m --epochs 1"
LISTED = f"{FIT} --labels tags"
PLAIN = f"{FIT} --labels tag_a,tag_b --kinds tags=ignore"
PREDICT = "predict model data.csv --out p.csv"
EVALUATE = "evaluate model data.csv"
COMPARE = "compare data.csv --epochs 1 --workers 1"

#: What is wrong: the file, the command, and what the answer says.
COMMANDS = {
    # which labels
    "no labels named": (saved(), FIT, "'tags' looks like lists of labels: pass --labels tags"),
    "mistyped label column": (saved(), f"{FIT} --labels tgas", "did you mean 'tags'"),
    "a text column as labels": (
        saved(),
        f"{FIT} --labels subject:;",
        "'subject' would give .* labels for 40 rows.*name the column",
    ),
    "an identifier as labels": (saved(), f"{FIT} --labels ticket_id", "free text or an identifier"),
    "numbers as labels": (saved(), f"{FIT} --labels length", "neither lists of labels nor zeros"),
    "strings as 0/1 columns": (
        saved(),
        f"{FIT} --labels tag_a,plan",
        "must be 0 or 1, got .* write --labels plan",
    ),
    "labels of 0, 1 and 2": (cell("tag_a", 2), PLAIN, "got 2.* in line 5, label 'tag_a'"),
    "a missing label value": (
        cell("tag_a", None),
        PLAIN,
        "'tag_a' is missing in line 5; .*fill it in, or leave the row out",
    ),
    "more label columns than columns": (
        saved(),
        f"{FIT} --labels 99",
        "--labels 99 asks for 99 of the columns, and there are 8",
    ),
    "half of the label column's name": (
        saved(),
        f"{FIT} --labels tag",
        "no column 'tag', .*'tags' of them holds 'bug', .*did you mean --labels tags",
    ),
    "labels without features": (
        saved(lambda f: f[["tag_a", "tag_b"]]),
        f"{FIT} --labels tag_",
        "data has labels only: add the columns to predict them from",
    ),
    "labels and an identifier": (
        saved(lambda f: f[["ticket_id", "tags"]]),
        LISTED,
        r"no column left .*'ticket_id' is left out \(.*--kinds ticket_id=category",
    ),
    "the labels as a feature": (
        saved(),
        f"{LISTED} --kinds tags=category",
        "'tags' holds the labels .*leave --kinds tags=category out",
    ),
    "the labels as text": (saved(), f"{LISTED} --text tags", "holds the labels .*--text tags out"),
    "a prefix of no column": (
        saved(),
        f"{FIT} --labels topic_",
        "neither a column nor the beginning",
    ),
    "rows without any label": (column(tags=""), LISTED, "'tags' lists no labels at all"),
    "two delimiters": (
        cell("tags", "bug,billing"),
        LISTED,
        "can be read two ways: split at ';' .*; split at ','.*--labels 'tags:;' or --labels tags:,",
    ),
    "tags between spaces": (
        column(tags=(["bug login", "bug", "login ui", "ui bug", "ui", "login"] * 7)[:ROWS]),
        LISTED,
        "two ways: with one label a cell it has 6 labels.*split at ' ' it has 3.*--labels tags:",
    ),
    "half a list": (
        column(tags=["['bug']"] * 39 + ["billing"]),
        LISTED,
        "'billing' in line 41, which is none",
    ),
    "a broken list": (column(tags=["['bug'", *["['a']"] * 39]), LISTED, "holds lists such as"),
    "labels named for a file that knows": (
        text(b"1,2 1:0.5\n1 2:1\n"),
        "fit data.svm --labels 2 --out m",
        "says itself which labels its rows have; leave --labels out",
    ),
    # the file
    "no such file": (saved(), LISTED.replace("data", "dta"), "there is no file dta.csv"),
    "an empty file": (text(b""), LISTED, "data.csv is empty"),
    "a header alone": (text(b"a,tags\n"), LISTED, "no rows below its header"),
    "one row": (
        text(b"a,tags\n1,bug\n"),
        LISTED,
        "data.csv has 1 row, but training needs at least 2: add rows",
    ),
    "a file with a typing error": (
        saved(),
        LISTED.replace("csv", "cvs"),
        "no file data.cvs; did you mean data.csv",
    ),
    "a file in place of a folder": (
        saved(),
        LISTED.replace("--out m", "--out data.csv"),
        "--out data.csv is a file; name a folder",
    ),
    "a wrong delimiter": (
        saved(sep="^"),
        LISTED,
        "no comma, semicolon or tab .* separated by '\\^': save it with commas",
    ),
    "colons between columns": (
        text(b"a:b:tags\n1:2:bug\n3:4:login\n"),
        LISTED,
        "seem to be separated by ':'",
    ),
    "spaces between columns": (
        text(b"a b tags\n1 2 bug\n3 4 login\n"),
        LISTED,
        "has one column, 'a b tags': no comma, semicolon or tab",
    ),
    "a pickle": (
        text(b"\x80\x04N."),
        "fit data.pkl --labels tags --out m",
        "data.pkl is a pickle, .*save the table with frame.to_parquet",
    ),
    "a JSON list of no objects": (
        text(b"[1, 2]"),
        "fit data.json --labels tags --out m",
        r"row 0: expected a JSON object such as \{...\}, found 1",
    ),
    "a broken JSON list": (
        text(b'[{"a": 1},'),
        "fit data.json --labels tags --out m",
        r"no JSON list of objects: .*write \[\{...\}, \{...\}\], or each row as one line",
    ),
    "a row too long": (
        text(b"a,tags\n1,bug\n2,bug,3\n"),
        LISTED,
        "line 3: expected 2 values, found 3",
    ),
    "a column twice": (text(b"a,a,tags\n1,2,bug\n"), LISTED, "'a' occurs twice; rename one"),
    "a spreadsheet": (
        text(b"PK\x03\x04 [Content_Types].xml"),
        LISTED,
        "is a spreadsheet; save it as CSV",
    ),
    "UTF-16": (text("a,tags\n1,bug\n".encode("utf-16")), LISTED, "save it as UTF-8"),
    "broken JSON lines": (
        text(b'{"a": 1, "tags": ["x"]}\n{"a": \n'),
        "fit data.jsonl --labels tags --out m",
        "line 2: it is no JSON object",
    ),
    # the columns
    "a missing number": (
        cell("length", None),
        f"{LISTED} --missing error",
        "in line 5; .*--kinds length=ignore, or pass --missing",
    ),
    "an infinite number": (cell("length", "inf"), LISTED, "X has inf in row 3"),
    "a mistyped text column": (saved(), f"{LISTED} --text subjct", "did you mean 'subject'"),
    "an unknown kind": (saved(), f"{LISTED} --kinds plan=categry", "did you mean 'category'"),
    "no kind": (
        saved(),
        f"{LISTED} --kinds plan",
        "write COLUMN=KIND, such as --kinds price=number",
    ),
    "text as a number": (
        saved(),
        f"{LISTED} --kinds plan=number",
        "is no number; .*--kinds plan=category",
    ),
    "an unreadable date": (
        cell("created", "2025-13-77"),
        LISTED,
        "'2025-13-77' in line 5, which is no date",
    ),
    "a date with two readings": (
        column(created="03/04/2025"),
        f"{LISTED} --kinds created=date",
        "two ways: .*--kinds created=date:%d/%m/%Y",
    ),
    "amounts in two units": (
        column(paid=[f"{n} EUR" if n % 2 else f"{n} USD" for n in range(ROWS)]),
        f"{LISTED} --kinds paid=number",
        "several units .*--kinds paid=ignore",
    ),
    "an unknown encoder": (saved(), f"{LISTED} --encoder minilmm", "did you mean 'minilm'"),
    # the settings
    "a device that is not there": (
        saved(),
        f"{LISTED} --device cuda:7",
        "--device must be .*cuda:7",
    ),
    "no epochs": (saved(), LISTED.replace("epochs 1", "epochs 0"), "--epochs must be at least 1"),
    "a learning rate below 0": (saved(), f"{LISTED} --lr -1", "--lr must be above 0"),
    "a pressure of a study": (
        saved(),
        f"{LISTED} --strategy minority --selection-pressure 64:1",
        "--selection-pressure must be a number from 1, imbalance or auto, got '64:1'",
    ),
    "a setting of another library": (
        saved(),
        f"{LISTED} --set learning_rate=1",
        "--set learning_rate=1: write --lr 1",
    ),
    "an unknown setting of the plan": (
        saved(),
        f"{LISTED} --set plan__lrr=1",
        "did you mean 'lr'. Known: epochs, batch_size, lr",
    ),
    "an option of another library": (
        saved(),
        f"{LISTED} --learning-rate 1",
        "no option --learning-rate; did you mean --lr",
    ),
    "a shorter option": (
        saved(),
        f"{LISTED} --pressure 4",
        "no option --pressure; did you mean --selection-pressure",
    ),
    "a command without its group": (
        saved(),
        "describe data.csv",
        "no command describe; did you mean tailbatch datasets describe",
    ),
    "a command of another library": (saved(), "train data.csv", "did you mean tailbatch fit"),
    "an unknown strategy": (saved(), f"{LISTED} --strategy minorty", "did you mean 'minority'"),
    "a threshold above 1": (
        saved(),
        f"{LISTED} --thresholds 1.5",
        "--thresholds must be .* between 0 and 1",
    ),
    "a validation share of 1": (
        saved(),
        f"{LISTED} --validation-fraction 1",
        "--validation-fraction must be a number from 0 and below 1, got 1",
    ),
    "a negative validation share": (
        saved(),
        f"{LISTED} --validation-fraction -1",
        "--validation-fraction must be a number from 0 and below 1, got -1",
    ),
    "a negative seed": (
        saved(),
        f"{LISTED} --seed -1",
        "--seed must be a whole number from 0, got -1",
    ),
    # a model and another file
    "no model": (saved(), PREDICT.replace("model", "modle"), "there is no classifier in modle"),
    "a column missing at predict": (
        saved(lambda f: f.rename(columns={"plan": "plans"})),
        PREDICT,
        "'plan' .* missing; did you mean 'plans'",
    ),
    "text where numbers were": (
        cell("length", "long"),
        PREDICT,
        "'long' in line 5, which is no number; correct it, or fit the model again with --missing",
    ),
    "a missing value at predict": (
        cell("length", None),
        PREDICT,
        "in line 5; correct it, or fit the model again with --kinds length=ignore or --missing impute",
    ),
    "no rows at predict": (
        saved(lambda f: f.head(0)),
        PREDICT,
        "data.csv has no rows to predict",
    ),
    "an empty file at predict": (text(b""), PREDICT, "data.csv has no rows to predict"),
    "a wrong delimiter at predict": (saved(sep="|"), PREDICT, r"separated by '\|'"),
    "an odd output file": (
        saved(),
        PREDICT.replace("p.csv", "p.xlsx"),
        r"must end in .csv or .parquet",
    ),
    "an unknown column to keep": (saved(), f"{PREDICT} --keep ticket", "did you mean 'ticket_id'"),
    "no labels to evaluate": (
        saved(lambda f: f.drop(columns="tags")),
        EVALUATE,
        "--labels tags is neither a column",
    ),
    "other labels to evaluate": (
        column(tags="x;y"),
        EVALUATE,
        "the label 'billing' of the model is missing",
    ),
    "an unknown label to explain": (
        saved(),
        "explain model data.csv --label bgu",
        "did you mean 'bug'",
    ),
    # a comparison
    "a mistyped label column to compare": (
        saved(),
        f"{COMPARE} --labels tgas",
        "--labels tgas is neither .*did you mean 'tags'",
    ),
    "a mistyped file to compare": (
        saved(),
        f"{COMPARE.replace('csv', 'cvs')} --labels tags",
        "no file data.cvs; did you mean data.csv",
    ),
    "labels without features to compare": (
        saved(lambda f: f[["tag_a", "tag_b"]]),
        f"{COMPARE} --labels tag_",
        "data has labels only",
    ),
    "a mistyped column to compare": (
        saved(),
        f"{COMPARE} --labels tags --kinds lenth=number",
        "no column 'lenth'; did you mean 'length'",
    ),
    "a missing number to compare": (
        cell("length", None),
        f"{COMPARE} --labels tags --missing error",
        "in line 5; .*--kinds length=ignore, or pass --missing impute",
    ),
    "more folds than rows": (
        saved(),
        f"{COMPARE} --labels tags --n-folds 700",
        "--n-folds must be from 2 to half the number of rows, got 700 for 40 rows",
    ),
    "a preparation of other data": (
        saved(),
        f"{COMPARE} --labels tags --preparations as-published",
        "data has no preparation as-published",
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    frame = tickets()
    tags = frame.pop("tags").str.split(";")
    columns = Columns(kinds={"tag_a": "ignore", "tag_b": "ignore"}, missing="error", labels="tags")
    TailbatchClassifier(columns=columns, epochs=1, device="cpu").fit(frame, tags).save(folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_a_mistake_in_one_line_before_training(
    name, model, tmp_path, monkeypatch, capsys
):
    write, command, message = COMMANDS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(model)
    arguments = command.split(" ")
    names = [f"data.{ending}" for ending in ("svm", "jsonl", "json", "pkl")]
    write(tmp_path / next((name for name in names if name in arguments), "data.csv"))
    monkeypatch.setattr(Trainer, "fit", lambda *_, **__: pytest.fail("it trained"))
    monkeypatch.setattr(sys, "argv", ["tailbatch", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    output, told = capsys.readouterr()
    errors = [line for line in told.splitlines() if not line.startswith("Note: ")]
    assert caught.value.code == 2, errors
    assert not output
    assert len([line for line in errors if line.strip()]) == 1, errors
    assert re.search(message, errors[-1]), errors[-1]


def fit(X, Y, **settings):
    TailbatchClassifier(epochs=1, **settings).fit(X, Y)


FRAME, X = tickets().drop(columns=["tag_a", "tag_b", "tags"]), np.ones((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(X, [["a"], ["b"], [None]]), "labels are named by strings, got None in row 2"),
        (lambda: fit(X, [[], [], []]), "no row of Y has a label: name the labels"),
        (lambda: fit(X, [["0", "1"], ["1", "0"], ["1", "1"]]), "Y can be read two ways"),
        (lambda: fit(X, [{"bgu"}, {"bug"}, set()], label_names=["bug"]), "'bgu'; did you mean 'bug'"),
        (lambda: fit(X, [["a"], ["b"]]), "inconsistent numbers of samples|same number of rows"),
        (lambda: fit(X, [["a"]] * 3, columns=Columns()), "columns= is for a pandas data frame"),
        (lambda: fit(FRAME, [["a"]] * ROWS, columns=Columns(text=["subjct"])), "did you mean 'subject'"),
        (lambda: Columns(kinds={"a": "txt"}), "did you mean 'text'"),
        (lambda: fit(X, np.eye(3), validation_fraction=-0.5), "validation_fraction must be .* got -0.5"),
        (lambda: fit(X, np.eye(3), random_state=-1), "random_state must be a whole number from 0, got"),
        (lambda: Columns(missing="drop"), "missing must be 'error' or 'impute'"),
        (lambda: fit(FRAME.assign(x=[[1]] * ROWS), [["a"]] * ROWS), "kinds={'x': 'ignore'}"),
        (lambda: fit(FRAME, [["a"]] * ROWS, columns=Columns(encoder=len)), "text encoder must give"),
    ],
)  # fmt: skip
def test_python_answers_a_mistake_in_one_line_before_training(call, message, monkeypatch):
    monkeypatch.setattr(Trainer, "fit", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
