"""The strategies against each other: who gains, where, how fast, and which to take by default."""

import json
from collections.abc import Sequence
from itertools import product

import pandas as pd
from reproduction.gains import (
    CELL,
    gain,
    gains_by_dataset,
    mean_rank,
    rank_correlation,
    where_all_ran,
)
from reproduction.text import ARMS, FOCUS, PAPER_MODELS, TITLES, shown, table

from tailbatch.report.evidence import Evidence

CONTENDERS = ("random", "balanced", "adaptive", "minority")
SKEWED = 2  # a mean imbalance ratio above this is what selection is for


def strategies(evidence: Evidence) -> str:
    """Every way to choose batches against random, over the paper's models."""
    runs = evidence.runs[evidence.runs["learner"].isin(PAPER_MODELS)]
    parts = ["## Every strategy against random", _strategy_note(runs)]
    for title, some in (("All cells", runs), *_by_model(runs)):
        found = _against(some, ARMS, FOCUS)
        if found:
            parts += [f"### {title}", found]
    return "\n\n".join(parts)


def _strategy_note(runs: pd.DataFrame) -> str:
    cells = runs.groupby(CELL).ngroups
    return (
        f"Change of the average over cells in percent against random, positive is better, with a 95% "
        f"bootstrap interval over the folds inside the cells ({cells} cells of the five models); then on "
        "how many cells the strategy is better. Each strategy is compared on the cells it ran in."
    )


def _by_model(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(name).upper(), group) for name, group in runs.groupby("learner")]


def _against(runs: pd.DataFrame, arms: dict[str, str], metrics: Sequence[str]) -> str:
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
    facts = evidence.datasets[evidence.datasets["preparation"] == "paper"]
    facts = facts.drop_duplicates("dataset").set_index("dataset")
    columns = {
        "mean_imbalance_ratio": "MeanIR",
        "n_labels": "q",
        "label_cardinality": "cardinality",
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
        "what the prepared dataset is like; then Spearman's correlation over the datasets, which with "
        "so few of them is a hint at most."
    )
    header = ["dataset", *columns.values(), *(ARMS[arm] for arm in names)]
    return "\n\n".join(
        [
            "## Gain and what the data is like",
            text,
            table(header, rows),
            table(["strategy", "datasets", *columns.values()], correlations),
        ]
    )


def _correlation(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:+.2f}"


def _points(value: float | None) -> str:
    return "-" if value is None or pd.isna(value) else f"{100 * value:+.2f}"


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
        volatility = mine["volatility"].mean() if "volatility" in mine else float("nan")
        rows.append(
            (
                name,
                f"{len(there)} of {len(known)}",
                f"{pd.Series(there).median():.0f}%" if there else "-",
                f"{volatility:.3f}",
                f"{mine['best_epoch'].median():.0f}",
            )
        )
    text = (
        "Against random's lowest training loss (BCE over all training rows, measured every five "
        "epochs): in how many runs the strategy reaches it within 100 epochs, and after how many epochs "
        "of random's own number (median). Epochs are steps here: every strategy draws as many samples. "
        "Volatility is the mean absolute step between neighboring batch objectives over their mean; a "
        "selected batch is harder than a shuffled one, so it is no measure of progress. Last, the "
        "median epoch of the best validation Macro-AUC. Seconds are not compared: the runs shared "
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


def pressures(evidence: Evidence) -> str:
    """Set the pressures of adaptive, and label chains, beside random."""
    arms = {
        **{f"adaptive {pressure}": f"adaptive ({pressure})" for pressure in (2, 8)},
        "adaptive": ARMS["adaptive"],
        "adaptive 64": "adaptive (64)",
        "adaptive 64:1": ARMS["adaptive 64:1"],
        "chain": "chain (16)",
    }
    shared = where_all_ran(evidence.runs, ["random", *arms])
    parts = ["## The pressure, and label chains"]
    if not len(shared):
        return "\n\n".join([*parts, "Other pressures and chains have not been run yet."])
    learners = ", ".join(sorted({str(name).upper() for name in shared["model"]}))
    parts += [
        f"On the {shared.groupby([*CELL, 'fold']).ngroups} pairs of cell and fold where all of these ran "
        f"({learners}; {', '.join(sorted(set(shared['data'])))}), in percent against random:",
        _against(shared, arms, FOCUS),
    ]
    return "\n\n".join(parts)


def reweighting(evidence: Evidence) -> str:
    """Set selection beside a reweighted loss and tuned thresholds, with the MLP."""
    runs = evidence.runs[evidence.runs["model"] == "mlp"]
    if not len(runs):
        return "## Selection, reweighted loss, tuned thresholds\n\nThe MLP has not been run yet."
    plain = runs.assign(objective=runs["hyperparameters"].map(objective_of))
    metrics = ("macro_f", "tuned_macro_f", "minority_average_precision", "macro_auc")
    base = plain[(plain["objective"] == "bce") & (plain["arm"] == "random")]
    rows = []
    arms = {"random": "random", **ARMS, "adaptive 64": "adaptive (64)", "chain": "chain (16)"}
    for objective, arm in product(("bce", "weighted_bce", "asymmetric"), arms):
        some = plain[(plain["objective"] == objective) & (plain["arm"] == arm)]
        if (objective, arm) == ("bce", "random") or not len(some):
            continue
        # As an arm of its own beside plain BCE with random batches.
        both = pd.concat([base.assign(arm="base"), some.assign(arm="this")]).assign(learner="mlp")
        rows.append(
            (
                f"{objective.replace('_', ' ')}, {arms[arm]}",
                *(shown(gain(both, "this", metric, "base")) for metric in metrics),
            )
        )
    text = (
        "The MLP on the small datasets and the embedded one: change against plain BCE with random "
        "batches, in percent. `weighted bce` weighs positives by sqrt(negatives / positives), "
        "`asymmetric` ignores easy negatives; thresholds are 0.5, or tuned for each label on validation."
    )
    header = ["objective, batches", *(TITLES[metric] for metric in metrics)]
    return "\n\n".join(
        ["## Selection, reweighted loss, tuned thresholds", text, table(header, rows)]
    )


def objective_of(hyperparameters: str) -> str:
    """Return the MLP's objective from a run's hyperparameters."""
    return str(json.loads(hyperparameters).get("objective", "bce"))


def default(evidence: Evidence) -> str:
    """Rank the strategies that could be the default on validation rows."""
    runs, arms = evidence.runs, list(CONTENDERS)
    shared = where_all_ran(runs, arms)
    parts = ["## A default, from validation only"]
    if not len(shared):
        return "\n\n".join([*parts, "Not enough runs yet to rank the strategies in one cell."])
    skewed = shared[shared["data"].isin(skewed_datasets(evidence))]
    for title, some in (
        ("all datasets", shared),
        (f"datasets with a MeanIR above {SKEWED}", skewed),
    ):
        if len(some):
            parts += [_rank_note(title, some), _rank_table(some, arms)]
    return "\n\n".join(parts)


def skewed_datasets(evidence: Evidence) -> set[str]:
    """Return the datasets whose labels are clearly imbalanced."""
    facts = evidence.datasets[evidence.datasets["preparation"] == "paper"]
    return set(facts.loc[facts["mean_imbalance_ratio"] > SKEWED, "dataset"])


def _rank_note(title: str, runs: pd.DataFrame) -> str:
    return (
        f"Mean rank on validation rows (1 is best, {len(CONTENDERS)} is last), {title} "
        f"({', '.join(sorted(set(runs['data'])))}): {runs.groupby(CELL).ngroups} cells, which count "
        f"alike, {len(runs) // len(CONTENDERS)} folds that all have. The lowest mean comes first."
    )


def mean_ranks(
    runs: pd.DataFrame, arms: list[str]
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return each arm's mean rank on validation rows, for each metric and over all of them."""
    ranks = {name: mean_rank(runs, arms, f"validation_{name}") for name in FOCUS}
    ranks = {name: found for name, found in ranks.items() if found}
    return ranks, {arm: sum(by[arm] for by in ranks.values()) / len(ranks) for arm in arms}


def _rank_table(runs: pd.DataFrame, arms: list[str]) -> str:
    ranks, means = mean_ranks(runs, arms)
    rows = [
        (
            {"random": "random", **ARMS}[arm],
            *(f"{found[arm]:.2f}" for found in ranks.values()),
            f"{means[arm]:.2f}",
        )
        for arm in sorted(arms, key=means.__getitem__)
    ]
    return table(["strategy", *(TITLES[name] for name in ranks), "mean"], rows)


def tuning(evidence: Evidence) -> str:
    """Try ways to set up minority, on validation rows."""
    parts = ["## How to set up `minority`, from validation only"]
    parts += [part for part in (_schedules(evidence), _by_imbalance(evidence)) if part]
    if len(parts) == 1:
        parts += ["The ways to set it up have not been run yet."]
    return "\n\n".join(parts)


def _schedules(evidence: Evidence) -> str:
    arms = {
        "minority 64:1": "64 to 1",
        "minority 64:4": "64 to 4",
        "minority 4": "4",
        "minority 16": "16",
        "minority 64": "64",
        "minority": "MeanIR",
        'minority 64:1 {"power": 1.0}': "64 to 1, power 1",
        'minority 4 {"power": 1.0}': "4, power 1",
        'minority 16 {"power": 1.0}': "16, power 1",
        "balanced": "balanced",
    }
    shared = where_all_ran(evidence.runs, ["random", *arms])
    if not len(shared):
        return ""
    metrics = [f"validation_{name}" for name in FOCUS if name != "minority_macro_f"]
    header = [TITLES[metric.removeprefix("validation_")] for metric in metrics]
    text = (
        "Change against random in percent on validation rows: constant and annealed pressures, and "
        "rarity counted by its square root (power 0.5, the default) or as it is (power 1), with the MLP "
        f"on {', '.join(sorted(set(shared['data'])))}, {shared['fold'].nunique()} folds."
    )
    rows = [
        (name, *(shown(gain(shared, arm, metric)) for metric in metrics))
        for arm, name in arms.items()
    ]
    return "\n\n".join([text, table(["minority with", *header], rows)])


def _by_imbalance(evidence: Evidence) -> str:
    """Set the best pressure beside how imbalanced the labels are."""
    arms = {f"minority {pressure}": str(pressure) for pressure in (2, 4, 8, 16, 32, 64)}
    arms["minority"] = "MeanIR"
    shared = where_all_ran(evidence.runs, ["random", *arms])
    if not len(shared):
        return ""
    facts = evidence.datasets[evidence.datasets["preparation"] == "paper"]
    ratios = facts.drop_duplicates("dataset").set_index("dataset")["mean_imbalance_ratio"]
    parts = [
        "The best pressure rises with how imbalanced the labels are: little or none where they are "
        "nearly balanced, much where they are not. So the default follows the data: MeanIR of the "
        "training rows, at most 64, the largest pressure that was tried. Change against random in "
        f"percent on validation rows, {shared['fold'].nunique()} folds, by constant pressure, the least "
        "imbalanced datasets first:"
    ]
    cells = sorted(shared.groupby(CELL).groups, key=lambda cell: (ratios[cell[0]], cell[1]))
    for metric in ("macro_auc", "minority_average_precision"):
        rows = []
        for data, learner in cells:
            some = shared[(shared["data"] == data) & (shared["learner"] == learner)]
            found = [gain(some, arm, f"validation_{metric}") for arm in arms]
            changes = ["-" if each is None else f"{each.percent:+.1f}" for each in found]
            rows.append((f"{data}, {learner.split()[0].upper()}", f"{ratios[data]:.4g}", *changes))
        parts += [table([TITLES[metric], "MeanIR", *arms.values()], rows)]
    return "\n\n".join(parts)
