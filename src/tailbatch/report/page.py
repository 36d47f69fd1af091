"""The report: one self-contained HTML page, and its tables and figures as files beside it."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailbatch import __version__
from tailbatch.analysis import analyze
from tailbatch.analysis.keys import Arm
from tailbatch.errors import ResultError
from tailbatch.report.export import write_files, write_text
from tailbatch.report.reproduce import study_files
from tailbatch.report.section import Section, Story
from tailbatch.report.sections import SECTIONS
from tailbatch.report.style import PALETTE, shown_arms
from tailbatch.results import RecordSource
from tailbatch.results.archive import open_records
from tailbatch.results.frames import read_store


def write_report(
    store: Path | RecordSource, out: Path, *, title: str | None = None, study: str | None = None
) -> tuple[Section, ...]:
    """Write a report to `out`, its tables and figures beside it, and return its sections.

    The folder of ``report.html`` is ``report-files``. The same store gives the same bytes.

    Parameters
    ----------
    store
        The folder of a `ResultStore`, a file that `write_archive` wrote, or either one already opened.
    out
        The page.
    title
        Its heading; by default the title of the study if the store has only one.
    study
        Report only on the runs of this study.

    Examples
    --------
    >>> import tempfile
    >>> from tailbatch.results import ResultStore, RunRecord, RunSpec
    >>> folder = Path(tempfile.mkdtemp())
    >>> for strategy, value in (("random", 0.5), ("adaptive", 0.6)):
    ...     spec = RunSpec(dataset="debtags", dataset_digest="ab12", strategy=strategy)
    ...     ResultStore(folder).add(RunRecord(spec=spec, validation={}, test={"macro_f": value},
    ...                                       history=(), best_epoch=1, warm_up_digest="c"))
    >>> sections = write_report(folder, folder / "report.html")
    >>> sections[0].brief.sentences[0][:40]
    'Too little ran to say what is best: a te'
    """
    records = open_records(store)
    evidence = read_store(records, study=study)
    if evidence.runs.empty and evidence.absent.empty and evidence.datasets.empty:
        raise ResultError(f"the store {records.path} has no runs to report on: run a study first")
    out = Path(out)
    beside = out.with_name(f"{out.stem}-files")
    plans = [plan for plan in records.studies() if study in (None, plan.name)]
    plan = plans[0] if len(plans) == 1 else None
    studies = study_files(evidence.specs, records.datasets(), plan.name if plan else "runs")
    story = Story(analyze(evidence), beside.name, studies)
    sections = tuple(make(story) for make in SECTIONS)
    write_files(sections, beside)
    for name, text in studies.items():
        write_text(text, beside / name)
    heading = title or (plan.title or plan.name if plan else "Batch selection compared")
    write_text(_render(story, sections, title=heading), out)
    return sections


def _render(story: Story, sections: Sequence[Section], *, title: str) -> str:
    """Return the page as text: the sections that have something to show."""
    environment = Environment(
        loader=PackageLoader("tailbatch.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    # Strategies and columns keep their own order, not the alphabetical one.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    runs = story.analysis.evidence.runs
    return environment.get_template("page.html.j2").render(
        title=title,
        subtitle=_subtitle(runs),
        sections=[section for section in sections if section.blocks],
        data=_data(story, sections),
        count=f"{len(runs):,}",
        version=__version__,
        fingerprint=_fingerprint(runs),
        palette=PALETTE,
        css=_asset("page.css"),
        js=_asset("page.js"),
    )


def _data(story: Story, sections: Sequence[Section]) -> dict[str, Any]:
    """Return the data of the page's script: the looks of the arms, and the data of all sections."""
    shown = set(shown_arms(story.looks))
    looks = {str(arm): {**asdict(look), "shown": arm in shown} for arm, look in story.looks.items()}
    data: dict[str, Any] = {"baseline": str(story.analysis.baseline or ""), "looks": looks}
    for section in sections:
        for name, values in section.data.items():
            data[name] = values
    return data


def _subtitle(runs: pd.DataFrame) -> str:
    if runs.empty:
        return "No run has finished."
    arms = sorted(arm for arm in map(Arm, runs["strategy"].unique()) if arm.draws_batches)
    if not arms:
        return "Models without batches: no strategies to compare."
    strategies = ", ".join(arm.strategy for arm in arms)
    few, many = runs["epochs"].min(), runs["epochs"].max()
    epochs = f"{few}" if few == many else f"{few} to {many}"
    return f"Comparing {strategies}: {epochs} epochs, test results at the best validation epoch."


def _asset(name: str) -> Markup:
    """Return a file of this package unescaped, which is safe because it is our own."""
    return Markup(resources.files("tailbatch.report").joinpath(name).read_text(encoding="utf-8"))


def _fingerprint(runs: pd.DataFrame) -> str:
    """Return a name for a set of runs; the same runs give the same name."""
    names = "\n".join(sorted(runs.get("digest", pd.Series(dtype=str))))
    return hashlib.sha256(names.encode()).hexdigest()[:12]
