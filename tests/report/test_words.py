"""What tables say in words and in files: sentences, notes, looks, and cells that do no harm."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailbatch import compare
from tailbatch.analysis import Arm, Learner
from tailbatch.analysis.comparisons import Gain
from tailbatch.analysis.tables import Best, _fairness_checks, _Setting
from tailbatch.errors import printable
from tailbatch.report.figures import looks
from tailbatch.report.page import _latex_text, _markdown_text, csv_text
from tailbatch.report.sections.results import _in_words
from tailbatch.report.sections.summary import _gains_figure, _headline, sentences

RANDOM, HARD, ADAPTIVE = map(Arm, ("random", "hard", "adaptive"))


def change(arm=ADAPTIVE, metric="macro_auc", **values):
    """Return a row of `comparisons.overall`."""
    row = {"cells": 36, "win": 31, "tie": 1, "loss": 4, "percent": 2.1, "low": 0.9, "high": 3.4}
    return {"arm": arm, "metric": metric, **row, "p_holm": 0.01, **values}


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({}, "Macro-AUC +2.1% [+0.9, +3.4]"),
        ({"percent": 0.4, "low": -0.5, "high": 1.3, "p_holm": 0.4},
         "Macro-AUC +0.4% [-0.5, +1.3], n.s."),
        ({"percent": -1.0, "low": np.nan, "high": np.nan, "p_holm": np.nan},
         "Macro-AUC -1.0% (no interval)"),
        ({"percent": np.nan, "mean": 0.2, "baseline_mean": 0.0}, "Macro-AUC 0.2000 against 0.0000"),
    ],
)  # fmt: skip
def test_the_sentence_says_how_sure_it_is(values, end):
    (sentence,) = sentences(pd.DataFrame([change(**values)]), RANDOM).values()
    count = "better in 31 of 36 comparisons (1 tie)"
    assert sentence == f"adaptive against random: {end}; {count}"


def test_claims_come_in_their_order_and_the_best_strategy_first():
    rows = [
        change(HARD, percent=1.0),
        change(HARD, "minority_average_precision", percent=0.5),
        change(ADAPTIVE, percent=0.2),
        change(ADAPTIVE, "minority_average_precision", percent=3.0),
    ]
    said = sentences(pd.DataFrame(rows), RANDOM)
    assert list(said) == [ADAPTIVE, HARD]
    assert said[HARD].index("+0.5%") < said[HARD].index("Macro-AUC")


def best(
    p,
    percent=12.3,
    arm=ADAPTIVE,
    reference=RANDOM,
    learners=("mlp", "mlp"),
    ends=(4.1, 20.5),
    by_dataset=(),
    **more,
):
    first, second = map(Learner, learners)
    gain = Gain(percent, *ends, p, 1, 1, 1)
    made = _Setting(first, arm), "minority_average_precision", 0.312, _Setting(second, reference)
    return _headline(Best(*made, gain, by_dataset), **more)


def test_the_headline_names_a_winner_only_where_it_is_significant():
    assert best(0.012) == (
        "Best for rare labels: adaptive, Minority average precision 0.3120, +12.3% [+4.1, +20.5] "
        "against random on the test rows (p = 0.012): significant"
    )
    assert best(1e-6).endswith("(p < 0.001): significant")
    assert best(0.012, top=False).startswith(
        "Best on the validation rows for rare labels: adaptive"
    )
    other = best(0.012, arm=RANDOM, learners=("mlp asymmetric", "mlp"))
    assert "mlp asymmetric with random batches" in other
    assert "against mlp with random batches" in other
    classical = best(0.01, arm=Arm("none"), learners=("forest", "mlp"))
    assert classical.startswith("Best for rare labels: forest, ")


@pytest.mark.parametrize(
    ("made", "begins"),
    [
        ({"p": 0.3}, "Keep random batches: no strategy is clearly better for rare labels. Chosen on"),
        ({"p": 0.01, "percent": -3.5}, "Keep random batches: no strategy is clearly better"),
        ({"p": 0.3, "arm": RANDOM, "reference": HARD}, "Keep random batches: no strategy is clearly"),
        ({"p": 0.3, "arm": Arm("none"), "learners": ("forest", "mlp")},
         "No model is clearly better for rare labels. Chosen on the validation rows: forest"),
        ({"p": 0.3, "clear": ("hard",)},
         "Clearly better for rare labels than random: hard; but chosen on the validation rows: adap"),
        ({"p": np.nan}, "Too little ran to say what is best for rare labels: a test takes three folds"),
    ],
)  # fmt: skip
def test_where_nothing_is_clearly_better_the_headline_says_so_first(made, begins):
    assert best(**made).startswith(begins)
    assert "Best" not in best(**made)


def test_a_few_datasets_are_tested_one_by_one():
    change = Gain(5.0, 1.0, 9.0, 0.01, 1, 1, 1)
    both = ("scene", change, 0.02), ("yeast", change, 0.03)
    said = best(np.nan, by_dataset=both)
    assert said.startswith("Best for rare labels: adaptive")
    assert said.endswith("by dataset scene +5.0% (p = 0.020), yeast +5.0% (p = 0.030): significant")
    said = best(np.nan, by_dataset=(both[0], ("yeast", change, 0.2)))
    assert said.startswith("Keep random batches: no strategy is clearly better")


def test_the_headline_names_the_model_and_loss_wherever_several_are_compared():
    said = best(0.012, learners=("mlp weighted_bce",) * 2, several=True)
    assert said.startswith("Best for rare labels: mlp weighted_bce with adaptive batches, ")
    assert "against mlp weighted_bce with random batches" in said


def test_the_headline_calls_equal_settings_equal():
    assert best(1.0, percent=0.0, ends=(0.0, 0.0)) == (
        "No difference for rare labels: adaptive and random are the same on every fold, "
        "Minority average precision 0.3120"
    )


def test_a_change_that_rounds_to_zero_has_no_minus():
    (sentence,) = sentences(pd.DataFrame([change(percent=-0.01, low=-0.04)]), RANDOM).values()
    assert "Macro-AUC +0.0% [+0.0, +3.4]" in sentence


def test_a_comparison_says_that_a_model_has_no_batches():
    X = np.random.default_rng(0).random((60, 4))
    made = compare(X, X[:, :3] > 0.6, models=[{"name": "logistic", "C": 1}], n_folds=2)
    assert repr(made).endswith("no batches")
    assert "<td>no batches</td>" in made._repr_html_()
    assert made.table()["strategy"].tolist() == ["none"]


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
    text = _latex_text(pd.DataFrame({"label": pd.Series([name], dtype=object)}), "Labels")
    cell = text.split("\\midrule\n")[1].split(" \\\\\n")[0]
    dead = re.sub(r"\\text[a-z]+\{\}|\\[{}$&#%_]|\$\\(rightarrow|uparrow|downarrow|pm)\$", "", cell)
    assert not re.search(r"[\\{}$&#%_^~]", dead)


def test_markdown_cells_stay_in_their_column():
    name = "a | b </td> `code` [link](javascript:x) _em_"
    row = _markdown_text(pd.DataFrame({"label": [name]}), "Labels").splitlines()[-1]
    assert row == r"| a \| b &lt;/td> \`code\` \[link\](javascript:x) \_em\_ |"


# --- fairness


def runs_of_the_baseline(**plan):
    values = {"data": "scene", "learner": "mlp", "fold": [0, 1, 2], "seed": 0, "arm": [RANDOM] * 3}
    plan = {"steps": 500, "best_epoch": 10, "plan_epochs": 10, "plan_evaluate_every": 1} | plan
    return pd.DataFrame(values | plan)


@pytest.mark.parametrize(
    ("plan", "verdict", "detail"),
    [
        (
            {"plan_evaluate_every": 1_000_000},
            "cannot be told",
            "one evaluation, from which it cann",
        ),
        ({"plan_schedule": "cosine"}, "cannot be told", "or a cosine schedule, whose last epoch"),
        (
            {"plan_epochs": 1, "best_epoch": 1},
            "cannot be told",
            "runs of random have one evaluation",
        ),
        ({"best_epoch": 3}, "agrees", "none of 3 runs of random were best in their last epochs"),
        (
            {"best_epoch": [10, 2, 3]},
            "agrees",
            "only 1 of 3 runs of random were best in their last",
        ),
        ({}, "differs", "3 of 3 runs of random were best in their last epochs, so they were still"),
        ({"plan_evaluate_every": 100}, "differs", "3 of 3 runs of random were best in their last"),
    ],
)
def test_it_is_said_whether_the_best_epoch_tells_the_end_of_learning(plan, verdict, detail):
    checks = _in_words(_fairness_checks(runs_of_the_baseline(**plan)), RANDOM).set_index("check")
    found = checks.loc["End of the training and end of learning"]
    assert found["verdict"] == verdict
    assert detail in found["detail"]
    assert "only 0" not in found["detail"]


# --- figures


def test_no_interval_has_no_caps():
    rows = pd.DataFrame([change(), change(metric="macro_f", low=np.nan, high=np.nan)])
    axes = _gains_figure(rows, looks([RANDOM, ADAPTIVE], RANDOM)).axes[0]
    [bars] = axes.containers
    caps = np.concatenate([np.asarray(cap.get_xdata(), dtype=float) for cap in bars[1]])
    assert sorted(caps[np.isfinite(caps)].tolist()) == pytest.approx([0.9, 3.4])
    none = pd.DataFrame([change(low=np.nan, high=np.nan)])
    _gains_figure(none, looks([RANDOM, ADAPTIVE], RANDOM)).canvas.draw()
