"""Our numbers beside the paper's."""

import pandas as pd

from tailbatch.report.export import MISSING
from tailbatch.report.section import Block, FileTable, Section, Story, titled, view

_BY_METRIC = {
    "metric": "Metric",
    "pairs": "Pairs",
    "difference": "Mean of ours - printed",
    "agrees": "Same direction",
}
_PAIRS = {
    "data": "Dataset",
    "learner": "Model",
    "metric": "Metric",
    "baseline": "From",
    "arm": "to",
    "ours_baseline": "Ours, from",
    "ours": "to",
    "printed_baseline": "Printed, from",
    "printed": "to",
    "difference": "Ours - printed",
    "agrees": "Same direction",
    "note": "Note",
}


def published(story: Story) -> Section:
    """Return how far our means are from the printed ones, and whether the directions agree."""
    table = story.analysis.published
    return Section(
        id="published",
        title="Beside the published numbers",
        short="Published",
        blocks=_blocks(table) if len(table) else (),
        tables=(FileTable("published", table, "Ours beside the published numbers"),),
    )


def _blocks(table: pd.DataFrame) -> tuple[Block, ...]:
    decided = table[table["agrees"].notna()]
    same = int(decided["agrees"].astype(bool).sum())
    by_metric = table.assign(agrees=table["agrees"].astype(float)).groupby("metric", sort=False)
    summary = by_metric.agg(
        pairs=("difference", "size"), difference=("difference", "mean"), agrees=("agrees", "mean")
    ).reset_index()
    shares = [MISSING if pd.isna(share) else f"{share:.0%}" for share in summary["agrees"]]
    every = view(titled(table), "Every comparison, ours and printed", _PAIRS)
    caption = "Ours beside the paper's, by metric"
    text = (
        f"Of the {len(decided)} comparisons in the paper that are not a tie, {same} have the same "
        f"direction here. On average, our means differ from the printed ones by "
        f"{table['difference'].abs().mean():.4f}."
    )
    return (
        Block("text", text),
        Block("table", view(titled(summary.assign(agrees=shares)), caption, _BY_METRIC)),
        Block("folded", (f"All {len(every.rows)} pairs", every)),
    )
