"""The page's three questions, each with one table, and the claims that are made of them.

What is claimed is listed in `claims` before anything is tested; Holm's correction is over that list.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import pandas as pd
from reproduction.cells import facts_of
from reproduction.records import committed, runs_of
from reproduction.selection.page import budgets as by_budget
from reproduction.text import (
    ADAPTIVE,
    BALANCED,
    MINORITY,
    PAPER_MODELS,
    RANDOM,
    TITLES,
    UNIFORM,
    gain_table,
    in_interval,
    listed,
    p_text,
    percent,
    table,
    wrap,
)

from tailbatch.analysis import Arm, Dataset
from tailbatch.analysis.gains import Gain, gain, level, rank_correlation, where_all_ran
from tailbatch.analysis.naming import compare_ways
from tailbatch.analysis.significance import Claim, Tested, decide
from tailbatch.results import NO_BATCHES
from tailbatch.results.frames import Evidence, read_store

RARE, MAP = "minority_average_precision", "macro_average_precision"
METRICS = (RARE, MAP, "tuned_macro_f", "tuned_micro_f")
IMPORTANCE = Arm("importance")
#: What is compared with random batches at convergence.
SELECTED = {
    IMPORTANCE: "importance (corrected)",
    Arm("balanced", options='{"corrected": true}'): "balanced, corrected",
    BALANCED: "balanced",
    MINORITY: "minority (MeanIR)",
    ADAPTIVE: "adaptive (16)",
}
CLASSICAL = {
    "logistic": "logistic regression",
    "balanced_logistic": "logistic regression, balanced weights",
    "forest": "random forest",
}
#: The steps from the paper's protocol to sound training; each keeps those before it.
RUNGS = {
    "ladder-0-paper": "the paper's protocol",
    "ladder-1-sum": "loss summed over labels",
    "ladder-2-rate": "learning rate 1e-3",
    "ladder-3-bias": "output biases at the labels' frequencies",
    "ladder-4-loss": "weighted loss",
    "ladder-5-epoch": "epoch chosen by Macro-AP",
}
FIRST, *_, LAST = RUNGS.values()
MINORITY_LABELS = "labels whose imbalance ratio is above the dataset's mean"
_LOSSES = {"weighted_bce": "weighted loss", "bce": "plain BCE"}


def at(rung: str, arm: Arm) -> Arm:
    """Return an arm on a rung of the ladder."""
    return replace(arm, rate=rung)


@dataclass(frozen=True)
class Answers:
    """The records behind the answers: those of the paper's models, and of a folder for each question."""

    evidence: Evidence

    @cached_property
    def converged(self) -> pd.DataFrame:
        """The ensemble's runs with the estimator's recipe, where all strategies ran."""
        return where_all_ran(runs_of("convergence")["convergence"], [RANDOM, *SELECTED])

    @cached_property
    def beside_classical(self) -> pd.DataFrame:
        """The ensemble's random batches and the classical learners, each an arm, where all ran."""
        runs, learner = runs_of("convergence"), self.converged["learner"].iloc[0]
        frames = [self.converged[self.converged["arm"] == RANDOM]]
        for model in CLASSICAL:
            mine = runs["convergence-classical"]
            mine = compare_ways(mine[mine["model"] == model], model)
            frames.append(mine.assign(learner=[learner] * len(mine)))
        return where_all_ran(pd.concat(frames), [RANDOM, *map(classical, CLASSICAL)])

    @cached_property
    def budgets(self) -> dict[int, pd.DataFrame]:
        """The runs of few epochs, by their number, which docs/selection_evidence.md shows in full."""
        return by_budget()

    @cached_property
    def ladder(self) -> pd.DataFrame:
        """The MLP's runs on all rungs, the rung a part of the arm, where all ran."""
        runs = runs_of("ladder")
        frames = [compare_ways(runs[study], rung) for study, rung in RUNGS.items()]
        arms = [at(rung, arm) for rung in RUNGS.values() for arm in (RANDOM, ADAPTIVE)]
        return where_all_ran(pd.concat(frames), arms)

    @cached_property
    def tested(self) -> dict[tuple[str, str], Tested]:
        """Every claim, tested."""
        return decide(claims(self))


def classical(model: str) -> Arm:
    """Return the arm of a learner without batches."""
    return Arm(NO_BATCHES, rate=model)


def with_loss(runs: pd.DataFrame, loss: str) -> pd.DataFrame:
    """Return the runs with one loss."""
    return runs[[learner.loss_name == loss for learner in runs["learner"]]]


def claims(answers: Answers) -> Iterator[Claim]:
    """Yield every claim of the page's summary and of the README, in a fixed order."""
    for metric in (RARE, MAP):
        for arm, name in SELECTED.items():
            yield Claim(f"(a) {name}", answers.converged, arm, RANDOM, metric)
        for epochs, runs in answers.budgets.items():
            for loss, name in _LOSSES.items():
                title = f"(b) importance, {_epochs(epochs)}, {name}"
                yield Claim(title, with_loss(runs, loss), IMPORTANCE, RANDOM, metric)
        ladder = answers.ladder
        yield Claim("(c) the remedies, random", ladder, at(LAST, RANDOM), at(FIRST, RANDOM), metric)
        for rung in (FIRST, LAST):
            name = f"(c) adaptive, {rung if rung == FIRST else 'all remedies'}"
            yield Claim(name, ladder, at(rung, ADAPTIVE), at(rung, RANDOM), metric)
    runs = answers.evidence.runs
    models = runs[runs["learner"].isin(PAPER_MODELS)]
    overlap = where_all_ran(models, [RANDOM, UNIFORM, ADAPTIVE])
    for metric in ("macro_auc", "macro_f"):
        yield Claim("adaptive, the paper's models", models, ADAPTIVE, RANDOM, metric)
        yield Claim("adaptive against uniform", overlap, ADAPTIVE, UNIFORM, metric)


def summary(answers: Answers) -> str:
    """Say in a few lines what a user should do, with a number for each."""
    converged, ladder = answers.converged, answers.ladder
    remedies = gain(ladder, at(LAST, RANDOM), RARE, at(FIRST, RANDOM))
    protocol, sound = (gain(ladder, at(r, ADAPTIVE), RARE, at(r, RANDOM)) for r in (FIRST, LAST))
    lines = [
        f"1. **Train soundly first.** On {ladder['data'].nunique()} datasets, ordinary remedies take the "
        f"average precision of minority labels with random batches from "
        f"{level(ladder, at(FIRST, RANDOM), RARE):.3f} to {level(ladder, at(LAST, RANDOM), RARE):.3f} "
        f"({in_interval(remedies)}); adaptive batches add {in_interval(protocol)} before them and "
        f"{in_interval(sound)} after them.",
        f"2. **Then keep random batches**, the default. {_at_convergence(converged)}",
        f"3. **With few epochs on much data, try `importance`** and look at validation rows. "
        f"{_with_one_epoch(answers)}",
    ]
    note = (
        "Numbers in percent are the change in the mean over datasets against random batches, on test "
        "rows; in brackets 95% intervals, a bootstrap over datasets. Rare labels are the aim throughout: "
        f"*minority AP* is the average precision of *minority labels*, {MINORITY_LABELS}; *Macro-AP* is "
        "that of all labels."
    )
    return "\n\n".join(
        [
            "# The paper on real data",
            "\n".join(wrap(line, "   ") for line in lines),
            wrap(note),
        ]
    )


def _at_convergence(runs: pd.DataFrame) -> str:
    """Say which strategies clearly gain or lose minority AP at convergence."""
    gains = {name: gain(runs, arm, RARE) for arm, name in SELECTED.items()}
    known = {name: change for name, change in gains.items() if change is not None}
    best = max(known, key=lambda name: known[name].percent)
    better = [name for name, change in known.items() if change.low > 0]
    worse = [name for name, change in known.items() if change.high < 0]
    said = f"{len(better) or 'none'} of {len(known)} strategies gains minority AP clearly"
    lost = f" and {len(worse)} lose some" if worse else ""
    return (
        f"At convergence on {runs['data'].nunique()} datasets {said}{lost}; the best is "
        f"{best} with {in_interval(known[best])}."
    )


def _with_one_epoch(answers: Answers) -> str:
    """Say what the least number of epochs gives."""
    epochs, runs = next(iter(answers.budgets.items()))
    some = with_loss(runs, "weighted_bce")
    rare, every = (gain(some, IMPORTANCE, metric) for metric in (RARE, MAP))
    return (
        f"With {_epochs(epochs)} and a weighted loss it changes minority AP by {in_interval(rare)} and "
        f"Macro-AP by {in_interval(every)} on {some['data'].nunique()} datasets."
    )


def _epochs(number: int) -> str:
    return f"{number} epoch{'' if number == 1 else 's'}"


def convergence(answers: Answers) -> str:
    """Answer the first question: whether selection helps soundly trained networks."""
    runs, beside = answers.converged, answers.beside_classical
    rows = [((name,), runs, arm, RANDOM) for arm, name in SELECTED.items()]
    reached = [
        (name, *(f"{level(beside, arm, metric):.3f}" for metric in METRICS), *_against(beside, arm))
        for arm, name in ((RANDOM, "ensemble, random"), *_classical_arms())
    ]
    text = (
        f"The estimator's model and recipe, spelled out in `reproduction/convergence/networks.toml`: "
        f"plain BCE, at least 1,000 steps and five epochs, a cosine to zero, the last epoch; "
        f"{runs['data'].nunique()} datasets, {runs['fold'].nunique()} "
        f"fold{'s' if runs['fold'].nunique() > 1 else ''}, "
        "the paper's preparation. Change in the mean over datasets against random batches, in percent, "
        "bold where the interval excludes zero, then on how many datasets it is better:"
    )
    levels = (
        "What random batches reach, beside classical learners on the same rows, on the "
        f"{beside['data'].nunique()} datasets where all of them ran: means over datasets, and the change "
        "in them from the ensemble to each learner, in percent:"
    )
    titles = [TITLES[metric] for metric in METRICS]
    return "\n\n".join(
        [
            "## (a) At convergence, with sound training, does selection help?",
            text,
            gain_table(["batches"], rows, METRICS),
            "![Change against random batches at convergence for each strategy, with intervals]"
            "(assets/results.svg)",
            levels,
            table(["learner", *titles, "minority AP, %", "Macro-AP, %"], reached),
            "<details><summary>Dataset by dataset</summary>",
            _by_dataset(answers),
            "</details>",
        ]
    )


def _classical_arms() -> list[tuple[Arm, str]]:
    return [(classical(model), name) for model, name in CLASSICAL.items()]


def _against(runs: pd.DataFrame, arm: Arm) -> list[str]:
    if arm == RANDOM:
        return ["", ""]
    return [str(gain(runs, arm, metric) or "-") for metric in (RARE, MAP)]


def _by_dataset(answers: Answers) -> str:
    """Set the gain in minority AP beside how imbalanced a dataset is, the least imbalanced first."""
    runs = answers.converged
    ratios = facts_of(read_store(committed("convergence")))["mean_imbalance_ratio"]
    rows: list[tuple[object, ...]] = []
    gains: dict[Arm, dict[Dataset, float]] = {arm: {} for arm in SELECTED}
    for data in sorted(set(runs["data"]), key=lambda name: ratios.get(name, 0)):
        here = runs[runs["data"] == data]
        changes = {arm: gain(here, arm, RARE) for arm in SELECTED}
        for arm, change in changes.items():
            gains[arm][data] = change.percent if change else math.nan
        first = data, f"{ratios.get(data, float('nan')):.4g}", f"{level(here, RANDOM, RARE):.3f}"
        rows.append((*first, *map(percent, changes.values())))
    hints = [rank_correlation(pd.Series(each, dtype=float), ratios) for each in gains.values()]
    rows.append(("Spearman's correlation with MeanIR", "", "", *(f"{hint:+.2f}" for hint in hints)))
    header = ["minority AP, %", "MeanIR", "random", *SELECTED.values()]
    return table(header, rows)


def budgets(answers: Answers) -> str:
    """Answer the second question: the same with few epochs."""
    rows = []
    for epochs, runs in answers.budgets.items():
        for loss, name in _LOSSES.items():
            some = with_loss(runs, loss)
            for arm, title in SELECTED.items():
                before = _epochs(epochs), name, title, some["data"].nunique()
                rows.append((before, some, arm, RANDOM))
    text = (
        "The same model and optimizer, the rate chosen for random batches on validation rows, and only "
        "so many epochs. Change in the mean over datasets against random batches with the same loss and "
        "epochs, in percent; [what selection adds](selection_evidence.md) has every strategy, "
        "GoEmotions, and the rates:"
    )
    header = ["epochs", "loss", "batches", "datasets"]
    return "\n\n".join(
        ["## (b) With 1, 3, 10, 30 epochs?", text, gain_table(header, rows, METRICS)]
    )


def ladder(answers: Answers) -> str:
    """Answer the third question: what each remedy does to random and to adaptive batches."""
    runs = answers.ladder
    rows, before = [], None
    for rung in RUNGS.values():
        random, adaptive = at(rung, RANDOM), at(rung, ADAPTIVE)
        cells = []
        for metric in (RARE, MAP):
            step = "" if before is None else _bold(gain(runs, random, metric, at(before, RANDOM)))
            selected = _bold(gain(runs, adaptive, metric, random))
            cells += [f"{level(runs, random, metric):.3f}", step, selected]
        rows.append((rung if before is None else f"+ {rung}", *cells))
        before = rung
    folds = runs["fold"].nunique()
    text = (
        "The MLP with Adam, L2 of 1e-4 and 100 epochs, from the paper's protocol (learning rate 1e-4, "
        "the loss averaged over labels, output biases at zero, the epoch with the best validation "
        "Macro-AUC) upward, one remedy after the other, each kept: the level of random batches, what "
        "this step changes in it, and what adaptive (16) adds to it on the same step, in percent. "
        f"Means over {listed(runs['data'])}, {folds} fold{'s' if folds > 1 else ''}; intervals are a "
        "bootstrap over datasets, bold where they exclude zero."
    )
    header = ["training"]
    for title in (TITLES[RARE], TITLES[MAP]):
        header += [f"{title}, random", "step, %", "adaptive against random, %"]
    picture = (
        "![Minority AP and Macro-AP of random and adaptive batches from the paper's protocol to sound "
        "training](assets/ladder.svg)"
    )
    return "\n\n".join(
        [
            "## (c) Why did the published gains appear?",
            text,
            picture,
            table(header, rows),
            _reading(runs),
            "<details><summary>Dataset by dataset</summary>",
            _ladder_by_dataset(runs),
            "</details>",
        ]
    )


def _reading(runs: pd.DataFrame) -> str:
    """Say what the ladder shows, by its numbers."""
    first, last = (gain(runs, at(rung, ADAPTIVE), RARE, at(rung, RANDOM)) for rung in (FIRST, LAST))
    skipped = gain(runs, at(LAST, RANDOM), RARE, at(FIRST, ADAPTIVE))
    rungs = list(RUNGS.values())
    steps = {
        rung: gain(runs, at(rung, RANDOM), RARE, at(before, RANDOM))
        for before, rung in pairwise(rungs)
    }
    clear = [rung for rung, change in steps.items() if change is not None and change.clear]
    return (
        f"Under the paper's protocol adaptive batches change minority AP by {in_interval(first)}; with "
        f"all remedies by {in_interval(last)}. Random batches with all remedies, against adaptive "
        f"batches under the paper's protocol: {in_interval(skipped)}. The steps that clearly change "
        f"random batches are: {'; '.join(clear) or 'none'}. An averaged loss makes the coupled L2 as "
        "many times stronger against each label's gradient as there are labels, and at 1e-4 the network "
        "is still learning when training ends. Both hold back rare labels most, and batches that show "
        "them more often make up for a part of it."
    )


def _ladder_by_dataset(runs: pd.DataFrame) -> str:
    rows = []
    for data in sorted(set(runs["data"])):
        here = runs[runs["data"] == data]
        levels = [f"{level(here, at(rung, RANDOM), RARE):.3f}" for rung in RUNGS.values()]
        gains = [gain(here, at(rung, ADAPTIVE), RARE, at(rung, RANDOM)) for rung in RUNGS.values()]
        rows.append((f"{data}, random", *levels))
        rows.append((f"{data}, adaptive, %", *map(percent, gains)))
    return table(["minority AP", *RUNGS.values()], rows)


def _bold(change: Gain | None) -> str:
    return "-" if change is None else f"**{change}**" if change.clear else str(change)


def tests(answers: Answers) -> str:
    """Show every claim with its test, what the test could have seen, and a Bayesian check."""
    rows = [
        (
            f"{name}: {TITLES[metric]}",
            made.gain.datasets,
            f"{made.gain}",
            *map(p_text, (made.gain.p, made.p_holm)),
            f"{made.detectable:.1f}",
            " / ".join(f"{chance:.0%}" for chance in made.next) if made.next.equal >= 0 else "-",
        )
        for (name, metric), made in answers.tested.items()
    ]
    text = (
        "Every claim of the three answers, listed before any test: Wilcoxon's signed-rank test over "
        f"datasets, then Holm's correction for the {len(rows)} of them. *Detectable* is the "
        "change in percent, either way, that is found four times in five at level 0.05, before Holm's "
        "correction (t approximation). "
        "The last column is a check by another route, a hierarchical model over the datasets with three "
        "folds or more: how likely the next dataset is worse, practically equal (within 0.01), or better."
    )
    header = ["claim", "datasets", "change, %", "p", "p (Holm)", "detectable, %"]
    header += ["next dataset: worse / equal / better"]
    return "\n\n".join(["## The claims and their tests", text, table(header, rows)])


def in_brief(answers: Answers) -> str:
    """Return the README's table: the three answers in numbers."""
    ladder = answers.ladder
    rows: list[tuple[str, pd.DataFrame, Arm, Arm]] = [
        (f"{name}, at convergence", answers.converged, arm, RANDOM)
        for arm, name in list(SELECTED.items())
        if arm in (IMPORTANCE, BALANCED, ADAPTIVE)
    ]
    rows += [
        (
            f"importance, {_epochs(epochs)}, {_LOSSES['weighted_bce']}",
            with_loss(runs, "weighted_bce"),
            IMPORTANCE,
            RANDOM,
        )
        for epochs, runs in answers.budgets.items()
    ]
    rows += [
        (f"adaptive (16), MLP, {name}", ladder, at(rung, ADAPTIVE), at(rung, RANDOM))
        for rung, name in ((FIRST, FIRST), (LAST, "sound training"))
    ]
    rows.append(
        (
            "random, MLP, from that protocol to sound training",
            ladder,
            at(LAST, RANDOM),
            at(FIRST, RANDOM),
        )
    )
    lines = [
        (name, some["data"].nunique(), *(_bold(gain(some, arm, m, base)) for m in (RARE, MAP)))
        for name, some, arm, base in rows
    ]
    note = (
        "Change in the mean over datasets against random batches (last row: of random batches), in "
        "percent, on test rows, with 95% intervals over datasets; bold where they exclude zero. Minority "
        f"AP is the average precision of {MINORITY_LABELS}; Macro-AP is that of all labels."
    )
    header = ["what, and how it is trained", "datasets", "minority AP, %", "Macro-AP, %"]
    return f"{table(header, lines)}\n\n{wrap(note)}"
