"""Missing runs, and runs whose arrays cannot be read."""

from tailbatch.analysis.keys import CELL, by_label
from tailbatch.report.section import Block, FileTable, Section, Story, folded, view

_RUN = [*CELL, "arm", "fold", "seed"]
_TITLES = {
    "data": "Dataset",
    "learner": "Model",
    "arm": "Strategy",
    "fold": "Fold",
    "seed": "Seed",
    "reason": "Reason",
}


def missing(story: Story) -> Section:
    """Return the planned runs without a record."""
    absent = story.analysis.evidence.absent
    blocks: tuple[Block, ...] = ()
    tables: tuple[FileTable, ...] = ()
    if len(absent):
        tried = by_label(absent.assign(reason=absent["reason"].replace("", "not run yet")), _RUN)
        text = (
            "Planned runs without a record. Comparisons use only the folds and seeds that all strategies "
            "have."
        )
        blocks = (Block("text", text), folded(view(tried, "Runs without a record", _TITLES)))
        kept = absent[[*_RUN, "digest", "reason"]]
        tables = (FileTable("missing", kept, "Planned runs without a record"),)
    return Section(
        id="missing",
        title="Failed and missing runs",
        short="Missing runs",
        blocks=blocks,
        tables=tables,
    )


def unread(story: Story) -> Section:
    """Return the runs whose array file is damaged or missing."""
    table = story.analysis.unread
    text = (
        "The array file of these runs is damaged or missing, so they are not in the charts drawn from "
        "it: volatility, sample losses, correlation of losses. All their other results are here."
    )
    caption = "Runs whose arrays could not be read"
    titles = _TITLES | {"digest": "Run"}
    return Section(
        id="unread",
        title="Runs without their arrays",
        short="Unread arrays",
        blocks=(Block("text", text), folded(view(table, caption, titles))) if len(table) else (),
        tables=(FileTable("unread", table, caption),),
    )
