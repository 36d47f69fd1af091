"""The commands fit, predict and evaluate, as a user meets them."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tailbatch.cli import display
from tailbatch.cli.app import app
from tailbatch.data import load_dataset
from tailbatch.data.labels import label_sets
from tailbatch.errors import DataError, ModelError, TailbatchError
from tailbatch.estimator import TailbatchClassifier

FAST = [
    "--epochs",
    "3",
    "--warm-up-epochs",
    "1",
    "--lr",
    "0.01",
    "--batch-size",
    "16",
    "--device",
    "cpu",
]
MINORITY = ["--strategy", "minority"]  # one that has settings to resume with


def run(*arguments):
    """Run a command; an error of ours is raised, as `main` gets it."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, TailbatchError):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV file with two numbers, a column of text and three labels."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"length": rng.random(80), "width": rng.random(80)})
    frame["color"] = rng.choice(["red", "green", "blue"], 80)
    frame["tag_long"] = (frame["length"] > 0.7).astype(int)
    frame["tag_wide"] = (frame["width"] > 0.5).astype(int)
    frame["tag_red"] = (frame["color"] == "red").astype(int)
    path = tmp_path_factory.mktemp("data") / "flowers.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "flowers"
    settings = [*FAST, *MINORITY, "--thresholds", "tuned"]
    result = run("fit", table, "--labels", "tag_", "--out", folder, *settings)
    assert result.exit_code == 0, result.output
    return folder


def test_fit_leaves_out_labels_on_few_rows_and_names_them(table, tmp_path):
    tags = pd.read_csv(table)
    tags["tag_freak"] = np.arange(80) == 3
    tags.astype({"tag_freak": int}).to_csv(tmp_path / "freak.csv", index=False)
    given = ["--labels", "tag_", "--out", tmp_path / "m", "--min-rows", 5]
    result = run("fit", tmp_path / "freak.csv", *given, *FAST)
    said = "left out 1 of 4 labels with fewer than 5 positives: 'tag_freak' (1)"
    assert said in " ".join(result.stderr.split())
    assert TailbatchClassifier.load(tmp_path / "m").label_names_ == (
        "tag_long", "tag_wide", "tag_red",
    )  # fmt: skip


def test_fit_saves_a_model_and_says_what_is_next(table, tmp_path):
    result = run("fit", table, "--labels", "tag_", "--out", tmp_path / "m", *FAST)
    assert result.exit_code == 0
    assert "Best epoch" in result.stdout
    assert "validation Macro average precision" in result.stdout
    assert "Next: tailbatch predict" in result.stdout
    assert "Epoch 3 of 3, loss " in result.stderr
    assert "rare draws" in result.stderr
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "classifier.safetensors",
        "README.md",
    }


def test_the_command_equals_the_estimator(table, model):
    frame = pd.read_csv(table)
    X = np.column_stack(
        [frame["length"], frame["width"]] + [frame["color"] == c for c in ("blue", "green", "red")]
    )
    Y = frame.filter(like="tag_").to_numpy()
    classifier = TailbatchClassifier(
        epochs=3,
        warm_up_epochs=1,
        lr=0.01,
        batch_size=16,
        random_state=0,
        thresholds="tuned",
        strategy="minority",
    ).fit(X, Y)
    loaded = TailbatchClassifier.load(model)
    assert loaded.columns_.feature_names == (
        "length", "width", "color=blue", "color=green", "color=red",
    )  # fmt: skip
    assert np.array_equal(loaded.predict_proba(frame), classifier.predict_proba(X))
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert np.array_equal(loaded.thresholds_, classifier.thresholds_)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_have_a_column_for_each_label(table, model, tmp_path, suffix):
    out = tmp_path / f"predictions{suffix}"
    result = run("predict", model, table, "--out", out, "--digits", "17")
    assert "80 rows and 3 labels" in result.stdout
    predictions = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert list(predictions.columns) == ["tag_long", "tag_wide", "tag_red"]
    assert predictions.shape == (80, 3)
    assert predictions.to_numpy().min() > 0
    assert predictions.to_numpy().max() < 1
    before = out.read_bytes()
    with pytest.raises(DataError, match="exists: choose another file, or add --overwrite"):
        run("predict", model, table, "--out", out, "--kind", "labels")
    assert out.read_bytes() == before
    run("predict", model, table, "--out", out, "--kind", "labels", "--overwrite")
    labels = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    thresholds = TailbatchClassifier.load(model).thresholds_
    assert np.array_equal(labels.to_numpy(), predictions.to_numpy() > thresholds)


def test_a_table_needs_only_the_features_in_any_order(table, model, tmp_path):
    run("predict", model, table, "--out", tmp_path / "a.csv")
    frame = pd.read_csv(table)
    # Only red and blue are left, so the colors alone no longer tell how they were encoded.
    some = frame[frame["color"] != "green"]
    some[["color", "width", "length"]].assign(id=range(len(some))).to_csv(
        tmp_path / "new.csv", index=False
    )
    run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "b.csv")
    expected = pd.read_csv(tmp_path / "a.csv")[(frame["color"] != "green").to_numpy()]
    assert pd.read_csv(tmp_path / "b.csv").to_numpy() == pytest.approx(expected.to_numpy())


def test_missing_features_and_values_are_named(table, model, tmp_path):
    frame = pd.read_csv(table)
    new = tmp_path / "new.csv"
    frame.drop(columns="width").to_csv(new, index=False)
    with pytest.raises(DataError, match="the column 'width' of the training data is missing"):
        run("predict", model, new, "--out", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()
    frame.loc[4, "width"] = frame.loc[5, "color"] = np.nan
    frame.to_csv(new, index=False)
    result = run("predict", model, new, "--out", tmp_path / "p.csv")
    assert result.exit_code == 0
    said = "filled in 2 missing values with means or most frequent values: 'width' (1), 'color' (1)"
    assert said in " ".join(result.output.split())


def test_a_model_of_an_array_finds_no_columns_in_a_file(table, tmp_path):
    X, Y = np.random.default_rng(0).random((40, 3)), np.tile(np.eye(4, 2), (10, 1))
    TailbatchClassifier(epochs=1, random_state=0).fit(X, Y).save(tmp_path / "model")
    told = "the model was fitted on an array, which has no names to find columns by: fit it"
    with pytest.raises(ModelError, match=told):
        run("predict", tmp_path / "model", table, "--out", tmp_path / "out.csv")


def test_tables_of_other_shapes(table, model, tmp_path):
    run("predict", model, table, "--out", tmp_path / "a.csv")
    pd.read_csv(table).to_csv(tmp_path / "semicolons.csv.gz", index=False, sep=";")
    run("predict", model, tmp_path / "semicolons.csv.gz", "--out", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    pd.read_csv(table).to_parquet(tmp_path / "flowers.parquet")
    run("predict", model, tmp_path / "flowers.parquet", "--out", tmp_path / "c.csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "c.csv").read_text()
    for content in (b"", b"a,b\n1,2,3,4\n", b"\xff\xfe\x00", b"PAR1"):
        (tmp_path / "broken.csv").write_bytes(content)
        with pytest.raises(DataError, match=r"broken\.csv"):
            run("predict", model, tmp_path / "broken.csv", "--out", tmp_path / "d.csv")


def test_evaluate_prints_every_metric(table, model):
    text = run("evaluate", model, table)
    assert "macro_auc" in text.stdout
    assert "higher is better" in text.stdout
    values = json.loads(run("evaluate", model, table, "--json").stdout)
    assert values["macro_auc"] > 0.5
    assert "minority_average_precision" in values


def test_the_embedded_dataset_from_fit_to_evaluation(tmp_path):
    folder = tmp_path / "model"
    result = run("fit", "debtags", "--out", folder, "--epochs", "2", "--lr", "0.01")
    assert result.exit_code == 0, result.output
    result = run("predict", folder, "debtags", "--out", tmp_path / "p.csv", "--kind", "labels")
    assert result.exit_code == 0, result.output
    values = json.loads(run("evaluate", folder, "debtags", "--json").stdout)
    assert values["macro_auc"] > 0.6


def test_label_names_that_a_spreadsheet_would_run_are_disarmed(table, tmp_path):
    data = tmp_path / "formula.csv"
    pd.read_csv(table).rename(columns={"tag_long": "=HYPERLINK(1)"}).to_csv(data, index=False)
    labels = "=HYPERLINK(1),tag_wide,tag_red"
    run("fit", data, "--labels", labels, "--out", tmp_path / "m", *FAST)
    run("predict", tmp_path / "m", data, "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text().startswith("'=HYPERLINK(1),tag_wide")


def test_tags_that_contain_the_separator_are_read_back_whole(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.random(60).round(3)
    tags = [["a;b", "c"] if value > 0.5 else ["c"] for value in x]
    frame = pd.DataFrame({"x": x, "tags": tags})
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    run("fit", tmp_path / "t.jsonl", "--labels", "tags", "--out", tmp_path / "m", *FAST)
    run("predict", tmp_path / "m", tmp_path / "t.jsonl", "--kind", "tags", "--keep", "x", "--out",
        tmp_path / "p.csv")  # fmt: skip
    written = load_dataset(tmp_path / "p.csv", labels="tags")
    assert set(written.label_names) <= {"a;b", "c"}
    classifier = TailbatchClassifier.load(tmp_path / "m")
    predicted = classifier.predict(frame[["x"]], as_sets=True)
    assert label_sets(written.Y, written.label_names) == predicted
    assert {"a;b", "c"} in predicted


def test_fit_takes_a_loss(table, tmp_path):
    options = "--loss", "weighted_bce:power=1:max_weight=2"
    run("fit", table, "--labels", "tag_", "--out", tmp_path, *FAST, *options)
    loss = TailbatchClassifier.load(tmp_path).model_.loss
    assert (loss.name, loss.options["power"], loss.options["max_weight"]) == ("weighted_bce", 1, 2)
    assert loss.positive_weights.max() <= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "dele"], "unknown model 'dele'; did you mean 'dela'"),
        (["--strategy", "adptive"], "unknown strategy 'adptive'"),
        (["--selection-pressure", "lots"], "--selection-pressure must be a number"),
        (["--loss", "focl"], "unknown loss 'focl'; did you mean 'focal'"),
        (["--loss", "focal:gama=1"], "focal has no option 'gama'; did you mean 'gamma'"),
        (["--loss", "focal:1"], "a setting of focal is OPTION=VALUE"),
        (["--model", "mpvae", "--loss", "focal"], "mpvae takes no loss, 'focal' or other: it max"),
        (["--set", "latent=3"], "a nested setting begins with model__"),
        (["--set", "model__latnt=3"], "has no hyperparameter 'latnt'"),
        (["--set", "plan__patience=3"], "patience"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--thresholds", "high"], "thresholds must be"),
        (["--resume"], "holds no unfinished training"),
    ],
)
def test_mistakes_are_one_sentence(table, tmp_path, arguments, message):
    with pytest.raises(TailbatchError, match=message):
        run("fit", table, "--labels", "tag_", "--out", tmp_path, *FAST, *arguments)


def test_a_trained_model_is_not_replaced_unasked(table, model, tmp_path):
    with pytest.raises(ModelError, match="holds a trained model: choose another folder"):
        run("fit", table, "--labels", "tag_", "--out", model, *FAST)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "classifier.safetensors").write_bytes((model / "classifier.safetensors").read_bytes())
    (copy / "training.safetensors").write_bytes(b"an unfinished one")
    with pytest.raises(ModelError, match="holds unfinished training: add --resume"):
        run("fit", table, "--labels", "tag_", "--out", copy, *FAST)
    result = run("fit", table, "--labels", "tag_", "--out", copy, *FAST, "--overwrite")
    assert result.exit_code == 0


def test_folders_and_files_that_are_none(table, model, tmp_path):
    with pytest.raises(ModelError, match="there is no classifier in"):
        run("predict", tmp_path, table, "--out", tmp_path / "p.csv")
    with pytest.raises(DataError, match=r"must end in \.csv or \.parquet"):
        run("predict", model, table, "--out", tmp_path / "p.xlsx")
    with pytest.raises(DataError, match="there is no file"):
        run("evaluate", model, tmp_path / "nothing.csv")


def test_nested_settings_reach_the_model(table, tmp_path):
    settings = ["--model", "mlp", "--strategy", "minority", "--set", "model__hidden=[7]"]
    settings += ["--set", "plan__scheduler=ConstantLR"]
    run(
        "fit",
        table,
        "--labels",
        "tag_",
        "--out",
        tmp_path,
        *FAST,
        *settings,
        "--selection-pressure",
        "8",
    )
    classifier = TailbatchClassifier.load(tmp_path)
    assert classifier.model_.hyperparameters["hidden"] == (7,)
    assert classifier.selection_pressure_ == 8


def test_a_narrow_terminal_shows_the_whole_line_above_the_bar(table, tmp_path):
    settings = ["--labels", "tag_", "--out", str(tmp_path / "m"), *FAST, *MINORITY]
    shown = in_a_terminal("fit", str(table), *settings, columns=40)
    words = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", shown).split())
    assert "Epoch 3 of 3, loss " in words
    assert re.search(r"validation Macro average precision [01]\.\d{4}, rare draws \d+%", words), (
        words
    )
    assert "…" not in shown


def in_a_terminal(*arguments, columns):
    """Return what a command prints on a terminal of so many columns."""
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    main, side = pty.openpty()
    command = [sys.executable, "-m", "tailbatch", *arguments]
    process = subprocess.Popen(command, stdout=side, stderr=side, env=environment)
    os.close(side)
    shown = b""
    with suppress(OSError):  # which the system raises at the end
        while part := os.read(main, 65536):
            shown += part
    os.close(main)
    assert process.wait() == 0, shown
    return shown.decode()


def stopped_by_ctrl_c(arguments, monkeypatch, number=signal.SIGINT):
    """Run a fit and press Ctrl-C, or send another signal, after its second epoch."""
    shown = display._epoch_line

    def line_and_ctrl_c(epoch, epochs):
        if epoch.number == 2:
            signal.raise_signal(number)
        return shown(epoch, epochs)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["tailbatch", *map(str, arguments)])
        patch.setattr(display, "_epoch_line", line_and_ctrl_c)
        stopped = run(*arguments)
    assert stopped.exit_code == 128 + number
    return stopped


def test_ctrl_c_saves_and_the_same_command_goes_on(table, model, tmp_path, monkeypatch):
    folder = tmp_path / "m"
    arguments = ["fit", table, "--labels", "tag_", "--out", folder, *FAST, *MINORITY]
    arguments += ["--thresholds", "tuned"]
    stopped = stopped_by_ctrl_c(arguments, monkeypatch)
    assert "stopped by SIGINT in epoch 3" in stopped.stderr
    assert f"To resume: tailbatch fit {table}" in stopped.stderr
    assert stopped.stderr.rstrip().endswith("--thresholds tuned --resume")
    assert [path.name for path in folder.iterdir()] == ["training.safetensors"]
    with pytest.raises(
        TailbatchError, match=r"belongs to a different training run \(its lr is 0.01"
    ):
        run(*arguments, "--resume", "--lr", "0.1")
    unfinished = (folder / "training.safetensors").read_bytes()
    for change, named in [
        (
            ["--selection-pressure", "64"],
            r"saved with selection_pressure 1\.7\d+, this selector has 64:",
        ),
        (["--set", "strategy__power=2"], r"saved with power 0\.5, this selector has 2:"),
        (["--strategy", "hard"], r"saved with strategy minority, this selector has hard:"),
        (
            ["--selection-pressure", "auto"],
            r"was started without --selection-pressure auto, this command is with it:",
        ),
        (["--loss", "focal"], r"\(its loss is bce, this one's is focal\)"),
        (["--loss", "focal:gamma=1"], r"\(its loss is bce, this one's is focal\)"),
    ]:
        with pytest.raises(TailbatchError, match=named):
            run(*arguments, "--resume", *change)
    assert (folder / "training.safetensors").read_bytes() == unfinished
    assert run(*arguments, "--resume").exit_code == 0
    run("predict", folder, table, "--out", tmp_path / "resumed.csv")
    run("predict", model, table, "--out", tmp_path / "whole.csv")
    assert (tmp_path / "resumed.csv").read_text() == (tmp_path / "whole.csv").read_text()


def test_resume_with_another_option_of_the_loss_is_refused(table, tmp_path, monkeypatch):
    arguments = ["fit", table, "--labels", "tag_", "--out", tmp_path / "m", *FAST]
    arguments += ["--loss", "focal"]
    stopped = stopped_by_ctrl_c(arguments, monkeypatch, signal.SIGTERM)
    assert "stopped by SIGTERM in epoch 3" in stopped.stderr
    with pytest.raises(TailbatchError, match=r"\(its loss__gamma is 2\.0, this one's is 3\)"):
        run(*arguments, "--resume", "--set", "loss__gamma=3")
    assert run(*arguments, "--resume", "--set", "loss__gamma=2").exit_code == 0
