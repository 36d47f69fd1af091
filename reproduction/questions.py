"""The page's three questions, each with one table, and the claims that are made of them.

What is claimed is fixed in `claims`, not chosen by p-value; Holm's correction is over that list.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import pandas as pd
from reproduction.cells import at_both_rates, facts_of, gain_at
from reproduction.few_epochs.page import budgets as by_budget
from reproduction.few_epochs.studies import BUDGETS, LATER, LATER_EPOCHS, PREPARATIONS, later
from reproduction.few_epochs.studies import rates as choose_rates
from reproduction.figures.page import complete
from reproduction.measures import (
    Claim,
    Tested,
    compare_ways,
    decide,
    hours_of,
    level,
    out_of_reach,
    rank_correlation,
    runs_and_folds,
    seconds_an_epoch,
    where_all_ran,
)
from reproduction.published import direction_counts, directions
from reproduction.records import committed, lacking, runs_of
from reproduction.text import (
    ADAPTIVE,
    BALANCED,
    MINORITY,
    PAPER_MODELS,
    RANDOM,
    RATES,
    TITLES,
    UNIFORM,
    GainRow,
    counted,
    folds_of,
    gain_table,
    in_interval,
    learner_name,
    listed,
    p_text,
    percent,
    table,
    wrap,
)

from tailbatch.analysis import Analysis, Arm, Dataset
from tailbatch.analysis.comparisons import SIMULATIONS, Gain, coverage_text, gain
from tailbatch.data.preparation import FEW_POSITIVES
from tailbatch.results import NO_BATCHES
from tailbatch.results.frames import Evidence, read_store
from tailbatch.stats import FEWEST_DATASETS

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
LADDER_TITLE = "## (c) Where do gains like the published ones come from? An MLP, step by step"
_OLD_ANCHOR = "c-why-did-the-published-gains-appear"  # other pages link to it
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
        runs = self._convergence
        return where_all_ran(runs[runs["model"] == "ensemble"], [RANDOM, *SELECTED])

    @cached_property
    def _convergence(self) -> pd.DataFrame:
        """All runs of the first question's studies."""
        return pd.concat(runs_of("convergence").values(), ignore_index=True)

    @cached_property
    def beside_classical(self) -> pd.DataFrame:
        """The ensemble's random batches and the classical learners, each an arm, where all ran."""
        runs, learner = self._convergence, self.converged["learner"].iloc[0]
        frames = [self.converged[self.converged["arm"] == RANDOM]]
        for model in CLASSICAL:
            mine = compare_ways(runs[runs["model"] == model], model)
            frames.append(mine.assign(learner=[learner] * len(mine)))
        return where_all_ran(pd.concat(frames), [RANDOM, *map(classical, CLASSICAL)])

    @cached_property
    def budgets(self) -> dict[int, pd.DataFrame]:
        """The runs of few epochs, by their number, which selection_evidence.md shows in full."""
        return by_budget()

    @cached_property
    def ladder(self) -> pd.DataFrame:
        """The MLP's runs on all rungs, the rung a part of the arm, where all ran."""
        runs = runs_of("ladder")
        frames = [compare_ways(runs[study], rung) for study, rung in RUNGS.items()]
        arms = [at(rung, arm) for rung in RUNGS.values() for arm in (RANDOM, ADAPTIVE)]
        return where_all_ran(pd.concat(frames), arms)

    @cached_property
    def both_rates(self) -> pd.DataFrame:
        """The paper's models at its learning rate and at ten times as much."""
        return at_both_rates(self.evidence.runs, PAPER_MODELS)

    @cached_property
    def verdicts(self) -> "pd.Series[int]":
        """How many of the printed directions were run, confirmed and contradicted."""
        return direction_counts(directions(self.evidence.runs)).iloc[0]

    @cached_property
    def figures(self) -> dict[int, Analysis]:
        """The paper's figures of which all runs are there."""
        return complete(self.evidence)

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
    """Yield every claim of the page's summary and of docs/training.md, in a fixed order."""
    for metric in (RARE, MAP):
        for arm, name in SELECTED.items():
            yield Claim(f"(a) {name}", answers.converged, arm, RANDOM, metric)
        for arm, name in _classical_arms():
            title = f"(a) {name} against the ensemble"
            yield Claim(title, answers.beside_classical, arm, RANDOM, metric)
        for epochs, runs in answers.budgets.items():
            for loss, name in _LOSSES.items():
                title = f"(b) importance, {_epochs(epochs)}, {name}"
                yield Claim(title, with_loss(runs, loss), IMPORTANCE, RANDOM, metric)
        ladder = answers.ladder
        yield Claim("(c) the remedies, random", ladder, at(LAST, RANDOM), at(FIRST, RANDOM), metric)
        for rung in (FIRST, LAST):
            name = f"(c) adaptive, {rung if rung == FIRST else 'all remedies'}"
            yield Claim(name, ladder, at(rung, ADAPTIVE), at(rung, RANDOM), metric)
        name = "(c) random with all remedies against adaptive without"
        yield Claim(name, ladder, at(LAST, RANDOM), at(FIRST, ADAPTIVE), metric)
    for rate in RATES:
        name = f"(c) adaptive, the paper's models at {rate}"
        yield Claim(name, answers.both_rates, at(rate, ADAPTIVE), at(rate, RANDOM), RARE)
    runs = answers.evidence.runs
    models = runs[runs["learner"].isin(PAPER_MODELS)]
    overlap = where_all_ran(models, [RANDOM, UNIFORM, ADAPTIVE])
    for metric in ("macro_auc", "macro_f"):
        yield Claim("adaptive, the paper's models", models, ADAPTIVE, RANDOM, metric)
        yield Claim("adaptive against uniform", overlap, ADAPTIVE, UNIFORM, metric)


def summary(answers: Answers) -> str:
    """Say in a few lines what a user should do, with a number for each."""
    ladder, printed = answers.ladder, answers.verdicts
    remedies = gain(ladder, at(LAST, RANDOM), RARE, at(FIRST, RANDOM))
    before, after = (f"{level(ladder, at(rung, RANDOM), RARE):.3f}" for rung in (FIRST, LAST))
    protocol, sound = (gain(ladder, at(r, ADAPTIVE), RARE, at(r, RANDOM)) for r in (FIRST, LAST))
    lines = [
        f"1. **Train soundly first.** With an MLP on {ladder['data'].nunique()} datasets, ordinary "
        f"remedies take minority AP with random batches from {before} to {after} "
        f"({in_interval(remedies)}); adaptive batches change it by {in_interval(protocol)} before them "
        f"and {in_interval(sound)} after.",
        f"2. **Then keep random batches**, the default. {_at_convergence(answers)}",
        f"3. {_with_few_epochs(answers)}",
    ]
    replicated = (
        f"**{printed['compared']} of {printed['compared'] + printed['not run']} directions that the "
        f"paper's table of results prints have been run: {printed['confirmed']} are confirmed, "
        f"{printed['contradicted']} contradicted, {counted(printed['tie'], 'tie')}.** Its figures "
        f"{listed(answers.figures)} come from full runs. What we learned beyond that:"
    )
    note = (
        "Numbers in percent are the change in the mean over datasets against random batches, on test "
        f"rows; in brackets bootstrapped {_intervals(answers)}. Rare labels are the aim throughout: "
        f"*minority AP* is the average precision of *minority labels*, {MINORITY_LABELS}; *Macro-AP* is "
        f"that of all labels. Holm's correction is for the {len(answers.tested)} claims of this page "
        f"([the tests](reproduction/claims.md#the-claims-and-their-tests)).{_not_testable(answers)}"
    )
    return "\n\n".join(
        [
            "# The paper on real data",
            wrap(replicated),
            "\n".join(wrap(line, "   ") for line in lines),
            wrap(note),
        ]
    )


def _not_testable(answers: Answers) -> str:
    """Say which claims rest on too few datasets for the correction; empty if none does."""
    few = out_of_reach(answers.tested)
    if not few:
        return ""
    sizes = sorted({answers.tested[key].gain.datasets for key in few})
    return (
        f" The {len(few)} claims on {' or '.join(map(str, sizes))} datasets cannot pass it, whatever "
        "their values; their intervals are a description."
    )


def _intervals(answers: Answers) -> str:
    """Say what the intervals are over."""
    alone = any(made.gain.datasets == 1 for made in answers.tested.values())
    return f"95% intervals over datasets{', over folds where there is only one' if alone else ''}"


def _clearly(answers: Answers, metric: str, *, better: bool) -> list[str]:
    """Return the strategies that are better, or worse, at convergence after Holm's correction."""
    found = {name: answers.tested.get((f"(a) {name}", metric)) for name in SELECTED.values()}
    return [
        name
        for name, made in found.items()
        if made is not None and made.significant and (made.gain.percent > 0) == better
    ]


def _after_holm(answers: Answers) -> str:
    """Say which strategies are clearly better or worse at convergence."""
    better, worse = (len(_clearly(answers, RARE, better=wanted)) for wanted in (True, False))
    return (
        f"{better or 'none'} of the {len(SELECTED)} strategies clearly "
        f"{'improve' if better > 1 else 'improves'} minority AP; after Holm's correction "
        f"{worse or 'none'} {'are' if worse > 1 else 'is'} clearly worse in it and "
        f"{len(_clearly(answers, MAP, better=False)) or 'none'} in Macro-AP"
    )


def _at_convergence(answers: Answers) -> str:
    """Say which strategies clearly gain or lose minority AP at convergence."""
    runs = answers.converged
    gains = {name: gain(runs, arm, RARE) for arm, name in SELECTED.items()}
    known = {name: change for name, change in gains.items() if change is not None}
    best = max(known, key=lambda name: known[name].percent)
    return (
        f"At convergence on {runs['data'].nunique()} datasets {_after_holm(answers)}. The best is "
        f"{best} with {in_interval(known[best])} minority AP."
    )


def _shows(count: int) -> str:
    return f"{count or 'none'} {'show' if count > 1 else 'shows'}"


def _with_few_epochs(answers: Answers) -> str:
    """Say what the least number of epochs gives, and what of all of them survives the correction."""
    tested = {key: made for key, made in answers.tested.items() if key[0].startswith("(b)")}
    weighted = [made for (name, _), made in tested.items() if _LOSSES["weighted_bce"] in name]
    epochs, runs = next(iter(answers.budgets.items()))
    some = with_loss(runs, "weighted_bce")
    rare, every = (gain(some, IMPORTANCE, metric) for metric in (RARE, MAP))
    if any(made.gain.low > 0 for made in weighted):
        advice = "**With few epochs on much data, try `importance`** and look at validation rows."
    else:
        advice = "**With few epochs, keep them, too**; `importance` is no clear help."
    better = [made.gain.percent > 0 for made in tested.values() if made.significant]
    return (
        f"{advice} With {_epochs(epochs)} and a weighted loss it changes minority AP by "
        f"{in_interval(rare)} and Macro-AP by {in_interval(every)} on "
        f"{counted(some['data'].nunique(), 'dataset')}. After Holm's correction, of "
        f"{counted(len(tested), 'claim')} about few epochs {_shows(better.count(True))} a gain "
        f"and {better.count(False) or 'none'} a loss."
    )


def _epochs(number: int) -> str:
    return counted(number, "epoch")


def convergence(answers: Answers) -> str:
    """Answer the first question: whether selection helps soundly trained networks."""
    runs, beside = answers.converged, answers.beside_classical
    rows = [((name,), runs, arm, RANDOM) for arm, name in SELECTED.items()]
    reached = [
        (name, *(f"{level(beside, arm, metric):.3f}" for metric in METRICS), *_against(beside, arm))
        for arm, name in ((RANDOM, "ensemble, random"), *_classical_arms())
    ]
    text = (
        "The estimator's model, trained to the end of its recipe (`networks.toml` and `goemotions.toml` "
        f"in `reproduction/convergence`): {_recipe(runs)}. {counted(runs['data'].nunique(), 'dataset')}, "
        f"{folds_by_dataset(runs)}, where all strategies ran; {_preparations(runs)}. Change "
        "in the mean over datasets against random batches, in percent, bold where the interval excludes "
        "zero, then on how many datasets it is better:"
    )
    pooling = (
        "All values are means over folds: the records keep no scores of single rows, so held-out rows "
        "cannot be pooled, and where a fold has few positives of a label its AP is noisy. [How to train]"
        "(training.md#what-a-user-would-pick-instead) has the default and its rivals on pooled "
        "out-of-fold rows."
    )
    levels = (
        "What random batches reach, beside classical learners on the same rows, on the "
        f"{beside['data'].nunique()} datasets where all of them ran, {folds_by_dataset(beside)}: means "
        "over datasets, and the change in them from the ensemble to each learner, in percent:"
    )
    titles = [TITLES[metric] for metric in METRICS]
    return "\n\n".join(
        [
            "## (a) At convergence, with sound training, does selection help?",
            text,
            gain_table(["batches"], rows, METRICS),
            "![Change against random batches at convergence for each strategy, with intervals]"
            "(assets/results.svg)",
            pooling,
            levels,
            table(["learner", *titles, "minority AP, %", "Macro-AP, %"], reached),
            "[Dataset by dataset](reproduction/claims.md#at-convergence-dataset-by-dataset).",
            *_later_not_run(answers),
        ]
    )


def _later_not_run(answers: Answers) -> Iterator[str]:
    """Say what is planned of the authors' later selectors and was not run, and what it would cost."""
    converged = [spec for spec in lacking("convergence") if spec.strategy in LATER]
    few = {
        epochs: [
            spec
            for data, loss in product(PREPARATIONS, _LOSSES)
            for study in later(epochs, data, loss)
            for spec in study.specs(defaultdict(str))
        ]
        for epochs, runs in answers.budgets.items()
        if epochs in LATER_EPOCHS and not set(LATER) & {arm.strategy for arm in runs["arm"]}
    }
    costs = [("at convergence", *hours_of(converged, seconds_an_epoch(answers.converged)))]
    costs += [
        (f"with {_epochs(epochs)}", *hours_of(specs, seconds_an_epoch(answers.budgets[epochs])))
        for epochs, specs in few.items()
    ]
    said = [f"{runs} runs {where} ({hours:.2g} h)" for where, hours, runs in costs if runs]
    if said:
        yield (
            "The authors' later selectors, `uncertainty` and `d2ace`, are planned and were not run: "
            f"{listed(said)}, by the seconds of an epoch in the records."
        )


def _recipe(runs: pd.DataFrame) -> str:
    """Say how long the networks of the first question train, as their records have it."""
    plans = sorted(set(zip(runs["plan_epochs"], runs["plan_min_steps"], strict=True)))
    lengths = [
        f"{counted(int(epochs), 'epoch')}, at least {steps:,.0f} steps" for epochs, steps in plans
    ]
    return (
        f"plain BCE, {' or '.join(lengths)}, a rate that falls to zero along a cosine, and the network "
        "of the last epoch"
    )


def folds_by_dataset(runs: pd.DataFrame) -> str:
    """Say how many folds most datasets have, and which have another number."""
    numbers: dict[int, list[Dataset]] = {}
    for (data, _), count in runs_and_folds(runs)["folds"].items():
        numbers.setdefault(count, []).append(data)
    usual = max(numbers, key=lambda number: len(numbers[number]))
    others = [f"{number} on {listed(numbers[number])}" for number in sorted(numbers)]
    others.remove(f"{usual} on {listed(numbers[usual])}")
    said = f"{counted(usual, 'fold')} each"
    return f"{said} ({'; '.join(others)})" if others else said


def _preparations(runs: pd.DataFrame) -> str:
    """Say how the datasets were prepared, as their records have it."""
    kinds: dict[str, list[Dataset]] = {}
    for kind, data in sorted(set(zip(runs["preparation"], runs["data"], strict=True))):
        kinds.setdefault(kind, []).append(data)
    usual = max(kinds, key=lambda kind: len(kinds[kind]))
    said = f"preparation `{usual}`"
    if usual == "paper":
        said += f", which drops labels with at most {FEW_POSITIVES} positives"
    others = [f"{listed(data)} `{kind}`" for kind, data in kinds.items() if kind != usual]
    return f"{said} ({'; '.join(others)})" if others else said


def _classical_arms() -> list[tuple[Arm, str]]:
    return [(classical(model), name) for model, name in CLASSICAL.items()]


def _against(runs: pd.DataFrame, arm: Arm) -> list[str]:
    if arm == RANDOM:
        return ["", ""]
    return [str(gain(runs, arm, metric) or "-") for metric in (RARE, MAP)]


def convergence_by_dataset(answers: Answers) -> str:
    """Set the gain in minority AP beside how imbalanced a dataset is, the least imbalanced first."""
    runs = answers.converged
    ratios = facts_of(read_store(committed("convergence")), runs)["mean_imbalance_ratio"]
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
    text = (
        "Change in minority AP against random batches, in percent, the least imbalanced dataset first. "
        "The last row says how the change goes with the imbalance."
    )
    return "\n\n".join(["## At convergence, dataset by dataset", text, table(header, rows)])


def budgets(answers: Answers) -> str:
    """Answer the second question: the same with few epochs."""
    every = pd.concat(answers.budgets.values())
    text = (
        "The same model and optimizer, the rate chosen for random batches on validation rows, and only "
        f"so many epochs; {folds_of(every)}, {_preparations(every)}. Change in the mean over datasets "
        "by `importance` against random batches with the same loss and epochs, in percent. "
        "[The other strategies](reproduction/claims.md#with-few-epochs-every-strategy) gain less; "
        "[what selection adds](reproduction/selection_evidence.md) has the datasets one by one, and "
        "the rates:"
    )
    header = ["epochs", "loss", "batches", "datasets"]
    parts = [
        "## (b) With few epochs, does selection help?",
        text,
        gain_table(header, _few_epochs(answers, [IMPORTANCE]), METRICS),
    ]
    return "\n\n".join([*parts, *_budgets_not_run(answers)])


def few_epochs_in_full(answers: Answers) -> str:
    """Show every strategy of the second question."""
    text = (
        "Change in the mean over datasets against random batches with the same loss and epochs, in "
        "percent, bold where the interval excludes zero, then on how many datasets it is better:"
    )
    rows = _few_epochs(answers, SELECTED)
    header = ["epochs", "loss", "batches", "datasets"]
    return "\n\n".join(
        ["## With few epochs, every strategy", text, gain_table(header, rows, METRICS)]
    )


def _few_epochs(answers: Answers, arms: Iterable[Arm]) -> list[GainRow]:
    """Return the rows of some strategies, a row for each number of epochs and loss."""
    rows: list[GainRow] = []
    for epochs, runs in answers.budgets.items():
        for loss, name in _LOSSES.items():
            some = with_loss(runs, loss)
            for arm in arms:
                before = _epochs(epochs), name, SELECTED[arm], some["data"].nunique()
                rows.append((before, some, arm, RANDOM))
    return rows


def _budgets_not_run(answers: Answers) -> Iterator[str]:
    """Say which numbers of epochs are planned and were not run, and what the first step would cost."""
    # Of the longest runs there are, whose epochs bear the least of what a run costs once.
    seconds = seconds_an_epoch(answers.budgets[max(answers.budgets)])
    for epochs in (epochs for epochs in BUDGETS if epochs not in answers.budgets):
        studies = [
            study
            for data, loss in product(PREPARATIONS, _LOSSES)
            for study in choose_rates(epochs, data, loss)
        ]
        specs = [spec for study in studies for spec in study.specs(defaultdict(str))]
        hours, timed = hours_of(specs, seconds)
        yield (
            f"{_epochs(epochs).capitalize()} were not run: choosing the rates alone, {timed} runs, "
            f"would take about {hours:.2g} hours, by the seconds of an epoch in the records "
            "(`python -m reproduction.few_epochs` does them)."
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
    text = (
        "The MLP with Adam, L2 of 1e-4 and 100 epochs, from the paper's protocol (learning rate 1e-4, "
        "the loss averaged over labels, output biases at zero, the epoch with the best validation "
        "Macro-AUC) upward, one remedy after the other, each kept: the level of random batches, what "
        "this step changes in it, and what adaptive (16) adds to it on the same step, in percent. "
        f"Means over {listed(runs['data'])}, {folds_of(runs)}; intervals are a bootstrap over datasets, "
        "bold where they exclude zero."
    )
    header = ["training"]
    for title in (TITLES[RARE], TITLES[MAP]):
        header += [f"{title}, random", "step, %", "adaptive against random, %"]
    picture = (
        "![Minority AP of random and adaptive batches from the paper's protocol to sound training, and "
        "the change by adaptive batches on each step, with intervals](assets/ladder.svg)"
    )
    return "\n\n".join(
        [
            f'<a id="{_OLD_ANCHOR}"></a>',
            LADDER_TITLE,
            text,
            picture,
            table(header, rows),
            _reading(runs),
            _paper_models(answers),
            _INTERPRETATION,
            "[Dataset by dataset](reproduction/claims.md#the-ladder-dataset-by-dataset).",
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
        f"Under the paper's protocol adaptive batches change the MLP's minority AP by "
        f"{in_interval(first)}; with all remedies by {in_interval(last)}. Random batches with all "
        f"remedies, against adaptive batches under the paper's protocol: {in_interval(skipped)}. The "
        "steps whose interval for random batches excludes zero are: "
        f"{'; '.join(clear) or 'none'}."
    )


def _paper_models(answers: Answers) -> str:
    """Say what the records hold about the paper's own models, which are not on the ladder."""
    printed, shared = answers.verdicts, answers.both_rates
    said = (
        f"The MLP is not one of the paper's {len(PAPER_MODELS)} models. On those, {printed['compared']} "
        f"printed directions of adaptive against random batches were run: {printed['confirmed']} are "
        f"confirmed, {printed['contradicted']} contradicted, {counted(printed['tie'], 'tie')} "
        "([cell by cell](reproduction/cells.md))."
    )
    slow, fast = (gain_at(shared, ADAPTIVE, RARE, rate) for rate in RATES)
    if slow is None or fast is None:
        return said
    models = ", ".join(learner_name(learner) for learner in sorted(set(shared["learner"])))
    less = "is smaller" if fast.percent < slow.percent else "is not smaller"
    return (
        f"{said} Adaptive batches change minority AP by {in_interval(slow)} at {RATES[0]} and by "
        f"{in_interval(fast)} at {RATES[1]} ({models}; {fast.datasets} datasets; "
        "[by model](reproduction/strategies.md#is-it-more-than-speed)): with these models the change "
        f"{less} at the higher rate."
    )


_INTERPRETATION = (
    "*Interpretation.* The ladder shows that gains of this kind can come from how the baseline is "
    "trained; it does not show that those in the paper did. Why it happens here is a reading, not a "
    "measurement: an averaged loss makes the coupled L2 as many times stronger against each label's "
    "gradient as there are labels, and at 1e-4 the network is still learning when training ends. Both "
    "would hold back rare labels most, and batches that show them more often would make up for a part "
    "of it."
)


def ladder_by_dataset(answers: Answers) -> str:
    """Show the level of random batches and what adaptive changes, for each dataset and step."""
    runs, rows = answers.ladder, []
    for data in sorted(set(runs["data"])):
        here = runs[runs["data"] == data]
        levels = [f"{level(here, at(rung, RANDOM), RARE):.3f}" for rung in RUNGS.values()]
        gains = [gain(here, at(rung, ADAPTIVE), RARE, at(rung, RANDOM)) for rung in RUNGS.values()]
        rows.append((f"{data}, random", *levels))
        rows.append((f"{data}, adaptive, %", *map(percent, gains)))
    return "\n\n".join(
        [
            "## The ladder, dataset by dataset",
            "Minority AP of random batches on each step of the third answer, and what adaptive (16) "
            "changes in it, in percent:",
            table(["minority AP", *RUNGS.values()], rows),
        ]
    )


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
        "Every claim of the three answers, fixed in code (`claims` in `reproduction/questions.py`), not "
        "chosen by p-value: Wilcoxon's signed-rank test over datasets, then Holm's correction for the "
        f"{len(rows)} of them.{_not_testable(answers)} *Detectable* is the "
        "change in percent, either way, that is found four times in five at level 0.05, before Holm's "
        f"correction (t approximation). {_coverage(answers)} "
        "The last column is a check by another route, a hierarchical model over the datasets with three "
        "folds or more: how likely the next dataset is worse, practically equal (within 0.01), or better."
    )
    header = ["claim", "datasets", "change, %", "p", "p (Holm)", "detectable, %"]
    header += ["next dataset: worse / equal / better"]
    return "\n\n".join(["## The claims and their tests", text, table(header, rows)])


def _coverage(answers: Answers) -> str:
    """Say how often the intervals contain the truth, by simulation, for the sizes on this page."""
    sizes = {made.gain.datasets for made in answers.tested.values()}
    said = dict.fromkeys(coverage_text(n) for n in sorted(sizes) if n >= FEWEST_DATASETS)
    return (
        "The 95% interval over datasets is a bootstrap-t, never narrower than Student's. "
        f"{' '.join(said)} {SIMULATIONS:,} simulations each."
    )


def in_brief(answers: Answers) -> str:
    """Return the three answers in numbers, for docs/training.md."""
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
        f"percent, on test rows, with {_intervals(answers)}; bold where they exclude zero. Minority "
        f"AP is the average precision of {MINORITY_LABELS}; Macro-AP is that of all labels. At "
        f"convergence {_after_holm(answers)} ({len(answers.tested)} claims).{_not_testable(answers)}"
    )
    header = ["what, and how it is trained", "datasets", "minority AP, %", "Macro-AP, %"]
    return f"{table(header, lines)}\n\n{wrap(note)}"
