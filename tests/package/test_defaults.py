"""A setting has the same default everywhere."""

import inspect
from dataclasses import MISSING, fields

import pytest

from tailbatch import TailbatchClassifier, compare, defaults, make_selector
from tailbatch.cli.models import _fit as fit
from tailbatch.cli.study import _compare as compare_command
from tailbatch.results import RunSpec, TrainingPlan
from tailbatch.study import Study

DOORS = {
    "make_selector": make_selector,
    "classifier": TailbatchClassifier,
    "fit": fit,
    "compare": compare,
    "command": compare_command,
    "plan": TrainingPlan,
    "spec": RunSpec,
    "study": Study,
}


def defaults_of(door):
    """Return the defaults of a function or a dataclass."""
    if inspect.isclass(door) and hasattr(door, "__dataclass_fields__"):
        found = {item.name: item.default for item in fields(door) if item.default is not MISSING}
    else:
        parameters = inspect.signature(door).parameters.values()
        found = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return found


@pytest.mark.parametrize(
    ("setting", "value", "doors"),
    [
        ("epochs", None, ["classifier", "fit", "compare", "command"]),
        ("batch_size", defaults.BATCH_SIZE, ["make_selector", "plan"]),
        ("batch_size", None, ["classifier", "fit"]),
        ("warm_up_epochs", None, ["make_selector", "classifier", "fit"]),
        ("weight_decay", None, ["classifier"]),
        ("lr", None, ["classifier", "fit", "compare", "command"]),
        ("model", defaults.MODEL, ["classifier", "fit"]),
        ("models", (defaults.MODEL,), ["compare", "study"]),
        ("loss", defaults.LOSS, ["classifier", "fit", "spec"]),
        ("losses", defaults.LOSS, ["compare", "command", "study"]),
        ("strategy", defaults.STRATEGY, ["classifier", "fit"]),
        ("strategies", defaults.STRATEGIES, ["compare", "study"]),
        ("selection_pressure", None, ["make_selector", "classifier"]),
        ("cross_fit", None, ["classifier", "fit"]),
        ("validation_fraction", None, ["classifier", "fit"]),
        ("objective", "f1", ["classifier", "fit"]),
        ("time_limit", None, ["classifier", "fit"]),
        ("n_folds", defaults.N_FOLDS, ["compare", "command", "spec", "study"]),
        ("seed", defaults.SEED, ["make_selector", "spec"]),
        ("random_state", defaults.SEED, ["fit"]),
        ("seeds", (defaults.SEED,), ["compare", "study"]),
        ("preparation", defaults.PREPARATION, ["spec"]),
        ("preparations", defaults.PREPARATION, ["command"]),
    ],
)
def test_defaults_agree(setting, value, doors):
    found = {name: defaults_of(DOORS[name])[setting] for name in doors}
    assert found == dict.fromkeys(doors, value)


def test_every_entry_point_trains_a_model_alike():
    study = Study(name="try", datasets=["debtags"])
    assert study.plan == TrainingPlan.suited_to(defaults.MODEL)
    assert study.scale == defaults.recipe_of(defaults.MODEL).scale
    assert Study.from_dict({"name": "try", "datasets": ["debtags"]}) == study
    other = Study(name="try", datasets=["debtags"], models=["mlp"])
    assert other.plan == TrainingPlan.suited_to("mlp") != study.plan
    assert other.scale == defaults.recipe_of("mlp").scale
