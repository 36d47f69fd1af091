"""Which strategy to take by default and how to set it up, and whether that holds elsewhere."""

import pandas as pd
from reproduction.cells import cells_of, facts_of, within
from reproduction.text import (
    ARMS,
    BALANCED,
    CONTENDERS,
    FALLING_MINORITY,
    FAST_MLPS,
    FAST_MODELS,
    FOCUS,
    MINORITY,
    MLPS,
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

from tailbatch.analysis import Arm, Dataset
from tailbatch.analysis.gains import gain, where_all_ran
from tailbatch.analysis.keys import CELL
from tailbatch.analysis.significance import validation_ranks
from tailbatch.results.frames import Evidence

SKEWED = 2  # a mean imbalance ratio above this is what selection is for


def by_learner(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Return the runs of cells and folds where all contenders ran, by kind of learner."""
    shared = where_all_ran(evidence.runs, CONTENDERS)
    learners = shared["learner"]
    kinds = {
        "MLP (lr 1e-4)": shared[learners == MLPS[0]],
        "MLP, reweighted loss (lr 1e-4)": shared[learners.isin(MLPS[1:])],
        "MLP (lr 1e-3)": shared[learners == FAST_MLPS[0]],
        "MLP, reweighted loss (lr 1e-3)": shared[learners.isin(FAST_MLPS[1:])],
        "the paper's models": shared[learners.isin(PAPER_MODELS)],
        "the paper's models (lr 1e-3)": shared[learners.isin(FAST_MODELS)],
    }
    return {name: runs for name, runs in kinds.items() if len(runs)}


def kinds_of_cells(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Return the same by kind of data, too: nearly balanced labels are one kind for all learners."""
    skewed = skewed_datasets(evidence)
    by = by_learner(evidence)
    kinds = {f"imbalanced labels, {name}": r[r["data"].isin(skewed)] for name, r in by.items()}
    if by:
        runs = pd.concat(by.values())
        kinds["nearly balanced labels, all models"] = runs[~runs["data"].isin(skewed)]
    return {name: runs for name, runs in kinds.items() if len(runs)}


def default(evidence: Evidence) -> str:
    """Rank the strategies that could be the default on validation rows."""
    shared = where_all_ran(evidence.runs, CONTENDERS)
    parts = ["## A default, from validation only"]
    if not len(shared):
        return "\n\n".join([*parts, "Not enough runs yet to rank the strategies in one cell."])
    parts += [
        f"Mean rank on validation rows, 1 is best, {len(CONTENDERS)} is last; the lowest mean comes "
        "first. Cells count alike, with the folds that all have."
    ]
    for title, some in {"all cells": shared, **kinds_of_cells(evidence)}.items():
        parts += [_rank_note(title, some), _rank_table(some)]
    return "\n\n".join(parts)


def skewed_datasets(evidence: Evidence) -> set[Dataset]:
    """Return the datasets whose labels are clearly imbalanced."""
    ratios = facts_of(evidence)["mean_imbalance_ratio"]
    return set(ratios.index[ratios > SKEWED])


def _rank_note(title: str, runs: pd.DataFrame) -> str:
    return (
        f"**{title[0].upper()}{title[1:]}** ({listed(runs['data'])}): "
        f"{len(runs.drop_duplicates(CELL))} cells, {len(runs) // len(CONTENDERS)} pairs of cell and fold."
    )


def _rank_table(runs: pd.DataFrame) -> str:
    ranks = validation_ranks(runs, FOCUS).sort_values("mean", kind="stable")
    rows = [
        (NAMES[arm], *(f"{rank:.2f}" for rank in row))
        for arm, row in zip(ranks.index, ranks.to_numpy(), strict=True)
    ]
    return table(["strategy", *(TITLES.get(name, name) for name in ranks)], rows)


_CONSTANT = {Arm("minority", float(pressure)): str(pressure) for pressure in (2, 4, 8, 16, 32, 64)}
_OWN = {MINORITY: "MeanIR"}
_FALLING = {FALLING_MINORITY: "64 to 1"}
_FALLING_LESS = {Arm("minority", (64.0, 4.0)): "64 to 4"}
_POWER_1 = {
    Arm("minority", arm.pressure, '{"power": 1.0}'): f"{name}, power 1"
    for arm, name in (_CONSTANT | _FALLING).items()
    if name in ("4", "16", "64 to 1")
}


def tuning(evidence: Evidence) -> str:
    """Try ways to set up minority, on validation rows."""
    parts = ["## How to set up `minority`, from validation only"]
    parts += [part for part in (_setups(evidence), _by_imbalance(evidence)) if part]
    if len(parts) == 1:
        parts += ["The ways to set it up have not been run yet."]
    return "\n\n".join(parts)


def _setups(evidence: Evidence) -> str:
    """Set ways to set up minority beside each other, at the paper's learning rate and at a higher one."""
    balanced = {BALANCED: "balanced"}
    tried = {
        MLPS[0]: _CONSTANT | _OWN | _FALLING | _FALLING_LESS | _POWER_1 | balanced,
        FAST_MLPS[0]: _CONSTANT | _OWN | _FALLING | balanced,
    }
    metrics = [f"validation_{name}" for name in FOCUS if name != "minority_macro_f"]
    parts = []
    for learner, arms in tried.items():
        runs = evidence.runs[evidence.runs["learner"] == learner]
        shared = where_all_ran(runs, [RANDOM, *arms])
        if not len(shared):
            continue
        parts += [
            f"{learner_name(learner)} on {listed(shared['data'])}, "
            f"{shared['fold'].nunique()} folds:",
            arm_table("minority with", shared, arms, metrics),
        ]
    if not parts:
        return ""
    text = (
        "Change against random in percent on validation rows: constant and annealed pressures, and "
        "rarity counted by its square root (power 0.5, the default) or as it is (power 1)."
    )
    return "\n\n".join([text, *parts])


def _by_imbalance(evidence: Evidence) -> str:
    """Set the best pressure beside how imbalanced the labels are."""
    arms = _CONSTANT | _OWN
    shared = where_all_ran(evidence.runs, [RANDOM, *arms])
    if not len(shared):
        return ""
    ratios = facts_of(evidence)["mean_imbalance_ratio"]
    parts = [
        "The best pressure rises with how imbalanced the labels are: little or none where they are "
        "nearly balanced, much where they are not. So the default follows the data: MeanIR of the "
        "training rows, at most 64, the largest pressure that was tried. At 1e-3, where nothing is "
        "gained by learning sooner, Macro-AUC asks for less of it than at 1e-4, minority AP for about "
        "as much (on enron for less). Change against random in percent on validation rows, "
        f"{shared['fold'].nunique()} folds, by constant pressure, the least imbalanced datasets first:"
    ]
    cells = sorted(cells_of(shared), key=lambda cell: (ratios[cell[0]], cell[1]))
    for metric in ("macro_auc", "minority_average_precision"):
        rows = []
        for data, learner in cells:
            some = within(shared, data, learner)
            gains = [gain(some, arm, f"validation_{metric}") for arm in arms]
            name = f"{data}, {learner_name(learner)}"
            rows.append((name, f"{ratios[data]:.4g}", *map(percent, gains)))
        parts += [table([TITLES[metric], "MeanIR", *arms.values()], rows)]
    return "\n\n".join(parts)


def confirmation(evidence: Evidence) -> str:
    """Set the contenders side by side on datasets that were not there when the default was chosen."""
    runs = evidence.runs
    asked = set(runs.loc[runs["arm"] == Arm("minority", 2.0), "data"])
    shared = where_all_ran(runs[~runs["data"].isin(asked)], CONTENDERS)
    if not len(shared):
        return ""
    arms = {arm: ARMS[arm] for arm in CONTENDERS[1:]}
    text = (
        f"The choice was made on {listed(asked)}. These had no say in it: "
        f"{listed(shared['data'])}. Change against random in percent of the test "
        f"metric, {len(shared) // len(CONTENDERS)} pairs of cell and fold where all of these ran:"
    )
    rows = []
    for data, learner in cells_of(shared):
        some = within(shared, data, learner)
        gains = [
            gain(some, arm, metric)
            for metric in ("macro_auc", "minority_average_precision")
            for arm in arms
        ]
        rows.append((f"{data}, {learner_name(learner)}", *map(percent, gains)))
    names = [arm.strategy for arm in arms]
    header = ["cell", *(f"Macro-AUC, {name}" for name in names)]
    header += [f"minority AP, {name}" for name in names]
    return "\n\n".join(
        [
            "## The default on datasets that had no say in it",
            text,
            arm_table("strategy", shared, arms, FOCUS),
            table(header, rows),
        ]
    )
