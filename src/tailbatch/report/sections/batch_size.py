"""Macro-AUC by batch size (Figure 8)."""

from tailbatch.analysis.curves import batch_size_panels
from tailbatch.report.section import FileTable, Section, Story, view
from tailbatch.report.sections.categories import with_panels

_TITLES = {
    "dataset": "Dataset",
    "learner": "Model",
    "arm": "Strategy",
    "plan_batch_size": "Batch size",
    "macro_auc": "Macro-AUC",
}


def batch_size(story: Story) -> Section:
    """Return Macro-AUC of the datasets and models that ran with several batch sizes."""
    table, caption = story.analysis.batch_sizes, "Macro-AUC by batch size"
    section = Section(
        id="batch-size",
        title="Batch size",
        short="Batch size",
        tables=(FileTable("batch-sizes", table, caption),),
    )
    text = "Macro-AUC on test rows, with all other settings equal."
    shown = view(table, caption, _TITLES)
    return with_panels(story, section, text, shown, batch_size_panels(table), "Macro-AUC")
