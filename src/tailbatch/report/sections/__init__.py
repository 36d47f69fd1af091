"""The sections of a report, in order; each is a function in its own file."""

from collections.abc import Callable

from tailbatch.report.section import Section, Story
from tailbatch.report.sections.agreement import agreement
from tailbatch.report.sections.batch_size import batch_size
from tailbatch.report.sections.closer_look import closer_look
from tailbatch.report.sections.datasets import datasets
from tailbatch.report.sections.fairness import fairness
from tailbatch.report.sections.luck import luck
from tailbatch.report.sections.minority import minority
from tailbatch.report.sections.missing import missing, unread
from tailbatch.report.sections.published import published
from tailbatch.report.sections.reproduce import reproduce
from tailbatch.report.sections.results import results
from tailbatch.report.sections.summary import summary
from tailbatch.report.sections.tuned import tuned

SECTIONS: tuple[Callable[[Story], Section], ...] = (
    summary,
    fairness,
    results,
    luck,
    tuned,
    published,
    closer_look,
    minority,
    agreement,
    batch_size,
    datasets,
    missing,
    unread,
    reproduce,
)
