"""The page's first section: the questions one would ask, each answered by the records."""

import pandas as pd
from reproduction.choice import SKEWED, mean_ranks, skewed_datasets
from reproduction.gains import gain, where_all_ran
from reproduction.paper import directions
from reproduction.speed import RATES, at_both_rates
from reproduction.strategies import objective_of
from reproduction.text import ARMS, CONTENDERS, MLPS, PAPER_MODELS, TITLES

from tailbatch.report.evidence import Evidence


def in_short(evidence: Evidence) -> str:
    """Return the answers, each with its figures."""
    runs = evidence.runs
    skewed = skewed_datasets(evidence)
    answers = [
        _does_adaptive_help(runs),
        _beside_uniform(runs),
        _rare_labels(runs[runs["data"].isin(skewed)], f"MeanIR above {SKEWED}"),
        _rare_labels(runs[~runs["data"].isin(skewed)], f"MeanIR up to {SKEWED}"),
        _more_than_speed(runs),
        _loss_or_selection(runs),
        _which_default(runs[runs["data"].isin(skewed)]),
    ]
    text = (
        "In percent of the test metric, positive is better, 95% intervals in brackets, from the "
        "spread over folds; a cell is a dataset and a model."
    )
    return "\n".join(
        ["## In short", "", text, "", *(f"- {answer}" for answer in answers if answer)]
    )


def _does_adaptive_help(runs: pd.DataFrame) -> str:
    deep = runs[runs["learner"].isin(PAPER_MODELS)]
    found = [_written(deep, "adaptive", metric) for metric in ("macro_auc", "macro_f")]
    counts = directions(runs)["verdict"].value_counts()
    run = int(counts.drop("not run", errors="ignore").sum())
    if not run:
        return ""
    return (
        f"**Does adaptive (16) help the paper's models?** Against random: {'; '.join(found)}. Of the "
        f"{run} printed directions that we ran, {counts.get('confirmed', 0)} are confirmed and "
        f"{counts.get('contradicted', 0)} contradicted."
    )


def _beside_uniform(runs: pd.DataFrame) -> str:
    deep = runs[runs["learner"].isin(PAPER_MODELS)]
    shared = where_all_ran(deep, ["random", "uniform", "adaptive"])
    if not len(shared):
        return ""
    found = [_written(shared, "adaptive", metric, "uniform") for metric in ("macro_auc", "macro_f")]
    return (
        "**Is it hard samples, or only batches that overlap?** Adaptive (16) against `uniform`, which "
        f"draws independent batches without looking at losses: {'; '.join(found)}."
    )


def _rare_labels(runs: pd.DataFrame, which: str) -> str:
    runs = where_all_ran(runs, list(CONTENDERS))
    if not len(runs):
        return ""
    names = {arm: ARMS[arm] for arm in CONTENDERS if arm != "random"}
    parts = [
        f"{name} {_written(runs, arm, 'minority_average_precision')}" for arm, name in names.items()
    ]
    return (
        f"**Do rare labels gain, {which}** ({', '.join(sorted(set(runs['data'])))}), all models and "
        f"objectives? {'; '.join(parts)}."
    )


def _more_than_speed(runs: pd.DataFrame) -> str:
    shared = at_both_rates(runs)
    if not len(shared):
        return ""
    parts = []
    for lr in RATES.values():
        found = [
            _written(shared, f"minority at {lr}", metric, f"random at {lr}")
            for metric in ("macro_auc", "minority_average_precision")
        ]
        parts.append(f"at {lr} {', '.join(found)}")
    return (
        f"**Is it more than speed?** The MLP with minority (MeanIR) against random at the same learning "
        f"rate, {shared['data'].nunique()} datasets: {'; '.join(parts)}."
    )


def _loss_or_selection(runs: pd.DataFrame) -> str:
    mlp = runs[runs["learner"].isin(MLPS)]
    objectives = mlp["hyperparameters"].map(objective_of)
    # The objective becomes a part of the arm, so that the four ways are compared fold by fold.
    ways = mlp.assign(arm=objectives + ", " + mlp["arm"], learner="mlp")
    arms = {
        "bce, minority": "minority",
        "asymmetric, random": "an asymmetric loss with random batches",
        "asymmetric, minority": "both together",
    }
    shared = where_all_ran(ways, ["bce, random", *arms])
    if not len(shared):
        return ""
    metrics = ("macro_f", "tuned_macro_f", "minority_average_precision")
    parts = [
        f"{name}: {', '.join(_written(shared, arm, metric, 'bce, random') for metric in metrics)}"
        for arm, name in arms.items()
    ]
    return (
        "**Selection, or another loss?** The MLP against plain BCE with random batches, where all "
        f"four ran. {'; '.join(parts)}."
    )


def _which_default(runs: pd.DataFrame) -> str:
    shared = where_all_ran(runs, list(CONTENDERS))
    if not len(shared):
        return ""
    means = mean_ranks(shared, list(CONTENDERS))[1]
    names = {"random": "random", **ARMS}
    order = sorted(means, key=means.__getitem__)
    return (
        "**Which default?** Mean ranks over five metrics on validation rows of the imbalanced datasets: "
        f"{', '.join(f'{names[arm]} {means[arm]:.2f}' for arm in order)}."
    )


def _written(runs: pd.DataFrame, arm: str, metric: str, baseline: str = "random") -> str:
    found = gain(runs, arm, metric, baseline)
    if found is None:
        return f"{TITLES[metric]} not run"
    return f"{TITLES[metric]} {found}, better in {found.better_cells} of {found.cells} cells"
