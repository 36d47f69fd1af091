from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import gaussian_kde

from report.synthetic import make_arrays, make_record, make_specs, make_store
from tailbatch.analysis import Arm, Dataset, Learner, analyze
from tailbatch.analysis.comparisons import comparisons, overall, results
from tailbatch.analysis.curves import (
    _convergence,
    _loss_density,
    _pressure_panel,
    _sample_losses,
    _smoothed,
    label_facts,
    labels_by_name,
    mean_curves,
    minority_gains,
)
from tailbatch.analysis.keys import named
from tailbatch.analysis.tables import (
    _best_setting,
    _between_models,
    _fairness_checks,
    _mean_ranks,
    _tuned,
    _wilcoxon_by_model,
    _with_epochs,
    still_learning,
)
from tailbatch.report.sections.results import _in_words
from tailbatch.results import ResultStore, RunRecord
from tailbatch.results.frames import Evidence, gather, read_store
from tailbatch.selection.make import STRATEGIES
from tailbatch.stats import corrected_t, holm

SCENE, MLP, DELA = Dataset("scene"), Learner("mlp"), Learner("dela")
RANDOM, HARD, ADAPTIVE = Arm("random"), Arm("hard"), Arm("adaptive")


def runs_of(rows, **metrics):
    """Return a hand-made frame: rows are (arm, fold, seed), one value of each metric a row."""
    frame = pd.DataFrame(rows, columns=["arm", "fold", "seed"]).assign(**metrics)
    arms = [Arm(name) for name in frame["arm"]]
    keys = {"data": [SCENE] * len(frame), "learner": [MLP] * len(frame)}
    return frame.assign(arm=arms, strategy=frame["arm"], digest=range(len(frame)), **keys)


def by_name(table, column):
    """Return a column of a table by the label of its arm."""
    return dict(zip(map(str, table["arm"]), table[column], strict=True))


def of(table, arm, data="scene", learner="mlp"):
    """Return the rows of an arm in one cell, each named by its label."""
    keys = {"data": data, "learner": learner, "arm": arm}
    chosen = [table[name].map(str) == text for name, text in keys.items() if text]
    return table[np.logical_and.reduce(chosen)]


@pytest.fixture(scope="module")
def grid():
    specs = make_specs(pressures=(2.0, 16.0, 64.0), random_seeds=3)
    return named(gather(map(make_record, specs), make_arrays))


def test_means_are_over_the_folds_and_seeds_that_all_strategies_have():
    rows = [("random", 0, 0), ("random", 1, 0), ("random", 0, 1), ("hard", 0, 0), ("hard", 1, 0)]
    table = results(runs_of(rows, macro_f=[0.2, 0.4, 0.9, 0.5, 0.7]), ["macro_f"])
    assert by_name(table.round(6), "mean") == {"random": 0.3, "hard": 0.6}
    assert by_name(table, "best") == {"random": False, "hard": True}
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
    best = table.assign(arm=table["arm"].map(str))
    best = best.pivot(index="arm", columns="metric", values="best")
    assert best["macro_f"].to_dict() == {"random": False, "hard": True, "adaptive": True}
    assert not best["micro_f"].any()


def test_an_interval_holds_the_mean_and_needs_three_folds():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(4)]
    runs = runs_of(rows, macro_f=[0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.4, 0.5])
    table = overall(runs, ["macro_f"]).iloc[0]
    assert table["percent"] == pytest.approx(100 * (0.4 / 0.2 - 1))
    assert table["low"] < table["percent"] < table["high"]
    three, two = (runs[runs["fold"] < count] for count in (3, 2))
    # Seeds are no folds: ten runs of two folds still say nothing about other folds.
    seeds = pd.concat([two.assign(seed=seed) for seed in range(5)])
    for make in (overall, comparisons, results):
        assert make(three, ["macro_f"])[["low", "high"]].notna().all(axis=None)
        assert make(two, ["macro_f"])[["low", "high"]].isna().all(axis=None)
        assert make(seeds, ["macro_f"])[["low", "high"]].isna().all(axis=None)


def test_folds_without_a_value_are_no_folds_of_an_interval():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    runs = runs_of(rows, macro_f=[0.1, 0.2, np.nan, 0.3, 0.4, 0.5])
    assert comparisons(runs, ["macro_f"])["low"].isna().all()
    lows = by_name(results(runs, ["macro_f"]), "low")
    assert np.isnan(lows["random"])
    assert not np.isnan(lows["hard"])


def test_no_spread_is_borrowed_between_datasets():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    runs = runs_of(rows, macro_f=[0.1, 0.2, 0.3, 0.3, 0.4, 0.4])
    both = pd.concat([runs, runs[runs["fold"] == 0].assign(data=[Dataset("yeast")] * 2)])
    assert overall(runs, ["macro_f"])["low"].notna().all()
    assert overall(both, ["macro_f"])[["low", "p"]].isna().all(axis=None)


def test_intervals_stay_within_what_a_metric_can_reach():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    runs = runs_of(rows, macro_auc=[0.99, 0.8, 0.9, 1.0, 0.85, 0.99])
    means = results(runs, ["macro_auc"]).set_index("arm")
    assert means["high"].tolist() == [1.0, 1.0]
    assert (means["low"] < means["mean"]).all()
    (row,) = overall(runs, ["macro_auc"]).itertuples()
    assert row.high == pytest.approx(100 * (1 / row.baseline_mean - 1))


def test_the_place_of_a_strategy_is_its_order_in_reports():
    STRATEGIES.add("fifth", type("Fifth", (STRATEGIES["hard"],), {"place": 4.5}))
    try:
        names = ["importance", "adaptive", "unknown", "fifth", "random"]
        ordered = [str(arm) for arm in sorted(map(Arm, names))]
    finally:
        STRATEGIES.remove("fifth")
    assert ordered == ["random", "adaptive", "fifth", "importance", "unknown"]


def test_one_dataset_is_tested_by_the_corrected_t_over_its_folds():
    rows = [(arm, fold, seed) for arm in ("random", "hard") for fold in range(4) for seed in (0, 1)]
    values = 0.4 + 0.1 * np.random.default_rng(0).random(16)
    runs = runs_of(rows, macro_f=values).assign(n_folds=5)
    table = overall(runs, ["macro_f"]).iloc[0]
    folds = (values[8:] - values[:8]).reshape(4, 2).mean(axis=1)  # seeds of a fold are one value
    expected = corrected_t(folds, test_to_train=1 / 8)
    assert table["p"] == pytest.approx(expected.p_value)
    half = 100 * (expected.high - expected.low) / 2 / values[:8].mean()
    assert table["high"] - table["percent"] == pytest.approx(half)
    cell = comparisons(runs, ["macro_f"]).iloc[0]
    assert cell[["low", "high"]].tolist() == pytest.approx([expected.low, expected.high])


def test_settings_of_one_dataset_are_one_dataset(grid):
    one = of(grid.runs, "")
    other = one.assign(data=[replace(data, setting=(("lr", "1"),)) for data in one["data"]])
    table = overall(pd.concat([one, other]), ["macro_f"])
    assert (table["cells"] == 2).all()
    assert (table["datasets"] == 1).all()
    assert table["low"].notna().all()


def test_holms_correction_is_over_the_claims_of_all_arms(grid):
    metrics = ["macro_f", "micro_f", "macro_auc"]
    runs = of(grid.runs, "")
    table = overall(runs, metrics).set_index("metric")
    assert table.loc["macro_f", ["p_holm", "detectable"]].isna().all(axis=None)
    claims = table.loc[["macro_auc", "micro_f"]]
    assert sorted(claims["p_holm"]) == pytest.approx(sorted(holm(claims["p"])))
    assert (claims["significant"] == (claims["p_holm"] < 0.05)).all()
    assert (claims["detectable"] > 0).all()


def test_a_loss_that_halves_is_a_change_for_the_better():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    runs = runs_of(rows, one_error=[0.4, 0.6, 0.5, 0.2, 0.3, 0.2])
    table = overall(runs, ["one_error"]).iloc[0]
    assert table["percent"] == pytest.approx(100 * (1 - 0.7 / 1.5))
    assert 0 < table["low"] <= table["percent"] <= table["high"]


def test_a_baseline_of_zero_has_no_percent():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(3)]
    table = overall(runs_of(rows, macro_f=[0.0, 0.0, 0.0, 0.1, 0.2, 0.3]), ["macro_f"])
    assert table["percent"].isna().all()
    assert table[["baseline_mean", "mean"]].values.tolist() == [[0.0, pytest.approx(0.2)]]


def test_the_tuned_choice_does_not_look_at_test_results(grid):
    runs = grid.runs[grid.runs["strategy"].isin(["random", "adaptive"])]
    rng = np.random.default_rng(0)
    shuffled = runs.assign(macro_f=rng.random(len(runs)), macro_auc=rng.random(len(runs)))
    assert _tuned(runs)["digest"].tolist() == _tuned(shuffled)["digest"].tolist()


def test_the_tuned_comparison_gives_both_sides_as_many_tries(grid):
    runs = grid.runs[grid.runs["strategy"].isin(["random", "adaptive"])]
    chosen = _tuned(runs)
    assert set(map(str, chosen["arm"])) == {"random (best of 3)", "adaptive (best of 3)"}
    cell = of(runs, "")
    cell = cell[cell["fold"] == 0]
    for strategy in ("random", "adaptive"):
        some = cell[cell["strategy"] == strategy]
        best = some.loc[some["validation_macro_auc"].idxmax(), "digest"]
        assert best in set(chosen["digest"])
    assert _tuned(runs[runs["seed"] < 2]).empty  # two seeds are no match for three pressures


def test_names_are_as_short_as_the_store_allows():
    specs = make_specs(datasets=("scene",), models=("mlp",), folds=1, batch_sizes=(128, 256))
    specs += make_specs(datasets=("scene",), models=("mlp",), folds=1, pressures=(64.0,))
    runs = named(gather(map(make_record, specs))).runs
    assert set(map(str, runs["data"])) == {"scene, batch size 128", "scene, batch size 256"}
    names = {"random", "hard", "hard 64", "adaptive", "adaptive 64"}
    assert set(map(str, runs["arm"])) == names


def test_arms_sort_by_pressure_whether_it_is_constant_or_falls():
    specs = make_specs(
        datasets=("scene",), models=("mlp",), folds=1, pressures=(2.0, 16.0, (64.0, 1.0), 64.0, 8.0)
    )
    runs = named(gather(map(make_record, specs))).runs
    adaptive = sorted({arm for arm in runs["arm"] if arm.strategy == "adaptive"})
    names = ["adaptive", "adaptive 2", "adaptive 8", "adaptive 64", "adaptive 64:1"]
    assert list(map(str, adaptive)) == names
    assert [arm.is_primary for arm in adaptive] == [True, False, False, False, False]


def test_a_strategy_without_its_own_pressure_has_a_primary_arm_all_the_same():
    specs = make_specs(datasets=("scene",), models=("mlp",), pressures=(8.0, 64.0))
    specs = [spec for spec in specs if spec.selection_pressure != 64.0 or spec.fold == 0]
    runs = named(gather(map(make_record, specs))).runs
    hard = {str(arm): arm for arm in runs["arm"] if arm.strategy == "hard"}
    assert {name: arm.is_primary for name, arm in hard.items()} == {"hard": True, "hard 64": False}
    assert hard["hard"].pressure == 8.0


def test_two_contents_of_one_name_are_two_datasets():
    specs = make_specs(datasets=("scene",), models=("mlp",), folds=1)
    specs += [replace(spec, dataset_digest="cafecafe") for spec in specs]
    runs = named(gather(map(make_record, specs))).runs
    assert set(map(str, runs["data"])) == {"scene 0005", "scene cafeca"}
    assert len(set(runs["data"])) == 2


def test_fairness_finds_a_warm_up_that_differs(grid):
    assert (_fairness_checks(grid.runs)["verdict"] == "agrees").all()
    spoiled = grid.runs.copy()
    spoiled.loc[spoiled.index[0], "warm_up_digest"] = "another"
    checks = _in_words(_fairness_checks(spoiled), RANDOM).set_index("check")
    assert checks.loc["Weights at the end of the warm-up", "verdict"] == "differs"
    assert "of 12 groups" in checks.loc["Weights at the end of the warm-up", "detail"]


@pytest.mark.parametrize(("best", "verdict"), [(1, "agrees"), (10, "differs")])
def test_a_baseline_that_is_still_learning_is_no_fair_one(grid, best, verdict):
    runs = grid.runs.assign(plan_epochs=10, best_epoch=5)
    runs.loc[runs["arm"] == RANDOM, "best_epoch"] = best
    checks = _in_words(_fairness_checks(runs), RANDOM).set_index("check")
    found = checks.loc["End of the training and end of learning"]
    assert found["verdict"] == verdict
    assert "runs of random were best in their last epochs" in found["detail"]


def test_convergence_says_when_the_baselines_lowest_loss_is_reached():
    curves = pd.DataFrame(
        {
            "data": [SCENE] * 6,
            "learner": [MLP] * 6,
            "arm": [RANDOM] * 3 + [ADAPTIVE] * 3,
            "number": [1, 2, 3] * 2,
            "seconds": [1.0, 2.0, 3.0, 1.5, 3.0, 4.5],
            "training_bce": [0.5, 0.4, 0.3, 0.45, 0.29, 0.28],
            "validation_macro_auc": [0.6, 0.7, 0.65, 0.6, 0.6, 0.8],
        }
    )
    table = _convergence(curves, pd.DataFrame()).set_index("arm")
    assert table.loc[ADAPTIVE, "seconds_to_target"] == 3.0
    assert table.loc[ADAPTIVE, "time_change"] == pytest.approx(0.0)
    assert table.loc[RANDOM, ["peak_auc", "peak_epoch"]].tolist() == [0.7, 2.0]
    slower = _convergence(
        curves.assign(training_bce=[0.5, 0.4, 0.3, 0.9, 0.8, 0.7]), pd.DataFrame()
    )
    assert np.isnan(slower.set_index("arm").loc[ADAPTIVE, "time_change"])


def evidence_of(rows, **frames):
    """Return hand-made evidence: runs by `runs_of`, and the frames that a test needs."""
    empty = dict.fromkeys(("curves", "labels", "losses"), pd.DataFrame())
    return Evidence(runs=runs_of(rows), **empty | frames)


def test_a_curve_is_the_mean_of_the_same_runs_all_along(grid):
    curves = mean_curves(grid)
    line = of(curves, "random")
    runs = of(grid.runs, "random")
    digests = runs.loc[runs["seed"] == 0, "digest"]
    epochs = grid.curves[grid.curves["digest"].isin(digests)]
    expected = epochs.groupby("number")["training_bce"].mean()
    assert line["training_bce"].tolist() == pytest.approx(expected.tolist())


def test_the_pressure_panel_compares_the_same_folds_and_seeds(grid):
    panel = _pressure_panel(grid, ["macro_f"])
    cell = of(panel, "")
    adaptive = cell[cell["strategy"] == "adaptive"]
    assert adaptive["pressure"].dropna().tolist() == [2.0, 16.0, 64.0]
    runs = of(grid.runs, "random")
    plain = runs[runs["seed"] == 0]["macro_f"].mean()
    assert adaptive.loc[adaptive["pressure"].isna(), "macro_f"].item() == pytest.approx(plain)


def test_label_gains_are_against_the_baseline_on_the_same_runs(grid):
    facts = label_facts(grid)
    assert facts.loc[facts["arm"] == RANDOM, "gain"].isna().all()
    summary = minority_gains(facts).set_index(["arm", "kind"])
    helped = summary.loc[(ADAPTIVE, "minority labels")]
    assert helped["gain"] > summary.loc[(ADAPTIVE, "other labels"), "gain"] > 0
    assert helped["exposure"] > 1


def test_wilcoxon_by_model_is_over_its_datasets():
    specs = make_specs(datasets=[f"data{place}" for place in range(6)], models=("dela",), folds=2)
    runs = named(gather(map(make_record, specs))).runs
    table = _wilcoxon_by_model(comparisons(runs, ["macro_f"])).set_index("arm")
    assert table.loc[ADAPTIVE, "p"] == pytest.approx(0.03125)
    assert table.loc[ADAPTIVE, "outcome"] == "win"


def test_densities_hold_all_samples_and_minority_samples_lose_more(grid):
    losses = _sample_losses(grid)
    density = _loss_density(losses, points=400)
    keys = ["data", "learner", "arm", "epoch", "minority_labels"]
    assert set(density["minority_labels"]) == {"0", "1", "2", "3", "any"}
    for _, line in density.groupby(keys):
        step = np.diff(line["loss"]).mean()
        assert 0.9 <= line["density"].sum() * step <= 1.02  # a percent lies beyond the grid
    mean = density["loss"] * density["density"]
    mean = mean.groupby([density[key] for key in keys]).sum().unstack()
    assert (mean["3"] > mean["0"]).all()


def test_equal_losses_have_no_density():
    assert _smoothed(np.full((1, 99), 0.5), np.array([4.0]), np.linspace(0, 1, 5)) is None
    assert _smoothed(np.empty((0, 99)), np.empty(0), np.linspace(0, 1, 5)) is None


def test_a_density_equals_that_of_the_losses_themselves():
    losses = np.random.default_rng(0).gamma(4.0, 0.1, 2000)
    grid = np.linspace(0, 1.2, 30)
    quantiles = np.percentile(losses, range(1, 100))[None]
    spread = min(np.subtract(*np.quantile(losses, (0.75, 0.25))) / 1.34, losses.std())
    kernel = gaussian_kde(losses, bw_method=0.9 * spread * 2000**-0.2 / losses.std(ddof=1))
    expected = kernel(grid) + kernel(-grid)
    ours = _smoothed(quantiles, np.array([2000.0]), grid)
    assert np.abs(ours - expected).max() < 0.05 * expected.max()  # two percent are cut off


def test_ranks_are_over_datasets_and_their_test_needs_three_strategies(grid):
    ranks = _mean_ranks(results(grid.runs, ["macro_f"]), ["macro_f"])
    assert ranks["arm"].tolist()[0] == ADAPTIVE
    assert (ranks["datasets"] == 2).all()  # of two models each
    assert ranks["friedman_p"].notna().all()
    two = results(grid.runs[grid.runs["strategy"] != "hard"], ["macro_f"])
    assert (
        _mean_ranks(two, ["macro_f"])[["critical_difference", "friedman_p"]].isna().all(axis=None)
    )


def test_missing_and_failed_runs_have_the_names_of_their_records(tmp_path):
    specs = make_specs(datasets=("scene",), models=("mlp",))
    evidence = named(read_store(make_store(tmp_path, specs, lost=(0,), failed=(8,), arrays=False)))
    reasons = by_name(evidence.absent, "reason")
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
    assert analysis.overall.empty
    assert analysis.baseline is None


def test_one_run_alone_is_no_comparison(tmp_path):
    spec = make_specs(datasets=("scene",), models=("mlp",), strategies=("adaptive",), folds=1)
    analysis = analyze(read_store(make_store(tmp_path, spec)))
    assert len(analysis.results) > 0
    assert analysis.overall.empty
    assert analysis.baseline == ADAPTIVE


def test_a_metric_that_is_undefined_somewhere_is_compared_elsewhere():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(2)]
    table = comparisons(runs_of(rows, macro_f=[np.nan, 0.2, 0.3, 0.4]), ["macro_f"])
    assert table["pairs"].item() == 1
    assert table["gain"].item() == pytest.approx(0.2)


def test_a_damaged_record_is_left_out_of_the_report(tmp_path):
    store = make_store(tmp_path, make_specs(datasets=("scene",), models=("mlp",)), arrays=False)
    victim = next((tmp_path / "runs").glob("*.json"))
    victim.write_text("{")
    evidence = read_store(ResultStore(store.path))
    assert len(evidence.runs) == 8
    assert evidence.absent["digest"].tolist() == [victim.stem]


def test_a_metric_that_some_folds_lack_makes_no_headline(grid):
    runs = grid.runs.assign(macro_auc=0.5)
    assert _best_setting(runs, ["minority_average_precision", "macro_auc"]).metric == (
        "minority_average_precision"
    )
    some = runs["fold"] == runs["fold"].max()
    runs.loc[~some, "minority_average_precision"] = np.nan
    assert _best_setting(runs, ["minority_average_precision", "macro_auc"]).metric == "macro_auc"
    assert _best_setting(runs, ["minority_average_precision"]) is None


def test_the_best_setting_is_chosen_on_validation_rows_and_measured_on_test_rows(grid):
    metrics = ["minority_average_precision"]
    runs = grid.runs
    made = _best_setting(runs, metrics)
    shuffled = runs.assign(minority_average_precision=np.linspace(0, 1, len(runs)))
    assert _best_setting(shuffled, metrics).setting == made.setting
    assert made.reference.arm == RANDOM
    assert made.reference.learner == made.setting.learner
    one = of(runs, "")
    assert _best_setting(one, metrics).tested
    assert _best_setting(one[one["fold"] < 2], metrics).gain.p != _best_setting(one, metrics).gain.p
    assert _best_setting(one[one["arm"] == RANDOM], metrics) is None
    assert _best_setting(runs[:0], metrics) is None


def test_two_datasets_are_tested_one_by_one():
    rows = [(arm, fold, 0) for arm in ("random", "hard") for fold in range(5)]
    values = [0.30, 0.31, 0.29, 0.30, 0.32, 0.40, 0.42, 0.40, 0.41, 0.43]
    scene = runs_of(rows, macro_f=values)
    yeast = scene.assign(data=[Dataset("yeast")] * 10, macro_f=[*values[:5], *values[4::-1]])
    made = _best_setting(pd.concat([scene, yeast]), ["macro_f"])
    assert [name for name, *_ in made.by_dataset] == ["scene", "yeast"]
    assert made.tested
    assert not made.significant
    assert made.by_dataset[0][2] < 0.001 < 0.9 < made.by_dataset[1][2]
    assert _best_setting(scene, ["macro_f"]).by_dataset == ()


def test_models_are_tested_against_the_first_that_draws_batches():
    rows = [("random", fold, 0) for fold in range(5)]
    ensemble = runs_of(rows, macro_f=[0.30, 0.31, 0.29, 0.30, 0.32])
    ensemble = ensemble.assign(learner=[Learner("ensemble")] * 5)
    hard = ensemble.assign(arm=[Arm("hard")] * 5)
    logistic = ensemble.assign(learner=[Learner("a_logistic")] * 5, arm=[Arm("none")] * 5)
    logistic = logistic.assign(macro_f=[0.20, 0.22, 0.19, 0.20, 0.21])
    made = overall(_between_models(pd.concat([ensemble, hard, logistic])), ["macro_f"])
    (row,) = made.itertuples()
    assert (str(row.arm), row.win, row.loss) == ("a_logistic", 0, 1)
    assert row.high < 0
    assert row.p_holm < 0.001
    assert _between_models(ensemble).empty


def test_the_epochs_are_those_that_ran():
    runs = pd.DataFrame({"digest": ["a"], "plan_epochs": 5, "best_epoch": 40})
    curves = pd.DataFrame({"digest": ["a"] * 72, "number": range(1, 73)})
    empty = pd.DataFrame()
    ran = _with_epochs(Evidence(runs=runs, curves=curves, labels=empty, losses=empty)).runs
    assert ran["epochs"].tolist() == [72]
    assert not still_learning(ran).any()


def test_labels_are_listed_by_name_rarest_first(grid):
    facts = label_facts(grid)
    table = labels_by_name(facts)
    one = table[(table["data"].map(str) == "scene") & (table["learner"].map(str) == "mlp")]
    assert one["positives"].is_monotonic_increasing
    assert len(one) == one["label"].nunique()
    first = one.iloc[0]
    row = of(facts[facts["label"] == first["label"]], "adaptive")
    assert first[ADAPTIVE] == row["average_precision"].item()
