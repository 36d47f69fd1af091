"""The commands compare, study, demo and report as a user meets them."""

import io
import os
import re
import signal
import sys
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from faults.commands import start
from study_samples import Here, tiny_file
from tailbatch.cli import main, study, study_display
from tailbatch.estimator import TailbatchClassifier
from tailbatch.report.section import Brief, Section
from tailbatch.results import ResultStore, RunFailure


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs the command line in an empty folder, and the runs in this process."""

    @contextmanager
    def engine(workers, ray):
        yield Here, 1

    monkeypatch.setattr(study, "_engine", engine)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tailbatch", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, *capsys.readouterr()

    return run


def quick(*given):
    return (
        "compare", given[0], "--strategies", "random,minority", "--n-folds", 2, "--epochs", 4,
        "--batch-size", 16, "--lr", 0.01, "--store", "records", *given[1:],
    )  # fmt: skip


def names():
    """Return what the store calls its studies."""
    return [plan.name for plan in ResultStore("records").studies()]


def test_compare_leaves_out_labels_on_few_rows_and_names_them(command, tmp_path):
    code, _, err = command(*quick(tiny_file(tmp_path), "--min-rows", 13))
    assert code == 0, err
    assert "left out 1 of 5 labels with fewer than 13 positives: 'label_4' (12)" in err
    records = ResultStore("records").records()
    assert {len(record.labels) for record in records} == {4}
    code, _, err = command(
        *quick(tmp_path / "tiny.npz", "--min-rows", 5, "--preparations", "paper")
    )
    assert code != 0
    assert "--min-rows 5 needs --preparations full" in err


def test_compare_runs_reports_and_goes_on(command, tmp_path):
    path = tiny_file(tmp_path)
    code, out, err = command(*quick(path))
    assert code == 0, err
    assert "4 runs, 1 at a time" in err
    assert "minority" in out
    assert "for rare labels" in " ".join(out.split())
    (name,) = names()
    assert re.fullmatch(r"compare-tiny-[0-9a-f]{8}", name)
    assert f"Report: records/{name}.html" in out
    assert (tmp_path / "records" / f"{name}.html").stat().st_size < 2_000_000
    assert len(ResultStore("records").frame(name)) == 4
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "records" / "runs").iterdir()}
    assert command(*quick(path))[0] == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "records" / "runs").iterdir()} == before
    assert names() == [name], "the same command resumes under the same name"


@pytest.fixture
def pages(monkeypatch):
    """Return the datasets of each page, in the order of writing; pictures would take longer."""
    written = []

    def write(records, out, *, study):
        written.append((out.name, set(records.frame(study)["dataset"])))
        return ()

    monkeypatch.setattr("tailbatch.report.page.write_report", write)
    return written


@pytest.fixture
def in_the_middle(monkeypatch):
    """Return a function that lets something happen when the next study hands out its first run."""
    real = Here.submit

    def arrange(happens):
        def submit(self, *job):
            monkeypatch.setattr(Here, "submit", real)
            happens()
            return real(self, *job)

        monkeypatch.setattr(Here, "submit", submit)

    return arrange


def test_a_comparison_begun_in_the_middle_of_another_leaves_it_whole(
    command, in_the_middle, pages, tmp_path
):
    first, second = tiny_file(tmp_path, name="first"), tiny_file(tmp_path, name="second", n=100)
    in_the_middle(lambda: command(*quick(second)))
    code, out, err = command(*quick(first))
    assert code == 0, err
    begun, inserted = names()
    assert f"Report: records/{begun}.html" in out
    assert pages == [(f"{inserted}.html", {"second"}), (f"{begun}.html", {"first"})]
    for name, file in ((begun, "first"), (inserted, "second")):
        assert set(ResultStore("records").frame(name)["dataset"]) == {file}


def test_two_comparisons_at_once_leave_two_plans_and_two_pages(tmp_path):
    (tmp_path / "records").mkdir()
    begun = []
    for turn, file in enumerate(("first", "second")):
        home = tmp_path / file
        home.mkdir()
        path = tiny_file(home, name=file, n=100 + 20 * turn)
        arguments = [str(each) for each in quick(path, "--store", tmp_path / "records")]
        begun.append(start([*arguments, "--workers", "1"], home))
    for file, process in zip(("first", "second"), begun, strict=True):
        ended = process.end()
        assert ended.code == 0, ended.said
        page = re.search(rf"Report: (\S+/compare-{file}-[0-9a-f]{{8}}\.html)", ended.said)[1]
        assert f"Strategies compared on {file}.npz" in Path(page).read_text()
    store = ResultStore(tmp_path / "records")
    assert [set(store.frame(plan.name)["dataset"]) for plan in store.studies()] == [
        {"first"}, {"second"},
    ]  # fmt: skip


def test_a_study_whose_name_is_taken_meanwhile_reports_its_own_runs(
    command, in_the_middle, pages, tmp_path
):
    run = {}
    for name, n in (("first", 120), ("second", 100)):
        path = tiny_file(tmp_path, name=name, n=n)
        run[name] = ("study", "run", f"{name}.toml", "--store", "records")
        (tmp_path / f"{name}.toml").write_text(
            f'name = "mine"\nn_folds = 2\nfolds = [0]\ndatasets = ["{path}"]\n'
            "[plan]\nepochs = 2\nbatch_size = 16\n"
        )
    in_the_middle(lambda: command(*run["second"]))
    assert command(*run["first"])[0] == 0
    assert pages == [("mine.html", {"second"}), ("mine.html", {"first"})]


def test_without_a_learning_rate_compare_learns_at_one_that_suits_all(command, tmp_path):
    code, _, err = command(
        "compare", tiny_file(tmp_path), "--models", "mlp,mpvae", "--strategies", "random",
        "--n-folds", 2, "--epochs", 1, "--store", "records",
    )  # fmt: skip
    assert code == 0, err
    assert set(ResultStore("records").frame()["plan_lr"]) == {1e-3}


@pytest.mark.parametrize(("folds", "interval"), [(2, False), (3, True)])
def test_an_interval_is_printed_from_three_folds_on(command, tmp_path, folds, interval):
    code, out, err = command(*quick(tiny_file(tmp_path), "--n-folds", folds))
    assert code == 0, err
    assert ("interval over folds" in out) is interval
    assert ("±0." in out) is interval
    assert ("(no interval)" in out) is not interval
    assert "\\n" not in out  # means and intervals stand on two lines
    (page,) = [path.read_text() for path in (tmp_path / "records").glob("compare-*.html")]
    assert ('class="interval">0.' in page) is interval


def test_compare_takes_settings_of_a_model(command, tmp_path):
    code, _, err = command(
        "compare", tiny_file(tmp_path), "--models", "mlp:dropout=0,mlp",
        "--losses", "bce,weighted_bce:power=1",
        "--strategies", "random", "--n-folds", 2, "--epochs", 1, "--store", "records",
    )  # fmt: skip
    assert code == 0, err
    frame = ResultStore("records").frame()
    assert len(frame) == 8
    assert set(frame["hyperparameters"]) == {"{}", '{"dropout": 0}'}
    assert set(zip(frame["loss"], frame["loss_options"], strict=True)) == {
        ("", "{}"),
        ("weighted_bce", '{"power": 1}'),
    }
    assert set(frame["plan_lr"]) == {1e-3}


def test_compare_shows_models_without_batches_below_the_strategies(command, tmp_path):
    models = "logistic,mlp,balanced_logistic:C=1,forest:n_estimators=10,boosting:max_iter=5"
    code, out, err = command(*quick(tiny_file(tmp_path), "--models", models))
    assert code == 0, err
    assert "12 runs, 1 at a time" in err
    rows = [line.split() for line in out.splitlines() if " 0." in line]
    names = [row[0] for row in rows if row[0][0].isalpha()][:6]
    assert names[:2] == ["random", "minority"]
    assert set(names[2:]) == {"logistic", "balanced_logistic", "forest", "boosting"}
    assert "below: models without batches" in " ".join(out.split())
    assert "none beats" not in out
    frame = ResultStore("records").frame()
    assert set(frame.loc[frame["model"] != "mlp", "strategy"]) == {"none"}
    (page,) = [path.read_text() for path in (tmp_path / "records").glob("compare-*.html")]
    (table,) = [path.read_text() for path in (tmp_path / "records").glob("*-files/results.md")]
    for text in (page, table):
        assert "no batches" in text
        assert not re.search(r"(>|\| )none(<| \|)", text)  # as a name in a cell
    assert "no batches, forest" in page
    assert "<dt>strategies</dt><dd>2</dd>" in page


def settings_of(out):
    """Return the names of a summary's rows, each up to three lines, and which have a star."""
    lines = out.split("─\n")[1] if "─\n" in out else out.split("─ \n")[1]
    names, starred = [], set()
    for line in lines.split("mean ")[0].splitlines():
        cells = line.split()
        if any(cell.lstrip("*").startswith("0.") for cell in cells):
            names.append([])
            starred |= {len(names) - 1} if "*" in line else set()
        names[-1:] = [names[-1] + [c for c in cells if c[0].isalpha()]] if names else []
    return [" ".join(name) for name in names], starred


@pytest.mark.parametrize(
    ("models", "strategies", "rows"),
    [
        ("mlp", "random", ["mlp random", "mlp weighted_bce random"]),
        ("mlp,logistic", "random", ["mlp random", "mlp weighted_bce random", "logistic"]),
        ("logistic,mlp", "random,minority",
         ["mlp random", "mlp minority", "mlp weighted_bce random", "mlp weighted_bce minority",
          "logistic"]),
    ],
)  # fmt: skip
def test_on_one_dataset_every_model_loss_and_strategy_has_a_row(
    command, tmp_path, monkeypatch, models, strategies, rows
):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = command(
        *quick(tiny_file(tmp_path), "--models", models, "--losses", "bce,weighted_bce",
               "--strategies", strategies, "--n-folds", 3),
    )  # fmt: skip
    assert code == 0, err
    names, starred = settings_of(out)
    assert names == rows
    assert starred
    said = " ".join(out.split())
    assert "mean ± half of its 95% interval over folds; * best of its column" in said
    assert "over datasets" not in said
    assert out.count("±0.") == 5 * len(rows)  # no column is cut off
    (page,) = [path.read_text() for path in (tmp_path / "records").glob("compare-*.html")]
    assert "There is nothing to compare" not in page
    assert "Every setting: mean ± half" in page
    assert "over datasets; positive" not in page


def test_models_that_ignore_the_losses_are_named(command, tmp_path):
    given = ("--losses", "focal", "--epochs", 1, "--strategies", "random")
    code, _, err = command(*quick(tiny_file(tmp_path), "--models", "mlp,logistic:C=1", *given))
    assert code == 0, err
    assert err.count("Note: logistic takes no loss: losses apply to mlp") == 1
    code, _, err = command(*quick(tiny_file(tmp_path), "--models", "logistic", *given))
    assert code == 2, err
    assert "logistic takes none: leave losses out" in " ".join(err.split())


def test_over_datasets_losses_alone_are_compared_by_their_means(command, tmp_path):
    files = [tiny_file(tmp_path, name=name, n=n) for name, n in (("one", 80), ("two", 90))]
    code, out, err = command(
        *quick(*files), "--models", "mlp", "--losses", "bce,weighted_bce", "--strategies", "random"
    )
    assert code == 0, err
    assert settings_of(out)[0] == ["mlp random", "mlp weighted_bce random"]
    assert "mean over 2 datasets" in out


def test_over_datasets_the_summary_says_what_it_averages(command, tmp_path):
    files = [tiny_file(tmp_path, name=name, n=n) for name, n in (("one", 80), ("two", 90))]
    code, out, err = command(
        *quick(*files), "--models", "mlp", "--losses", "bce,weighted_bce", "--epochs", 1
    )
    assert code == 0, err
    assert "change against random, averaged over 2 models and 2 datasets" in " ".join(out.split())


def test_a_terminal_without_unicode_shows_the_summary(tmp_path):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    brief = Brief(("strategy", "F"), ((("random", False), ("0.5\n±0.1", True)),), "mean ± half", ())
    with redirect_stdout(stream):
        study_display._summary([Section(id="a", title="A", short="A", brief=brief)])
    stream.flush()
    assert b"+-0.1" in stream.buffer.getvalue()


def test_models_without_batches_alone_make_a_report(command, tmp_path):
    code, out, err = command(*quick(tiny_file(tmp_path), "--models", "logistic"))
    assert code == 0, err
    assert "logistic" in out
    assert "below" not in out  # there is nothing above
    (page,) = (tmp_path / "records").glob("compare-*.html")
    assert "no strategies to compare" in page.read_text()


def test_report_exports_the_runs(command, tmp_path):
    command(*quick(tiny_file(tmp_path)))
    code, out, _ = command("report", "records", "--csv", "runs.csv", "--parquet", "runs.parquet")
    assert code == 0
    assert "Report: report.html" in out
    assert len(pd.read_csv("runs.csv")) == len(pd.read_parquet("runs.parquet")) == 4


def test_an_exported_file_makes_the_report_anywhere(command, tmp_path):
    command(*quick(tiny_file(tmp_path)))
    code, out, _ = command("study", "export", "records", "--out", "four.jsonl.gz")
    assert code == 0
    assert out == "4 runs, 0.0 MB: four.jsonl.gz\n"
    code, _, _ = command("report", "four.jsonl.gz", "--study", *names(), "--csv", "runs.csv")
    assert code == 0
    ours, theirs = (
        (tmp_path / name).read_text() for name in (f"records/{names()[0]}.html", "report.html")
    )
    assert ours.count("<table") == theirs.count("<table") > 3
    assert len(pd.read_csv("runs.csv")) == 4


def test_a_study_goes_on_from_an_exported_file(command, tmp_path):
    arguments = quick(tiny_file(tmp_path))
    command(*arguments)
    command("study", "export", "records", "--out", "four.jsonl.gz")
    (tmp_path / "records").rename(tmp_path / "gone")
    code, out, _ = command("study", "import", "four.jsonl.gz", "--store", "records")
    assert (code, out) == (0, "4 runs added to records\n")
    runs = tmp_path / "records" / "runs"
    before = {path: path.stat().st_mtime_ns for path in runs.iterdir()}
    code, _, err = command(*arguments)
    assert code == 0, err
    assert len(before) == 4
    assert {path: path.stat().st_mtime_ns for path in runs.iterdir()} == before
    code, out, _ = command("study", "import", "four.jsonl.gz", "--store", "records")
    assert (code, out) == (0, "0 runs added to records\n")


def test_a_study_file_runs_with_labels_by_name(command, tmp_path):
    rows = "".join(f"{i % 7 / 7},{int(i % 7 > 3)},{int(i % 3 == 0)}\n" for i in range(60))
    (tmp_path / "mine.csv").write_text("x,a,b\n" + rows)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nn_folds = 2\nfolds = [0]\n'
        'datasets = [{path = "mine.csv", labels = ["a", "b"]}]\n'
        "[plan]\nepochs = 2\nbatch_size = 16\n[quick]\n[quick.plan]\nepochs = 1\n"
    )
    code, out, err = command("study", "run", "mine.toml", "--quick", "--store", "records")
    assert code == 0, err
    assert "Report: records/mine-quick.html" in out
    assert set(ResultStore("records").frame()["plan_epochs"]) == {1}


def test_status_says_how_far_a_study_is(command, tmp_path):
    assert command(*quick(tiny_file(tmp_path)))[0] == 0
    assert "4 of 4" in command("study", "status", "--store", "records")[1]
    store = ResultStore("records")
    (name,) = names()
    runs = [record.spec for record in store.records(name)]
    for spec in runs[:2]:
        (tmp_path / "records" / "runs" / f"{spec.digest}.json").unlink()
    store.note_epoch(runs[0], 3)
    store.keep_failure(RunFailure(spec=runs[1], message="no"))
    code, out, _ = command("study", "status", "--store", "records")
    assert code == 0
    row = next(line.split() for line in out.splitlines() if "compare" in line)
    assert row[:6] == [name, "2", "of", "4", "1", "1"]
    assert row[6] == "about"
    assert f"fold {runs[0].fold}, seed 0: 3 of 4 epochs done" in out


def test_failures_are_listed_and_end_in_exit_code_1(command, tmp_path):
    good = tiny_file(tmp_path)
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"no archive")
    (tmp_path / "gap.csv").write_text("a,b,c\n,1,0\n1,0,1\n2,1,0\n3,0,1\n")
    study = (
        'name = "mine"\nn_folds = 2\nstrategies = ["random"]\nplan = {{epochs = 1}}\n'
        'datasets = [{}"bad.npz", {{path = "gap.csv", labels = -2, missing = "error"}}]\n'
    )
    (tmp_path / "mine.toml").write_text(study.format(f'"{good}", '))
    (tmp_path / "none.toml").write_text(study.format("").replace("mine", "none"))
    code, out, err = command("study", "run", "mine.toml", "--store", "records")
    assert code == 1
    assert "Report: records/mine.html" in out
    shown = " ".join(err.split())
    assert "4 runs failed: bad ensemble random, fold 0, seed 0 and 1 more: " in shown
    assert "kinds={'a': 'ignore'}, or pass missing='impute'" in shown
    code, out, err = command("study", "run", "none.toml", "--store", "records")
    assert code == 1
    assert "4 runs failed:" in err
    assert not out  # nothing ran, so there is nothing to report
    assert not (tmp_path / "records" / "none.html").exists()


def test_stopping_says_how_to_go_on(command, tmp_path, monkeypatch):
    def stop(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("tailbatch.comparison.run_study", stop)
    code, _, err = command(*quick(tiny_file(tmp_path)))
    assert code == 143
    assert "Run the same command again to resume" in " ".join(err.split())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study", "run", "tabel-2"), "did you mean 'table-2'?"),
        (("study", "run", "nothing.toml"), "nothing.toml cannot be read"),
        (("compare", "sceen"), "did you mean 'scene'?"),
        (("compare", "debtags", "--models", "dlea"), "did you mean 'dela'?"),
        (("compare", "debtags", "--models", "mlp:hiden=8"), "did you mean 'hidden'?"),
        (("compare", "debtags", "--models", "mlp:objective=bce"), "loss='weighted_bce'"),
        (("compare", "debtags", "--models", "mlp:bce"), "a setting of mlp is OPTION=VALUE"),
        (("compare", "debtags", "--losses", "wieghted_bce"), "did you mean 'weighted_bce'?"),
        (("compare", "debtags", "--losses", "focal:gama=1"), "did you mean 'gamma'?"),
        (("compare", "debtags", "--models", "c2ae", "--losses", "focal"), "c2ae takes no loss"),
        (("compare", "debtags", "--strategies", "randm"), "did you mean 'random'?"),
        (("compare", "debtags", "--selection-pressures", "0.5"), "must be a number from 1"),
        (("report", "nowhere"), "there is no store at nowhere"),
        (("study", "export", "nowhere"), "there is no store at nowhere"),
        (
            ("study", "status", "--store", "nowhere"),
            "there is no study in nowhere: start one with `tailbatch study run`",
        ),
        (
            ("study", "import", "nowhere"),
            "there is no file nowhere: make one with `tailbatch study export`",
        ),
        (("study", "import", "."), "there is no file .: make one with `tailbatch study export`"),
    ],
)
def test_a_users_mistake_is_one_sentence(command, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_list_and_show_say_what_there_is(command):
    code, out, _ = command("study", "list")
    assert code == 0
    assert "table-2" in out
    assert "2,600" in out
    code, out, _ = command("study", "show", "table-4", "--quick")
    assert code == 0
    assert "cal500" in out
    assert "adaptive, chain" in out
    assert "2 of 5" in out


def test_the_demo_shows_rare_labels_beside_logistic_regression(command, monkeypatch):
    quick = partial(TailbatchClassifier, plan__steps=3)
    monkeypatch.setattr("tailbatch.TailbatchClassifier", quick, raising=False)
    ran = []
    monkeypatch.setattr(study, "_run", lambda asked, *_: ran.append(asked.name))
    code, out, _ = command("demo")
    assert code == 0
    lines = [line.split() for line in out.splitlines() if "*" in line and "." in line]
    rows = [int(line[2]) for line in lines if line[1] == "*"]
    assert rows == sorted(rows)
    assert len(rows) == 8
    assert re.search(r"mean of \d+ rare labels +0\.\d{3} +0\.\d{3}", out)
    assert re.search(r"mean of 119 labels +0\.\d{3} +0\.\d{3}", out)
    assert ran == ["demo"]
