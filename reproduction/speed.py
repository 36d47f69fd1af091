"""How fast a strategy learns, and whether that is all there is to its gain."""

from dataclasses import replace
from itertools import product

import pandas as pd
from reproduction.cells import at_both_rates, facts_of, gain_at, rates_of
from reproduction.text import (
    ADAPTIVE,
    ARMS,
    BALANCED,
    CONTENDERS,
    FOCUS,
    MINORITY,
    MLPS,
    NAMES,
    PAPER_MODELS,
    RANDOM,
    RATES,
    TITLES,
    learner_name,
    percent,
    shown,
    table,
)

from tailbatch.analysis.curves import epochs_to_lowest
from tailbatch.analysis.fairness import still_learning
from tailbatch.analysis.gains import gain, pairs
from tailbatch.analysis.keys import CELL
from tailbatch.analysis.naming import compare_rates
from tailbatch.results.frames import Evidence


def speed(evidence: Evidence) -> str:
    """Epochs to random's lowest training loss, volatility, and the epoch of the peak."""
    rows = []
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    some = replace(evidence, runs=runs)
    for arm, name in {RANDOM: "random", **ARMS}.items():
        known = epochs_to_lowest(some, arm, RANDOM)
        mine = runs[runs["arm"] == arm]
        if not len(known):
            continue
        there = known[known < float("inf")]
        both = pairs(runs, arm, RANDOM, "volatility")
        rows.append(
            (
                name,
                f"{len(there)} of {len(known)}",
                f"{there.median():.0f}%" if len(there) else "-",
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


def rate(evidence: Evidence) -> str:
    """Compare gains at the paper's learning rate with gains at ten times as much."""
    runs = evidence.runs
    parts = ["## Is it more than speed?", *_random_alone(runs)]
    kinds = {"MLP": MLPS[:1], "The paper's models": PAPER_MODELS}
    shared = {kind: at_both_rates(runs, learners) for kind, learners in kinds.items()}
    ratios = facts_of(evidence)["mean_imbalance_ratio"]
    for kind, some in shared.items():
        if not len(some):
            parts += [f"### {kind}", "Another learning rate has not been run yet."]
            continue
        parts += [f"### {kind}", _rate_note(some), _rate_table(some)]
        column = "data" if kind == "MLP" else "learner"
        parts += [_rate_rows(some, column, ratios)]
    return "\n\n".join(parts)


def _random_alone(runs: pd.DataFrame) -> list[str]:
    """Set random batches at both rates side by side, on validation rows."""
    plain = runs[runs["arm"] == RANDOM]
    plain = compare_rates(plain.assign(rate=rates_of(plain)), rates_of(plain))
    wide = plain.pivot_table("validation_macro_auc", ["learner", "data", "fold"], "rate")
    wide = wide.reindex(columns=list(RATES)).dropna()
    rows = []
    for learner, some in plain.groupby("learner"):
        late = still_learning(some).groupby(some["rate"]).agg(["sum", "size"])
        counts = [
            f"{late['sum'][lr]} of {late['size'][lr]}" if lr in late.index else "-" for lr in RATES
        ]
        both = wide[wide.index.get_level_values("learner") == learner]
        scores = [f"{both[lr].mean():.3f}" if len(both) else "-" for lr in RATES]
        rows.append((learner_name(learner), *counts, len(both), *scores))
    if not rows:
        return []
    text = (
        "At the paper's learning rate of 1e-4 most models are still learning when their 100 epochs end, "
        "and whatever shows a network the rare labels sooner then looks good. Runs with random batches "
        "whose best validation Macro-AUC came in the last five epochs, and its mean over the pairs of "
        "dataset and fold that ran at both rates. MPVAE's runs elsewhere on this page "
        "are those at 1e-3, its authors' rate. PACA's authors do not say "
        "theirs; it was left at 1e-4, as the others."
    )
    header = ["learner", *(f"still learning at {lr}" for lr in RATES), "pairs"]
    header += [f"Macro-AUC at {lr}" for lr in RATES]
    return [text, table(header, sorted(rows))]


def _rate_note(shared: pd.DataFrame) -> str:
    slow, fast = (replace(RANDOM, rate=lr) for lr in RATES)
    faster = [
        f"{TITLES[metric]} {gain(shared, fast, metric, slow)}"
        for metric in ("macro_auc", "minority_average_precision")
    ]
    models = ", ".join(learner_name(each) for each in sorted(set(shared["learner"])))
    folds = shared.groupby([*CELL, "fold"]).ngroups
    return (
        f"{models} on {shared['data'].nunique()} datasets, {folds} pairs of cell and fold: "
        "each strategy against random at the same rate, in percent of the test metric, after "
        "the median epoch of the best validation Macro-AUC. The rate alone, random at 1e-3 against "
        f"random at 1e-4: {', '.join(faster)}. {_better_rate(shared)}"
    )


def _rate_table(shared: pd.DataFrame) -> str:
    rows = []
    for lr, arm in product(RATES, CONTENDERS):
        epoch = shared.loc[shared["arm"] == replace(arm, rate=lr), "best_epoch"].median()
        found = ["" if arm == RANDOM else shown(gain_at(shared, arm, m, lr)) for m in FOCUS]
        rows.append((f"{lr}, {NAMES[arm]}", f"{epoch:.0f}", *found))
    return table(["learning rate, batches", "best epoch", *(TITLES[m] for m in FOCUS)], rows)


def _better_rate(shared: pd.DataFrame) -> str:
    """Count on validation rows how often the higher rate is better, whatever the strategy."""
    wide = shared.assign(
        way=[arm.strategy for arm in shared["arm"]], rate=[arm.rate for arm in shared["arm"]]
    ).pivot_table("validation_macro_auc", [*CELL, "fold", "way"], "rate")
    better = int((wide["1e-3"] > wide["1e-4"]).sum())
    return f"Its validation Macro-AUC is the better one in {better} of {len(wide)} pairs of runs."


def _rate_rows(shared: pd.DataFrame, column: str, ratios: pd.Series) -> str:
    """Return the gain at both rates for each dataset, the least imbalanced first, or learner."""
    wanted = {
        "Macro-AUC, adaptive": (ADAPTIVE, "macro_auc"),
        "minority AP, balanced": (BALANCED, "minority_average_precision"),
        "minority AP, adaptive": (ADAPTIVE, "minority_average_precision"),
        "minority AP, minority": (MINORITY, "minority_average_precision"),
    }
    by_data = column == "data"
    rows = []
    for name in sorted(set(shared[column]), key=ratios.__getitem__ if by_data else str):
        some = shared[shared[column] == name]
        found = [gain_at(some, arm, m, lr) for arm, m in wanted.values() for lr in RATES]
        first = (name, f"{ratios[name]:.4g}") if by_data else (learner_name(name),)
        rows.append((*first, *map(percent, found)))
    header = ["dataset", "MeanIR"] if by_data else ["model"]
    return table([*header, *(f"{title} at {lr}" for title in wanted for lr in RATES)], rows)
