"""All records in one file: it makes the same report, and says where it is damaged."""

import gzip
import json
from dataclasses import replace

import pytest

from report.synthetic import make_specs, make_store
from tailbatch.errors import ResultError
from tailbatch.report.page import write_report
from tailbatch.results import ResultStore
from tailbatch.results.archive import Archive, open_records, write_archive
from tailbatch.results.frames import read_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive") / "records"
    specs = make_specs(pressures=(2.0, 16.0, 64.0), random_seeds=3, folds=2)
    return make_store(folder, specs, lost=(7,), failed=(8,))


@pytest.fixture(scope="module")
def archive(store):
    write_archive(store, store.path.with_name("records.jsonl.gz"))
    return Archive(store.path.with_name("records.jsonl.gz"))


def test_it_makes_the_same_report(store, archive, tmp_path):
    for source in (store.path, archive.path):
        write_report(source, tmp_path / source.name / "report.html")
    first, second = (tmp_path / source.path.name for source in (store, archive))
    files = [path for path in first.rglob("*") if path.is_file()]
    assert len(files) > 40
    for path in files:
        assert (second / path.relative_to(first)).read_bytes() == path.read_bytes(), path.name


def test_it_gives_the_same_metrics_to_the_last_digit(store, archive):
    ours, theirs = store.frame(), archive.frame()
    assert ours.equals(theirs)
    assert archive.studies() == store.studies()
    assert [failure.message for failure in archive.failures()] == ["the loss is no longer a number"]
    assert len(archive.frame("made-up")) == len(ours)


def test_the_same_store_gives_the_same_bytes(store, archive, tmp_path):
    assert write_archive(store, tmp_path / "again.jsonl.gz") == len(store.frame())
    assert (tmp_path / "again.jsonl.gz").read_bytes() == archive.path.read_bytes()
    # An archive of an archive is the same file, too.
    write_archive(archive, tmp_path / "twice.jsonl.gz")
    assert (tmp_path / "twice.jsonl.gz").read_bytes() == archive.path.read_bytes()


def test_a_store_made_from_it_gives_it_back(archive, tmp_path):
    fresh = ResultStore(tmp_path / "fresh")
    assert fresh.add_missing(archive) == len(archive.frame())
    write_archive(fresh, tmp_path / "back.jsonl.gz")
    assert (tmp_path / "back.jsonl.gz").read_bytes() == archive.path.read_bytes()


def test_a_store_keeps_what_it_has(archive, tmp_path):
    ours = make_store(tmp_path / "ours", make_specs(folds=1), failed=(1,))
    before = {path: path.read_bytes() for path in ours.path.rglob("*.*")}
    lacked = set(archive.frame()["digest"]) - set(ours.frame()["digest"])
    assert ours.add_missing(archive) == len(lacked) > 0
    failed = [path for path in before if path.parent.name == "failures"]
    assert len(failed) == 1
    for path in before.keys() - set(failed):
        assert path.read_bytes() == before[path], path
    assert set(ours.frame()["digest"]) >= set(archive.frame()["digest"])
    # A run that failed here and was done there is done.
    assert not any(failure.spec.digest in lacked for failure in ours.failures())


def test_a_dataset_that_lies_in_two_folders_is_shown_once(tmp_path):
    ours = make_store(tmp_path / "ours", make_specs(folds=1), arrays=False)
    before = read_store(ours).datasets
    key, facts = next(iter(ours.datasets().items()))
    ours.keep_dataset(replace(facts, path="/elsewhere/data.arff"), "0123456" + key[7:])
    assert len(ours.datasets()) == len(before) + 1
    assert (
        read_store(ours)
        .datasets.sort_values("dataset", ignore_index=True)
        .equals(before.sort_values("dataset", ignore_index=True))
    )


def test_one_study_can_be_taken_out(store, tmp_path):
    wanted = make_specs(datasets=("scene",), models=("mlp",), folds=1)
    make_store(tmp_path / "store", make_specs(folds=1), arrays=False)
    both = make_store(tmp_path / "store", wanted, arrays=False)
    assert write_archive(both, tmp_path / "one.jsonl.gz", study="made-up") == len(wanted)
    assert len(Archive(tmp_path / "one.jsonl.gz").frame()) == len(wanted)


def test_no_folder_of_the_machine_goes_into_the_file(store, archive):
    facts = next(iter(store.datasets().values()))
    store.keep_dataset(type(facts)(name="mine", path="/home/me/mine.arff", size=1, modified=9,
                                   digest="ab"), "3" * 32)  # fmt: skip
    write_archive(store, store.path.with_name("more.jsonl.gz"))
    kept = Archive(store.path.with_name("more.jsonl.gz")).datasets()["3" * 32]
    assert (kept.path, kept.modified) == ("mine.arff", 0)
    assert kept.digest == "ab"


def changed(archive, change):
    """Write the lines of an archive anew after `change`, and open them."""
    lines = gzip.decompress(archive.path.read_bytes()).decode().splitlines(keepends=True)
    path = archive.path.with_name("changed.jsonl.gz")
    path.write_bytes(gzip.compress("".join(change(lines)).encode()))
    return Archive(path)


def another_seed(line):
    values = json.loads(line)
    values["run"]["spec"]["seed"] = 99
    return json.dumps(values) + "\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lines: [*lines[:-1], lines[-1][:80]],
            r"^line \d+ of .*changed.jsonl.gz is damaged",
        ),
        (lambda lines: [*lines[:-1], another_seed(lines[-1])], "its digest is not that of its run"),
        (lambda lines: lines[:-2], r"has \d+ of its \d+ runs: copy or export it again"),
        (lambda lines: [*lines, lines[-1]], r"has run \w+ in the wrong place"),
        (lambda lines: lines[1:], r"^line 1 of .* \(not the header of a file of records\)"),
        (
            lambda lines: [lines[0].replace('"schema":3', '"schema":99')],
            "was written by another version",
        ),
        (
            lambda lines: [*lines, '{"schema": 3, "run": {"digest": "ab"}}\n'],
            "not a run: 'history'",
        ),
    ],
)
def test_damage_is_said_with_its_place(archive, change, message):
    with pytest.raises(ResultError, match=message):
        list(changed(archive, change).records())


def test_a_file_cut_short_is_said_to_be(archive, tmp_path):
    path = tmp_path / "short.jsonl.gz"
    path.write_bytes(archive.path.read_bytes()[:-400])
    with pytest.raises(
        ResultError, match=r"incomplete or damaged after line \d+ .*: copy or export it again$"
    ):
        list(Archive(path).records())
    path.write_text("no archive at all")
    with pytest.raises(ResultError, match=r"line 1 of .* is damaged"):
        open_records(path).studies()


def test_nothing_at_a_path_is_said():
    with pytest.raises(
        ResultError,
        match=r"^there is no store.* at nowhere: run a study to create one",
    ):
        open_records("nowhere")


def test_a_folder_of_archives_is_read_as_one(tmp_path):
    specs = make_specs(folds=2)
    store = make_store(tmp_path / "store", specs, arrays=False)
    half = {spec.digest for spec in specs[::2]}
    folder = tmp_path / "records"
    (folder / "old").mkdir(parents=True)
    assert write_archive(store, folder / "one.jsonl.gz", without=half) == len(specs) - len(half)
    rest = {spec.digest for spec in specs} - half
    write_archive(store, folder / "old" / "two.jsonl.gz", without=rest)
    both = open_records(folder)
    assert {record.spec.digest for record in both.records()} == {spec.digest for spec in specs}
    assert [plan.name for plan in both.studies()] == ["made-up"]
    assert len(list(both.records("made-up"))) == len(specs)
    assert ResultStore(tmp_path / "again").add_missing(both) == len(specs)


def test_a_run_in_two_archives_is_an_error(tmp_path):
    store = make_store(tmp_path / "store", make_specs(folds=1), arrays=False)
    (tmp_path / "records").mkdir()
    for name in ("one", "two"):
        write_archive(store, tmp_path / "records" / f"{name}.jsonl.gz")
    with pytest.raises(ResultError, match=r"two.jsonl.gz and .*one.jsonl.gz both have run"):
        list(open_records(tmp_path / "records").records())
