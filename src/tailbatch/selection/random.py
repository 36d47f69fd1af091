"""Strategies that look at no losses: shuffled epochs, uniform batches, batches balanced by rarity."""

from typing import Any, Unpack

import numpy as np

from tailbatch.errors import SelectionError
from tailbatch.imbalance import imbalance_ratio
from tailbatch.seeds import stream
from tailbatch.selection.base import Selector, Settings
from tailbatch.selection.drawing import StaticLaw, UniformLaw
from tailbatch.selection.inputs import FloatArray, IntArray, LabelMatrix, label_matrix, whole_number
from tailbatch.selection.loss_driven import LawSelector, LawSettings


class ShuffledEpochs:
    """Each epoch a fresh permutation of all samples, cut into batches.

    Parameters
    ----------
    n_samples, seed
        What to shuffle, and the seed.
    purpose
        Name of the random stream; the order of an epoch depends only on it, the seed and the epoch.
    shuffle
        False keeps the samples in their order, as the authors' script does.

    Examples
    --------
    >>> ShuffledEpochs(5, seed=0, purpose="warm_up", shuffle=False).batch(0, start=3, size=2)
    array([3, 4])
    """

    def __init__(self, n_samples: int, *, seed: int, purpose: str, shuffle: bool) -> None:
        self._n_samples, self._seed, self._purpose = n_samples, seed, purpose
        self._shuffle = shuffle
        self._order: tuple[int, IntArray] | None = None

    def batch(self, epoch: int, start: int, size: int) -> IntArray:
        """Return `size` samples of an epoch's order from `start` on."""
        if not self._shuffle:
            return np.arange(start, start + size)
        if self._order is None or self._order[0] != epoch:
            self.forget()  # so that two permutations never exist at once
            rng = stream(self._seed, self._purpose, epoch)
            self._order = epoch, rng.permutation(self._n_samples)
        return self._order[1][start : start + size].copy()

    def forget(self) -> None:
        """Give back the memory of the current order."""
        self._order = None


class RandomSelector(Selector):
    """Plain shuffled epochs: every sample once, in random order.

    Parameters
    ----------
    n_samples
        n, the number of training samples.
    shuffle
        False keeps the samples in their order.
    **settings
        As for `Selector`.

    Examples
    --------
    >>> [batch.tolist() for batch in RandomSelector(5, batch_size=2, seed=0)]
    [[4, 1], [0, 3], [2]]
    """

    strategy: str = "random"
    place = 0
    warm_up_by_default = 0

    def __init__(
        self, n_samples: int, *, shuffle: bool = True, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(n_samples, **settings)
        self._shuffle = shuffle
        self._epochs = ShuffledEpochs(
            self.n_samples, seed=self.seed, purpose="shuffle", shuffle=shuffle
        )

    def _draw(self, size: int, epoch: int, number: int) -> IntArray:
        return self._epochs.batch(epoch, number * self.batch_size, size)

    def _probabilities(self, epoch: int) -> FloatArray:
        return np.full(self.n_samples, 1 / self.n_samples)

    def _settings(self) -> dict[str, Any]:
        return {"shuffle": self._shuffle}


class UniformSelector(LawSelector):
    """Independent batches in which every sample is equally likely: selection pressure 1.

    Against `RandomSelector` it shows what drawing batches independently does by itself.

    Parameters
    ----------
    n_samples
        n, the number of training samples.
    **settings
        As for `LawSelector`.

    Examples
    --------
    >>> [len(batch) for batch in UniformSelector(5, batch_size=2)]
    [2, 2, 1]
    """

    strategy: str = "uniform"
    place = 1
    warm_up_by_default = 0

    def __init__(self, n_samples: int, **settings: Unpack[LawSettings]) -> None:
        super().__init__(UniformLaw(whole_number("n_samples", n_samples, least=1)), **settings)


class BalancedSelector(LawSelector):
    """Samples with rare labels are drawn more often, whatever their losses.

    Parameters
    ----------
    Y
        Label matrix (n, q), dense or sparse.
    power
        p_i is proportional to the largest ``IRLbl_j^power`` over the labels of sample i, and to 1
        for a sample without labels. 0 is uniform.
    **settings
        As for `LawSelector`.

    Examples
    --------
    >>> selector = BalancedSelector([[1, 0], [1, 0], [1, 0], [1, 1], [0, 0]], batch_size=2)
    >>> selector.probabilities().round(3).tolist()
    [0.167, 0.167, 0.167, 0.333, 0.167]
    """

    strategy: str = "balanced"
    place = 2
    warm_up_by_default = 0

    def __init__(self, Y: object, *, power: float = 0.5, **settings: Unpack[LawSettings]) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(StaticLaw(rarity(labels, power)), **settings)
        self._power = power

    def _settings(self) -> dict[str, Any]:
        return {"power": self._power, **super()._settings()}


def rarity_of_labels(Y: LabelMatrix, power: float) -> FloatArray:
    """Return ``IRLbl_j^power``, shape (q,), and 0 for a label without positives.

    Examples
    --------
    >>> rarity_of_labels(np.array([[True, False, True], [True, False, False]]), power=1.0)
    array([1., 0., 2.])
    """
    if not (np.isfinite(power) and power >= 0):
        raise SelectionError(f"power must be finite and >= 0, got {power} (0 ignores rarity)")
    ratio = imbalance_ratio(Y)
    return np.where(np.isfinite(ratio), ratio, 0.0) ** power * np.isfinite(ratio)


def rarity(Y: LabelMatrix, power: float) -> FloatArray:
    """Return the largest ``IRLbl_j^power`` over the labels of each sample, at least 1, shape (n,).

    Examples
    --------
    >>> rarity(np.array([[True, True], [True, False], [False, False]]), power=1.0)
    array([2., 1., 1.])
    """
    of_labels = rarity_of_labels(Y, power)
    largest = np.ones(Y.shape[0])
    # Rows of nonzero entries come sorted for CSR and dense alike.
    rows, labels = Y.nonzero()
    np.maximum.at(largest, rows, of_labels[labels])
    return largest
