"""What laws that follow the scores of the samples have in common."""

from abc import abstractmethod

import numpy as np

from tailbatch.selection.drawing import Law
from tailbatch.selection.inputs import FloatArray, IntArray


class LossLaw(Law):
    """A law that remembers one score for each sample, infinite for those never seen.

    Everything it knows is in `scores` and `cap`: the rest can be rebuilt, so the saved state is
    small and continuing from it draws the same batches.
    """

    scores: FloatArray
    cap: float = 0.0

    def reset(self, scores: FloatArray, cap: float = 0.0) -> None:
        """Start from these scores, shape (n,), which the law keeps and changes in place."""
        self.n_samples = len(scores)
        self.scores = scores
        self.cap = cap

    @abstractmethod
    def update(self, index: IntArray, scores: FloatArray) -> None:
        """Take in new, finite scores of the distinct samples `index`."""

    def start_epoch(self) -> None:
        """Renew what stays fixed during an epoch; most laws have nothing of the kind."""


def unseen(n_samples: int) -> FloatArray:
    """Return the scores of samples that have no loss yet.

    Examples
    --------
    >>> unseen(2)
    array([inf, inf])
    """
    return np.full(n_samples, np.inf)
