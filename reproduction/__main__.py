"""Rebuild docs/reproduction.md, the pages of its details, and its numbers in docs/training.md.

``python -m reproduction`` reads the committed files; ``python -m reproduction STORE`` first adds
the runs that a store has and they lack.
"""

import re
import sys
from pathlib import Path

from reproduction import questions
from reproduction.article import article
from reproduction.cells import collected
from reproduction.drawing import draw_ladder, draw_printed, draw_results, write_drawn
from reproduction.figures import page as figures
from reproduction.measures import level
from reproduction.published import directions
from reproduction.questions import RUNGS, SELECTED, Answers, at
from reproduction.records import HERE, collect, committed
from reproduction.table_2 import causes, paper, speed, strategies
from reproduction.text import ADAPTIVE, RANDOM

from tailbatch.analysis.comparisons import gain
from tailbatch.results import ResultStore

PAGE = HERE.parent / "docs" / "reproduction.md"
DETAILS = HERE.parent / "docs" / "reproduction"
ARTICLE = HERE.parent / "docs" / "paper" / "replication.md"
PICTURES = HERE.parent / "docs" / "assets"
IN_BRIEF = HERE.parent / "docs" / "training.md"
_MARKS = "<!-- results: python -m reproduction -->", "<!-- end of results -->"


def read() -> Answers:
    """Return the committed records."""
    return Answers(collected(committed()))


def pages(answers: Answers) -> dict[Path, str]:
    """Return docs/reproduction.md and the pages of its details, by path."""
    evidence = answers.evidence
    written = {
        PAGE: [
            questions.summary(answers),
            paper.beside_the_paper(evidence),
            paper.conclusions(evidence),
            paper.verdicts(evidence),
            paper.adac(evidence),
            figures.figures(evidence, answers.figures),
            questions.convergence(answers),
            questions.budgets(answers),
            questions.ladder(answers),
            (HERE / "made.md").read_text().strip(),
        ],
        DETAILS / "cells.md": [
            "# The paper, cell by cell",
            paper.what_was_run(evidence),
            paper.cell_by_cell(evidence),
            paper.tests_with_two_baselines(evidence),
            paper.presets(evidence),
            paper.not_run(evidence),
        ],
        DETAILS / "claims.md": [
            "# The claims behind the three answers",
            questions.tests(answers),
            questions.convergence_by_dataset(answers),
            questions.few_epochs_in_full(answers),
            questions.ladder_by_dataset(answers),
        ],
        DETAILS / "strategies.md": [
            "# Every strategy on the paper's models",
            strategies.strategies(evidence),
            strategies.minority(evidence),
            strategies.pressures(evidence),
            strategies.minority_pressures(evidence),
            speed.speed(evidence),
            speed.rate(evidence),
            causes.weights(evidence),
            causes.script(evidence),
            causes.diagnosis(evidence),
        ],
    }
    return {path: "\n\n".join(sections) + "\n" for path, sections in written.items()}


def pictures(answers: Answers) -> None:
    """Draw what both pages show."""
    draw_results(answers.converged, SELECTED, PICTURES / "results.svg")
    runs, rungs = answers.ladder, list(RUNGS.values())
    levels = {
        name: [level(runs, at(rung, arm), questions.RARE) for rung in rungs]
        for name, arm in (("random", RANDOM), ("adaptive (16)", ADAPTIVE))
    }
    changes = {
        metric: [gain(runs, at(rung, ADAPTIVE), metric, at(rung, RANDOM)) for rung in rungs]
        for metric in (questions.RARE, questions.MAP)
    }
    draw_ladder(levels, changes, PICTURES / "ladder.svg")
    draw_printed(directions(answers.evidence.runs), PICTURES / "printed.svg")
    for name, _, draw in figures.pictures(answers.figures):
        write_drawn(draw, PICTURES / name)


def put_between_marks(text: str, block: str) -> str:
    """Return `text` with the part between the marks replaced."""
    start, end = map(re.escape, _MARKS)
    return re.sub(
        f"({start}).*?({end})", lambda m: f"{m[1]}\n{block}\n{m[2]}", text, flags=re.DOTALL
    )


def main() -> None:
    """Collect if asked to, then write the pages, their pictures and its numbers in docs/training.md."""
    if len(sys.argv) > 1:
        for path in collect(ResultStore(Path(sys.argv[1]))):
            print(f"written: {path}")
    answers = read()
    DETAILS.mkdir(exist_ok=True)
    for path, text in pages(answers).items():
        path.write_text(text)
    ARTICLE.write_text(article(answers))
    pictures(answers)
    IN_BRIEF.write_text(put_between_marks(IN_BRIEF.read_text(), questions.in_brief(answers)))


if __name__ == "__main__":
    main()
