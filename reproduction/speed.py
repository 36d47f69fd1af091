"""How fast a strategy learns, and whether that is all there is to its gain."""

from itertools import product

import pandas as pd
from reproduction.gains import CELL, Gain, facts_of, gain, pairs, where_all_ran
from reproduction.text import (
    ARMS,
    CONTENDERS,
    FAST_MLPS,
    FOCUS,
    MLPS,
    PAPER_MODELS,
    TITLES,
    learner_name,
    percent,
    shown,
    table,
)

from tailbatch.report.evidence import Evidence
from tailbatch.report.fairness import still_learning

RATES = {MLPS[0]: "1e-4", FAST_MLPS[0]: "1e-3"}
"""The MLP at the paper's learning rate and at ten times as much."""


def speed(evidence: Evidence) -> str:
    """Epochs to random's lowest training loss, volatility, and the epoch of the peak."""
    rows = []
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    curves = evidence.curves.merge(runs[[*CELL, "arm", "fold", "digest"]], on="digest")
    curves = curves.dropna(subset="training_bce")
    for arm, name in {"random": "random", **ARMS}.items():
        reached = [
            _epochs_to(group, arm) for _, group in curves.groupby([*CELL, "fold"]) if len(group)
        ]
        known = [value for value in reached if value is not None]
        mine = runs[runs["arm"] == arm]
        if not len(mine) or not known:
            continue
        there = [value for value in known if value < float("inf")]
        both = pairs(runs, arm, "random", "volatility")
        rows.append(
            (
                name,
                f"{len(there)} of {len(known)}",
                f"{pd.Series(there).median():.0f}%" if there else "-",
                f"{(both['value'] / both['before']).median():.2f}x",
                f"{mine['best_epoch'].median():.0f}",
            )
        )
    text = (
        "Against random's lowest training loss (BCE over all training rows, measured every five "
        "epochs): in how many runs the strategy reaches it within 100 epochs, and after how many epochs "
        "of random's own number (median). Epochs are steps here: every strategy draws as many samples. "
        "Volatility is the mean absolute step between neighboring batch objectives over their mean, here "
        "against that of random in the same cell and fold (median); a selected batch is harder than a "
        "shuffled one, so it is no measure of progress. Last, the median epoch of the best validation "
        "Macro-AUC. Seconds are not compared: the runs shared "
        "their machine with other work; `benchmarks/` measures the cost of selection itself."
    )
    header = ["strategy", "reaches random's lowest", "epochs needed", "volatility", "best epoch"]
    return "\n\n".join(["## Speed and steadiness of training", text, table(header, rows)])


def _epochs_to(group: pd.DataFrame, arm: str) -> float | None:
    """Return an arm's epochs to random's lowest loss, in percent of random's; None if not run."""
    plain, mine = group[group["arm"] == "random"], group[group["arm"] == arm]
    if not len(plain) or not len(mine):
        return None
    lowest = plain.loc[plain["training_bce"].idxmin()]
    reached = mine.loc[mine["training_bce"] <= lowest["training_bce"], "number"]
    return 100 * float(reached.min()) / float(lowest["number"]) if len(reached) else float("inf")


def rate(evidence: Evidence) -> str:
    """Compare gains at the paper's learning rate with gains at ten times as much."""
    parts = ["## Is it more than speed?", *_still_learning(evidence.runs)]
    shared = at_both_rates(evidence.runs)
    if not len(shared):
        return "\n\n".join([*parts, "Another learning rate has not been run yet."])
    rows = []
    for lr, arm in product(RATES.values(), CONTENDERS):
        name = f"{arm} at {lr}"
        epoch = shared.loc[shared["arm"] == name, "best_epoch"].median()
        found = ["" if arm == "random" else shown(_same_rate(shared, name, m)) for m in FOCUS]
        rows.append((f"{lr}, {ARMS.get(arm, arm)}", f"{epoch:.0f}", *found))
    faster = [
        f"{TITLES[metric]} {gain(shared, 'random at 1e-3', metric, 'random at 1e-4')}"
        for metric in ("macro_auc", "minority_average_precision")
    ]
    text = (
        "At the paper's learning rate of 1e-4 the MLP is still learning when its 100 epochs end, so "
        "whatever shows a network the rare labels sooner looks good. Here is the same with 1e-3, on "
        f"{shared['data'].nunique()} datasets, {shared.groupby(['data', 'fold']).ngroups} pairs of "
        "dataset and fold: each strategy against random at the same rate, in percent of the test metric, "
        "after the median epoch of the best validation Macro-AUC. The rate alone, random at 1e-3 against "
        f"random at 1e-4: {', '.join(faster)}. {_better_rate(shared)}"
    )
    header = ["learning rate, batches", "best epoch", *(TITLES[metric] for metric in FOCUS)]
    one = ["minority AP, minority (MeanIR)", "MeanIR", *RATES.values()]
    return "\n\n".join(
        [*parts, text, table(header, rows), table(one, _rate_rows(shared, evidence))]
    )


def _still_learning(runs: pd.DataFrame) -> list[str]:
    """Count the runs with random batches that were best in their last epochs."""
    plain = runs[runs["arm"] == "random"]
    counts = still_learning(plain).groupby(plain["learner"]).agg(["sum", "size"])
    rows = [
        (learner_name(learner), f"{late} of {size}") for learner, late, size in counts.itertuples()
    ]
    text = "Runs with random batches whose best validation Macro-AUC came in the last five epochs:"
    return [text, table(["learner", "still learning"], rows)] if rows else []


def _better_rate(shared: pd.DataFrame) -> str:
    """Count on validation rows how often the higher rate is better, whatever the strategy."""
    arms, rates = shared["arm"].str.split(" at ").str[0], shared["arm"].str.split(" at ").str[1]
    wide = shared.assign(arms=arms, rates=rates).pivot_table(
        "validation_macro_auc", ["data", "fold", "arms"], "rates"
    )
    better = int((wide["1e-3"] > wide["1e-4"]).sum())
    return f"Its validation Macro-AUC is the better one in {better} of {len(wide)} pairs of runs."


def at_both_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the MLP's runs at both learning rates, the rate a part of the arm, where all ran."""
    some = runs[runs["learner"].isin(RATES)]
    ways = some.assign(arm=some["arm"] + " at " + some["learner"].map(RATES), learner="mlp")
    arms = product(CONTENDERS, RATES.values())
    return where_all_ran(ways, [f"{arm} at {lr}" for arm, lr in arms])


def _same_rate(shared: pd.DataFrame, arm: str, metric: str) -> Gain | None:
    return gain(shared, arm, metric, f"random at {arm.rpartition(' ')[2]}")


def _rate_rows(shared: pd.DataFrame, evidence: Evidence) -> list[tuple[str, ...]]:
    ratios = facts_of(evidence)["mean_imbalance_ratio"]
    rows = []
    for data in sorted(set(shared["data"]), key=ratios.__getitem__):
        some = shared[shared["data"] == data]
        found = [
            _same_rate(some, f"minority at {lr}", "minority_average_precision")
            for lr in RATES.values()
        ]
        rows.append((data, f"{ratios[data]:.4g}", *map(percent, found)))
    return rows
