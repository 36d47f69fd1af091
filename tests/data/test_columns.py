"""What columns are taken for, and that a fitted table does again what it did."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse
from sklearn.feature_extraction.text import TfidfVectorizer

from tailbatch.data import Columns, FittedColumns, MultiLabelDataset, load_dataset, split
from tailbatch.data.folds import Fold
from tailbatch.errors import DataError
from tailbatch.estimator import TailbatchClassifier
from tailbatch.training.checkpoints import load_checkpoint, save_checkpoint

SUBJECTS = [
    "the printer is on fire", "I cannot log in today", "please send the invoice again",
    "my card was charged twice", "the export is empty again", "log in fails since today",
]  # fmt: skip


def messy(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "Unnamed: 0": range(n),
            "ticket": [f"T-{number}" for number in range(n)],
            "customer_id": rng.integers(0, 9, n),
            "opened": [f"{1 + k % 28:02}.{1 + k % 12:02}.2025 {k % 24:02}:30" for k in range(n)],
            "subject": [f"{SUBJECTS[k % 6]} {k}" for k in range(n)],
            "plan": rng.choice(["free", "pro", "team"], n),
            "paid": [f"{k}.50 EUR" for k in range(n)],
            "weight": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
            "nothing": None,
        }
    )


IMPUTE = Columns(missing="impute")


def test_each_column_is_taken_for_what_it_holds():
    fitted = IMPUTE.fit(messy())
    assert {name: taken.kind for name, taken in fitted.taken.items()} == {
        "Unnamed: 0": "ignore",
        "ticket": "ignore",
        "customer_id": "number",
        "opened": "date",
        "subject": "text",
        "plan": "category",
        "paid": "ignore",
        "weight": "number",
        "nothing": "ignore",
    }
    notices = "\n".join(fitted.notices)
    assert "left out the column 'Unnamed: 0': it numbers the rows" in notices
    assert "left out the column 'ticket': it identifies rows" in notices
    assert "numbers with a unit or separators; write kinds={'paid': 'number'}" in notices
    assert "took the column 'customer_id' for a number" in notices


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["Ann writes a long text", "Bob writes another text", "Eve answers both of them"], "text"),
        (["a@x.org", "b@x.org", "c@x.org"], "ignore"),
        (["red", "blue", "red"], "category"),
        (["5 stars", "4 stars", "5 stars"], "category"),
        (["2025-01-01", "2025-01-02", None], "date"),
        (["2025-01-01T10:00:00Z", "2025-01-02T11:30:00+02:00"], "date"),
        (["1.2.3", "1.2.4", "1.2.3"], "category"),
        (["192.168.100.200", "10.0.0.1", "10.0.0.1"], "category"),
        (pd.to_datetime(["2025-01-01", "2025-06-01"]), "date"),
        (pd.Categorical(["a", "b", "c"]), "category"),
        ([True, False, True], "number"),
    ],
)
def test_kinds_of_small_columns(values, kind):
    assert IMPUTE.fit(pd.DataFrame({"x": values})).taken["x"].kind == kind


def test_free_text_is_never_called_an_identifier():
    frame = pd.DataFrame({"x": [f"{text} number {k}" for k, text in enumerate(SUBJECTS * 40)]})
    assert Columns().fit(frame).taken["x"].kind == "text"


def test_what_fit_did_transform_does_again_also_from_a_file(tmp_path):
    frame = messy()
    columns = Columns(kinds={"paid": "number", "customer_id": "category"}, missing="impute")
    fitted = columns.fit(frame)
    save_checkpoint(tmp_path / "x.safetensors", fitted.state())
    again = FittedColumns.from_state(load_checkpoint(tmp_path / "x.safetensors"))
    new = messy(20, seed=1).sample(frac=1, axis=1, random_state=0)
    for rows in (frame, new):
        ours, theirs = fitted.transform(rows)[0], again.transform(rows)[0]
        assert issparse(ours)
        np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    assert again.feature_names == fitted.feature_names
    assert ours.shape == (20, len(fitted.feature_names))
    assert again.taken == fitted.taken


def test_text_becomes_the_weights_that_scikit_learn_gives():
    texts = SUBJECTS * 3
    fitted = Columns(text=["x"]).fit(pd.DataFrame({"x": texts}))
    naive = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode").fit(texts)
    assert fitted.feature_names == tuple(f"x:{word}" for word in naive.get_feature_names_out())
    new = pd.DataFrame({"x": ["the invoice", None, "Log in"]})
    expected = naive.transform(new["x"].fillna("")).toarray()
    np.testing.assert_allclose(fitted.transform(new)[0].toarray(), expected)


def test_dates_become_days_weekdays_months_and_hours():
    frame = pd.DataFrame({"x": ["03.03.2025 06:00", "31.12.2025 18:00"]})
    fitted = Columns().fit(frame)
    assert fitted.feature_names == ("x", "x.weekday", "x.month", "x.hour")
    day = (pd.Timestamp("2025-03-03") - pd.Timestamp(0)).days
    np.testing.assert_array_equal(fitted.transform(frame)[0][0], [day + 0.25, 0, 3, 6])
    assert fitted.transform(frame)[0][1, 1:].tolist() == [2, 12, 18]


def test_a_format_says_how_dates_are_written():
    frame = pd.DataFrame({"x": ["03/04/2025", "05/06/2025"]})
    with pytest.raises(DataError, match="'03/04/2025' as %d/%m/%Y or as %m/%d/%Y; say which"):
        Columns().fit(frame)
    months = [
        Columns(kinds={"x": f"date:{form}"}).fit(frame).transform(frame)[0][0, 2]
        for form in ("%d/%m/%Y", "%m/%d/%Y")
    ]
    assert months == [4, 3]


def test_missing_values_are_filled_in_by_the_training_rows():
    train = pd.DataFrame(
        {"n": [1.0, None, 3.0], "c": ["a", "b", "a"], "d": ["2025-01-01", None, "2025-01-03"]}
    )
    fitted = IMPUTE.fit(train)
    new = pd.DataFrame({"n": [np.nan], "c": [None], "d": [None]})
    values = dict(zip(fitted.feature_names, fitted.transform(new)[0][0], strict=True))
    assert (values["n"], values["c=a"], values["c=b"]) == (2, 1, 0)
    assert values["d"] == (pd.Timestamp("2025-01-02") - pd.Timestamp(0)).days
    with pytest.raises(DataError, match="'n' has a missing value in row 0"):
        Columns(missing="error").fit(train.dropna()).transform(new)


def test_an_unseen_category_is_none_of_the_known_ones_and_noticed():
    fitted = Columns().fit(pd.DataFrame({"c": ["a", "b", "a"]}))
    X, notices = fitted.transform(pd.DataFrame({"c": ["z", "a"]}))
    assert X.tolist() == [[0, 0], [1, 0]]
    assert notices[0].startswith(
        "the column 'c' has values that training rows had not, in 1 row: 'z'"
    )


def test_codes_keep_their_zeros_when_they_are_categories(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("zip,y\n01234,1\n99999,0\n01234,1\n")
    data = load_dataset(path, labels=["y"], kinds={"zip": "category"})
    assert data.feature_names == ("zip=01234", "zip=99999")


def test_an_encoder_of_your_own():
    def lengths(texts):
        return [[len(text), text.count("e")] for text in texts]

    frame = pd.DataFrame({"x": SUBJECTS})
    fitted = Columns(text=["x"], encoder=lengths).fit(frame)
    expected, found = np.array(lengths(SUBJECTS)), fitted.transform(frame)[0].toarray()
    scaled = (expected - expected.mean(axis=0)) / expected.std(axis=0) / np.sqrt(2) / 2
    np.testing.assert_allclose(found[:, -2:], scaled)
    words = Columns(text=["x"]).fit(frame).transform(frame)[0].toarray()
    np.testing.assert_array_equal(found[:, :-2], words)
    restored = FittedColumns.from_state(fitted.state())
    with pytest.raises(DataError, match="encoded by a function of yours, which is not saved"):
        restored.transform(frame)
    again = restored.with_encoder(lengths).transform(frame)[0].toarray()
    np.testing.assert_array_equal(again, found)


def test_a_fold_learns_words_and_categories_from_its_training_rows_alone():
    frame = pd.DataFrame(
        {
            "t": ["alpha beta gamma", "beta gamma delta", "secret words here"],
            "c": ["a", "a", "b"],
            "y": 1,
        }
    )
    data = MultiLabelDataset.from_frame(frame, labels=["y"], text=["t"])
    assert "t:secret" in data.feature_names
    parts = split(data, Fold(np.array([0]), np.array([1]), np.array([2])), scale=False)
    assert parts.train.feature_names == ("t:alpha", "t:beta", "t:gamma", "c=a")
    assert parts.test.feature_names == parts.train.feature_names
    assert parts.test.X.nnz == 0
    assert parts.validation.X.shape == (1, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["parts"][0].update(kind="spell"),
        lambda state: state["parts"][0].update(fill=float("nan")),
        lambda state: state["parts"][1].update(levels=["a", "a"]),
        lambda state: state["parts"][1].update(fill="z"),
        lambda state: state["parts"][2].update(idf=[1.0]),
        lambda state: state["columns"].update(missing="drop"),
    ],
)
def test_a_damaged_state_is_refused(change):
    frame = pd.DataFrame({"n": [1.0, 2.5, 3.0], "c": ["a", "b", "a"], "t": SUBJECTS[:3]})
    state = Columns(text=["t"], missing="impute").fit(frame).state()
    FittedColumns.from_state(state)
    change(state)
    with pytest.raises(ValueError, match=r"column|fill|value|word|missing"):
        FittedColumns.from_state(state)


# --- gaps, formats and hints


def test_a_table_with_gaps_is_read_and_one_line_says_what_was_filled_in(tmp_path, caplog):
    path = tmp_path / "x.csv"
    path.write_text("size,color,y\n1.5,red,1\n,,0\n2.5,red,1\n")
    frame = pd.read_csv(path)
    line = "filled in 2 missing values with means or most frequent values: 'size' (1), 'color' (1)"
    for data in (
        load_dataset(path, labels=["y"]),
        MultiLabelDataset.from_frame(frame, labels=["y"]),
    ):
        assert data.notices == (line,)
        assert data.X.tolist() == [[1.5, 1], [2, 1], [2.5, 1]]
    caplog.clear()
    TailbatchClassifier(epochs=1, validation_fraction=0).fit(frame[["size", "color"]], frame[["y"]])
    assert [record.message for record in caplog.records if "filled" in record.message] == [line]
    numbers = frame[["size"]].fillna(2.0)
    assert Columns().fit(numbers).notices == ()
    assert not Columns().fit(numbers).depends_on_rows
    with_gaps = TailbatchClassifier(epochs=1).fit(frame[["size"]], frame[["y"]])
    assert with_gaps.columns_ is not None


def test_two_formats_of_dates_are_read():
    frame = pd.DataFrame({"due": ["2024-01-31", "31.01.2024", "2024-02-01", "01.02.2024 12:00"]})
    fitted = Columns().fit(frame)
    assert fitted.taken["due"].kind == "date"
    days = fitted.transform(frame)[0][:, 0]
    assert (days - days[0]).tolist() == [0, 0, 1, 1.5]
    again = FittedColumns.from_state(fitted.state())
    assert np.array_equal(again.transform(frame)[0], fitted.transform(frame)[0])
    with pytest.raises(DataError, match="can be read two ways: '01/02/2024' as %d/%m/%Y or as %m/"):
        Columns().fit(pd.DataFrame({"due": ["2024-01-31", "01/02/2024"]}))


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1,234", "980", "12,500"], [1234, 980, 12500]),
        (["1,234.50", "2,000", "7"], [1234.5, 2000, 7]),
        (["1.234,50", "1.000", "7"], [1234.5, 1000, 7]),
        (["1'234", "-2'000'000", "7"], [1234, -2_000_000, 7]),
        (["1 234", "980", "12 500,5"], [1234, 980, 12500.5]),
    ],
)
def test_separators_of_thousands_are_read(texts, numbers):
    frame = pd.DataFrame({"paid": texts * 4})
    fitted = Columns().fit(frame)
    assert fitted.taken["paid"].why == "its values are numbers with separators of thousands"
    assert fitted.transform(frame)[0].ravel().tolist() == numbers * 4


def test_new_rows_are_read_with_the_decimal_mark_of_the_training_rows():
    fitted = Columns(kinds={"x": "number"}).fit(pd.DataFrame({"x": ["1,5", "1,234"]}))
    again = FittedColumns.from_state(fitted.state())
    assert again.transform(pd.DataFrame({"x": ["2,345"]}))[0].item() == 2.345


def test_nearly_equal_categories_are_named():
    frame = pd.DataFrame({"city": ["Munich", "munich", "Münich", "Berlin"] * 10})
    [notice] = Columns().fit(frame).notices
    assert notice.startswith("in the column 'city' 'Munich' and 'Münich' and 'munich' differ only")


def table_that_tells(n=60):
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.4
    words = np.array(["the printer is broken", "please send my invoice"])
    frame = pd.DataFrame({"text": words[y.astype(int)], "size": rng.random(n), "y": y.astype(int)})
    return frame, y


@pytest.mark.parametrize(
    "column",
    [
        lambda y: np.where(y, "closed", "open"),
        lambda y: np.where(y, np.arange(60) % 3, 7).astype(str),
        lambda y: np.where(y, 5.5, np.arange(60) / 100),
        lambda y: pd.Timestamp("2024-01-01") + pd.to_timedelta(y * 9, unit="D"),
    ],
    ids=["category", "several categories", "number", "date"],
)
def test_a_column_that_gives_a_label_away_is_named(column, caplog):
    frame, y = table_that_tells()
    frame["state"] = column(y)
    notice = "the column 'state' gives the label 'y' away"
    data = MultiLabelDataset.from_frame(frame, labels=["y"], text=["text"])
    assert [line for line in data.notices if line.startswith(notice)]
    caplog.clear()
    classifier = TailbatchClassifier(
        columns=Columns(text=["text"]), epochs=1, validation_fraction=0
    )
    classifier.fit(frame.drop(columns="y"), frame[["y"]])
    assert notice in caplog.text


def test_words_and_chance_give_nothing_away():
    frame, y = table_that_tells()
    frame["state"] = [f"s{k}" for k in range(30)] * 2
    frame["nearly"] = np.where(np.r_[~y[:1], y[1:]], 1.5, 0.5)
    data = MultiLabelDataset.from_frame(frame, labels=["y"], text=["text"])
    assert "away" not in " ".join(data.notices)
    few = frame.drop(columns="nearly").assign(y=[1] * 9 + [0] * 51, z=[2.5] * 9 + [1.5] * 51)
    data = MultiLabelDataset.from_frame(few, labels=["y"], text=["text"])
    assert "away" not in " ".join(data.notices)
