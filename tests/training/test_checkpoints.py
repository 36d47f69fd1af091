"""Checkpoint files: what is written is read back, nothing else is believed, nothing is lost."""

import json
import os
import pickle
import random
import struct
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tailbatch.errors import TailbatchError, TrainingError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.training.checkpoints import (
    VERSION,
    _seal,
    load_checkpoint,
    save_checkpoint,
)

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text()
)
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(nested)
def test_plain_values_come_back_as_they_were(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("state") / "checkpoint.safetensors"
    save_checkpoint(path, {"value": value})
    assert load_checkpoint(path) == {"value": value}


def test_arrays_and_tensors_come_back_bit_for_bit(tmp_path):
    state = {
        "weights": {"a": torch.randn(3, 2), "b": torch.tensor(4)},
        "losses": np.array([0.1, np.nan, np.inf]),
        "drawn": np.arange(3, dtype=np.int32),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 4)),
        "count": np.int64(3),
    }
    save_checkpoint(tmp_path / "c", state)
    again = load_checkpoint(tmp_path / "c")
    assert torch.equal(again["weights"]["a"], state["weights"]["a"])
    assert again["weights"]["b"] == 4
    for name in ("losses", "drawn", "flags", "empty"):
        assert again[name].dtype == state[name].dtype
        assert np.array_equal(again[name], state[name], equal_nan=state[name].dtype.kind == "f")
    assert again["count"] == 3


def test_tensors_that_share_memory_are_both_kept(tmp_path):
    shared = torch.ones(2)
    save_checkpoint(tmp_path / "c", {"a": shared, "b": shared})
    assert torch.equal(load_checkpoint(tmp_path / "c")["b"], shared)


def test_other_values_are_refused_by_name(tmp_path):
    with pytest.raises(TrainingError, match="plain values and arrays, not a set"):
        save_checkpoint(tmp_path / "c", {"seen": {1}})
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch, failing):
    path = tmp_path / "c"
    save_checkpoint(path, {"step": 1})

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    target = {"fsync": "os.fsync", "write": "tailbatch.training.checkpoints.save_file"}[failing]
    monkeypatch.setattr(target, full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, {"step": 2})
    monkeypatch.undo()
    assert load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["c"]


def with_header(path, header):
    """Write a checkpoint with a seal that is right and a header that may not be."""
    if isinstance(header, dict):
        header = json.dumps({"seal": "0" * 64, **header})
    save_file({"t0": torch.zeros(2)}, path, metadata={"tailbatch": header})
    with suppress(TrainingError):
        _seal(path)


class Bomb:
    def __reduce__(self):
        return os._exit, (1,)


def hostile_files(path):
    yield "empty", path.write_bytes(b"")
    yield "pickle", path.write_bytes(pickle.dumps(Bomb()))
    torch.save({"bomb": Bomb()}, path)
    yield "torch pickle", None
    header = json.dumps({"t0": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 8]}})
    yield (
        "giant claim",
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + b"12345678"),
    )
    yield "giant header", path.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    yield "no metadata", save_file({"t0": torch.zeros(2)}, path)
    yield "no JSON", with_header(path, "{")
    yield "deep JSON", with_header(path, "[" * 200_000)
    yield "no version", with_header(path, {})
    yield "a list", with_header(path, "[1]")
    yield (
        "missing tensor",
        with_header(path, {"version": VERSION, "state": {"a": {"$tensor": "t9"}}}),
    )
    yield "odd reference", with_header(path, {"version": VERSION, "state": {"a": {"$tensor": []}}})
    yield "odd items", with_header(path, {"version": VERSION, "state": {"a": {"$items": [1]}}})
    yield "no state", with_header(path, {"version": VERSION, "state": [1]})


def test_hostile_files_are_refused_and_named(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    for what, _ in hostile_files(path):
        with pytest.raises(TrainingError) as error:
            load_checkpoint(path)
        assert str(path) in str(error.value), what


def test_a_newer_version_says_so(tmp_path):
    path = tmp_path / "c"
    with_header(path, {"version": 99, "state": {}})
    with pytest.raises(TrainingError, match=f"version 99, this package reads version {VERSION}"):
        load_checkpoint(path)


def test_a_checkpoint_of_the_version_without_seals_says_so(tmp_path):
    path = tmp_path / "c"
    text = json.dumps({"version": 1, "state": {}})
    save_file({"t0": torch.zeros(2)}, path, metadata={"tailbatch": text})
    with pytest.raises(
        TrainingError, match="checkpoint of version 1, this package reads version 2"
    ):
        load_checkpoint(path)


def test_a_checkpoint_without_a_seal_is_refused(tmp_path):
    path = tmp_path / "c"
    text = json.dumps({"version": VERSION, "state": {}})
    save_file({"t0": torch.zeros(2)}, path, metadata={"tailbatch": text})
    with pytest.raises(TrainingError, match="is not a checkpoint of this package"):
        load_checkpoint(path)


def test_a_seal_is_only_given_to_a_checkpoint(tmp_path):
    path = tmp_path / "c"
    path.write_bytes(b"years of work")
    with pytest.raises(TrainingError, match="has no place for a seal"):
        _seal(path)
    assert path.read_bytes() == b"years of work"


def regions(content):
    """Return the parts of a checkpoint file: length, names, seal, JSON and tensors."""
    end = 8 + struct.unpack("<Q", content[:8])[0]
    at = content.index(b"seal")
    at = content.index(b'\\": \\"', at) + len(b'\\": \\"')
    return {
        "length": range(8),
        "names": range(8, at),
        "seal": range(at, at + 64),
        "JSON": range(at + 64, end),
        "tensors": range(end, len(content)),
    }


def refused_flips(path, load, count, seed=0):
    """Flip so many bits of each part of a file, one at a time; return how many were refused."""
    content, rng = path.read_bytes(), random.Random(seed)
    refused = 0
    for part, places in regions(content).items():
        bits = [(place, bit) for place in places for bit in range(8)]
        assert bits, part
        for place, bit in rng.sample(bits, min(count, len(bits))):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(TailbatchError) as error:
                load()
            assert str(path) in str(error.value), (part, place, bit)
            refused += 1
    path.write_bytes(content)
    return refused


STATE = {"step": 3, "name": "caf\u00e9 1e-5", "rate": 1e-5, "w": torch.arange(30.0), "n": np.eye(2)}


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, STATE)
    # At most 512 bits of a part: all of the length and the seal, many of the others.
    assert refused_flips(path, lambda: load_checkpoint(path), 512) > 64 + 4 * 300
    assert load_checkpoint(path)["step"] == 3


@pytest.mark.slow
def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path, capsys):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, STATE)
    refused = refused_flips(path, lambda: load_checkpoint(path), 10**9)
    with capsys.disabled():
        print(f"\nrefused each of {refused:,} flipped bits")  # noqa: T201
    assert refused == 8 * path.stat().st_size


def test_a_flipped_bit_anywhere_in_a_saved_classifier_is_noticed(tmp_path):
    X = np.random.default_rng(0).random((40, 3))
    classifier = TailbatchClassifier(epochs=1, random_state=0, model__hidden=4).fit(X, X > 0.5)
    classifier.save(tmp_path)
    path = tmp_path / "classifier.safetensors"
    flips = refused_flips(path, lambda: TailbatchClassifier.load(tmp_path, device="cpu"), 200)
    assert flips > 64 + 4 * 150
    assert np.array_equal(
        TailbatchClassifier.load(tmp_path).predict_proba(X), classifier.predict_proba(X)
    )


def test_damage_is_named_with_the_way_out(tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, STATE)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(TrainingError) as error:
        load_checkpoint(path)
    assert str(error.value) == (
        f"{path} is damaged: its content does not match its SHA-256. Restore it from a copy, or "
        "remove it and start over"
    )
