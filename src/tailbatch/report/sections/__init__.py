"""The sections of a report, in order; each is a function from the story to a section."""

from collections.abc import Callable

from tailbatch.report.section import Section, Story
from tailbatch.report.sections import results, summary
from tailbatch.report.sections.closer_look import closer_look

SECTIONS: tuple[Callable[[Story], Section], ...] = (
    *summary.SECTIONS,
    *results.SECTIONS,
    closer_look,
    *results.BY_RUN,
)
