"""The sections of a report, in order; each is a function from the story to a section."""

from collections.abc import Callable

from tailbatch.report.section import Section, Story
from tailbatch.report.sections import results, runs
from tailbatch.report.sections.closer_look import closer_look
from tailbatch.report.sections.summary import summary

SECTIONS: tuple[Callable[[Story], Section], ...] = (
    summary,
    *results.SECTIONS,
    closer_look,
    *runs.SECTIONS,
)
