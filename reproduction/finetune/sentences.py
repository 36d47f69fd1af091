"""The sentences of the pages that quote or judge runs: the records choose them."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence

from reproduction.finetune.cells import (
    CLAIMS,
    CORRECTED,
    FEWEST_SEEDS,
    FIRST,
    FRESH,
    LOSSES,
    MACRO,
    METRICS,
    MINORITY,
    PLAIN,
    STUDIES,
    WEIGHTED,
    Compared,
    at_chosen_rate,
    best_rate,
    between_losses,
    chosen_rate,
    compared_rates,
    is_as,
    mean,
    one_epoch,
    paired,
    rates_tried,
    values,
)
from reproduction.finetune.records import Record
from reproduction.finetune.tables import (
    BATCHES,
    VARIANCE,
    budgets,
    facts,
    first_five,
    lags,
    late_changes,
    late_values,
    plainly,
    seed_counts,
    shown,
    step,
    variants,
)
from reproduction.text import rate_name

from tailbatch.stats import holm

PLACES = {
    "frozen-32": "on GoEmotions' embeddings",
    "debtags": "on debtags' embeddings",
    "finetuned": "in fine-tuning",
}
HIGHEST_AT_FIRST = 2e-4
"""The highest rate of fine-tuning when its strategies first ran; see runs.py."""
PLANNED = ("random", "balanced", "minority", "importance", "balanced, corrected")
"""The strategies that fine-tuning was planned with."""
NUMBERS = ("none", "one", "two", "three", "four", "five")


def number(count: int) -> str:
    """Return a small number as a word.

    Examples
    --------
    >>> number(3), number(12)
    ('three', '12')
    """
    return NUMBERS[count] if count < len(NUMBERS) else f"{count}"


def together(items: Iterable[str]) -> str:
    """Return items as a list in a sentence.

    Examples
    --------
    >>> together(["a", "b", "c"]), together(["a"])
    ('a, b and c', 'a')
    """
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def named(metric: str) -> str:
    """Return a metric's name inside a sentence.

    Examples
    --------
    >>> named("tuned_macro_f"), named("macro_auc")
    ('tuned Macro-F', 'Macro-AUC')
    """
    name, _, tuned = METRICS[metric].partition(", ")
    return f"{tuned} {name}".strip()


def _found(records: Sequence[Record], loss: str) -> dict[tuple[str, str], Compared]:
    """Return the change by importance in each study and metric that ran, one epoch."""
    cells = {
        (study, metric): at_chosen_rate(records, "importance", metric, one_epoch(study, loss))
        for study in PLACES
        for metric in METRICS
    }
    return {key: each for key, each in cells.items() if each is not None}


def opening(records: Sequence[Record]) -> str:
    """Return what to do, as far as the records support it, and why."""
    across = {study: between_losses(records, study, MACRO) for study in PLACES}
    known = {study: each for study, each in across.items() if each is not None}
    text = [f"**{_advice(records, known)}**", _effects(records), _with_plain_bce(records)]
    if known:
        told = together(f"{plainly(each)} {PLACES[study]}" for study, each in known.items())
        text.append(
            "From plain BCE with random batches to the weighted loss with `importance`, Macro-AP "
            f"changes by {told}."
        )
    text.append(_also_between_losses(records))
    share = 100 * step(records, "finetuned", "importance")[2]
    text.append(f"Drawing by `importance` takes {share:.2f}% of a fine-tuning step.")
    return " ".join(filter(None, text))


def _also_between_losses(records: Sequence[Record]) -> str:
    """Return what else clearly changes from plain BCE at random to the weighted loss by importance."""
    cells = [
        (study, metric, between_losses(records, study, metric))
        for metric in METRICS
        for study in PLACES
        if metric != MACRO
    ]
    told = [
        f"{named(metric)} by {plainly(each)} {PLACES[study]}"
        for study, metric, each in cells
        if each is not None and (each.rises or each.falls)
    ]
    return f"Other clear changes are of {together(told)}." if told else ""


def _advice(records: Sequence[Record], across: Mapping[str, Compared]) -> str:
    """Return what to start with: the simpler way, unless the other is measurably better."""
    gains = [each for (_, metric), each in _found(records, WEIGHTED).items() if metric == MACRO]
    draw = (
        any(each.rises for each in gains)
        and not any(each.falls for each in gains)
        and all(each.change.mean > 0 for each in gains)
    )
    if not draw:
        return "Start with random batches: no way of drawing was better everywhere."
    advice = []
    better = [PLACES[study] for study, each in across.items() if each.rises]
    if better:
        advice.append(f"Use a weighted loss and draw by `importance` {together(better)}.")
    if len(better) < len(across):
        start = "Elsewhere start" if better else "Start"
        advice.append(f"{start} with plain BCE and random batches.")
    if not better:
        advice.append("If you use a weighted loss for about one epoch, draw by `importance`.")
    return " ".join(advice)


def _effects(records: Sequence[Record]) -> str:
    """Return which metrics importance changes with the weighted loss, and where."""
    found = _found(records, WEIGHTED)
    places: dict[str, list[str]] = {}
    for study, place in PLACES.items():
        cells = {metric: each for (where, metric), each in found.items() if where == study}
        up = [named(metric) for metric, each in cells.items() if each.rises]
        down = [named(metric) for metric, each in cells.items() if each.falls]
        parts = []
        if up:
            what = "every metric" if len(up) == len(cells) else together(up)
            parts.append(f"raises {what}")
        if down:
            parts.append(f"lowers {together(down)}")
        effect = " and ".join(parts) or "changes nothing measurably"
        if cells:
            places.setdefault(effect, []).append(place)
    told = "; it ".join(f"{effect} {together(where)}" for effect, where in places.items())
    return f"With the weighted loss, `importance` {told}."


def _with_plain_bce(records: Sequence[Record]) -> str:
    found = _found(records, PLAIN)
    clear = {key: each for key, each in found.items() if each.rises or each.falls}
    if not found:
        return ""
    if not clear:
        return "With plain BCE, `importance` makes no measurable difference."
    told = together(
        f"{named(metric)} {plainly(each)} {PLACES[study]}"
        for (study, metric), each in clear.items()
    )
    return f"With plain BCE, {len(clear)} of {len(found)} intervals of `importance` exclude zero: {told}."


def in_short(records: Sequence[Record]) -> str:
    """Return what importance selection changes with the weighted loss, fine-tuned and frozen."""
    sentences = []
    for study, title in (
        ("finetuned", "Fine-tuning MiniLM on 10,000 rows"),
        ("frozen-32", "An MLP on MiniLM's embeddings, all rows"),
        ("debtags", "The same on a second corpus, Debian's package descriptions"),
    ):
        cells = {key[1]: each for key, each in _found(records, WEIGHTED).items() if key[0] == study}
        told = ", ".join(f"{METRICS[key]} {shown(each)}" for key, each in cells.items())
        if cells:
            sentences.append(f"- {title}, {cells[MACRO].seeds} seeds: {told}.")
    return "\n".join(sentences)


def noise() -> str:
    """Return on how many test rows GoEmotions' minority AP rests."""
    known = facts()
    rows = sum(known["test"][label] for label in known["minority"])
    count = number(len(known["minority"]))
    return (
        f"They say nothing about other test rows: GoEmotions' {count} minority labels have {rows} of "
        "them together, so its minority AP is noisy."
    )


def caption(records: Sequence[Record]) -> str:
    """Return what the picture shows: of which rows, with how many seeds, and where gains end."""
    known = facts()
    counts: dict[str, list[str]] = {}
    for epochs in budgets(records, "frozen-32"):
        wanted = {**one_epoch("frozen-32"), "epochs": epochs}
        lr = chosen_rate(records, **wanted)
        rows = f"{known['rows'] * epochs / 1000:.0f}k"
        counts.setdefault(seed_counts(records, lr=lr, **wanted), []).append(rows)
    seeds = "; ".join(f"{count} seeds at {together(rows)} rows" for count, rows in counts.items())
    return (
        f"*GoEmotions ({known['rows']:,} comments, {len(known['names'])} labels, the rarest with "
        f"{min(known['train'])} positives): frozen embeddings with an MLP, batches of 32, weighted BCE. "
        "Each point is a training of its own, with a rate schedule that ends there; bars are 95% "
        f"intervals of the mean over seeds, drawn a little apart. A point has {seeds}. "
        f"The axes do not start at 0. {fading(records)}*"
    )


def fading(records: Sequence[Record]) -> str:
    """Return after how much training importance gains most, and from where on nothing."""
    gains = {}
    for epochs in budgets(records, "frozen-32"):
        wanted = {**one_epoch("frozen-32"), "epochs": epochs}
        each = at_chosen_rate(records, "importance", MACRO, wanted)
        if each is not None:
            gains[epochs] = each
    most = max(gains, key=lambda epochs: gains[epochs].change.mean)
    text = (
        f"`importance` gains most in Macro-AP after {_epochs(most)} ({plainly(gains[most])})"
        if gains[most].change.mean > 0
        else "`importance` gains nothing in Macro-AP at any length"
    )
    later = sorted(gains, reverse=True)
    without = []
    for epochs in later:
        if gains[epochs].rises:
            break
        without.append(epochs)
    if len(without) == len(later):
        return f"{text}; no gain is measurable."
    if without:
        return f"{text}; from {_epochs(without[-1])} on, no gain is measurable."
    return f"{text}; it is still measurable after {_epochs(later[0])}."


def _epochs(count: float) -> str:
    """Return a length of training in words.

    Examples
    --------
    >>> _epochs(0.25), _epochs(1.0), _epochs(2.0)
    ('0.25 epochs', 'one epoch', 'two epochs')
    """
    if count == 1:
        return "one epoch"
    return f"{number(int(count))} epochs" if count == int(count) else f"{count:g} epochs"


def claims(records: Sequence[Record]) -> str:
    """Return which of the four claims hold in fine-tuning."""
    wanted = one_epoch("finetuned")
    cells = {key: at_chosen_rate(records, "importance", key, wanted) for key in CLAIMS}
    found = {key: each for key, each in cells.items() if each is not None}
    if not found:
        return "Importance has not run at this rate."
    seeds = found[MACRO].seeds
    up = [named(key) for key, each in found.items() if each.change.mean > 0]
    if len(up) == len(found):
        directions = f"all {number(len(found))} estimates are above zero"
    elif up:
        directions = f"the {_plural('estimate', up)} of {together(up)} {_is(up)} above zero"
    else:
        directions = "no estimate is above zero"
    text = f"With {number(seeds)} seeds {directions}"
    if seeds < FEWEST_SEEDS:
        text += ", too few for intervals."
    else:
        clear = [named(key) for key, each in found.items() if each.rises]
        lower = [named(key) for key, each in found.items() if each.falls]
        adjusted = holm([each.change.p_value for each in found.values()])
        held = [
            named(key)
            for (key, each), p in zip(found.items(), adjusted, strict=True)
            if p < 0.05 and each.change.mean > 0
        ]
        text += _told(clear, "lies", "above zero") + _told(lower, "lies", "below zero")
        text += f". After Holm's correction for the {number(len(found))} claims "
        text += (
            f"{together(held)} {'holds' if len(held) == 1 else 'hold'}." if held else "none holds."
        )
    lr = chosen_rate(records, **wanted)
    base = values(records, MINORITY, arm="random", lr=lr, **wanted).values()
    return (
        f"{text} Random batches alone range from {min(base):.2f} to {max(base):.2f} in minority AP, "
        "from seed to seed."
    )


def _told(names: Sequence[str], verb: str, where: str) -> str:
    if not names:
        return f", and no interval {verb} {where}" if where == "above zero" else ""
    own = f"the {_plural('interval', names)} of {together(names)}"
    return f", and {own} {verb if len(names) == 1 else verb[:-1]} {where}"


def _plural(noun: str, items: Sequence[str]) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def _is(items: Sequence[str]) -> str:
    return "is" if len(items) == 1 else "are"


def not_run(records: Sequence[Record]) -> str:
    """Return which planned runs of fine-tuning are missing; nothing if none is."""
    missing = []
    for epochs, (loss, title) in itertools.product((1.0, 2.0), LOSSES.items()):
        wanted = {"study": "finetuned", "loss": loss, "epochs": epochs}
        ran = {r["run"]["arm"] for r in records if is_as(r, **wanted)}
        lacking = [f"`{arm}`" for arm in PLANNED if arm not in ran]
        if lacking:
            what = together(lacking) if ran else "all strategies"
            missing.append(f"{what} with {title} and {_epochs(epochs)}")
    return f"Of what was planned, these did not run: {'; '.join(missing)}." if missing else ""


def edges(records: Sequence[Record]) -> str:
    """Return for each loss whether fine-tuning's best rate is at the edge of those tried."""
    told = []
    kinds = sorted(
        {
            (r["run"]["epochs"], list(LOSSES).index(r["run"]["loss"]), r["run"]["rows"])
            for r in records
            if is_as(r, study="finetuned", arm="random", seed=0)
        }
    )
    for epochs, loss, rows in kinds:
        name = list(LOSSES)[loss]
        wanted = {"study": "finetuned", "loss": name, "epochs": epochs, "rows": rows}
        tried = rates_tried(records, **wanted)
        best = best_rate(tried)
        text = f"With {LOSSES[name]} and {_epochs(epochs)}, "
        if len(tried) == 1:
            text += f"only {rate_name(best)} was tried."
            told.append(text)
            continue
        text += f"{rate_name(best)} is the best of {number(len(tried))} rates"
        if best == max(tried):
            text += ", and the highest: a higher one may be better."
        elif best == min(tried):
            text += ", and the lowest: a lower one may be better."
        else:
            text += ", with worse ones on both sides."
        used = chosen_rate(records, **wanted)
        if used != best and compared_rates(records, **wanted):
            text += (
                f" Too few seeds of importance ran at it, so sentences on this page are about "
                f"{rate_name(used)}."
            )
        told.append(text)
    higher = [lr for lr in rates_tried(records, **one_epoch("finetuned")) if lr > HIGHEST_AT_FIRST]
    if higher:
        told.append(
            f"{together(map(rate_name, higher))} {'was' if len(higher) == 1 else 'were'} added after "
            f"strategies had run at {rate_name(HIGHEST_AT_FIRST)}, the highest rate until then."
        )
    return " ".join(told)


def fresh(records: Sequence[Record]) -> str:
    """Return what the seeds that were planned as a test say by themselves."""
    wanted = one_epoch("frozen-32")
    new = {key: at_chosen_rate(records, "importance", key, wanted, seeds=FRESH) for key in CLAIMS}
    old = at_chosen_rate(records, "importance", MINORITY, wanted, seeds=FIRST)
    held = [named(key) for key, each in new.items() if each is not None and each.rises]
    what = f"confirm the gain in {together(held)}" if held else "confirm none of the four claims"
    each = new[MINORITY]
    if each is None or old is None:
        return f"By themselves they {what}:"
    return (
        f"By themselves they {what}. Minority AP changes by {plainly(each)} there; with the first "
        f"{old.seeds} it was {plainly(old)}:"
    )


def tags(records: Sequence[Record]) -> str:
    """Return how many labels debtags has in the records."""
    found = [r for r in records if r["run"]["study"] == "debtags"]
    return f"{len(found[0]['average_precision'])} tags" if found else "tags"


def worth() -> str:
    """Return what a draw by importance is worth to the rarest and to the commonest label."""
    known, found = facts(), json.loads(VARIANCE.read_text())["importance"]
    rarest = known["train"].index(min(known["train"]))
    commonest = known["train"].index(max(known["train"]))
    first, later = found["first step"], found["after an epoch"]
    return (
        f"{first[rarest]:.1f} for the rarest and {first[commonest]:.1f} for the commonest at the first "
        f"step, {later[rarest]:.1f} and {later[commonest]:.1f} after an epoch"
    )


def batch_rates(records: Sequence[Record]) -> str:
    """Return which batch sizes ran at a rate of their own."""
    usual = chosen_rate(records, **one_epoch("frozen-32"))
    others = [
        STUDIES[study].rpartition(" ")[2]
        for study in BATCHES
        if rates_tried(records, **one_epoch(study))
        and chosen_rate(records, **one_epoch(study)) != usual
    ]
    if not others:
        return "The best rate for random batches is the same at all sizes:"
    rows = "that row differs" if len(others) == 1 else "those rows differ"
    return (
        f"At {together(others)} another rate is best for random batches, so {rows} in two things:"
    )


def arm_rates(records: Sequence[Record]) -> str:
    """Return which rate each arm prefers on validation rows, and what it loses at the highest."""
    known = first_five(records)
    tried = sorted({r["run"]["lr"] for r in known})
    preferred, lost = {}, []
    for arm in ("random", *CORRECTED):
        found = {lr: values(known, MACRO, "validation", arm=arm, lr=lr) for lr in tried}
        found = {lr: each for lr, each in found.items() if each}
        preferred[arm] = max(found, key=lambda lr: mean(found[lr]))
        if preferred[arm] != tried[-1] and tried[-1] in found:
            each = paired(found[tried[-1]], found[preferred[arm]])
            if each is not None:
                lost.append(f"{arm} {plainly(each)}")
    if len(set(preferred.values())) == 1:
        text = f"all three prefer {rate_name(preferred['random'])}"
    else:
        text = together(f"{arm} prefers {rate_name(lr)}" for arm, lr in preferred.items())
    if lost:
        text += f"; from there to {rate_name(tried[-1])} they change by: {'; '.join(lost)}"
    return f"By Macro-AP on validation rows {text}."


def variant_verdict(records: Sequence[Record]) -> str:
    """Return whether a variant of importance is measurably better than the default on validation."""
    (_, default), *others = variants(records).items()
    before = {r["run"]["seed"]: r["validation"][MACRO] for r in default}
    better = []
    for name, runs in others:
        each = paired({r["run"]["seed"]: r["validation"][MACRO] for r in runs}, before)
        if each is not None and each.rises:
            better.append(f"{name} ({plainly(each)})")
    if not better:
        return "In Macro-AP on validation rows none is measurably better than the default."
    return f"In Macro-AP on validation rows better than the default: {together(better)}."


def lag_verdict(records: Sequence[Record]) -> str:
    """Return what lags change, as far as these runs can tell."""
    known = list(lags(records))
    if not known:
        return ""
    now = {key: each for key, each in late_changes(records, known[0]).items() if each is not None}
    gained = [named(key) for key, each in now.items() if each.rises]
    lowered = [named(key) for key, each in now.items() if each.falls]
    also = f" and lowered {together(lowered)}" if lowered else ""
    if gained:
        text = (
            f"Without a lag, importance by the gradient gained in {together(gained)}{also} on these "
            "embeddings."
        )
    else:
        text = (
            "Importance by the gradient gained nothing measurable at lag "
            f"{known[0]} on these embeddings{also}, so there is no gain that could fade: these runs do "
            "not tell how fast one would."
        )
    tests = {
        (lag, key): paired(late_values(records, lag, key), late_values(records, known[0], key))
        for lag in known[1:]
        for key in METRICS
    }
    counted = {
        at: each
        for at, each in tests.items()
        if each is not None and each.seeds >= FEWEST_SEEDS and each.change.p_value >= 0
    }
    if not counted:
        return text
    adjusted = holm([each.change.p_value for each in counted.values()])
    apart = [at for at, p in zip(counted, adjusted, strict=True) if p < 0.05]
    if apart:
        told = together(f"{named(key)} at lag {lag:,}" for lag, key in apart)
        return f"{text} After Holm's correction, lags differ from lag {known[0]} in {told}."
    return f"{text} After Holm's correction, no lag can be told from lag {known[0]}."
