"""Whether the differences exceed chance: signed-rank tests, and mean ranks."""

from functools import partial
from typing import Any

import pandas as pd

from tailbatch.analysis.published import printed_tests
from tailbatch.analysis.significance import alike
from tailbatch.metrics import metric_facts
from tailbatch.report import panels
from tailbatch.report.section import (
    Block,
    Chart,
    FileTable,
    Section,
    Story,
    Switch,
    folded,
    titled,
    view,
)

_LEVEL = 0.05
_TITLES = {
    "learner": "Model",
    "arm": "Strategy",
    "metric": "Metric",
    "datasets": "Datasets",
    "outcome": "Outcome",
    "p": "p",
    "p_holm": "p (Holm)",
    "printed_outcome": "Printed outcome",
    "printed_p": "Printed p",
    "table_p": "p of the printed means",
}


def luck(story: Story) -> Section:
    """Return the tests and the critical-difference diagrams."""
    tests, ranks = story.analysis.wilcoxon, story.analysis.ranks
    charts = rank_charts(ranks.dropna(subset="critical_difference"))
    blocks: list[Block] = []
    if tests["printed_p"].notna().any():
        blocks += [Block("note", printed_p_note(printed_tests()))]
    else:
        tests = tests.drop(columns=["printed_outcome", "printed_p", "table_p"])
    if len(tests):
        caption = "Wilcoxon's signed-rank test over the datasets, by model and metric"
        blocks += [folded(view(titled(tests), caption, _TITLES))]
    if charts:
        caption = (
            "Mean ranks over datasets, averaged over models first; rank 1 is best. A thick bar joins "
            "strategies that do not differ significantly in the Nemenyi test."
        )
        choice = Switch(
            "ranks", "Metric", tuple((name, metric_facts(name).title) for name in charts)
        )
        numbers = view(titled(ranks), "Mean ranks over datasets")
        blocks += [Block("chart", Chart("ranks", "Mean ranks", caption, (choice,)))]
        blocks += [Block("folded", ("The ranks in numbers", numbers))]
    return Section(
        id="tests",
        title="More than chance?",
        short="Chance?",
        blocks=tuple(blocks),
        tables=(
            FileTable("wilcoxon", tests, "Wilcoxon's signed-rank test over the datasets"),
            FileTable("ranks", ranks, "Mean ranks over datasets"),
        ),
        figures={"ranks": partial(panels.ranks_figure, charts, story.looks)} if charts else {},
        data={"ranks": {name: _plain(chart) for name, chart in charts.items()}},
    )


def rank_charts(ranks: pd.DataFrame) -> dict[str, Any]:
    """Return, from `mean_ranks`, what the critical-difference diagrams show, by metric."""
    return {
        metric: {
            "arms": [[row.arm, round(row.mean_rank, 3)] for row in group.itertuples()],
            "critical": round(group["critical_difference"].iloc[0], 3),
            "groups": alike(group["mean_rank"].to_numpy(), group["critical_difference"].iloc[0]),
        }
        for metric, group in ranks.groupby("metric", sort=False)
    }


def _plain(chart: dict[str, Any]) -> dict[str, Any]:
    return chart | {"arms": [[str(arm), rank] for arm, rank in chart["arms"]]}


def printed_p_note(tests: pd.DataFrame) -> str:
    """Return, from `printed_tests`, which printed p-values do not follow from the printed table.

    Examples
    --------
    >>> printed_p_note(printed_tests()).partition(":")[0]
    "Of the paper's 30 printed p-values, 10 do not follow from its own table of results"
    """
    off = tests[~tests["follows"]]
    named = [
        f"{row.model} {metric_facts(row.metric).title} {row.p_value:.4f} "
        f"(its table gives {row.table_p:.4f})"
        for row in off.itertuples()
    ]
    turned = off[(off["table_p"] < _LEVEL) != (off["outcome"] != "tie")]
    verdicts = [f"{row.model} {metric_facts(row.metric).title}" for row in turned.itertuples()]
    text = f"Of the paper's {len(tests)} printed p-values, {len(off)} do not follow from its own "
    text += f"table of results: {'; '.join(named)}."
    return text + (f" The verdict changes for {' and '.join(verdicts)}." if verdicts else "")
