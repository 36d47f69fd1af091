"""What selection adds to sound training: ``python -m reproduction.selection`` writes the page.

The studies are ``epochs-*.toml`` here; ``tailbatch study run`` runs one, and ``tailbatch study export
STORE --study NAME --out reproduction/selection/NAME.jsonl.gz`` keeps its records.
"""

import re
from pathlib import Path

import pandas as pd

from tailbatch.analysis import Arm
from tailbatch.analysis.comparisons import results
from tailbatch.analysis.gains import gain
from tailbatch.analysis.naming import named
from tailbatch.results.archive import open_records
from tailbatch.results.frames import read_store

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "selection_evidence.md"
METRICS = {
    "minority_average_precision": "minority AP",
    "macro_average_precision": "Macro-AP",
    "tuned_macro_f": "Macro-F, tuned",
    "tuned_micro_f": "Micro-F, tuned",
}
RANDOM = Arm("random")


def by_budget() -> dict[int, pd.DataFrame]:
    """Return the committed runs, by the number of epochs."""
    files = {int(re.findall(r"\d+", path.name)[0]): path for path in HERE.glob("*.jsonl.gz")}
    return {n: named(read_store(open_records(files[n]))).runs for n in sorted(files)}


def table(runs: pd.DataFrame) -> str:
    """Return each strategy's gains on random batches, in percent, as a Markdown table."""
    lines = [
        "| against random, % | " + " | ".join(METRICS.values()) + " |",
        "| --- |" + " ---: |" * len(METRICS),
    ]
    for arm in sorted(set(runs["arm"]) - {RANDOM}):
        cells = [gain(runs, arm, metric, RANDOM) for metric in METRICS]
        shown = [f"**{cell}**" if cell and cell.clear else str(cell or "-") for cell in cells]
        lines.append(f"| {arm} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def level(runs: pd.DataFrame) -> str:
    """Return what random batches reach, so that losses can be compared, too."""
    means = results(runs[runs["arm"] == RANDOM], list(METRICS)).set_index("metric")["mean"]
    return "Random batches: " + ", ".join(
        f"{title} {means[metric]:.3f}" for metric, title in METRICS.items()
    )


def page(budgets: dict[int, pd.DataFrame]) -> str:
    """Return the page."""
    parts = [(HERE / "page.md").read_text().rstrip()]
    for epochs, runs in budgets.items():
        parts.append(f"## {epochs} epoch{'s' if epochs > 1 else ''}")
        for loss in ("weighted_bce", "bce"):
            same = runs[[learner.loss_name == loss for learner in runs["learner"]]]
            large = same[[data.name == "goemotions" for data in same["data"]]]
            counted = same["data"].nunique()
            parts += [f"**`{loss}`, GoEmotions.** {level(large)}.", table(large)]
            parts += [f"**`{loss}`, mean over {counted} datasets**", table(same)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(by_budget()))
