"""What was run, and whether the compared runs differ in nothing but the strategy."""

import pandas as pd

from tailbatch.report.evidence import Evidence
from tailbatch.report.tables import baseline_arm

_SAME = ["data", "learner", "fold", "seed"]


def fairness(evidence: Evidence) -> pd.DataFrame:
    """Return one row a check: what must agree, whether it does, and in how many comparisons.

    ``verdict`` is ``agrees``, ``differs``, or ``not recorded`` where no two runs can be compared.

    Examples
    --------
    >>> runs = pd.DataFrame({"data": "scene", "learner": "mlp", "fold": 0, "seed": 0,
    ...                      "strategy": ["random", "adaptive"], "arm": ["random", "adaptive"],
    ...                      "warm_up_digest": ["ab", "ab"]})
    >>> empty = pd.DataFrame()
    >>> table = fairness(Evidence(runs=runs, curves=empty, labels=empty, losses=empty))
    >>> table.set_index("check").loc["Weights at the end of the warm-up", "verdict"]
    'agrees'
    """
    runs = evidence.runs
    checks: list[tuple[str, str, str]] = [
        ("Weights at the end of the warm-up", "warm_up_digest", "digest"),
        ("Number of training steps", "steps", "number"),
        ("Number of drawn samples", "drawn_samples", "number"),
        ("Content of the dataset", "dataset_digest", "digest"),
        ("Versions of the packages", "versions", "list"),
        ("Lag between drawing and observing", "max_lag", "number"),
    ]
    rows = [*(_agreement(runs, *check) for check in checks), _folds(runs), _learned(runs)]
    return pd.DataFrame(rows, columns=["check", "verdict", "detail"])


def _agreement(runs: pd.DataFrame, check: str, column: str, kind: str) -> tuple[str, str, str]:
    """Compare the values of one column within each dataset, model, fold and seed."""
    known = runs if column in runs else runs.assign(**{column: ""})
    known = known[known[column].notna() & (known[column] != "")]
    groups = known.groupby(_SAME)[column].agg(["size", "nunique"])
    groups = groups[groups["size"] > 1]
    if groups.empty:
        return check, "not recorded", "no two runs to compare"
    same = int((groups["nunique"] == 1).sum())
    verdict = "agrees" if same == len(groups) else "differs"
    return check, verdict, f"the same {kind} in {same:,} of {len(groups):,} groups of compared runs"


def _folds(runs: pd.DataFrame) -> tuple[str, str, str]:
    check = "Folds and seeds of the compared means"
    primary = runs[runs["arm"] == runs["strategy"]] if "arm" in runs else runs
    arms = primary.groupby(["data", "learner"])["strategy"].transform("nunique")
    here = primary.groupby(_SAME)["strategy"].transform("nunique")
    left = int((arms != here).sum())
    if primary.empty:
        return check, "not recorded", "no runs"
    detail = (
        "every strategy has the same ones"
        if not left
        else (f"{left:,} runs without a partner are left out of the comparisons")
    )
    return check, "agrees", detail


def still_learning(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return which runs were best in their last epochs, the last 5% of all.

    Examples
    --------
    >>> still_learning(pd.DataFrame({"best_epoch": [95, 96], "plan_epochs": 100})).tolist()
    [False, True]
    """
    return runs["best_epoch"] > 0.95 * runs["plan_epochs"]


def _learned(runs: pd.DataFrame) -> tuple[str, str, str]:
    """Say whether the baseline was done learning: if not, a gain may be nothing but speed."""
    check = "End of the training and end of learning"
    if runs.empty or not {"best_epoch", "plan_epochs"} <= set(runs):
        return check, "not recorded", "no best epochs"
    base = runs[runs["arm"] == baseline_arm(runs["arm"])]
    late = still_learning(base)
    counted = f"{late.sum():,} of {len(base):,} runs of {base['arm'].iloc[0]}"
    if late.mean() <= 0.5:
        return check, "agrees", f"only {counted} were best in their last epochs"
    return (
        check,
        "differs",
        f"{counted} were best in their last epochs, so they were still learning and a gain may be "
        "speed alone: a higher learning rate or more epochs would tell",
    )


def what_ran(runs: pd.DataFrame) -> dict[str, int]:
    """Return how many runs, datasets, models, strategies, folds and seeds there are.

    Examples
    --------
    >>> what_ran(pd.DataFrame({"dataset": ["scene", "yeast"], "model": "mlp"}))
    {'runs': 2, 'datasets': 2, 'models': 1}
    """
    columns = {
        "datasets": "dataset",
        "models": "model",
        "strategies": "strategy",
        "folds": "fold",
        "seeds": "seed",
    }
    counts = {name: runs[column].nunique() for name, column in columns.items() if column in runs}
    return {"runs": len(runs), **counts}
