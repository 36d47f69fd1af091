"""Why: the selection weights, the habits of the authors' script, and what the selector says."""

import json
from itertools import product

import pandas as pd
from reproduction.text import (
    ADAPTIVE,
    FOCUS,
    PAPER_MODELS,
    RANDOM,
    TITLES,
    UNIFORM,
    listed,
    shown,
    table,
)

from tailbatch.analysis import Arm
from tailbatch.analysis.gains import gain, where_all_ran
from tailbatch.results.frames import Evidence

_FLAT = 0.93  # an effective sample size of this share of the rows or more is nearly uniform


def weights(spreads: pd.DataFrame, evidence: Evidence) -> str:
    """Show the spread of the selection weights, and the ablation without them."""
    rows = [
        (
            row.dataset,
            row.rows,
            *(f"{value:.2f}" for value in (row.q05, row.median, row.q95, row.q99, row.largest)),
            f"{row.above_two:.1%}",
        )
        for row in spreads.itertuples()
    ]
    flat, narrow = int((spreads["median"] < 1.005).sum()), int((spreads["q95"] < 1.1).sum())
    without = _options(evidence.runs, {"weights": 1.0})
    parts = [
        "## The selection weights",
        "Quantiles of w (Eq. 4) over the training rows of the first fold, and the share of rows above "
        f"2. On {flat} of {len(spreads)} datasets the median is 1 to two digits, and on "
        f"{narrow} even the 95% quantile is below 1.1: there the weights leave the law as it is.",
        table(["dataset", "rows", "5%", "median", "95%", "99%", "largest", "above 2"], rows),
    ]
    if without:
        parts += ["Adaptive (16) with w = 1 for every sample, against adaptive (16) as the paper:"]
        parts += [_ablation(evidence.runs, {"w = 1": without})]
    return "\n\n".join(parts)


def script(evidence: Evidence) -> str:
    """Show what the authors' script does differently, one habit at a time."""
    runs = evidence.runs
    habits = {
        "probabilities renewed once an epoch": _options(runs, {"reference_renewal": "epoch"}),
        "last batch filled up": _options(runs, {"full_batches": True}),
        "weights left out": _options(runs, {"weights": 1.0}),
    }
    unshuffled = _options(runs, {"shuffle": False})
    found = {name: arm for name, arm in habits.items() if arm}
    if not found and not unshuffled:
        return "## The authors' script\n\nThese switches have not been run yet."
    parts = [
        "## The authors' script",
        "The script that comes with the paper renews probabilities once an epoch, fills up the last "
        "batch, leaves the weights out, and compares with a baseline that never shuffles. Each habit "
        "alone, DELA, against adaptive (16) as the paper defines it, in percent:",
        _ablation(runs, found),
    ]
    if unshuffled:
        header = ["baseline", *(TITLES[metric] for metric in FOCUS)]
        dela = runs[runs["learner"] == PAPER_MODELS[-1]]
        # Only the datasets and folds where all ran, so that the rows can be compared.
        dela = where_all_ran(dela, [RANDOM, ADAPTIVE, unshuffled])
        rows = [
            ("unshuffled against shuffled", *_gains(dela, unshuffled, RANDOM)),
            ("adaptive (16) against unshuffled", *_gains(dela, ADAPTIVE, unshuffled)),
            ("adaptive (16) against shuffled", *_gains(dela, ADAPTIVE, RANDOM)),
        ]
        parts += ["And the baseline:", table(header, rows)]
    return "\n\n".join(parts)


def _gains(runs: pd.DataFrame, arm: Arm, baseline: Arm) -> list[str]:
    return [shown(gain(runs, arm, metric, baseline)) for metric in FOCUS]


def _options(runs: pd.DataFrame, wanted: dict[str, object]) -> Arm | None:
    """Return the arm with just these options, None if it was not run."""
    return next((arm for arm in runs["arm"].unique() if json.loads(arm.options) == wanted), None)


def _ablation(runs: pd.DataFrame, arms: dict[str, Arm]) -> str:
    rows = [
        (name, *(shown(gain(runs, arm, metric, ADAPTIVE)) for metric in FOCUS))
        for name, arm in arms.items()
    ]
    return table(["adaptive with", *(TITLES[metric] for metric in FOCUS)], rows)


def diagnosis(evidence: Evidence) -> str:
    """Show where adaptive does not help, and what the selector itself says about it."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    mine = runs[runs["arm"] == ADAPTIVE]
    share = mine["effective_sample_size"] / _train_rows(mine)
    shares = share.groupby(mine["data"]).median()
    rows = []
    for data, group in mine.groupby("data"):
        gains = {m: gain(runs[runs["data"] == data], ADAPTIVE, m) for m in ("macro_auc", "macro_f")}
        rows.append(
            (
                data,
                f"{shares[data]:.0%}",
                f"{group['effective_pressure'].median():.1f}",
                f"{group['distinct_share'].median():.0%}",
                *(shown(found) for found in gains.values()),
            )
        )
    capped = _options(runs, {"cap_quantile": 0.95})
    parts = [
        "## Where adaptive does not help, and why",
        "What the selector says at the end of training (medians over models and folds of adaptive 16): "
        "effective sample size as a share of the rows (100% is uniform), the largest probability over "
        "the smallest, and the share of distinct rows drawn in the last epoch. One row with a very high "
        "loss sets l_max, and all others then share the lowest probabilities: an effective sample size "
        "near 100% means that the law has become nearly uniform. " + _flat_or_not(runs, shares),
        table(
            [
                "dataset",
                "effective sample size",
                "effective pressure",
                "distinct",
                "Macro-AUC",
                "Macro-F",
            ],
            rows,
        ),
    ]
    if capped:
        parts += ["With l_max capped at the 95% quantile of the losses, against adaptive (16):"]
        parts += [_ablation(runs, {"capped law": capped})]
    return "\n\n".join(parts)


def _flat_or_not(runs: pd.DataFrame, shares: pd.Series) -> str:
    """Say what adaptive gains where its law has become nearly uniform, and where it has not."""
    parts = []
    for which, some in (
        (f"It has, {_FLAT:.0%} or more,", shares[shares >= _FLAT]),
        ("It has not", shares[shares < _FLAT]),
    ):
        here = runs[runs["data"].isin(some.index)]
        found = [
            f"{TITLES[metric]} {each} against {baseline}, {each.better_cells} of {each.cells} cells"
            for baseline, metric in product((RANDOM, UNIFORM), ("macro_auc", "macro_f"))
            if (each := gain(here, ADAPTIVE, metric, baseline))
        ]
        if found:
            parts.append(f"{which} on {listed(some.index)}: {'; '.join(found)}.")
    return " ".join(parts)


def _train_rows(group: pd.DataFrame) -> pd.Series:
    return group["drawn_samples"] / group["plan_epochs"]
