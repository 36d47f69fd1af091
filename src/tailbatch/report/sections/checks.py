"""How fair the comparison is, which labels gain, and how to repeat the runs."""

import pandas as pd

from tailbatch.analysis.keys import Arm
from tailbatch.analysis.labels import labels_by_name
from tailbatch.report.reproduce import named_files
from tailbatch.report.section import Block, FileTable, Section, Story, folded, view

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
    table = _in_words(story.analysis.fairness, story.analysis.baseline)
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


def _in_words(checks: pd.DataFrame, baseline: Arm | None) -> pd.DataFrame:
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


_TITLES = {
    "arm": "Strategy",
    "kind": "Labels",
    "labels": "Number",
    "gain": "Gain",
    "improved": "Share improved",
    "exposure": "Exposure",
}
_CELLS = {"data": "Dataset", "learner": "Model"}
_NAMED = {"label": "Label", "positives": "Training rows", "minority": "Minority"}
_BY_NAME = "Average precision of each label, rarest first"
_MOST_LABELS = 600  # rows on the page; the file has all


def minority(story: Story) -> Section:
    """Return the mean gain over minority and over other labels, and every label by name."""
    table, labels = story.analysis.minority, labels_by_name(story.analysis.labels)
    text = (
        "Average precision of single labels against the baseline. A label is a minority label if it is "
        "rarer than the geometric mean and the median of the labels with five rows or more; in the "
        "paper's preparations, if its imbalance ratio is above the mean of the dataset."
    )
    caption = "Mean change of average precision, share of labels that improve, and exposure"
    # Means over folds, which are read as whole rows; the CSV file has them as they are.
    reading = labels.assign(positives=labels["positives"].round().astype("Int64"))
    blocks: tuple[Block, ...] = ()
    if table["gain"].notna().any():
        blocks = (Block("text", text), folded(view(table, caption, _TITLES)))
    if len(labels) and len(labels) <= _MOST_LABELS:
        several = {name: title for name, title in _CELLS.items() if labels[name].nunique() > 1}
        arms = {arm: str(arm) for arm in labels if isinstance(arm, Arm)}
        blocks += (folded(view(reading, _BY_NAME, several | _NAMED | arms)),)
    return Section(
        id="minority",
        title="Minority labels",
        short="Minority labels",
        blocks=blocks,
        tables=(
            FileTable("minority", table, "Gains over minority and other labels"),
            FileTable("labels-by-name", labels, _BY_NAME, reading),
        ),
    )


def reproduce(story: Story) -> Section:
    """Return how to repeat the runs, and which runs are behind each row."""
    blocks: list[Block] = []
    if story.studies:
        files = sorted({name for text in story.studies.values() for name in named_files(text)})
        beside = f" ({', '.join(files)} must be there too)" if files else ""
        these = "This command repeats" if len(story.studies) == 1 else "These commands repeat"
        again = [
            f"tailbatch study run {story.files}/{name} --store again" for name in story.studies
        ]
        blocks = [
            Block(
                "text",
                "Each mean above is over the runs listed below. A run's name is a digest of everything "
                "that defines it; repeating it gives the same record, except for times. "
                f"{these} all of them, from the folder of this page{beside}:",
            ),
            Block("commands", [*again, "tailbatch report again --out again.html"]),
            Block(
                "text",
                "To repeat one row of a table, reduce the lists in a copy of the study file to its "
                "dataset, model and strategy.",
            ),
        ]
    behind = [story.traces, *story.tuned_traces.values()]
    entries = [entry for traced in behind for entry in traced.entries]
    rest = " beside it, as CSV, LaTeX and Markdown, PDF and PNG."
    return Section(
        id="reproduce",
        title="How to reproduce a number",
        short="Reproduce",
        blocks=(
            *blocks,
            Block(
                "folder",
                ("The tables and figures of this page are in the folder ", story.files, rest),
            ),
            Block("traces", entries),
        ),
    )
