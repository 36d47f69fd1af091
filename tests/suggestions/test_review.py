"""Review files: round trips, spreadsheets, and what a person may write into them."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailbatch.data.tables import read_frame
from tailbatch.errors import DataError
from tailbatch.review import (
    Review,
    Sheet,
    answer_of,
    read_reviews,
    rows_in_pool,
    write_review,
)
from tailbatch.suggestions import suggest

NAMES = ["joy", "grief"]
POOL = pd.DataFrame(
    {
        "ticket_id": ["007", "008", "009", "010"],
        "text": ["so sad", '=cmd|" /C calc"!A0', "d\u00e9j\u00e0 \u2603\nvu", "'=quoted"],
        "amount": [1.5, -2.0, math.nan, 4.0],
    }
)
SUFFIXES = ["csv", "tsv", "jsonl", "parquet"]


def chosen(n=4, names=NAMES, **options):
    P = np.array([[0.9, 0.1], [0.2, 0.6], [0.3, 0.4], [0.1, 0.2]])
    return suggest(P, [[1, 1]], n, labels=[0, 1], label_names=names, **{"explore": 0.25, **options})


def written(tmp_path, suffix="csv", **options):
    path = tmp_path / f"review.{suffix}"
    write_review(POOL, chosen(), path, **options)
    return path


def answered(path, answer):
    """Answer every question as `answer` says and return the path."""
    sheet = Sheet(path)
    for question in sheet.questions:
        sheet.answer(question, answer(question))
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_round_trip_keeps_features_ids_and_answers(tmp_path, suffix):
    path = answered(written(tmp_path, suffix), lambda q: "yes" if q.label == "grief" else "no")
    review = read_reviews([path], NAMES, as_text=["ticket_id"])
    assert len(review) == 4
    order = np.argsort(review.rows)
    frame = review.frame.iloc[order].reset_index(drop=True)
    pd.testing.assert_frame_equal(frame, POOL, check_dtype=False)
    asked = {row.row: row.labels for row in chosen()}
    for place, row in enumerate(review.rows.tolist()):
        for label, name in enumerate(NAMES):
            value = review.Y[place, label]
            assert np.isnan(value) if name not in asked[row] else value == (name == "grief")
            assert np.isnan(review.expected[place, label]) == (name not in asked[row])
    assert review.is_random.sum() >= 1
    assert sorted(rows_in_pool(review, POOL).tolist()) == [0, 1, 2, 3]


_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(st.one_of(_TEXTS, st.sampled_from(["=1+1", "'=1", "''@x", "\t-", "-0.5", " +a"])),
                   min_size=1, max_size=6),
    suffix=st.sampled_from(SUFFIXES),
    label=st.sampled_from(["grief", "=evil", "a;b", "[x]", "\u2603"]),
)  # fmt: skip
def test_texts_come_back_as_they_were(tmp_path_factory, cells, suffix, label):
    cells = [f"{cell}|" for cell in cells]  # so that no cell is empty, missing or a number
    pool = pd.DataFrame({"text": cells})
    path = tmp_path_factory.mktemp("texts") / f"review.{suffix}"
    P = np.full((len(cells), 1), 0.5)
    write_review(pool, suggest(P, [[1]], len(cells), label_names=[label], explore=0), path)
    review = read_reviews([answered(path, lambda q: "yes")], [label])
    assert review.frame["text"].iloc[np.argsort(review.rows)].tolist() == cells
    assert (review.Y == 1).all()


def test_no_cell_of_a_csv_file_begins_as_a_formula(tmp_path):
    path = tmp_path / "review.csv"
    pool = pd.DataFrame({"=name": ["=1", "+1", "-x", "@x", "\t=1", "\uff1d1"]})
    write_review(pool, suggest(np.full((6, 1), 0.5), [[1]], 6, label_names=["-a"], explore=0), path)
    import csv

    for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()):
        assert not any(cell[:1] in "=+-@\t\uff1d" for cell in row if cell)


def test_a_csv_file_tells_spreadsheets_that_it_is_utf8(tmp_path):
    assert written(tmp_path).read_bytes()[:3] == b"\xef\xbb\xbf"


def test_ids_stay_text(tmp_path):
    frame, _ = read_frame(written(tmp_path), as_text=["ticket_id"])
    assert sorted(frame["ticket_id"]) == ["007", "008", "009", "010"]


def test_a_file_that_a_spreadsheet_saved_with_semicolons_is_read(tmp_path):
    path = tmp_path / "review.csv"
    path.write_text("text;review_labels;grief\r\nso sad;grief;TRUE\r\nso so;grief;\r\n")
    review = read_reviews([path], NAMES)
    assert review.Y.tolist()[0][1] == 1
    assert len(review) == 1


@pytest.mark.parametrize(
    ("cell", "value"),
    [("yes", 1), ("Y", 1), (" TRUE ", 1), (1, 1), (1.0, 1), (True, 1), ("x", 1), ("no", 0), ("N", 0),
     (0, 0), ("0.0", 0), (False, 0), (np.bool_(True), 1)],
)  # fmt: skip
def test_answers(cell, value):
    assert answer_of(cell) == value


@pytest.mark.parametrize("cell", ["", None, math.nan, "?", "skip", "  "])
def test_no_answer(cell):
    assert math.isnan(answer_of(cell))


def test_a_cell_that_is_neither_names_row_and_column(tmp_path):
    path = tmp_path / "review.csv"
    path.write_text("text,joy,grief\na,no,yes\nb,no,perhaps\n")
    with pytest.raises(DataError) as caught:
        read_reviews([path], NAMES)
    assert str(caught.value) == (
        f"{path}: line 3, column 'grief': expected yes or no, found 'perhaps'; write yes, no, or nothing"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,pride\na,1\n", "has no column of a label; the labels are: joy, grief"),
        ("text,joy\na,\n", "no row has an answer yet; write yes or no"),
        ("text,joy\n", "has no rows"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "review.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_reviews([path], NAMES)


def test_only_kinds_of_files_that_come_back(tmp_path):
    with pytest.raises(DataError, match=r"must end in .csv, .jsonl or .parquet"):
        write_review(POOL, chosen(), tmp_path / "review.xlsx")


# ---- twice, and elsewhere ------------------------------------------------------------------------


def test_a_file_given_twice_counts_once(tmp_path):
    path = answered(written(tmp_path), lambda q: "no")
    assert len(read_reviews([path, path], NAMES)) == 4


def test_two_reviews_of_a_row_are_put_together_unless_they_disagree(tmp_path):
    for name, cells in (("a", ["yes", ""]), ("b", ["", "no"]), ("c", ["no", ""])):
        pd.DataFrame(
            {"text": ["x"], "joy": cells[:1], "grief": cells[1:], "review_row": [3]}
        ).to_csv(tmp_path / f"{name}.csv", index=False)
    a, b, c = (tmp_path / f"{name}.csv" for name in "abc")
    assert read_reviews([a, b], NAMES).Y.tolist() == [[1, 0]]
    with pytest.raises(DataError) as caught:
        read_reviews([a, c], NAMES)
    assert str(caught.value) == (
        f"'joy' is answered twice for one row: yes in {a}, line 2, no in {c}, line 2; correct one of them"
    )


def test_rows_are_found_in_a_pool_whose_rows_moved(tmp_path):
    review = read_reviews([answered(written(tmp_path), lambda q: "no")], NAMES, ["ticket_id"])
    moved = POOL.iloc[::-1].reset_index(drop=True)
    assert (rows_in_pool(review, moved) == 3 - review.rows).all()


def test_rows_of_another_pool_are_named():
    one, no = np.ones((1, 1)), np.zeros((1, 1), bool)
    review = Review(pd.DataFrame({"text": ["z"]}), one, no, ~no, np.array([0]), one)
    with pytest.raises(DataError, match="the reviewed row with text 'z' is not in the pool"):
        rows_in_pool(review, POOL)
    with pytest.raises(DataError, match="share no column with the pool"):
        rows_in_pool(review, POOL[["amount"]])


def test_rows_up_to_the_last_random_draw_are_a_sample(tmp_path):
    path = tmp_path / "review.csv"
    pd.DataFrame(
        {
            "text": list("abc"),
            "joy": [1, 0, 0],
            "review_origin": ["suggested", "random", "suggested"],
            "review_draw": [0.1, 0.2, 0.3],
            "review_seed": 0,
            "review_row": [0, 1, 2],
        }
    ).to_csv(path, index=False)
    assert read_reviews([path], NAMES[:1]).is_random.tolist() == [[True], [True], [False]]


def test_a_file_without_an_origin_is_no_random_sample(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("text,joy\na,1\n")
    assert read_reviews([path], NAMES).is_random.tolist() == [[False, False]]


# ---- tags ----------------------------------------------------------------------------------------


def test_tags_are_guesses_that_count_when_the_row_is_done(tmp_path):
    path = written(tmp_path, "jsonl", tags=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["review_tags"] for row in rows} <= {"", "joy", "grief"}
    assert any(row["review_tags"] for row in rows)
    first = rows[0]
    first["review_done"], first["review_tags"] = "yes", "joy"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    review = read_reviews([path], NAMES)
    assert len(review) == 1
    assert review.Y[0, 0] == 1
    first["review_tags"] = "joi"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(DataError, match="unknown label 'joi'; did you mean 'joy'"):
        read_reviews([path], NAMES)


# ---- cell by cell --------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_answer_is_in_the_file_at_once(tmp_path, suffix):
    path = written(tmp_path, suffix)
    sheet = Sheet(path)
    for number, question in enumerate(sheet.questions):
        assert sheet.first_open() == number
        sheet.answer(question, "no")
        assert Sheet(path).first_open() == number + 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_sheet_shows_the_pools_columns_as_they_were(tmp_path):
    sheet = Sheet(written(tmp_path))
    shown = [dict(sheet.shown(row)) for row in range(len(sheet))]
    assert {row["text"] for row in shown} == set(POOL["text"])
    assert set(shown[0]) == {"ticket_id", "text", "amount"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,joy\na,\n", "is no review file: it has no column review_labels"),
        (
            "text,review_labels,joy\na,joy,perhaps\n",
            "row 0, column 'joy': expected yes or no, found",
        ),
        ("text,review_labels,review_tags\na,joy,joy\n", "lists tags: edit its column review_tags"),
    ],
)
def test_sheets_that_cannot_be_answered(tmp_path, text, message):
    path = tmp_path / "review.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        Sheet(path)
