"""Checkpoint files: what is written is read back, nothing else is believed, nothing is lost."""

import json
import os
import pickle
import signal
import struct
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tailbatch.errors import TrainingError
from tailbatch.training.checkpoints import load_checkpoint, save_checkpoint, stopping_on_signals

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
    text = header if isinstance(header, str) else json.dumps(header)
    save_file({"t0": torch.zeros(2)}, path, metadata={"tailbatch": text})


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
    yield "a list", with_header(path, [1])
    yield "missing tensor", with_header(path, {"version": 1, "state": {"a": {"$tensor": "t9"}}})
    yield "odd reference", with_header(path, {"version": 1, "state": {"a": {"$tensor": []}}})
    yield "odd items", with_header(path, {"version": 1, "state": {"a": {"$items": [1]}}})
    yield "no state", with_header(path, {"version": 1, "state": [1]})


def test_hostile_files_are_refused_and_named(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    for what, _ in hostile_files(path):
        with pytest.raises(TrainingError) as error:
            load_checkpoint(path)
        assert str(path) in str(error.value), what


def test_a_newer_version_says_so(tmp_path):
    path = tmp_path / "c"
    with_header(path, {"version": 99, "state": {}})
    with pytest.raises(TrainingError, match="version 99, this package reads version 1"):
        load_checkpoint(path)


def test_signals_become_requests_and_the_handlers_come_back():
    former = signal.getsignal(signal.SIGTERM)
    with stopping_on_signals() as request:
        assert request.signal is None
        signal.raise_signal(signal.SIGTERM)
        assert request.signal is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is former


def test_other_threads_leave_signals_alone():
    seen = []

    def work():
        former = signal.getsignal(signal.SIGTERM)
        with stopping_on_signals():
            seen.append(signal.getsignal(signal.SIGTERM) is former)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
