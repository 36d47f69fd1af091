"""The report: one self-contained HTML page, and its tables and figures as files beside it."""

import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailbatch import __version__
from tailbatch.errors import ResultError
from tailbatch.files import replacing
from tailbatch.report.analysis import Analysis, analyze
from tailbatch.report.archive import open_records
from tailbatch.report.evidence import read_store
from tailbatch.report.export import write_text
from tailbatch.report.folder import write_files
from tailbatch.report.reproduce import named_files, study_files
from tailbatch.report.sections import sections
from tailbatch.report.style import PALETTE


def write_report(
    store: Path, out: Path, *, title: str | None = None, study: str | None = None
) -> None:
    """Write a store's report to `out`, and its tables and figures into a folder beside it.

    The folder is called like the page, with ``-files`` at the end: ``report.html`` has
    ``report-files``. The same store gives the same bytes.

    Parameters
    ----------
    store
        The folder of a `ResultStore`, or a file that `write_archive` wrote.
    out
        The page.
    title
        Its heading; by default that of the study, where the store has one only.
    study
        Report on the runs of this study only.

    Examples
    --------
    >>> import tempfile
    >>> from tailbatch.results import ResultStore, RunRecord, RunSpec
    >>> folder = Path(tempfile.mkdtemp())
    >>> for strategy, value in (("random", 0.5), ("adaptive", 0.6)):
    ...     spec = RunSpec(dataset="debtags", dataset_digest="ab12", strategy=strategy)
    ...     ResultStore(folder).add(RunRecord(spec=spec, validation={}, test={"macro_f": value},
    ...                                       history=(), best_epoch=1, warm_up_digest="c"))
    >>> write_report(folder, folder / "report.html")
    >>> "adaptive beats random on 1 of 1 comparisons" in (folder / "report.html").read_text()
    True
    """
    records = open_records(store)
    evidence = read_store(records, study=study)
    if evidence.runs.empty and evidence.absent.empty and evidence.datasets.empty:
        raise ResultError(f"the store {store} has no runs to report on: run a study first")
    out = Path(out)
    beside = out.with_name(f"{out.stem}-files")
    analysis = analyze(evidence)
    plans = [plan for plan in records.studies() if study in (None, plan.name)]
    plan = plans[0] if len(plans) == 1 else None
    studies = study_files(evidence.specs, records.datasets(), plan.name if plan else "runs")
    write_files(analysis, beside)
    for name, text in studies.items():
        write_text(text, beside / name)
    heading = title or (plan.title or plan.name if plan else "Batch selection compared")
    page = render(analysis, title=heading, files=beside.name, studies=studies)
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(analysis: Analysis, *, title: str, files: str, studies: Mapping[str, str]) -> str:
    """Return the page as text.

    Parameters
    ----------
    analysis
        What it says.
    title
        Its heading.
    files
        Name of the folder beside the page.
    studies
        The study files in it, which do the runs again.
    """
    environment = Environment(
        loader=PackageLoader("tailbatch.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    # The order of strategies and columns is ours, not the alphabet's.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    return environment.get_template("page.html.j2").render(
        title=title,
        files=files,
        studies=list(studies),
        data_files=sorted({name for text in studies.values() for name in named_files(text)}),
        version=__version__,
        fingerprint=fingerprint(analysis.evidence.runs),
        palette=PALETTE,
        css=_asset("page.css"),
        js=_asset("page.js"),
        **sections(analysis),
    )


def _asset(name: str) -> Markup:
    """Return a file of this package as it is; it is ours, so nothing in it needs escaping."""
    return Markup(resources.files("tailbatch.report").joinpath(name).read_text(encoding="utf-8"))


def fingerprint(runs: pd.DataFrame) -> str:
    """Return a name for a set of runs: the same runs give the same one.

    Examples
    --------
    >>> runs = pd.DataFrame({"digest": ["b", "a"]})
    >>> fingerprint(runs) == fingerprint(runs[::-1])
    True
    """
    names = "\n".join(sorted(runs.get("digest", pd.Series(dtype=str))))
    return hashlib.sha256(names.encode()).hexdigest()[:12]
