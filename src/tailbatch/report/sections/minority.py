"""Whether the minority labels gain."""

from tailbatch.analysis.keys import Arm
from tailbatch.analysis.labels import labels_by_name
from tailbatch.report.section import Block, FileTable, Section, Story, folded, view

_TITLES = {
    "arm": "Strategy",
    "kind": "Labels",
    "labels": "Number",
    "gain": "Gain",
    "improved": "Share improved",
    "exposure": "Exposure",
}
_CELLS = {"data": "Dataset", "learner": "Model"}
_NAMED = {"label": "Label", "positives": "Training rows", "minority": "Minority"}
_BY_NAME = "Average precision of each label, rarest first"
_MOST_LABELS = 600  # rows on the page; the file has all


def minority(story: Story) -> Section:
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
        blocks = (Block("text", text), folded(view(table, caption, _TITLES)))
    if len(labels) and len(labels) <= _MOST_LABELS:
        several = {name: title for name, title in _CELLS.items() if labels[name].nunique() > 1}
        arms = {arm: str(arm) for arm in labels if isinstance(arm, Arm)}
        blocks += (folded(view(reading, _BY_NAME, several | _NAMED | arms)),)
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
