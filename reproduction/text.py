"""Names, and how a cell of a table is written."""

from collections.abc import Iterable, Sequence

from reproduction.gains import Gain

PAPER_MODELS = ("c2ae", "mpvae", "paca", "clif", "dela")
_OBJECTIVES = {
    "{}": "",
    '{"objective": "weighted_bce"}': "weighted BCE",
    '{"objective": "asymmetric"}': "asymmetric loss",
}
#: What is added to the name of a learner at ten times the paper's learning rate.
FAST = ", lr 0.001"
FAST_MODELS = tuple(name + FAST for name in PAPER_MODELS)
#: The MLP at the usual learning rate and at ten times as much, with each of its objectives.
MLPS = tuple(f"mlp {objective}" for objective in _OBJECTIVES)
FAST_MLPS = tuple(name + FAST for name in MLPS)
#: What is added to the name of a way to train at the higher learning rate.
AT_FAST = " at 1e-3"
#: The ways to choose batches that every model was trained with, as the page calls them.
#: Without a pressure in its name an arm has its default one.
ARMS = {
    "uniform": "uniform",
    "balanced": "balanced",
    "hard": "hard (16)",
    "adaptive": "adaptive (16)",
    "adaptive 64:1": "adaptive (64 to 1)",
    "minority": "minority (MeanIR)",
    "minority 16": "minority (16)",
    "minority 64:1": "minority (64 to 1)",
}
#: Every arm's name, also of the baseline and of one that few models were trained with.
NAMES = {"random": "random", **ARMS, "chain": "chain (16)"}
#: Those that every learner was trained with, and one of which is the default.
CONTENDERS = ("random", "balanced", "adaptive", "minority")
TITLES = {
    "macro_f": "Macro-F",
    "micro_f": "Micro-F",
    "macro_auc": "Macro-AUC",
    "ranking_loss": "ranking loss",
    "hamming_loss": "Hamming loss",
    "one_error": "one error",
    "minority_macro_f": "minority Macro-F",
    "minority_average_precision": "minority AP",
    "tuned_macro_f": "Macro-F, tuned thresholds",
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


def learner_name(learner: str) -> str:
    """Return how the page calls a learner: a model, and its objective or learning rate.

    Examples
    --------
    >>> [learner_name(name) for name in MLPS]
    ['MLP', 'MLP, weighted BCE', 'MLP, asymmetric loss']
    >>> [learner_name(name) for name in (FAST_MLPS[1], "dela", "mpvae, lr 1e-05")]
    ['MLP, weighted BCE, lr 1e-3', 'DELA', 'MPVAE, lr 1e-5']
    """
    which, _, rate = learner.partition(", lr ")
    model, _, options = which.partition(" ")
    rate = f"lr {rate_name(float(rate))}" if rate else ""
    return ", ".join(
        part for part in (model.upper(), _OBJECTIVES.get(options, options), rate) if part
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; numbers are right of their column's name."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def percent(found: Gain | None) -> str:
    """Return a gain alone, where a table has no room for its interval."""
    return "-" if found is None else f"{found.percent:+.1f}"


def shown(found: Gain | None) -> str:
    """Return a gain, its interval and the cells that are better; bold where the interval is clear."""
    if found is None:
        return "-"
    text = f"{found}, {found.better_cells}/{found.cells}"
    return f"**{text}**" if found.sure else text


def in_brief(found: Gain | None) -> str:
    """Return a gain alone, bold where its interval is clear."""
    text = percent(found)
    return f"**{text}**" if found is not None and found.sure else text
