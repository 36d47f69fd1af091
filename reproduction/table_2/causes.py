"""Why: the selection weights, the habits of the authors' script, and what the selector says."""

import json
from itertools import product

import pandas as pd
from reproduction.measures import selector_state, where_all_ran
from reproduction.records import HERE, TABLE
from reproduction.text import (
    ADAPTIVE,
    FOCUS,
    PAPER_MODELS,
    RANDOM,
    TITLES,
    UNIFORM,
    arm_table,
    gain_table,
    listed,
    shown,
    table,
)

from tailbatch.analysis import Arm
from tailbatch.analysis.comparisons import gain
from tailbatch.results.frames import Evidence

_FLAT = 0.93  # an effective sample size of this share of the rows or more is nearly uniform
_OVERALL = ("macro_auc", "macro_f")


def weights(evidence: Evidence) -> str:
    """Show the spread of the selection weights, and the ablation without them."""
    spreads = pd.read_csv(HERE / TABLE / "weights.csv")
    rows = [
        (
            row.dataset,
            row.rows,
            *(f"{value:.2f}" for value in (row.q05, row.median, row.q95, row.q99, row.largest)),
            f"{row.above_two:.1%}",
        )
        for row in spreads.itertuples()
    ]
    parts = [
        "## The selection weights",
        "Quantiles of w (Eq. 4) over the training rows of the first fold, and the share of rows above "
        f"2. On {len(spreads[spreads['median'] < 1.005])} of {len(spreads)} datasets the median is 1 to "
        f"two digits, and on {len(spreads[spreads['q95'] < 1.1])} even the 95% quantile is below 1.1: "
        "there the weights leave the probabilities as they are.",
        table(["dataset", "rows", "5%", "median", "95%", "99%", "largest", "above 2"], rows),
    ]
    without = _ablation(evidence.runs, {"w = 1": {"weights": 1.0}})
    if without:
        parts += ["Adaptive (16) with w = 1 for every sample, against adaptive (16) as the paper:"]
    return "\n\n".join([*parts, without] if without else parts)


def script(evidence: Evidence) -> str:
    """Show what the authors' script does differently, one habit at a time."""
    runs = evidence.runs
    habits: dict[str, dict[str, object]] = {
        "probabilities renewed once per epoch": {"reference_renewal": "epoch"},
        "last batch filled up": {"full_batches": True},
        "weights left out": {"weights": 1.0},
    }
    ablation, unshuffled = _ablation(runs, habits), _with_options(runs, {"shuffle": False})
    if not ablation and not unshuffled:
        return "## The authors' script\n\nThese switches have not been run yet."
    parts = [
        "## The authors' script",
        "The script that comes with the paper renews probabilities once per epoch, fills up the last "
        "batch, leaves the weights out, and compares with a baseline that never shuffles. Each habit "
        "alone, DELA, against adaptive (16) as the paper defines it, in percent:",
        ablation,
    ]
    if unshuffled:
        # Only the datasets and folds where all ran, so that the rows can be compared.
        dela = runs[runs["learner"] == PAPER_MODELS[-1]]
        dela = where_all_ran(dela, [RANDOM, ADAPTIVE, unshuffled])
        rows = [
            (("unshuffled against shuffled",), dela, unshuffled, RANDOM),
            (("adaptive (16) against unshuffled",), dela, ADAPTIVE, unshuffled),
            (("adaptive (16) against shuffled",), dela, ADAPTIVE, RANDOM),
        ]
        parts += ["And the baseline:", gain_table(["baseline"], rows, FOCUS)]
    return "\n\n".join(parts)


def _with_options(runs: pd.DataFrame, wanted: dict[str, object]) -> Arm | None:
    """Return the arm with just these options, None if it was not run."""
    return next((arm for arm in runs["arm"].unique() if json.loads(arm.options) == wanted), None)


def _ablation(runs: pd.DataFrame, options: dict[str, dict[str, object]]) -> str:
    """Return adaptive with other options against adaptive as published; empty if none was run."""
    arms = {_with_options(runs, wanted): name for name, wanted in options.items()}
    there = {arm: name for arm, name in arms.items() if arm is not None}
    return arm_table("adaptive with", runs, there, FOCUS, ADAPTIVE)


def diagnosis(evidence: Evidence) -> str:
    """Show where adaptive does not help, and what the selector itself says about it."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    state = selector_state(runs, ADAPTIVE)
    rows = []
    for row in state.itertuples():
        here = runs[runs["data"] == row.Index]
        said = (
            f"{row.sample_share:.0%}",
            f"{row.effective_pressure:.1f}",
            f"{row.distinct_share:.0%}",
        )
        rows.append((row.Index, *said, *(shown(gain(here, ADAPTIVE, m)) for m in _OVERALL)))
    header = ["dataset", "effective sample size", "effective pressure", "distinct"]
    parts = [
        "## Where adaptive does not help, and why",
        "What the selector says at the end of training (medians over models and folds of adaptive 16): "
        "effective sample size as a share of the rows (100% is uniform), the largest probability over "
        "the smallest, and the share of distinct rows drawn in the last epoch. One row with a very high "
        "loss sets l_max, and all others then share the lowest probabilities: an effective sample size "
        "near 100% means that the probabilities have become nearly uniform. "
        + _flat_or_not(runs, state),
        table([*header, *(TITLES[metric] for metric in _OVERALL)], rows),
    ]
    capped = _ablation(runs, {"capped losses": {"cap_quantile": 0.95}})
    if capped:
        parts += ["With l_max capped at the 95% quantile of the losses, against adaptive (16):"]
    return "\n\n".join([*parts, capped] if capped else parts)


def _flat_or_not(runs: pd.DataFrame, state: pd.DataFrame) -> str:
    """Say what adaptive gains where its probabilities are nearly uniform, and where they are not."""
    flat = state["sample_share"] >= _FLAT
    parts = []
    for which, datasets in (
        (f"They have, {_FLAT:.0%} or more,", state.index[flat]),
        ("They have not", state.index[~flat]),
    ):
        here = runs[runs["data"].isin(datasets)]
        gains = [
            f"{TITLES[metric]} {each} against {baseline}, {each.better_cells} of {each.cells} cells"
            for baseline, metric in product((RANDOM, UNIFORM), _OVERALL)
            if (each := gain(here, ADAPTIVE, metric, baseline))
        ]
        if gains:
            parts.append(f"{which} on {listed(datasets)}: {'; '.join(gains)}.")
    return " ".join(parts)
