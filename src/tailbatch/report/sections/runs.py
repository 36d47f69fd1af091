"""Which labels gain, which runs are missing, and how to repeat them."""

import tomllib

from tailbatch.analysis.curves import labels_by_name
from tailbatch.analysis.keys import CELL, Arm, by_label
from tailbatch.report.section import Block, FileTable, Section, Story, View

_TITLES = {"arm": "Strategy", "kind": "Labels", "labels": "Number", "gain": "Gain"}
_TITLES |= {"improved": "Share improved", "exposure": "Exposure"}
_CELLS = {"data": "Dataset", "learner": "Model"}
_NAMED = {"label": "Label", "positives": "Training rows", "minority": "Minority"}
_BY_NAME = "Average precision of each label, rarest first"
_MOST_LABELS = 600  # rows on the page; the file has all


def _minority(story: Story) -> Section:
    """Return the mean gain over minority and over other labels, and every label by name."""
    table, labels = story.analysis.minority, labels_by_name(story.analysis.labels)
    text = (
        "Average precision of single labels against the baseline. A label is a minority label if it is "
        "rarer than the geometric mean and the median of the labels with five rows or more; in the "
        "paper's preparations, if its imbalance ratio is above the mean of the dataset."
    )
    caption = "Mean change of average precision, share of labels that improve, and exposure"
    # Means over folds, which are read as whole rows; the CSV file has them as they are.
    reading = labels.assign(positives=labels["positives"].round().astype("Int64"))
    blocks: tuple[Block, ...] = ()
    if table["gain"].notna().any():
        blocks = (Block("text", text), View.of(table, caption, _TITLES).block())
    if len(labels) and len(labels) <= _MOST_LABELS:
        several = {name: title for name, title in _CELLS.items() if labels[name].nunique() > 1}
        arms = {arm: str(arm) for arm in labels if isinstance(arm, Arm)}
        blocks += (View.of(reading, _BY_NAME, several | _NAMED | arms).block(),)
    return Section(
        id="minority",
        title="Minority labels",
        short="Minority labels",
        blocks=blocks,
        tables=(
            FileTable("minority", table, "Gains over minority and other labels"),
            FileTable("labels-by-name", labels, _BY_NAME, reading),
        ),
    )


_RUN = [*CELL, "arm", "fold", "seed"]
_MISSING = {**_CELLS, "arm": "Strategy", "fold": "Fold", "seed": "Seed", "reason": "Reason"}


def _missing(story: Story) -> Section:
    """Return the planned runs without a record."""
    absent = story.analysis.evidence.absent
    blocks: tuple[Block, ...] = ()
    tables: tuple[FileTable, ...] = ()
    if len(absent):
        tried = by_label(absent.assign(reason=absent["reason"].replace("", "not run yet")), _RUN)
        text = "Planned runs without a record. Means are over folds and seeds that all strategies have."
        blocks = (Block("text", text), View.of(tried, "Runs without a record", _MISSING).block())
        kept = absent[[*_RUN, "digest", "reason"]]
        tables = (FileTable("missing", kept, "Planned runs without a record"),)
    return Section(
        id="missing",
        title="Failed and missing runs",
        short="Missing runs",
        blocks=blocks,
        tables=tables,
    )


def _unread(story: Story) -> Section:
    """Return the runs whose array file is damaged or missing."""
    table = story.analysis.unread
    text = (
        "The array file of these runs is damaged or missing, so they are not in the charts drawn from "
        "it: volatility, sample losses, correlation of losses. All their other results are here."
    )
    caption = "Runs whose arrays could not be read"
    titles = _MISSING | {"digest": "Run"}
    return Section(
        id="unread",
        title="Runs without their arrays",
        short="Unread arrays",
        blocks=(Block("text", text), View.of(table, caption, titles).block()) if len(table) else (),
        tables=(FileTable("unread", table, caption),),
    )


def _reproduce(story: Story) -> Section:
    """Return how to repeat the runs, and which runs are behind each row."""
    blocks: list[Block] = []
    if story.studies:
        entries = [e for text in story.studies.values() for e in tomllib.loads(text)["datasets"]]
        files = sorted({entry["path"] for entry in entries if isinstance(entry, dict)})
        beside = f" ({', '.join(files)} must be there too)" if files else ""
        these = "This command repeats" if len(story.studies) == 1 else "These commands repeat"
        how = (
            "Each mean above is over the runs listed below. A run's name is a digest of everything that "
            "defines it; repeating it gives the same record, except for times. "
            f"{these} all of them, from the folder of this page{beside}:"
        )
        again = [
            f"tailbatch study run {story.files}/{name} --store again" for name in story.studies
        ]
        one = (
            "To repeat one row of a table, reduce the lists in a copy of the study file to its dataset, "
            "model and strategy."
        )
        commands = Block("commands", [*again, "tailbatch report again --out again.html"])
        blocks = [Block("text", how), commands, Block("text", one)]
    behind = [story.traces, *story.tuned_traces.values()]
    entries = [entry for traced in behind for entry in traced.entries]
    rest = " beside it, as CSV, LaTeX and Markdown, PDF and PNG."
    folder = "The tables and figures of this page are in the folder ", story.files, rest
    return Section(
        id="reproduce",
        title="How to reproduce a number",
        short="Reproduce",
        blocks=(*blocks, Block("folder", folder), Block("traces", entries)),
    )


SECTIONS = (_minority, _missing, _unread, _reproduce)
