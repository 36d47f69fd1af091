"""The sections of a report, in order; each is a function from the story to a section."""

from collections.abc import Callable

from tailbatch.report.section import Section, Story
from tailbatch.report.sections.checks import fairness, minority, reproduce
from tailbatch.report.sections.closer_look import closer_look
from tailbatch.report.sections.results import luck, missing, results, tuned, unread
from tailbatch.report.sections.summary import summary

SECTIONS: tuple[Callable[[Story], Section], ...] = (
    summary,
    fairness,
    results,
    luck,
    tuned,
    closer_look,
    minority,
    missing,
    unread,
    reproduce,
)
