"""The folder beside the page: every table as CSV, LaTeX and Markdown, every figure as SVG and PNG."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from tailbatch.metrics import METRICS
from tailbatch.report import panels
from tailbatch.report.analysis import Analysis
from tailbatch.report.curves import MEASURES, agreement_panels, batch_size_panels
from tailbatch.report.export import csv_text, write_table, write_text
from tailbatch.report.figures import save
from tailbatch.report.significance import rank_charts
from tailbatch.report.style import arm_order, looks
from tailbatch.report.tables import CELL


def write_files(analysis: Analysis, folder: Path) -> None:
    """Write tables and figures into a folder; what there is no data for is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(analysis.results):
        reading, bold = wide_results(analysis.results, analysis.metrics)
        caption = "Means over folds and seeds; the best strategy of each dataset in bold"
        write_table(
            analysis.results, folder, "results", caption=caption, reading=reading, bold=bold
        )
    for name, (table, caption) in _tables(analysis).items():
        if len(table):
            write_table(table, folder, name, caption=caption)
    for name, table in _long_tables(analysis).items():
        if len(table):
            write_text(csv_text(table), folder / f"{name}.csv")
    for name, figure in _figures(analysis):
        save(figure, folder / f"{name}.svg")
        figure.set_layout_engine("none")  # laid out once is enough, and is half of the time
        save(figure, folder / f"{name}.png")


def wide_results(results: pd.DataFrame, metrics: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the result table as the paper prints it, and which of its cells are best.

    Examples
    --------
    >>> long = pd.DataFrame({"data": "scene", "learner": "mlp", "arm": ["random", "adaptive"],
    ...                      "metric": "macro_f", "mean": [0.5, 0.6], "best": [False, True]})
    >>> wide, best = wide_results(long, ["macro_f"])
    >>> wide["Macro-F"].tolist(), best["Macro-F"].tolist()
    ([0.5, 0.6], [False, True])
    """
    keys = ["learner", "data", "arm"]
    table = results.pivot_table(index=keys, columns="metric", values=["mean", "best"], sort=False)
    order = sorted(table.index, key=lambda key: (*key[:2], arm_order(key[2])))
    table = table.loc[order]
    titles = {name: METRICS[name].title for name in metrics}
    means = table["mean"][metrics].astype(float).rename(columns=titles).reset_index()
    best = table["best"][metrics].eq(1).rename(columns=titles).reset_index()
    best[keys] = False
    return means, best


def _tables(analysis: Analysis) -> dict[str, tuple[pd.DataFrame, str]]:
    return {
        "fairness": (analysis.fairness, "What must agree between compared runs"),
        "comparisons": (
            analysis.comparisons,
            "Each strategy against the baseline on the same folds and seeds",
        ),
        "overall": (analysis.overall, "Change against the baseline in percent, over all cells"),
        "wilcoxon": (analysis.wilcoxon, "Wilcoxon's signed-rank test over the datasets"),
        "ranks": (analysis.ranks, "Mean ranks over datasets and models"),
        "published": (analysis.published, "Ours beside the published numbers"),
        "datasets": (analysis.datasets, "Facts of the datasets, printed and measured"),
        "convergence": (analysis.convergence, "How fast each strategy learns"),
        "minority": (analysis.minority, "Gains over minority and other labels"),
        "pressures": (analysis.pressures, "Metrics by selection pressure"),
        "batch-sizes": (analysis.batch_sizes, "Macro-AUC by batch size"),
        "loss-correlation": (analysis.agreement, "Correlation of model loss and BCE"),
        "missing": (_missing(analysis.evidence.absent), "Runs that are wanted and not there"),
    }


def _long_tables(analysis: Analysis) -> dict[str, pd.DataFrame]:
    """Return the tables that nobody reads row by row: they are written as CSV only."""
    return {
        "runs": analysis.evidence.runs,
        "curves": analysis.curves,
        "labels": analysis.labels,
        "sample-losses": analysis.losses,
        "sample-loss-density": analysis.density,
    }


def _missing(absent: pd.DataFrame) -> pd.DataFrame:
    columns = [*CELL, "arm", "fold", "seed", "digest", "reason"]
    return absent[columns] if len(absent) else absent


def _figures(analysis: Analysis) -> Iterator[tuple[str, Figure]]:
    """Yield the figures; where a store has many datasets and models, those of one of them."""
    shown = looks(analysis.evidence.runs["arm"].unique(), analysis.baseline)
    if len(analysis.overall):
        yield "gains", panels.gains_figure(analysis.overall, shown)
    lines = _one_model(analysis.curves)
    drawn = {
        "convergence": ("training_bce", "number", "steps", "seconds"),
        "validation": ("validation_macro_auc", "number"),
    }
    for name, (measure, *axes) in drawn.items():
        if measure in lines and lines[measure].notna().any():
            yield name, panels.curves_figure(lines, shown, measure, MEASURES[measure], *axes)
    if analysis.labels[["gain", "exposure"]].notna().any(axis=None):
        yield "labels", panels.labels_figure(_one_model(analysis.labels), shown)
    if len(analysis.density):
        yield "sample-losses", panels.density_figure(_one_cell(analysis.density), shown)
    if len(analysis.agreement):
        drawn_panels = agreement_panels(analysis.agreement)
        yield "loss-correlation", panels.category_figure(drawn_panels, shown, "Pearson correlation")
    if len(analysis.batch_sizes):
        drawn_panels = batch_size_panels(analysis.batch_sizes)
        yield "batch-sizes", panels.category_figure(drawn_panels, shown, "Macro-AUC")
    if len(analysis.ranks):
        yield "ranks", panels.ranks_figure(rank_charts(analysis.ranks), shown)
    if len(analysis.pressures):
        cell = _one_cell(analysis.pressures)
        yield "pressures", panels.pressure_figure(cell, shown, analysis.baseline)


def _one_model(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the paper's first choice, DELA, or else of the first model by name."""
    names = table["learner"].unique()
    return (
        table[table["learner"] == min(names, key=lambda name: (name != "dela", name))]
        if len(names)
        else table
    )


def _one_cell(table: pd.DataFrame) -> pd.DataFrame:
    rows = _one_model(table)
    return rows[rows["data"] == rows["data"].min()]
