"""The evaluation on real data: its arithmetic, and that what is committed follows from the records."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import reproduction.__main__ as reproduction
from reproduction import answers, causes, choice, paper, speed, strategies
from reproduction.gains import (
    Gain,
    gain,
    mean_rank,
    pairs,
    rank_correlation,
    sign,
    signed_rank_p,
    where_all_ran,
)

from tailbatch.report.tables import PAPER_METRICS


@pytest.fixture(scope="module")
def evidence():
    """The committed records."""
    return reproduction.read()


@pytest.fixture
def runs():
    """Two cells of two folds; the third arm lacks a fold, and a repeated run must not count twice."""
    rows = []
    for data, learner, arm, fold, value in [
        ("scene", "dela", "random", 0, 0.5),
        ("scene", "dela", "random", 1, 0.7),
        ("scene", "dela", "adaptive", 0, 0.6),
        ("scene", "dela", "adaptive", 0, 0.6),
        ("scene", "dela", "adaptive", 1, 0.8),
        ("yeast", "dela", "random", 0, 0.3),
        ("yeast", "dela", "random", 1, 0.3),
        ("yeast", "dela", "adaptive", 0, 0.2),
        ("yeast", "dela", "adaptive", 1, 0.2),
        ("yeast", "dela", "minority", 1, 0.4),
    ]:
        rows.append({"data": data, "learner": learner, "arm": arm, "fold": fold, "seed": 0})
        rows[-1] |= {"macro_f": value, "ranking_loss": 1 - value}
    return pd.DataFrame(rows)


def test_a_pair_is_the_same_cell_fold_and_seed(runs):
    both = pairs(runs, "adaptive", "random", "macro_f")
    assert len(both) == 4
    assert (both["value"] - both["before"]).round(6).tolist() == [0.1, 0.1, -0.1, -0.1]
    assert len(pairs(runs, "minority", "random", "macro_f")) == 1


def test_a_gain_is_the_change_of_the_average_over_cells(runs):
    found = gain(runs, "adaptive", "macro_f")
    assert found.percent == pytest.approx(100 * ((0.7 + 0.2) / (0.6 + 0.3) - 1))
    assert (found.better_cells, found.cells, found.pairs) == (1, 2, 4)
    assert not found.sure
    assert gain(runs, "chain", "macro_f") is None


def test_where_less_is_better_a_fall_is_a_gain(runs):
    scene = runs[runs["data"] == "scene"]
    found = gain(scene, "adaptive", "ranking_loss")
    assert found.percent == pytest.approx(25)
    assert found.low < found.percent < found.high
    assert not found.sure  # two folds
    assert sign("validation_ranking_loss") == -1
    assert sign("tuned_macro_f") == 1


def test_a_gain_is_written_with_its_interval():
    assert str(Gain(1.25, -0.5, 3.0, 1, 2, 10)) == "+1.2 [-0.5, +3.0]"
    alone = Gain(1.25, np.nan, np.nan, 1, 1, 1)
    assert (str(alone), alone.sure) == ("+1.2", False)
    assert Gain(1.25, 0.5, 2.0, 1, 1, 5).sure
    assert Gain(-1.25, -2.0, -0.5, 0, 1, 5).sure


def test_ranks_are_taken_where_all_arms_ran(runs):
    assert mean_rank(runs, ["random", "adaptive"], "macro_f") == {"random": 1.5, "adaptive": 1.5}
    assert mean_rank(runs, ["random", "adaptive", "minority"], "macro_f") == {
        "random": 2.0,
        "adaptive": 3.0,
        "minority": 1.0,
    }
    assert mean_rank(runs, ["random", "chain"], "macro_f") == {}


def test_only_cells_and_folds_of_all_arms_are_shared(runs):
    shared = where_all_ran(runs, ["random", "adaptive", "minority"])
    assert set(shared["data"]) == {"yeast"}
    assert set(shared["fold"]) == {1}
    assert sorted(shared["arm"]) == ["adaptive", "minority", "random"]


def test_too_little_to_test_or_correlate_is_not_a_number(runs):
    assert np.isnan(signed_rank_p(runs[runs["data"] == "scene"], "adaptive", "macro_f", "random"))
    two = pd.Series([1.0, 2.0])
    assert np.isnan(rank_correlation(two, two))
    assert rank_correlation(pd.Series([1.0, 2, 3]), pd.Series([3.0, 2, 1])) == pytest.approx(-1)


def test_a_direction_is_confirmed_contradicted_or_not_run(runs):
    # The paper's DELA gains in Macro-F on both datasets.
    others = dict.fromkeys(set(PAPER_METRICS) - {"macro_f"}, np.nan)
    cells = paper.directions(runs.assign(dataset=runs["data"], **others))
    assert len(cells) == 390
    dela = cells[(cells["model"] == "DELA") & (cells["metric"] == "macro_f")].set_index("dataset")
    assert dela.loc["scene", "verdict"] == "confirmed"
    assert dela.loc["yeast", "verdict"] == "contradicted"
    assert dela.loc["bibtex", "verdict"] == "not run"
    assert (cells["verdict"] == "not run").sum() == 388


def test_the_committed_page_pictures_and_readme_follow_from_the_committed_records(
    evidence, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.argv", ["reproduction"])
    monkeypatch.setattr(reproduction, "read", lambda: evidence)
    committed = {path.name: path for path in (reproduction.PAGE, reproduction.README)}
    for name in ("PAGE", "README"):
        path = getattr(reproduction, name)
        monkeypatch.setattr(reproduction, name, tmp_path / path.name)
        (tmp_path / path.name).write_text(path.read_text())
    committed |= {
        name: reproduction.PICTURES / name
        for name in ("results.svg", "imbalance.svg", "printed.svg")
    }
    monkeypatch.setattr(reproduction, "PICTURES", tmp_path)
    reproduction.main()
    assert set(committed) == {path.name for path in tmp_path.iterdir()}
    for name, path in committed.items():
        assert (tmp_path / name).read_text() == path.read_text(), f"{name}: run `make reproduction`"


@pytest.mark.parametrize(
    ("strategy", "pressure", "options", "name"),
    [
        ("random", "", "{}", "random"),
        ("adaptive", "16", "{}", "adaptive"),
        ("minority", "imbalance", "{}", "minority"),
        ("minority", "16", "{}", "minority 16"),
        ("hard", "8", '{"max_lag": 1}', 'hard 8 {"max_lag": 1}'),
    ],
)
def test_names_of_arms_do_not_depend_on_other_runs(strategy, pressure, options, name):
    run = {
        "strategy": strategy,
        "selection_pressure": pressure,
        "strategy_options": options,
    }
    assert reproduction.arm(run) == name


def test_learners_are_compared_by_the_rate_they_learn_at():
    runs = pd.DataFrame(
        [
            ("mlp", "mlp {}, lr 0.001", 1e-3),
            ("mpvae", "mpvae", 1e-4),
            ("mpvae", "mpvae, lr 1e-05", 1e-5),
        ],
        columns=["model", "learner", "plan_lr"],
    )
    found = speed.by_rate(runs)
    assert found["learner"].tolist() == ["mlp {}", "mpvae", "mpvae"]
    assert found["rate"].tolist() == [
        "1e-3",
        "1e-3",
        "1e-4",
    ]  # MPVAE learns at ten times its plan's


def test_every_run_is_one_of_the_plan(evidence):
    assert set(evidence.runs["digest"]) < paper.planned(evidence)


def test_sections_say_so_where_nothing_was_run(evidence):
    few = evidence.runs[evidence.runs["arm"] == "random"]
    empty = replace(evidence, runs=few)
    assert "not known" in answers.in_words(empty)
    assert "not been run yet" in causes.script(empty)
    assert "not been run yet" in strategies.reweighting(empty)
    assert "not been run yet" in speed.rate(empty)
    assert "Not enough runs yet" in choice.default(empty)
    assert "not been run yet" in strategies.pressures(empty)
    assert "not been run yet" in choice.tuning(empty)
