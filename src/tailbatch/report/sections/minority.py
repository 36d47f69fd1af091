"""Whether it is the minority labels that gain."""

from tailbatch.report.section import Block, FileTable, Section, Story, folded, view

_TITLES = {
    "arm": "Strategy",
    "kind": "Labels",
    "labels": "Number",
    "gain": "Gain",
    "improved": "Share improved",
    "exposure": "Exposure",
}


def minority(story: Story) -> Section:
    """Return the mean gain over minority and over other labels."""
    table = story.analysis.minority
    text = (
        "Average precision of single labels against the baseline. A label is a minority label where its "
        "imbalance ratio is above the mean of the dataset."
    )
    caption = "Mean change of average precision, share of labels that improve, and exposure"
    shown = (Block("text", text), folded(view(table, caption, _TITLES)))
    return Section(
        id="minority",
        title="Does it help the minority labels?",
        short="Minority labels",
        blocks=shown if table["gain"].notna().any() else (),
        tables=(FileTable("minority", table, "Gains over minority and other labels"),),
    )
