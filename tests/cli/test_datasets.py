import gzip
import json
import re
import shlex
import sys

import pytest

from tailbatch.cli import main
from tailbatch.data import catalog, load_dataset

TINY = """@relation 'tiny: -C -3'
@attribute x numeric
@attribute common {0,1}
@attribute rare {0,1}
@attribute '[red]odd\x1b[31m' {0,1}
@data
1,1,1,0
2,1,0,0
3,1,0,0
4,0,0,0
5,1,0,1
6,1,0,1
7,1,0,1
"""


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the command line in 80 columns: exit code, output, errors."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tailbatch", "datasets", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.arff"
    path.write_text(TINY)
    return path


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """No folder of files, an empty cache, and sources that refuse to answer."""
    monkeypatch.delenv("TAILBATCH_DATA", raising=False)
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")


def test_list_names_every_known_dataset(run, no_network):
    code, out, _ = run("list")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(catalog.catalog()) <= set(lines)
    assert lines["debtags"].split()[-1] == "here"
    assert lines["yeast"].split()[1:] == [
        "biology",
        "2,417",
        "103",
        "14",
        "4.24",
        "7.20",
        *["2,417", "kB"],
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_list_as_json(run, no_network):
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json")[1])}
    assert entries["yeast"]["path"] is None
    assert entries["llog-f"]["printed"]["label_cardinality"] == 15.93
    assert entries["debtags"]["path"].endswith("debtags.npz")


def test_describe_shows_facts_bars_minorities_and_oddities(run, tiny):
    code, out, err = run("describe", tiny)
    assert code == 0
    assert err == ""
    assert "label cardinality        1.4286" in out
    assert "common" in out
    assert "█" * 24 in out
    assert "0 of 3 labels; 0.0% of the rows have one" in out
    assert "1 label has a single positive: rare" in out
    assert "1 row has no label" in out
    assert max(map(len, out.splitlines())) <= 80


def test_describe_shows_names_as_they_are(run, tiny):
    out = run("describe", tiny)[1]
    assert r"[red]odd\x1b[31m" in out
    assert "\x1b" not in out


def test_describe_the_embedded_dataset(run, no_network):
    code, out, _ = run("describe", "debtags")
    assert code == 0
    assert "role::program" in out
    assert "labels in between" in out
    assert max(map(len, out.splitlines())) <= 80


def test_describe_as_json(run, tiny):
    code, out, _ = run("describe", tiny, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["n_samples"] == 7
    assert facts["labels"][0] == {
        "name": "common",
        "positives": 6,
        "share": pytest.approx(6 / 7),
        "imbalance_ratio": 1.0,
        "is_minority": False,
    }
    assert facts["digest"] == load_dataset(tiny).digest


def test_json_has_null_where_there_is_no_number(run, tmp_path):
    path = tmp_path / "empty.arff"
    path.write_text("@relation 'x: -C 1'\n@attribute a {0,1}\n@attribute x real\n@data\n0,1\n0,2\n")
    facts = json.loads(run("describe", path, "--json")[1])
    assert facts["mean_imbalance_ratio"] is None
    assert facts["labels"][0]["imbalance_ratio"] is None
    assert run("describe", path)[0] == 0


@pytest.mark.parametrize(
    ("option", "labels"),
    [("-3", 3), ("-2", 2), ("common,rare", 2)],
)
def test_describe_takes_the_labels_it_is_told(run, tiny, option, labels):
    assert json.loads(run("describe", tiny, "--labels", option, "--json")[1])["n_labels"] == labels


def test_describe_takes_labels_from_an_xml_file(run, tiny, tmp_path):
    xml = tmp_path / "elsewhere.xml"
    xml.write_text(
        '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="rare"/></labels>'
    )
    facts = json.loads(run("describe", tiny, "--labels", xml, "--json")[1])
    assert [label["name"] for label in facts["labels"]] == ["rare"]


def test_missing_values_are_refused_or_filled_in(run, tmp_path):
    path = tmp_path / "holes.arff"
    path.write_text(TINY.replace("\n1,1,1,0", "\n?,1,1,0"))
    code, _, err = run("describe", path, "--missing", "error")
    assert code == 2
    assert "impute" in err
    assert run("describe", path, "--missing", "impute")[0] == 0


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_describe_draws_a_picture(run, tiny, tmp_path, ending):
    picture = tmp_path / f"labels.{ending}"
    code, out, _ = run("describe", tiny, "--picture", picture)
    assert code == 0
    assert picture.stat().st_size > 1000
    assert f"labels.{ending}" in out


def test_a_picture_of_another_kind_is_the_users_mistake(run, tiny):
    code, _, err = run("describe", tiny, "--picture", "labels.gif")
    assert (code, err) == (2, "Error: a picture is written as .png, .svg or .pdf, got labels.gif\n")


def test_a_misspelled_name_is_answered_with_the_nearest(run):
    code, _, err = run("describe", "yaest")
    assert code == 2
    assert "yeast" in err
    assert err.count("\n") == 1


def test_a_missing_file_is_the_users_mistake(run, tmp_path):
    code, _, err = run("describe", tmp_path / "gone.arff")
    assert code == 2
    assert "gone.arff" in err
    assert "Traceback" not in err


def test_get_prints_where_the_file_is(run, monkeypatch, tmp_path):
    (tmp_path / "yeast.arff").write_text("here already")
    monkeypatch.setenv("TAILBATCH_DATA", str(tmp_path))
    assert run("get", "yeast", "debtags") == (
        0,
        f"{tmp_path / 'yeast.arff'}\n{catalog.find('debtags')}\n",
        "",
    )


def test_get_reports_progress_apart_from_the_path(run, no_network, monkeypatch, tmp_path):
    def find(name, *, progress):
        progress(5, 10)
        return tmp_path / name

    monkeypatch.setattr(catalog, "find", find)
    code, out, err = run("get", "yeast")
    assert (code, out) == (0, f"{tmp_path / 'yeast'}\n")
    assert "Traceback" not in err


def test_get_without_a_network_says_what_to_do(run, no_network, tmp_path):
    code, out, err = run("get", "yeast")
    assert (code, out) == (2, "")
    assert f"Put yeast.arff by hand into {tmp_path / 'cache' / 'yeast'}" in err


def test_check_finds_good_changed_and_broken_files(run, benchmark_data, tmp_path):
    text = gzip.decompress((benchmark_data / "emotions" / "emotions.arff.gz").read_bytes())
    good = tmp_path / "good"
    good.mkdir()
    (good / "emotions.arff").write_bytes(text)
    assert run("check", good) == (0, f"{good / 'emotions.arff'}: as published\n", "")
    (good / "emotions.arff").write_bytes(b"% a comment\n" + text)
    assert run("check", good) == (0, f"{good / 'emotions.arff'}: different bytes, same facts\n", "")
    (good / "emotions.arff").write_bytes(text[: text.rindex(b"\n", 0, -1) + 1])
    code, out, _ = run("check", good)
    assert code == 1
    assert "n is 592, not 593" in out
    results = json.loads(run("check", good, "--json")[1])
    assert [result["same_bytes"] for result in results] == [False]


def test_check_needs_a_folder_with_known_files(run, tmp_path):
    assert run("check", tmp_path / "gone")[0] == 2
    code, _, err = run("check", tmp_path)
    assert code == 2
    assert "has no file that the catalog knows by name" in err


@pytest.mark.parametrize("column", ["text", "labels", "missing", "batch_size", "my words"])
def test_the_remedy_for_a_column_can_be_typed_whatever_its_name(column, run, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f"y,{column}\n" + "".join(f"{n % 2},word{n % 1_100}\n" for n in range(1_200)))
    command = ["describe", path, "--labels", "1", "--json"]
    facts = json.loads(run(*command)[1])
    (remedy,) = re.findall(r"write (.*) if it is free text", " ".join(facts["warnings"]))
    assert shlex.split(remedy) == ["--kinds", f"{column}=text"]
    again = json.loads(run(*command, *shlex.split(remedy))[1])
    assert again["columns"][column]["kind"] == "text"
