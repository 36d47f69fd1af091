"""Whether the compared runs differ only in the strategy."""

import pandas as pd

from tailbatch.analysis.keys import Arm
from tailbatch.report.section import Block, FileTable, Section, Story, view

_CAPTION = "What must agree between compared runs"
# The check's title, and the kind of value that must be the same.
_SAME = {
    "warm_up_digest": ("Weights at the end of the warm-up", "digest"),
    "steps": ("Number of training steps", "number"),
    "drawn_samples": ("Number of drawn samples", "number"),
    "dataset_digest": ("Content of the dataset", "digest"),
    "versions": ("Versions of the packages", "list"),
    "max_lag": ("Lag between drawing and observing", "number"),
}


def fairness(story: Story) -> Section:
    """Return the checks and their verdicts."""
    table = in_words(story.analysis.fairness, story.analysis.baseline)
    return Section(
        id="fairness",
        title="How fair the comparison is",
        short="Fairness",
        blocks=(
            Block(
                "text",
                "For one dataset, model, fold and seed, all strategies share the rows, the initial "
                "weights and the warm-up, and take the same number of steps and samples. The records "
                "were checked for this:",
            ),
            Block("table", view(table, _CAPTION)),
        ),
        tables=(FileTable("fairness", table, _CAPTION),),
    )


def in_words(checks: pd.DataFrame, baseline: Arm | None) -> pd.DataFrame:
    """Return the checks of `tailbatch.analysis.fairness` as text."""
    columns = checks[["check", "verdict", "count", "total"]]
    rows = [
        _row(check, verdict, count, total, baseline)
        for check, verdict, count, total in columns.itertuples(index=False)
    ]
    return pd.DataFrame(rows, columns=["check", "verdict", "detail"])


def _row(
    check: str, verdict: str, count: int, total: int, baseline: Arm | None
) -> tuple[str, str, str]:
    if check in _SAME:
        title, kind = _SAME[check]
        detail = f"the same {kind} in {count:,} of {total:,} groups of compared runs"
        return title, verdict, detail if total else "no two runs to compare"
    if check == "folds":
        detail = "the same for every strategy"
        if count:
            detail = f"{count:,} runs without a partner are left out of the comparisons"
        return "Folds and seeds of the compared means", verdict, detail if total else "no runs"
    title = "End of the training and end of learning"
    late = f"of {total:,} runs of {baseline} were best in their last epochs"
    if not total:
        return title, verdict, "no best epochs"
    if verdict == "cannot be told":
        return (
            title,
            verdict,
            f"the runs of {baseline} have one evaluation, from which it cannot be told, or a cosine "
            "schedule, whose last epoch is meant to be the best",
        )
    if verdict == "agrees":
        return title, verdict, f"only {count:,} {late}" if count else f"none {late}"
    return (
        title,
        verdict,
        f"{count:,} {late}, so they were still learning, and a gain may only be faster learning: to find "
        "out, use a higher learning rate or more epochs",
    )
