"""A pickle that would leave a trace, wherever a file is read."""

import gzip
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tailbatch.data import load_dataset, read_arff
from tailbatch.errors import SelectionError, TailbatchError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.results import ResultStore, RunRecord, RunSpec
from tailbatch.results.archive import Archive
from tailbatch.selection import HardSelector
from tailbatch.study import Study
from tailbatch.training.checkpoints import load_checkpoint

ARFF = "@relation r\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n0,1\n"
SPEC = RunSpec(dataset="x", dataset_digest="ab")


class Bomb:
    def __reduce__(self):
        return Path("exploded").touch, ()


def object_array():
    stream = io.BytesIO()
    np.savez(stream, X=np.array([[Bomb()]], dtype=object), Y=np.eye(1))
    return stream.getvalue()


def torch_file():
    stream = io.BytesIO()
    torch.save({"state": Bomb()}, stream)
    return stream.getvalue()


KINDS = {
    "pickle": lambda: pickle.dumps(Bomb()),
    "packed pickle": lambda: gzip.compress(pickle.dumps(Bomb())),
    "torch file": torch_file,
    "object array": object_array,
}


def in_store(name, read):
    def look(path):
        store = ResultStore(path.parent / "store")
        target = store.path / name
        target.parent.mkdir(parents=True)
        path.replace(target)
        return read(store)

    return look


def xml(path):
    arff = path.with_name("labels.arff")
    arff.write_text(ARFF)
    return read_arff(arff, labels=path)


def model(path):
    path.replace(path.with_name("classifier.safetensors"))
    return TailbatchClassifier.load(path.parent)


PLACES = {
    "arff": (lambda path: read_arff(path, labels=1), ".arff"),
    "xml": (xml, ".xml"),
    "csv": (lambda path: load_dataset(path, labels=1), ".csv"),
    "libsvm": (lambda path: load_dataset(path), ".svm"),
    "npz": (lambda path: load_dataset(path), ".npz"),
    "parquet": (lambda path: load_dataset(path, labels=1), ".parquet"),
    "checkpoint": (load_checkpoint, ".safetensors"),
    "model": (model, ".bin"),
    "study": (Study.from_toml, ".toml"),
    "archive": (lambda path: list(Archive(path).records()), ".gz"),
    "arrays": (in_store(f"runs/{SPEC.digest}.npz", lambda store: store.arrays(SPEC)), ".npz"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_pickle_is_refused_and_not_executed(place, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read, suffix = PLACES[place]
    path = tmp_path / f"file{suffix}"
    path.write_bytes(KINDS[kind]())
    with pytest.raises(TailbatchError) as caught:
        read(path)
    assert str(caught.value).isprintable()
    assert not Path("exploded").exists()


@pytest.mark.parametrize("folder", ["runs", "failures", "studies", "datasets"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_in_a_store_is_set_aside(folder, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = ResultStore(tmp_path / "store")
    store.add(
        RunRecord(spec=SPEC, validation={}, test={}, history=(), best_epoch=1, warm_up_digest="")
    )
    path = store.path / folder / "odd.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(KINDS[kind]())
    assert len(list(store.records())) == 1
    assert (store.studies(), store.failures(), store.datasets()) == ((), (), {})
    assert (store.path / "damaged" / "odd.json").exists()
    assert not Path("exploded").exists()


def test_objects_in_a_selector_state_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selector = HardSelector(6, batch_size=3)
    state = selector.state_dict()
    with pytest.raises(SelectionError, match="it is not a state of this selector"):
        selector.load_state_dict(state | {"scores": np.array([Bomb()] * 6, dtype=object)})
    assert not Path("exploded").exists()
