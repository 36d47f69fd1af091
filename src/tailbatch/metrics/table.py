"""The table of metrics and their facts, and a function that computes them all."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tailbatch.data.dataset import LabelMatrix
from tailbatch.imbalance import rare_labels
from tailbatch.metrics import decisions, ranking
from tailbatch.metrics.scored import FloatArray, Scored, dense_labels
from tailbatch.seeds import BoolArray


@dataclass(frozen=True)
class Metric:
    """A metric and its facts.

    Parameters
    ----------
    title
        Its name in tables.
    function
        Called with (Y, scores) or (Y, predictions), depending on `needs`, and with the mask of
        minority labels if `minority` is true.
    needs
        Whether it uses scores or predicted labels.
    range
        Lowest and highest value; None stands for the number of labels.
    empty_labels, empty_rows, ties
        How labels without positives, rows without labels, and equal scores are treated.
    minority
        Whether it covers only the minority labels.
    averages
        The units it averages over: ``"labels"``, ``"rows"``, or all (row, label) ``"cells"`` together.
    legacy
        Whether it is a published script's reading of another metric, kept to compare with that paper.

    Examples
    --------
    >>> METRICS["ranking_loss"].higher_is_better
    False
    """

    title: str
    function: Callable[..., float]
    needs: Literal["scores", "predictions"]
    higher_is_better: bool
    range: tuple[float, float | None] = (0, 1)
    empty_labels: str = "count like others"
    empty_rows: str = "count like others"
    ties: str = "no influence"
    minority: bool = False
    averages: Literal["labels", "rows", "cells"] = "labels"
    legacy: bool = False


_HALF = "a tied pair counts one half"
_EXPECTED = "expected value over random orders of equal scores"
_TOGETHER = "equal scores are taken together"
_LEFT_OUT = "left out of the mean; nan if none is left"
_ZERO_F = "F is 0, averaged in"

_by_scores = partial(Metric, needs="scores", higher_is_better=True)
_by_row = partial(_by_scores, averages="rows")
_by_predictions = partial(Metric, needs="predictions", higher_is_better=True)

METRICS: dict[str, Metric] = {
    "macro_f": _by_predictions("Macro-F", decisions.macro_f, empty_labels=_ZERO_F),
    "micro_f": _by_predictions("Micro-F", decisions.micro_f, averages="cells"),
    "macro_auc": _by_scores(
        "Macro-AUC",
        ranking.macro_auc,
        empty_labels="left out of the mean, as are labels every row has; nan if none is left",
        ties=_HALF,
    ),
    "ranking_loss": _by_row(
        "Ranking loss",
        ranking.ranking_loss,
        higher_is_better=False,
        empty_rows="loss 0, averaged in, as for rows with every label",
        ties="a tied pair is an error",
    ),
    "hamming_loss": _by_predictions(
        "Hamming loss", decisions.hamming_loss, higher_is_better=False, averages="cells"
    ),
    "one_error": _by_row(
        "One error",
        ranking.one_error,
        higher_is_better=False,
        empty_rows="always an error",
        ties=_EXPECTED,
    ),
    "subset_accuracy": _by_predictions(
        "Subset accuracy", decisions.subset_accuracy, averages="rows"
    ),
    "example_f": _by_predictions(
        "Example-F",
        decisions.example_f,
        averages="rows",
        empty_rows="F is 0 even if nothing is predicted",
    ),
    "coverage": _by_row(
        "Coverage",
        ranking.coverage,
        higher_is_better=False,
        range=(0, None),
        empty_rows="depth 0, averaged in",
        ties="equal labels must all be read",
    ),
    "macro_average_precision": _by_scores(
        "Macro average precision",
        ranking.macro_average_precision,
        empty_labels=_LEFT_OUT,
        ties=_TOGETHER,
    ),
    "micro_average_precision": _by_scores(
        "Micro average precision",
        ranking.micro_average_precision,
        averages="cells",
        empty_labels="count like others; nan if no label has a positive",
        ties=_TOGETHER,
    ),
    "label_ranking_average_precision": _by_row(
        "Label ranking average precision",
        ranking.label_ranking_average_precision,
        empty_rows="precision 1",
        ties=_TOGETHER,
    ),
    **{
        f"precision_at_{k}": _by_row(
            f"Precision at {k}",
            partial(ranking.precision_at_k, k=k),
            empty_rows="precision 0",
            ties=_EXPECTED,
        )
        for k in (1, 3, 5)
    },
    **{
        f"ndcg_at_{k}": _by_row(
            f"nDCG at {k}", partial(ranking.ndcg_at_k, k=k), empty_rows="gain 0", ties=_EXPECTED
        )
        for k in (1, 3, 5)
    },
    "minority_macro_f": _by_predictions(
        "Minority Macro-F", decisions.macro_f, empty_labels=_ZERO_F, minority=True
    ),
    "minority_average_precision": _by_scores(
        "Minority average precision",
        ranking.macro_average_precision,
        empty_labels=_LEFT_OUT,
        ties=_TOGETHER,
        minority=True,
    ),
    "expected_calibration_error": _by_scores(
        "Expected calibration error",
        ranking.expected_calibration_error,
        averages="cells",
        higher_is_better=False,
        ties="equal scores share a bin",
    ),
    "macro_auc_legacy": _by_scores(
        "Macro-AUC (legacy)",
        partial(ranking.macro_auc, legacy=True),
        legacy=True,
        empty_labels="AUC 0, averaged in, as for labels every row has",
        ties="a tied pair is a success",
    ),
    "one_error_legacy": _by_row(
        "One error (legacy)",
        partial(ranking.one_error, legacy=True),
        legacy=True,
        higher_is_better=False,
        empty_rows="always an error",
        ties="the first of equal labels is on top",
    ),
}
"""Every metric by name; the first six are the paper's."""

TUNED = "tuned_"
"""What the name of a metric begins with if its thresholds were tuned on validation rows."""


def metric_facts(name: str) -> Metric:
    """Return the facts of a metric, also where its thresholds were tuned on validation rows.

    Examples
    --------
    >>> metric_facts("macro_f").title, metric_facts("tuned_macro_f").title
    ('Macro-F', 'Macro-F, tuned')
    """
    if name in METRICS or not name.startswith(TUNED):
        return METRICS[name]
    plain = METRICS[name.removeprefix(TUNED)]
    return replace(plain, title=f"{plain.title}, tuned")


def evaluate(
    Y: LabelMatrix,
    scores: FloatArray,
    *,
    minority: BoolArray | None = None,
    thresholds: npt.ArrayLike = 0.5,
    only: Collection[str] | None = None,
    missing: LabelMatrix | None = None,
) -> dict[str, float]:
    """Return the metrics by name, in the order of `METRICS`, sorting only once in each direction.

    Parameters
    ----------
    Y, scores
        (n, q) labels, and scores in [0, 1]; anything else is an error that names row and label.
    minority
        (q,) which labels were rare in training; None takes those that are rare in Y
        (`tailbatch.imbalance.rare_labels`).
    thresholds
        One for all labels, or one per label; a label is predicted if its score is above it.
    only
        Names of the metrics to compute; None means all but the legacy ones.
    missing
        (n, q) labels that are unknown: no metric counts them. A metric over labels uses the rows where
        the label is known, one over rows uses the known labels of the row.

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    >>> metrics = evaluate(Y, np.array([[0.9, 0.2], [0.3, 0.8], [0.7, 0.4]]))
    >>> metrics["macro_auc"], round(metrics["macro_f"], 3), round(metrics["hamming_loss"], 3)
    (1.0, 0.833, 0.167)
    """
    case = Scored(Y, scores)
    given: dict[str, Any] = {
        "scores": case if missing is None else case.values,
        "predictions": decisions.decide(case.values, thresholds),
    }
    minority = rare_labels(case.labels) if minority is None else minority
    known = None if missing is None else ~dense_labels(missing)

    def measured(metric: Metric) -> float:
        values = given[metric.needs]
        if known is not None:
            return _over_known(metric, case.labels, values, known, minority)
        return metric.function(case.labels, values, *([minority] if metric.minority else []))

    return {
        name: measured(metric)
        for name, metric in METRICS.items()
        if (name in only if only is not None else not metric.legacy)
    }


def _over_known(
    metric: Metric, labels: BoolArray, values: Any, known: BoolArray, minority: BoolArray
) -> float:
    """Return a metric over parts in which every label is known, averaged; ``nan`` if none is left.

    The parts are the known rows of each label, groups of rows with the same known labels, or all known
    cells as one label.
    """
    if metric.averages == "cells":
        return metric.function(labels[known][:, None], values[known][:, None])
    if metric.averages == "labels":
        chosen = minority if metric.minority else np.ones(known.shape[1], dtype=bool)
        columns = np.flatnonzero(chosen)
        parts = [(np.flatnonzero(known[:, column]), np.array([column])) for column in columns]
    else:
        patterns, pattern_of = np.unique(known, axis=0, return_inverse=True)
        parts = [
            (np.flatnonzero(pattern_of.ravel() == at), np.flatnonzero(pattern))
            for at, pattern in enumerate(patterns)
        ]
    results = []
    for rows, of in parts:
        if len(rows) and len(of):
            part, every = np.ix_(rows, of), [np.ones(len(of), bool)] * metric.minority
            # A group counts as often as it has rows, a label once.
            count = len(rows) if metric.averages == "rows" else 1
            results.append((metric.function(labels[part], values[part], *every), count))
    defined = [(value, count) for value, count in results if not np.isnan(value)]
    total = sum(count for _, count in defined)
    return sum(value * count for value, count in defined) / total if total else float("nan")
