"""The strategies against each other: who gains, where, and beside what."""

import json
from collections.abc import Sequence
from itertools import product

import pandas as pd
from reproduction.gains import (
    CELL,
    facts_of,
    gain,
    gains_by_dataset,
    rank_correlation,
    where_all_ran,
)
from reproduction.text import (
    ARMS,
    AT_FAST,
    CONTENDERS,
    FAST_MLPS,
    FOCUS,
    MLPS,
    NAMES,
    PAPER_MODELS,
    TITLES,
    learner_name,
    shown,
    table,
)

from tailbatch.report.evidence import Evidence


def strategies(evidence: Evidence) -> str:
    """Every way to choose batches against random, over the paper's models."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    parts = ["## Every strategy against random", _strategy_note(runs)]
    for title, some in (("All cells", runs), *_by_model(runs)):
        found = against_random(some, ARMS, FOCUS)
        if found:
            parts += [f"### {title}", found]
    return "\n\n".join(parts)


def _strategy_note(runs: pd.DataFrame) -> str:
    cells = runs.groupby(CELL).ngroups
    return (
        "Change of the average over cells in percent against random, positive is better, with Student's "
        f"95% interval from the spread over folds within the cells ({cells} cells of the five models; "
        "one with a single fold is taken to vary as the others do), bold where it leaves zero out; then "
        "on how many cells the strategy is better. Each strategy is compared on the cells it ran in, "
        "and nothing is corrected for the number of comparisons."
    )


def _by_model(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(learner_name(str(name)), group) for name, group in runs.groupby("learner")]


def against_random(runs: pd.DataFrame, arms: dict[str, str], metrics: Sequence[str]) -> str:
    """Return a table of arms against random, with a row for each that ran."""
    rows = []
    for arm, name in arms.items():
        found = [gain(runs, arm, metric) for metric in metrics]
        if any(found):
            rows.append((name, *map(shown, found)))
    return table(["strategy", *(TITLES[metric] for metric in metrics)], rows) if rows else ""


def minority(evidence: Evidence) -> str:
    """Whether it is the minority labels that gain."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    labels = evidence.labels.merge(runs[[*CELL, "fold", "seed", "arm", "digest"]], on="digest")
    keys = [*CELL, "fold", "seed", "label"]
    before = labels[labels["arm"] == "random"].drop_duplicates(keys)
    rows = []
    for arm, name in ARMS.items():
        after = labels[labels["arm"] == arm].drop_duplicates(keys)
        both = after.merge(before[[*keys, "average_precision"]], on=keys, suffixes=("", "_before"))
        both = both.assign(gain=both["average_precision"] - both["average_precision_before"])
        both = both.dropna(subset="gain")
        if len(both):
            rare = both["minority"] >= 0.5
            rows.append((name, *_kind(both[rare]), *_kind(both[~rare])))
    text = (
        "Average precision of single labels against random, mean over labels and folds in points of "
        "100, the share of labels that improve, and how often their samples were drawn against their "
        "share of the training rows."
    )
    header = ["strategy", "minority labels", "improved", "exposure"]
    header += ["other labels", "improved", "exposure"]
    return "\n\n".join(["## Is it the minority labels that gain?", text, table(header, rows)])


def _kind(rows: pd.DataFrame) -> tuple[str, str, str]:
    if not len(rows):
        return "-", "-", "-"
    improved = (rows["gain"] > 0).mean()
    exposure = rows["exposure"].mean()
    return f"{100 * rows['gain'].mean():+.2f}", f"{improved:.0%}", f"{exposure:.2f}x"


def against_facts(evidence: Evidence) -> str:
    """Gain against MeanIR, number of labels and cardinality."""
    facts = facts_of(evidence).join(_minority_facts(evidence)).sort_values("mean_imbalance_ratio")
    columns = {
        "mean_imbalance_ratio": "MeanIR",
        "n_labels": "q",
        "label_cardinality": "cardinality",
        "minority_labels": "minority labels",
        "minority_rows": "their rows",
    }
    names = ("adaptive", "adaptive 64:1", "minority", "minority 16", "minority 64:1", "balanced")
    runs = evidence.runs
    correlations, by_dataset = [], {}
    for arm in names:
        gains = gains_by_dataset(runs, arm, "minority_average_precision", "random")
        by_dataset[arm] = gains
        found = [_correlation(rank_correlation(gains, facts[column])) for column in columns]
        correlations.append((ARMS[arm], len(gains), *found))
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


def _minority_facts(evidence: Evidence) -> pd.DataFrame:
    """Return how many minority labels a dataset has, and the median of their training rows."""
    first = evidence.runs[evidence.runs["fold"] == 0].drop_duplicates("data")
    labels = evidence.labels.merge(first[["digest", "data"]], on="digest")
    rare = labels[labels["minority"] >= 0.5].groupby("data")["positives"]
    return rare.agg(minority_labels="size", minority_rows="median")


def _correlation(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:+.2f}"


def _points(value: float | None) -> str:
    return "-" if value is None or pd.isna(value) else f"{100 * value:+.2f}"


def pressures(evidence: Evidence) -> str:
    """Set the pressures of adaptive, and label chains, beside random."""
    arms = {
        **{f"adaptive {pressure}": f"adaptive ({pressure})" for pressure in (2, 8)},
        "adaptive": ARMS["adaptive"],
        "adaptive 64": "adaptive (64)",
        "adaptive 64:1": ARMS["adaptive 64:1"],
        "chain": NAMES["chain"],
    }
    shared = where_all_ran(evidence.runs, ["random", *arms])
    parts = ["## The pressure, and label chains"]
    if not len(shared):
        return "\n\n".join([*parts, "Other pressures and chains have not been run yet."])
    for model, runs in shared.groupby("model"):
        pairs = runs.groupby([*CELL, "fold"]).ngroups
        parts += [
            f"{learner_name(str(model))}, on the {pairs} pairs of cell and fold where all of these ran "
            f"({', '.join(sorted(set(runs['data'])))}), in percent against random:",
            against_random(runs, arms, FOCUS),
        ]
    return "\n\n".join(parts)


def reweighting(evidence: Evidence) -> str:
    """Set selection beside a reweighted loss and tuned thresholds, with the MLP."""
    ways = by_objective(evidence.runs)
    parts = [
        "## Selection, reweighted loss, tuned thresholds",
        "The MLP: change against plain BCE with random batches at the same learning rate, in percent. "
        "`weighted bce` weighs positives by sqrt(negatives / positives), `asymmetric` ignores easy "
        "negatives; thresholds are 0.5, or tuned for each label on validation.",
    ]
    every = (
        "random",
        "uniform",
        "balanced",
        "hard",
        "adaptive",
        "adaptive 64:1",
        "minority",
        "chain",
    )
    for title, arms, rates in (
        ("### At 1e-4 and where it converges", CONTENDERS, ("", AT_FAST)),
        ("### Every strategy at 1e-4", every, ("",)),
    ):
        shared = where_all_ran(ways, [way + rate for way in _ways(arms) for rate in rates])
        if not len(shared):
            parts += [title, "The three objectives have not been run yet."]
            continue
        pairs = shared.groupby(["data", "fold"]).ngroups
        parts += [
            title,
            f"{pairs} pairs of dataset and fold where all of these ran "
            f"({', '.join(sorted(set(shared['data'])))}):",
        ]
        parts += [_objective_table(shared, arms, rate) for rate in rates]
    return "\n\n".join(parts)


def _ways(arms: Sequence[str]) -> dict[str, str]:
    objectives = ("bce", "weighted_bce", "asymmetric")
    return {
        f"{objective}, {arm}": f"{objective.replace('_', ' ')}, {NAMES[arm]}"
        for objective, arm in product(objectives, arms)
    }


def _objective_table(shared: pd.DataFrame, arms: Sequence[str], rate: str) -> str:
    metrics = ("macro_f", "tuned_macro_f", "minority_average_precision", "macro_auc")
    rows = [
        (name, *(shown(gain(shared, way + rate, m, "bce, random" + rate)) for m in metrics))
        for way, name in _ways(arms).items()
        if way != "bce, random"
    ]
    header = [f"objective, batches{rate or ' at 1e-4'}", *(TITLES[metric] for metric in metrics)]
    return table(header, rows)


def by_objective(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the MLP's runs, objective and rate a part of the arm, to be compared fold by fold."""
    mlp = runs[runs["learner"].isin([*MLPS, *FAST_MLPS])]
    rate = mlp["learner"].isin(FAST_MLPS).map({True: AT_FAST, False: ""})
    arm = mlp["hyperparameters"].map(_objective_of) + ", " + mlp["arm"] + rate
    return mlp.assign(arm=arm, learner="mlp")


def _objective_of(hyperparameters: str) -> str:
    """Return the MLP's objective from a run's hyperparameters."""
    return str(json.loads(hyperparameters).get("objective", "bce"))
