"""What a section of a report is: blocks for a page, tables and figures for files, a terminal's brief.

Page, files and terminal render these values and know no section; a section is one file in
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
from tailbatch.metrics import METRICS
from tailbatch.report.export import cell_text, is_number
from tailbatch.report.style import Look, looks

_LONG = 30  # rows beyond which a table is folded


@dataclass(frozen=True)
class View:
    """A plain table: header with a flag for numbers, and rows of text."""

    caption: str
    header: list[tuple[str, bool]]
    rows: list[list[str]]


Kind = Literal[
    "text", "strong", "note", "folder", "lines", "facts", "alert", "table", "folded", "changes", "grids",
    "open", "chart", "row", "pickers", "commands", "traces",
]  # fmt: skip


class Block(NamedTuple):
    """A piece of a section on the page, which the template draws by its kind.

    ============ ==================================================================================
    ``text``     a paragraph; ``strong`` where it says what came out, ``note`` where it may be skipped
    ``folder``   a paragraph around the name of a folder: what is before it, the name, what is after
    ``lines``    sentences to quote
    ``facts``    pairs of names and numbers
    ``alert``    what a reader must not overlook, a section to read more in, and the words of that link
    ``table``    a `View`; ``folded`` has a summary before it
    ``changes``  tables of changes with their intervals as pictures; all but the first are folded
    ``grids``    folded tables of results, one a model; ``open`` the same with the first one open
    ``chart``    a `Chart`; ``row`` some of them side by side
    ``pickers``  datasets and models to choose from, and the folder of the files
    ``commands`` lines to type
    ``traces``   the runs behind every row
    ============ ==================================================================================
    """

    kind: Kind
    content: Any


@dataclass(frozen=True)
class Switch:
    """A choice of what a chart shows: values and their names."""

    name: str
    legend: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Chart:
    """A chart that the page's script draws into the element ``chart-<id>``.

    Parameters
    ----------
    id, title, caption
        Its place, heading and what is said below it.
    switches
        What can be chosen.
    panel
        Draw it as lines over names, from ``panels`` of the section's data.
    key, numbers
        Whether it has a legend of its own, and how the table of its numbers is called.
    """

    id: str
    title: str
    caption: str = ""
    switches: tuple[Switch, ...] = ()
    panel: bool = False
    key: bool = False
    numbers: str = ""


@dataclass(frozen=True, eq=False)
class FileTable:
    """A table that is written as files: CSV with every digit, LaTeX and Markdown for reading.

    Without a caption nobody reads it row by row, and it is written as CSV only.
    """

    name: str
    table: pd.DataFrame
    caption: str = ""
    reading: pd.DataFrame | None = None
    bold: pd.DataFrame | None = None


@dataclass(frozen=True)
class Brief:
    """What a terminal shows: a table of texts, some of them bold, and sentences."""

    header: tuple[str, ...]
    rows: tuple[tuple[tuple[str, bool], ...], ...]
    caption: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report; one without blocks is not on the page.

    Parameters
    ----------
    id, title, short
        Its anchor, its heading and its name in the list of contents.
    blocks
        What the page shows.
    tables, figures
        What lies in files beside the page; figures are drawn when they are written.
    data
        What the page's script draws from.
    brief
        What a terminal shows.
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
    """What sections are made from.

    Parameters
    ----------
    analysis
        Every table.
    files
        Name of the folder beside the page.
    studies
        The study files in it, which do the runs again.
    """

    analysis: Analysis
    files: str = ""
    studies: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def looks(self) -> dict[Arm, Look]:
        """The look of each arm, in order."""
        arms = (arm for arm in self.analysis.evidence.runs["arm"].unique() if arm.draws_batches)
        return looks(arms, self.analysis.baseline)

    @cached_property
    def traces(self) -> "Traced":
        """The runs behind each row of the results."""
        return traced(self.analysis.evidence.runs)

    @cached_property
    def tuned_traces(self) -> dict[str, "Traced"]:
        """The runs behind each row of the tuned comparisons."""
        tuned = self.analysis.tuned.items()
        return {name: traced(runs, f"tuned-{at}") for at, (name, runs) in enumerate(tuned)}


@dataclass(frozen=True)
class Traced:
    """Runs by dataset, model and arm, and the place of each such list on the page."""

    entries: tuple[Mapping[str, Any], ...]
    ids: Mapping[tuple[Any, ...], str]


def traced(runs: pd.DataFrame, prefix: str = "runs") -> Traced:
    """Return the runs behind each dataset, model and arm.

    A run whose fold and seed some other strategy lacks is in no mean, and says so.
    """
    compared = set(paired(runs)["digest"])
    columns = [*CELL, "arm", "fold", "seed", "digest"]
    entries, ids = [], {}
    groups = by_label(runs[columns], columns).groupby([*CELL, "arm"], sort=False)
    for turn, (key, group) in enumerate(groups):
        ids[key] = f"{prefix}-{turn}"
        listed = [
            {
                "digest": digest,
                "place": f"fold {fold}, seed {seed}"
                + ("" if digest in compared else ", not compared"),
            }
            for fold, seed, digest in group[["fold", "seed", "digest"]].to_numpy()
        ]
        title = f"{key[2]}, {key[1]} on {key[0]}"
        entries.append({"id": ids[key], "title": title, "runs": listed})
    return Traced(tuple(entries), ids)


def view(table: pd.DataFrame, caption: str, titles: Mapping[Any, str] | None = None) -> View:
    """Return a frame as a plain table; `titles` picks, orders and renames its columns.

    Examples
    --------
    >>> view(pd.DataFrame({"data": ["scene"], "gain": [0.5]}), "Gains", {"gain": "Gain"}).rows
    [['0.5000']]
    """
    titles = titles or {name: name.replace("_", " ").capitalize() for name in table}
    shown = table[[name for name in titles if name in table]]
    return View(
        caption,
        [(titles[name], is_number(shown[name])) for name in shown],
        [[cell_text(value) for value in row] for row in shown.itertuples(index=False)],
    )


def folded(shown: View) -> Block:
    """Return a table that is folded where it is long."""
    if len(shown.rows) <= _LONG:
        return Block("table", shown)
    return Block("folded", (f"{shown.caption} ({len(shown.rows)} rows)", shown))


def titled(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its metrics called as people call them.

    Examples
    --------
    >>> titled(pd.DataFrame({"metric": ["macro_f"]}))["metric"].tolist()
    ['Macro-F']
    """
    return table.assign(metric=[METRICS[name].title for name in table["metric"]])


def short(value: float, digits: int = 4) -> float | int | None:
    """Return a number with few significant digits, as a page carries it; None where it is missing.

    Examples
    --------
    >>> short(0.123456), short(1200.0), short(float("nan"))
    (0.1235, 1200, None)
    """
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
