"""Categorical charts, over models or datasets: one line per arm, beside the table they are drawn from."""

from dataclasses import replace
from functools import partial

from tailbatch.analysis.curves import Panel
from tailbatch.report.panels import category_figure
from tailbatch.report.section import Block, Chart, Section, Story, View, folded, short


def with_panels(
    story: Story, section: Section, text: str, table: View, panels: list[Panel], measure: str
) -> Section:
    """Return a section with a table, and a chart for each panel that has several names."""
    if not table.rows:
        return section
    drawn = {
        f"{section.id}-{turn}": panel
        for turn, panel in enumerate(panels)
        if len(panel.categories) > 1
    }
    charts = [Chart(identifier, panel.title, panel=True) for identifier, panel in drawn.items()]
    row = [Block("row", charts)] if charts else []
    return replace(
        section,
        blocks=(Block("text", text), *row, folded(table)),
        figures={section.tables[0].name: partial(category_figure, panels, story.looks, measure)},
        data={"panels": {identifier: _chart(panel) for identifier, panel in drawn.items()}},
    )


def _chart(panel: Panel) -> dict[str, object]:
    values = {str(arm): [short(value) for value in line] for arm, line in panel.values.items()}
    return {"title": panel.title, "categories": panel.categories, "values": values}
