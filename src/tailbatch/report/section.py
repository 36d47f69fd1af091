"""The parts of a report's section: blocks for the page, tables and figures for files, a terminal brief.

Page, files and terminal render these values without knowing any section; each section is one file in
`tailbatch.report.sections`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tailbatch.analysis import Analysis
from tailbatch.analysis.comparisons import paired
from tailbatch.analysis.keys import CELL, Arm, by_label
from tailbatch.metrics import metric_facts
from tailbatch.report.figures import Look, looks

_LONG = 30  # rows beyond which a table is folded
#: Shown in a table for a missing value.
MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class View:
    """A plain table: header with a flag for numbers, and rows of text."""

    caption: str
    header: list[tuple[str, bool]]
    rows: list[list[str]]

    @classmethod
    def of(
        cls, table: pd.DataFrame, caption: str, titles: Mapping[Any, str] | None = None
    ) -> "View":
        """Return a frame as a plain table; `titles` picks, orders and renames its columns.

        Examples
        --------
        >>> View.of(pd.DataFrame({"data": ["scene"], "gain": [0.5]}), "Gains", {"gain": "Gain"}).rows
        [['0.5000']]
        """
        if "metric" in table:
            table = table.assign(metric=[metric_facts(name).title for name in table["metric"]])
        titles = titles or {name: name.replace("_", " ").capitalize() for name in table}
        shown = table[[name for name in titles if name in table]]
        return cls(
            caption,
            [(titles[name], is_number(shown[name])) for name in shown],
            [[cell_text(value) for value in row] for row in shown.itertuples(index=False)],
        )

    def block(self) -> "Block":
        """Return the table on the page, folded if it is long."""
        if len(self.rows) <= _LONG:
            return Block("table", self)
        return Block("folded", (f"{self.caption} ({len(self.rows)} rows)", self))


Kind = Literal[
    "text", "strong", "note", "folder", "lines", "facts", "alert", "table", "folded", "changes", "grids",
    "open", "chart", "row", "pickers", "commands", "traces",
]  # fmt: skip


class Block(NamedTuple):
    """A part of a section on the page, rendered by its kind.

    ``text`` (``strong``, ``note``) is a paragraph; ``folder`` one around a folder's name; ``lines`` are
    sentences to quote; ``facts`` pairs of names and numbers; ``alert`` a text, a section's anchor and
    the text of the link; ``table`` a `View`, ``folded`` with a summary before it; ``changes`` tables of
    changes with intervals as pictures; ``grids`` folded tables of results, one per model (``open``: the
    first one is open); ``chart`` a `Chart`, ``row`` several; ``pickers`` datasets, models, and the
    folder of the files; ``commands`` lines to type; ``traces`` the runs behind every row.
    """

    kind: Kind
    content: Any


@dataclass(frozen=True)
class Switch:
    """A choice for what a chart shows: values and their names."""

    name: str
    legend: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Chart:
    """A chart that the page's script draws into the element ``chart-<id>``.

    ``key`` says whether it has its own legend, ``numbers`` is the title of the table of its numbers.
    """

    id: str
    title: str
    caption: str = ""
    switches: tuple[Switch, ...] = ()
    key: bool = False
    numbers: str = ""


@dataclass(frozen=True, eq=False)
class FileTable:
    """A table written as files: CSV at full precision; with a caption, also LaTeX and Markdown."""

    name: str
    table: pd.DataFrame
    caption: str = ""
    reading: pd.DataFrame | None = None
    bold: pd.DataFrame | None = None


@dataclass(frozen=True)
class Brief:
    """The terminal output of a section: a table of text, some of it bold, and sentences."""

    header: tuple[str, ...]
    rows: tuple[tuple[tuple[str, bool], ...], ...]
    caption: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report; one without blocks is not on the page.

    ``id``, ``title`` and ``short`` are its anchor, its heading and its name in the list of contents.
    ``tables`` and ``figures`` are the files beside the page, ``data`` is for the page's script, and
    ``brief`` is the terminal output.
    """

    id: str
    title: str
    short: str
    blocks: tuple[Block, ...] = ()
    tables: tuple[FileTable, ...] = ()
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    brief: Brief | None = None


@dataclass(frozen=True, eq=False)
class Story:
    """The input of sections: every table, the folder beside the page, and the study files in it."""

    analysis: Analysis
    files: str = ""
    studies: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def looks(self) -> dict[Arm, Look]:
        """The look of each arm, in order."""
        arms = (arm for arm in self.analysis.evidence.runs["arm"].unique() if arm.draws_batches)
        return looks(arms, self.analysis.baseline)

    @cached_property
    def traces(self) -> "_Traced":
        """The runs behind each row of the results."""
        return _traced(self.analysis.evidence.runs)

    @cached_property
    def tuned_traces(self) -> dict[str, "_Traced"]:
        """The runs behind each row of the tuned comparisons."""
        tuned = self.analysis.tuned.items()
        return {name: _traced(runs, f"tuned-{at}") for at, (name, runs) in enumerate(tuned)}


@dataclass(frozen=True)
class _Traced:
    """Runs by dataset, model and arm, and the anchor of each list on the page."""

    entries: tuple[Mapping[str, Any], ...]
    ids: Mapping[tuple[Any, ...], str]


def _traced(runs: pd.DataFrame, prefix: str = "runs") -> _Traced:
    """Return the runs behind each dataset, model and arm."""
    compared = set(paired(runs)["digest"])
    columns = [*CELL, "arm", "fold", "seed", "digest"]
    entries, ids = [], {}
    groups = by_label(runs[columns], columns).groupby([*CELL, "arm"], sort=False)
    for turn, (key, group) in enumerate(groups):
        ids[key] = f"{prefix}-{turn}"
        listed = []
        for fold, seed, digest in group[["fold", "seed", "digest"]].to_numpy():
            alone = "" if digest in compared else ", not compared"
            listed.append({"digest": digest, "place": f"fold {fold}, seed {seed}{alone}"})
        title = f"{cell_text(key[2])}, {key[1]} on {key[0]}"
        entries.append({"id": ids[key], "title": title, "runs": listed})
    return _Traced(tuple(entries), ids)


def cell_text(value: object, digits: int = 4) -> str:
    """Return a value as text for a table.

    Examples
    --------
    >>> [cell_text(value) for value in (0.12345, 12, True, None, float("nan"), "scene")]
    ['0.1235', '12', 'yes', '\N{EN DASH}', '\N{EN DASH}', 'scene']
    >>> cell_text(Arm("none"))
    'no batches'
    """
    if isinstance(value, Arm) and not value.draws_batches:
        return "no batches"  # "none", as records have it, reads like a missing value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}f}" if np.isfinite(value) else MISSING
    return MISSING if value is None or value is pd.NA else str(value)


def is_number(column: pd.Series) -> bool:
    """Return whether a column is right-aligned."""
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(column) and not kinds.is_bool_dtype(column))
