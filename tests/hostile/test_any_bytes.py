"""Small files that once took minutes, gigabytes or a traceback: each is read in a separate process.

The limits are those of the promise, 5 s of processor time and 1 GB, the libraries included.
"""

import gzip
import io
import json
import re
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from patience import HUNG

READER = """
import json, os, resource, sys
import pandas, pyarrow.parquet, scipy.sparse
from tailbatch.data import load_dataset
from tailbatch.errors import TailbatchError

def answer(path, labels):
    try:
        data = load_dataset(path, labels=labels)
        return f"accepted {data.n_samples} {data.n_features} {data.n_labels} {len(data.digest)}"
    except TailbatchError as error:
        return str(error)

folder = sys.argv[1]
answer(os.path.join(folder, "warm.parquet"), -1)  # triggers late imports
for path, labels in json.loads(sys.argv[2]):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        # A misbehaving reader must not bring down the machine.
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        try:
            text = answer(path, labels)
        except BaseException as error:
            text = f"traceback: {error!r}"
        os.write(writing, text.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        text = stream.read().decode() or "no answer"
    used = os.wait4(child, 0)[2]
    seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(json.dumps([text, seconds, megabytes]), flush=True)
"""


def parquet(table, **options):
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def columns(**values):
    return parquet(pa.table({**values, "y": pa.array([0, 1])}))


def npz(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def npz_of_headers(**headers):
    """Arrays without content: a zero-size dtype lets them claim any length."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, (descr, shape) in headers.items():
            member = io.BytesIO()
            claim = {"descr": descr, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, claim)
            archive.writestr(f"{name}.npy", member.getvalue())
    return stream.getvalue()


def sparse_npz(n_columns, **more):
    parts = {"data": np.ones(2), "indices": np.array([0, 5]), "indptr": np.array([0, 1, 2])}
    X = {f"X_{part}": values for part, values in parts.items()}
    return npz(**X, X_shape=np.array([2, n_columns]), Y=np.eye(2, dtype=bool), **more)


def many_rows():
    table = pa.table({"x": pa.array(np.zeros(1_000_000, np.int8)), "y": np.zeros(1_000_000, bool)})
    stream = io.BytesIO()
    with pq.ParquetWriter(stream, table.schema) as writer:
        for _ in range(40):
            writer.write_table(table)
    return stream.getvalue()


def with_metadata(text):
    table = pa.table({"x": [1.0, 2.0], "y": [0, 1]})
    return parquet(table.replace_schema_metadata({"pandas": text}))


def long_text():
    """Ten long texts that fill 6 GB if each row has its own."""
    values = pa.array([str(number) * 300_000 for number in range(10)])
    rows = np.arange(20_000)
    x = pa.DictionaryArray.from_arrays(pa.array(rows % 10, pa.int32()), values)
    return parquet(pa.table({"x": x, "y": rows % 2}), store_schema=False)


def packed(head, line, count):
    """Many concatenated gzip members: quick to make, and read as one text."""
    block = gzip.compress(line * (count // 100))
    return gzip.compress(head) + block * 100


def words(count, start=0):
    return [f"w{number}" for number in range(start, start + count)]


def text_csv(values):
    return ("y,text\n" + "".join(f"1,{word}\n" for word in values)).encode()


def nominal(values, rows):
    header = f"@relation 'r: -C 1'\n@attribute y {{0,1}}\n@attribute x {{{','.join(values)}}}\n"
    return (header + "@data\n" + "".join(f"1,{row}\n" for row in rows)).encode()


def wide(cell, count=24_999):
    header = ",".join(["y", *(f"c{number}" for number in range(count))])
    return (header + "\n" + ",".join(["1", *[cell] * count]) + "\n").encode()


PANDAS = {"index_columns": ["x"], "columns": [], "column_indexes": [], "pandas_version": "3"}

#: What each file holds, how its labels are found, and the answer.
FILES = {
    "one-repeat.csv": (lambda: text_csv([*words(12_000), "w0"]), 1, "accepted 12001 0 1"),
    "many-levels.csv": (lambda: text_csv(words(12_000) * 3), 1, "'text' has 12,000 different values"),
    "short-levels.csv": (lambda: text_csv(words(1_000) * 150), 1, "accepted 150000 1000 1"),
    "nominal.arff": (lambda: nominal(words(300_000), ["w7"] * 2_000), None, "'x' declares 300,000"),
    "levels.arff": (lambda: nominal(words(1_000), words(1_000) * 90), None, "accepted 90000"),
    "rows.parquet": (many_rows, ["y"], "40,000,000 rows"),
    "rows.csv.gz": (lambda: packed(b"y,x\n", b"1,0\n", 30_000_000), 1, "holds more than"),
    "rows.svm.gz": (lambda: packed(b"", b"1 1:1\n", 20_000_000), None, "holds more than"),
    "rows.arff.gz": (lambda: packed(nominal("ab", []), b"1,a\n", 30_000_000), None, "holds more"),
    "sizes.svm": (lambda: b"2 9999999 9999999\n1 1:1\n2 2:1\n", None, "accepted 2 9999999 9999999"),
    "columns.svm": (lambda: b"1 9999999:1\n2 1:1\n", None, "accepted 2 9999999 2"),
    "labels.svm": (lambda: b"9999999 1:1\n2 1:1\n", None, "accepted 2 1 2"),
    "columns.npz": (lambda: sparse_npz(10_000_000), None, "accepted 2 10000000 2"),
    "names.npz": (
        lambda: sparse_npz(10_000_000, feature_names=np.zeros(10_000_000, "<U1")),
        None,
        "would take more than",
    ),
    "small-integers.npz": (
        lambda: npz(X=np.zeros((40_000, 1_000), np.int8), Y=np.ones((40_000, 1), bool)),
        None,
        "would take more than",
    ),
    "labels.npz": (
        lambda: npz(X=np.zeros((4, 1)), Y=np.ones((4, 10_000_000), bool)),
        None,
        "would take more than",
    ),
    "no-length.npz": (
        lambda: npz_of_headers(X=("|S0", (10**9, 1)), Y=("|S0", (10**9, 1))),
        None,
        "X.npy has the type '.S0', which holds nothing",
    ),
    "no-length-names.npz": (
        lambda: npz_of_headers(X=("<f8", (0, 0)), Y=("|b1", (0, 0)), label_names=("<U0", (10**9,))),
        None,
        "label_names.npy has the type '.U0', which holds nothing",
    ),
    "wide.csv": (lambda: wide("1"), 1, "accepted 1 24999 1"),
    "wide-text.csv": (lambda: wide("a"), 1, "24,999 columns are no numbers"),
    "wide-text-labels.csv": (lambda: wide("a"), -24_999, "24,999 columns are no numbers"),
    "text.csv": (lambda: wide("a", 1_999), 1, "accepted 1 1999 1"),
    "wide-labels.csv": (lambda: wide("1"), -24_999, "accepted 1 1 24999"),
    "wider.csv": (lambda: wide("1", 100_000), 1, "has 100,001 columns"),
    "wide.parquet": (
        lambda: parquet(pa.table({f"c{number}": [1] for number in range(3_000)})),
        1,
        "accepted 1 2999 1",
    ),
    "list.parquet": (lambda: columns(x=[[1], [2, 3]]), ["y"], "'x' is of type list"),
    "struct.parquet": (lambda: columns(x=[{"a": 1}, {"a": 2}]), ["y"], "'x' is of type struct"),
    "bytes.parquet": (lambda: columns(x=[b"a", b"\xff"]), ["y"], "'x' is of type binary"),
    "list-labels.parquet": (lambda: columns(x=[["a"], ["b"]]), "x", "accepted 2 1 2"),
    "many-listed.parquet": (
        lambda: columns(x=[["a"] * 60_000_000, ["b"]]), "x", "would take more than"
    ),
    "deep.jsonl": (
        lambda: b'{"x": ' + b"[" * 10**6 + b"]" * 10**6 + b', "y": 1}', ["y"], "line 1: it is no JSON"
    ),
    "keys.jsonl": (
        lambda: b"".join(b'{"k%d": 1}\n' % number for number in range(26_000)),
        1,
        "too many different keys",
    ),
    "quotes.csv": (lambda: b"y,x\n1,\"[" + b"'" * 3_000_000 + b"]\"\n", "x", "lists no labels at all"),
    "struct-labels.parquet": (lambda: columns(x=[{"a": 1}, {"a": 2}]), ["x"], "'x' is of type struct"),
    "decimals.parquet": (
        lambda: columns(x=pa.array([1, 2]).cast(pa.decimal128(38, 2))),
        ["y"],
        "accepted 2 1 1",
    ),
    "metadata.parquet": (lambda: with_metadata("{"), ["y"], "accepted 2 1 1"),
    "metadata-list.parquet": (lambda: with_metadata("[]"), ["y"], "accepted 2 1 1"),
    "metadata-index.parquet": (lambda: with_metadata(json.dumps(PANDAS)), ["y"], "accepted 2 0 1"),
    "metadata-odd-index.parquet": (
        lambda: with_metadata(json.dumps({**PANDAS, "index_columns": [{"kind": 3}, ["x"], "z"]})),
        ["y"],
        "accepted 2 1 1",
    ),
    "long-text.parquet": (long_text, ["y"], "accepted 20000 10 1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "warm.parquet").write_bytes(columns(x=["a", "b"]))
    questions = []
    for name, (content, labels, _) in FILES.items():
        (folder / name).write_bytes(content())
        questions.append((str(folder / name), labels))
    command = [sys.executable, "-c", READER, str(folder), json.dumps(questions)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * HUNG)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(FILES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_small_files_give_a_dataset_or_a_sentence_soon_and_in_little_memory(name, answers):
    text, seconds, megabytes = answers[name]
    assert re.search(FILES[name][2], text), text
    assert seconds < 5
    assert megabytes < 1_000
