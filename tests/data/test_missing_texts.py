"""Texts that say that a value is missing, in files of every format and in data frames."""

import numpy as np
import pandas as pd
import pytest

from tailbatch.data import Columns, FittedColumns, MultiLabelDataset, load_dataset
from tailbatch.errors import DataError

N = 60
TEXTS = ["n/a", "NA", "", "null", "None", "nan", " N/A "]


def table(missing):
    """A table with one such text in each column, and the amounts of the others all different."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "paid": [f"{k}.00 EUR" for k in range(N)],
            "size": [*range(1, N // 2 + 1)] * 2,
            "plan": rng.choice(["free", "pro"], N),
            "opened": [f"2025-01-{1 + k % 28:02}" for k in range(N)],
            "subject": [f"the printer number {k} is on fire again" for k in range(N)],
            "tags": ["a;b" if k % 2 else "a" for k in range(N)],
        }
    ).astype({"size": object})
    for place, name in enumerate(frame):
        frame.loc[place + 3, name] = missing
    return frame


def read(frame, ending, folder):
    """Return the dataset of a frame: itself, or written to a file and read."""
    settings = {"labels": "tags", "missing": "impute", "kinds": {"paid": "number"}}
    if ending == "frame":
        return MultiLabelDataset.from_frame(frame, **settings)
    path = folder / f"table.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.assign(size=frame["size"].astype(str)).to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    if ending == "parquet":  # which has no column of numbers and text
        settings["kinds"] = {"paid": "number", "size": "number"}
    return load_dataset(path, **settings)


@pytest.mark.parametrize("ending", ["frame", "parquet", "jsonl"])
@pytest.mark.parametrize("missing", TEXTS[:4])
def test_a_text_for_a_missing_value_is_read_as_in_a_csv_file(missing, ending, tmp_path):
    expected = read(table(missing), "csv", tmp_path)
    assert expected.n_features < 100
    found = read(table(missing), ending, tmp_path)
    assert (found.feature_names, found.label_names) == (
        expected.feature_names,
        expected.label_names,
    )
    assert found.digest == expected.digest
    assert "; 1 missing" in found.columns.taken["paid"].why


@pytest.mark.parametrize("missing", TEXTS)
def test_one_text_does_not_make_a_category_of_amounts(missing):
    taken = Columns(missing="impute").fit(table(missing).drop(columns="tags")).taken
    assert taken["paid"].kind == "ignore"
    assert "'0.00 EUR', numbers with a unit or separators" in taken["paid"].why
    assert [taken[name].kind for name in ("size", "plan", "opened")] == [
        "number",
        "category",
        "date",
    ]


def test_the_given_frame_is_not_changed():
    frame = table("n/a")
    before = frame.copy(deep=True)
    Columns(missing="impute").fit(frame).transform(frame)
    pd.testing.assert_frame_equal(frame, before)


def test_missing_texts_are_refused_where_missing_values_are():
    with pytest.raises(DataError, match=r"'c' has a missing value in row 1; .*NA and the like"):
        Columns(missing="error").fit(pd.DataFrame({"c": ["x", "n/a", "x"]}))
    with pytest.raises(DataError, match="the label 'y' is missing in row 1"):
        MultiLabelDataset.from_frame(
            pd.DataFrame({"x": [1.0, 2.0], "y": ["1", "NA"]}), labels=["y"]
        )


def test_a_known_category_stays_one():
    state = Columns().fit(pd.DataFrame({"c": ["x", "y", "x"]})).state()
    state["parts"][0]["levels"] = ["NA", "x"]  # as a model saved by an earlier version has it
    features, notices = FittedColumns.from_state(state).transform(pd.DataFrame({"c": ["NA"]}))
    assert (features.tolist(), notices) == ([[1, 0]], ())


# --- amounts


def amounts_frame(n_wrong):
    return pd.DataFrame(
        {"paid": [f"{k}.50 EUR" if k >= n_wrong else f"free {k}" for k in range(100)]}
    )


def test_nine_of_ten_amounts_are_enough_to_be_named_as_such():
    why = Columns().fit(amounts_frame(10)).taken["paid"].why
    assert "numbers with a unit or separators, most of them; write kinds={'paid': 'numb" in why
    assert "numbers with a unit" not in Columns().fit(amounts_frame(11)).taken["paid"].why


def test_the_rest_of_the_amounts_is_missing_with_a_notice():
    columns = Columns(kinds={"paid": "number"}, missing="impute")
    fitted = columns.fit(amounts_frame(10))
    assert "10 values that are no numbers, such as 'free 0', taken for missing" in "".join(
        fitted.notices
    )
    features, notices = fitted.transform(pd.DataFrame({"paid": ["3 EUR", "gratis"]}))
    assert features.ravel().tolist() == [3, np.mean([k + 0.5 for k in range(10, 100)])]
    assert notices == (
        "the column 'paid' has 1 value that is no number, 'gratis', taken for missing",
        "filled in 1 missing value with means or most frequent values: 'paid' (1)",
    )
    assert fitted.refit(amounts_frame(10)[:30]).parts[0].fill == np.mean(np.arange(10, 30) + 0.5)
    with pytest.raises(DataError, match="'free 0' in row 0, which is no number"):
        columns.fit(amounts_frame(11))
    with pytest.raises(DataError, match="no number; correct it, pass missing='impute' to fill"):
        Columns(kinds={"paid": "number"}, missing="error").fit(amounts_frame(1))


def test_codes_with_leading_zeros_are_no_amounts():
    codes = pd.DataFrame({"zip": [f"{k % 40:05}" for k in range(100)]})
    assert Columns().fit(codes).taken["zip"] == ("category", "40 different values", None)
    digits = pd.DataFrame({"x": [str(k % 40 + 10) for k in range(100)]})
    assert "'10', numbers written as text; write kinds=" in Columns().fit(digits).taken["x"].why


# --- categories


def test_a_category_with_nearly_a_value_a_row_is_noticed():
    near = pd.DataFrame({"city": [f"c{k // 2 if k < 80 else k}" for k in range(100)]})
    [notice] = Columns().fit(near).notices
    assert "'city' for a category: 60 different values, more than half as many as rows" in notice
    said = Columns(kinds={"city": "category"}).fit(near)
    assert "as you said; 60 different values, more than half" in said.notices[0]
    assert not Columns().fit(pd.DataFrame({"city": [f"c{k // 2}" for k in range(100)]})).notices


def test_one_value_is_one_value():
    assert Columns().fit(pd.DataFrame({"c": ["x", "x"]})).taken["c"].why == "1 different value"
