"""A setting has the same default everywhere."""

import inspect
from dataclasses import MISSING, fields

import pytest

from tailbatch import TailbatchClassifier, make_selector
from tailbatch.cli.models import fit
from tailbatch.cli.study import compare
from tailbatch.results import DEFAULT_MODEL, RunSpec, TrainingPlan
from tailbatch.selection import DEFAULT_STRATEGY
from tailbatch.study import Study

DOORS = {
    "make_selector": make_selector,
    "classifier": TailbatchClassifier,
    "fit": fit,
    "compare": compare,
    "plan": TrainingPlan,
    "spec": RunSpec,
    "study": Study,
}
# The command line has words of its own for some.
SPELLINGS = {"warm_up": "warm_up_epochs", "folds": "n_folds", "validation": "validation_fraction"}


def defaults(door):
    """Return the defaults of a function or a dataclass."""
    if inspect.isclass(door) and hasattr(door, "__dataclass_fields__"):
        found = {item.name: item.default for item in fields(door) if item.default is not MISSING}
    else:
        parameters = inspect.signature(door).parameters.values()
        found = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    if door in (compare, fit):
        found = {SPELLINGS.get(name, name): value for name, value in found.items()}
    return found


@pytest.mark.parametrize(
    ("setting", "value", "doors"),
    [
        ("epochs", None, ["classifier", "fit", "compare"]),
        ("batch_size", 128, ["make_selector", "classifier", "fit", "compare", "plan"]),
        ("warm_up_epochs", None, ["make_selector", "classifier", "fit"]),
        ("weight_decay", None, ["classifier"]),
        ("lr", None, ["classifier", "fit", "compare"]),
        ("model", DEFAULT_MODEL, ["classifier", "fit"]),
        ("strategy", DEFAULT_STRATEGY, ["classifier", "fit"]),
        ("selection_pressure", None, ["make_selector", "classifier"]),
        ("validation_fraction", 0.1, ["classifier", "fit"]),
        ("n_folds", 5, ["compare", "spec", "study"]),
        ("seed", 0, ["make_selector", "fit", "spec"]),
        ("preparation", "full", ["compare", "spec"]),
    ],
)
def test_defaults_agree(setting, value, doors):
    found = {name: defaults(DOORS[name])[setting] for name in doors}
    assert found == dict.fromkeys(doors, value)
