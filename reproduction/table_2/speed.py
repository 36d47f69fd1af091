"""How fast a strategy learns, and whether that is all there is to its gain."""

from dataclasses import replace
from itertools import product

import pandas as pd
from reproduction.cells import at_both_rates, gain_at, rates_of
from reproduction.measures import (
    best_epochs,
    better_at_the_higher_rate,
    compare_rates,
    late_by_rate,
    learning_speed,
)
from reproduction.text import (
    ADAPTIVE,
    BALANCED,
    CONTENDERS,
    FOCUS,
    MINORITY,
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

from tailbatch.analysis.comparisons import gain
from tailbatch.analysis.keys import CELL
from tailbatch.results.frames import Evidence

_RARE = "minority_average_precision"


def speed(evidence: Evidence) -> str:
    """Epochs to random's lowest training loss, volatility, and the epoch of the peak."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    arms = [arm for arm in NAMES if arm.strategy != "chain"]
    rows = [
        (
            NAMES[row.Index],
            f"{row.reached} of {row.pairs}",
            f"{row.epochs:.0f}%" if row.reached else "-",
            f"{row.volatility:.2f}x",
            f"{row.best_epoch:.0f}",
        )
        for row in learning_speed(replace(evidence, runs=runs), arms, RANDOM).itertuples()
    ]
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
    """Compare the paper's models at its learning rate with ten times as much."""
    runs = evidence.runs
    parts = ["## Is it more than speed?", *_random_alone(runs)]
    some = at_both_rates(runs, PAPER_MODELS)
    if len(some):
        parts += [_rate_note(some), _rate_table(some), _by_model(some)]
    else:
        parts += ["Another learning rate has not been run yet."]
    return "\n\n".join(parts)


def _random_alone(runs: pd.DataFrame) -> list[str]:
    """Set random batches at both rates side by side, on validation rows."""
    plain = runs[runs["arm"] == RANDOM]
    late = late_by_rate(compare_rates(plain, rates_of(plain)), RATES, "macro_auc")
    counts = late["late"].map("{:.0f} of ".format) + late["runs"].map("{:.0f}".format)
    counts, scores = counts.where(late["runs"].notna(), "-"), late["score"].map("{:.3f}".format)
    scores, pairs = scores.where(late["score"].notna(), "-"), late["pairs"].fillna(0).astype(int)
    rows = [
        (learner_name(learner), *counts[learner], pairs[learner, RATES[0]], *scores[learner])
        for learner in late.index.unique("learner")
    ]
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
    faster = [f"{TITLES[m]} {gain(shared, fast, m, slow)}" for m in ("macro_auc", _RARE)]
    models = ", ".join(learner_name(learner) for learner in sorted(set(shared["learner"])))
    better, compared = better_at_the_higher_rate(shared, "validation_macro_auc")
    return (
        f"{models} on {shared['data'].nunique()} datasets, "
        f"{len(shared.drop_duplicates([*CELL, 'fold']))} pairs of cell and fold: "
        "each strategy against random at the same rate, in percent of the test metric, after "
        "the median epoch of the best validation Macro-AUC. The rate alone, random at 1e-3 against "
        f"random at 1e-4: {', '.join(faster)}. Its validation Macro-AUC is the better one in {better} of "
        f"{compared} pairs of runs."
    )


def _rate_table(shared: pd.DataFrame) -> str:
    rows, epochs = [], best_epochs(shared)
    for lr, arm in product(RATES, CONTENDERS):
        epoch = epochs[replace(arm, rate=lr)]
        gains = ["" if arm == RANDOM else shown(gain_at(shared, arm, m, lr)) for m in FOCUS]
        rows.append((f"{lr}, {NAMES[arm]}", f"{epoch:.0f}", *gains))
    return table(["learning rate, batches", "best epoch", *(TITLES[m] for m in FOCUS)], rows)


def _by_model(shared: pd.DataFrame) -> str:
    """Return the gain at both rates for each model."""
    wanted = {
        "Macro-AUC, adaptive": (ADAPTIVE, "macro_auc"),
        "minority AP, balanced": (BALANCED, _RARE),
        "minority AP, adaptive": (ADAPTIVE, _RARE),
        "minority AP, minority": (MINORITY, _RARE),
    }
    rows = []
    for learner in sorted(set(shared["learner"])):
        some = shared[shared["learner"] == learner]
        gains = [gain_at(some, arm, m, lr) for arm, m in wanted.values() for lr in RATES]
        rows.append((learner_name(learner), *map(percent, gains)))
    return table(["model", *(f"{title} at {lr}" for title in wanted for lr in RATES)], rows)
