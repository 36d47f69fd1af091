"""Nothing is written outside the folder that was given: names with parent folders, and symbolic links."""

import gzip
import io
import json
import os
import zipfile

import numpy as np
import pytest

from tailbatch import TailbatchClassifier, compare
from tailbatch.data import MultiLabelDataset, load_dataset, save_npz
from tailbatch.errors import ResultError, StudyError
from tailbatch.results import (
    DatasetFacts,
    ResultStore,
    RunFailure,
    RunRecord,
    RunSpec,
    StudyPlan,
)
from tailbatch.results.archive import Archive, write_archive
from tailbatch.results.record import to_json
from tailbatch.study import Study, ThisProcess, load_study, run_study
from tailbatch.training.checkpoints import load_checkpoint, save_checkpoint

SPEC = RunSpec(dataset="x", dataset_digest="ab")
RECORD = RunRecord(spec=SPEC, validation={}, test={}, history=(), best_epoch=1, warm_up_digest="")
CLIMBING = [
    "../../climbed",
    "/tmp/climbed",
    "a/b",
    "..",
    ".",
    ".hidden",
    "a\\b",
    "",
    "a\x00",
    "x" * 101,
]


@pytest.fixture
def inside(tmp_path):
    """Return a folder; the test fails if anything outside of it has changed."""
    folder, outside = tmp_path / "given", tmp_path / "precious.json"
    folder.mkdir()
    outside.write_text("precious")
    yield folder
    assert outside.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"given", "precious.json"}


@pytest.mark.parametrize("name", CLIMBING)
def test_a_study_cannot_name_a_file_outside_its_store(name, inside):
    with pytest.raises(StudyError, match="a study's name has 1 to 100 printable characters"):
        Study(name=name, datasets=["debtags"])
    with pytest.raises(ResultError, match="a study's name has 1 to 100 printable characters"):
        ResultStore(inside).keep_study(StudyPlan(name=name, specs=()))


@pytest.mark.parametrize("name", ["table-2", "Zweite Studie: ä", "v1.2 (quick)"])
def test_ordinary_names_are_kept(name, inside):
    store = ResultStore(inside)
    store.keep_study(StudyPlan(name=name, specs=()))
    assert [plan.name for plan in store.studies()] == [name]


def test_a_study_file_in_a_store_cannot_climb_either(inside):
    store = ResultStore(inside)
    (inside / "studies").mkdir()
    (inside / "studies" / "odd.json").write_text(to_json({"name": "../../climbed", "specs": []}))
    assert store.studies() == ()


@pytest.mark.parametrize("name", ["../../climbed.npy", "/tmp/climbed.npy", "..\\climbed.npy"])
def test_members_of_an_archive_are_read_and_never_written(name, inside):
    stream = io.BytesIO()
    np.savez(stream, X=np.eye(2), Y=np.eye(2))
    with zipfile.ZipFile(stream, "a") as archive:
        link = zipfile.ZipInfo("link.npy")
        link.external_attr = 0o120777 << 16
        member = io.BytesIO()
        np.save(member, np.ones(1))
        archive.writestr(name, member.getvalue())
        archive.writestr(link, member.getvalue())
    path = inside / "data.npz"
    path.write_bytes(stream.getvalue())
    assert load_dataset(path).n_samples == 2
    assert os.listdir(inside) == ["data.npz"]


def test_writing_replaces_a_link_and_not_what_it_leads_to(inside):
    path = inside / "checkpoint.safetensors"
    path.symlink_to(inside.parent / "precious.json")
    save_checkpoint(path, {"step": 1})
    assert not path.is_symlink()
    assert load_checkpoint(path) == {"step": 1}


def test_a_record_replaces_a_link_and_not_what_it_leads_to(inside):
    store = ResultStore(inside)
    path = inside / "runs" / f"{SPEC.digest}.json"
    path.parent.mkdir()
    path.symlink_to(inside.parent / "precious.json")
    store.add(RECORD)
    assert json.loads(path.read_text())["digest"] == SPEC.digest


@pytest.fixture
def archive(inside):
    """Return an archive with a study, a failure, a dataset and a run, as lines of plain values."""
    there = ResultStore(inside / "there")
    failed = RunSpec(dataset="x", dataset_digest="ab", seed=1)
    there.add(RECORD)
    there.keep_failure(RunFailure(spec=failed, message="failed", traceback="at line 1"))
    there.keep_study(StudyPlan(name="mine", specs=(SPEC, failed), title="Mine", shows=("table-2",)))
    facts = DatasetFacts(name="x", path="x.arff", size=1, modified=1, digest="ab", labels="tags")
    there.keep_dataset(facts, "0a" * 16)
    write_archive(there, inside / "good.jsonl.gz")
    with gzip.open(inside / "good.jsonl.gz", "rt") as stream:
        return [json.loads(line) for line in stream]


def texts(values, path=()):
    """Yield where there is a text in nested values, keys of tables included."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in list(items):
        if isinstance(value, str):
            yield (*path, key)
        elif isinstance(value, dict | list):
            yield from texts(value, (*path, key))


def changed(values, path, text):
    made = json.loads(json.dumps(values))
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    return made


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["../../climbed", "../runs/x", "a\x00b", "OUTSIDE"])
def test_no_name_in_an_archive_leads_outside_or_leaves_half_of_it(name, archive, inside):
    name = str(inside.parent / "precious") if name == "OUTSIDE" else name
    store, path, places = (
        ResultStore(inside / "here"),
        inside / "odd.jsonl.gz",
        list(texts(archive)),
    )
    assert {place[-1] for place in places} >= {
        "key",
        "name",
        "path",
        "digest",
        "dataset",
        "message",
    }
    for place in places:
        lines = [json.dumps(line) for line in changed(archive, place, name)]
        path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
        before = contents(store.path)
        try:
            store.add_missing(Archive(path))
        except ResultError:
            assert contents(store.path) == before, f"{place}: half of the archive was imported"
        found = {path.parent.name for path in contents(store.path)}
        assert found <= {"runs", "failures", "studies", "datasets"}
        assert set(os.listdir(inside)) <= {"there", "here", "good.jsonl.gz", "odd.jsonl.gz"}


def test_an_archive_cannot_replace_a_record(archive, inside):
    store = ResultStore(inside / "here")
    store.add(RECORD)
    before = contents(store.path)
    (at,) = [index for index, line in enumerate(archive) if "dataset" in line]
    archive[at]["dataset"]["key"] = f"../runs/{SPEC.digest}"
    path = inside / "odd.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join([*map(json.dumps, archive), ""]).encode()))
    with pytest.raises(
        ResultError, match=r"line 4 of .*the key of a dataset is 32 hexadecimal digits"
    ):
        store.add_missing(Archive(path))
    assert contents(store.path) == before


def test_the_names_in_a_study_file_lead_to_files_inside_its_store(inside):
    X, Y = np.random.default_rng(0).random((40, 3)), np.tile(np.eye(4, 2), (10, 1))
    odd = MultiLabelDataset.from_arrays(X, Y, name="../../climbed\x1b", label_names=["../x", "a/b"])
    result = compare(
        odd, models=["logistic"], n_folds=2, store=inside / "store", name="../../../climbed"
    )
    result.report(inside / "report.html")
    save_npz(odd, inside / "odd.npz")
    (inside / "odd.toml").write_text(
        f'name = "odd"\nmodels = ["logistic"]\nn_folds = 2\nfolds = [0]\n'
        f'datasets = [{{path = "{inside / "odd.npz"}", name = "../../../climbed"}}]\n'
    )
    store = ResultStore(inside / "store")
    run_study(load_study(str(inside / "odd.toml")), store, ThisProcess, workers=1)
    assert len(store.done()) == 3


@pytest.mark.parametrize("name", ["../../climbed", "OUTSIDE"])
def test_the_names_in_a_saved_model_lead_nowhere(name, inside):
    name = str(inside.parent / "precious.json") if name == "OUTSIDE" else name
    X, Y = np.random.default_rng(0).random((40, 3)), np.tile(np.eye(4, 2), (10, 1))
    model = TailbatchClassifier(epochs=1, label_names=[name, "y"], random_state=0).fit(X, Y)
    model.save(inside / "model")
    again = TailbatchClassifier.load(inside / "model")
    again.save(inside / "again")
    assert set(os.listdir(inside)) == {"model", "again"}
    assert sorted(os.listdir(inside / "model")) == sorted(os.listdir(inside / "again"))


@pytest.mark.parametrize("folder", ["runs", "failures", "studies", "datasets"])
def test_setting_a_link_aside_leaves_what_it_leads_to(folder, inside):
    store = ResultStore(inside)
    path = inside / folder / "odd.json"
    path.parent.mkdir()
    path.symlink_to(inside.parent / "precious.json")
    assert list(store.records()) == []
    assert (store.studies(), store.failures(), store.datasets()) == ((), (), {})
    assert (inside / "damaged" / "odd.json").is_symlink()
