"""Our own selection: samples whose rare labels the model still misses."""

from typing import Any, Literal, Unpack

import numpy as np
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import FloatArray, IntArray, LabelMatrix, dense_rows, label_matrix
from tailbatch.selection.loss_driven import LossDrivenSelector, LossSettings
from tailbatch.selection.random import rarity_of_labels
from tailbatch.selection.ranking import RankLaw
from tailbatch.selection.schedule import Schedule, as_schedule


class MissedRareLabels:
    """The score ``sum over the labels j of sample i of IRLbl_j^power * loss_ij``.

    It needs the loss of each label, (b, q). A sample without labels has score 0. The labels of each
    sample are added one after the other, so that its score does not depend on the batch around it.

    Parameters
    ----------
    Y
        Label matrix (n, q).
    power
        How much rarity counts; 0 counts all present labels alike.

    Examples
    --------
    >>> score = MissedRareLabels(np.array([[True, False], [True, True]]), power=1.0)
    >>> score(np.array([[0.5, 9.0], [0.5, 0.25]]), np.array([0, 1]))
    array([0.5, 1. ])
    """

    def __init__(self, Y: LabelMatrix, power: float) -> None:
        self._labels = Y
        self._rarity = rarity_of_labels(Y, power)

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the weighted sum of the losses of the labels that each sample has."""
        expected = (len(index), len(self._rarity))
        if losses.shape != expected:
            raise SelectionError(
                f"this strategy needs the loss of each label, shape {expected}, got {losses.shape}; "
                'hand over binary_cross_entropy_with_logits(..., reduction="none") as it is'
            )
        place = np.flatnonzero(dense_rows(self._labels, index))
        row, label = np.divmod(place, len(self._rarity))
        # Not a matrix product: BLAS adds in another order at another place of the batch.
        missed = losses.ravel()[place] * self._rarity[label]
        return np.bincount(row, missed, minlength=len(index)).astype(np.float64, copy=False)


class MinoritySelector(LossDrivenSelector):
    """Probabilities from the rank of how badly rare and present labels are missed.

    Parameters
    ----------
    Y
        Label matrix (n, q) of the training rows.
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
        **settings: Unpack[LossSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(
            labels.shape[0],
            score=MissedRareLabels(labels, power),
            law=RankLaw(),
            selection_pressure=as_schedule(selection_pressure, labels),
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
