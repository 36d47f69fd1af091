"""JSON and TOML nested 100,000 levels deep, in every file that contains some."""

import gzip
import struct

import pytest

from tailbatch.errors import TailbatchError
from tailbatch.results import ResultStore, RunRecord
from tailbatch.results.archive import Archive
from tailbatch.study import Study
from tailbatch.training.checkpoints import load_checkpoint

DEPTH = 100_000
LISTS, TABLES = "[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "0" + "}" * DEPTH


def header(text):
    whole = b'{"__metadata__":{"tailbatch":' + text.encode() + b"}}"
    return struct.pack("<Q", len(whole)) + whole


@pytest.mark.parametrize("deep", [LISTS, TABLES], ids=["lists", "tables"])
@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("x.toml", "x = {}", Study.from_toml),
        ("x.gz", '{{"format":{}}}', lambda path: Archive(path).studies()),
        (
            "x.json",
            '{{"schema": 1, "spec": {}}}',
            lambda path: RunRecord.from_json(path.read_text()),
        ),
    ],
)
def test_depth_is_refused(name, content, read, deep, tmp_path):
    path = tmp_path / name
    text = content.format(deep.replace(":", "=") if name.endswith("toml") else deep).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(TailbatchError, match="recursion"):
        read(path)


@pytest.mark.parametrize("deep", [LISTS, TABLES], ids=["lists", "tables"])
def test_depth_in_a_checkpoint_is_refused(deep, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(header(deep))
    with pytest.raises(TailbatchError, match="is not a checkpoint of this package"):
        load_checkpoint(path)


@pytest.mark.parametrize("folder", ["runs", "failures", "studies", "datasets"])
def test_depth_in_a_store_is_set_aside(folder, tmp_path):
    store = ResultStore(tmp_path)
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "x.json").write_text(f'{{"schema": 1, "spec": {LISTS}}}')
    assert list(store.records()) == []
    assert (store.studies(), store.failures(), store.datasets()) == ((), (), {})
    assert (tmp_path / "damaged" / "x.json").exists()
