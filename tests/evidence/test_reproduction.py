"""The evaluation on real data: its arithmetic, and that the committed page follows from the records."""

import ast
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import reproduction.__main__ as reproduction
from reproduction import cells, measures, questions, records
from reproduction.drawing import write_drawn
from reproduction.figures import page as figures
from reproduction.measures import (
    Claim,
    compare_rates,
    decide,
    out_of_reach,
    rank_correlation,
    where_all_ran,
)
from reproduction.published import dataset_key, direction_counts, directions
from reproduction.table_2 import causes, costs, paper, speed, strategies

from tailbatch.analysis import Arm, Dataset, Learner, analyze
from tailbatch.analysis.comparisons import PAPER_METRICS, Gain, gain, sign
from tailbatch.results import ResultStore
from tailbatch.results.archive import Archive
from tailbatch.results.frames import gather
from tailbatch.stats import holm

RANDOM, ADAPTIVE, MINORITY = map(Arm, ("random", "adaptive", "minority"))


@pytest.fixture(scope="module")
def answers():
    """The committed records."""
    return reproduction.read()


@pytest.fixture(scope="module")
def evidence(answers):
    """The committed records of the paper's models."""
    return answers.evidence


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
        keys = {"data": Dataset(data), "learner": Learner(learner), "arm": Arm(arm)}
        rows.append({**keys, "fold": fold, "seed": 0})
        rows[-1] |= {"macro_f": value, "ranking_loss": 1 - value}
    return pd.DataFrame(rows)


def test_a_pair_is_the_same_cell_fold_and_seed(runs):
    both = measures.pairs(runs, ADAPTIVE, RANDOM, "macro_f")
    assert len(both) == 4
    assert (both["value"] - both["before"]).round(6).tolist() == [0.1, 0.1, -0.1, -0.1]
    assert len(measures.pairs(runs, MINORITY, RANDOM, "macro_f")) == 1


def test_a_gain_is_the_change_of_the_average_over_datasets(runs):
    found = gain(runs, ADAPTIVE, "macro_f")
    assert found.percent == pytest.approx(100 * ((0.7 + 0.2) / (0.6 + 0.3) - 1))
    assert (found.better_cells, found.cells, found.datasets) == (1, 2, 2)
    assert not found.clear
    assert gain(runs, Arm("chain"), "macro_f") is None


def test_learners_of_a_dataset_are_averaged_before_datasets_are(runs):
    more = runs[runs["data"] == Dataset("scene")].assign(learner=[Learner("mlp")] * 5)
    found = gain(pd.concat([runs, more.assign(macro_f=0.5)]), ADAPTIVE, "macro_f")
    scene = (0.7 + 0.5) / 2, (0.6 + 0.5) / 2
    assert found.percent == pytest.approx(100 * ((scene[0] + 0.2) / (scene[1] + 0.3) - 1))
    assert (found.cells, found.datasets) == (3, 2)


def test_where_less_is_better_a_fall_is_a_gain(runs):
    scene = runs[runs["data"] == Dataset("scene")]
    found = gain(scene, ADAPTIVE, "ranking_loss")
    assert found.percent == pytest.approx(25)
    assert np.isnan([found.low, found.high, found.p]).all()  # two folds
    assert not found.clear
    third = scene[scene["fold"] == 1].assign(fold=2, ranking_loss=[0.35, 0.2])
    more = gain(pd.concat([scene, third]), ADAPTIVE, "ranking_loss")
    assert more.low < more.percent < more.high
    assert sign("validation_ranking_loss") == -1
    assert sign("tuned_macro_f") == 1


def test_from_six_datasets_on_the_dataset_is_the_unit(runs):
    scene = runs[runs["data"] == Dataset("scene")]
    frames = [
        scene.assign(data=[Dataset(f"data{number}")] * 5, macro_f=scene["macro_f"] + number / 50)
        for number in range(6)
    ]
    few, six = (gain(pd.concat(frames[:count]), ADAPTIVE, "macro_f") for count in (5, 6))
    assert np.isnan([few.low, few.high, few.p]).all()  # no spread is borrowed from folds
    assert six.low < six.percent < six.high
    assert six.p == pytest.approx(2 / 2**6)


def test_holms_correction_is_over_all_claims(runs):
    scene = runs[runs["data"] == Dataset("scene")]
    frames = [scene.assign(data=[Dataset(f"data{number}")] * 5) for number in range(6)]
    many = pd.concat(frames)
    claims = [Claim(name, many, ADAPTIVE, RANDOM, "macro_f") for name in ("one", "two")]
    made = decide([*claims, Claim("none", many, Arm("chain"), RANDOM, "macro_f")])
    assert set(made) == {("one", "macro_f"), ("two", "macro_f")}
    assert [answer.p_holm for answer in made.values()] == pytest.approx([0.0625] * 2)
    assert not any(answer.significant for answer in made.values())
    assert decide(claims[:1])["one", "macro_f"].significant


def test_a_gain_is_written_with_its_interval():
    assert str(Gain(1.25, -0.5, 3.0, 0.1, 1, 2, 2)) == "+1.2 [-0.5, +3.0]"
    alone = Gain(1.25, np.nan, np.nan, np.nan, 1, 1, 1)
    assert (str(alone), alone.clear) == ("+1.2", False)
    assert Gain(1.25, 0.5, 2.0, 0.01, 1, 1, 1).clear
    assert Gain(-1.25, -2.0, -0.5, 0.01, 0, 1, 1).clear


def test_only_cells_and_folds_of_all_arms_are_shared(runs):
    shared = where_all_ran(runs, [RANDOM, ADAPTIVE, MINORITY])
    assert set(shared["data"]) == {Dataset("yeast")}
    assert set(shared["fold"]) == {1}
    assert sorted(map(str, shared["arm"])) == ["adaptive", "minority", "random"]


def test_too_little_to_test_or_correlate_is_not_a_number(runs):
    scene = runs[runs["data"] == Dataset("scene")]
    assert np.isnan(gain(scene, ADAPTIVE, "macro_f").p)
    two = pd.Series([1.0, 2.0])
    assert np.isnan(rank_correlation(two, two))
    assert rank_correlation(pd.Series([1.0, 2, 3]), pd.Series([3.0, 2, 1])) == pytest.approx(-1)


def test_a_direction_is_confirmed_contradicted_or_not_run(runs):
    # The paper's DELA gains in Macro-F on both datasets.
    others = dict.fromkeys(set(PAPER_METRICS) - {"macro_f"}, np.nan)
    cells = directions(runs.assign(**others))
    assert len(cells) == 390
    dela = cells[(cells["model"] == "DELA") & (cells["metric"] == "macro_f")].set_index("dataset")
    assert dela.loc["scene", "verdict"] == "confirmed"
    assert dela.loc["yeast", "verdict"] == "contradicted"
    assert dela.loc["bibtex", "verdict"] == "not run"
    assert (cells["verdict"] == "not run").sum() == 388


def test_the_committed_page_pictures_and_numbers_follow_from_the_committed_records(
    answers, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.argv", ["reproduction"])
    monkeypatch.setattr(reproduction, "read", lambda: answers)
    committed = {path.name: path for path in (reproduction.PAGE, reproduction.IN_BRIEF)}
    committed[reproduction.ARTICLE.name] = reproduction.ARTICLE
    for name in ("PAGE", "IN_BRIEF", "ARTICLE"):
        path = getattr(reproduction, name)
        monkeypatch.setattr(reproduction, name, tmp_path / path.name)
        (tmp_path / path.name).write_text(path.read_text())
    committed |= {
        name: reproduction.PICTURES / name for name in ("results.svg", "ladder.svg", "printed.svg")
    }
    committed |= {path.name: path for path in reproduction.PICTURES.glob("figure-*.svg")}
    monkeypatch.setattr(reproduction, "PICTURES", tmp_path)
    others = {
        "finetuning.md",
        "selection_evidence.md",
    }  # which have generators and tests of their own
    details = {
        path.name: path for path in reproduction.DETAILS.iterdir() if path.name not in others
    }
    monkeypatch.setattr(reproduction, "DETAILS", tmp_path / "details")
    reproduction.main()
    assert set(details) == {path.name for path in (tmp_path / "details").iterdir()}
    for name, path in details.items():
        assert (tmp_path / "details" / name).read_text() == path.read_text()
    assert {*committed, "details"} == {path.name for path in tmp_path.iterdir()}
    for name, path in committed.items():
        assert (tmp_path / name).read_text() == path.read_text(), f"{name}: run `make reproduction`"


def test_the_page_says_first_how_much_of_the_paper_was_run(evidence):
    text = reproduction.PAGE.read_text()
    ran = (directions(evidence.runs)["verdict"] != "not run").sum()
    assert ran >= 234
    assert f"**{ran} of 390 directions" in text[:200]
    assert len(text.split()) <= 3500


@pytest.mark.parametrize(
    ("arm", "name"),
    [
        (RANDOM, "random"),
        (Arm("adaptive", 16.0), "adaptive"),
        (Arm("minority", "imbalance"), "minority"),
        (Arm("minority", 16.0), "minority 16"),
        (Arm("hard", 8.0, '{"max_lag": 1}'), 'hard 8 {"max_lag": 1}'),
    ],
)
def test_names_of_arms_do_not_depend_on_other_runs(arm, name):
    assert arm.label == name


def test_learners_are_compared_by_the_rate_they_learn_at():
    learners = [Learner("mlp", rate=1e-3), Learner("mpvae"), Learner("mpvae", rate=1e-4)]
    runs = pd.DataFrame({"model": ["mlp", "mpvae", "mpvae"], "plan_lr": [1e-3, 1e-3, 1e-4]})
    runs = runs.assign(learner=learners, arm=[RANDOM] * 3)
    rates = cells.rates_of(runs)
    assert rates == ["1e-3", "1e-3", "1e-4"]
    found = compare_rates(runs, rates)
    assert found["learner"].tolist() == [Learner("mlp"), Learner("mpvae"), Learner("mpvae")]
    assert [arm.rate for arm in found["arm"]] == rates


def test_a_study_file_is_written_once_and_not_for_anothers_sake(tmp_path):
    folder, there = tmp_path / "table_2" / "records", records.HERE / "table_2" / "records"
    folder.mkdir(parents=True)
    for name in ("bibtex", "rate-paca"):
        shutil.copy(there / f"{name}.jsonl.gz", folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    store = ResultStore(tmp_path / "store")
    assert records.collect(store, tmp_path) == []
    store.add_missing(Archive(there / "rate-mpvae.jsonl.gz"))
    assert records.collect(store, tmp_path) == [folder / "rate-mpvae.jsonl.gz"]
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    (folder / "bibtex.jsonl.gz").unlink()
    assert records.collect(store, tmp_path) == [folder / "bibtex.jsonl.gz"]


def test_each_question_has_a_folder_with_its_records_which_stay_small():
    files = sorted(records.HERE.rglob("*.jsonl.gz"))
    assert {path.parent.name for path in files} == {"records"}
    rooms = {path.relative_to(records.HERE).parts[0] for path in files}
    assert rooms == {"table_2", "figures", "ladder", "convergence", "few_epochs", "finetune"}
    assert sum(path.stat().st_size for path in files) < 12.2e6


def test_every_run_is_one_of_the_plan(evidence):
    assert set(evidence.runs["digest"]) < paper.planned(evidence)


def test_sections_say_so_where_nothing_was_run(evidence):
    few = evidence.runs[evidence.runs["arm"] == RANDOM]
    empty = replace(evidence, runs=few)
    assert "not been run yet" in causes.script(empty)
    assert "not been run yet" in speed.rate(empty)
    assert "not been run yet" in strategies.pressures(empty)


def test_the_ladder_has_every_rung_on_six_datasets_and_three_folds(answers):
    for rung in questions.RUNGS.values():
        for arm in (RANDOM, ADAPTIVE):
            mine = answers.ladder[answers.ladder["arm"] == questions.at(rung, arm)]
            assert (mine["data"].nunique(), len(mine)) == (6, 18)


def test_the_conclusions_count_what_the_directions_count(evidence):
    text, counts = (
        paper.conclusions(evidence),
        direction_counts(directions(evidence.runs), ["model"]),
    )
    before, after = text.split("**not:**")
    for name, count in counts.iterrows():
        here = before if count["confirmed"] > count["contradicted"] else after
        assert f"{name} ({count['confirmed']} to {count['contradicted']})" in here
    assert "could have been seen" in text


def test_every_printed_cell_was_run_or_its_cost_was_measured(evidence):
    measured = pd.read_csv(costs.TABLE)
    known = set(zip(measured["model"], measured["dataset"], strict=True))
    cells = directions(evidence.runs)
    absent = cells[cells["verdict"] == "not run"]
    pairs = zip(absent["model"].str.casefold(), absent["dataset"].map(dataset_key), strict=True)
    assert set(pairs) <= known
    assert (measured["hours"] > 0).all()
    assert "not measured" not in paper.not_run(evidence)
    assert "not measured" not in paper.presets(evidence)
    assert {cell for cell in costs.missing() if cell[1]} <= set(
        measured[["model", "preset", "dataset"]].itertuples(index=False, name=None)
    )


def test_the_runs_of_a_figure_have_a_file_of_their_own(tmp_path):
    store, folder = ResultStore(tmp_path / "store"), tmp_path / "root"
    store.add_missing(records.committed("figures"))
    written = records.collect(store, folder)
    assert folder / "figures" / "records" / "figure-6.jsonl.gz" in written
    assert {path.parent.parent.name for path in written} == {"figures"}
    assert records.collect(store, folder) == []


def test_a_figure_is_shown_once_all_of_its_runs_are_in_the_records(answers):
    text, drawn = (
        figures.figures(answers.evidence, answers.figures),
        figures.pictures(answers.figures),
    )
    assert 6 in answers.figures
    for number in figures.SHOWN:
        assert (f"**Figure {number}.**" in text) == (number in answers.figures)
    assert all(f"![{alt}](assets/{name})" in text for name, alt, _ in drawn)
    nothing = figures.figures(answers.evidence, {})
    assert "| Figure 6 |" in nothing
    assert "**Figure 6.**" not in nothing


def test_figures_of_sample_losses_say_their_medians(answers, tmp_path):
    # The runs of Figure 6 keep sample losses, too; scene has samples with no and with one minority label.
    (bce, _) = figures.selection_losses(answers.figures[6])
    runs = answers.figures[6].evidence.runs
    wanted = set(runs.loc[(runs["model"] == "dela") & (runs["arm"] == bce), "digest"])
    kept = [run for run in records.committed("figures").records() if run.spec.digest in wanted]
    alone = analyze(gather(kept))
    medians = [f"{median:.3f}" for median in alone.losses["q50"]]
    first, fifth = (figures.SHOWN[number] for number in (1, 5))
    assert len(medians) == 4
    assert all(median in first.ours(alone) for median in medians)
    assert "not higher with each further label" in first.ours(alone)
    assert "after epoch 30" in fifth.ours(alone)
    (picture,) = first.pictures(alone)
    write_drawn(picture.draw, tmp_path / picture.name)
    assert "minority label" in (tmp_path / "figure-1.svg").read_text()


def test_a_page_with_unequal_folds_says_which_datasets_have_another_number(runs):
    runs = runs.assign(digest="a")
    said = questions.folds_by_dataset(runs)
    assert said == "2 folds each"
    more = runs[runs["data"] == Dataset("scene")].assign(fold=2)
    others = [runs.assign(data=[Dataset(name)] * len(runs)) for name in ("enron", "bibtex")]
    said = questions.folds_by_dataset(pd.concat([runs, more, *others]))
    assert said == "2 folds each (3 on scene)"


def test_every_strategy_at_convergence_is_compared_on_the_same_folds(answers):
    for runs in (answers.converged, answers.beside_classical):
        folds = {
            arm: set(zip(some["data"], some["fold"], strict=True))
            for arm, some in runs.groupby("arm")
        }
        first, *rest = folds.values()
        assert all(found == first for found in rest)
    assert Dataset("goemotions") in set(answers.converged["data"])
    assert answers.converged["data"].nunique() == 16


def test_the_page_computes_nothing_itself():
    # What reproduction/ shows is computed by tailbatch.analysis or by its own measures and tables.
    arithmetic = {"groupby", "agg", "pivot", "pivot_table", "value_counts"}
    arithmetic |= {"mean", "median", "quantile", "rank", "std", "var", "sum", "corr"}
    paths = [
        *records.HERE.glob("*.py"),
        *records.HERE.glob("table_2/*.py"),
        *records.HERE.glob("figures/*.py"),
    ]
    for path in paths:
        if path.name in ("measures.py", "published.py", "agreement.py"):
            continue
        called = {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & arithmetic, path.name


def test_claims_on_too_few_datasets_are_named_as_such():
    def tested(p, datasets):
        return measures.Tested(Gain(1.0, 0.5, 2.0, p, 1, datasets, datasets), p)

    made = {("six", "macro_f"): tested(2 / 2**6, 6), ("ten", "macro_f"): tested(2 / 2**10, 10)}
    assert out_of_reach(made) == []
    made |= {("more", "macro_f"): tested(2 / 2**6, 6)}
    few = out_of_reach(made)
    assert few == [("six", "macro_f"), ("more", "macro_f")]
    # The correction itself agrees, however small the other p-values are.
    p_holm = holm([claim.gain.p for claim in made.values()])
    assert [key for key, p in zip(made, p_holm, strict=True) if p >= 0.05] == few
