"""Small files that expand to giant ones, or claim to, read with little memory available."""

import gzip
import io
import json
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from patience import HUNG

# Room for the libraries themselves, and half a gigabyte for the reader.
READER = """
import resource, sys
from pathlib import Path
from tailbatch.data import load_dataset, text
from tailbatch.errors import TailbatchError
from tailbatch.results.archive import Archive
from tailbatch.training.checkpoints import load_checkpoint
import pandas, scipy.sparse
text.MAX_UNPACKED_BYTES = text.MAX_ARRAY_BYTES = 1 << 20
text.MAX_EXPANSION = 2
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
read = {
    "archive": lambda path: list(Archive(path).records()),
    "checkpoint": lambda path: load_checkpoint(Path(path)),
    "table": lambda path: load_dataset(path, labels=1),
    "data": load_dataset,
}
for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        read[kind](path)
        print("accepted")
    except TailbatchError as error:
        print(error)
"""

MIB = 1 << 20
ARFF = b"@relation 'r: -C 1'\n@attribute y {0,1}\n@attribute x numeric\n@data\n"


def gzip_bomb(head, line, mebibytes):
    return gzip.compress(head + line * (mebibytes * MIB // len(line)))


def zip_bomb():
    """An npz file with as many zeros as it claims."""
    header, labels = io.BytesIO(), io.BytesIO()
    claim = {"descr": "<f8", "fortran_order": False, "shape": (MIB, 2)}
    np.lib.format.write_array_header_1_0(header, claim)
    np.save(labels, np.zeros((MIB, 1), dtype=bool))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(16 * MIB))
        archive.writestr("Y.npy", labels.getvalue())
    return stream.getvalue()


def checkpoint(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"12345678"


def lying(shape, offsets, dtype="F32"):
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    return checkpoint({"__metadata__": {"tailbatch": '{"version": 1, "state": {}}'}, "t0": entry})


FILES = {
    "rows.arff.gz": ("data", gzip_bomb(ARFF, b"1,0\n", 16), "holds more than 1 MiB"),
    "line.arff.gz": ("data", gzip_bomb(ARFF, b"1", 96), "more than 1 MiB"),
    "table.csv.gz": ("table", gzip_bomb(b"y,x\n", b"1,0\n", 16), "holds more than 1 MiB"),
    "rows.svm.gz": ("data", gzip_bomb(b"", b"1 1:1\n", 16), "holds more than 1 MiB"),
    "records.jsonl.gz": ("archive", gzip_bomb(b"", b"{" * 100, 16), "more than 1 MiB"),
    "zeros.npz": ("data", zip_bomb(), "its arrays would take more than 1 MiB"),
    "shape.safetensors": ("checkpoint", lying([10**9, 10**3], [0, 8]), "not a checkpoint"),
    "offsets.safetensors": ("checkpoint", lying([2], [0, 10**15]), "not a checkpoint"),
    "negative.safetensors": ("checkpoint", lying([-2], [0, 8]), "not a checkpoint"),
    "backwards.safetensors": ("checkpoint", lying([2], [8, 0]), "not a checkpoint"),
    "kind.safetensors": ("checkpoint", lying([2], [0, 8], "PICKLE"), "not a checkpoint"),
    "overflow.safetensors": ("checkpoint", lying([2**62, 8], [0, 8]), "not a checkpoint"),
    "length.safetensors": ("checkpoint", struct.pack("<Q", 2**63) + b"{}", "not a checkpoint"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Read every file in one process that has half a gigabyte left."""
    folder, arguments = tmp_path_factory.mktemp("bombs"), []
    for name, (kind, content, _) in FILES.items():
        (folder / name).write_bytes(content)
        arguments += [kind, str(folder / name)]
    command = [sys.executable, "-c", READER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(FILES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_a_bomb_is_refused_with_a_sentence_before_memory_is_short(name, answers):
    assert FILES[name][2] in answers[name]
    assert name in answers[name]


def test_what_a_packed_file_may_unpack_to_grows_with_it(monkeypatch, tmp_path):
    from tailbatch.data import load_dataset, text
    from tailbatch.errors import DataError

    path = tmp_path / "data.arff.gz"
    path.write_bytes(gzip_bomb(ARFF, b"1,0\n", 1))
    monkeypatch.setattr(text, "MAX_UNPACKED_BYTES", 1 << 16)
    with pytest.raises(
        DataError, match=r"if you trust it, raise tailbatch\.data\.text\.MAX_EXPANSION"
    ):
        load_dataset(path)
    monkeypatch.setattr(text, "MAX_EXPANSION", 2000)
    assert load_dataset(path).n_samples == MIB // 4
