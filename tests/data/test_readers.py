"""One door for all formats: what is read, how formats are told apart, and the catalog's check."""

import gzip
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from tailbatch.data import MultiLabelDataset, load_dataset, save_npz
from tailbatch.data.readers import _read_libsvm
from tailbatch.errors import DataError


@pytest.fixture
def write(tmp_path):
    def write_file(content, name):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


# --- the front door


def test_the_embedded_dataset_comes_by_name():
    data = load_dataset("debtags")
    assert data.name == "debtags"
    assert data.is_sparse


def test_every_format_gives_the_same_digest(tmp_path, write):
    X = np.array([[0.5, 0.0, 3.0], [0.0, 2.0, 0.0], [1.0, 1e-7, 0.0]])
    Y = np.array([[1, 0], [1, 1], [0, 0]])
    names, labels = ["a", "b", "c"], ["t1", "t2"]
    reference = MultiLabelDataset.from_arrays(X, Y, feature_names=names, label_names=labels)
    frame = pd.DataFrame(X, columns=names).assign(t1=Y[:, 0], t2=Y[:, 1])
    csv, tsv, parquet, npz, sparse_npz = (
        tmp_path / f"data.{suffix}" for suffix in ("csv", "tsv", "parquet", "npz", "sparse.npz")
    )
    frame.to_csv(csv, index=False)
    frame.to_csv(tsv, index=False, sep="\t")
    frame.to_parquet(parquet)
    save_npz(reference, npz)
    save_npz(
        MultiLabelDataset.from_arrays(csr_array(X), Y, feature_names=names, label_names=labels),
        sparse_npz,
    )
    header = "".join(f"@attribute {name} numeric\n" for name in names + labels)
    rows = "\n".join(",".join(map(repr, row)) for row in frame.to_numpy().tolist())
    arff = write(f"@relation 'x: -C -2'\n{header}@data\n{rows}\n", "data.arff")
    for path in (csv, tsv, parquet):
        assert load_dataset(path, labels="t").digest == reference.digest
    for path in (npz, sparse_npz, arff):
        assert load_dataset(path).digest == reference.digest
    assert load_dataset(sparse_npz).is_sparse


@pytest.mark.parametrize(
    ("content", "labels", "n_labels"),
    [
        ("@relation 'r: -C 1'\n@attribute y {0,1}\n@data\n1\n", None, 1),
        ("% comment\n\n@RELATION 'r: -C 1'\n@attribute y {0,1}\n@data\n1\n", None, 1),
        ("1,3 5:0.2 7:1\n 2:1\n", None, 2),
        ("2 9 4\n1,3 5:0.2 7:1\n 2:1\n", None, 4),
        ("x,y\n1,0\n", ["y"], 1),
        ("x\ty\n1\t0\n", ["y"], 1),
        ("x;y\n1;0\n", ["y"], 1),
    ],
)
@pytest.mark.parametrize("name", ["data.txt", "data", "data.txt.gz"])
def test_the_format_is_found_by_content(content, labels, n_labels, name, write):
    packed = gzip.compress(content.encode()) if name.endswith("gz") else content
    assert load_dataset(write(packed, name), labels=labels).n_labels == n_labels


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "hello\n", "cannot tell the format of .*; known are ARFF, LIBSVM, CSV, TSV,"),
        ("x.csv", "", "x.csv is empty: there is nothing to learn from"),
        ("x.csv", "a,b\n1,2\n", "does not say which columns are labels; pass labels="),
    ],
)
def test_what_cannot_be_told_is_said(name, content, message, write):
    with pytest.raises(DataError, match=message):
        load_dataset(write(content, name))


def test_names_and_paths_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*missing\.csv$"):
        load_dataset(tmp_path / "missing.csv")
    with pytest.raises(DataError, match=r"there is no file .*, only a folder"):
        load_dataset(tmp_path)
    with pytest.raises(DataError, match="unknown dataset 'yeasst'; did you mean 'yeast'"):
        load_dataset("yeasst")


def test_formats_that_name_their_labels_refuse_the_option(write, tmp_path):
    path = write("1 1:1\n", "x.svm")
    with pytest.raises(
        DataError, match="says itself which labels its rows have; leave labels= out"
    ):
        load_dataset(path, labels=3)
    for labels in (tmp_path / "x.xml", "x.XML"):
        with pytest.raises(DataError, match=r"a file, and the labels of .* are columns; name them"):
            load_dataset(write("x,y\n1,0\n", "x.csv"), labels=labels)


def test_labels_from_the_wrong_end_of_a_known_file_are_caught(benchmark_data):
    path = benchmark_data / "llog-f" / "llog-f.arff.gz"
    with pytest.raises(DataError, match=r"cardinality is .*, not 1\.1801.*labels=75 for llog-f"):
        load_dataset(path, labels=-75)


def test_a_known_file_without_its_xml_has_its_labels_where_the_catalog_says(
    benchmark_data, tmp_path
):
    shutil.copy(benchmark_data / "llog-f" / "langlog.arff.gz", tmp_path)
    lonely = load_dataset(tmp_path / "langlog.arff.gz")  # its relation still says -C 75
    assert lonely.digest == load_dataset(benchmark_data / "llog-f" / "llog-f.arff.gz").digest
    assert lonely.name == "llog-f"


def test_another_file_under_a_known_name_is_refused(write):
    content = "@relation r\n" + "".join(f"@attribute l{i} {{0,1}}\n" for i in range(7))
    path = write(f"{content}@data\n{{}}\n", "flags.arff")
    with pytest.raises(DataError, match="is not flags as the catalog knows it: n is 1, not 194"):
        load_dataset(path)


# --- LIBSVM


def test_libsvm_rows(write):
    data = load_dataset(write("# made by hand\n10,2 1:0.5 4:-1e3\n3:2 # no label\n\n2 \n", "x.svm"))
    assert data.label_names == ("2", "10")
    np.testing.assert_array_equal(data.Y, [[1, 1], [0, 0], [1, 0]])
    assert data.feature_names == ("feature_1", "feature_2", "feature_3", "feature_4")
    np.testing.assert_array_equal(data.X.toarray(), [[0.5, 0, 0, -1000], [0, 0, 2, 0], [0] * 4])


def test_libsvm_counts_from_zero_if_a_zero_occurs(write):
    assert load_dataset(write("1 0:1 2:1\n", "x.svm")).feature_names[0] == "feature_0"


def test_libsvm_sizes_in_the_first_line(write):
    data = load_dataset(write("2 5 4\n0,3 1:1\n 2:1\n", "x.txt"))
    assert (data.n_features, data.label_names) == (5, ("0", "1", "2", "3"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 1:1\n1 2:x\n", "line 2: '2:x' has no finite number after the colon"),
        ("1 1:1\n1 2:\n", "line 2: '2:' has no finite number"),
        ("1 1:nan\n", "line 1: '1:nan' has no finite number"),
        ("1 1:1 7\n", "line 1: expected labels 1,3 and index:value pairs, found '7'"),
        ("a 1:1\n", "line 1: expected labels 1,3 and index:value pairs, found 'a'"),
        ("1 qid:3 1:1\n", "line 1: expected labels 1,3 and index:value pairs, found 'qid:3'"),
        ("1 2:1 2:1\n", "line 1: index 2 occurs twice; keep one of them"),
        ("1,1 2:1\n", "line 1: index 1 occurs twice"),
        ("1:1\n", "has no labels: no row starts with numbers such as 1,3"),
        ("3 5 4\n1 1:1\n", "line 1: the file claims 3 rows and has 1; correct the first line or"),
        ("1 5 4\n9 1:1\n", "line 1: the file claims 4 labels and has 10"),
        ("1 5 4\n", "has no rows: there is nothing to learn from"),
    ],
)
def test_each_mistake_in_a_libsvm_file_has_its_sentence(content, message, write):
    path = write(content, "x.svm")
    with pytest.raises(DataError, match=message) as caught:
        _read_libsvm(path)
    assert str(path) in str(caught.value)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    X=arrays(np.float64, (5, 4), elements=st.sampled_from([0.0, 1.0, -2.5, 1e-9, 0.1])),
    Y=arrays(np.bool_, (5, 3)),
)
def test_libsvm_as_scikit_learn_writes_and_reads_it(X, Y, tmp_path):
    X[0], Y[0], Y[:, 0] = 1.0, True, True  # every column occurs, and no line is empty
    path = tmp_path / "x.svm"
    dump_svmlight_file(X, Y, str(path), multilabel=True, zero_based=False)
    theirs, rows = load_svmlight_file(str(path), multilabel=True, zero_based=False)
    ours = load_dataset(path)
    np.testing.assert_array_equal(ours.X.toarray(), theirs.toarray())
    assert [tuple(map(float, np.flatnonzero(row))) for row in ours.Y] == rows


# --- tables


def test_a_table_with_names_quotes_and_a_byte_order_mark(write):
    content = (
        '\ufefflength,"color, main",topics\r\n1.5,red,"a;b"\r\n2,"dark ""blue""",\r\n3,red,b\r\n'
    )
    data = load_dataset(write(content, "x.csv"), labels="topics")
    assert data.feature_names == ("length", 'color, main=dark "blue"', "color, main=red")
    np.testing.assert_array_equal(data.X, [[1.5, 0, 1], [2, 1, 0], [3, 0, 1]])
    np.testing.assert_array_equal(data.Y, [[1, 1], [0, 0], [0, 1]])


def test_a_table_that_is_not_utf8_is_read_as_latin1_with_a_notice(write):
    data = load_dataset(write("größe,y\n1,0\n".encode("latin-1"), "x.csv"), labels=["y"])
    assert data.feature_names == ("größe",)
    assert data.notices == ("line 1 is not UTF-8, so the file is read as Latin-1",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,0\n2,3\n", "labels must be 0 or 1, got 3 in line 3, label 'y'"),
        ("x,y\n1,0\n,1\n", "'x' has a missing value in line 3; .* missing='impute'"),
        ("x,y\n1,0\n2\n", "the label 'y' is missing in line 3"),
        ("x,y\n1,0\n2,1,5\n", "line 3: expected 2 values, found 3; quote values that hold the"),
        ("x,y\n1,0,7\n", "is no readable table: Length of header or names does not match"),
        ("x,x,y\n1,1,0\n", "line 1: the column 'x' occurs twice; rename one"),
        ("x,y\n", "has no rows below its header: there is nothing to learn from"),
        ("x,y\ninf,0\n", "X has inf in row 0, column 0"),
        ("a,b\n1,0\n", r"there is no label column 'y'; the columns are: a, b"),
    ],
)
def test_each_mistake_in_a_table_has_its_sentence(content, message, write):
    path = write(content, "x.csv")
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path, labels=["y"], missing="error")
    assert str(path) in str(caught.value)


def test_missing_values_of_a_table_are_imputed_when_asked(write):
    path = write("x,y\n1,0\n,1\n3,0\n", "x.csv")
    np.testing.assert_array_equal(load_dataset(path, labels=["y"], missing="impute").X[1], [2])


def test_a_broken_parquet_file(write):
    path = write(b"PAR1 and then nothing", "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet is no readable Parquet file"):
        load_dataset(path, labels=["y"])


# --- npz


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    X=arrays(
        np.float64, st.tuples(st.integers(1, 5), st.integers(0, 4)), elements=st.floats(-9, 9)
    ),
    is_sparse=st.booleans(),
    names=st.lists(st.text(min_size=1), min_size=4, max_size=4, unique=True),
)
def test_npz_gives_back_what_was_saved(X, is_sparse, names, tmp_path):
    names = [name.rstrip("\0") + str(place) for place, name in enumerate(names)]
    data = MultiLabelDataset.from_arrays(
        csr_array(X) if is_sparse else X,
        np.arange(2 * len(X)).reshape(-1, 2) % 3 == 0,
        name="rätsel",
        feature_names=names[: X.shape[1]],
    )
    path = tmp_path / "x.npz"
    save_npz(data, path)
    first = path.read_bytes()
    back = load_dataset(path)
    assert (back.digest, back.name, back.is_sparse) == (data.digest, "rätsel", is_sparse)
    save_npz(back, path)
    assert path.read_bytes() == first
