"""The report: one self-contained HTML page, its tables and figures as files, and studies to repeat it."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailbatch import __version__
from tailbatch.analysis import analyze
from tailbatch.analysis.keys import Arm, Key
from tailbatch.data.catalog import catalog
from tailbatch.errors import ResultError, markdown_escaped, printable
from tailbatch.files import replacing
from tailbatch.report.figures import PALETTE, save, shown_arms
from tailbatch.report.section import FileTable, Section, Story, cell_text, is_number
from tailbatch.report.sections import SECTIONS
from tailbatch.results import NO_BATCHES, DatasetFacts, RecordSource, RunSpec
from tailbatch.results.archive import open_records
from tailbatch.results.frames import read_store

_Row: TypeAlias = tuple[str, ...]
_Facts: TypeAlias = Mapping[tuple[str, str], DatasetFacts]

_LATEX = {character: f"\\{character}" for character in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
}
# Readable titles of the key columns.
_READABLE = {"learner": "model", "data": "dataset", "arm": "strategy"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x7f-\x9f]")


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
    studies = _study_files(evidence.specs, records.datasets(), plan.name if plan else "runs")
    story = Story(analyze(evidence), beside.name, studies)
    sections = tuple(make(story) for make in SECTIONS)
    _write_files(sections, beside)
    for name, text in studies.items():
        _write_text(text, beside / name)
    heading = title or (plan.title or plan.name if plan else "Batch selection compared")
    _write_text(_render(story, sections, title=heading), out)
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
        data |= section.data
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


# ---- tables and figures as files


def _write_files(sections: Iterable[Section], folder: Path) -> None:
    """Write the tables and figures of sections into a folder; those without data are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = tuple(sections)
    for kept in (kept for section in sections for kept in section.tables if len(kept.table)):
        _write_table(kept, folder)
    for name, draw in (item for section in sections for item in section.figures.items()):
        figure = draw()
        save(figure, folder / f"{name}.pdf")
        figure.set_layout_engine("none")  # one layout is enough, and takes half of the time
        save(figure, folder / f"{name}.png")


def _write_table(kept: FileTable, folder: Path) -> None:
    """Write the CSV file at full precision; for readers, also LaTeX and Markdown to four digits."""
    _write_text(csv_text(kept.table), folder / f"{kept.name}.csv")
    if kept.caption:
        shown = kept.table if kept.reading is None else kept.reading
        latex = _latex_text(shown, kept.caption, kept.bold, label=kept.name)
        _write_text(latex, folder / f"{kept.name}.tex")
        _write_text(_markdown_text(shown, kept.caption, kept.bold), folder / f"{kept.name}.md")


def _write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def csv_text(table: pd.DataFrame) -> str:
    r"""Return a table as CSV; text that a spreadsheet would run as a formula starts with an apostrophe.

    Examples
    --------
    >>> csv_text(pd.DataFrame({"label": ["=HYPERLINK(1)", "a,b"], "gain": [-0.5, None]}))
    'label,gain\n\'=HYPERLINK(1),-0.5\n"a,b",\n'
    """
    harmless = table.rename(columns=_no_formula)
    for column in harmless:
        if not is_number(harmless[column]):
            harmless[column] = [_no_formula(value) for value in harmless[column]]
    text: str = harmless.to_csv(index=False, lineterminator="\n")
    return text


def _no_formula(value: object) -> object:
    if not isinstance(value, str | Key):
        return value
    text = printable(str(value))
    return f"'{text}" if text.lstrip()[:1] in {"=", "+", "-", "@"} else text


def _latex_text(
    table: pd.DataFrame, caption: str, bold: pd.DataFrame | None = None, *, label: str = "table"
) -> str:
    """Return a table as LaTeX for the booktabs package, with the label ``tab:<label>``."""
    header, rows = _cells(table, bold, _latex_escaped, lambda text: rf"\textbf{{{text}}}")
    # A mean with its half-width is text in a column of numbers.
    right = [is_number(table[name]) or str(name)[-1:] in ("↑", "↓") for name in table]
    kinds = "".join("r" if number else "l" for number in right)
    opening = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_escaped(caption)}}}"]
    opening += [rf"\label{{tab:{label}}}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    first, *lines = [" & ".join(row) + r" \\" for row in (header, *rows)]
    closing = [*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join([*opening, first, r"\midrule", *closing])


def _latex_escaped(text: str) -> str:
    """Return text that LaTeX prints literally."""
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown_text(table: pd.DataFrame, caption: str, bold: pd.DataFrame | None = None) -> str:
    """Return a table as Markdown."""
    header, rows = _cells(table, bold, markdown_escaped, lambda text: f"**{text}**")
    rule = ["---:" if is_number(table[name]) else "---" for name in table]
    first, *lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([markdown_escaped(caption), "", first, f"|{'|'.join(rule)}|", *lines, ""])


def _cells(
    table: pd.DataFrame,
    bold: pd.DataFrame | None,
    escaped: Callable[[str], str],
    strong: Callable[[str], str],
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as escaped text, with the bold cells marked."""
    header = [escaped(_READABLE.get(str(name), str(name)).replace("_", " ")) for name in table]
    texts = np.array(
        [[escaped(cell_text(value)) for value in row] for row in table.itertuples(index=False)],
        dtype=object,
    )
    if bold is not None:
        marked = bold.to_numpy(dtype=bool)
        texts[marked] = [strong(text) for text in texts[marked]]
    return header, texts.tolist()


# ---- study files that repeat the runs: the way from any number back to a command


def _study_files(
    specs: Iterable[RunSpec], datasets: Mapping[str, DatasetFacts], name: str
) -> dict[str, str]:
    """Return study files by name whose runs are exactly `specs`; a single file if they form a grid.

    Datasets that come from files are named without their folder.
    """
    facts = {(dataset.name, dataset.digest): dataset for dataset in datasets.values()}
    studies = [
        (json.loads(plan), rest)
        for plans, *rest in _grids([_row(spec) for spec in specs])
        for plan in plans
    ]
    names = [name] if len(studies) == 1 else [f"{name}-{turn + 1}" for turn in range(len(studies))]
    return {
        f"{study}.toml": _study(study, plan, rest, facts)
        for study, (plan, rest) in zip(names, studies, strict=True)
    }


def _grids(rows: Sequence[_Row]) -> list[list[list[str]]]:
    """Split rows into grids; a grid lists the values of every column and stands for all combinations."""
    if not rows or not rows[0]:
        return [[]] if rows else []
    rests: dict[str, dict[_Row, None]] = {}
    for first, *rest in rows:
        rests.setdefault(first, {})[tuple(rest)] = None
    alike: dict[frozenset[_Row], list[str]] = {}
    for first, some in rests.items():
        alike.setdefault(frozenset(some), []).append(first)
    return [[values, *rest] for values in alike.values() for rest in _grids(list(rests[values[0]]))]


def _row(spec: RunSpec) -> _Row:
    """Return a run's position in a study: its plan, then one text for each list of a study file."""
    plan = spec.to_dict()["plan"]
    size, loss, lr = (plan.pop(name) for name in ("batch_size", "selection_loss", "lr"))
    alone = spec.strategy == NO_BATCHES  # a learner without batches has no rate of its own
    plan |= {"lr": lr} if alone else {}
    choice = (spec.strategy, spec.strategy_options, loss, spec.selection_pressure, spec.seed)
    parts = (
        {"n_folds": spec.n_folds, "scale": spec.scale, "plan": plan},
        (spec.dataset, spec.dataset_digest),
        spec.preparation,
        # The rate goes with the model, which may have its own, so that both are one list.
        {"name": spec.model} | ({} if alone else {"lr": lr}) | dict(spec.hyperparameters),
        spec.loss and {"name": spec.loss, **spec.loss_options},
        size,
        spec.fold,
        choice,
    )
    return tuple(json.dumps(part) for part in parts)


def _study(name: str, plan: dict[str, Any], lists: list[list[str]], facts: _Facts) -> str:
    sources, preparations, models, losses, sizes, folds, choices = (
        [json.loads(text) for text in texts] for texts in lists
    )
    values = {
        "name": name,
        "n_folds": plan["n_folds"],
        "scale": plan["scale"],
        "datasets": [_dataset(source, facts) for source in sources],
        "preparations": preparations,
        "models": models,
        # "bce" is the default of models that take a loss.
        "losses": [loss or "bce" for loss in losses] if any(losses) else None,
        "batch_sizes": sorted(sizes),
        "folds": sorted(folds),
        "strategies": list(_strategies(choices)),
    }
    lines = [*_assigned(values), "", "[plan]", *_assigned(plan["plan"])]
    return "\n".join(lines) + "\n"


def _dataset(source: list[str], facts: _Facts) -> Any:
    """Return a study's entry for a dataset: its name, or its file and where the labels are."""
    name, digest = source
    known = facts.get((name, digest))
    if name in catalog() or known is None:
        return name
    labels = known.labels
    if isinstance(labels, str) and labels.casefold().endswith(".xml"):
        labels = PurePath(labels).name
    entry = {"name": name, "path": PurePath(known.path).name, "labels": labels, **known.columns}
    return {key: value for key, value in entry.items() if value is not None}


def _strategies(choices: list[list[Any]]) -> Iterable[dict[str, Any]]:
    """Yield a study's entries for strategies: the fewest that tell which pressures had which seeds."""
    rows = [tuple(json.dumps(part) for part in (choice[:3], *choice[3:])) for choice in choices]
    for kinds, pressures, seeds in _grids(rows):
        for strategy, options, loss in map(json.loads, kinds):
            entry = {"name": strategy, **options, "selection_loss": loss}
            tried = [json.loads(pressure) for pressure in pressures]
            if tried != [None]:
                entry["selection_pressures"] = [
                    f"{pressure[0]}:{pressure[1]}" if isinstance(pressure, list) else pressure
                    for pressure in tried
                ]
            yield entry | {"seeds": sorted(json.loads(seed) for seed in seeds)}


def _assigned(values: Mapping[str, Any]) -> list[str]:
    """Return TOML lines; a missing value has none, since TOML has no null."""
    names = {key: key if _BARE.fullmatch(key) else _value(key) for key in values}
    return [f"{names[key]} = {_value(item)}" for key, item in values.items() if item is not None]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_assigned(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    # JSON writes numbers and text as TOML reads them, except for a few control characters.
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
