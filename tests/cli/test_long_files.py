"""Files longer than a part: the same bytes as in one, resumed after a kill, on a cluster; bad pieces."""

import json
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tailbatch.cli.app import app
from tailbatch.errors import DataError, TailbatchError
from tailbatch.estimator import TailbatchClassifier, scoring

N = 5_000
PART = 1_024


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, TailbatchError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"ticket": [f"{k:06}" for k in range(n)]})
    frame["size"] = rng.random(n)
    frame["count"] = rng.integers(0, 9, n)
    frame["color"] = rng.choice(["red", "green", "blue"], n)
    frame["text"] = rng.choice(["it does not start", "a refund, please", 'say "hello"\nand go'], n)
    frame["seen"] = pd.array(np.where(np.arange(n) < n // 2, 7, None), dtype="Int64")
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted model, and the same rows as CSV, JSON lines and Parquet with uneven row groups."""
    folder = tmp_path_factory.mktemp("long")
    train, new = rows(200), rows(N, seed=1)
    Y = pd.DataFrame({"big": train["size"] > 0.6, "a;b": train["color"] == "red"}).astype(int)
    X = train.drop(columns=["ticket", "seen"])
    classifier = TailbatchClassifier("mlp", epochs=3, lr=0.01, random_state=0, device="cpu")
    classifier.fit(X, Y).save(folder / "model")
    new.to_csv(folder / "new.csv", index=False)
    new.to_json(folder / "new.jsonl", orient="records", lines=True)
    new.to_parquet(folder / "new.parquet", row_group_size=1_300)
    return folder


@pytest.fixture
def short_parts(monkeypatch):
    monkeypatch.setattr(scoring, "MOST_ROWS", PART)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("kind", ["proba", "tags"])
def test_parts_give_the_bytes_of_one_piece(folder, form, kind, tmp_path, monkeypatch):
    asked = ["--kind", kind, "--keep", "ticket", "--keep", "seen"]
    run("predict", folder / "model", folder / f"new.{form}", "--out", tmp_path / "one.csv", *asked)
    monkeypatch.setattr(scoring, "MOST_ROWS", PART)
    done = run(
        "predict", folder / "model", folder / f"new.{form}", "--out", tmp_path / "p.csv", *asked
    )
    assert "5,000 rows and 2 labels" in done.stdout
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one.csv", "p.csv"}
    table = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert table["ticket"].tolist() == [f"{k:06}" for k in range(N)], "as it was written"
    assert set(table["seen"].dropna()) == {"7"}


def test_every_format_gives_the_same_predictions_and_those_of_the_estimator(
    folder, tmp_path, short_parts
):
    texts = set()
    for form in ("csv", "jsonl", "parquet"):
        run("predict", folder / "model", folder / f"new.{form}", "--out", tmp_path / f"{form}.csv")
        texts.add((tmp_path / f"{form}.csv").read_text())
    assert len(texts) == 1
    expected = TailbatchClassifier.load(folder / "model").predict_proba(rows(N, seed=1))
    written = pd.read_csv(tmp_path / "csv.csv").to_numpy()
    np.testing.assert_allclose(written, expected, atol=0.6e-4)


def test_parquet_keeps_types_and_has_a_row_group_for_each_part(folder, tmp_path, short_parts):
    import pyarrow.parquet as pq

    out = tmp_path / "p.parquet"
    run("predict", folder / "model", folder / "new.parquet", "--out", out, "--keep", "seen")
    with pq.ParquetFile(out) as file:
        groups = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        assert groups == [PART] * 4 + [N - 4 * PART]
        assert str(file.schema_arrow.field("seen").type) == "int64"
        assert file.schema_arrow.names == ["seen", "big", "a;b"]


KILLED = """
import os, signal, sys
from tailbatch.cli import main, parts
from tailbatch.estimator import scoring
scoring.MOST_ROWS = {part}
write = parts._PartedFile.write
def dying(self, number, table):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, number, table)
parts._PartedFile.write = dying
sys.argv = {arguments!r}
main()
"""


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_killed_command_goes_on_after_its_last_part(folder, form, tmp_path, short_parts):
    model, data, out = folder / "model", folder / f"new.{form}", tmp_path / f"out.{form}"
    run("predict", model, data, "--out", tmp_path / f"whole.{form}")
    arguments = ["tailbatch", "predict", str(model), str(data), "--out", str(out)]
    script = KILLED.format(part=PART, arguments=arguments)
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    partial = tmp_path / f"out.{form}.partial"
    assert json.loads((partial / "not-complete.json").read_text())["complete"] is False
    read = pd.read_csv if form == "csv" else pd.read_parquet
    assert [len(read(path)) for path in sorted(partial.glob("part-*"))] == [PART, PART]
    assert not out.exists()
    with pytest.raises(DataError, match=r"holds a part of other predictions.*or add --overwrite"):
        run("predict", model, data, "--out", out, "--kind", "labels")
    again = run(*arguments[1:])
    assert f"Resuming after {2 * PART:,} rows" in again.stderr
    assert out.read_bytes() == (tmp_path / f"whole.{form}").read_bytes()
    assert not partial.exists()


def test_parts_of_other_predictions_are_dropped_if_asked(folder, tmp_path, short_parts):
    out = tmp_path / "p.csv"
    (tmp_path / "p.csv.partial").mkdir()
    run("predict", folder / "model", folder / "new.csv", "--out", out, "--overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_a_column_that_is_missing_in_the_third_piece_is_named_and_the_rest_is_readable(
    folder, tmp_path, short_parts
):
    lines = (folder / "new.jsonl").read_text().splitlines()
    lacking = [
        json.dumps({k: v for k, v in json.loads(line).items() if k != "size"}) for line in lines
    ]
    data = tmp_path / "bad.jsonl"
    data.write_text("\n".join([*lines[: 2 * PART], *lacking[2 * PART :]]))
    out = tmp_path / "p.csv"
    message = (
        r"bad\.jsonl: rows 2,048 to 3,071: the column 'size' of the training data is missing.*"
        r"p\.csv is not complete, and the parts before are in .*p\.csv\.partial"
    )
    with pytest.raises(DataError, match=message):
        run("predict", folder / "model", data, "--out", out)
    assert not out.exists()
    parts = sorted((tmp_path / "p.csv.partial").glob("part-*.csv"))
    assert [len(pd.read_csv(path)) for path in parts] == [PART, PART]


def test_a_value_in_a_later_piece_that_cannot_be_read_is_named_by_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "_FEWEST_ROWS", 4)
    monkeypatch.setattr(scoring, "MOST_ROWS", 4)
    X = pd.DataFrame({"x": np.arange(20.0), "z": np.arange(20.0) % 3})
    classifier = TailbatchClassifier("mlp", epochs=1, random_state=0, device="cpu")
    classifier.fit(X, pd.DataFrame({"high": X["x"] > 9})).save(tmp_path / "m")
    X["x"] = X["x"].astype(object)
    X.loc[10, "x"] = "inf"
    X.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError, match="rows 8 to 11"):
        run("predict", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "p.csv")


def test_predict_batches_reads_files_and_streams(folder):
    classifier = TailbatchClassifier.load(folder / "model")
    expected = classifier.predict_proba(rows(N, seed=1))
    for form in ("csv", "jsonl", "parquet"):
        pieces = list(classifier.predict_batches(folder / f"new.{form}", rows=PART))
        assert [len(piece) for piece, _ in pieces] == [PART] * 4 + [N - 4 * PART]
        np.testing.assert_allclose(np.concatenate([p for _, p in pieces]), expected, atol=1e-6)
        assert [str(ticket)[-1] for ticket in pieces[0][0]["ticket"][:3]] == ["0", "1", "2"]
    stream = (rows(N, seed=1).iloc[start : start + 900] for start in range(0, N, 900))
    sets = [
        found for _, batch in classifier.predict_batches(stream, kind="sets") for found in batch
    ]
    assert sets == classifier.predict(rows(N, seed=1), as_sets=True)
    with pytest.raises(DataError, match="unknown kind 'sats'; did you mean 'sets'"):
        list(classifier.predict_batches([], kind="sats"))
    with pytest.raises(DataError, match="got one DataFrame of rows"):
        list(classifier.predict_batches(rows(3)))
