"""What the paper prints of the datasets, and what their files give."""

from tailbatch.report.section import Block, FileTable, Section, Story, folded, view


def datasets(story: Story) -> Section:
    """Return printed and measured facts of the paper's datasets."""
    table = story.analysis.datasets
    table = table[table.groupby("dataset")["printed"].transform("count") > 0]
    text = "What the paper prints of each dataset, and what the file that was used gives."
    shown = (Block("text", text), folded(view(table, "Facts of the datasets")))
    return Section(
        id="datasets",
        title="Datasets, printed and measured",
        short="Datasets",
        blocks=shown if len(table) else (),
        tables=(FileTable("datasets", table, "Facts of the datasets, printed and measured"),),
    )
