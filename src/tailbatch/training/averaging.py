"""A moving average of the weights, evaluated and kept in their place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """An exponential moving average of a model's parameters, without bias from the start.

    After t steps the weights of step s count decay^(t - s), divided by the sum of these factors, so the
    initial weights have no influence. Buffers are not averaged: those that change are moving averages
    already.

    Parameters
    ----------
    model
        The model whose parameters to average; they are tracked in place, not copied at each step.
    decay
        Between 0 and 1.

    Examples
    --------
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(layer, decay=0.5)
    >>> for step, value in enumerate([1.0, 4.0]):
    ...     _ = nn.init.constant_(layer.weight, value)
    ...     average.update(step)
    >>> with average.in_place():
    ...     round(layer.weight.item(), 6)  # (0.5 * 1 + 4) / 1.5
    3.0
    >>> layer.weight.item()
    4.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._parameters: list[Tensor] = list(model.parameters())
        self._values = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after step `step`, counted from 0."""
        share = (1 - self.decay) / (1 - self.decay ** (step + 1))
        torch._foreach_lerp_(self._values, self._parameters, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the average as the model's weights inside the block; restore its own weights afterwards."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        # Swaps storage; nothing is copied.
        for position, parameter in enumerate(self._parameters):
            self._values[position], parameter.data = parameter.data, self._values[position]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the averages by position."""
        return {str(position): value for position, value in enumerate(self._values)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from saved averages; their number and shapes must match the parameters."""
        if len(state) != len(self._values):
            raise ValueError(f"it averages {len(state)} tensors, the model has {len(self._values)}")
        for position, value in enumerate(self._values):
            saved = state[str(position)]
            if saved.shape != value.shape:
                raise ValueError(f"its averaged weights have shape {tuple(saved.shape)}")
            value.copy_(saved)
