"""The tables of docs/reproduction/finetuning.md and docs/large_data.md."""

import itertools
import json
import math
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reproduction.finetune.cells import (
    ARMS,
    CORRECTED,
    LOSSES,
    MACRO,
    METRICS,
    MINORITY,
    STUDIES,
    WEIGHTED,
    Compared,
    Wanted,
    at_chosen_rate,
    best_rate,
    between_losses,
    change,
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
from reproduction.measures import median_over_seeds, over_seeds
from reproduction.text import rate_name, table

HERE = Path(__file__).parent
FACTS, PADDING, VARIANCE = (HERE / f"{name}.json" for name in ("goemotions", "padding", "variance"))
NONE = "No such run is in the records yet."
TWO = (METRICS[MINORITY], METRICS[MACRO])
MOST_OF_A_STEP = 1.0  # percent


def facts() -> dict[str, Any]:
    """Return how many rows GoEmotions has, in all and of each label."""
    found: dict[str, Any] = json.loads(FACTS.read_text())
    return found


def shown(found: Compared | None) -> str:
    """Return a change with its interval, in bold where that excludes zero.

    Examples
    --------
    >>> from tailbatch.stats import Estimate
    >>> shown(Compared(Estimate(2.0, 1.0, 3.0, 0.01), 5)), shown(None)
    ('**+2.0% [+1.0, +3.0]**', '-')
    """
    if found is None:
        return "-"
    text = plainly(found)
    return f"**{text}**" if found.rises or found.falls else text


def plainly(found: Compared) -> str:
    """Return a change with its interval, if it has one."""
    each = found.change
    if math.isnan(each.low):
        return f"{each.mean:+.1f}%"
    return f"{each.mean:+.1f}% [{each.low:+.1f}, {each.high:+.1f}]"


def changes(
    records: Sequence[Record],
    wanted: Wanted,
    lr: float | None = None,
    seeds: Container[int] | None = None,
) -> str:
    """Return a table: what random batches reach, and the change of each arm against them."""
    if not rates_tried(records, **wanted):
        return NONE
    at = chosen_rate(records, **wanted) if lr is None else lr
    known = [r for r in records if seeds is None or r["run"]["seed"] in seeds]
    base = [values(known, metric, arm="random", lr=at, **wanted) for metric in METRICS]
    rows = [("random", *(f"{mean(each):.3f}" for each in base), len(base[0]))]
    for arm in ARMS:
        found = [change(known, arm, metric, lr=at, **wanted) for metric in METRICS]
        if arm != "random" and found[0] is not None:
            rows.append((arm, *map(shown, found), found[0].seeds))
    return table(["", *METRICS.values(), "seeds"], rows)


def finetuned(records: Sequence[Record]) -> str:
    """Return the tables of the fine-tuned encoder: for each loss, number of epochs and rate compared."""
    kinds = {
        (r["run"]["rows"] or 0, r["run"]["epochs"], list(LOSSES).index(r["run"]["loss"]))
        for r in records
        if is_as(r, study="finetuned", arm="random", seed=0)
    }
    blocks = []
    for rows, epochs, loss in sorted(kinds):
        name = list(LOSSES)[loss]
        wanted = {"study": "finetuned", "loss": name, "epochs": epochs, "rows": rows or None}
        passes = "one epoch" if epochs == 1 else f"{epochs:g} epochs"
        count = f"{rows or facts()['rows']:,} training rows"
        for lr in compared_rates(records, **wanted) or [chosen_rate(records, **wanted)]:
            title = f"{LOSSES[name]}, {passes}, {count}, rate {rate_name(lr)}:"
            blocks.append(f"{title[0].upper()}{title[1:]}\n\n{changes(records, wanted, lr)}")
    return "\n\n".join(blocks) or NONE


def finetuned_rates(records: Sequence[Record]) -> str:
    """Return a table of the rates tried in fine-tuning: random batches, validation rows, first seed."""
    rows = []
    kinds = {
        (r["run"]["loss"], r["run"]["epochs"], r["run"]["rows"])
        for r in records
        if is_as(r, study="finetuned", arm="random", seed=0)
    }
    for loss, epochs, rows_ in sorted(kinds, key=lambda kind: (kind[1], -len(kind[0]), kind[2])):
        wanted = {"study": "finetuned", "loss": loss, "epochs": epochs, "rows": rows_}
        tried = rates_tried(records, **wanted)
        for lr, macro in tried.items():
            found = values(records, MINORITY, "validation", lr=lr, arm="random", seed=0, **wanted)
            best = lr == best_rate(tried)
            cell = f"**{macro:.3f}**" if best else f"{macro:.3f}"
            rows.append((LOSSES[loss], f"{epochs:g}", rate_name(lr), cell, f"{mean(found):.3f}"))
    heads = ["Macro-AP, validation", "minority AP, validation"]
    return table(["loss", "epochs", "rate", *heads], rows) if rows else NONE


def losses(records: Sequence[Record]) -> str:
    """Return a table: weighted BCE with importance against plain BCE with random batches."""
    rows = []
    for study in ("finetuned", "frozen-32", "debtags"):
        found = [between_losses(records, study, metric) for metric in METRICS]
        if found[0] is not None:
            rows.append((STUDIES[study], *map(shown, found), found[0].seeds))
    return table(["", *METRICS.values(), "seeds"], rows) if rows else NONE


def reached(found: Compared, least: float) -> str:
    """Return whether a change reaches a number: by its whole interval, its estimate, or not.

    Examples
    --------
    >>> from tailbatch.stats import Estimate
    >>> [reached(Compared(Estimate(2.0, 1.0, 3.0, 0.01), 5), least) for least in (1, 2, 3, 4)]
    ['yes', 'by the estimate only', 'no, but it is in the interval', 'no']
    """
    each = found.change
    if each.low >= least:
        return "yes"
    if each.mean >= least:
        return "by the estimate only"
    return "no, but it is in the interval" if each.high >= least else "no"


def to_reach(records: Sequence[Record]) -> str:
    """Return a table of what the study was to reach, and what it measured."""
    rows: list[tuple[object, ...]] = []
    frozen, tuned = "frozen embeddings", "fine-tuning"
    for arm in CORRECTED:
        found = {key: at_chosen_rate(records, arm, key, one_epoch("frozen-32")) for key in METRICS}
        known = {key: each for key, each in found.items() if each is not None}
        if known:
            first = known.pop(MINORITY)
            cells = "minority AP at least +12%", plainly(first), reached(first, 12)
            rows.append((frozen, arm, *cells, first.seeds))
            told = "; ".join(f"{METRICS[key]} {plainly(each)}" for key, each in known.items())
            lower = [METRICS[key] for key, each in known.items() if each.falls]
            verdict = f"no: {' and '.join(lower)} lower" if lower else "yes: none measurably lower"
            rows.append((frozen, arm, "the rest level", told, verdict, first.seeds))
    for metric, least in ((MACRO, 2), (MINORITY, 5), ("tuned_macro_f", 0), ("tuned_micro_f", 0)):
        compared = at_chosen_rate(records, "importance", metric, one_epoch("finetuned"))
        if compared is not None:
            wish = f"{METRICS[metric]} {f'at least +{least}%' if least else 'not below'}"
            cells = wish, plainly(compared), reached(compared, least)
            rows.append((tuned, "importance", *cells, compared.seeds))
    share = 100 * step(records, "finetuned", "importance")[2]
    wish = f"selection at most {MOST_OF_A_STEP:g}% of a step"
    verdict = "yes" if share <= MOST_OF_A_STEP else "no"
    runs = [r for r in records if is_as(r, study="finetuned", arm="importance")]
    rows.append((tuned, "importance", wish, f"{share:.2f}%", verdict, f"{len(runs)} runs"))
    written = table(["", "strategy", "to reach", "measured", "reached", "seeds"], rows)
    return written.replace("---:", "---")  # words stand at the left


def step(records: Sequence[Record], study: str, arm: str) -> tuple[float, float, float]:
    """Return seconds a step, those for selection, and their share: each the median over runs."""
    runs = [r for r in records if is_as(r, study=study, arm=arm)]
    return (
        median_over_seeds([r["seconds"] / r["steps"] for r in runs]),
        median_over_seeds([r["selection_seconds"] / r["steps"] for r in runs]),
        median_over_seeds([r["selection_seconds"] / r["seconds"] for r in runs]),
    )


def cost(records: Sequence[Record]) -> str:
    """Return a table of the share of a step that selection takes."""
    rows = []
    for study, arm in itertools.product(STUDIES, ARMS):
        if any(is_as(r, study=study, arm=arm) for r in records):
            whole, selection, share = step(records, study, arm)
            times = f"{1e3 * whole:.2f}", f"{1e3 * selection:.3f}"
            rows.append((STUDIES[study], arm, *times, f"{100 * share:.2f}%"))
    return table(["", "strategy", "ms a step", "of it selection", "share"], rows)


def by_budget(records: Sequence[Record]) -> str:
    """Return a table of what random batches reach and corrected arms change, by epochs of training."""
    rows = []
    for study in ("frozen-32", "frozen"):
        for epochs in budgets(records, study):
            batches = STUDIES[study].partition(", ")[2]
            cells = _beside(records, {**one_epoch(study), "epochs": epochs})
            rows.append((batches, f"{epochs:g}", *cells))
    return table(["", "epochs", *_heads()], rows)


def budgets(records: Sequence[Record], study: str) -> list[float]:
    """Return the numbers of epochs that a study ran for with the weighted loss."""
    known = [r for r in records if is_as(r, study=study, loss=WEIGHTED)]
    return sorted({r["run"]["epochs"] for r in known})


BATCHES = ("frozen-16", "frozen-32", "frozen-64", "frozen")


def by_batch(records: Sequence[Record]) -> str:
    """Return the same table by batch size, one epoch."""
    rows = []
    for study in BATCHES:
        if rates_tried(records, **one_epoch(study)):
            rows.append((STUDIES[study].rpartition(" ")[2], *_beside(records, one_epoch(study))))
    return table(["batch", *_heads()], rows)


def _heads() -> list[str]:
    return [
        "rate",
        *(f"{title}, {arm}" for title in TWO for arm in ("random", *CORRECTED)),
        "seeds",
    ]


def _beside(records: Sequence[Record], wanted: Wanted) -> list[object]:
    """Return the cells of a row: random batches, and the changes of corrected arms."""
    lr = chosen_rate(records, **wanted)
    cells: list[object] = [rate_name(lr)]
    for metric in (MINORITY, MACRO):
        cells.append(f"{mean(values(records, metric, arm='random', lr=lr, **wanted)):.3f}")
        cells += [shown(change(records, arm, metric, lr=lr, **wanted)) for arm in CORRECTED]
    return [*cells, seed_counts(records, lr=lr, **wanted)]


def seed_counts(records: Sequence[Record], **wanted: Any) -> str:
    """Return how many seeds random batches and the corrected arms have, such as 20 to 40."""
    counts = [len(values(records, MACRO, arm=arm, **wanted)) for arm in ("random", *CORRECTED)]
    few, many = min(filter(None, counts), default=0), max(counts)
    return f"{few}" if few == many else f"{few} to {many}"


def by_rate(records: Sequence[Record]) -> str:
    """Return a table of what each arm reaches at each rate: on validation rows, and on test rows."""
    known = first_five(records)
    rows = []
    for arm, lr in itertools.product(
        ("random", *CORRECTED), sorted({r["run"]["lr"] for r in known})
    ):
        found = [
            values(known, metric, part, arm=arm, lr=lr)
            for part in ("validation", "test")
            for metric in (MINORITY, MACRO)
        ]
        if found[0]:
            cells = (f"{mean(each):.3f}" for each in found)
            rows.append((arm, rate_name(lr), *cells, len(found[0])))
    heads = [f"{title}, {part}" for part in ("validation", "test") for title in TWO]
    return table(["", "rate", *heads, "seeds"], rows)


def first_five(records: Sequence[Record]) -> list[Record]:
    """Return the runs of the first five seeds, which ran at every rate."""
    return [r for r in records if is_as(r, **one_epoch("frozen-32")) and r["run"]["seed"] < 5]


def variance(records: Sequence[Record]) -> str:
    """Return a table of labels: how often they are shown, what a draw is worth, and what it brings."""
    worth, known = json.loads(VARIANCE.read_text()), facts()
    wanted = one_epoch("frozen-32")
    lr = chosen_rate(records, **wanted)
    runs = {
        arm: [r for r in records if is_as(r, arm=arm, lr=lr, **wanted)]
        for arm in ("random", "importance")
    }
    order = [int(label) for label in np.argsort(known["train"])]
    rows = []
    for label in [*order[:8], *order[-3:]]:
        ap = [over_seeds([r["average_precision"][label] for r in runs[arm]]).mean for arm in runs]
        often = over_seeds([r["exposure"][label] for r in runs["importance"]]).mean
        rows.append(
            (
                known["names"][label],
                f"{known['train'][label]:,}",
                f"{known['test'][label]:,}",
                f"{often:.1f}",
                *(f"{moments[label]:.1f}" for moments in worth["importance"].values()),
                *(f"{each:.3f}" for each in ap),
            )
        )
    moments = [f"worth, {moment}" for moment in worth["importance"]]
    heads = ["label", "training rows", "test rows", "times as often", *moments]
    return table([*heads, *(f"AP, {arm}" for arm in runs)], rows)


def variants(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the runs of each variant of importance, the default first, on the seeds they share."""
    wanted = one_epoch("frozen-32")
    wanted |= {"lr": chosen_rate(records, **wanted), "arm": "importance"}
    options = sorted({tuple(map(tuple, r["run"]["options"])) for r in records})
    found = {
        ", ".join(f"{key} {value:g}" for key, value in each): [
            r for r in records if is_as(r, options=[list(option) for option in each], **wanted)
        ]
        for each in options
    }
    found = {name: runs for name, runs in found.items() if runs}
    common = set.intersection(*({r["run"]["seed"] for r in runs} for runs in found.values()))
    return {
        name or "default (mix 0.3)": [r for r in runs if r["run"]["seed"] in common]
        for name, runs in found.items()
    }


def settings(records: Sequence[Record]) -> str:
    """Return a table of the variants of importance selection: on validation rows, and on test rows."""
    rows = []
    for name, runs in variants(records).items():
        means = [
            over_seeds([r[part][metric] for r in runs]).mean
            for part in ("validation", "test")
            for metric in (MINORITY, MACRO)
        ]
        rows.append((name, *(f"{each:.3f}" for each in means), len(runs)))
    heads = [f"{title}, {part}" for part in ("validation", "test") for title in TWO]
    return table(["importance", *heads, "seeds"], rows)


def padding() -> str:
    """Return a table of what padding costs."""
    found = json.loads(PADDING.read_text())
    rows = [(way["way"], way["tokens"], f"{1e3 * way['seconds']:.0f}") for way in found["ways"]]
    head = [f"texts of {found['mean_length']} tokens on average", "padded to", "ms a step"]
    return table(head, rows)


def lags(records: Sequence[Record]) -> dict[int, list[list[object]]]:
    """Return the lags that ran, with the options of their runs."""
    options = [r["run"]["options"] for r in records if r["run"]["study"] == "frozen-32"]
    found = {option[1] for each in options for option in each if option[0] == "max_lag"}
    return {lag: [["max_lag", lag]] for lag in sorted(found)}


def late_values(records: Sequence[Record], lag: int, metric: str) -> dict[int, float]:
    """Return a metric by seed of importance by the gradient whose losses come so late."""
    wanted = one_epoch("frozen-32")
    wanted |= {"lr": chosen_rate(records, **wanted), "options": lags(records)[lag]}
    return values(records, metric, arm="importance by gradient", **wanted)


def late_changes(records: Sequence[Record], lag: int) -> dict[str, Compared | None]:
    """Return the changes of importance by the gradient, losses so late, against random batches."""
    wanted = one_epoch("frozen-32")
    lr = chosen_rate(records, **wanted)
    return {
        metric: paired(
            late_values(records, lag, metric),
            values(records, metric, arm="random", lr=lr, **wanted),
        )
        for metric in METRICS
    }


def late(records: Sequence[Record]) -> str:
    """Return a table of the change by the gradient's score when losses come late."""
    wanted = one_epoch("frozen-32")
    prior = {key: at_chosen_rate(records, "importance", key, wanted) for key in METRICS}
    arms = {"by the prior, no losses": prior}
    arms |= {f"by the gradient, lag {lag:,}": late_changes(records, lag) for lag in lags(records)}
    rows = []
    for title, found in arms.items():
        first = found[MINORITY]
        if first is not None:
            rows.append((title, *map(shown, found.values()), first.seeds))
    return table(["against random batches", *METRICS.values(), "seeds"], rows)


def rates(records: Sequence[Record]) -> str:
    """Return a table of the validation Macro-AP of random batches by learning rate, frozen encoders."""
    kinds = {
        (r["run"]["study"], r["run"]["loss"], r["run"]["epochs"])
        for r in records
        if r["run"]["study"] != "finetuned"
    }
    found = {
        (STUDIES[study], LOSSES[loss], epochs): rates_tried(
            records, study=study, loss=loss, epochs=epochs
        )
        for study, loss, epochs in kinds
    }
    tried = sorted({lr for each in found.values() for lr in each})
    rows = []
    for key, each in sorted(found.items()):
        cells = [f"{each[lr]:.3f}" if lr in each else "" for lr in tried]
        best = tried.index(best_rate(each))
        cells[best] = f"**{cells[best]}**"
        rows.append((key[0], key[1], f"{key[2]:g}", *cells))
    return table(["study", "loss", "epochs", *map(rate_name, tried)], rows)
