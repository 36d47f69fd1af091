"""Names, and how a cell of a table is written."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import fill

import pandas as pd
from reproduction.measures import runs_and_folds

from tailbatch.analysis import Arm, Learner
from tailbatch.analysis.comparisons import Gain, gain

#: The plan's learning rates as the page writes them: the paper's, and ten times as much.
RATES = ("1e-4", "1e-3")
FAST_RATE = 1e-3
PAPER_MODELS = tuple(map(Learner, ("c2ae", "mpvae", "paca", "clif", "dela")))
_FALLING = (64.0, 1.0)
RANDOM, UNIFORM, BALANCED, HARD, ADAPTIVE, MINORITY, CHAIN = map(
    Arm, ("random", "uniform", "balanced", "hard", "adaptive", "minority", "chain")
)
FALLING_ADAPTIVE, FALLING_MINORITY = Arm("adaptive", _FALLING), Arm("minority", _FALLING)
#: The ways to choose batches that every model was trained with, as the page calls them.
ARMS = {
    UNIFORM: "uniform",
    BALANCED: "balanced",
    HARD: "hard (16)",
    ADAPTIVE: "adaptive (16)",
    FALLING_ADAPTIVE: "adaptive (64 to 1)",
    MINORITY: "minority (MeanIR)",
    Arm("minority", 16.0): "minority (16)",
    FALLING_MINORITY: "minority (64 to 1)",
}
#: Every arm's name, also of the baseline and of one that few models were trained with.
NAMES = {RANDOM: "random", **ARMS, CHAIN: "chain (16)"}
#: Those that every learner was trained with, and one of which is the default.
CONTENDERS = (RANDOM, BALANCED, ADAPTIVE, MINORITY)
TITLES = {
    "macro_f": "Macro-F",
    "micro_f": "Micro-F",
    "macro_auc": "Macro-AUC",
    "ranking_loss": "ranking loss",
    "hamming_loss": "Hamming loss",
    "one_error": "one error",
    "minority_macro_f": "minority Macro-F",
    "minority_average_precision": "minority AP",
    "macro_average_precision": "Macro-AP",
    "tuned_macro_f": "Macro-F, tuned thresholds",
    "tuned_micro_f": "Micro-F, tuned thresholds",
    "tuned_minority_macro_f": "minority Macro-F, tuned thresholds",
}
FOCUS = ("macro_f", "macro_auc", "minority_macro_f", "minority_average_precision", "micro_f")


def rate_name(lr: float) -> str:
    """Return how the page writes a learning rate.

    Examples
    --------
    >>> rate_name(0.001)
    '1e-3'
    """
    return f"{lr:.0e}".replace("e-0", "e-")


def learner_name(learner: Learner) -> str:
    """Return what the page calls a learner: a model, and its learning rate if it is not the usual one.

    Examples
    --------
    >>> learner_name(Learner("dela")), learner_name(Learner("mpvae", rate=1e-4))
    ('DELA', 'MPVAE, lr 1e-4')
    """
    rate = "" if learner.rate is None else f", lr {rate_name(learner.rate)}"
    return f"{learner.model.upper()}{rate}"


def listed(keys: Iterable[object]) -> str:
    """Return the names of some datasets, each once, by name.

    Examples
    --------
    >>> listed(["yeast", "scene", "yeast"])
    'scene, yeast'
    """
    return ", ".join(sorted(set(map(str, keys))))


def wrap(text: str, indent: str = "") -> str:
    """Return a paragraph in lines of a page's width; a word with a hyphen stays whole."""
    return fill(text, 112, subsequent_indent=indent, break_on_hyphens=False)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "fold"), counted(1200, "claim")
    ('1 fold', '1,200 claims')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def folds_of(runs: pd.DataFrame) -> str:
    """Return how many folds the cells of some runs have."""
    counts = runs_and_folds(runs)["folds"].tolist()
    few, many = min(counts, default=0), max(counts, default=0)
    return counted(many, "fold") if few == many else f"{few} to {many} folds"


def p_text(p: float, digits: int = 3) -> str:
    """Return a p-value for a table.

    Examples
    --------
    >>> p_text(0.0312), p_text(0.0002), p_text(0.0002, 4), p_text(math.nan)
    ('0.031', '<0.001', '0.0002', '-')
    """
    if math.isnan(p):
        return "-"
    least = 10**-digits
    return f"<{least:.{digits}f}" if p < least else f"{p:.{digits}f}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; numbers are right of their column's name."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def percent(change: Gain | None) -> str:
    """Return a gain alone, where a table has no room for its interval."""
    return "-" if change is None else f"{change.percent:+.1f}"


def shown(change: Gain | None) -> str:
    """Return a gain, its interval and the cells that are better; bold where the interval is clear."""
    if change is None:
        return "-"
    text = f"{change}, {change.better_cells}/{change.cells}"
    return f"**{text}**" if change.clear else text


def in_interval(change: Gain | None) -> str:
    """Return a gain in a sentence: percent, and its interval.

    Examples
    --------
    >>> in_interval(Gain(1.25, -0.5, 3.0, 0.1, 1, 2, 2))
    '+1.2% [-0.5, +3.0]'
    """
    if change is None:
        return "an unknown amount"
    return str(change).replace(" ", "% ", 1) if " " in str(change) else f"{change}%"


#: A row of a table of gains: what stands before them, the runs, the arm, and what it is compared with.
GainRow = tuple[Sequence[object], pd.DataFrame, Arm, Arm]


def gain_table(
    header: Sequence[str],
    rows: Iterable[GainRow],
    metrics: Sequence[str],
    write: Callable[[Gain | None], str] = shown,
) -> str:
    """Return a table of gains in some metrics; a row without any gain is left out."""
    lines = []
    for before, runs, arm, baseline in rows:
        gains = [gain(runs, arm, metric, baseline) for metric in metrics]
        if any(gains):
            lines.append((*before, *map(write, gains)))
    return table([*header, *map(title, metrics)], lines) if lines else ""


def arm_table(
    first: str,
    runs: pd.DataFrame,
    arms: Mapping[Arm, str],
    metrics: Sequence[str],
    baseline: Arm = RANDOM,
) -> str:
    """Return a table of arms against a baseline, with a row for each that ran."""
    rows = (((name,), runs, arm, baseline) for arm, name in arms.items())
    return gain_table([first], rows, metrics)


def title(metric: str) -> str:
    """Return what the page calls a metric, on test rows or on validation rows.

    Examples
    --------
    >>> title("validation_macro_auc")
    'Macro-AUC'
    """
    return TITLES[metric.removeprefix("validation_")]
