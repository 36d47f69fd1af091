"""Rebuild docs/reproduction.md, its pictures and the README's results from the committed records.

``python -m reproduction`` reads the files in ``records``; ``python -m reproduction STORE`` first adds
the runs that a store has and they lack.
"""

import re
import sys
from pathlib import Path

import pandas as pd
from reproduction import answers, causes, choice, paper, speed, strategies
from reproduction.cells import collected, facts_of
from reproduction.figure import draw_imbalance, draw_printed, draw_results
from reproduction.records import HERE, collect, committed
from reproduction.text import ARMS, CONTENDERS, TITLES, in_brief, shown, table

from tailbatch.analysis.gains import gain
from tailbatch.analysis.published import directions
from tailbatch.results import ResultStore
from tailbatch.results.frames import Evidence

PAGE = HERE.parent / "docs" / "reproduction.md"
PICTURES = HERE.parent / "docs" / "assets"
README = HERE.parent / "README.md"
_MARKS = "<!-- results: python -m reproduction -->", "<!-- end of results -->"


def read() -> Evidence:
    """Return the committed records."""
    return collected(committed())


def page(evidence: Evidence) -> str:
    """Return docs/reproduction.md."""
    spreads = pd.read_csv(HERE / "weights.csv")
    sections = [
        (HERE / "summary.md").read_text().strip(),
        answers.in_short(evidence),
        answers.power(evidence),
        paper.what_was_run(evidence),
        strategies.strategies(evidence),
        paper.beside_the_paper(evidence),
        paper.verdicts(evidence),
        strategies.minority(evidence),
        strategies.against_facts(evidence),
        speed.speed(evidence),
        speed.rate(evidence),
        causes.weights(spreads, evidence),
        causes.script(evidence),
        causes.diagnosis(evidence),
        strategies.pressures(evidence),
        strategies.reweighting(evidence),
        choice.default(evidence),
        choice.tuning(evidence),
        choice.confirmation(evidence),
    ]
    return "\n\n".join(sections) + "\n"


def pictures(evidence: Evidence) -> None:
    """Draw what the page and the README show."""
    kinds = choice.kinds_of_cells(evidence)
    draw_results(kinds, PICTURES / "results.svg")
    draw_imbalance(
        choice.by_learner(evidence),
        facts_of(evidence)["mean_imbalance_ratio"],
        PICTURES / "imbalance.svg",
    )
    draw_printed(directions(evidence.runs), PICTURES / "printed.svg")


def results(evidence: Evidence) -> str:
    """Return the README's results: in words, and the contenders against random by kind of cell."""
    metrics = ("macro_auc", "minority_average_precision", "macro_f", "micro_f")
    arms = CONTENDERS[1:]
    short, long = [], []
    for kind, runs in choice.kinds_of_cells(evidence).items():
        gains = {arm: [gain(runs, arm, metric) for metric in metrics] for arm in arms}
        short.append((kind, *(" / ".join(map(in_brief, gains[arm][1::-1])) for arm in arms)))
        long.append((f"*{kind}*", *[""] * len(metrics)))
        long += [(ARMS[arm], *map(shown, gains[arm])) for arm in arms]
    return "\n\n".join(
        [
            answers.in_words(evidence),
            table(["minority AP / Macro-AUC, % against random", *(ARMS[a] for a in arms)], short),
            "Bold: the 95% interval excludes zero. Rows hold different datasets and models: compare\n"
            f"strategies within a row. Imbalanced is a MeanIR above {choice.SKEWED}; minority AP is the "
            "average precision of\nthe rarer labels.",
            "<details><summary>With intervals, cells and more metrics</summary>",
            table(["against random, %", *(TITLES[metric] for metric in metrics)], long),
            "Mean over the datasets where all of these ran, models averaged first; in brackets 95%\n"
            "intervals over datasets, bold where they exclude zero; then on how many dataset-model\n"
            "cells it is better.",
            "</details>",
        ]
    )


def put_between_marks(text: str, block: str) -> str:
    """Return `text` with the part between the marks replaced."""
    start, end = map(re.escape, _MARKS)
    return re.sub(
        f"({start}).*?({end})", lambda m: f"{m[1]}\n{block}\n{m[2]}", text, flags=re.DOTALL
    )


def main() -> None:
    """Collect if asked to, then write the page, its pictures and the README's results."""
    if len(sys.argv) > 1:
        for path in collect(ResultStore(Path(sys.argv[1]))):
            print(f"written: {path}")
    evidence = read()
    PAGE.write_text(page(evidence))
    pictures(evidence)
    README.write_text(put_between_marks(README.read_text(), results(evidence)))


if __name__ == "__main__":
    main()
