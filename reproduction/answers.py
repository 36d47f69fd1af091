"""The page's first section: the questions one would ask, each answered by the records.

What the answers claim is listed in `claims` before anything is tested; Holm's correction is over
that list.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from textwrap import fill

from reproduction.cells import at_both_rates, by_loss, cells_of
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
    gain_table,
    shown,
    table,
)

from tailbatch.analysis.gains import gain, where_all_ran
from tailbatch.analysis.published import direction_counts, directions
from tailbatch.analysis.significance import Claim, Tested, decide, validation_ranks
from tailbatch.results.frames import Evidence

_RARE, _AUC = "minority_average_precision", "macro_auc"
_SLOW, _FAST = RATES
Answers = Mapping[tuple[str, str], Tested]


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Yield every claim of the page's summary and of the README, in a fixed order."""
    runs = evidence.runs
    imbalanced = runs[runs["data"].isin(skewed_datasets(evidence))]
    models = runs[runs["learner"].isin(PAPER_MODELS)]
    overlap = where_all_ran(models, [RANDOM, UNIFORM, ADAPTIVE])
    for metric in (_AUC, "macro_f"):
        yield Claim("adaptive", models, ADAPTIVE, RANDOM, metric)
        yield Claim("overlap", overlap, ADAPTIVE, UNIFORM, metric)
    mlp, both = (at_both_rates(imbalanced, learners) for learners in (MLPS[:1], PAPER_MODELS))
    for rate in RATES:
        at = {arm: replace(arm, rate=rate) for arm in CONTENDERS}
        for metric in (_AUC, _RARE):
            yield Claim(f"mlp at {rate}", mlp, at[MINORITY], at[RANDOM], metric)
            yield Claim(f"adaptive at {rate}", both, at[ADAPTIVE], at[RANDOM], metric)
        for arm in (BALANCED, MINORITY):
            yield Claim(f"{arm} at {rate}", both, at[arm], at[RANDOM], _RARE)
    yield Claim("rate", both, replace(RANDOM, rate=_FAST), replace(RANDOM, rate=_SLOW), _RARE)
    plain, selected = (replace(arm, loss="bce", rate=_FAST) for arm in (RANDOM, MINORITY))
    loss, combined = (replace(arm, loss="weighted_bce") for arm in (plain, selected))
    shared = where_all_ran(by_loss(runs), [plain, selected, loss, combined])
    for metric in (_RARE, _AUC):
        yield Claim("loss", shared, loss, plain, metric)
        yield Claim("selection", shared, selected, plain, metric)
        yield Claim("both", shared, combined, loss, metric)


def in_short(evidence: Evidence) -> str:
    """Return the answers, each with its numbers."""
    runs = evidence.runs
    answers = decide(claims(evidence))
    counts = direction_counts(directions(runs)).iloc[0]
    text = (
        "Change in percent of the test metric, positive is better. The dataset is the unit: its models "
        "are averaged first, the 95% intervals in brackets are a bootstrap over datasets, and the "
        "p-values are Wilcoxon's over datasets, after Holm's correction for the "
        f"{len(answers)} claims of this summary. On a single dataset both come from a t-test over folds "
        "with Nadeau and Bengio's variance. With two to five datasets, or below three folds, there is "
        "neither. An answer is yes where every one of its claims is significant, and in part where some "
        "are."
    )
    picture = (
        "![Change against random batches for each strategy, by kind of data and model, with intervals]"
        "(assets/results.svg)"
    )
    listed = [
        f"**Does adaptive (16) help the paper's models?** {_answer(answers, 'adaptive')} Of the "
        f"{counts['compared']} printed directions that we ran, {counts['confirmed']} are confirmed and "
        f"{counts['contradicted']} contradicted.",
        "**Is drawing hard samples better than batches that merely overlap?** "
        f"{_answer(answers, 'overlap')} The baseline is `uniform`, which draws independent batches "
        "without looking at losses.",
        f"**Is the gain of the MLP more than speed?** {ARMS[MINORITY]} against random at {_SLOW}, where "
        f"training ends too early: {_answer(answers, f'mlp at {_SLOW}')} At {_FAST}: "
        f"{_answer(answers, f'mlp at {_FAST}')}",
        f"**Is the gain of the paper's models more than speed?** {ARMS[ADAPTIVE]} against random at "
        f"{_SLOW}: {_answer(answers, f'adaptive at {_SLOW}')} At {_FAST}: "
        f"{_answer(answers, f'adaptive at {_FAST}')}",
    ]
    parts = ["## In short", text, picture, "\n".join(f"- {answer}" for answer in listed)]
    return "\n\n".join(
        [*parts, _rare_labels(evidence), _loss_or_selection(evidence), _which_default(evidence)]
    )


def in_words(evidence: Evidence) -> str:
    """Return what the README says: the words are typed, their numbers follow from the records."""
    answers = decide(claims(evidence))
    runs = evidence.runs[evidence.runs["data"].isin(skewed_datasets(evidence))]

    def change(name: str, metric: str = _RARE) -> str:
        made = answers.get((name, metric))
        if made is None:
            return "not known"
        return f"{made.gain.percent:+.1f}%{'' if made.significant else ' (n.s.)'}"

    def at_rate(lr: str) -> str:
        first, *rest = (change(f"{arm} at {lr}") for arm in (BALANCED, MINORITY, ADAPTIVE))
        return f"{first}, {rest[0]} and {rest[1]} at {lr}"

    lines = [
        f"**Set the learning rate first.** At the paper's {_SLOW} a plain network is still learning "
        "after 100 epochs, and chosen batches teach it the rare labels sooner: with `minority` the "
        f"average precision of minority labels changes by {change(f'mlp at {_SLOW}')}. At {_FAST}, where "
        f"it converges, by {change(f'mlp at {_FAST}')}, and Macro-AUC by "
        f"{change(f'mlp at {_FAST}', _AUC)}.",
        "**Then try a weighted loss**, "
        f'`TailbatchClassifier(strategy="random", loss="weighted_bce")`. At {_FAST} it changes with '
        f"random batches minority AP by {change('loss')} and Macro-AUC by {change('loss', _AUC)}; "
        f"`minority` with a plain loss by {change('selection')} and {change('selection', _AUC)}; "
        f"`minority` on top of the weighted loss, against that loss alone, by {change('both')} and "
        f"{change('both', _AUC)}.",
        "**The paper's models** have losses of their own and are still learning at 1e-4, too. On the "
        f"{len(cells_of(at_both_rates(runs, PAPER_MODELS)))} imbalanced datasets and models that ran at "
        f"both rates, `balanced`, `minority` and `adaptive` change minority AP by {at_rate(_SLOW)}, and "
        f"by {at_rate(_FAST)}; the rate alone gives random batches {change('rate')}.",
        "**Where labels are nearly balanced** there is nothing to gain.",
        "In percent, averaged over datasets; n.s. (not significant): the p-value of Wilcoxon's test over "
        "datasets, after Holm's correction, is 0.05 or more.",
    ]
    *listed, note = (fill(line, 104, subsequent_indent="  ") for line in lines)
    return "\n".join(f"- {line}" for line in listed) + f"\n\n{note}"


def _answer(answers: Answers, name: str) -> str:
    """Return yes or no by the tests of all metrics of a claim, and the numbers."""
    made = {metric: answer for (claim, metric), answer in answers.items() if claim == name}
    if not made:
        return "Not known."
    numbers = [
        f"{TITLES[metric]} {gain}, p = {p:.3f}, {gain.better_cells} of {gain.cells} cells"
        for metric, (gain, p, *_) in made.items()
    ]
    return f"{yes_or_no(list(made.values()))} ({'; '.join(numbers)})."


def power(evidence: Evidence) -> str:
    """Show every claim with its test, what the test could have seen, and a Bayesian check."""
    rows = [
        (
            f"{name}: {TITLES[metric]}",
            made.gain.datasets,
            f"{made.gain}",
            *(f"{value:.3f}" for value in (made.gain.p, made.p_holm)),
            f"{made.detectable:.1f}",
            " / ".join(f"{chance:.0%}" for chance in made.next) if made.next.equal >= 0 else "-",
        )
        for (name, metric), made in decide(claims(evidence)).items()
    ]
    text = (
        "Every claim of the summary, as they were listed before any test. *Detectable* is the"
        "  change in percent, either way, that such a test would find four times in five: a smaller "
        "one could not have been seen here. The last column is a check by another route, a hierarchical "
        "model over the datasets that have three folds or more: how likely the next dataset is worse, "
        "practically equal (within 0.01), or better; it is missing where fewer than three have them."
    )
    header = ["claim", "datasets", "change, %", "p", "p (Holm)", "detectable, %"]
    header += ["next dataset: worse / equal / better"]
    return "\n\n".join(["## The claims and their tests", text, table(header, rows)])


def yes_or_no(answers: list[Tested]) -> str:
    """Return the answer that the tests allow.

    Examples
    --------
    >>> from tailbatch.analysis.gains import Gain
    >>> better, unclear = Tested(Gain(2, 1, 3, 0.01, 4, 4, 9), 0.02), Tested(
    ...     Gain(2, -1, 5, 0.4, 3, 4, 9), 0.8)
    >>> yes_or_no([better, better]), yes_or_no([better, unclear]), yes_or_no([unclear])
    ('Yes', 'In part', 'Not clearly')
    >>> worse = Tested(Gain(-2, -3, -1, 0.01, 0, 4, 9), 0.02)
    >>> yes_or_no([worse, unclear]), yes_or_no([worse, better])
    ('No, it loses', 'It gains in one and loses in another')
    """
    signs = [made.gain.percent > 0 for made in answers if made.significant]
    if not signs:
        return "Not clearly"
    if not all(signs):
        return "It gains in one and loses in another" if any(signs) else "No, it loses"
    return "Yes" if len(signs) == len(answers) else "In part"


def _rare_labels(evidence: Evidence) -> str:
    """Whether minority labels gain, by how imbalanced the labels are."""
    runs = where_all_ran(evidence.runs, CONTENDERS)
    skewed = runs["data"].isin(skewed_datasets(evidence))
    rows = [
        (
            f"{kind} {SKEWED} ({some['data'].nunique()} datasets)",
            *(shown(gain(some, arm, _RARE)) for arm in CONTENDERS[1:]),
        )
        for kind, some in (("above", runs[skewed]), ("up to", runs[~skewed]))
    ]
    text = "Average precision of minority labels, all models, objectives and learning rates, by MeanIR:"
    header = ["MeanIR", *(ARMS[arm] for arm in CONTENDERS[1:])]
    return "\n\n".join(["### Do rare labels gain?", text, table(header, rows)])


def _loss_or_selection(evidence: Evidence) -> str:
    """Set the MLP's reweighted losses beside selection, and both together."""
    ways, rows = by_loss(evidence.runs), []
    for rate in RATES:
        plain, *others = (replace(RANDOM, loss=loss, rate=rate) for loss in LOSSES)
        pairs = [(replace(MINORITY, loss="bce", rate=rate), plain)]
        for other in others:
            pairs += [(other, plain), (replace(MINORITY, loss=other.loss, rate=rate), other)]
        shared = where_all_ran(ways, list({arm for pair in pairs for arm in pair}))
        where = f" at {rate} ({shared['data'].nunique()} datasets)"
        for arm, baseline in pairs:
            names = [
                f"{each.strategy}, {LOSSES[each.loss or 'bce'] or 'plain BCE'}"
                for each in (arm, baseline)
            ]
            rows.append(((names[0] + where, names[1]), shared, arm, baseline))
    gains = gain_table(["MLP with", "against"], rows, ["macro_f", "tuned_macro_f", _RARE])
    return "\n\n".join(["### Selection, or another loss?", gains])


def _which_default(evidence: Evidence) -> str:
    rows = []
    for kind, runs in kinds_of_cells(evidence).items():
        means = validation_ranks(runs, FOCUS)["mean"]
        ranks = [f"{means[arm]:.2f}" for arm in CONTENDERS]
        rows.append((kind, *(f"**{r}**" if r == sorted(ranks)[0] else r for r in ranks)))
    text = (
        "Mean ranks over five metrics on validation rows, 1 is best. The estimator trains the MLP with "
        "plain BCE at 1e-3 where nothing else is said, so its default and that of `make_selector` is "
        "what is best there."
    )
    header = ["", *(NAMES[arm] for arm in CONTENDERS)]
    return "\n\n".join(["### Which default?", text, table(header, rows)])
