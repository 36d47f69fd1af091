"""Nothing is written outside the folder that was given: names with parent folders, and symbolic links."""

import io
import json
import os
import zipfile

import numpy as np
import pytest

from tailbatch.data import load_dataset
from tailbatch.errors import ResultError, StudyError
from tailbatch.results import ResultStore, RunRecord, RunSpec, StudyPlan
from tailbatch.results.record import to_json
from tailbatch.study import Study
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


@pytest.mark.parametrize("folder", ["runs", "failures", "studies", "datasets"])
def test_setting_a_link_aside_leaves_what_it_leads_to(folder, inside):
    store = ResultStore(inside)
    path = inside / folder / "odd.json"
    path.parent.mkdir()
    path.symlink_to(inside.parent / "precious.json")
    assert list(store.records()) == []
    assert (store.studies(), store.failures(), store.datasets()) == ((), (), {})
    assert (inside / "damaged" / "odd.json").is_symlink()
