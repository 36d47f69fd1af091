"""Rank-based selection: the samples of highest loss are drawn most often."""

from typing import Unpack

from tailbatch.selection.loss_driven import LossDrivenSelector, LossSettings, mean_loss
from tailbatch.selection.ranking import RankLaw
from tailbatch.selection.schedule import Schedule


class HardSelector(LossDrivenSelector):
    """Probabilities from the rank of the plain loss (Eq. 3; Loshchilov and Hutter's law).

    Parameters
    ----------
    n_samples
        n, the number of training samples.
    selection_pressure
        s_e: how much likelier the highest loss is than the lowest. A number or a schedule.
    **settings
        As for `LossDrivenSelector`.

    Examples
    --------
    >>> selector = HardSelector(4, batch_size=2, selection_pressure=16, initial_losses=[4, 1, 2, 3])
    >>> (selector.probabilities() * 15).round(3).tolist()
    [8.0, 1.0, 2.0, 4.0]
    """

    strategy: str = "hard"
    place = 3

    def __init__(
        self,
        n_samples: int,
        *,
        selection_pressure: float | Schedule = 16,
        **settings: Unpack[LossSettings],
    ) -> None:
        super().__init__(
            n_samples,
            score=mean_loss,
            law=RankLaw(),
            selection_pressure=selection_pressure,
            **settings,
        )
