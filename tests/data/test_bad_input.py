"""Broken and hostile files: each mistake has its own sentence with file, line and way out."""

import gzip
import io
import re
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailbatch.data import arff, load_dataset, read_arff, save_npz, text
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.errors import DataError

GOOD = """@relation 'r: -C -2'
@attribute x numeric
@attribute color {red,green,blue}
@attribute a {0,1}
@attribute b {0,1}
@data
1.5,red,0,1
2.5,blue,1,1
"""


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="data.arff"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


def sparse(rows):
    return GOOD[: GOOD.index("1.5,red")] + rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # the header
        ("", "has no @data line: it is no ARFF file, or it is cut off"),
        ("x,y\n1,0\n", "has no @data line"),
        (changed("numeric", "numerical"), "line 2: unknown attribute type 'numerical'; known are"),
        (changed("numeric", "relational"), "line 2: unknown attribute type 'relational'"),
        (changed("x numeric", "x"), "line 2: unknown attribute type ''"),
        (changed("x numeric", "'x numeric"), "line 2: expected '@attribute NAME TYPE', found"),
        (changed("@attribute x", "@atribute x"), "line 2: expected '@attribute NAME TYPE', found"),
        (changed("{red,green,blue}", "{red,green,blue"), "line 3: unknown attribute type '{red"),
        (changed("{red,green,blue}", "{}"), "line 3: a nominal attribute needs values, found '{}'"),
        (changed("{red,green,blue}", "{red,red}"), "line 3: the value 'red' occurs twice in"),
        (
            changed("attribute b", "attribute x"),
            "line 5: the attribute 'x' is declared in line 2 too; rename one",
        ),
        # the rows
        (GOOD[: GOOD.index("1.5")], "has no rows after @data: there is nothing to learn from"),
        (changed("0,1\n2.5", "0\n2.5"), "line 7: expected 4 values .*, found 3; correct or remove"),
        (changed("0,1\n2.5", "0,1,1\n2.5"), "line 7: expected 4 values .*, found 5"),
        (changed("2.5", "two"), "line 8: 'x' is numeric, and 'two' is no finite number; correct"),
        (changed("2.5", "nan"), "line 8: 'x' is numeric, and 'nan' is no finite number"),
        (changed("2.5", "-inf"), "line 8: 'x' is numeric, and '-inf' is no finite number"),
        (changed("2.5", "1e999"), "line 8: 'x' is numeric, and '1e999' is no finite number"),
        (changed("2.5", "1_0"), "line 8: 'x' is numeric, and '1_0' is no finite number"),
        (changed("2.5", ""), "line 8: 'x' is numeric, and '' is no finite number"),
        (changed("2.5", "?"), "line 8: the value of 'x' is missing .*; pass missing='impute'"),
        (
            changed("2.5,blue", "2.5,pink"),
            "line 8: 'pink' is not among the values {red,green,blue}",
        ),
        (changed("2.5,blue,1,1", "{0 2.5}"), "line 8: a sparse row {...} in a file of dense rows"),
        (sparse("{0 1}\n1.5,red,0,1\n"), "line 8: a dense row in a file of sparse rows"),
        (sparse("{4 1}"), "line 7: index 4 is out of range; .* 4 attributes, .* from 0 to 3"),
        (sparse("{-1 1}"), "line 7: index -1 is out of range"),
        (sparse("{1000000000 1}"), "line 7: index 1000000000 is out of range"),
        (sparse("{1e999 1}"), "line 7: index 1e999 is out of range"),
        (sparse("{0 1}\n{0 1,0 2}"), "line 8: index 0 occurs twice; keep one value for it"),
        (sparse("{0 1,2"), "line 7: expected 'index value' pairs in braces, found '2'; .* cut off"),
        (sparse("{0}"), "line 7: expected 'index value' pairs in braces, found '0}'"),
        (sparse("{0 1} x"), "line 7: unexpected 'x' after the closing brace"),
        # the labels
        (
            changed("0,1\n2.5", "0,2\n2.5"),
            "line 7: the label 'b' has the value '2', and labels must",
        ),
        (changed("0,1\n2.5", "0,?\n2.5"), "line 7: the label 'b' is missing .* cannot be imputed"),
        (
            changed(": -C -2", ""),
            "no labels found for .*: there is no data.xml beside it and no -C",
        ),
        (
            changed("-C -2", "-C 2"),
            "line 3: 'color' of type {red,green,blue} cannot be a label, .* at the other end of the"
            " file: say where with labels=",
        ),
        (changed("-C -2", "-C -1000000000"), "asks for 1000000000 of the columns, and there are 4"),
        (changed("-C -2", "-C " + "9" * 5000), "no labels found for"),
        (changed("-C -2", "-C 0"), "labels=0 asks for 0 of the columns, and there are 4"),
        (changed("{0,1}\n@data", "string\n@data"), "line 5: 'b' of type string cannot be a label"),
    ],
)
def test_each_mistake_in_an_arff_file_has_its_sentence(content, message, write):
    path = write(content)
    with pytest.raises(DataError, match=re.sub(r"[{}]", r"\\\g<0>", message)) as caught:
        read_arff(path, missing="error")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_line_numbers_hold_in_later_blocks(write, monkeypatch):
    rows = "1.5,red,0,1\r\n" * 500
    path = write(GOOD.replace("\n", "\r\n") + rows + "oops,red,0,1\r\n")
    monkeypatch.setattr(text, "_CHUNK", 97)
    with pytest.raises(DataError, match="line 509: 'x' is numeric, and 'oops'"):
        read_arff(path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "zzz"], "there is no label column 'zzz'; the columns are: x, "),
        (["a", "a"], "labels names the column 'a' twice; remove one"),
        ([], "labels names no column; the columns are: x, "),
        ("zzz", "labels='zzz' is neither a column nor the beginning of one; the columns are: x, "),
        (99, "labels=99 asks for 99 of the columns, and there are 4"),
        ("nowhere.xml", "cannot read nowhere.xml: No such file"),
    ],
)
def test_labels_asked_for_and_not_there(labels, message, write):
    with pytest.raises(DataError, match=message):
        read_arff(write(GOOD), labels=labels)


BOMB = """<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>
<labels><label name="&c;"/></labels>"""
EXTERNAL = """<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<labels><label name="a">&a;</label></labels>"""


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (BOMB, r"data.xml uses XML entities \(EntitiesForbidden\), .*; write the label names out"),
        (EXTERNAL, r"data.xml uses XML entities \(EntitiesForbidden\)"),
        ("<labels><label name='a'>", r"data.xml is no well-formed XML \(.*\); correct it"),
        ("", "data.xml is no well-formed XML"),
        ("<labels/>", 'data.xml must list labels as <label name="..."/>, and does not'),
        ("<labels><label/></labels>", "data.xml must list labels as"),
        ("<l><label name='a'/><label name='a'/></l>", "the column 'a' twice; remove one"),
        (
            "<l><label name='a'/><label name='nope'/></l>",
            "data.xml: there is no label column 'nope'; the columns are: x, ",
        ),
    ],
)
def test_each_mistake_in_an_xml_file_has_its_sentence(xml, message, write):
    write(xml, "data.xml")
    with pytest.raises(DataError, match=message):
        read_arff(write(GOOD))


def test_a_truncated_or_damaged_gzip_file(write):
    packed = gzip.compress((GOOD + "1.5,red,0,1\n" * 5000).encode())
    with pytest.raises(DataError, match=r"is a truncated gzip file \(it ends after .* again"):
        read_arff(write(packed[:-20]))
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 0xFF
    with pytest.raises(
        DataError, match=r"is a damaged gzip file \(.*\); copy or download it again"
    ):
        read_arff(write(bytes(damaged)))
    with pytest.raises(DataError, match="is a truncated gzip file"):
        read_arff(write(packed[:5]))


def test_a_gzip_bomb_stops_at_the_limit(write, monkeypatch):
    monkeypatch.setattr(text, "MAX_BYTES", 1 << 17)
    path = write(gzip.compress(GOOD.encode() + b"1.5,red,0,1\n" * 30_000))
    with pytest.raises(DataError, match=r"holds more than 0 MiB; if you trust it, raise tailbatch"):
        read_arff(path)


def test_a_line_without_end_stops_at_the_limit(write, monkeypatch):
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 1 << 20)
    path = write(gzip.compress(GOOD.encode() + b"1" * (3 << 20)))
    with pytest.raises(DataError, match="line 9: the line is longer than 1 MiB"):
        read_arff(path)


def test_a_header_without_end_stops_at_the_limit(write, monkeypatch):
    monkeypatch.setattr(arff, "MAX_HEADER_BYTES", 1 << 20)
    path = write(gzip.compress(b"@attribute x numeric\n" * 100_000))
    with pytest.raises(DataError, match="no @data in the first 1 MiB"):
        read_arff(path)


def test_first_values_that_sparse_rows_leave_out_stop_at_the_limit(write, monkeypatch):
    monkeypatch.setattr(arff, "MAX_IMPLIED_ONES", 1000)
    with pytest.raises(DataError, match=r"data\.arff: .* would fill more than 1,000 cells"):
        read_arff(write(sparse("{}\n" * 1001)))


def test_utf16_is_named(write):
    with pytest.raises(DataError, match="is UTF-16 text; save it as UTF-8"):
        read_arff(write(GOOD.encode("utf-16")))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("claim.svm", "1000000000 5 2\n1 1:1\n", "line 1: the file claims 1,000,000,000 rows"),
        ("claim.svm", "1 1000000000 2\n1 1:1\n", "line 1: the file claims 1,000,000,000 features"),
        ("claim.svm", "1 5 1000000000\n1 1:1\n", "line 1: the file claims 1,000,000,000 labels"),
        ("index.svm", "1 1000000000:1\n", "line 1: index 1000000000 is out of range"),
        ("label.svm", "1 1:1\n1000000000 1:1\n", "line 2: index 1000000000 is out of range"),
        ("data.arff", changed("-C -2", "-C 1000000000"), "asks for 1000000000 of the columns"),
        ("data.arff", sparse("{1000000000 1}\n"), "line 7: index 1000000000 is out of range"),
    ],
)
def test_a_claim_of_a_billion_allocates_nothing(name, content, message, write):
    path = write(content, name)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            load_dataset(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def npz(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npz_that_claims(shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("X.npy", header.getvalue() + b"12345678")
    return stream.getvalue()


PARTS = {"X_data": [1.0], "X_indices": [0], "X_indptr": [0, 1], "X_shape": [1, 2], "Y": [[1]]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04", r"is no readable npz file \(.*\); copy or write it again"),
        (npz(X=np.eye(2))[:-30], "is no readable npz file"),
        (npz_that_claims((10**9, 10**9)), "X.npy claims the shape .*, which its size contradicts"),
        (npz_that_claims((10**30,)), "X.npy claims the shape"),
        (npz(X=np.array([{}], dtype=object)), "X.npy holds Python objects; save numbers and"),
        (npz(X=np.eye(2)), "there is no array Y .*; it holds X"),
        (npz(X=np.eye(2), Y=[[0], [2]]), "labels must be 0 or 1, got 2 in row 1"),
        (npz(X=np.eye(2), Y=[[0], [1]], feature_names=["a"]), "2 feature columns have 1 names"),
        (
            npz(**PARTS | {"X_shape": [1, 10**9]}),
            "the parts of X .*: 1,000,000,000 columns are too many",
        ),
        (npz(**PARTS | {"X_indices": [7]}), "the parts of X make no CSR array"),
        (npz(**PARTS | {"X_indptr": [0, 99]}), "the parts of X make no CSR array"),
        (npz(**PARTS | {"X_shape": [1, 2, 3]}), "the parts of X make no CSR array"),
        (npz(**PARTS | {"X_shape": [10**9, 2]}), "the parts of X make no CSR array"),
        (npz(**PARTS | {"X_shape": ["a", "b"]}), "the parts of X make no CSR array"),
    ],
)
def test_each_mistake_in_an_npz_file_has_its_sentence(content, message, write):
    path = write(content, "data.npz")
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


def test_nothing_half_written_stays_behind(tmp_path, monkeypatch):
    def fail(*args, **arguments):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    dataset = MultiLabelDataset.from_arrays(np.eye(2), np.eye(2))
    with pytest.raises(OSError, match="disk full"):
        save_npz(dataset, tmp_path / "data.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "labels"),
    [("x.arff", 1), ("x.csv", -1), ("x.svm", None), ("x.npz", None), ("x.parquet", 1), ("x", None)],
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.one_of(st.binary(max_size=60), st.text("@data{}01 ,:'\"\n%?;", max_size=60)))
def test_whatever_is_in_a_file_the_answer_is_a_dataset_or_a_sentence(name, labels, content, write):
    path = write(content, name)
    try:
        outcome = load_dataset(path, labels=labels)
    except DataError as error:
        outcome = str(error)
    assert str(path) in outcome if isinstance(outcome, str) else outcome.n_samples > 0
