"""Tables about single labels: whether a strategy helps the rare ones, and how often it draws them."""

import numpy as np
import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, paired, primary, with_batches
from tailbatch.analysis.keys import CELL
from tailbatch.results.frames import Evidence

_KEY = [*CELL, "label"]


def label_facts(evidence: Evidence) -> pd.DataFrame:
    """Return one row per cell, arm and label: means over the paired runs, and gains over the baseline.

    ``minority`` says whether it is rare in most folds, ``exposure`` how often its samples are drawn
    relative to their share; ``gain`` is of average precision, and missing for the baseline itself.
    """
    columns = [*CELL, "arm", "label", "positives", "minority", "average_precision", "exposure"]
    runs = paired(primary(with_batches(evidence.runs)))
    if evidence.labels.empty or runs.empty:
        return pd.DataFrame(columns=[*columns, "gain"])
    rows = evidence.labels.merge(runs[[*CELL, "arm", "digest"]], on="digest")
    numbers = ["positives", "minority", "average_precision", "exposure"]
    means = rows.groupby([*CELL, "arm", "label"], sort=False)[numbers].mean().reset_index()
    means["minority"] = means["minority"] >= 0.5
    base = baseline_arm(runs["arm"])
    before = means.loc[means["arm"] == base, [*_KEY, "average_precision"]]
    means = means.merge(before, on=_KEY, how="left", suffixes=("", "_before"))
    gain = means["average_precision"] - means.pop("average_precision_before")
    return means.assign(gain=gain.where(means["arm"] != base))


def labels_by_name(facts: pd.DataFrame) -> pd.DataFrame:
    """Return, from `label_facts`, each label's average precision under each arm, rarest first."""
    keys = [*CELL, "label", "positives", "minority"]
    positives = facts.groupby(_KEY)["positives"].transform("mean")
    minority = facts.groupby(_KEY)["minority"].transform("max")
    wide = facts.assign(positives=positives, minority=minority).pivot_table(
        index=keys, columns="arm", values="average_precision"
    )
    return wide.reset_index().sort_values([*CELL, "positives", "label"], ignore_index=True)


def minority_gains(facts: pd.DataFrame) -> pd.DataFrame:
    """Return, from `label_facts`, each arm's mean gain over minority and over other labels.

    ``improved`` is the share of labels whose average precision rises; a label with no positives in any
    test rows does not count.

    Examples
    --------
    >>> facts = pd.DataFrame({"arm": "adaptive", "minority": [True, True, False],
    ...                       "gain": [0.2, 0.1, -0.1], "exposure": [3.0, 2.0, 0.9]})
    >>> minority_gains(facts)[["kind", "labels", "gain"]].round(2).values.tolist()
    [['minority labels', 2, 0.15], ['other labels', 1, -0.1]]
    """
    rows = []
    for (arm, minority), group in facts.groupby(["arm", "minority"], sort=False):
        gains = group["gain"].dropna()
        row = {"arm": arm, "kind": "minority labels" if minority else "other labels"}
        row |= {"labels": len(group), "exposure": group["exposure"].mean()}
        if len(gains):
            row |= {"labels": len(gains), "gain": gains.mean(), "improved": (gains > 0).mean()}
        rows.append(row)
    columns = ["arm", "kind", "labels", "gain", "improved", "exposure"]
    return pd.DataFrame(rows, columns=columns).replace({None: np.nan})
