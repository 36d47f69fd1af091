"""What tables say in words and in files: sentences, notes, looks, and cells that do no harm."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailbatch.analysis import Arm
from tailbatch.analysis.published import printed_tests
from tailbatch.errors import printable
from tailbatch.report.export import csv_text, latex_text, markdown_text
from tailbatch.report.sections.luck import printed_p_note
from tailbatch.report.sections.summary import sentences
from tailbatch.report.style import looks

RANDOM, HARD, ADAPTIVE = map(Arm, ("random", "hard", "adaptive"))


@pytest.mark.parametrize(
    ("percent", "low", "high", "end"),
    [
        (2.1, 0.9, 3.4, "Macro-F +2.1% [+0.9, +3.4]"),
        (0.4, -0.5, 1.3, "Macro-F +0.4% [-0.5, +1.3], which may be chance"),
        (-1.0, np.nan, np.nan, "Macro-F -1.0% (no interval)"),
    ],
)
def test_the_sentence_says_how_sure_it_is(percent, low, high, end):
    table = pd.DataFrame(
        {"arm": [ADAPTIVE], "metric": "macro_f", "cells": 36, "win": 31, "tie": 1, "loss": 4}
    ).assign(percent=percent, low=low, high=high)
    (sentence,) = sentences(table, RANDOM).values()
    assert sentence == f"adaptive beats random on 31 of 36 comparisons (1 tie); {end}"


def test_a_change_without_percent_is_said_with_both_means():
    table = pd.DataFrame(
        {"arm": [HARD], "metric": "macro_f", "cells": 1, "win": 1, "tie": 0, "loss": 0}
    ).assign(percent=np.nan, low=np.nan, high=np.nan, mean=0.2, baseline_mean=0.0)
    (sentence,) = sentences(table, RANDOM).values()
    assert sentence.endswith("; Macro-F 0.2000 against 0.0000")


def test_a_strategy_that_loses_is_not_said_to_win():
    table = pd.DataFrame(
        {"arm": [HARD], "metric": "macro_f", "cells": 10, "win": 2, "tie": 0, "loss": 8}
    ).assign(percent=-3.0, low=-4.0, high=-2.0)
    assert sentences(table, RANDOM)[HARD].startswith("hard is ahead of random on 2 of 10")


def test_the_note_names_the_printed_p_values_that_do_not_follow():
    tests = printed_tests()
    off = {(row.model, row.metric) for row in tests[~tests["follows"]].itertuples()}
    assert off == {
        ("PACA", "macro_f"), ("CLIF", "macro_f"), ("CLIF", "micro_f"), ("PACA", "ranking_loss"),
        ("C2AE", "hamming_loss"), ("PACA", "hamming_loss"), ("DELA", "hamming_loss"),
        ("C2AE", "one_error"), ("PACA", "one_error"), ("DELA", "one_error"),
    }  # fmt: skip
    note = printed_p_note(tests)
    assert note.startswith("Of the paper's 30 printed p-values, 10 do not follow")
    assert "DELA One error 0.1465 (its table gives 0.0398)" in note
    assert note.endswith("The verdict changes for DELA One error.")


def test_strategies_keep_their_colors_and_no_two_look_alike():
    names = ("random", "adaptive", "hard", "mine", "chain")
    few, many = (looks(map(Arm, some), RANDOM) for some in (names[:2], names))
    assert few[ADAPTIVE] == many[ADAPTIVE]
    assert len(set(many.values())) == len(many)
    assert len({(look.dash, look.marker) for look in many.values()}) == len(many)


@given(st.text(max_size=20))
def test_csv_cells_are_never_formulas(name):
    table = pd.DataFrame({"label": pd.Series([name], dtype=object), "gain": [-0.5]})
    ((cell, number),) = list(csv.reader(io.StringIO(csv_text(table), newline="")))[1:]
    assert cell.lstrip()[:1] not in {"=", "+", "-", "@"} or cell.startswith("'")
    assert cell.removeprefix("'") == printable(name).removeprefix("'")
    assert number == "-0.5"


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S")), max_size=20))
def test_latex_cells_have_no_live_characters(name):
    text = latex_text(pd.DataFrame({"label": pd.Series([name], dtype=object)}), "Labels")
    cell = text.split("\\midrule\n")[1].split(" \\\\\n")[0]
    dead = re.sub(r"\\text[a-z]+\{\}|\\[{}$&#%_]|\$\\rightarrow\$", "", cell)
    assert not re.search(r"[\\{}$&#%_^~]", dead)


def test_markdown_cells_stay_in_their_column():
    name = "a | b </td> `code` [link](javascript:x) _em_"
    row = markdown_text(pd.DataFrame({"label": [name]}), "Labels").splitlines()[-1]
    assert row == r"| a \| b &lt;/td> \`code\` \[link\](javascript:x) \_em\_ |"
