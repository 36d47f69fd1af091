"""What becomes of wide, numbered and odd columns: names, decimals, one-hot columns and their limits."""

import copy
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse

from tailbatch.data import (
    MultiLabelDataset,
    cells,
    column_parts,
    load_dataset,
    save_npz,
    sparse,
)
from tailbatch.data.sparse import NumberedNames, _framed
from tailbatch.errors import DataError, StudyError
from tailbatch.study import Study


@pytest.mark.parametrize("numbers", [range(0), range(3), range(7, 10_002), range(9_998, 30_011)])
def test_numbered_names_are_the_tuple_of_them(numbers):
    names, naive = NumberedNames("f_", numbers), tuple(f"f_{number}" for number in numbers)
    assert names == naive
    assert naive == names
    assert (len(names), tuple(names), hash(names)) == (len(naive), naive, hash(naive))
    assert b"".join(_framed(names)) == b"".join(_framed(naive))
    assert copy.deepcopy(names) == names
    assert names != (*naive, "more")
    if naive:
        assert (names[-1], names[:2]) == (naive[-1], naive[:2])


def test_numbered_names_survive_npz_and_rows(tmp_path):
    data = MultiLabelDataset.from_arrays(np.eye(3), np.eye(3))
    save_npz(data, tmp_path / "x.npz")
    back = load_dataset(tmp_path / "x.npz")
    assert isinstance(back.take([1]).feature_names, NumberedNames)
    named = MultiLabelDataset.from_arrays(
        np.eye(3), np.eye(3), feature_names=[f"feature_{place}" for place in range(3)]
    )
    assert back.digest == data.digest == named.digest


@pytest.mark.parametrize(
    "values", [[Decimal("1.50"), Decimal("-2"), Decimal("1.50")], [1, 2.5, None], [True, False, 1]]
)
def test_python_numbers_are_numbers(values):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "y": [0, 1, 1]})
    data = MultiLabelDataset.from_frame(frame, labels=["y"], missing="impute")
    expected = [1.75 if value is None else float(value) for value in values]
    assert data.feature_names == ("x",)
    np.testing.assert_array_equal(data.X[:, 0], expected)


def test_decimals_of_a_parquet_file_are_numbers_also_as_labels(tmp_path):
    frame = pd.DataFrame(
        {"x": [Decimal("0.25"), Decimal("3.50")], "y": [Decimal("1.00"), Decimal("0.00")]}
    )
    frame.to_parquet(tmp_path / "x.parquet")
    data = load_dataset(tmp_path / "x.parquet", labels=["y"])
    np.testing.assert_array_equal(data.X, [[0.25], [3.5]])
    np.testing.assert_array_equal(data.Y, [[True], [False]])


def test_a_number_beyond_floats_has_a_sentence():
    frame = pd.DataFrame({"x": pd.Series([1, 10**400], dtype=object), "y": [0, 1]})
    with pytest.raises(DataError, match="'x' holds a number that no float64 can hold"):
        MultiLabelDataset.from_frame(frame, labels=["y"])


@pytest.mark.parametrize("cell", [[1], {"a": 1}, b"a", (1,), {1}, np.ones(2)])
def test_cells_of_several_values_are_refused_by_name(cell):
    frame = pd.DataFrame({"x": pd.Series([cell, cell], dtype=object), "y": [0, 1]})
    for labels in (["y"], ["x"]):
        with pytest.raises(
            DataError, match=r"the column 'x' is of type .*; leave it out with kinds="
        ):
            MultiLabelDataset.from_frame(frame, labels=labels)
    assert MultiLabelDataset.from_frame(frame, labels=["y"], kinds={"x": "ignore"}).n_features == 0


def test_text_that_is_nearly_all_different_is_left_out(monkeypatch):
    monkeypatch.setattr(cells, "FEW_LEVELS", 3)
    frame = pd.DataFrame({"x": [*"abcdefgh", "a"], "z": [*"ababcabab"], "y": [0, 1, 1] * 3})
    data = MultiLabelDataset.from_frame(frame, labels=["y"])
    assert data.feature_names == ("z=a", "z=b", "z=c")
    assert data.notices == (
        "left out the column 'x': 8 of its 9 values are different, so it identifies rows; write "
        "kinds={'x': 'text'} if it is free text",
    )


def test_too_many_levels_and_too_many_columns_of_text_are_refused(monkeypatch):
    frame = pd.DataFrame({"x": [*"abcabc"], "z": [*"ababab"], "y": [0, 1] * 3})
    monkeypatch.setattr(column_parts, "MAX_LEVELS", 2)
    with pytest.raises(DataError, match="'x' has 3 different values, and at most 2 become columns"):
        MultiLabelDataset.from_frame(frame, labels=["y"])
    monkeypatch.setattr(cells, "MAX_TEXT_COLUMNS", 1)
    with pytest.raises(DataError, match="2 columns are no numbers, and at most 1 can be encoded"):
        MultiLabelDataset.from_frame(frame, labels=["y"])


def test_large_one_hot_columns_stay_sparse_and_hold_the_same(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=40), "t": rng.choice([*"abcdef"], 40), "y": rng.integers(0, 2, 40)}
    )
    header = "@relation 'r: -C -1'\n@attribute x numeric\n@attribute t {a,b,c,d,e,f}\n"
    path = tmp_path / "x.arff"
    rows = "".join(f"{x!r},{t},{y}\n" for x, t, y in frame.itertuples(index=False))
    path.write_text(f"{header}@attribute y {{0,1}}\n@data\n{rows}")
    dense = [MultiLabelDataset.from_frame(frame, labels=["y"]), load_dataset(path)]
    monkeypatch.setattr(sparse, "MAX_DENSE_CELLS", 10)
    small = [MultiLabelDataset.from_frame(frame, labels=["y"]), load_dataset(path)]
    assert [issparse(data.X) for data in dense + small] == [False, False, True, True]
    assert len({data.digest for data in dense + small}) == 1


def test_an_index_in_a_parquet_file_is_no_feature(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [0, 1]}, index=pd.Index(["a", "b"], name="id"))
    frame.to_parquet(tmp_path / "x.parquet")
    assert load_dataset(tmp_path / "x.parquet", labels=["y"]).feature_names == ("x",)


def test_text_for_the_weights_of_a_strategy_is_refused_when_the_study_is_made():
    entry = {"name": "adaptive", "weights": "x"}
    with pytest.raises(
        StudyError, match="study t: weights must be one number or n_samples of them"
    ):
        Study(name="t", datasets=["debtags"], strategies=[entry])
