"""ARFF: every construct of the format, both label conventions, and liac-arff as reference."""

import gzip
import io
import logging
import shutil
from pathlib import Path

import arff as liac
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailbatch.data import arff_rows, read_arff, text
from tailbatch.errors import DataError

FILES = Path(__file__).parents[1] / "files"
FRUIT = [[150.5, 1, 0, 0, 1, 0], [-20, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0]]


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="data.arff"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def small(rows, *, header="@attribute x numeric\n@attribute y {0,1}\n", relation="r: -C -1"):
    return f"@relation '{relation}'\n{header}@data\n{rows}"


def dense(dataset):
    return dataset.X.toarray() if dataset.is_sparse else dataset.X


def test_every_kind_of_attribute():
    data = read_arff(FILES / "fruit.arff")
    assert data.name == "fruit"
    assert data.feature_names == (
        "weight in g",
        "color=red",
        "color=green",
        "color=dark blue",
        "organic=yes",
        "dented",
    )
    np.testing.assert_array_equal(data.X, FRUIT)
    assert data.label_names == ('it\'s "sweet"', "sour", "round")
    np.testing.assert_array_equal(data.Y, [[1, 0, 1], [0, 1, 0], [0, 0, 1]])
    assert data.notices == ("left out 2 string or date attributes: 'id', 'picked'",)


def test_a_value_left_out_of_a_sparse_row_is_zero_or_the_first_nominal_value():
    data = read_arff(FILES / "fruit-sparse.arff")  # its labels are in fruit.xml
    assert data.is_sparse
    assert data.digest == read_arff(FILES / "fruit.arff").digest


def test_notices_are_logged_too(caplog):
    with caplog.at_level(logging.WARNING, logger="tailbatch"):
        read_arff(FILES / "fruit.arff")
    assert [record.getMessage() for record in caplog.records] == [
        f"{FILES / 'fruit.arff'}: left out 2 string or date attributes: 'id', 'picked'"
    ]


def test_meka_labels_first_and_last(write):
    first = read_arff(FILES / "meka.arff")
    assert first.label_names == ("music", "film")
    np.testing.assert_array_equal(first.X, [[0.25], [3], [-1e-3]])
    last = write(
        '@relation "meka: -C -2"\n@attribute length real\n@attribute music {0,1}\n'
        "@attribute film {0,1}\n@data\n0.25,1,0\n3,0,0\n-0.001,1,1\n"
    )
    assert read_arff(last).digest == first.digest


@pytest.mark.parametrize(
    "labels",
    [2, ["music", "film"], FILES / "meka-labels.xml", str(FILES / "meka-labels.xml")],
)
def test_labels_that_are_asked_for_win(labels, write):
    content = (FILES / "meka.arff").read_text().replace("-C 2", "-C -1")
    assert read_arff(write(content), labels=labels).digest == read_arff(FILES / "meka.arff").digest


def test_labels_asked_for_by_name_keep_the_order_asked(write):
    data = read_arff(FILES / "meka.arff", labels=["film", "music"])
    assert data.label_names == ("film", "music")
    np.testing.assert_array_equal(data.Y, [[0, 1], [0, 0], [1, 1]])
    sparse = write(
        small("{0 1}\n{1 1,2 1}\n{}", header="".join(f"@attribute {n} {{0,1}}\n" for n in "abc"))
    )
    np.testing.assert_array_equal(read_arff(sparse, labels=["c", "a"]).Y, [[0, 1], [1, 0], [0, 0]])


def test_labels_by_prefix(write):
    header = "@attribute x numeric\n@attribute tag_a {0,1}\n@attribute tag_b {0,1}\n"
    path = write(small("5,1,0\n", header=header, relation="r"))
    assert read_arff(path, labels="tag_").label_names == ("tag_a", "tag_b")


def test_xml_beside_the_file_is_found_for_gzip_and_for_parts(tmp_path):
    reference = read_arff(FILES / "fruit.arff").digest
    shutil.copy(FILES / "fruit.xml", tmp_path)
    for name in ("fruit.arff.gz", "fruit-train.arff", "fruit-train-1.arff.gz"):
        content = (FILES / "fruit.arff").read_bytes()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        assert read_arff(tmp_path / name).digest == reference


def test_xml_wins_over_a_leftover_meka_option_with_a_notice(write):
    path = write(small("1,0\n2,1\n", relation="r: -C 1"))
    write('<labels><label name="y"/></labels>', "data.xml")
    data = read_arff(path)
    assert data.label_names == ("y",)
    assert data.notices == ("the labels are those of data.xml, not the relation's -C 1",)


def test_compression_is_found_by_content_not_by_name(write):
    packed = write(gzip.compress((FILES / "meka.arff").read_bytes()), "packed.arff")
    plain = write((FILES / "meka.arff").read_bytes(), "plain.arff.gz")
    reference = read_arff(FILES / "meka.arff").digest
    assert read_arff(packed).digest == read_arff(plain).digest == reference


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_endings_and_byte_order_mark(ending, mark, write):
    content = (FILES / "meka.arff").read_text().replace("\n", ending).encode()
    assert read_arff(write(mark + content)).digest == read_arff(FILES / "meka.arff").digest


def test_mixed_line_endings(write):
    lines = (FILES / "meka.arff").read_bytes().split(b"\n")
    content = b"".join(
        line + (b"\n", b"\r\n", b"\r")[number % 3] for number, line in enumerate(lines)
    )
    assert read_arff(write(content)).digest == read_arff(FILES / "meka.arff").digest


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_blocks_may_end_anywhere(size, write, monkeypatch):
    reference = read_arff(FILES / "fruit.arff").digest
    content = (FILES / "fruit.arff").read_bytes().replace(b"\n", b"\r\n")
    path = write(content)
    monkeypatch.setattr(text, "_CHUNK", size)
    assert read_arff(path, labels=FILES / "fruit.xml").digest == reference


def test_names_that_are_not_utf8_are_read_as_latin1_with_a_notice(write):
    header = "@attribute größe numeric\n@attribute süß {nein,0}\n@attribute y {0,1}\n"
    path = write(small("1,nein,0\n", header=header).encode("latin-1"))
    data = read_arff(path)
    assert data.feature_names == ("größe", "süß=0")
    assert data.notices == ("line 2 is not UTF-8, so names are read as Latin-1",)


def test_weights_are_ignored_with_a_notice(write):
    dense_rows = read_arff(write(small("1,0,{2.5}\n2,1, {3}\n")))
    sparse_rows = read_arff(write(small("{0 1}, {2.5}\n{0 2, 1 1} {3}\n"), "sparse.arff"))
    assert dense_rows.digest == sparse_rows.digest
    assert dense_rows.notices == sparse_rows.notices == ("ignored the weights of rows",)


def test_comments_and_spaces_in_the_data(write):
    rows = "% one\n 1 , 0 % why\n\n\t2,\t1\n%\n"
    np.testing.assert_array_equal(read_arff(write(small(rows))).X, [[1], [2]])
    rows = "{ 0 1 } % why\n\n{0\t2 , 1 1}\n{ }\n"
    data = read_arff(write(small(rows)))
    np.testing.assert_array_equal(data.X.toarray(), [[1], [2], [0]])
    np.testing.assert_array_equal(data.Y, [[0], [1], [0]])


def test_comments_after_quoted_values(write):
    header = "@attribute x {'a b','50 %'}\n@attribute y {0,1}\n"
    data = read_arff(write(small("'a b',0 % why, 'so'\n'50 %',1\n", header=header)))
    np.testing.assert_array_equal(data.X, [[0], [1]])


def test_explicit_zeros_are_not_stored_and_any_order_is_read(write):
    data = read_arff(write(small("{1 1, 0 0}\n{0 3}\n")))
    np.testing.assert_array_equal(data.X.toarray(), [[0], [3]])
    assert data.X.nnz == 1


def test_labels_declared_backwards(write):
    header = "@attribute x numeric\n@attribute y {1,0}\n"
    sparse_rows = read_arff(write(small("{0 5}\n{1 0}\n{0 1,1 1}\n", header=header)))
    np.testing.assert_array_equal(sparse_rows.Y, [[1], [0], [1]])
    dense_rows = read_arff(write(small("5,1\n0,0\n1,1\n", header=header), "dense.arff"))
    assert dense_rows.digest == sparse_rows.digest


def test_labels_alone_make_a_dataset(write):
    path = write(
        small("{1 1}\n{}\n", header="@attribute a {0,1}\n@attribute b {0,1}\n", relation="r: -C 2")
    )
    data = read_arff(path)
    assert data.X.shape == (2, 0)
    np.testing.assert_array_equal(data.Y, [[0, 1], [0, 0]])


def test_many_labels_are_stored_sparsely(write):
    header = "".join(f"@attribute l{i} {{0,1}}\n" for i in range(1001))
    data = read_arff(write(small("{3 1,1000 1}\n", header=header, relation="r: -C 1001")))
    assert not isinstance(data.Y, np.ndarray)
    assert data.Y.indices.tolist() == [3, 1000]


MISSING = (
    "@attribute x numeric\n@attribute color {red,green,blue}\n@attribute new {no,yes}\n"
    "@attribute y {0,1}\n"
)


def test_missing_values_are_imputed_or_refused(write):
    rows = "1,green,yes,0\n?,?,?,1\n3,green,no,0\n5,red,yes,1\n"
    path = write(small(rows, header=MISSING))
    with pytest.raises(DataError, match=r"line 8: the value of 'x' is missing .* missing='impute'"):
        read_arff(path, missing="error")
    data = read_arff(path)
    filled = "with means or most frequent values: 'x' (1), 'color' (1), 'new' (1)"
    assert data.notices == (f"filled in 3 missing values {filled}",)
    np.testing.assert_array_equal(data.X[1], [3, 0, 1, 0, 1])
    sparse_rows = "{0 1,1 green,2 yes}\n{0 ?,1 ?,2 ?,3 1}\n{0 3,1 green}\n{0 5,2 yes,3 1}\n"
    sparse = read_arff(write(small(sparse_rows, header=MISSING), "s.arff"), missing="impute")
    assert sparse.digest == data.digest


def test_missing_labels_are_never_imputed(write):
    path = write(small("1,?\n"))
    with pytest.raises(DataError, match=r"the label 'y' is missing .* labels cannot be imputed"):
        read_arff(path, missing="impute")


def test_a_column_of_missing_values_cannot_be_imputed(write):
    path = write(small("?,0\n?,1\n"))
    with pytest.raises(DataError, match="every value of 'x' is missing; leave it out"):
        read_arff(path, missing="impute")


def test_numbers_are_the_nearest_floats(write):
    tokens = ["0.1", "1e-320", "123456789.123456789", "2.2250738585072011e-308", "9007199254740993"]
    data = read_arff(write(small("".join(f"{token},0\n" for token in tokens))))
    assert data.X[:, 0].tolist() == [float(token) for token in tokens]


# --- liac-arff as reference, and the fast path against the careful one

number = st.one_of(
    st.sampled_from(["0", "1", "-0.0", "2.50", "1e3", "-7"]),
    st.floats(-1e6, 1e6, width=32).map(repr),
    st.integers(-1000, 1000).map(str),
)
NOMINAL = ["red", "dark blue", "it's", 'say "x"', "50%", "a,b"]


@st.composite
def relations(draw):
    """Draw attributes and rows of values, as liac-arff wants them."""
    kinds = draw(st.lists(st.sampled_from(["REAL", "01", "10", "nominal"]), min_size=1, max_size=4))
    attributes = [
        (f"a {i}", {"REAL": "REAL", "01": ["0", "1"], "10": ["1", "0"], "nominal": NOMINAL}[kind])
        for i, kind in enumerate(kinds)
    ]
    attributes.append(("y", ["0", "1"]))
    cells = [
        number.map(float) if kind == "REAL" else st.sampled_from(kind) for _, kind in attributes
    ]
    rows = draw(st.lists(st.tuples(*cells).map(list), min_size=1, max_size=8))
    return attributes, rows


def encoded(attributes, rows):
    """Encode values as the reader promises to, in the plainest way."""
    table = []
    for row in rows:
        line = []
        for (_, kind), value in zip(attributes[:-1], row[:-1], strict=True):
            if kind == "REAL":
                line.append(value)
            elif kind is NOMINAL:
                line += [float(value == level) for level in NOMINAL]
            else:
                line.append(float(value))
        table.append(line)
    return np.array(table)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(relation=relations(), is_sparse=st.booleans())
def test_what_liac_arff_writes_is_read_alike(relation, is_sparse, write):
    attributes, rows = relation
    zeros = [0.0 if kind == "REAL" else kind[0] for _, kind in attributes]
    data = [dict(enumerate(row)) for row in rows] if is_sparse else rows
    if is_sparse:
        data = [{i: v for i, v in row.items() if v != zeros[i]} for row in data]
    content = liac.dumps(
        {"relation": "r: -C -1", "description": "", "attributes": attributes, "data": data}
    )
    theirs = liac.load(io.StringIO(content), return_type=liac.LOD if is_sparse else liac.DENSE)
    rows = list(theirs["data"])
    if is_sparse:
        rows = [[row.get(i, zero) for i, zero in enumerate(zeros)] for row in rows]
    ours = read_arff(write(content))
    assert ours.is_sparse == is_sparse
    np.testing.assert_array_equal(dense(ours), encoded(attributes, rows))
    np.testing.assert_array_equal(ours.Y[:, 0], [row[-1] == "1" for row in rows])


text_rows = st.lists(
    st.lists(
        st.sampled_from(
            [
                "0",
                "1",
                "2",
                " ",
                ",",
                "{",
                "}",
                "\n",
                "-",
                ".",
                "e",
                "?",
                "5",
                ".5",
                "1-2",
                "-0.5",
                "99999999999999999999",
                "{0 1}\n",
                "{}\n",
                "1,0\n",
            ]
        ),
        max_size=12,
    ).map("".join),
    min_size=1,
    max_size=4,
).map("\n".join)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=text_rows)
def test_fast_and_careful_reading_agree_on_any_text(rows, write, monkeypatch):
    header = "@attribute x numeric\n@attribute z {1,0}\n@attribute y {0,1}\n"
    path = write(small(rows, header=header))

    def outcome():
        try:
            return read_arff(path).digest
        except DataError as error:
            return str(error)

    fast = outcome()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_plain_dense", "_plain_sparse"):
            patch.setattr(arff_rows, name, lambda block, width: None)
        assert outcome() == fast


@pytest.mark.parametrize(
    ("rows", "is_fast"),
    [
        ("1.5,0\n-2,1\n", True),
        ("1.5, 0\n1e5, 1", True),
        ("{0 1.5}\n{}\n{0 2,1 1}\n{}", True),
        ("{}\n{0 1e-3, 1 1}\n", True),
        ("'1.5',0\n", False),
        ("{0 1.5,1 1} % x\n", False),
    ],
)
def test_plain_blocks_are_read_at_once(rows, is_fast, write, monkeypatch):
    careful = []
    for name in ("_dense_row", "_sparse_row"):
        original = getattr(arff_rows._Rows, name)
        monkeypatch.setattr(
            arff_rows._Rows,
            name,
            lambda *a, original=original: careful.append(a) or original(*a),
        )
    read_arff(write(small(rows)))
    assert bool(careful) != is_fast
