"""The page's first section: the questions one would ask, each answered by the records."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill

import pandas as pd
from reproduction.choice import SKEWED, by_learner, kinds_of_cells, mean_ranks, skewed_datasets
from reproduction.gains import Gain, gain, where_all_ran
from reproduction.paper import directions
from reproduction.speed import RATES, at_both_rates
from reproduction.strategies import by_objective
from reproduction.text import ARMS, AT_FAST, CONTENDERS, NAMES, PAPER_MODELS, TITLES

from tailbatch.report.evidence import Evidence

_OVERALL = ("macro_auc", "macro_f")


def in_short(evidence: Evidence) -> str:
    """Return the answers, each with its figures."""
    runs = evidence.runs
    skewed = skewed_datasets(evidence)
    answers = [
        _does_adaptive_help(runs),
        _beside_uniform(runs),
        _rare_labels(runs[runs["data"].isin(skewed)], f"MeanIR above {SKEWED}"),
        _rare_labels(runs[~runs["data"].isin(skewed)], f"MeanIR up to {SKEWED}"),
        _more_than_speed(runs),
        _loss_or_selection(runs),
        _which_default(evidence),
    ]
    text = (
        "In percent of the test metric, positive is better, 95% intervals in brackets, from the "
        "spread over folds, then in how many cells it is better; a cell is a dataset and a model. The "
        "answers follow from the intervals: yes where all of them leave zero out, in part where some do."
    )
    picture = (
        "![Change against random batches for each strategy, by kind of data and model, with intervals]"
        "(assets/results.svg)"
    )
    listed = [f"- {answer}" for answer in answers if answer]
    return "\n".join(["## In short", "", text, "", picture, "", *listed])


def in_words(evidence: Evidence) -> str:
    """Return what the README says: the words are typed, their numbers follow from the records."""
    imbalanced = evidence.runs["data"].isin(skewed_datasets(evidence))
    kinds = by_learner(replace(evidence, runs=evidence.runs[imbalanced]))
    slow, fast, deep = (
        kinds.get(name, evidence.runs[:0])
        for name in ("MLP (lr 1e-4)", "MLP (lr 1e-3)", "the paper's models")
    )
    rare, ways = "minority_average_precision", by_objective(evidence.runs)
    weighted = where_all_ran(
        ways,
        [f"{way}{AT_FAST}" for way in ("bce, random", "bce, minority")]
        + [f"weighted_bce, {arm}{AT_FAST}" for arm in ("random", "minority")],
    )

    def alone(way: str, metric: str, baseline: str = "bce, random") -> str:
        return _signed(gain(weighted, way + AT_FAST, metric, baseline + AT_FAST))

    lines = [
        "**Set the learning rate first.** At the paper's 1e-4 a plain network is still learning after "
        "100 epochs, and chosen batches teach it the rare labels sooner: with `minority` the average "
        f"precision of minority labels changes by {_signed(gain(slow, 'minority', rare))}. At 1e-3, "
        f"where it converges, by {_signed(gain(fast, 'minority', rare))}, and Macro-AUC by "
        f"{_signed(gain(fast, 'minority', 'macro_auc'))}.",
        "**Then try a weighted loss**, "
        '`TailbatchClassifier(strategy="random", model__objective="weighted_bce")`. On the '
        f"{weighted['data'].nunique()} datasets where both ran at 1e-3, it changes with random "
        f"batches minority AP by {alone('weighted_bce, random', rare)} and Macro-AUC by "
        f"{alone('weighted_bce, random', 'macro_auc')}; `minority` with a plain loss by "
        f"{alone('bce, minority', rare)} and {alone('bce, minority', 'macro_auc')}; `minority` on top of "
        "the weighted loss, against that loss alone, by "
        f"{alone('weighted_bce, minority', rare, 'weighted_bce, random')} and "
        f"{alone('weighted_bce, minority', 'macro_auc', 'weighted_bce, random')}.",
        "**The paper's models** have losses of their own. Rare labels gain with `balanced` "
        f"({_signed(gain(deep, 'balanced', rare))} minority AP, "
        f"{_signed(gain(deep, 'balanced', 'micro_f'))} Micro-F) and `minority` "
        f"({_signed(gain(deep, 'minority', rare))}, {_signed(gain(deep, 'minority', 'micro_f'))}); with "
        f"`adaptive` as published the change is {_signed(gain(deep, 'adaptive', rare))}, and in "
        f"Macro-AUC {_signed(gain(deep, 'adaptive', 'macro_auc'))}.",
        "**Where labels are nearly balanced** there is nothing to gain.",
        "In percent; not sure: the 95% interval holds zero.",
    ]
    *listed, note = (fill(line, 104, subsequent_indent="  ") for line in lines)
    return "\n".join(f"- {line}" for line in listed) + f"\n\n{note}"


def _signed(found: Gain | None) -> str:
    """Return a gain in a sentence, and whether it is sure."""
    if found is None:
        return "not known"
    return f"{found.percent:+.1f}%{'' if found.sure else ' (not sure)'}"


def _does_adaptive_help(runs: pd.DataFrame) -> str:
    deep = runs[runs["learner"].isin(PAPER_MODELS)]
    counts = directions(runs)["verdict"].value_counts()
    run = int(counts.drop("not run", errors="ignore").sum())
    if not run:
        return ""
    return (
        f"**Does adaptive (16) help the paper's models?** {_answer(deep, 'adaptive', _OVERALL)} Of the "
        f"{run} printed directions that we ran, {counts.get('confirmed', 0)} are confirmed and "
        f"{counts.get('contradicted', 0)} contradicted."
    )


def _beside_uniform(runs: pd.DataFrame) -> str:
    deep = runs[runs["learner"].isin(PAPER_MODELS)]
    shared = where_all_ran(deep, ["random", "uniform", "adaptive"])
    if not len(shared):
        return ""
    return (
        "**Is drawing hard samples better than batches that merely overlap?** "
        f"{_answer(shared, 'adaptive', _OVERALL, 'uniform')} This is against `uniform`, which draws "
        "independent batches without looking at losses."
    )


def _rare_labels(runs: pd.DataFrame, which: str) -> str:
    runs = where_all_ran(runs, list(CONTENDERS))
    if not len(runs):
        return ""
    parts = [
        f"    - {ARMS[arm]}: {_answer(runs, arm, ['minority_average_precision'])}"
        for arm in CONTENDERS
        if arm != "random"
    ]
    question = (
        f"**Do rare labels gain, {which}** ({', '.join(sorted(set(runs['data'])))}), all models and "
        "objectives?"
    )
    return "\n".join([question, *parts])


def _more_than_speed(runs: pd.DataFrame) -> str:
    shared = at_both_rates(runs)
    if not len(shared):
        return ""
    metrics = ["macro_auc", "minority_average_precision"]
    slow, fast = (
        _answer(shared, f"minority at {lr}", metrics, f"random at {lr}") for lr in RATES.values()
    )
    return (
        "**Is it more than speed?** The MLP with minority (MeanIR) against random, "
        f"{shared['data'].nunique()} datasets.\n"
        f"    - Does it gain at the paper's 1e-4, where training ends too early? {slow}\n"
        f"    - And at 1e-3, where it converges? {fast}"
    )


def _loss_or_selection(runs: pd.DataFrame) -> str:
    pairs = {("bce, minority", "bce, random"): "minority with plain BCE"}
    for loss, name in (("weighted_bce", "weighted"), ("asymmetric", "asymmetric")):
        pairs |= {
            (f"{loss}, random", "bce, random"): f"the {name} loss, random batches",
            (
                f"{loss}, minority",
                f"{loss}, random",
            ): f"minority with the {name} loss, against it alone",
        }
    metrics = ["macro_f", "tuned_macro_f", "minority_average_precision"]
    parts = []
    for rate in ("", AT_FAST):
        named = {tuple(way + rate for way in pair): name for pair, name in pairs.items()}
        shared = where_all_ran(by_objective(runs), sorted({way for pair in named for way in pair}))
        if not len(shared):
            continue
        where = f"{rate or ' at 1e-4'}, {shared['data'].nunique()} datasets"
        parts += [
            f"    - {name}{where}: {_answer(shared, arm, metrics, baseline)}"
            for (arm, baseline), name in named.items()
        ]
    question = (
        "**Selection, or another loss?** The MLP; against plain BCE with random batches where nothing "
        "else is said. Does it gain?"
    )
    return "\n".join([question, *parts]) if parts else ""


def _which_default(evidence: Evidence) -> str:
    parts = []
    for kind, runs in kinds_of_cells(evidence).items():
        means = mean_ranks(runs, list(CONTENDERS))[1]
        order = sorted(means, key=means.__getitem__)
        ranks = ", ".join(f"{NAMES[arm]} {means[arm]:.2f}" for arm in order)
        parts.append(f"    - {kind}: {ranks}.")
    if not parts:
        return ""
    question = (
        "**Which default?** Mean ranks over five metrics on validation rows, the best first. The "
        "estimator trains the MLP with plain BCE at 1e-3 where nothing else is said, so its default and "
        "that of `make_selector` is what is best there."
    )
    return "\n".join([question, *parts])


def _answer(runs: pd.DataFrame, arm: str, metrics: Sequence[str], baseline: str = "random") -> str:
    """Return yes or no by the intervals of all metrics, and the figures."""
    found = {metric: gain(runs, arm, metric, baseline) for metric in metrics}
    figures = [
        f"{TITLES[metric]} {each}, {each.better_cells} of {each.cells} cells"
        for metric, each in found.items()
        if each is not None
    ]
    return f"{yes_or_no([each for each in found.values() if each])} ({'; '.join(figures)})."


def yes_or_no(gains: Sequence[Gain]) -> str:
    """Return an answer that the intervals allow.

    Examples
    --------
    >>> better, unsure = Gain(2, 1, 3, 4, 4, 8), Gain(2, -1, 5, 3, 4, 8)
    >>> yes_or_no([better, better]), yes_or_no([better, unsure]), yes_or_no([unsure])
    ('Yes', 'In part', 'Not clearly')
    >>> worse = Gain(-2, -3, -1, 0, 4, 8)
    >>> yes_or_no([worse, unsure]), yes_or_no([worse, better])
    ('No, it loses', 'It gains in one and loses in another')
    """
    better = sum(each.sure and each.percent > 0 for each in gains)
    worse = sum(each.sure and each.percent < 0 for each in gains)
    if better and worse:
        return "It gains in one and loses in another"
    if worse:
        return "No, it loses"
    if better == len(gains):
        return "Yes"
    return "In part" if better else "Not clearly"
