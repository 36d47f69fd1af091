"""Each strategy with a tuned pressure, against the same number of tries of the baseline."""

from tailbatch.analysis.comparisons import baseline_arm, overall
from tailbatch.analysis.comparisons import results as means
from tailbatch.report.section import Block, Section, Story
from tailbatch.report.sections.results import result_grids
from tailbatch.report.sections.summary import sentences

_TEXT = (
    "For each dataset, model and fold, the pressure with the best validation Macro-AUC is compared with "
    "the baseline's best of as many seeds, chosen in the same way. Test results are not used to choose."
)


def tuned(story: Story) -> Section:
    """Return the tuned comparison of each strategy that has one."""
    metrics = story.analysis.metrics
    blocks: list[Block] = []
    for strategy, chosen in story.analysis.tuned.items():
        said = sentences(overall(chosen, metrics), baseline_arm(chosen["arm"]))
        blocks += [Block("strong", f"{sentence}.") for sentence in said.values()]
        ids = story.tuned_traces[strategy].ids
        blocks += [Block("grids", result_grids(means(chosen, metrics), metrics, ids))]
    return Section(
        id="tuned",
        title="With a tuned pressure",
        short="Tuned",
        blocks=(Block("text", _TEXT), *blocks) if blocks else (),
    )
