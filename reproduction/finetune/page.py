"""docs/reproduction/finetuning.md and its picture, from the committed records; no torch is needed."""

import re
from collections.abc import Sequence
from pathlib import Path

from reproduction.finetune import sentences, tables
from reproduction.finetune.cells import FRESH, PLAIN, one_epoch
from reproduction.finetune.figure import draw
from reproduction.finetune.records import Record, read

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "reproduction" / "finetuning.md"
SCALE = PAGE.parents[1] / "large_data.md"
MARKS = "<!-- lag: python -m reproduction.finetune -->", "<!-- end of lag -->"
PICTURE = HERE.parent.parent / "docs" / "assets" / "finetuning.svg"
PLACE = re.compile(r"<!-- ([a-z0-9-]+) -->")


def write() -> None:
    """Write the page, its picture and the part of docs/large_data.md on lags."""
    PAGE.write_text(page(read()))
    draw(read(), PICTURE)
    start, end = map(re.escape, MARKS)
    block = lag(read())
    SCALE.write_text(
        re.sub(
            f"({start}).*?({end})",
            lambda found: f"{found[1]}\n{block}\n{found[2]}",
            SCALE.read_text(),
            flags=re.DOTALL,
        )
    )


def page(records: Sequence[Record]) -> str:
    """Return the page: the words of finetuning.md here, with what runs say in its places."""
    blocks = {
        "opening": sentences.opening(records),
        "in-short": sentences.in_short(records),
        "losses": tables.losses(records),
        "noise": sentences.noise(),
        "caption": sentences.caption(records),
        "to-reach": tables.to_reach(records),
        "padding": tables.padding(),
        "claims": sentences.claims(records),
        "not-run": sentences.not_run(records),
        "finetuned": tables.finetuned(records),
        "finetuned-rates": tables.finetuned_rates(records),
        "edges": sentences.edges(records),
        "frozen-32": tables.changes(records, one_epoch("frozen-32")),
        "fresh-verdict": sentences.fresh(records),
        "fresh": tables.changes(records, one_epoch("frozen-32"), seeds=FRESH),
        "frozen-32-bce": tables.changes(records, one_epoch("frozen-32", PLAIN)),
        "tags": sentences.tags(records),
        "debtags": tables.changes(records, one_epoch("debtags")),
        "debtags-bce": tables.changes(records, one_epoch("debtags", PLAIN)),
        "worth": sentences.worth(),
        "variance": tables.variance(records),
        "batch-rates": sentences.batch_rates(records),
        "batches": tables.by_batch(records),
        "budgets": tables.by_budget(records),
        "arm-rates-verdict": sentences.arm_rates(records),
        "arm-rates": tables.by_rate(records),
        "settings-verdict": sentences.variant_verdict(records),
        "settings": tables.settings(records),
        "frozen": tables.changes(records, one_epoch("frozen")),
        "frozen-bce": tables.changes(records, one_epoch("frozen", PLAIN)),
        "cost": tables.cost(records),
        "rates": tables.rates(records),
    }
    text = (HERE / "finetuning.md").read_text()
    for name in (name for name, block in blocks.items() if not block):
        text = text.replace(f"<!-- {name} -->\n\n", "")  # nothing is to be said
    return PLACE.sub(lambda found: blocks[found[1]], text)


def lag(records: Sequence[Record]) -> str:
    """Return the part of docs/large_data.md on losses that come late."""
    brackets = "In brackets are 95% intervals over the seeds; bold where they exclude zero."
    return f"{tables.late(records)}\n\n{brackets} {sentences.lag_verdict(records)}"
