"""The results of training: one record per epoch, a summary, and the callback interface."""

from dataclasses import dataclass

import numpy as np

from tailbatch.selection import SelectionDiagnostics


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch: losses, validation metrics, and where the draws went.

    ``seconds`` is training time since the start, with the clock stopped during evaluation; ``steps``
    counts batches since the start. ``training_objective`` and ``training_bce`` are measured in
    evaluation mode over all training rows, because a selected batch's loss is not comparable with a
    shuffled one's; they are None in epochs where they were not requested.
    """

    number: int
    steps: int
    seconds: float
    lr: float
    batch_objective: float
    training_objective: float | None
    training_bce: float | None
    validation: dict[str, float]
    minority_share: float | None
    distinct_share: float


@dataclass(frozen=True, eq=False)
class Training:
    """The results of training besides the model, which holds the best epoch's weights.

    ``warm_up_digest`` identifies the weights at the end of the warm-up; in a fair comparison all
    strategies have the same one. ``sample_losses`` maps an epoch to each training sample's BCE after
    it, and ``sample_objectives`` to its share of the model's own objective. ``label_exposure`` is each
    label's share of all draws over its share of the rows, or None if the selector does not know the
    labels.
    """

    epochs: tuple[Epoch, ...]
    batch_objectives: np.ndarray
    sample_losses: dict[int, np.ndarray]
    sample_objectives: dict[int, np.ndarray]
    best_epoch: int
    warm_up_digest: str
    label_exposure: np.ndarray | None
    diagnostics: SelectionDiagnostics

    @property
    def best(self) -> Epoch:
        """The epoch whose weights the model holds."""
        return self.epochs[self.best_epoch - 1]


class Callback:
    """A listener to training; override what you need. Callbacks see the host's own random state.

    Examples
    --------
    >>> class Losses(Callback):
    ...     def on_epoch(self, epoch):
    ...         print(epoch.number, round(epoch.batch_objective, 3))
    """

    def on_batch(self, step: int, steps_per_epoch: int, objective: float) -> None:
        """React to a finished step, counted from 1 over the whole training."""

    def on_epoch(self, epoch: Epoch) -> None:
        """React to a finished epoch, validation included."""
