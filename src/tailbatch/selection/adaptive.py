"""The paper's selection: quantized losses, weighted by local imbalance."""

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from tailbatch.errors import SelectionError
from tailbatch.selection.inputs import FloatArray, IntArray, as_array
from tailbatch.selection.loss_driven import LossDrivenSelector, LossSettings, mean_loss
from tailbatch.selection.quantization import QuantizationLaw
from tailbatch.selection.schedule import Schedule


class WeightedLoss:
    """The score ``w_i * loss_i`` (Eq. 5).

    Parameters
    ----------
    weights
        Selection weights (n,), or one number for all samples.

    Examples
    --------
    >>> WeightedLoss(np.array([1.0, 3.0]))(np.array([0.5]), np.array([1]))
    array([1.5])
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        try:
            self.weights = as_array(weights).astype(np.float64)
        except (TypeError, ValueError):
            raise SelectionError(
                f"weights must be one number or n_samples of them, got {weights!r:.60}"
            ) from None
        if self.weights.ndim > 1:
            raise SelectionError(
                f"weights must be one number or have shape (n_samples,), got {self.weights.shape}"
            )
        wrong = ~(np.isfinite(self.weights) & (self.weights >= 0))
        if wrong.any():
            raise SelectionError(
                f"weights must be finite and >= 0, got {self.weights[wrong].flat[0]} "
                "(1 leaves a sample's loss as it is)"
            )

    def __call__(self, losses: FloatArray, index: IntArray) -> FloatArray:
        """Return the weighted loss of each sample, averaged over labels."""
        weights = self.weights if self.weights.ndim == 0 else self.weights[index]
        return np.asarray(weights * mean_loss(losses, index))


class AdaptiveSelector(LossDrivenSelector):
    """Probabilities from the quantization index of the weighted loss (Eq. 5 to 7).

    Parameters
    ----------
    weights
        Selection weights (n,) of the training rows (`imbalance.selection_weights`), or one number
        together with `n_samples`. They change what is drawn, never the training loss.
    n_samples
        n, needed only if `weights` is one number.
    selection_pressure
        s_e: how much likelier the highest loss is than a loss of 0. A number or a schedule.
    cap_quantile
        For instance 0.95: replace the largest loss by this quantile, so that one outlier does not
        flatten the law; see `QuantizationLaw`.
    **settings
        As for `LossDrivenSelector`.

    Examples
    --------
    >>> selector = AdaptiveSelector([1.0, 1.0, 2.0], batch_size=3, selection_pressure=8)
    >>> for index in selector:
    ...     selector.observe([1.0, 1.0, 1.0])
    >>> selector.probabilities()
    array([0.25, 0.25, 0.5 ])
    """

    strategy: str = "adaptive"
    place = 4
    _law: QuantizationLaw

    def __init__(
        self,
        weights: npt.ArrayLike,
        *,
        n_samples: int | None = None,
        selection_pressure: float | Schedule = 16,
        cap_quantile: float | None = None,
        **settings: Unpack[LossSettings],
    ) -> None:
        score = WeightedLoss(weights)
        super().__init__(
            _size(score.weights, n_samples),
            score=score,
            law=QuantizationLaw(cap_quantile=cap_quantile),
            selection_pressure=selection_pressure,
            **settings,
        )
        self._weights = score.weights

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "score": WeightedLoss, "weights": self._weights}


def _size(weights: FloatArray, n_samples: int | None) -> int:
    """Return n from the weights, from `n_samples`, or from both if they agree."""
    if weights.ndim == 0:
        if n_samples is None:
            raise SelectionError("weights is one number: give n_samples= as well")
        return n_samples
    if n_samples not in (None, len(weights)):
        raise SelectionError(f"there are {len(weights)} weights for n_samples={n_samples}")
    return len(weights)
