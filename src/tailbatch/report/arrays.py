"""What a report takes from a run's bulky arrays: a few numbers, so that the arrays may stay behind."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tailbatch.results import RunRecord

#: Levels in percent of the quantiles that stand for the losses of a group of samples.
PERCENT = tuple(range(1, 100))


def array_facts(record: RunRecord, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return plain values that stand for the arrays kept with a run.

    ``volatility`` is how unsteady the batch objectives are: the mean absolute step between neighboring
    batches after the warm-up, over their mean. ``correlations`` are Pearson's, over the training
    samples, of a sample's BCE and its own loss, by epoch (Figure 6). ``losses`` are the quantiles of
    the samples' BCE by epoch and number of minority labels (Figures 1 and 5). What the arrays do not
    tell is left out.

    Examples
    --------
    >>> from tailbatch.results import RunSpec
    >>> record = RunRecord(spec=RunSpec(dataset="debtags", dataset_digest="ab12"), validation={},
    ...                    test={}, history=(), best_epoch=1, warm_up_digest="")
    >>> arrays = {"sample_losses_30": np.array([0.1, 0.2, 0.4]),
    ...           "sample_objectives_30": np.array([1.0, 2.0, 4.0])}
    >>> array_facts(record, arrays)
    {'correlations': {'30': 1.0}}
    """
    facts = {
        "volatility": _volatility(record, arrays),
        "correlations": _correlations(arrays),
        "losses": loss_quantiles(arrays),
    }
    return {name: value for name, value in facts.items() if value}


def _volatility(record: RunRecord, arrays: Mapping[str, np.ndarray]) -> float | None:
    objectives = arrays.get("batch_objectives")
    if objectives is None or not record.history:
        return None
    warm_up = min(record.spec.plan.warm_up_epochs, len(record.history) - 1)
    first = record.history[warm_up - 1]["steps"] if warm_up else 0
    rest = np.asarray(objectives, dtype=np.float64)[first:]
    if len(rest) < 2 or rest.mean() == 0:
        return None
    return float(np.abs(np.diff(rest)).mean() / abs(rest.mean()))


def _correlations(arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    found = {}
    for name in sorted(arrays):
        epoch = name.removeprefix("sample_losses_")
        own = arrays.get(f"sample_objectives_{epoch}")
        if epoch != name and own is not None:
            bce = np.asarray(arrays[name], dtype=np.float64)
            if bce.std() > 0 and own.std() > 0:
                found[epoch] = round(float(np.corrcoef(bce, own)[0, 1]), 6)
    return found


def loss_quantiles(arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the quantiles of the samples' losses by epoch and number of minority labels.

    Reads ``sample_losses_<epoch>`` and ``minority_counts``; three and more minority labels are one
    group, because few samples have them. The levels are `PERCENT`.

    Examples
    --------
    >>> kept = {"sample_losses_30": np.array([0.1, 0.3, 0.9]), "minority_counts": np.array([0, 0, 1])}
    >>> rows = loss_quantiles(kept)
    >>> [(row["epoch"], row["minority_labels"], row["quantiles"][49]) for row in rows]
    [(30, 0, 0.2), (30, 1, 0.9)]
    """
    counts = arrays.get("minority_counts")
    if counts is None:
        return []
    group = np.minimum(counts, 3)
    rows = []
    for name in sorted(arrays):
        if not re.fullmatch(r"sample_losses_\d+", name):
            continue
        for count in np.unique(group):
            losses = arrays[name][group == count].astype(np.float64)
            rows.append(
                {
                    "epoch": int(name.rpartition("_")[2]),
                    "minority_labels": int(count),
                    "samples": len(losses),
                    "quantiles": np.percentile(losses, PERCENT).round(6).tolist(),
                }
            )
    return rows
