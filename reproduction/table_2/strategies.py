"""The strategies against each other: who gains, where, and beside what."""

from dataclasses import replace

import pandas as pd
from reproduction.cells import facts_of
from reproduction.measures import label_pairs, where_all_ran
from reproduction.text import (
    ARMS,
    CHAIN,
    FALLING_ADAPTIVE,
    FOCUS,
    MINORITY,
    NAMES,
    PAPER_MODELS,
    RANDOM,
    TITLES,
    arm_table,
    learner_name,
    listed,
    percent,
    table,
)

from tailbatch.analysis import Arm, Learner
from tailbatch.analysis.comparisons import gain
from tailbatch.analysis.curves import minority_gains
from tailbatch.analysis.keys import CELL, PAIR
from tailbatch.results.frames import Evidence

_PRESSURES = {Arm("minority", float(pressure)): str(pressure) for pressure in (2, 4, 8, 16, 32, 64)}


def strategies(evidence: Evidence) -> str:
    """Every way to choose batches against random, over the paper's models."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    parts = ["## Every strategy against random", _strategy_note(runs)]
    parts += [arm_table("strategy", runs, ARMS, FOCUS)]
    for metric in ("minority_average_precision", "macro_auc"):
        rows = [
            (name, *(_by_model(runs, arm, metric, model) for model in PAPER_MODELS))
            for arm, name in ARMS.items()
        ]
        header = [f"{TITLES[metric]} by model, %", *map(learner_name, PAPER_MODELS)]
        parts += [table(header, rows)]
    return "\n\n".join(parts)


def _by_model(runs: pd.DataFrame, arm: Arm, metric: str, model: Learner) -> str:
    change = gain(runs[runs["learner"] == model], arm, metric)
    return "-" if change is None else f"{change}, {change.better_cells}/{change.cells}"


def _strategy_note(runs: pd.DataFrame) -> str:
    cells = len(runs.drop_duplicates(CELL))
    return (
        "Change in the mean over datasets against random, in percent, positive is better, with its 95% "
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
    points, improved, exposure = gains.loc[kind, ["gain", "improved", "exposure"]]
    return f"{100 * points:+.2f}", f"{improved:.0%}", f"{exposure:.2f}x"


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


def minority_pressures(evidence: Evidence) -> str:
    """Set the best pressure of minority beside how imbalanced the labels are."""
    metric = "minority_average_precision"
    arms = _PRESSURES | {MINORITY: "MeanIR"}
    shared = where_all_ran(evidence.runs, [RANDOM, *arms])
    ratios = facts_of(evidence, shared)["mean_imbalance_ratio"]
    cells = set(zip(shared["data"], shared["learner"], strict=True))
    rows = []
    for data, learner in sorted(cells, key=lambda cell: (ratios[cell[0]], cell[1])):
        runs = shared[(shared["data"] == data) & (shared["learner"] == learner)]
        gains = [gain(runs, arm, f"validation_{metric}") for arm in arms]
        name = f"{data}, {learner_name(learner)}"
        rows.append((name, f"{ratios[data]:.4g}", *map(percent, gains)))
    text = (
        "The default pressure of `minority` is MeanIR of the training rows, at most 64. Change of "
        f"minority AP against random in percent on validation rows, {shared['fold'].nunique()} folds, by "
        "constant pressure, the least imbalanced datasets first:"
    )
    header = [TITLES[metric], "MeanIR", *arms.values()]
    return "\n\n".join(
        ["### How to set up `minority`, from validation only", text, table(header, rows)]
    )
