"""What held-out scores decide: probabilities, thresholds, and what to expect of new rows."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from tailbatch.data import MultiLabelDataset, stratified_parts
from tailbatch.errors import DataError, did_you_mean, markdown_escaped, setting
from tailbatch.imbalance import positive_weights
from tailbatch.metrics import auc_by_label, by_label, evaluate
from tailbatch.metrics.held_out import (
    Calibration,
    f_intervals,
    parse_objective,
    thresholds_for,
)
from tailbatch.metrics.scored import dense_labels

_log = logging.getLogger(__name__)

_PARTS = (
    5  # that validation rows are dealt to, to judge thresholds on rows that did not choose them
)
_NAMED = 8  # labels that a sentence names
_LEVELS = (1, 10, 30, 100, 300, 1000)  # positives
_RANKING = ("macro_auc", "macro_average_precision", "minority_average_precision")
_DECIDED = ("macro_f", "minority_macro_f", "hamming_loss")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows with the probabilities of members that have not seen them.

    Parameters
    ----------
    rows
        The validation rows, or all training rows.
    minority
        (q,) which labels are rare in the training rows.
    probabilities
        (n, q), calibrated.
    part
        (n,) the part of each row; None deals the rows to parts.
    """

    rows: MultiLabelDataset
    minority: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    part: NDArray[np.int64] | None

    @classmethod
    def of(
        cls,
        rows: MultiLabelDataset,
        minority: NDArray[np.bool_],
        logits: NDArray[np.float32],
        part: NDArray[np.int64] | None,
        *,
        calibrated: bool,
    ) -> tuple[Self, Calibration | None]:
        """Return the rows with probabilities, and the map from logits to them, if it is asked for."""
        values, calibration = logits.astype(np.float64), None
        if calibrated:
            known = None if rows.missing is None else ~dense_labels(rows.missing)
            calibration = Calibration.fit(rows.Y, values, known)
            values = calibration(values)
        return cls(rows, minority, expit(values), part), calibration

    @property
    def labels(self) -> NDArray[np.bool_]:
        """The labels (n, q), 0 where they are missing."""
        return dense_labels(self.rows.Y)

    @property
    def known(self) -> NDArray[np.bool_] | None:
        """Which labels are known (n, q), None for all."""
        return None if self.rows.missing is None else ~dense_labels(self.rows.missing)

    @property
    def counted(self) -> NDArray[np.float64]:
        """The probabilities, 0 where the label is missing.

        Probability 0 is never predicted, and a 0 in Y that is not predicted counts nowhere.
        """
        known = self.known
        return self.probabilities if known is None else np.where(known, self.probabilities, 0)

    @property
    def learnable(self) -> NDArray[np.bool_]:
        """(q,) whether a label has two positives: with one, the member that scores it has seen none."""
        least = 1 if self.part is None else 2
        return np.asarray(self.labels.sum(axis=0) >= least)

    def thresholds(self, objectives: Sequence[str]) -> NDArray[np.float64]:
        """Return the threshold of each label for its objective, (q,)."""
        # A positive that no member could know of says nothing: its label takes the common threshold.
        lonely = np.flatnonzero(~self.learnable & self.labels.any(axis=0))
        if lonely.size:
            _log.warning(
                "%s label%s a single positive, which no held-out score can find: the threshold is the "
                "common one, among them of %r",
                f"{lonely.size:,}",
                " has" if lonely.size == 1 else "s have",
                self.rows.label_names[lonely[0]],
            )
        return tuned(self.labels & self.learnable, self.counted, objectives)

    def judged(
        self, thresholds: NDArray[np.float64], objectives: Sequence[str] | None
    ) -> dict[str, Any]:
        """Return metrics over labels, and by label, as plain values; None for thresholds not tuned here.

        Tuned thresholds look best on the rows that chose them, so each part is decided by thresholds
        of the other parts.
        """
        labels, scores = self.labels, self.counted
        decided = scores > thresholds
        part = self._parts() if objectives is not None else None
        if part is not None:
            for number in np.unique(part):
                inside = part == number
                others = labels[~inside] & self.learnable
                limits = tuned(others, scores[~inside], objectives or ())
                decided[inside] = scores[inside] > limits
        table = by_label(labels, scores, thresholds)
        table |= {
            name: values
            for name, values in by_label(labels, decided.astype(np.float64)).items()
            if name in ("precision", "recall", "f")
        }
        table["f_low"], table["f_high"] = f_intervals(labels, decided)
        if self.known is not None:
            table["auc"] = self._auc_where_known(labels)
        given: dict[str, Any] = {"minority": self.minority, "missing": self.rows.missing}
        metrics = evaluate(labels, self.probabilities, only=_RANKING, **given)
        metrics |= evaluate(labels, decided.astype(np.float64), only=_DECIDED, **given)
        return {
            "by_label": {name: values.tolist() for name, values in table.items()},
            "metrics": metrics,
        }

    def _parts(self) -> NDArray[np.int64] | None:
        """Return the part of each row, or None for fewer rows than two."""
        if self.part is not None or self.rows.n_samples < 2:
            return self.part
        n_parts = min(_PARTS, self.rows.n_samples)
        return stratified_parts(self.rows.Y, n_parts=n_parts, seed=0)

    def _auc_where_known(self, labels: NDArray[np.bool_]) -> NDArray[np.float64]:
        known: Any = self.known
        columns = [
            auc_by_label(labels[rows, j : j + 1], self.probabilities[rows, j : j + 1])[0]
            if rows.any()
            else np.nan
            for j, rows in enumerate(known.T)
        ]
        return np.array(columns)


def tuned(
    labels: NDArray[np.bool_], probabilities: NDArray[np.float64], objectives: Sequence[str]
) -> NDArray[np.float64]:
    """Return each label's threshold for its own objective, (q,).

    Examples
    --------
    >>> labels, probabilities = np.eye(2, dtype=bool), np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> tuned(labels, probabilities, ["recall>=0.8", "precision>=0.8"]).round(2)
    array([0.2, 0.8])
    """
    thresholds = np.zeros(len(objectives))
    for objective in set(objectives):
        chosen = np.array([each == objective for each in objectives])
        # All labels help to find a common threshold for F, also for those with another objective.
        thresholds[chosen] = thresholds_for(labels, probabilities, objective)[chosen]
    return thresholds


def objectives_of(objective: Any, names: Sequence[str]) -> list[str]:
    """Return the objective of each label; a table gives some of them by name, the others have F.

    Examples
    --------
    >>> objectives_of({"bug": "recall>=0.8"}, ["bug", "billing"])
    ['recall>=0.8', 'f1']
    """
    if isinstance(objective, Mapping):
        for name in objective:
            if name not in names:
                raise DataError(f"objective: unknown label {name!r:.60}{did_you_mean(name, names)}")
        each = [objective.get(name, "f1") for name in names]
    elif isinstance(objective, list | tuple):
        if len(objective) != len(names):
            raise DataError(
                f"objective must have one entry for each of {len(names)} labels, got {len(objective)}"
            )
        each = list(objective)
    else:
        each = [objective] * len(names)
    for entry in each:
        parse_objective(entry)
    return each


def decision_said(
    facts: Mapping[str, Any], thresholds: NDArray[np.float64], *, is_binary: bool
) -> str:
    """Return a sentence on what `predict` will do, and what to expect of it."""
    if is_binary:
        return f"predict chooses the second class above a probability of {thresholds[0]:.3g}."
    low, high = thresholds.min(), thresholds.max()
    which = f"above a probability of {low:.2g}"
    if low < high:
        which = f"above its own probability, {low:.2g} to {high:.2g}"
    said = f"predict gives a row each label {which}"
    if facts["tuned_for"]:
        names = sorted(set(facts["tuned_for"]))
        said += f", tuned for {' and '.join(names)} on {facts['held_out_rows']:,} held-out rows"
    if "metrics" in facts:
        expected = facts["metrics"]
        said += f"; expect a Macro-F of {expected['macro_f']:.2f}"
        if expected["minority_macro_f"] == expected["minority_macro_f"]:
            said += f", and {expected['minority_macro_f']:.2f} on rare labels"
    return f"{said}."


def learning_said(facts: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return sentences on the labels that cannot be learned yet, and on what more positives are worth."""
    table = {name: np.asarray(values) for name, values in facts["by_label"].items()}
    positives, f = table["support"], table["f"]
    lines = [
        "Precision, recall and F are what to expect of new rows: members that have not seen a row scored "
        "it, and thresholds of other rows decided."
    ]
    unlearned = np.flatnonzero((positives > 0) & ~(table["f_low"] > 0))
    if unlearned.size:
        rarest = unlearned[np.argsort(positives[unlearned], kind="stable")][:_NAMED]
        named = ", ".join(f"{markdown_escaped(names[j])} ({positives[j]:.0f})" for j in rarest)
        more = "" if len(unlearned) <= _NAMED else f" and {len(unlearned) - _NAMED:,} more"
        plural = "s" if len(unlearned) > 1 else ""
        lines.append(
            f"{len(unlearned):,} label{plural} cannot be learned yet (an F of 0 is within the interval; "
            f"positives in brackets): {named}{more}."
        )
    steps = [
        f"{np.median(f[chosen]):.2f} with {low:,} to {high - 1:,} positives"
        for low, high in pairwise(_LEVELS)
        if (chosen := (positives >= low) & (positives < high)).any()
    ]
    if len(steps) > 1:
        lines.append(
            f"What more positives are worth, by the median F of the labels here: {', '.join(steps)}."
        )
    return lines


def decided_thresholds(
    given: NDArray[np.float64] | None,
    costs: NDArray[np.float64] | None,
    held_out: HeldOut | None,
    objectives: Sequence[str],
) -> NDArray[np.float64]:
    """Return the probability above which each label is predicted, (q,).

    Parameters
    ----------
    given
        What the user asked for, made cheaper by `costs`; None tunes them on held-out rows.
    costs
        (q,) how much more missing a label costs than a false alarm; None for as much.
    held_out
        Rows that no weight was trained on; None without such rows.
    objectives
        What the threshold of each label is tuned for.
    """
    if given is not None:
        return given if costs is None else _costly_thresholds(given, costs)
    if held_out is None:
        raise DataError(
            f"{setting('thresholds', 'tuned')} needs rows to hold out, and there is only one row or group"
        )
    return held_out.thresholds(objectives)


def weights_of_positives(
    class_weight: Any, train: MultiLabelDataset, classes: NDArray[Any] | None = None
) -> NDArray[np.float64] | None:
    """Return what the positives of each label weigh against its negatives, (q,); None for all the same.

    Parameters
    ----------
    class_weight
        None; ``"balanced"``, negatives over positives of the training rows; for many labels a table from
        names of labels (or columns) to weights of their positives, q such weights, or scikit-learn's list
        of a table ``{0: ..., 1: ...}`` per label; for two classes a table from class to weight.
    train
        The training rows.
    classes
        The two classes of a one-dimensional Y.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    >>> train = MultiLabelDataset.from_arrays(np.eye(4), Y, label_names=["bug", "billing"])
    >>> weights_of_positives("balanced", train).tolist()
    [3.0, 1.0]
    >>> weights_of_positives({"bug": 5}, train).tolist()
    [5.0, 1.0]
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(
                f'class_weight must be "balanced", a table or a list, got {class_weight!r:.60}'
            )
        return positive_weights(train.Y, power=1.0, missing=train.missing)
    if classes is not None:
        names = classes.tolist()  # Python's own values, as a table has them for keys
        negative, positive = _by_name(class_weight, names, "class")
        return np.array([positive / negative])
    labels = list(train.label_names)
    if isinstance(class_weight, Mapping):
        # Scikit-learn's tables have columns for keys, ours names.
        named = {
            labels[key] if isinstance(key, int) and 0 <= key < len(labels) else key: value
            for key, value in class_weight.items()
        }
        return _by_name(named, labels, "label")
    return _by_position(class_weight, len(labels))


def _costly_thresholds(
    thresholds: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probabilities above which a label is worth predicting if missing it costs w times more.

    logit t' = logit t - log w: with t = 0.5 a label is predicted where p w > 1 - p.

    Examples
    --------
    >>> _costly_thresholds(np.array([0.5]), np.array([3.0]))
    array([0.25])
    """
    return np.asarray(expit(logit(thresholds) - np.log(weights)))


def _by_name(table: Any, names: Sequence[Any], what: str) -> NDArray[np.float64]:
    if not isinstance(table, Mapping):
        raise DataError(f"class_weight must be a table from {what} to weight, got {table!r:.60}")
    for key in table:
        if key not in names:
            raise DataError(
                f"class_weight: unknown {what} {key!r:.60}{did_you_mean(key, map(str, names))}"
            )
    return _checked([table.get(name, 1) for name in names], table)


def _by_position(values: Any, n_labels: int) -> NDArray[np.float64]:
    listed = list(values) if hasattr(values, "__iter__") else []
    if len(listed) != n_labels:
        raise DataError(
            f"class_weight must have one entry for each of {n_labels} labels, got {len(listed)}"
        )
    if all(isinstance(entry, Mapping) for entry in listed):
        # Only the ratio counts: a false alarm costs 1.
        pairs = [_by_name(entry, [0, 1], "class") for entry in listed]
        return np.array([positive / negative for negative, positive in pairs])
    return _checked(listed, values)


def _checked(values: Sequence[Any], given: Any) -> NDArray[np.float64]:
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(1)  # refused below
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(f"class_weight must hold finite numbers above 0, got {given!r:.60}")
    return weights
