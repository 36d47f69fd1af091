"""Tables about single labels: whether a strategy helps the rare ones, and how often it draws them."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, paired, primary, with_batches
from tailbatch.analysis.keys import CELL
from tailbatch.metrics.ranking import average_precision_by_label
from tailbatch.results.frames import Evidence

_KEY = [*CELL, "label"]


def label_facts(evidence: Evidence) -> pd.DataFrame:
    """Return one row per cell, arm and label: means over the paired runs, and gains over the baseline.

    Columns ``positives`` (in the training rows, mean over folds), ``minority`` (in most folds),
    ``average_precision``, ``exposure`` (how often its samples are drawn, relative to their share), and
    ``gain``: the arm's average precision minus the baseline's, missing for the baseline itself.
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


def pooled_average_precision(
    folds: Iterable[tuple[np.ndarray, np.ndarray]],
) -> npt.NDArray[np.float64]:
    """Return each label's average precision over the test rows of all folds together.

    A rare label has few positives in a fold, often none, so the mean over folds is noisy and skips some
    folds. Pooled, every row is tested once. Stores do not keep predictions: this needs, for each fold
    of one cell, arm and seed, the labels and the scores (probabilities) of its test rows.

    Parameters
    ----------
    folds
        For each fold (n_test, q) labels and (n_test, q) scores of its own model.

    Examples
    --------
    >>> first = np.array([[1], [0]]), np.array([[0.9], [0.2]])
    >>> second = np.array([[0], [0]]), np.array([[0.1], [0.95]])  # no positive: undefined alone
    >>> pooled_average_precision([first, second]).tolist()
    [0.5]
    """
    labels, scores = (np.concatenate(parts) for parts in zip(*folds, strict=True))
    return average_precision_by_label(labels.astype(bool), scores)


def labels_by_name(facts: pd.DataFrame) -> pd.DataFrame:
    """Return, from `label_facts`, one row per label: its average precision under each arm, rarest first.

    Columns are the cell, ``label``, ``positives``, ``minority``, and one per arm.
    """
    keys = [*CELL, "label", "positives", "minority"]
    positives = facts.groupby(_KEY)["positives"].transform("mean")
    minority = facts.groupby(_KEY)["minority"].transform("max")
    wide = facts.assign(positives=positives, minority=minority).pivot_table(
        index=keys, columns="arm", values="average_precision"
    )
    return wide.reset_index().sort_values([*CELL, "positives", "label"], ignore_index=True)


def minority_gains(facts: pd.DataFrame) -> pd.DataFrame:
    """Return, from `label_facts`, each arm's mean gain over minority and over other labels.

    ``improved`` is the share of labels whose average precision rises; a label with no positives in the
    test rows of any fold has no value and is not counted.

    Examples
    --------
    >>> facts = pd.DataFrame({"arm": "adaptive", "minority": [True, True, False],
    ...                       "gain": [0.2, 0.1, -0.1], "exposure": [3.0, 2.0, 0.9]})
    >>> minority_gains(facts)[["kind", "labels", "gain", "improved"]].round(2).values.tolist()
    [['minority labels', 2, 0.15, 1.0], ['other labels', 1, -0.1, 0.0]]
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
