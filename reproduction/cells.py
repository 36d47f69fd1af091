"""Which runs the page is about, and by which keys they are compared."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from reproduction.measures import compare_rates, where_all_ran
from reproduction.text import CONTENDERS, RANDOM, RATES, rate_name

from tailbatch.analysis import Arm, Dataset, Learner
from tailbatch.analysis.comparisons import Gain, gain
from tailbatch.analysis.keys import named
from tailbatch.results import RecordSource, RunSpec
from tailbatch.results.frames import Evidence, read_store

_USUAL_RATE = 1e-4
#: MPVAE's is its authors' own.
_USUAL_RATES = {"mpvae": 1e-3}
_SAID = ("effective_sample_size", "effective_pressure", "distinct_share")


def collected(records: RecordSource) -> Evidence:
    """Return records with the page's keys: a model at another learning rate is another learner."""
    evidence = named(read_store(records, diagnostics=_SAID))
    runs = evidence.runs
    usual = runs["model"].map(_USUAL_RATES).fillna(_USUAL_RATE)
    rates = [None if lr == own else lr for lr, own in zip(runs["plan_lr"], usual, strict=True)]
    pairs = zip(runs["learner"], rates, strict=True)
    learners = [replace(learner, rate=rate) for learner, rate in pairs]
    data = [Dataset(name) for name in runs["dataset"]]
    return replace(evidence, runs=runs.assign(data=data, learner=learners))


def facts_of(evidence: Evidence, runs: pd.DataFrame) -> pd.DataFrame:
    """Return what the datasets are like as they were prepared for some runs."""
    keys = ["dataset", "preparation"]
    prepared = pd.MultiIndex.from_frame(runs[keys])
    facts = evidence.datasets[pd.MultiIndex.from_frame(evidence.datasets[keys]).isin(prepared)]
    facts = facts.drop_duplicates("dataset")
    return facts.set_index(pd.Index([Dataset(name) for name in facts["dataset"]], dtype=object))


def rates_of(runs: pd.DataFrame) -> list[str]:
    """Return the rate at which each run learns."""
    return [rate_name(lr) for lr in runs["plan_lr"]]


def at_both_rates(runs: pd.DataFrame, learners: Sequence[Learner]) -> pd.DataFrame:
    """Return the runs of learners at both learning rates, the rate a part of the arm, where all ran."""
    wanted = {replace(learner, rate=None) for learner in learners}
    some = runs[[replace(learner, rate=None) in wanted for learner in runs["learner"]]]
    ways = compare_rates(some, rates_of(some))
    return where_all_ran(ways, [replace(arm, rate=lr) for arm in CONTENDERS for lr in RATES])


def gain_at(runs: pd.DataFrame, arm: Arm, metric: str, lr: str) -> Gain | None:
    """Return an arm's gain on random at the same rate."""
    return gain(runs, replace(arm, rate=lr), metric, replace(RANDOM, rate=lr))


def preset_cell(spec: RunSpec) -> tuple[str, str, str]:
    """Return the model, preset and dataset of a run with a preset."""
    return spec.model, str(spec.hyperparameters["preset"]), spec.dataset
