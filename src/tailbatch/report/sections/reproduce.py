"""The way from any number back to the runs behind it, and to a command that repeats them."""

from tailbatch.report.reproduce import named_files
from tailbatch.report.section import Block, Section, Story


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
