"""The paper's figures: full runs in the report's own charts, beside what the paper says of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from reproduction.figures.agreement import draw as draw_agreement
from reproduction.figures.agreement import loss_agreement
from reproduction.measures import hours_of, seconds_an_epoch
from reproduction.records import FIGURES, committed, plans
from reproduction.text import counted, folds_of, learner_name, listed, table

from tailbatch.analysis import Analysis, Arm, analyze
from tailbatch.analysis.curves import MEASURES
from tailbatch.report.figures import GROUP_NAMES
from tailbatch.report.section import Story
from tailbatch.report.sections.closer_look import closer_look, curves_figure
from tailbatch.results import StudyPlan
from tailbatch.results.frames import Evidence, gather


class Picture(NamedTuple):
    """A picture: the name of its file, a text for those who cannot see it, and how it is drawn."""

    name: str
    alt: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Shown:
    """A figure of the paper on the page: what the paper says of it, what ours says, and its pictures."""

    theirs: str
    ours: Callable[[Analysis], str]
    pictures: Callable[[Analysis], list[Picture]]


def complete(evidence: Evidence) -> dict[int, Analysis]:
    """Return the figures all of whose runs are in the records, with the tables of these runs."""
    there = {record.spec.digest: record for record in committed("figures").records()}
    wanted = {number: [spec.digest for spec in plan.specs] for number, plan in _plans(evidence)}
    return {
        number: analyze(gather(there[digest] for digest in digests))
        for number, digests in wanted.items()
        if there.keys() >= set(digests)
    }


def _plans(evidence: Evidence) -> list[tuple[int, StudyPlan]]:
    facts = evidence.datasets.drop_duplicates("dataset").set_index("dataset")
    return list(zip(FIGURES, plans(facts["digest"].to_dict(), "figures"), strict=True))


def pictures(found: Mapping[int, Analysis]) -> list[Picture]:
    """Return the pictures of all complete figures."""
    shown = [(SHOWN[number], analysis) for number, analysis in found.items() if number in SHOWN]
    return [picture for figure, analysis in shown for picture in figure.pictures(analysis)]


def figures(evidence: Evidence, found: Mapping[int, Analysis]) -> str:
    """Show the complete figures, and say of each how many of its runs are in the records."""
    more = gather(committed("figures").records()).runs
    runs = pd.concat([evidence.runs, more], ignore_index=True)
    rows, seconds, there = [], seconds_an_epoch(runs), set(runs["digest"])
    for number, plan in _plans(evidence):
        digests = {spec.digest for spec in plan.specs}
        hours, timed = hours_of(plan.specs, seconds)
        count = f"{len(digests & there)} of {len(digests)}"
        title = plan.title.rpartition(" (")[0]
        rows.append((f"Figure {number}", title, count, f"{hours:.2g} ({timed})" if timed else "-"))
    text = (
        "`tailbatch study run figure-6` makes the full runs behind a figure, `--quick` a small variant, "
        "which the tests run. Figure 2 is a flowchart. Of the others, the table says how many of the "
        "full runs are in the records; figures with all of them are shown below it. Hours are the epochs "
        "of all runs times the mean seconds of an epoch in the records with the same model, dataset and "
        "batch size, on a shared machine; in brackets the number of runs that they are for, as the "
        "others have no such record:"
    )
    header = ["figure", "shows", "runs in the records", "hours (of runs)"]
    shown = [_shown(number, found[number]) for number in SHOWN if number in found]
    return "\n\n".join(["## Its figures, from full runs", text, table(header, rows), *shown])


def _shown(number: int, analysis: Analysis) -> str:
    figure, runs = SHOWN[number], analysis.evidence.runs
    lines = [
        f"**Figure {number}.** The paper: {figure.theirs} Ours ({listed(runs['dataset'])}, "
        f"{folds_of(runs)}): {figure.ours(analysis)}"
    ]
    lines += [f"![{alt}](assets/{name})" for name, alt, _ in figure.pictures(analysis)]
    return "\n\n".join(lines)


def _losses(name: str, analysis: Analysis) -> list[Picture]:
    alt = "Density of the losses of training samples, by number of minority labels and by strategy"
    return [Picture(name, alt, closer_look(Story(analysis)).figures["sample-losses"])]


def _by_minority_labels(analysis: Analysis) -> str:
    """Say how the median loss depends on the number of minority labels (Figure 1)."""
    said = []
    for epoch, group in _by_epoch(analysis):
        ordered = group.sort_values("minority_labels")
        columns = (ordered[name] for name in ("minority_labels", "samples", "q50"))
        values = [
            f"{median:.3f} ({GROUP_NAMES[int(labels)]}, {counted(int(samples), 'sample')})"
            for labels, samples, median in zip(*columns, strict=True)
        ]
        medians = ordered["q50"]
        rising = "higher" if medians.is_monotonic_increasing else "not higher"
        said.append(f"{', '.join(values)} after epoch {epoch}, {rising} with each further label")
    return f"the median loss (BCE) of a training sample is {'; '.join(said)}."


def _by_strategy(analysis: Analysis) -> str:
    """Say which strategy leaves samples with one minority label the lowest median loss (Figure 5)."""
    said = []
    for epoch, group in _by_epoch(analysis):
        medians = group[group["minority_labels"] == 1].set_index("arm")["q50"].sort_index()
        values = [f"{median:.3f} ({arm})" for arm, median in medians.items()]
        said.append(f"{', '.join(values)} after epoch {epoch}, lowest with {medians.idxmin()}")
    return f"the median loss (BCE) of a training sample with {GROUP_NAMES[1]} is {'; '.join(said)}."


def _by_epoch(analysis: Analysis) -> list[tuple[int, pd.DataFrame]]:
    losses = analysis.losses
    return [
        (int(epoch), losses[losses["epoch"] == epoch]) for epoch in sorted(set(losses["epoch"]))
    ]


def _two_losses(analysis: Analysis) -> str:
    """Say how a model's own loss and BCE agree, and where each of them leads (Figure 6)."""
    agreed, lowest = [], []
    by_bce, by_own = selection_losses(analysis)
    agreement = loss_agreement(analysis.evidence)
    for learner in sorted(set(agreement["learner"])):
        name = learner_name(learner)
        here = agreement[agreement["learner"] == learner]["loss_correlation"]
        few, many = f"{min(here):.2f}", f"{max(here):.2f}"
        agreed.append(f"{few if few == many else f'{few} to {many}'} for {name}")
        speed = analysis.convergence[analysis.convergence["learner"] == learner].set_index("arm")
        bce, own = (speed.loc[arm, "lowest_loss"] for arm in (by_bce, by_own))
        lowest.append(f"{own:.3f} and {bce:.3f} for {name}")
    return (
        f"the correlation is {', '.join(agreed)}. The lowest training loss, with the model's own loss "
        f"and with BCE to select by, is {', '.join(lowest)}. In the pictures, `{by_bce}` selects by BCE."
    )


def selection_losses(analysis: Analysis) -> tuple[Arm, Arm]:
    """Return the arms that select by BCE and by the model's own loss."""
    first, second = sorted(set(analysis.evidence.runs["arm"]))
    return first, second


def _correlation_and_curves(analysis: Analysis) -> list[Picture]:
    story, measure = Story(analysis), "training_bce"
    # One column for each model, where the chart has one for each dataset.
    by_model = analysis.curves.assign(data=[learner_name(of) for of in analysis.curves["learner"]])
    lines = by_model.sort_values("data", kind="stable")
    return [
        Picture(
            "figure-6.svg",
            "Correlation of a sample's own loss in the model and its BCE, by model and epoch",
            partial(draw_agreement, loss_agreement(analysis.evidence), story.looks),
        ),
        Picture(
            "figure-6-curves.svg",
            "Training loss by epoch for each model, with selection by BCE and by the model's own loss",
            partial(curves_figure, lines, story.looks, measure, MEASURES[measure], "number"),
        ),
    ]


#: What is shown once all runs of a figure are in the records.
SHOWN = {
    1: Shown(
        "samples with more minority labels have higher losses throughout training.",
        _by_minority_labels,
        partial(_losses, "figure-1.svg"),
    ),
    5: Shown(
        "the losses of samples with minority labels converge better with adaptive batches.",
        _by_strategy,
        partial(_losses, "figure-5.svg"),
    ),
    6: Shown(
        "a sample's own loss in the model and its BCE are strongly correlated; whichever selects, CLIF "
        "and DELA converge alike, while C2AE converges more slowly with its own.",
        _two_losses,
        _correlation_and_curves,
    ),
}
