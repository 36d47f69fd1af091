"""The datasets' facts as the paper prints them, and as measured in their files."""

from tailbatch.report.section import Block, FileTable, Section, Story, folded, view


def datasets(story: Story) -> Section:
    """Return printed and measured facts of the paper's datasets."""
    table = story.analysis.datasets
    table = table[table.groupby("dataset")["printed"].transform("count") > 0]
    text = "Each dataset's facts as the paper prints them, and as measured in the file used here."
    shown = (Block("text", text), folded(view(table, "Facts of the datasets")))
    return Section(
        id="datasets",
        title="Datasets, printed and measured",
        short="Datasets",
        blocks=shown if len(table) else (),
        tables=(FileTable("datasets", table, "Facts of the datasets, printed and measured"),),
    )
