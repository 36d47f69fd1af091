"""The page's first section: the questions one would ask, each answered by the records."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill

import pandas as pd
from reproduction.cells import at_both_rates, by_loss, cells_of, gain_at
from reproduction.choice import SKEWED, kinds_of_cells, skewed_datasets
from reproduction.text import (
    ADAPTIVE,
    ARMS,
    BALANCED,
    CONTENDERS,
    FOCUS,
    LOSSES,
    MINORITY,
    MLPS,
    NAMES,
    PAPER_MODELS,
    RANDOM,
    RATES,
    TITLES,
    UNIFORM,
    shown,
    table,
)

from tailbatch.analysis import Arm
from tailbatch.analysis.gains import Gain, gain, mean_ranks, where_all_ran
from tailbatch.analysis.published import direction_counts, directions
from tailbatch.results.frames import Evidence

_OVERALL = ("macro_auc", "macro_f")
_RARE = "minority_average_precision"


def in_short(evidence: Evidence) -> str:
    """Return the answers, each with its figures."""
    runs = evidence.runs
    answers = [_does_adaptive_help(runs), _beside_uniform(runs), *_more_than_speed(runs)]
    text = (
        "In percent of the test metric, positive is better, 95% intervals in brackets, from the "
        "spread over folds, then in how many cells it is better; a cell is a dataset and a model. The "
        "answers follow from the intervals: yes where all of them leave zero out, in part where some do. "
        "Below three folds there is no interval, and so no yes."
    )
    picture = (
        "![Change against random batches for each strategy, by kind of data and model, with intervals]"
        "(assets/results.svg)"
    )
    listed = "\n".join(f"- {answer}" for answer in answers if answer)
    parts = [listed, _rare_labels(evidence), _loss_or_selection(runs), _which_default(evidence)]
    return "\n\n".join(["## In short", text, picture, *filter(None, parts)])


def in_words(evidence: Evidence) -> str:
    """Return what the README says: the words are typed, their numbers follow from the records."""
    runs = evidence.runs[evidence.runs["data"].isin(skewed_datasets(evidence))]
    lines = [
        _rate_in_words(runs),
        _loss_in_words(evidence.runs),
        _models_in_words(runs),
        "**Where labels are nearly balanced** there is nothing to gain.",
        "In percent; n.s. (not significant): the 95% interval contains zero, or there are fewer than "
        "three folds.",
    ]
    *listed, note = (fill(line, 104, subsequent_indent="  ") for line in lines)
    return "\n".join(f"- {line}" for line in listed) + f"\n\n{note}"


def _rate_in_words(runs: pd.DataFrame) -> str:
    both = at_both_rates(runs, MLPS[:1])

    def change(lr: str, metric: str) -> str:
        return _signed(gain_at(both, MINORITY, metric, lr))

    return (
        "**Set the learning rate first.** At the paper's 1e-4 a plain network is still learning after "
        "100 epochs, and chosen batches teach it the rare labels sooner: with `minority` the average "
        f"precision of minority labels changes by {change('1e-4', _RARE)}. At 1e-3, where it converges, "
        f"by {change('1e-3', _RARE)}, and Macro-AUC by {change('1e-3', 'macro_auc')}."
    )


def _loss_in_words(runs: pd.DataFrame) -> str:
    fast = RATES[1]
    plain, selected = (replace(arm, loss="bce", rate=fast) for arm in (RANDOM, MINORITY))
    loss, both = (replace(arm, loss="weighted_bce") for arm in (plain, selected))
    shared = where_all_ran(by_loss(runs), [plain, selected, loss, both])

    def change(way: Arm, metric: str, baseline: Arm = plain) -> str:
        return _signed(gain(shared, way, metric, baseline))

    return (
        "**Then try a weighted loss**, "
        '`TailbatchClassifier(strategy="random", loss="weighted_bce")`. At 1e-3 on '
        f"{shared['data'].nunique()} datasets it changes with random batches minority AP by "
        f"{change(loss, _RARE)} and Macro-AUC by {change(loss, 'macro_auc')}; `minority` with a plain "
        f"loss by {change(selected, _RARE)} and {change(selected, 'macro_auc')}; "
        "`minority` on top of the weighted loss, against that loss alone, by "
        f"{change(both, _RARE, loss)} and {change(both, 'macro_auc', loss)}."
    )


def _models_in_words(runs: pd.DataFrame) -> str:
    slow = where_all_ran(runs[runs["learner"].isin(PAPER_MODELS)], CONTENDERS)
    both = at_both_rates(runs, PAPER_MODELS)
    arms = (BALANCED, MINORITY, ADAPTIVE)

    def changes(lr: str) -> str:
        found = [gain_at(both, arm, _RARE, lr) for arm in arms]
        return f"{_signed(found[0])}, {_signed(found[1])} and {_signed(found[2])} at {lr}"

    first = [_signed(gain(slow, arm, _RARE)) for arm in arms]
    slow_arm, fast_arm = (replace(RANDOM, rate=lr) for lr in RATES)
    faster = gain(both, fast_arm, _RARE, slow_arm)
    return (
        "**The paper's models** have losses of their own and are still learning at 1e-4, too. Minority "
        f"AP changes there with `balanced` by {first[0]}, with `minority` by {first[1]}, with `adaptive` "
        f"as published by {first[2]} and Macro-AUC by {_signed(gain(slow, ADAPTIVE, 'macro_auc'))}. "
        f"Of these {len(cells_of(slow))} datasets and models {len(cells_of(both))} ran at "
        f"both rates: there the three change minority AP by {changes('1e-4')}, by {changes('1e-3')}; the "
        f"rate alone gives random batches {_signed(faster)}."
    )


def _signed(found: Gain | None) -> str:
    """Return a gain in a sentence, and whether it is sure."""
    if found is None:
        return "not known"
    return f"{found.percent:+.1f}%{'' if found.sure else ' (n.s.)'}"


def _does_adaptive_help(runs: pd.DataFrame) -> str:
    deep = runs[runs["learner"].isin(PAPER_MODELS)]
    counts = direction_counts(directions(runs)).iloc[0]
    if not counts["compared"]:
        return ""
    return (
        f"**Does adaptive (16) help the paper's models?** {_answer(deep, ADAPTIVE, _OVERALL)} Of the "
        f"{counts['compared']} printed directions that we ran, {counts['confirmed']} are confirmed and "
        f"{counts['contradicted']} contradicted."
    )


def _beside_uniform(runs: pd.DataFrame) -> str:
    deep = runs[runs["learner"].isin(PAPER_MODELS)]
    shared = where_all_ran(deep, [RANDOM, UNIFORM, ADAPTIVE])
    if not len(shared):
        return ""
    return (
        "**Is drawing hard samples better than batches that merely overlap?** "
        f"{_answer(shared, ADAPTIVE, _OVERALL, UNIFORM)} This is against `uniform`, which draws "
        "independent batches without looking at losses."
    )


def _rare_labels(evidence: Evidence) -> str:
    """Whether minority labels gain, by how imbalanced the labels are."""
    runs = where_all_ran(evidence.runs, CONTENDERS)
    skewed = runs["data"].isin(skewed_datasets(evidence))
    rows = []
    for kind, some in (
        (f"above {SKEWED}", runs[skewed]),
        (f"up to {SKEWED}", runs[~skewed]),
    ):
        if len(some):
            found = [gain(some, arm, _RARE) for arm in CONTENDERS[1:]]
            rows.append((f"{kind} ({some['data'].nunique()} datasets)", *map(_with_answer, found)))
    if not rows:
        return ""
    text = "Average precision of minority labels, all models, objectives and learning rates, by MeanIR:"
    header = ["MeanIR", *(ARMS[arm] for arm in CONTENDERS[1:])]
    return "\n\n".join(["### Do rare labels gain?", text, table(header, rows)])


def _with_answer(found: Gain | None) -> str:
    return "-" if found is None else f"{yes_or_no([found])}: {shown(found)}"


def _more_than_speed(runs: pd.DataFrame) -> list[str]:
    """Whether a gain is there at a rate at which training converges, too."""
    metrics = ["macro_auc", _RARE]
    answers = []
    for who, learners, arm in (
        ("the MLP", MLPS[:1], MINORITY),
        ("the paper's models", PAPER_MODELS, ADAPTIVE),
    ):
        shared = at_both_rates(runs, learners)
        if not len(shared):
            continue
        slow, fast = (
            _answer(shared, replace(arm, rate=lr), metrics, replace(RANDOM, rate=lr))
            for lr in RATES
        )
        answers += [
            f"**Is the gain of {who} more than speed?** {ARMS[arm]} against random, "
            f"{len(cells_of(shared))} cells that ran at both rates.\n"
            f"    - Does it gain at the paper's {RATES[0]}, where training ends too early? {slow}\n"
            f"    - And at {RATES[1]}? {fast}"
        ]
    return answers


def _loss_or_selection(runs: pd.DataFrame) -> str:
    """Set the MLP's reweighted losses beside selection, and both together."""
    metrics = ["macro_f", "tuned_macro_f", _RARE]
    ways, rows = by_loss(runs), []
    for rate in RATES:
        plain, *others = (replace(RANDOM, loss=loss, rate=rate) for loss in LOSSES)
        pairs = [(replace(plain, strategy="minority", pressure=MINORITY.pressure), plain)]
        for other in others:
            selected = replace(other, strategy="minority", pressure=MINORITY.pressure)
            pairs += [(other, plain), (selected, other)]
        shared = where_all_ran(ways, list({arm for pair in pairs for arm in pair}))
        if not len(shared):
            continue
        where = f" at {rate} ({shared['data'].nunique()} datasets)"
        for pair in pairs:
            found = [gain(shared, pair[0], metric, pair[1]) for metric in metrics]
            known = [each for each in found if each]
            title, against = (
                f"{arm.strategy}, {LOSSES[arm.loss or 'bce'] or 'plain BCE'}" for arm in pair
            )
            rows.append((title + where, against, yes_or_no(known), *map(shown, found)))
    if not rows:
        return ""
    header = ["MLP with", "against", "does it gain?", *(TITLES[metric] for metric in metrics)]
    return "\n\n".join(["### Selection, or another loss?", table(header, rows)])


def _which_default(evidence: Evidence) -> str:
    rows = []
    for kind, runs in kinds_of_cells(evidence).items():
        means = mean_ranks(runs, CONTENDERS, FOCUS)["mean"]
        ranks = [f"{means[arm]:.2f}" for arm in CONTENDERS]
        rows.append((kind, *(f"**{r}**" if r == sorted(ranks)[0] else r for r in ranks)))
    if not rows:
        return ""
    text = (
        "Mean ranks over five metrics on validation rows, 1 is best. The estimator trains the MLP with "
        "plain BCE at 1e-3 where nothing else is said, so its default and that of `make_selector` is "
        "what is best there."
    )
    header = ["", *(NAMES[arm] for arm in CONTENDERS)]
    return "\n\n".join(["### Which default?", text, table(header, rows)])


def _answer(runs: pd.DataFrame, arm: Arm, metrics: Sequence[str], baseline: Arm = RANDOM) -> str:
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
