"""The page's table of the default estimator follows from the committed records."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from benchmarks import default_search
from benchmarks.default_estimator import RECORDS, table

from tailbatch.defaults import recipe_of
from tailbatch.results import TrainingPlan
from tailbatch.study import load_study

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_table_follows_from_the_records():
    shown = table(pd.DataFrame(json.loads(RECORDS.read_text())))
    assert shown in PAGE.read_text(), "run `python -m benchmarks.default_estimator`"


def test_the_study_of_the_search_changes_one_thing_of_the_recipe_at_a_time():
    study = load_study(str(Path(default_search.__file__).with_suffix(".toml")))
    recipe = recipe_of("ensemble")
    specs = study.specs(dict.fromkeys(study.datasets, "0" * 32))
    assert {spec.scale for spec in specs} == {recipe.scale}
    # The study keeps the budget of its time.
    base = TrainingPlan.suited_to("ensemble", epochs=5, min_steps=1000, training_loss_every=0)
    changes = [(spec.hyperparameters, spec.plan.lr) for spec in specs if spec.dataset == "emotions"]
    assert changes.count(({}, base.lr)) == 1
    assert all(len(given) + (lr != base.lr) <= 1 for given, lr in changes)
    assert all(replace(spec.plan, lr=base.lr) == base for spec in specs)


def test_the_search_is_compared_on_the_datasets_that_every_setting_has():
    runs = pd.DataFrame(
        {
            "dataset": ["a", "a", "b"],
            "hyperparameters": ["{}", '{"hidden": 256}', "{}"],
            "plan_lr": [0.01] * 3,
            "validation_macro_average_precision": [0.5, 0.4, 0.9],
            "validation_minority_average_precision": [0.2, 0.3, 0.9],
        }
    )
    first, *lines = default_search.study_table(runs).splitlines()
    assert first == "validation rows of a:"
    assert [line.split() for line in lines] == [
        ["rate", "0.01", "0.5000", "/", "0.2000"],
        ["rate", "0.01,", "hidden", "256", "0.4000", "/", "0.3000"],
    ]
