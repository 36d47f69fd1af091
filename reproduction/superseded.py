"""The first evaluation of the MLP: what it said, and why it no longer counts."""

from dataclasses import replace

from reproduction.cells import at_both_rates, by_loss, cells_of, collected, facts_of, within
from reproduction.records import RECORDS
from reproduction.text import (
    CONTENDERS,
    LOSSES,
    MINORITY,
    MLPS,
    NAMES,
    RANDOM,
    RATES,
    TITLES,
    gain_table,
    learner_name,
    percent,
    table,
)

from tailbatch.analysis import Arm, Learner
from tailbatch.analysis.gains import gain, where_all_ran
from tailbatch.results.archive import Archives
from tailbatch.results.frames import Evidence

_RARE = "minority_average_precision"
_METRICS = (_RARE, "macro_auc")
_PRESSURES = {Arm("minority", float(pressure)): str(pressure) for pressure in (2, 4, 8, 16, 32, 64)}


def read() -> Evidence:
    """Return the records of the paper's models and those that are superseded, together."""
    folders = RECORDS, RECORDS / "superseded"
    files = [path for folder in folders for path in sorted(folder.glob("*.jsonl.gz"))]
    return collected(Archives(RECORDS, files))


def superseded(evidence: Evidence) -> str:
    """Show what the MLP with an averaged loss said, so that it can be compared with the questions."""
    runs = evidence.runs
    mlp = at_both_rates(runs, MLPS[:1])
    rows = [
        (
            (f"{rate}, {NAMES[arm]}, plain BCE", "random, plain BCE"),
            mlp,
            replace(arm, rate=rate),
            replace(RANDOM, rate=rate),
        )
        for rate in RATES
        for arm in CONTENDERS[1:]
    ]
    ways = by_loss(runs)
    for rate in RATES:
        plain, weighted = (replace(RANDOM, loss=loss, rate=rate) for loss in list(LOSSES)[:2])
        both = replace(MINORITY, loss=weighted.loss, rate=rate)
        shared = where_all_ran(ways, [plain, weighted, both])
        rows.append(
            ((f"{rate}, random, weighted BCE", "random, plain BCE"), shared, weighted, plain)
        )
        selected = f"{rate}, {NAMES[MINORITY]}, weighted BCE"
        rows.append(((selected, "random, weighted BCE"), shared, both, weighted))
    text = (
        f"{len(runs[runs['learner'].isin(_mlps())]):,} runs trained the MLP with a loss averaged over "
        "labels and output biases at zero, so L2 held the baseline back ([question c]"
        "(#c-where-do-gains-like-the-published-ones-come-from-an-mlp-step-by-step)); much of what they "
        "gained was the undoing of that. "
        "They stay in `reproduction/records/superseded`, with the reason, and their study files in "
        "`reproduction/superseded`. What they said, at the paper's learning rate and ten times as much:"
    )
    return "\n\n".join(
        [
            "## The first evaluation, superseded",
            text,
            gain_table(["learning rate, batches, loss", "against"], rows, _METRICS),
            "### How to set up `minority`, from validation only",
            _pressures(evidence),
        ]
    )


def _mlps() -> list[Learner]:
    return [replace(learner, rate=rate) for learner in MLPS for rate in (None, 1e-3)]


def _pressures(evidence: Evidence) -> str:
    """Set the best pressure of minority beside how imbalanced the labels are."""
    arms = _PRESSURES | {MINORITY: "MeanIR"}
    shared = where_all_ran(evidence.runs, [RANDOM, *arms])
    ratios = facts_of(evidence, shared)["mean_imbalance_ratio"]
    cells = sorted(cells_of(shared), key=lambda cell: (ratios[cell[0]], cell[1]))
    rows = []
    for data, learner in cells:
        gains = [gain(within(shared, data, learner), arm, f"validation_{_RARE}") for arm in arms]
        name = f"{data}, {learner_name(learner)}"
        rows.append((name, f"{ratios[data]:.4g}", *map(percent, gains)))
    text = (
        "The best pressure of `minority` rises with how imbalanced the labels are, so its default is "
        "MeanIR of the training rows, at most 64. C2AE's runs are not superseded. Change of minority AP "
        f"against random in percent on validation rows, {shared['fold'].nunique()} folds, by constant "
        "pressure, the least imbalanced datasets first:"
    )
    return f"{text}\n\n{table([TITLES[_RARE], 'MeanIR', *arms.values()], rows)}"
