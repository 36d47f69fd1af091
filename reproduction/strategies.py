"""The strategies against each other: who gains, where, and beside what."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from reproduction.cells import by_loss, facts_of
from reproduction.text import (
    ADAPTIVE,
    ARMS,
    BALANCED,
    CHAIN,
    CONTENDERS,
    FALLING_ADAPTIVE,
    FALLING_MINORITY,
    FOCUS,
    HARD,
    LOSSES,
    MINORITY,
    NAMES,
    PAPER_MODELS,
    RANDOM,
    RATES,
    UNIFORM,
    arm_table,
    learner_name,
    listed,
    table,
)

from tailbatch.analysis import Arm, Learner
from tailbatch.analysis.gains import PAIR, gains_by_dataset, rank_correlation, where_all_ran
from tailbatch.analysis.keys import CELL
from tailbatch.analysis.labels import label_pairs, minority_gains, minority_labels
from tailbatch.results.frames import Evidence


def strategies(evidence: Evidence) -> str:
    """Every way to choose batches against random, over the paper's models."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    parts = ["## Every strategy against random", _strategy_note(runs)]
    models = sorted(PAPER_MODELS)
    by_model = [(learner_name(model), runs[runs["learner"] == model]) for model in models]
    for title, some in (("All cells", runs), *by_model):
        gains = arm_table("strategy", some, ARMS, FOCUS)
        if gains:
            parts += [f"### {title}", gains]
    return "\n\n".join(parts)


def _strategy_note(runs: pd.DataFrame) -> str:
    cells = len(runs.drop_duplicates(CELL))
    return (
        "Change of the average over datasets in percent against random, positive is better, with its 95% "
        f"interval ({cells} cells of the five models), bold where it excludes zero; then on how many "
        "cells the strategy is better. Each strategy is compared on the cells it ran in. These tables "
        "describe: nothing in them is corrected for the number of comparisons."
    )


def minority(evidence: Evidence) -> str:
    """Whether it is the minority labels that gain."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    some = replace(evidence, runs=runs)
    rows = []
    for arm, name in ARMS.items():
        gains = minority_gains(label_pairs(some, arm, RANDOM)).set_index("kind")
        if len(gains):
            kinds = ("minority labels", "other labels")
            rows.append((name, *(text for kind in kinds for text in _kind(gains, kind))))
    text = (
        "Average precision of single labels against random, mean over labels and folds in points of "
        "100, the share of labels that improve, and how often their samples were drawn against their "
        "share of the training rows."
    )
    header = ["strategy", "minority labels", "improved", "exposure"]
    header += ["other labels", "improved", "exposure"]
    return "\n\n".join(["## Is it the minority labels that gain?", text, table(header, rows)])


def _kind(gains: pd.DataFrame, kind: str) -> tuple[str, str, str]:
    if kind not in gains.index:
        return "-", "-", "-"
    gain, improved, exposure = gains.loc[kind, ["gain", "improved", "exposure"]]
    return f"{100 * gain:+.2f}", f"{improved:.0%}", f"{exposure:.2f}x"


def against_facts(evidence: Evidence) -> str:
    """Gain against MeanIR, number of labels and cardinality."""
    facts = facts_of(evidence).join(minority_labels(evidence)).sort_values("mean_imbalance_ratio")
    columns = {
        "mean_imbalance_ratio": "MeanIR",
        "n_labels": "q",
        "label_cardinality": "cardinality",
        "minority_labels": "minority labels",
        "minority_rows": "their rows",
    }
    names = (
        ADAPTIVE,
        FALLING_ADAPTIVE,
        MINORITY,
        Arm("minority", 16.0),
        FALLING_MINORITY,
        BALANCED,
    )
    runs = evidence.runs
    correlations, by_dataset = [], {}
    for arm in names:
        gains = gains_by_dataset(runs, arm, "minority_average_precision")
        by_dataset[arm] = gains
        hints = [_correlation(rank_correlation(gains, facts[column])) for column in columns]
        correlations.append((ARMS[arm], len(gains), *hints))
    rows = [
        (
            data,
            *(f"{facts.loc[data, column]:.4g}" for column in columns),
            *(_points(by_dataset[arm].get(data)) for arm in names),
        )
        for data in facts.index
        if any(data in gains.index for gains in by_dataset.values())
    ]
    text = (
        "Mean gain in minority average precision over all models and folds, in points of 100, beside "
        "what the prepared dataset is like, the least imbalanced first: also how many minority labels "
        "there are, and in how many training rows the middle one of them is positive; the test rows "
        "have an eighth of that, so where labels or rows are few, a single row moves the figure. Then "
        "Spearman's correlation over the datasets, which with so few of them is a hint at most. In the "
        "picture a point is a cell, and the scale is linear up to 10% and logarithmic beyond."
    )
    picture = (
        "![Change in minority average precision against MeanIR, for each strategy and learner]"
        "(assets/imbalance.svg)"
    )
    header = ["dataset", *columns.values(), *(ARMS[arm] for arm in names)]
    return "\n\n".join(
        [
            "## Gain and what the data is like",
            text,
            picture,
            table(header, rows),
            table(["strategy", "datasets", *columns.values()], correlations),
        ]
    )


def _correlation(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:+.2f}"


def _points(value: float | None) -> str:
    return "-" if value is None or pd.isna(value) else f"{100 * value:+.2f}"


def pressures(evidence: Evidence) -> str:
    """Set the pressures of adaptive, and label chains, beside random."""
    arms = {
        **{
            Arm("adaptive", float(pressure)): f"adaptive ({pressure})"
            for pressure in (2, 8, 16, 64)
        },
        FALLING_ADAPTIVE: ARMS[FALLING_ADAPTIVE],
        CHAIN: NAMES[CHAIN],
    }
    shared = where_all_ran(evidence.runs, [RANDOM, *arms])
    parts = ["## The pressure, and label chains"]
    if not len(shared):
        return "\n\n".join([*parts, "Other pressures and chains have not been run yet."])
    for model in sorted(set(shared["model"])):
        runs = shared[shared["model"] == model]
        parts += [
            f"{learner_name(Learner(model))}, on the {len(runs.drop_duplicates(PAIR))} pairs of cell and "
            f"fold where all of these ran ({listed(runs['data'])}), in percent against random:",
            arm_table("strategy", runs, arms, FOCUS),
        ]
    return "\n\n".join(parts)


def reweighting(evidence: Evidence) -> str:
    """Set selection beside a reweighted loss and tuned thresholds, with the MLP."""
    ways = by_loss(evidence.runs)
    parts = [
        "## Selection, reweighted loss, tuned thresholds",
        "The MLP: change against plain BCE with random batches at the same learning rate, in percent. "
        "`weighted bce` weights positives by sqrt(negatives / positives), `asymmetric` ignores easy "
        "negatives; thresholds are 0.5, or tuned for each label on validation.",
    ]
    every = (RANDOM, UNIFORM, BALANCED, HARD, ADAPTIVE, FALLING_ADAPTIVE, MINORITY, CHAIN)
    for title, arms, rates in (
        ("### At 1e-4 and where it converges", CONTENDERS, RATES),
        ("### Every strategy at 1e-4", every, RATES[:1]),
    ):
        shared = where_all_ran(ways, [way for rate in rates for way in _ways(arms, rate)])
        if not len(shared):
            parts += [title, "The three objectives have not been run yet."]
            continue
        pairs = len(shared.drop_duplicates(["data", "fold"]))
        parts += [
            title,
            f"{pairs} pairs of dataset and fold where all of these ran ({listed(shared['data'])}):",
        ]
        parts += [_loss_table(shared, arms, rate) for rate in rates]
    return "\n\n".join(parts)


def _ways(arms: Sequence[Arm], rate: str) -> dict[Arm, str]:
    return {
        replace(arm, loss=loss, rate=rate): f"{loss.replace('_', ' ')}, {NAMES[arm]}"
        for loss in LOSSES
        for arm in arms
    }


def _loss_table(shared: pd.DataFrame, arms: Sequence[Arm], rate: str) -> str:
    metrics = ("macro_f", "tuned_macro_f", "minority_average_precision", "macro_auc")
    (plain, _), *ways = _ways(arms, rate).items()
    return arm_table(f"objective, batches at {rate}", shared, dict(ways), metrics, plain)
