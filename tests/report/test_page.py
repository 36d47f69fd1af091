import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import tailbatch.report.page as page_module
from report.synthetic import make_arrays, make_record, make_specs, make_store
from tailbatch.analysis import analyze
from tailbatch.cli.study_display import _summary
from tailbatch.errors import ResultError
from tailbatch.report.page import SECTIONS, _render, write_report
from tailbatch.report.section import Block, Brief, FileTable, Section, Story
from tailbatch.results.archive import Archive, write_archive
from tailbatch.results.frames import gather, read_store

HOSTILE = '</script><img src=x onerror="alert(1)">{{ 7*7 }} $x_1$ \x1b[31m=cmd|calc'


class Page(HTMLParser):
    """Collects what the tests ask a page for."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.text = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])

    def handle_data(self, data):
        self.text.append(data)


def rendered(evidence):
    story = Story(analyze(evidence), "report-files")
    return _render(story, [make(story) for make in SECTIONS], title="Made up")


def page_of(specs, **facts):
    return rendered(gather((make_record(spec, **facts) for spec in specs), make_arrays))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A report with missing cells, several pressures and a second baseline seed."""
    folder = tmp_path_factory.mktemp("report")
    specs = make_specs(models=("dela",), pressures=(2.0, 16.0, 64.0), random_seeds=3, folds=2)
    make_store(folder / "store", specs, lost=(7,), failed=(8,))
    write_report(folder / "store", folder / "report.html")
    return folder


def test_the_page_says_what_ran_how_fairly_and_what_came_out(written):
    text = "".join(Page((written / "report.html").read_text()).text)
    assert "Too little ran to say what is best for rare labels: a test takes three folds" in text
    assert re.search(r"adaptive against random: .*better in \d+ of 16 comparisons", text)
    assert "the same digest in 4 of 4 groups of compared runs" in text
    assert "2 of the planned runs are missing" in text
    assert "the loss is no longer a number" in text
    assert re.search(r"adaptive \(best of 3\) against random \(best of 3\): ", text)


def test_every_link_leads_somewhere_on_the_page(written):
    page = Page((written / "report.html").read_text())
    assert len(page.ids) == len(set(page.ids))
    assert page.links
    for link in page.links:
        assert link.startswith("#")
        assert link[1:] in page.ids


def test_every_mean_leads_to_the_records_it_is_made_of(written):
    text = (written / "report.html").read_text()
    rows = re.findall(r'<tr data-cell="([^"]+)">', text)
    assert rows
    named = set(re.findall(r"<code>([0-9a-f]{32})</code>", text))
    assert named == {path.stem for path in (written / "store" / "runs").glob("*.json")}
    assert set(rows) <= set(Page(text).ids)


def test_the_page_names_nothing_outside_itself(written):
    page = Page((written / "report.html").read_text())
    for tag, given in page.tags:
        assert "src" not in given
        assert tag not in {"iframe", "object", "embed", "base"}
        if tag == "link":
            assert given["href"] == "data:,"
    text = (written / "report.html").read_text()
    assert "@import" not in text
    assert "url(" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}


def test_tables_have_captions_and_scopes(written):
    tags = Page((written / "report.html").read_text()).tags
    names = [tag for tag, _ in tags]
    assert names.count("caption") == names.count("table") > 5
    assert all("scope" in given for tag, given in tags if tag == "th")
    assert {"header", "nav", "main", "footer", "h1"} <= set(names)
    assert names.count("h1") == 1


def test_tables_and_figures_lie_beside_the_page(written):
    names = {path.name for path in (written / "report-files").iterdir()}
    for table in ("results", "overall", "comparisons", "fairness", "missing"):
        assert {f"{table}.csv", f"{table}.tex", f"{table}.md"} <= names
    figures = (
        "gains",
        "convergence",
        "validation",
        "labels",
        "sample-losses",
        "pressures",
        "ranks",
    )
    for figure in figures:
        assert {f"{figure}.pdf", f"{figure}.png"} <= names
    assert {"runs.csv", "curves.csv", "labels.csv", "sample-losses.csv"} <= names
    assert r"\textbf{" in (written / "report-files" / "results.tex").read_text()


def test_the_same_store_gives_the_same_bytes(written, tmp_path):
    write_report(written / "store", tmp_path / "report.html")
    for path in [written / "report.html", *(written / "report-files").iterdir()]:
        again = tmp_path / path.relative_to(written)
        assert again.read_bytes() == path.read_bytes(), path.name


def test_hostile_names_stay_text():
    specs = make_specs(datasets=(HOSTILE, "scene"), models=("mlp",), folds=2)
    text = page_of(specs, label_names=[f"{HOSTILE} {place}" for place in range(12)])
    page = Page(text)
    assert not any(tag == "img" or "onerror" in given for tag, given in page.tags)
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert "49 $x_1$" not in text
    assert "\x1b" not in text
    shown = HOSTILE.replace("\x1b", r"\x1b")
    assert shown in "".join(page.text)
    data = re.search(r'id="report-data">(.*?)</script>', text, re.DOTALL)[1]
    assert shown in json.loads(data)["labels"]


def test_hostile_names_do_no_harm_in_files(tmp_path):
    specs = make_specs(datasets=(HOSTILE,), models=("../../x",), folds=2)
    make_store(tmp_path / "store", specs, label_names=[f"={place}$^" for place in range(12)])
    write_report(tmp_path / "store", tmp_path / "out" / "report.html")
    assert {path.name for path in tmp_path.iterdir()} == {"store", "out"}
    assert "'=0$^" in (tmp_path / "out" / "report-files" / "labels.csv").read_text()


def test_cells_without_runs_are_shown_as_such(tmp_path):
    specs = make_specs(datasets=("scene",), models=("mlp",), folds=2)
    gone = [place for place, spec in enumerate(specs) if spec.strategy == "hard"]
    evidence = read_store(make_store(tmp_path, specs, failed=gone, arrays=False))
    text = rendered(evidence)
    row = re.search(r"hard<span.*?</tr>", text, re.DOTALL)[0]
    assert "no run" in row
    assert "0 runs, 2 missing" in row


def test_a_store_in_which_all_runs_failed_has_a_report(tmp_path):
    specs = make_specs(datasets=("scene",), models=("mlp",), folds=1)
    make_store(tmp_path / "store", specs, failed=range(len(specs)))
    write_report(tmp_path / "store", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "No run has finished" in text
    assert "the loss is no longer a number" in text


def test_one_strategy_alone_is_shown_without_comparisons(tmp_path, recwarn):
    specs = make_specs(datasets=("scene",), models=("dela",), strategies=("random",), folds=1)
    make_store(tmp_path / "store", specs)
    write_report(tmp_path / "store", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert "There is nothing to compare yet" in "".join(page.text)
    assert "Average precision of each label, rarest first" in "".join(page.text)
    assert {"explore", "panel-losses"} <= set(page.ids)
    names = {path.name for path in (tmp_path / "report-files").iterdir()}
    assert {"sample-losses.pdf", "made-up.toml"} <= names
    assert [str(warning.message) for warning in recwarn] == []


def test_one_study_of_several_can_be_reported(tmp_path):
    store = make_store(tmp_path / "store", make_specs(folds=1), arrays=False)
    wanted = make_specs(datasets=("scene",), folds=1)
    make_store(tmp_path / "store", wanted, arrays=False)  # replaces the study of that name
    assert len(read_store(store, study="made-up").runs) == len(wanted)
    assert len(read_store(store).runs) == len(make_specs(folds=1))


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        (
            "nowhere",
            r"^there is no store.* at .*nowhere: run a study to create one$",
        ),
        ("empty", r"^the store .*empty has no runs to report on: run a study first$"),
    ],
)
def test_nothing_to_report_is_said(tmp_path, folder, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultError, match=message):
        write_report(tmp_path / folder, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_reports_load_no_torch():
    code = "import sys, tailbatch.report.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _truncated(path):
    path.write_bytes(path.read_bytes()[:100])


def _missing(path):
    path.unlink()


def _a_folder(path):
    path.unlink()
    path.mkdir()


def _of_another_shape(path):
    np.savez(path, minority_counts=np.arange(3), sample_losses_3=np.ones((2, 7)))


@pytest.mark.parametrize("damage", [_truncated, _missing, _a_folder, _of_another_shape])
def test_a_damaged_array_file_spoils_the_curves_of_one_run(tmp_path, caplog, damage):
    specs = make_specs(datasets=("scene",), models=("dela",))
    store = make_store(tmp_path / "store", specs)
    damage(tmp_path / "store" / "runs" / f"{specs[0].digest}.npz")
    with caplog.at_level("WARNING"):
        evidence = read_store(store)
    assert [record.message.split()[1] for record in caplog.records] == [specs[0].digest]
    assert len(evidence.runs) == len(specs)
    assert set(evidence.runs["digest"]) - set(evidence.losses["digest"]) == {specs[0].digest}
    write_report(tmp_path / "store", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert "unread" in page.ids
    said = "missing" if damage in (_missing, _a_folder) else "damaged"
    assert f"the array file is {said}" in "".join(page.text)
    listed = (tmp_path / "report-files" / "unread.csv").read_text().splitlines()
    assert [specs[0].digest in line for line in listed] == [False, True]


def test_an_archive_keeps_which_arrays_could_not_be_read(tmp_path):
    specs = make_specs(datasets=("scene",), models=("dela",))
    store = make_store(tmp_path / "store", specs)
    _truncated(tmp_path / "store" / "runs" / f"{specs[0].digest}.npz")
    write_archive(store, tmp_path / "records.jsonl.gz")
    evidence = read_store(Archive(tmp_path / "records.jsonl.gz"))
    assert evidence.unread.values.tolist() == [[specs[0].digest, "the array file is damaged"]]


def test_whole_array_files_are_not_named(written):
    assert "unread" not in Page((written / "report.html").read_text()).ids


def test_a_section_of_ones_own_is_on_the_page_in_files_and_on_the_terminal(
    tmp_path, monkeypatch, capsys
):
    def mine(story):
        table = story.analysis.results[["arm", "mean"]]
        return Section(
            id="mine",
            title="A section of my own",
            short="Mine",
            blocks=(Block("text", "Nothing else had to change."),),
            tables=(FileTable("mine", table, "My table"),),
            data={"mine": [1, 2]},
            brief=Brief(
                ("strategy", "score"), ((("random", False), ("12", True)),), "", ("Said.",)
            ),
        )

    monkeypatch.setattr(page_module, "SECTIONS", (*page_module.SECTIONS, mine))
    make_store(tmp_path / "store", make_specs(datasets=("scene",), models=("mlp",)), arrays=False)
    sections = write_report(tmp_path / "store", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert '<a href="#mine">Mine</a>' in text
    assert "Nothing else had to change." in text
    data = re.search(r'id="report-data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(data)["mine"] == [1, 2]
    assert (tmp_path / "report-files" / "mine.md").exists()
    _summary(sections)
    assert {"12", "Said."} <= set(capsys.readouterr().out.split())


def test_training_rows_of_a_label_are_whole_numbers(written):
    text = (written / "report-files" / "labels-by-name.md").read_text()
    header, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    place = header.split("|").index(" positives ")
    assert rows
    assert all(row.split("|")[place].strip().isdigit() for row in rows)
