"""docs/finetuning.md and its picture, from the committed records; no torch is needed."""

import itertools
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from reproduction.finetune.records import Record, read
from reproduction.text import table
from scipy import stats

HERE = Path(__file__).parent
FACTS, PADDING, VARIANCE = (HERE / f"{name}.json" for name in ("goemotions", "padding", "variance"))
PAGE = HERE.parent.parent / "docs" / "finetuning.md"
SCALE = PAGE.with_name("scale.md")
MARKS = "<!-- lag: python -m reproduction.finetune -->", "<!-- end of lag -->"
PICTURE = HERE.parent.parent / "docs" / "assets" / "finetuning.svg"
METRICS = {
    "minority_average_precision": "minority AP",
    "macro_average_precision": "Macro-AP",
    "macro_auc": "Macro-AUC",
    "tuned_macro_f": "Macro-F, tuned",
    "tuned_micro_f": "Micro-F, tuned",
}
STUDIES = {
    "frozen": "MLP on embeddings, batches of 128",
    "frozen-64": "MLP on embeddings, batches of 64",
    "frozen-32": "MLP on embeddings, batches of 32",
    "frozen-16": "MLP on embeddings, batches of 16",
    "debtags": "MLP on embeddings of debtags, batches of 32",
    "finetuned": "MiniLM fine-tuned, batches of 32",
}
TWO = list(METRICS.values())[:2]
NONE = "No such run is in the records yet."
CORRECTED = ("importance", "balanced, corrected")
LOSSES = {"weighted_bce": "weighted BCE", "bce": "BCE"}
COLORS = {
    "random": "#000000",
    "balanced": "#7f7f7f",
    "minority": "#cc79a7",
    "importance": "#d55e00",
    "importance by gradient": "#e69f00",
    "balanced, corrected": "#0072b2",
}


class Change(NamedTuple):
    """By what share a mean changes, with its 95% interval."""

    estimate: float
    low: float
    high: float


def relative_change(values: Sequence[float], baseline: Sequence[float]) -> Change:
    """Return the change of the mean over paired runs, with Student's interval by the delta method.

    Examples
    --------
    >>> round(relative_change([0.22, 0.24], [0.20, 0.22]).estimate, 3)
    0.095
    """
    after, before = np.array(values), np.array(baseline)
    ratio = after.mean() / before.mean()
    if len(after) < 2:
        return Change(ratio - 1, np.nan, np.nan)
    spread = (after - ratio * before).std(ddof=1) / np.sqrt(len(after)) / before.mean()
    half = float(stats.t.ppf(0.975, len(after) - 1) * spread)
    return Change(ratio - 1, ratio - 1 - half, ratio - 1 + half)


def interval(found: Sequence[float]) -> Change:
    """Return a mean and its 95% interval by Student's law.

    Examples
    --------
    >>> [round(bound, 3) for bound in interval([0.2, 0.3, 0.4])]
    [0.3, 0.052, 0.548]
    """
    mean = float(np.mean(found))
    spread = float(np.std(found, ddof=1)) / np.sqrt(len(found))
    half = float(stats.t.ppf(0.975, len(found) - 1) * spread)
    return Change(mean, mean - half, mean + half)


def write() -> None:
    """Write the page and its picture."""
    PAGE.write_text(page(read()))
    draw(read(), PICTURE)
    start, end = map(re.escape, MARKS)
    block = late(read())
    SCALE.write_text(
        re.sub(
            f"({start}).*?({end})",
            lambda found: f"{found[1]}\n{block}\n{found[2]}",
            SCALE.read_text(),
            flags=re.DOTALL,
        )
    )


def page(records: Sequence[Record]) -> str:
    """Return docs/finetuning.md: the words of finetuning.md here, with tables in their places."""
    text = (HERE / "finetuning.md").read_text()
    weighted, plain = "weighted_bce", "bce"
    for name, block in {
        "in-short": in_short(records),
        "finetuned": finetuned(records),
        "fresh": changes(records, "frozen-32", weighted, 1, seeds=range(20, 40)),
        "frozen-32": changes(records, "frozen-32", weighted, 1),
        "frozen-32-bce": changes(records, "frozen-32", plain, 1),
        "debtags": changes(records, "debtags", weighted, 1),
        "debtags-bce": changes(records, "debtags", plain, 1),
        "frozen": changes(records, "frozen", weighted, 1),
        "frozen-bce": changes(records, "frozen", plain, 1),
        "batches": by_batch(records),
        "arm-rates": by_rate(records),
        "budgets": by_budget(records),
        "variance": variance(records),
        "settings": settings(records),
        "padding": padding(),
        "rates": rates(records),
        "cost": cost(records),
    }.items():
        text = text.replace(f"<!-- {name} -->", block)
    return text


def values(
    records: Iterable[Record], metric: str, part: str = "test", **wanted: object
) -> dict[int, float]:
    """Return a metric by seed of the runs that are as wanted."""
    return {
        record["run"]["seed"]: record[part][metric] for record in records if _is(record, **wanted)
    }


def _is(record: Record, **wanted: object) -> bool:
    """Whether a run is as wanted, with the default options where none are named."""
    return all(record["run"][key] == value for key, value in {"options": [], **wanted}.items())


def change(
    records: Sequence[Record], arm: str, metric: str, **wanted: object
) -> tuple[Change, int] | None:
    """Return the change of an arm against random batches, and over how many seeds; None for none."""
    ours = values(records, metric, "test", arm=arm, **wanted)
    base = values(records, metric, "test", arm="random", **wanted)
    seeds = sorted(ours.keys() & base.keys())
    if not seeds:
        return None
    pair = ([ours[seed] for seed in seeds], [base[seed] for seed in seeds])
    return relative_change(*pair), len(seeds)


def chosen_rate(records: Sequence[Record], **wanted: object) -> float:
    """Return the rate that every arm ran at: the one of the most runs."""
    found = [record["run"]["lr"] for record in records if _is(record, **wanted)]
    return float(max(set(found), key=lambda lr: (found.count(lr), lr)))


def changes(
    records: Sequence[Record],
    study: str,
    loss: str,
    epochs: float,
    rows: int | None = None,
    seeds: Container[int] | None = None,
) -> str:
    """Return a table: what random batches reach, and the change of each arm against them."""
    runs: dict[str, Any] = {"study": study, "loss": loss, "epochs": epochs, "rows": rows}
    known = [record for record in records if _is(record, **runs)]
    if not known:
        return NONE
    lr = chosen_rate(known, **runs)
    if seeds is not None:
        known = [record for record in known if record["run"]["seed"] in seeds]
    base = [values(known, metric, arm="random", lr=lr, **runs) for metric in METRICS]
    rows_ = [("random", *(f"{_mean(each):.3f}" for each in base), len(base[0]))]
    for arm in COLORS:
        found = [change(known, arm, metric, lr=lr, **runs) for metric in METRICS]
        if arm != "random" and found[0] is not None:
            rows_.append((arm, *map(_shown, found), found[0][1]))
    return table(["", *METRICS.values(), "seeds"], rows_)


def _mean(found: Mapping[int, float]) -> float:
    return float(np.mean(list(found.values())))


def _shown(found: tuple[Change, int] | None) -> str:
    if found is None:
        return "-"
    each, seeds = found
    if seeds == 1:
        return f"{100 * each.estimate:+.1f}%"
    text = f"{100 * each.estimate:+.1f}% [{100 * each.low:+.1f}, {100 * each.high:+.1f}]"
    return f"**{text}**" if each.low > 0 or each.high < 0 else text


def by_budget(records: Sequence[Record]) -> str:
    """Return a table of what random batches reach and corrected arms change, by epochs of training."""
    rows = []
    for study in ("frozen-32", "frozen"):
        known = [r for r in records if _is(r, study=study, loss="weighted_bce")]
        for epochs in sorted({r["run"]["epochs"] for r in known}):
            rows.append((STUDIES[study].partition(", ")[2], f"{epochs:g}", *_beside(known, epochs)))
    return table(["", "epochs", *_heads()], rows)


def by_batch(records: Sequence[Record]) -> str:
    """Return the same table by batch size, one epoch."""
    rows = []
    for study in ("frozen-16", "frozen-32", "frozen-64", "frozen"):
        known = [r for r in records if _is(r, study=study, loss="weighted_bce", epochs=1.0)]
        if known:
            rows.append((STUDIES[study].rpartition(" ")[2], *_beside(known, 1.0)))
    return table(["batch", *_heads()], rows)


def _heads() -> list[str]:
    return [f"{title}, {arm}" for title in TWO for arm in ("random", *CORRECTED)] + ["seeds"]


def _beside(known: Sequence[Record], epochs: float) -> list[object]:
    """Return the cells of a row: random batches, and the changes of corrected arms."""
    runs: dict[str, Any] = {"epochs": epochs, "lr": chosen_rate(known, epochs=epochs)}
    cells: list[object] = []
    for metric in list(METRICS)[:2]:
        cells.append(f"{_mean(values(known, metric, arm='random', **runs)):.3f}")
        cells += [_shown(change(known, arm, metric, **runs)) for arm in CORRECTED]
    counts = [len(values(known, metric, arm=arm, **runs)) for arm in ("random", *CORRECTED)]
    few, many = min(counts), max(counts)
    return [*cells, f"{few}" if few == many else f"{few} to {many}"]


def by_rate(records: Sequence[Record]) -> str:
    """Return a table of what each arm reaches at each rate: on validation rows, and on test rows."""
    runs: dict[str, Any] = {"study": "frozen-32", "loss": "weighted_bce", "epochs": 1.0}
    known = [r for r in records if _is(r, **runs) and r["run"]["seed"] < 5]
    rows = []
    for arm, lr in itertools.product(
        ("random", *CORRECTED), sorted({r["run"]["lr"] for r in known})
    ):
        found = [
            values(known, metric, part, arm=arm, lr=lr)
            for part in ("validation", "test")
            for metric in list(METRICS)[:2]
        ]
        if found[0]:
            rows.append((arm, f"{lr:g}", *(f"{_mean(each):.3f}" for each in found), len(found[0])))
    heads = [f"{title}, {part}" for part in ("validation", "test") for title in TWO]
    return table(["", "rate", *heads, "seeds"], rows)


def variance(records: Sequence[Record]) -> str:
    """Return a table of labels: how often they are shown, what a draw is worth, and what it brings."""
    worth, facts = json.loads(VARIANCE.read_text()), json.loads(FACTS.read_text())
    runs: dict[str, Any] = {"study": "frozen-32", "loss": "weighted_bce", "epochs": 1.0}
    known = [r for r in records if _is(r, **runs)]
    lr = chosen_rate(known, **runs)
    by_arm = {arm: [r for r in known if _is(r, arm=arm, lr=lr)] for arm in ("random", "importance")}
    ap = {arm: np.mean([r["average_precision"] for r in by_arm[arm]], axis=0) for arm in by_arm}
    shown = np.mean([r["exposure"] for r in by_arm["importance"]], axis=0)
    order = np.argsort(facts["train"])
    rows = [
        (
            facts["names"][label],
            f"{facts['train'][label]:,}",
            facts["test"][label],
            f"{shown[label]:.1f}",
            *(f"{moments[label]:.1f}" for moments in worth["importance"].values()),
            *(f"{ap[arm][label]:.3f}" for arm in ap),
        )
        for label in [*order[:8], *order[-3:]]
    ]
    moments = [f"worth, {moment}" for moment in worth["importance"]]
    heads = ["label", "training rows", "test rows", "times as often", *moments]
    return table([*heads, *(f"AP, {arm}" for arm in ap)], rows)


def finetuned(records: Sequence[Record]) -> str:
    """Return the tables of the fine-tuned encoder, one for each number of rows and epochs."""
    kinds = sorted(
        {
            (r["run"]["rows"] or 0, r["run"]["epochs"])
            for r in records
            if r["run"]["study"] == "finetuned"
        }
    )
    blocks = []
    for rows, epochs in kinds:
        title = f"{rows:,} training rows" if rows else "All 43,410 training rows"
        passes = "one epoch" if epochs == 1 else f"{epochs:g} epochs"
        found = changes(records, "finetuned", "weighted_bce", epochs, rows or None)
        blocks.append(f"{title}, {passes}:\n\n{found}")
    return "\n\n".join(blocks) or NONE


def in_short(records: Sequence[Record]) -> str:
    """Return the answer in sentences: what importance selection changes, fine-tuned and frozen."""
    sentences = []
    for study, rows, title in (
        ("finetuned", 10_000, "Fine-tuning MiniLM on 10,000 rows"),
        ("frozen-32", None, "An MLP on MiniLM's embeddings, all rows"),
        ("debtags", None, "The same on a second corpus, Debian's package descriptions"),
    ):
        runs: dict[str, Any] = {"study": study, "rows": rows, "loss": "weighted_bce", "epochs": 1.0}
        known = [record for record in records if _is(record, **runs)]
        lr = chosen_rate(known, **runs)
        found = {metric: change(known, "importance", metric, lr=lr, **runs) for metric in METRICS}
        told = ", ".join(f"{METRICS[key]} {_shown(each)}" for key, each in found.items() if each)
        seeds = next(each[1] for each in found.values() if each)
        sentences.append(f"- {title}, {seeds} seeds: {told}.")
    return "\n".join(sentences)


def settings(records: Sequence[Record]) -> str:
    """Return a table of the variants of importance selection: on validation rows, and on test rows."""
    lr = chosen_rate(records, study="frozen-32", loss="weighted_bce", epochs=1.0)
    runs: dict[str, Any] = {
        **{"study": "frozen-32", "loss": "weighted_bce", "epochs": 1.0},
        **{"lr": lr, "arm": "importance"},
    }
    variants = {tuple(map(tuple, r["run"]["options"])) for r in records}
    rows = []
    for variant in sorted(variants):
        options = [list(option) for option in variant]
        found = [r for r in records if _is(r, options=options, **runs)]
        if found:
            name = ", ".join(f"{key} {value:g}" for key, value in variant) or "default (mix 0.3)"
            means = [
                np.mean([r[part][metric] for r in found])
                for part in ("validation", "test")
                for metric in list(METRICS)[:2]
            ]
            rows.append((name, *(f"{mean:.3f}" for mean in means), len(found)))
    heads = [f"{title}, {part}" for part in ("validation", "test") for title in TWO]
    return table(["importance", *heads, "seeds"], rows)


def padding() -> str:
    """Return a table of what padding costs."""
    found = json.loads(PADDING.read_text())
    rows = [(way["way"], way["tokens"], f"{1e3 * way['seconds']:.0f}") for way in found["ways"]]
    head = [f"texts of {found['mean_length']} tokens on average", "padded to", "ms a step"]
    return table(head, rows)


def late(records: Sequence[Record]) -> str:
    """Return a table of the change by the gradient's score when losses come late."""
    known = [
        r
        for r in records
        if _is(r, study="frozen-32", loss="weighted_bce", epochs=1.0, options=r["run"]["options"])
    ]
    if not known:
        return NONE
    lr = chosen_rate(known, arm="importance")
    base = {metric: values(known, metric, arm="random", lr=lr) for metric in METRICS}
    rows = []
    arms: list[tuple[str, str, list[list[object]]]] = [
        ("by the prior, no losses", "importance", [])
    ]
    options_ = [dict(r["run"]["options"]) for r in known]
    lags = sorted({each["max_lag"] for each in options_ if "max_lag" in each})
    arms += [
        (f"by the gradient, lag {lag:,}", "importance by gradient", [["max_lag", lag]])
        for lag in lags
    ]
    for title, arm, options in arms:
        cells = []
        for metric in METRICS:
            ours = values(known, metric, arm=arm, lr=lr, options=options)
            seeds = sorted(ours.keys() & base[metric].keys())
            pair = ([ours[seed] for seed in seeds], [base[metric][seed] for seed in seeds])
            cells.append(_shown((relative_change(*pair), len(seeds))) if seeds else "-")
        rows.append((title, *cells, len(seeds)))
    return table(["against random batches", *METRICS.values(), "seeds"], rows)


def rates(records: Sequence[Record]) -> str:
    """Return a table of the validation Macro-AP of random batches by learning rate."""
    cells: dict[tuple[str, str, float], dict[float, float]] = {}
    for record in records:
        run = record["run"]
        if run["arm"] == "random" and run["seed"] == 0:
            rows = f", {run['rows']:,} rows" if run["rows"] else ""
            key = (f"{STUDIES[run['study']]}{rows}", LOSSES[run["loss"]], run["epochs"])
            found = record["validation"]["macro_average_precision"]
            cells.setdefault(key, {})[run["lr"]] = found
    tried = sorted({lr for found in cells.values() for lr in found})
    rows_ = []
    for key, found in sorted(cells.items()):
        best = max(found, key=found.__getitem__)
        shown = [
            f"**{found[lr]:.3f}**" if lr == best else f"{found[lr]:.3f}" if lr in found else ""
            for lr in tried
        ]
        rows_.append((key[0], key[1], f"{key[2]:g}", *shown))
    return table(["study", "loss", "epochs", *(f"{lr:g}" for lr in tried)], rows_)


def cost(records: Sequence[Record]) -> str:
    """Return a table of the share of a step that selection takes."""
    rows = []
    for study, arm in itertools.product(STUDIES, COLORS):
        runs = [r for r in records if _is(r, study=study, arm=arm)]
        if runs:
            steps = sum(r["steps"] for r in runs)
            step = 1e3 * sum(r["seconds"] for r in runs) / steps
            selection = 1e3 * sum(r["selection_seconds"] for r in runs) / steps
            share = f"{100 * selection / step:.2f}%"
            rows.append((STUDIES[study], arm, f"{step:.2f}", f"{selection:.3f}", share))
    return table(["", "strategy", "ms a step", "of it selection", "share"], rows)


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw what arms reach after so many rows, with the weighted loss."""
    frozen = [r for r in records if r["run"]["study"] == "frozen-32"]
    budgets = sorted({r["run"]["epochs"] for r in frozen if r["run"]["loss"] == "weighted_bce"})
    # A fixed salt and no date: otherwise every drawing has other bytes.
    with mpl.rc_context({"svg.hashsalt": "tailbatch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        panels = list(figure.subplots(1, 2))
        for axes, metric in zip(panels, list(METRICS)[:2], strict=True):
            for arm, color in ((arm, COLORS[arm]) for arm in ("random", *CORRECTED)):
                points = []
                for epochs in budgets:
                    runs: dict[str, Any] = {"loss": "weighted_bce", "epochs": epochs}
                    rate = chosen_rate(frozen, **runs)
                    found = list(values(frozen, metric, arm=arm, lr=rate, **runs).values())
                    if found:
                        points.append((epochs, *interval(found)))
                if points:
                    x, mean, low, high = np.array(points).T
                    axes.plot(x, mean, "o-", color=color, markersize=3, linewidth=1.2, label=arm)
                    axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
            axes.set_xscale("log")
            axes.set_xticks(budgets, [f"{43.41 * budget:.0f}k" for budget in budgets])
            axes.minorticks_off()
            axes.set_title(METRICS[metric], fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        figure.supxlabel(
            "rows seen in training; shaded: 95% interval of the mean over seeds", fontsize=9
        )
        figure.savefig(path, format="svg", metadata={"Date": None})
