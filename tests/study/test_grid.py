"""The grid of a study, from Python and from TOML."""

from collections import Counter
from datetime import date

import pytest

from study_samples import tiny_study
from tailbatch.errors import StudyError
from tailbatch.results import TrainingPlan
from tailbatch.study import Study, known_studies, load_study


def specs_of(study):
    return study.specs({source.name: "ab12" for source in study.sources})


def arms(study):
    return Counter((spec.strategy, spec.selection_pressure) for spec in specs_of(study))


def test_the_grid_is_the_product_of_its_axes():
    study = Study(
        name="all",
        datasets=["debtags", "scene"],
        preparations=["full", "paper"],
        models=["mlp", "dela"],
        strategies=["hard"],
        selection_pressures=[2, "64:1"],
        batch_sizes=[64, 128],
        n_folds=4,
        folds=[0, 2],
        seeds=[0, 1, 2],
    )
    specs = specs_of(study)
    assert len(specs) == len({spec.digest for spec in specs}) == 2 * 2 * 2 * 2 * 2 * 2 * 3
    assert {spec.plan.batch_size for spec in specs} == {64, 128}
    assert {spec.selection_pressure for spec in specs} == {2.0, (64.0, 1.0)}


def test_strategies_without_pressure_appear_once_whatever_the_pressures():
    study = Study(
        name="p",
        datasets=["debtags"],
        strategies=["random", "uniform", "balanced", "adaptive", "minority"],
        selection_pressures=[2, 16],
        folds=[0],
    )
    assert arms(study) == {
        ("random", None): 1,
        ("uniform", None): 1,
        ("balanced", None): 1,
        ("adaptive", 2.0): 1,
        ("adaptive", 16.0): 1,
        ("minority", 2.0): 1,
        ("minority", 16.0): 1,
    }


def test_without_pressures_each_strategy_has_its_own():
    study = Study(
        name="own", datasets=["debtags"], strategies=["random", "hard", "minority"], n_folds=2
    )
    expected = {("random", None): 2, ("hard", 16.0): 2, ("minority", "imbalance"): 2}
    assert arms(study) == expected


def test_a_strategy_may_have_pressures_seeds_and_options_of_its_own():
    study = Study(
        name="own",
        datasets=["debtags"],
        strategies=[
            {"name": "random", "seeds": [0, 1, 2, 3]},
            {"name": "minority", "selection_pressures": [4]},
            {"name": "adaptive", "selection_loss": "model", "cap_quantile": 0.95},
        ],
        folds=[0],
    )
    specs = specs_of(study)
    assert sorted(spec.seed for spec in specs if spec.strategy == "random") == [0, 1, 2, 3]
    adaptive = next(spec for spec in specs if spec.strategy == "adaptive")
    assert adaptive.strategy_options == {"cap_quantile": 0.95}
    assert adaptive.plan.selection_loss == "model"
    assert next(s for s in specs if s.strategy == "minority").selection_pressure == 4.0


def test_equal_runs_are_done_once():
    study = Study(name="twice", datasets=["debtags", "debtags"], strategies=["random", "random"])
    assert len(specs_of(study)) == 5


def test_as_published_concerns_only_the_datasets_that_have_it():
    study = Study(name="a", datasets=["scene", "llog-f"], preparations=["as-published"], folds=[0])
    assert {spec.dataset for spec in specs_of(study)} == {"llog-f"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": ["sceen"]}, "unknown dataset or file 'sceen'; did you mean 'scene'?"),
        ({"datasets": ["missing.arff"]}, "there is no dataset file missing.arff"),
        ({"datasets": [{"labels": 3}]}, "needs a path"),
        (
            {"datasets": [{"path": "a", "lables": 3}]},
            "unknown key of a dataset 'lables'; did you mean 'labels'",
        ),
        ({"models": ["dlea"]}, "unknown model 'dlea'; did you mean 'dela'?"),
        ({"models": [{"hidden": [3]}]}, "a table of settings needs a name"),
        ({"strategies": ["adpative"]}, "unknown strategy 'adpative'; did you mean 'adaptive'?"),
        ({"preparations": ["papper"]}, "unknown preparation 'papper'; did you mean 'paper'?"),
        ({"selection_pressures": ["strong"]}, "selection pressure must be a number from 1"),
        ({"selection_pressures": [0.5]}, "selection pressure must be a number from 1"),
        (
            {"strategies": [{"name": "random", "selection_pressures": [2]}]},
            "random has no selection",
        ),
        (
            {"strategies": [{"name": "minority", "power": date(2020, 1, 1)}]},
            "options must be strings, numbers",
        ),
        ({"folds": [5]}, "fold must be below n_folds"),
        ({"seeds": ["a"]}, "study try: "),
        ({"models": [{"name": "mlp", "hiden": [4]}]}, "study try: .* did you mean 'hidden'?"),
        ({"models": [{"name": "mlp", "objective": "focal"}]}, "a separate setting, loss="),
        ({"losses": ["focl"]}, "study try: unknown loss 'focl'; did you mean 'focal'?"),
        ({"losses": [{"name": "focal", "gama": 1}]}, "focal has no option 'gama'; did you mean"),
        ({"losses": [{"gamma": 1}]}, "a table of settings needs a name"),
        ({"models": ["c2ae"], "losses": ["bce"]}, "c2ae takes no loss, 'bce' or other: it ranks"),
        ({"models": [{"name": "mlp", "lr": "fast"}]}, "study try: "),
        ({"models": [{"name": "mlp", "lr": 0}]}, "study try: lr must be above 0, got 0"),
        ({"models": [{"name": "dela", "preset": "refrence"}]}, "did you mean 'reference'?"),
        ({"models": [{"name": "dela", "preset": 3}]}, "a preset is a name, got 3"),
        ({"models": [{"name": "mlp", "hidden": "wide"}]}, "study try: "),
        ({"strategies": [{"name": "minority", "powr": 1}]}, "did you mean 'power'?"),
        ({"strategies": [{"name": "adaptive", "cap_quantile": 2}]}, "cap_quantile must lie in"),
        ({"strategies": [{"name": "chain", "batch_size": 9}]}, "batch_size is set for all strateg"),
        (
            {"plan": TrainingPlan(best_by="macro_acu")},
            "unknown metric 'macro_acu'; did you mean 'macro_auc'?",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(changes, message):
    with pytest.raises(StudyError, match=message.replace("?", r"\?")):
        Study(**{"name": "try", "datasets": ["debtags"]} | changes)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "CosineAnnealing",
            {},
            "unknown scheduler 'CosineAnnealing'; did you mean 'CosineAnnealingLR'",
        ),
        ("StepLR", {"stepsize": 3}, r"do not fit StepLR: .*stepsize"),
        ("StepLR", {"step_size": 0}, "do not fit StepLR: .* by zero"),
        ("OneCycleLR", {"max_lr": 0.1, "total_steps": 20}, r"OneCycleLR: Tried to step 21 times"),
        ("LambdaLR", {"lr_lambda": 1}, "do not fit LambdaLR: 'int' object is not callable"),
        ("LRScheduler", {}, "do not fit LRScheduler: NotImplementedError"),
    ],
)
def test_a_scheduler_that_cannot_run_is_refused_when_planned(name, options, message):
    plan = TrainingPlan(epochs=30, warm_up_epochs=3, scheduler=name, scheduler_options=options)
    with pytest.raises(StudyError, match=f"^study mine: .*{message}"):
        Study(name="mine", datasets=["debtags"], plan=plan)


def test_a_scheduler_that_lasts_as_long_as_the_training_is_taken():
    options = {"max_lr": 0.1, "total_steps": 28}  # it also steps when it is made
    plan = TrainingPlan(epochs=30, scheduler="OneCycleLR", scheduler_options=options)
    assert Study(name="mine", datasets=["debtags"], plan=plan).plan is plan


def test_two_files_of_one_name_are_refused(tiny, tmp_path):
    other = tmp_path / "tiny.npz"
    other.write_bytes(tiny.read_bytes())
    with pytest.raises(
        StudyError, match=r"two datasets are called tiny .*give one of them another name"
    ):
        tiny_study(tiny, datasets=[str(tiny), str(other)])
    named = tiny_study(tiny, datasets=[str(tiny), {"path": str(other), "name": "other"}])
    assert [source.name for source in named.sources] == ["tiny", "other"]


GOOD = """
name = "mine"
datasets = ["debtags"]
strategies = ["random", {name = "adaptive", selection_pressures = ["64:1"]}]
seeds = [0, 1]
[plan]
epochs = 7
sample_loss_epochs = [3]
[quick]
seeds = [0]
[quick.plan]
epochs = 3
"""


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_study_file_says_what_a_call_says(tmp_path):
    study = load_study(write(tmp_path, GOOD))
    assert study == Study(
        name="mine",
        datasets=["debtags"],
        strategies=["random", {"name": "adaptive", "selection_pressures": ["64:1"]}],
        seeds=[0, 1],
        plan=TrainingPlan.suited_to("ensemble", epochs=7, sample_loss_epochs=(3,)),
    )


def test_the_quick_table_changes_what_it_names(tmp_path):
    quick = load_study(write(tmp_path, GOOD), quick=True)
    assert (quick.name, quick.seeds, quick.plan.epochs) == ("mine-quick", [0], 3)
    assert quick.plan.sample_loss_epochs == (3,)
    assert len(specs_of(quick)) * 2 == len(specs_of(load_study(write(tmp_path, GOOD))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "cannot be read: Invalid value"),
        ("name = 'a'", "a study needs the key datasets"),
        (GOOD.replace("seeds", "seed", 1), "unknown key of a study 'seed'; did you mean 'seeds'?"),
        (
            GOOD.replace("epochs = 7", "epoch = 7"),
            "unknown key of a plan 'epoch'; did you mean 'epochs'?",
        ),
        (GOOD.replace("epochs = 7", "epochs = 0"), "plan: epochs must be at least 1, got 0"),
        (GOOD.replace("epochs = 7", "epochs = 'many'"), "plan: "),
        (GOOD.replace("[0, 1]", "3"), "the key seeds of a study is a list, got 3"),
        ('extends = "table-9"\n' + GOOD, "unknown study to extend 'table-9'; did you mean 'table-"),
    ],
)
def test_a_wrong_study_file_is_refused(tmp_path, text, message):
    with pytest.raises(StudyError, match=message.replace("?", r"\?")):
        load_study(write(tmp_path, text))


def test_a_study_without_quick_table_says_so(tmp_path):
    with pytest.raises(StudyError, match="study mine has no quick variant"):
        load_study(write(tmp_path, GOOD[: GOOD.index("[quick]")]), quick=True)


def test_a_missing_study_file_says_so(tmp_path):
    with pytest.raises(StudyError, match=r"nothing\.toml cannot be read"):
        load_study(str(tmp_path / "nothing.toml"))


@pytest.mark.parametrize("name", sorted(set(known_studies()) - {"demo"}))
def test_every_study_of_the_paper_loads_and_has_a_smaller_quick_variant(name):
    full, quick = load_study(name), load_study(name, quick=True)
    assert full.name == name
    assert name in full.shows
    assert quick.name == f"{name}-quick"
    cost = {s.name: len(specs_of(s)) * s.plan.epochs * len(s.datasets) for s in (full, quick)}
    assert cost[quick.name] < cost[name] or name == "table-1"


def test_the_paper_has_four_tables_and_seven_figures():
    names = {f"table-{n}" for n in range(1, 5)} | {f"figure-{n}" for n in (1, 3, 4, 5, 6, 7, 8)}
    assert set(known_studies()) == names | {"demo"}


def test_table_2_gives_both_sides_four_tries():
    study = load_study("table-2")
    specs = specs_of(study)
    assert len(specs) == 13 * 5 * 5 * 8
    cell = [s for s in specs if (s.dataset, s.model, s.fold) == ("scene", "dela", 0)]
    assert {s.seed for s in cell if s.strategy == "random"} == {0, 1, 2, 3}
    assert {s.selection_pressure for s in cell if s.strategy == "adaptive"} == {2, 8, 16, 64}
    assert {s.digest for s in specs} == {s.digest for s in specs_of(load_study("table-3"))}


def test_models_without_batches_appear_once_a_fold_and_seed():
    study = Study(
        name="rivals",
        datasets=["debtags"],
        models=["mlp", "logistic", {"name": "forest", "n_estimators": 10}],
        strategies=["random", "adaptive", "minority"],
        selection_pressures=[2, 16],
        batch_sizes=[64, 128],
        folds=[0, 1],
        seeds=[0, 1],
    )
    rivals = [spec for spec in specs_of(study) if spec.model != "mlp"]
    assert len(rivals) == 2 * 2 * 2
    assert {spec.strategy for spec in rivals} == {"none"}
    assert {spec.selection_pressure for spec in rivals} == {None}
    assert {spec.plan.batch_size for spec in rivals} == {64}
    networks = [spec for spec in specs_of(study) if spec.model == "mlp"]
    assert len(networks) == 2 * 2 * 2 * 5
    assert "none" not in {spec.strategy for spec in networks}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["logistics"]}, "unknown model 'logistics'; did you mean 'logistic'?"),
        ({"models": [{"name": "forest", "depth": 3}]}, "unknown hyperparameter of forest 'depth'"),
        ({"strategies": ["none"]}, "the strategy none is for models without batches .logistic, "),
        (
            {"models": ["logistic"], "strategies": [{"name": "none", "power": 1}]},
            "the strategy none has no option 'power'",
        ),
        (
            {"models": ["logistic"], "strategies": [{"name": "none", "selection_pressures": [2]}]},
            "the strategy none has no selection pressure",
        ),
        (
            {"models": ["logistic", "forest"], "losses": [{"name": "weighted_bce", "power": 1}]},
            "the loss weighted_bce is for networks, and forest takes none: leave losses out, or add one ",
        ),
    ],
)
def test_what_a_model_without_batches_cannot_take_is_refused(changes, message):
    with pytest.raises(StudyError, match=message.replace("?", r"\?")):
        Study(**{"name": "try", "datasets": ["debtags"]} | changes)


def test_models_that_ignore_the_losses_are_named():
    named = {"name": "try", "datasets": ["debtags"], "models": ["mlp", "logistic", "forest"]}
    assert Study(**named).notices == ()
    assert Study(**named | {"models": ["mlp"]}, losses=["bce"]).notices == ()
    (notice,) = Study(**named, losses=["bce", "focal"]).notices
    assert notice == "logistic, forest take no loss: losses apply to mlp"


def test_losses_are_a_grid_of_their_own():
    losses = ["bce", "weighted_bce", {"name": "weighted_bce", "power": 1.0}]
    study = Study(name="try", datasets=["debtags"], models=["mlp", "dela"], losses=losses, folds=[0],
                  strategies=["random"])  # fmt: skip
    found = [(s.model, s.loss, dict(s.loss_options)) for s in study.specs({"debtags": "ab12"})]
    # Models that take a loss use cross-entropy by default, so naming it is the same run.
    kinds = [(None, {}), ("weighted_bce", {}), ("weighted_bce", {"power": 1.0})]
    assert found == [(model, *kind) for model in ("mlp", "dela") for kind in kinds]
    plain = Study(
        name="try", datasets=["debtags"], models=["mlp"], folds=[0], strategies=["random"]
    )
    assert plain.specs({"debtags": "ab12"})[0] == study.specs({"debtags": "ab12"})[0]


def test_a_model_may_have_a_rate_of_its_own():
    models = ["dela", {"name": "mpvae", "lr": 3e-3, "latent": 8}]
    study = Study(name="try", datasets=["debtags"], models=models, folds=[0], strategies=["random"])
    dela, mpvae = study.specs({"debtags": "ab12"})
    assert (dela.plan.lr, mpvae.plan.lr) == (1e-3, 3e-3)
    assert mpvae.hyperparameters == {"latent": 8}
