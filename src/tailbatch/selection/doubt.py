"""Strategies that prefer samples the model has not made up its mind about."""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import (
    FloatArray,
    IntArray,
    LabelMatrix,
    in_fixed_order,
    label_matrix,
    last_of_each,
    state_array,
    whole_number,
)
from tailbatch.selection.loss_driven import LawSettings, LossDrivenSelector, LossSettings
from tailbatch.selection.predictions import (
    binary_entropy,
    check_memory,
    checked_label_losses,
    predictions_of,
)
from tailbatch.selection.quantization import LowScoreLaw
from tailbatch.selection.schedule import Schedule

_MOST_DECISIONS = 15  # bits of a non-negative int16


class BoundaryDistance:
    """The score ``mean over labels of |p_ij - 0.5|``: how far a sample is from the decision boundary.

    Parameters
    ----------
    Y
        Label matrix (n, q).

    Examples
    --------
    >>> score = BoundaryDistance(np.array([[True, False]]))
    >>> score(np.log([[4.0, 2.0]]), np.array([0]))
    array([0.125])
    """

    def __init__(self, Y: LabelMatrix) -> None:
        self._labels = Y

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the mean distance of each sample."""
        checked_label_losses(losses, index, self._labels.shape[1], "boundary")
        distances = np.abs(predictions_of(losses, self._labels, index) - 0.5)
        return np.asarray(in_fixed_order(distances).mean(axis=1))


class BoundarySelector(LossDrivenSelector):
    """Samples near the decision boundary are drawn most often (Ada-Boundary).

    ``p_i`` is proportional to ``s_e^(-Q_i / n)`` with ``Q_i = ceil(n d_i / max(d))`` and d of
    `BoundaryDistance` (Song et al., ECML PKDD 2020; for several labels the mean over them).

    Parameters
    ----------
    Y
        Label matrix (n, q) of the training rows.
    selection_pressure
        s_e: how much likelier a sample on the boundary is than the one farthest away.
    **settings
        As for `LossDrivenSelector`. `observe` takes per-label losses (b, q) only.

    Examples
    --------
    >>> selector = BoundarySelector([[1], [0]], batch_size=2, selection_pressure=4)
    >>> for index in selector:
    ...     selector.observe(np.log([[2.0], [1.0]])[index])
    >>> selector.probabilities()
    array([0.8, 0.2])
    """

    strategy: str = "boundary"
    default_pressure = 16.0
    place = 11

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule = 16,
        **settings: Unpack[LossSettings],
    ) -> None:
        labels = label_matrix(Y)
        settings.setdefault("labels", labels)
        super().__init__(
            labels.shape[0],
            score=BoundaryDistance(labels),
            law=LowScoreLaw(),
            selection_pressure=selection_pressure,
            **settings,
        )
        self._Y = labels

    def _settings(self) -> dict[str, Any]:
        settings = {**super()._settings(), "score": BoundaryDistance}
        return {**settings, "Y": sparse.csr_array(self._Y)}


class RecentSettings(LawSettings, total=False):
    """Keyword settings of `RecencySelector`."""

    epochs: int | None


class DecisionHistory:
    """The score ``1 - mean over labels of H2(share of positive decisions in the window)``.

    A decision is positive where the predicted probability is at least 0.5. The decisions of a sample
    about a label are the bits of one number: ``2 n q`` bytes for windows of up to 15.

    Parameters
    ----------
    Y
        Label matrix (n, q).
    window
        How many decisions count.

    Examples
    --------
    >>> history = DecisionHistory(np.array([[True]]), window=2)
    >>> sure, unsure = np.array([[0.1]]), np.array([[3.0]])
    >>> for losses in (sure, unsure):
    ...     print(history(losses, np.array([0])))
    ...     history.remember(losses, np.array([0]))
    [1.]
    [0.]
    """

    def __init__(self, Y: LabelMatrix, window: int) -> None:
        self._labels, self._window = Y, window
        self.decisions = np.zeros(Y.shape, dtype=np.int16)
        self.seen = np.zeros(Y.shape[0], dtype=np.uint8)

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the scores of samples as they are when these losses count too."""
        decisions, seen = self._after(losses, index)
        share = np.bitwise_count(decisions) / seen[:, None]
        certainty = 1 - in_fixed_order(binary_entropy(share)).mean(axis=1)
        return np.asarray(np.maximum(certainty, 0.0))

    def remember(self, losses: FloatArray, index: IntArray) -> None:
        """Take in the decisions behind the losses of distinct samples."""
        self.decisions[index], self.seen[index] = self._after(losses, index)

    def _after(
        self, losses: FloatArray, index: IntArray
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8]]:
        checked_label_losses(losses, index, self._labels.shape[1], "recency")
        positive = predictions_of(losses, self._labels, index) >= 0.5
        kept = self.decisions[index] & ((1 << (self._window - 1)) - 1)
        decisions = ((kept << 1) | positive).astype(np.int16)
        seen = np.minimum(self.seen[index] + 1, self._window).astype(np.uint8)
        return decisions, seen


class RecencySelector(LossDrivenSelector):
    """Samples whose recent predictions keep changing are drawn most often (Recency Bias).

    ``p_i`` is proportional to ``s_e^(-Q_i / n)`` with ``Q_i = ceil(n (1 - U_i))`` and U_i the mean over
    labels of the entropy of the last decisions (Song et al., CIKM 2020; see `DecisionHistory`).

    Parameters
    ----------
    Y
        Label matrix (n, q) of the training rows.
    selection_pressure
        s_e: how much likelier a sample of highest entropy is than one of none. By default it falls
        from 100 to 1.
    window
        How many of the latest predictions of a sample count, from 1 to 15.
    **settings
        As for `LawSelector`, and ``epochs`` for the schedule. `observe` takes per-label losses (b, q).

    Examples
    --------
    >>> Y = [[1], [1], [1], [1]]
    >>> selector = RecencySelector(Y, batch_size=4, selection_pressure=4)
    >>> for losses in ([0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 3.0]):
    ...     for index in selector:
    ...         selector.observe(np.array(losses)[index][:, None])
    >>> selector.probabilities().round(3).tolist()  # the last sample's prediction has flipped
    [0.143, 0.143, 0.143, 0.571]
    """

    strategy: str = "recency"
    default_pressure = (100.0, 1.0)
    place = 10
    _score: DecisionHistory

    def __init__(
        self,
        Y: object,
        *,
        selection_pressure: float | Schedule | tuple[float, float] = (100, 1),
        window: int = 10,
        **settings: Unpack[RecentSettings],
    ) -> None:
        labels = label_matrix(Y)
        window = whole_number("window", window, least=1)
        if window > _MOST_DECISIONS:
            raise SelectionError(f"window must be at most {_MOST_DECISIONS}, got {window}")
        check_memory("recency", 2 * labels.shape[0] * labels.shape[1], "boundary or minority")
        settings.setdefault("labels", labels)
        super().__init__(
            labels.shape[0],
            score=DecisionHistory(labels, window),
            law=LowScoreLaw(largest=1.0),
            selection_pressure=selection_pressure,
            **settings,
        )
        self._Y, self._window = labels, window

    def _learn(self, losses: FloatArray, index: IntArray) -> FloatArray | None:
        super()._learn(losses, index)
        last = last_of_each(index) if self.corrected else slice(None)
        self._score.remember(losses[last], index[last])
        return None

    def _settings(self) -> dict[str, Any]:
        settings = {**super()._settings(), "score": DecisionHistory, "window": self._window}
        return {**settings, "Y": sparse.csr_array(self._Y)}

    def _own_state(self) -> dict[str, Any]:
        history = self._score
        return {
            **super()._own_state(),
            "decisions": history.decisions.ravel().copy(),
            "seen": history.seen.copy(),
        }

    def _own_loader(self, state: Mapping[str, Any]) -> Callable[[], None]:
        put_scores = super()._own_loader(state)
        history, (n, q) = self._score, self._Y.shape
        most = 2**self._window - 1
        decisions = state_array(state, "decisions", np.int16, n * q, most=most).reshape(n, q)
        seen = state_array(state, "seen", np.uint8, n, most=self._window)

        def commit() -> None:
            put_scores()
            history.decisions, history.seen = decisions, seen

        return commit
