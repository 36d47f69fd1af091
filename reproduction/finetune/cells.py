"""Which runs are compared: cells of the committed records, as estimates of tailbatch.analysis."""

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from reproduction.finetune.records import Record
from reproduction.measures import change_over_seeds, over_seeds

from tailbatch.stats import FEWEST_FOLDS, Estimate

METRICS = {
    "minority_average_precision": "minority AP",
    "macro_average_precision": "Macro-AP",
    "macro_auc": "Macro-AUC",
    "tuned_macro_f": "Macro-F, tuned",
    "tuned_micro_f": "Micro-F, tuned",
}
MINORITY, MACRO = list(METRICS)[:2]
#: What importance was to improve, written down before it ran; see runs.py.
CLAIMS = ("minority_average_precision", "macro_average_precision", "tuned_macro_f", "tuned_micro_f")
STUDIES = {
    "frozen": "MLP on embeddings, batches of 128",
    "frozen-64": "MLP on embeddings, batches of 64",
    "frozen-32": "MLP on embeddings, batches of 32",
    "frozen-16": "MLP on embeddings, batches of 16",
    "debtags": "MLP on embeddings of debtags, batches of 32",
    "finetuned": "MiniLM fine-tuned, batches of 32",
}
ARMS = (
    *("random", "balanced", "minority", "importance"),
    *("importance by gradient", "balanced, corrected"),
)
CORRECTED = ("importance", "balanced, corrected")
WEIGHTED, PLAIN = "weighted_bce", "bce"
LOSSES = {WEIGHTED: "weighted BCE", PLAIN: "plain BCE"}
ROWS = 10_000
"""The training rows that fine-tuning was planned for."""
FEWEST_SEEDS = FEWEST_FOLDS
FIRST, FRESH = range(20), range(20, 40)
"""The seeds that had been seen when the others were planned as a test, and those others."""
Wanted = dict[str, Any]


class Compared(NamedTuple):
    """A change in percent with its interval, and over how many paired seeds."""

    change: Estimate
    seeds: int

    @property
    def rises(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.change.low > 0

    @property
    def falls(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.change.high < 0


def one_epoch(study: str, loss: str = WEIGHTED) -> Wanted:
    """Return what the runs share that the page is about."""
    rows = ROWS if study == "finetuned" else None
    return {"study": study, "loss": loss, "epochs": 1.0, "rows": rows}


def is_as(record: Record, **wanted: Any) -> bool:
    """Whether a run is as wanted, with the default options where none are named."""
    return all(record["run"][key] == value for key, value in {"options": [], **wanted}.items())


def values(
    records: Iterable[Record], metric: str, part: str = "test", **wanted: Any
) -> dict[int, float]:
    """Return a metric by seed of the runs that are as wanted."""
    return {
        record["run"]["seed"]: record[part][metric] for record in records if is_as(record, **wanted)
    }


def mean(found: dict[int, float]) -> float:
    """Return the mean over seeds."""
    return over_seeds(list(found.values())).mean


def paired(after: dict[int, float], before: dict[int, float]) -> Compared | None:
    """Return the change between values by seed; None without a common seed."""
    seeds = sorted(after.keys() & before.keys())
    if not seeds:
        return None
    pair = ([after[seed] for seed in seeds], [before[seed] for seed in seeds])
    return Compared(change_over_seeds(*pair), len(seeds))


def change(
    records: Sequence[Record],
    arm: str,
    metric: str,
    *,
    seeds: Container[int] | None = None,
    **wanted: Any,
) -> Compared | None:
    """Return the change of an arm against random batches; None where there are no such runs."""
    ours = values(records, metric, arm=arm, **wanted)
    if seeds is not None:
        ours = {seed: value for seed, value in ours.items() if seed in seeds}
    return paired(ours, values(records, metric, arm="random", **wanted))


def at_chosen_rate(
    records: Sequence[Record], arm: str, metric: str, wanted: Wanted, **more: Any
) -> Compared | None:
    """Return the change of an arm at the rate that was chosen for it; None where nothing ran."""
    if not rates_tried(records, **wanted):
        return None
    return change(records, arm, metric, lr=chosen_rate(records, **wanted), **wanted, **more)


def between_losses(records: Sequence[Record], study: str, metric: str) -> Compared | None:
    """Return the change from plain BCE with random batches to weighted BCE with importance."""
    found = []
    for loss, arm in ((WEIGHTED, "importance"), (PLAIN, "random")):
        runs = one_epoch(study, loss)
        if not rates_tried(records, **runs):
            return None
        lr = chosen_rate(records, **runs)
        found.append(values(records, metric, arm=arm, lr=lr, **runs))
    return paired(*found)


def rates_tried(records: Sequence[Record], **wanted: Any) -> dict[float, float]:
    """Return Macro-AP on validation rows by rate: random batches, the first seed."""
    found = {
        record["run"]["lr"]: record["validation"][MACRO]
        for record in records
        if is_as(record, arm="random", seed=0, **wanted)
    }
    return dict(sorted(found.items()))


def best_rate(tried: dict[float, float]) -> float:
    """Return the rate with the best Macro-AP on validation rows."""
    return max(tried, key=tried.__getitem__)


def compared_rates(records: Sequence[Record], **wanted: Any) -> list[float]:
    """Return the rates at which a strategy ran beside random batches, best on validation first."""
    tried = rates_tried(records, **wanted)
    ran = {r["run"]["lr"] for r in records if is_as(r, **wanted) and r["run"]["arm"] != "random"}
    return sorted(ran & tried.keys(), key=lambda lr: -tried[lr])


def chosen_rate(records: Sequence[Record], **wanted: Any) -> float:
    """Return the rate to compare at: the best on validation with enough seeds of importance.

    Where none has enough, the best at which any strategy ran; where none ran, the best of all.
    """
    compared = compared_rates(records, **wanted)
    for lr in compared:
        found = change(records, "importance", MACRO, lr=lr, **wanted)
        if found is not None and found.seeds >= FEWEST_SEEDS:
            return lr
    return compared[0] if compared else best_rate(rates_tried(records, **wanted))
