import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gaussian_kde

from report.synthetic import make_arrays, make_record, make_specs, make_store
from tailbatch.errors import printable
from tailbatch.report.analysis import analyze
from tailbatch.report.curves import (
    agreement_panels,
    batch_size_panel,
    batch_size_panels,
    convergence,
    loss_agreement,
    loss_density,
    mean_curves,
    pressure_panel,
    sample_losses,
    smoothed,
)
from tailbatch.report.evidence import gather, read_store
from tailbatch.report.export import csv_text, latex_text, markdown_text
from tailbatch.report.fairness import fairness
from tailbatch.report.labels import label_facts, minority_gains
from tailbatch.report.published import beside_published, printed, printed_p_note, printed_tests
from tailbatch.report.significance import mean_ranks, wilcoxon_by_model
from tailbatch.report.style import looks
from tailbatch.report.tables import comparisons, overall, results, sentences, tuned
from tailbatch.results import ResultStore, RunRecord


def runs_of(rows, **metrics):
    """Return a hand-made frame: rows are (arm, fold, seed), one value of each metric a row."""
    frame = pd.DataFrame(rows, columns=["arm", "fold", "seed"]).assign(**metrics)
    return frame.assign(
        strategy=frame["arm"], data="scene", learner="mlp", digest=range(len(frame))
    )


@pytest.fixture(scope="module")
def grid():
    specs = make_specs(pressures=(2.0, 16.0, 64.0), random_seeds=3)
    return gather(map(make_record, specs), make_arrays)


def test_means_are_over_the_folds_and_seeds_that_all_strategies_have():
    rows = [("random", 0, 0), ("random", 1, 0), ("random", 0, 1), ("hard", 0, 0), ("hard", 1, 0)]
    table = results(runs_of(rows, macro_f=[0.2, 0.4, 0.9, 0.5, 0.7]), ["macro_f"])
    assert table.set_index("arm")["mean"].round(6).to_dict() == {"random": 0.3, "hard": 0.6}
    assert table.set_index("arm")["best"].to_dict() == {"random": False, "hard": True}
    assert (table["runs"] == 2).all()


def test_a_lower_loss_is_a_gain_and_printed_equals_are_ties():
    rows = [("random", 0, 0), ("hard", 0, 0)]
    runs = runs_of(rows, one_error=[0.4, 0.3], macro_f=[0.2, 0.20001], micro_f=[0.5, 0.4])
    table = comparisons(runs, ["one_error", "macro_f", "micro_f"]).set_index("metric")
    assert table["outcome"].to_dict() == {"one_error": "win", "macro_f": "tie", "micro_f": "loss"}
    assert table.loc["one_error", "gain"] == pytest.approx(0.1)
    assert table.loc["one_error", "percent"] == pytest.approx(25)


def test_printed_ties_share_the_mark_unless_all_are_equal():
    rows = [("random", 0, 0), ("hard", 0, 0), ("adaptive", 0, 0)]
    table = results(runs_of(rows, macro_f=[0.1, 0.2, 0.20001], micro_f=0.3), ["macro_f", "micro_f"])
    best = table.pivot(index="arm", columns="metric", values="best")
    assert best["macro_f"].to_dict() == {"random": False, "hard": True, "adaptive": True}
    assert not best["micro_f"].any()


def test_an_interval_holds_the_mean_and_needs_two_runs():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(4)]
    runs = runs_of(rows, macro_f=[0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.4, 0.5])
    table = overall(runs, ["macro_f"]).iloc[0]
    assert table["percent"] == pytest.approx(100 * (0.4 / 0.2 - 1))
    assert table["low"] < table["percent"] < table["high"]
    alone = overall(runs[runs["fold"] == 0], ["macro_f"]).iloc[0]
    assert np.isnan(alone["low"])
    assert np.isnan(alone["high"])


def test_a_loss_that_halves_is_a_change_for_the_better():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    runs = runs_of(rows, one_error=[0.4, 0.6, 0.5, 0.2, 0.3, 0.2])
    table = overall(runs, ["one_error"]).iloc[0]
    assert table["percent"] == pytest.approx(100 * (1 - 0.7 / 1.5))
    assert 0 < table["low"] <= table["percent"] <= table["high"]


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
        {"arm": ["adaptive"], "metric": "macro_f", "cells": 36, "win": 31, "tie": 1, "loss": 4}
    ).assign(percent=percent, low=low, high=high)
    (sentence,) = sentences(table, "random").values()
    assert sentence == f"adaptive beats random on 31 of 36 comparisons (1 tie); {end}"


def test_a_baseline_of_zero_has_no_percent():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    table = overall(runs_of(rows, macro_f=[0.0, 0.0, 0.0, 0.1, 0.2, 0.3]), ["macro_f"])
    assert table["percent"].isna().all()
    (sentence,) = sentences(table, "random").values()
    assert sentence.endswith("; Macro-F 0.2000 against 0.0000")


def test_a_strategy_that_loses_is_not_said_to_win():
    table = pd.DataFrame(
        {"arm": ["hard"], "metric": "macro_f", "cells": 10, "win": 2, "tie": 0, "loss": 8}
    ).assign(percent=-3.0, low=-4.0, high=-2.0)
    assert sentences(table, "random")["hard"].startswith("hard is ahead of random on 2 of 10")


def test_the_tuned_choice_does_not_look_at_test_results(grid):
    runs = grid.runs[grid.runs["strategy"].isin(["random", "adaptive"])]
    rng = np.random.default_rng(0)
    shuffled = runs.assign(macro_f=rng.random(len(runs)), macro_auc=rng.random(len(runs)))
    assert tuned(runs)["digest"].tolist() == tuned(shuffled)["digest"].tolist()


def test_the_tuned_comparison_gives_both_sides_as_many_tries(grid):
    runs = grid.runs[grid.runs["strategy"].isin(["random", "adaptive"])]
    chosen = tuned(runs)
    assert set(chosen["arm"]) == {"random (best of 3)", "adaptive (best of 3)"}
    cell = runs[(runs["data"] == "scene") & (runs["learner"] == "mlp") & (runs["fold"] == 0)]
    for strategy in ("random", "adaptive"):
        some = cell[cell["strategy"] == strategy]
        best = some.loc[some["validation_macro_auc"].idxmax(), "digest"]
        assert best in set(chosen["digest"])
    assert tuned(runs[runs["seed"] < 2]).empty  # two seeds are no match for three pressures


def test_names_are_as_short_as_the_store_allows():
    specs = make_specs(datasets=("scene",), models=("mlp",), folds=1, batch_sizes=(128, 256))
    specs += make_specs(datasets=("scene",), models=("mlp",), folds=1, pressures=(64.0,))
    runs = gather(map(make_record, specs)).runs
    assert set(runs["data"]) == {"scene, batch size 128", "scene, batch size 256"}
    assert set(runs["arm"]) == {"random", "hard", "hard 64", "adaptive", "adaptive 64"}


def test_fairness_finds_a_warm_up_that_differs(grid):
    checks = fairness(grid).set_index("check")
    assert (checks["verdict"] == "agrees").all()
    spoiled = grid.runs.copy()
    spoiled.loc[spoiled.index[0], "warm_up_digest"] = "another"
    checks = fairness(type(grid)(spoiled, grid.curves, grid.labels, grid.losses)).set_index("check")
    assert checks.loc["Weights at the end of the warm-up", "verdict"] == "differs"
    assert "of 12 groups" in checks.loc["Weights at the end of the warm-up", "detail"]


@pytest.mark.parametrize(("best", "verdict"), [(1, "agrees"), (10, "differs")])
def test_a_baseline_that_is_still_learning_is_no_fair_one(grid, best, verdict):
    runs = grid.runs.assign(plan_epochs=10, best_epoch=5)
    runs.loc[runs["arm"] == "random", "best_epoch"] = best
    checks = fairness(type(grid)(runs, grid.curves, grid.labels, grid.losses)).set_index("check")
    found = checks.loc["End of the training and end of learning"]
    assert found["verdict"] == verdict
    assert "runs of random were best in their last epochs" in found["detail"]


def test_convergence_says_when_the_baselines_lowest_loss_is_reached():
    curves = pd.DataFrame(
        {
            "data": "scene",
            "learner": "mlp",
            "arm": ["random"] * 3 + ["adaptive"] * 3,
            "number": [1, 2, 3] * 2,
            "seconds": [1.0, 2.0, 3.0, 1.5, 3.0, 4.5],
            "training_bce": [0.5, 0.4, 0.3, 0.45, 0.29, 0.28],
            "validation_macro_auc": [0.6, 0.7, 0.65, 0.6, 0.6, 0.8],
        }
    )
    table = convergence(curves, pd.DataFrame()).set_index("arm")
    assert table.loc["adaptive", "seconds_to_target"] == 3.0
    assert table.loc["adaptive", "time_change"] == pytest.approx(0.0)
    assert table.loc["random", ["peak_auc", "peak_epoch"]].tolist() == [0.7, 2.0]
    slower = convergence(curves.assign(training_bce=[0.5, 0.4, 0.3, 0.9, 0.8, 0.7]), pd.DataFrame())
    assert np.isnan(slower.set_index("arm").loc["adaptive", "time_change"])


def test_a_curve_is_the_mean_of_the_same_runs_all_along(grid):
    curves = mean_curves(grid)
    line = curves[(curves["data"] == "scene") & (curves["learner"] == "mlp")]
    line = line[line["arm"] == "random"]
    runs = grid.runs[(grid.runs["data"] == "scene") & (grid.runs["learner"] == "mlp")]
    digests = runs.loc[(runs["arm"] == "random") & (runs["seed"] == 0), "digest"]
    epochs = grid.curves[grid.curves["digest"].isin(digests)]
    expected = epochs.groupby("number")["training_bce"].mean()
    assert line["training_bce"].tolist() == pytest.approx(expected.tolist())


def test_the_pressure_panel_compares_the_same_folds_and_seeds(grid):
    panel = pressure_panel(grid, ["macro_f"])
    cell = panel[(panel["data"] == "scene") & (panel["learner"] == "mlp")]
    adaptive = cell[cell["strategy"] == "adaptive"]
    assert adaptive["pressure"].dropna().tolist() == [2.0, 16.0, 64.0]
    runs = grid.runs[(grid.runs["data"] == "scene") & (grid.runs["learner"] == "mlp")]
    plain = runs[(runs["strategy"] == "random") & (runs["seed"] == 0)]["macro_f"].mean()
    assert adaptive.loc[adaptive["pressure"].isna(), "macro_f"].item() == pytest.approx(plain)


def test_batch_sizes_are_compared_where_there_are_several():
    specs = make_specs(models=("mlp",), folds=2, batch_sizes=(256, 512))
    table = batch_size_panel(gather(map(make_record, specs)).runs)
    assert set(table["plan_batch_size"]) == {256, 512}
    assert set(table["dataset"]) == {"scene", "yeast"}
    panels = batch_size_panels(table)
    assert [panel.title for panel in panels] == ["Batch size 256", "Batch size 512"]
    assert panels[0].categories == ["scene", "yeast"]
    value = table.set_index(["dataset", "arm", "plan_batch_size"])["macro_auc"]
    assert panels[1].values["adaptive"][1] == value["yeast", "adaptive", 512]
    assert batch_size_panel(gather(map(make_record, make_specs(folds=1))).runs).empty


def test_label_gains_are_against_the_baseline_on_the_same_runs(grid):
    facts = label_facts(grid)
    assert facts.loc[facts["arm"] == "random", "gain"].isna().all()
    summary = minority_gains(facts).set_index(["arm", "kind"])
    helped = summary.loc[("adaptive", "minority labels")]
    assert helped["gain"] > summary.loc[("adaptive", "other labels"), "gain"] > 0
    assert helped["exposure"] > 1


def test_published_numbers_stand_beside_ours_with_their_direction():
    ours = pd.DataFrame(
        {
            "data": ["scene", "scene"],
            "learner": "dela",
            "arm": ["random", "adaptive"],
            "metric": "one_error",
            "mean": [0.30, 0.20],
        }
    )
    paper = pd.DataFrame(
        {
            "model": "DELA",
            "dataset": "scene",
            "metric": "one_error",
            "strategy": ["random", "adaptive"],
        }
    ).assign(value=[0.25, 0.26])
    (row,) = beside_published(ours, {"scene": ("scene", "paper")}, paper).to_dict("records")
    assert row["agrees"] is False
    assert row["difference"] == pytest.approx(-0.06)
    assert row["note"] == ""


def test_other_label_columns_are_said_to_be_others():
    ours = pd.DataFrame(
        {"data": "llog-f", "learner": "dela", "arm": ["random", "adaptive"], "metric": "macro_f"}
    ).assign(mean=[0.1, 0.2])
    table = beside_published(ours, {"llog-f": ("llog-f", "paper")}, printed("results"))
    assert table["note"].unique().tolist() == ["the paper measured other label columns"]
    table = beside_published(ours, {"llog-f": ("llog-f", "as-published")}, printed("results"))
    assert table["note"].unique().tolist() == [""]


def test_every_dataset_of_the_paper_is_found_by_its_catalog_name():
    paper = printed("results")
    names = ["corel5k", "rcv1subset1", "rcv1subset2", "rcv1subset3", "yahoo-arts", "cal500"]
    names += ["yahoo-business", "tmc2007", "bibtex", "enron", "yeast", "llog-f", "scene"]
    ours = pd.DataFrame(
        [(name, "c2ae", arm, "macro_f", 0.1) for name in names for arm in ("random", "adaptive")],
        columns=["data", "learner", "arm", "metric", "mean"],
    )
    table = beside_published(ours, {name: (name, "paper") for name in names}, paper)
    assert table["data"].tolist() == sorted(names)


def test_wilcoxon_by_model_has_the_papers_outcome_beside_it():
    specs = make_specs(datasets=[f"data{place}" for place in range(6)], models=("dela",), folds=2)
    runs = gather(map(make_record, specs)).runs
    table = wilcoxon_by_model(comparisons(runs, ["macro_f"]), printed_tests()).set_index("arm")
    assert table.loc["adaptive", "p"] == pytest.approx(0.03125)
    assert table.loc["adaptive", "outcome"] == "win"
    assert table.loc["adaptive", "printed_outcome"] == "win"
    assert table.loc["adaptive", ["printed_p", "table_p"]].round(4).tolist() == [0.0171, 0.0171]
    assert pd.isna(table.loc["hard", "printed_outcome"])


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


def test_densities_hold_all_samples_and_minority_samples_lose_more(grid):
    losses = sample_losses(grid)
    density = loss_density(losses, points=400)
    keys = ["data", "learner", "arm", "epoch", "minority_labels"]
    assert set(density["minority_labels"]) == {"0", "1", "2", "3", "any"}
    for _, line in density.groupby(keys):
        step = np.diff(line["loss"]).mean()
        assert 0.9 <= line["density"].sum() * step <= 1.02  # a percent lies beyond the grid
    mean = density["loss"] * density["density"]
    mean = mean.groupby([density[key] for key in keys]).sum().unstack()
    assert (mean["3"] > mean["0"]).all()


def test_equal_losses_have_no_density():
    assert smoothed(np.full((1, 99), 0.5), np.array([4.0]), np.linspace(0, 1, 5)) is None
    assert smoothed(np.empty((0, 99)), np.empty(0), np.linspace(0, 1, 5)) is None


def test_a_density_equals_that_of_the_losses_themselves():
    losses = np.random.default_rng(0).gamma(4.0, 0.1, 2000)
    grid = np.linspace(0, 1.2, 30)
    quantiles = np.percentile(losses, range(1, 100))[None]
    spread = min(np.subtract(*np.quantile(losses, (0.75, 0.25))) / 1.34, losses.std())
    kernel = gaussian_kde(losses, bw_method=0.9 * spread * 2000**-0.2 / losses.std(ddof=1))
    expected = kernel(grid) + kernel(-grid)
    ours = smoothed(quantiles, np.array([2000.0]), grid)
    assert np.abs(ours - expected).max() < 0.05 * expected.max()  # two percent are cut off


def test_the_correlation_of_the_two_losses_is_pearsons_at_every_kept_epoch():
    specs = make_specs(datasets=("scene",), strategies=("adaptive",), folds=2)
    specs += make_specs(datasets=("scene",), strategies=("adaptive",), folds=2, pressures=(64.0,))
    evidence = gather(map(make_record, specs), make_arrays)
    table = loss_agreement(evidence).set_index(["learner", "arm", "epoch"])
    expected = np.mean(
        [
            np.corrcoef(arrays["sample_losses_3"], arrays["sample_objectives_3"])[0, 1]
            for arrays in map(make_arrays, specs[:2])
        ]
    )
    assert specs[0].model == "mlp"
    assert table.loc[("mlp", "adaptive", "3"), "loss_correlation"] == pytest.approx(expected)
    assert table.loc[("mlp", "adaptive", "3"), "runs"] == 2
    panels = agreement_panels(table.reset_index())
    assert [panel.title for panel in panels] == ["Epoch 3", "Epoch 12"]
    assert panels[0].categories == ["dela", "mlp"]
    assert panels[0].values["adaptive"][1] == pytest.approx(expected)
    assert set(panels[0].values) == {"adaptive", "adaptive 64"}


def test_ranks_need_three_strategies(grid):
    ranks = mean_ranks(results(grid.runs, ["macro_f"]), ["macro_f"])
    assert ranks["arm"].tolist()[0] == "adaptive"
    two = results(grid.runs[grid.runs["strategy"] != "hard"], ["macro_f"])
    assert mean_ranks(two, ["macro_f"]).empty


def test_missing_and_failed_runs_have_the_names_of_their_records(tmp_path):
    specs = make_specs(datasets=("scene",), models=("mlp",))
    evidence = read_store(make_store(tmp_path, specs, lost=(0,), failed=(8,), arrays=False))
    reasons = dict(zip(evidence.absent["arm"], evidence.absent["reason"], strict=True))
    assert reasons == {"random": "", "adaptive": "the loss is no longer a number"}
    table = results(evidence.runs, ["macro_f"])
    assert (table["runs"] == 1).all()  # folds 0 and 2 have lost a partner


def test_records_that_lie_elsewhere_make_the_same_tables(tmp_path):
    specs = make_specs(folds=2)
    store = make_store(tmp_path, specs, arrays=False)
    lines = [record.to_json() for record in store.records()]
    ours, theirs = (
        analyze(gather(store.records())),
        analyze(gather(RunRecord.from_json(line) for line in lines)),
    )
    pd.testing.assert_frame_equal(ours.results, theirs.results)
    pd.testing.assert_frame_equal(ours.labels, theirs.labels)


def test_every_table_can_be_empty():
    analysis = analyze(gather([]))
    assert analysis.results.empty
    assert analysis.sentences == {}


def test_one_run_alone_is_no_comparison(tmp_path):
    spec = make_specs(datasets=("scene",), models=("mlp",), strategies=("adaptive",), folds=1)
    analysis = analyze(read_store(make_store(tmp_path, spec)))
    assert len(analysis.results) > 0
    assert analysis.overall.empty
    assert analysis.baseline == "adaptive"


def test_a_metric_that_is_undefined_somewhere_is_compared_elsewhere():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(2)]
    table = comparisons(runs_of(rows, macro_f=[np.nan, 0.2, 0.3, 0.4]), ["macro_f"])
    assert table["pairs"].item() == 1
    assert table["gain"].item() == pytest.approx(0.2)


def test_strategies_keep_their_colors_and_no_two_look_alike():
    few, many = (
        looks(["random", "adaptive"], "random"),
        looks(["random", "adaptive", "hard", "mine", "chain"], "random"),
    )
    assert few["adaptive"] == many["adaptive"]
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


def test_a_damaged_record_is_left_out_of_the_report(tmp_path):
    store = make_store(tmp_path, make_specs(datasets=("scene",), models=("mlp",)), arrays=False)
    victim = next((tmp_path / "runs").glob("*.json"))
    victim.write_text("{")
    evidence = read_store(ResultStore(store.path))
    assert len(evidence.runs) == 8
    assert evidence.absent["digest"].tolist() == [victim.stem]
