"""Uniform batches, and strategies that prefer rare labels: always, or while the model misses them."""

from typing import Any, Literal, Unpack

import numpy as np
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.imbalance import imbalance_ratio
from tailbatch.seeds import FloatArray, IntArray
from tailbatch.selection.base import Selector, _LawSettings, label_matrix
from tailbatch.selection.drawing import StaticLaw
from tailbatch.selection.inputs import LabelMatrix, _check_per_label, _label_cells
from tailbatch.selection.loss_driven import (
    LossDrivenSelector,
    Schedule,
    _as_schedule,
    _LossSettings,
)


class UniformSelector(Selector):
    """Independent batches in which every sample is equally likely: selection pressure 1.

    Against `RandomSelector` it shows what drawing batches independently does by itself.

    Examples
    --------
    >>> [len(batch) for batch in UniformSelector(5, batch_size=2)]
    [2, 2, 1]
    """

    strategy: str = "uniform"
    place = 1
    warm_up_by_default = 0

    def __init__(self, n_samples: int, **settings: Unpack[_LawSettings]) -> None:
        super().__init__(n_samples, **settings)


class BalancedSelector(Selector):
    """Samples with rare labels are drawn more often, whatever their losses.

    Parameters
    ----------
    power
        p_i is proportional to the largest ``IRLbl_j^power`` over the labels of sample i, and to 1
        for a sample without labels. 0 is uniform.

    Examples
    --------
    >>> selector = BalancedSelector([[1, 0], [1, 0], [1, 0], [1, 1], [0, 0]], batch_size=2)
    >>> selector.probabilities().round(3).tolist()
    [0.167, 0.167, 0.167, 0.333, 0.167]
    """

    strategy: str = "balanced"
    place = 2
    warm_up_by_default = 0

    def __init__(self, Y: object, *, power: float = 0.5, **settings: Unpack[_LawSettings]) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(labels.shape[0], law=StaticLaw(_rarity(labels, power)), **settings)
        self._power = power

    def _settings(self) -> dict[str, Any]:
        return {"power": self._power, **super()._settings()}


def _rarity_of_labels(Y: LabelMatrix, power: float) -> FloatArray:
    """Return ``IRLbl_j^power``, shape (q,), and 0 for a label without positives."""
    if not (np.isfinite(power) and power >= 0):
        raise SelectionError(f"power must be finite and >= 0, got {power} (0 ignores rarity)")
    ratio = imbalance_ratio(Y)
    return np.where(np.isfinite(ratio), ratio, 0.0) ** power * np.isfinite(ratio)


def _rarity(Y: LabelMatrix, power: float) -> FloatArray:
    """Return the largest ``IRLbl_j^power`` over the labels of each sample, at least 1, shape (n,)."""
    of_labels = _rarity_of_labels(Y, power)
    largest = np.ones(Y.shape[0])
    # Rows of nonzero entries come sorted for CSR and dense alike.
    rows, labels = Y.nonzero()
    np.maximum.at(largest, rows, of_labels[labels])
    return largest


class MissedRareLabels:
    """The score ``sum over the labels j of sample i of IRLbl_j^power * loss_ij``.

    It needs the loss of each label, (b, q). A sample without labels has score 0. The labels of each
    sample are added in order, so its score does not depend on the batch around it.

    Examples
    --------
    >>> score = MissedRareLabels(np.array([[True, False], [True, True]]), power=1.0)
    >>> score(np.array([[0.5, 9.0], [0.5, 0.25]]), np.array([0, 1]))
    array([0.5, 1. ])
    """

    def __init__(self, Y: LabelMatrix, power: float) -> None:
        self._labels = Y
        self._rarity = _rarity_of_labels(Y, power)

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the weighted sum of the losses of the labels that each sample has."""
        _check_per_label("this strategy", losses, (len(index), len(self._rarity)))
        row, label = _label_cells(self._labels, index)
        # Not a matrix product: BLAS adds in another order at another place of the batch.
        missed = losses[row, label] * self._rarity[label]
        return np.bincount(row, missed, minlength=len(index)).astype(np.float64, copy=False)


class MinoritySelector(LossDrivenSelector):
    """Probabilities from the rank of how badly rare and present labels are missed.

    Parameters
    ----------
    selection_pressure
        s_e, a number from 1, a schedule, or ``"imbalance"``: MeanIR of the labels, at most 64. On
        validation rows a high pressure helped imbalanced labels and harmed nearly balanced ones, and
        one annealed from 64 to 1 gained about half as much (docs/reproduction.md).
    power
        Exponent of the imbalance ratio in the score.
    **settings
        As for `LossDrivenSelector`. `observe` takes per-label losses (b, q) only.

    Examples
    --------
    >>> Y = [[1, 0], [1, 0], [1, 1], [0, 0]]
    >>> selector = MinoritySelector(Y, batch_size=4)
    >>> for index in selector:
    ...     selector.observe([[0.5, 0.5]] * 4)
    >>> selector.probabilities().argsort().tolist()  # no label, a common label, a rare label
    [3, 0, 1, 2]
    """

    strategy: str = "minority"
    default_pressure = "imbalance"
    place = 6

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule | Literal["imbalance"] = "imbalance",
        power: float = 0.5,
        **settings: Unpack[_LossSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(
            labels.shape[0],
            score=MissedRareLabels(labels, power),
            selection_pressure=_as_schedule(selection_pressure, labels),
            **settings,
        )
        self._Y, self._power = labels, power

    def _settings(self) -> dict[str, Any]:
        return {
            **super()._settings(),
            "score": MissedRareLabels,
            "Y": sparse.csr_array(self._Y),  # the same labels, dense or sparse, are one setting
            "power": self._power,
        }
