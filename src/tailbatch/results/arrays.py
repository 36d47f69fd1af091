"""The few numbers that a report needs from a run's bulky arrays, so that archives can drop them."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tailbatch.errors import DataError
from tailbatch.results.record import RunRecord
from tailbatch.results.spec import RunSpec

Arrays = Callable[[RunSpec], Mapping[str, np.ndarray]]

#: Levels in percent of the quantiles that summarize the losses of a group of samples.
PERCENT = tuple(range(1, 100))
#: Where a record from an archive keeps the facts derived from its arrays.
ARRAY_FACTS = "array_facts"
#: Why there are no facts: the array file of a run is damaged or gone.
UNREAD = "unread"
_log = logging.getLogger(__name__)


def facts_of(record: RunRecord, arrays: Arrays) -> Mapping[str, Any]:
    """Return the facts that an archive kept with a record, or compute them from its arrays.

    If an array file is damaged or missing, its run loses only the curves drawn from it: the reason is
    logged, and kept as `UNREAD`.

    Examples
    --------
    >>> record = RunRecord(spec=RunSpec(dataset="debtags", dataset_digest="ab12"), validation={},
    ...                    test={}, history=({"number": 1},), best_epoch=1, warm_up_digest="")
    >>> facts_of(record, lambda spec: {})
    {'unread': 'the array file is missing'}
    """
    kept = record.diagnostics.get(ARRAY_FACTS)
    if kept is not None:
        return dict(kept)
    try:
        kept = arrays(record.spec)
        if kept or not record.history:
            return array_facts(record, kept)
        reason, detail = "the array file is missing", "there is no such file"
    except (DataError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason, detail = "the array file is damaged", str(error)
    _log.warning(
        "run %s goes into the report without its arrays: %s (%s)",
        record.spec.digest,
        reason,
        detail,
    )
    return {UNREAD: reason}


def array_facts(record: RunRecord, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return plain values that summarize the arrays kept with a run.

    ``volatility`` is how unsteady the batch objectives are: the mean absolute step between neighboring
    batches after the warm-up, over their mean. ``correlations`` are Pearson's, over the training
    samples, of a sample's BCE and its own loss, by epoch (Figure 6). ``losses`` are the quantiles of
    the samples' BCE by epoch and number of minority labels (Figures 1 and 5). Facts that the arrays do
    not determine are left out.

    Examples
    --------
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

    Reads ``sample_losses_<epoch>`` and ``minority_counts``; three or more minority labels form one
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
