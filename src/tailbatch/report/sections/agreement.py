"""Whether a model's own loss and the BCE agree on which samples are hard (Figure 6)."""

from tailbatch.analysis.curves import agreement_panels
from tailbatch.report.section import FileTable, Section, Story, view
from tailbatch.report.sections.categories import with_panels

_TITLES = {
    "learner": "Model",
    "arm": "Strategy",
    "epoch": "Epoch",
    "runs": "Runs",
    "loss_correlation": "Correlation",
}


def agreement(story: Story) -> Section:
    """Return the correlation of the two losses by model."""
    table = story.analysis.agreement
    section = Section(
        id="agreement",
        title="Model loss and BCE",
        short="Two losses",
        tables=(FileTable("loss-correlation", table, "Correlation of model loss and BCE"),),
    )
    text = (
        "Pearson's correlation, over the training samples, of each sample's BCE and its share of the "
        "model's own loss, after the given epochs."
    )
    shown = view(table, "Correlation of the two losses, mean over runs", _TITLES)
    panels = agreement_panels(table)
    return with_panels(story, section, text, shown, panels, "Pearson correlation")
