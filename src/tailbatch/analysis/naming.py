"""The keys of runs; their labels include only settings that vary in the store."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.analysis.keys import Arm, Dataset, Key, Learner
from tailbatch.results import parse_pressure
from tailbatch.results.frames import Evidence

# Columns of a plan that belong to the arm, or change what is recorded but not the training.
_APART = ("plan_selection_loss", "plan_sample_loss_epochs", "plan_training_loss_every")


def named(evidence: Evidence) -> Evidence:
    """Return the evidence with the keys of each run, including absent ones.

    ``data`` is the dataset and other settings that vary, ``learner`` the model, its hyperparameters if
    they vary, and its loss, ``arm`` the strategy. A strategy that ran with several pressures or options
    has one primary arm: the one with its default pressure if present, else the one with the most runs.

    Examples
    --------
    >>> runs = pd.DataFrame({"dataset": ["scene"] * 3, "model": ["mlp"] * 3,
    ...                      "strategy": ["random", "adaptive", "adaptive"],
    ...                      "selection_pressure": ["", "16", "64"]})
    >>> empty = pd.DataFrame()
    >>> keyed = named(Evidence(runs=runs, curves=empty, labels=empty, losses=empty))
    >>> [str(arm) for arm in keyed.runs["arm"]]
    ['random', 'adaptive', 'adaptive 64']
    """
    # Together, so that a missing run has the name its record would have.
    both = evidence.runs
    if len(evidence.absent):
        both = pd.concat([evidence.runs, evidence.absent], ignore_index=True)
    keys: dict[str, Sequence[Key]] = {
        "data": _datasets(both),
        "learner": _learners(both),
        "arm": _arms(both),
    }
    both = both.assign(**{name: _objects(of) for name, of in keys.items()})
    if evidence.absent.empty:
        return replace(evidence, runs=both)
    count = len(evidence.runs)
    return replace(evidence, runs=both[:count].drop(columns="reason"), absent=both[count:])


def compare_losses(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs for comparing losses: the loss belongs to the arm instead of the learner.

    Examples
    --------
    >>> learner = Learner("mlp", loss="asymmetric")
    >>> keyed = compare_losses(pd.DataFrame({"arm": [Arm("random")], "learner": [learner]}))
    >>> str(keyed["arm"][0]), str(keyed["learner"][0])
    ('asymmetric, random', 'mlp')
    """
    pairs = zip(runs["arm"], runs["learner"], strict=True)
    return runs.assign(
        arm=_objects([replace(arm, loss=learner.loss_name) for arm, learner in pairs]),
        learner=_objects(
            [replace(learner, loss="", loss_options="{}") for learner in runs["learner"]]
        ),
    )


def compare_rates(runs: pd.DataFrame, rates: Sequence[str]) -> pd.DataFrame:
    """Return runs for comparing learning rates, one per run: the rate belongs to the arm.

    Examples
    --------
    >>> runs = pd.DataFrame({"arm": [Arm("random")], "learner": [Learner("mlp", rate=0.001)]})
    >>> keyed = compare_rates(runs, ["1e-3"])
    >>> str(keyed["arm"][0]), str(keyed["learner"][0])
    ('random at 1e-3', 'mlp')
    """
    pairs = zip(runs["arm"], rates, strict=True)
    return runs.assign(
        arm=_objects([replace(arm, rate=rate) for arm, rate in pairs]),
        learner=_objects([replace(learner, rate=None) for learner in runs["learner"]]),
    )


def compare_ways(runs: pd.DataFrame, way: str) -> pd.DataFrame:
    """Return runs for comparing ways to train one model: settings, loss and rate belong to the arm.

    Examples
    --------
    >>> learner = Learner("mlp", '{"prior_bias": false}', rate=0.001)
    >>> keyed = compare_ways(pd.DataFrame({"arm": [Arm("random")], "learner": [learner]}), "zero bias")
    >>> str(keyed["arm"][0]), str(keyed["learner"][0])
    ('random at zero bias', 'mlp')
    """
    return runs.assign(
        arm=_objects([replace(arm, rate=way) for arm in runs["arm"]]),
        learner=_objects([Learner(learner.model) for learner in runs["learner"]]),
    )


def _objects(keys: Sequence[Key]) -> np.ndarray:
    made = np.empty(len(keys), dtype=object)
    made[:] = keys
    return made


def _datasets(runs: pd.DataFrame) -> list[Dataset]:
    settings = [name for name in runs if name.startswith("plan_") and name not in _APART]
    settings += [name for name in ("preparation", "n_folds") if name in runs]
    setting = [name for name in runs if name in settings and runs[name].astype(str).nunique() > 1]
    titles = [column.removeprefix("plan_").replace("_", " ") for column in setting]
    contents = _column(runs, "dataset_digest", "")
    several = contents.groupby(runs["dataset"]).transform("nunique") > 1
    values = zip(*(runs[column].astype(str) for column in setting), strict=True)
    rows = zip(
        runs["dataset"].astype(str),
        _column(runs, "preparation", "full"),
        contents,
        values if setting else [()] * len(runs),
        several,
        strict=True,
    )
    made: dict[tuple[Any, ...], Dataset] = {}
    return [
        made.setdefault(
            row, Dataset(*row[:3], tuple(zip(titles, row[3], strict=True)), bool(row[4]))
        )
        for row in rows
    ]


def _learners(runs: pd.DataFrame) -> list[Learner]:
    settings = _column(runs, "hyperparameters", "{}")
    several = settings.groupby(runs["model"]).transform("nunique") > 1
    losses = _column(runs, "loss", ""), _column(runs, "loss_options", "{}")
    made: dict[tuple[Any, ...], Learner] = {}
    return [
        made.setdefault(row, Learner(*row[:4], says_settings=bool(row[4])))
        for row in zip(runs["model"].astype(str), settings, *losses, several, strict=True)
    ]


def _arms(runs: pd.DataFrame) -> list[Arm]:
    pressures = _column(runs, "selection_pressure", "")
    options = _column(runs, "strategy_options", "{}")
    heard = _column(runs, "plan_selection_loss", "bce")
    rows = list(zip(runs["strategy"].astype(str), pressures, options, heard, strict=True))
    counts = Counter(rows)
    arms = {
        row: Arm(row[0], parse_pressure(row[1]) if row[1] else None, *row[2:])
        for row in sorted(counts)
    }
    usual: dict[str, Arm] = {}
    for row in sorted(counts, key=lambda row: (*_oddity(arms[row]), -counts[row], row)):
        usual.setdefault(row[0], arms[row])
    made = {row: replace(arm, usual=usual[arm.strategy]) for row, arm in arms.items()}
    return [made[row] for row in rows]


def _oddity(arm: Arm) -> tuple[bool, bool, bool]:
    """Return how far an arm is from the paper's setting, to find the primary one."""
    own = Arm(arm.strategy)
    return arm.options != "{}", arm.selection_loss != "bce", arm.pressure != own.pressure


def _column(runs: pd.DataFrame, name: str, default: str) -> pd.Series:
    return runs.get(name, pd.Series(default, runs.index)).astype(str)
