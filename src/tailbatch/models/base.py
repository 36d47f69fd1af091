"""What every model promises: an objective to train on, logits to select by, scores to serve.

A model is an ``nn.Module`` whose ``forward`` maps features to logits without looking at labels and
whose ``step`` gives the objective of one batch. It never chooses batches and never optimizes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.models.blocks import label_bce
from tailbatch.seeds import integer_seed

ModuleFactory = Callable[..., nn.Module]
"""Called with (n_features, n_labels, **hyperparameters); returns a module from x to logits."""

Presets = Mapping[str, Mapping[str, object]]
"""Named hyperparameters of a model."""

# Rows that prediction takes at a time.
_PREDICT_ROWS = 1024


@contextmanager
def seeded(
    seed: int, purpose: str, *counters: int, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """Run a block with torch seeded by (seed, purpose, counters), then restore the host's state.

    torch's layers draw from its global generators, so construction and each training step run
    inside this block. Only the generators of the CPU and of `device` are touched.

    Parameters
    ----------
    seed, purpose, *counters
        The stream's name, as in `tailbatch.seeds.stream`.
    device
        Where the model lives.

    Examples
    --------
    >>> with seeded(0, "step", 7):
    ...     a = torch.rand(3)
    >>> with seeded(0, "step", 7):
    ...     b = torch.rand(3)
    >>> torch.equal(a, b)
    True
    """
    device = torch.device(device)
    value = integer_seed(seed, purpose, *counters)
    # fork_rng also looks after the CPU, but takes ten times as long about it.
    accelerator = nullcontext() if device.type == "cpu" else _seeded_accelerator(device, value)
    host = torch.default_generator.get_state()
    try:
        torch.default_generator.manual_seed(value)
        with accelerator:
            yield
    finally:
        torch.default_generator.set_state(host)


@contextmanager
def _seeded_accelerator(device: torch.device, value: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device], device_type=device.type):
        backend = getattr(torch, device.type)
        with backend.device(device):
            backend.manual_seed(value)
        yield


@dataclass(frozen=True)
class Step:
    """What one batch gives: the objective to minimize and what selection and logs need.

    Parameters
    ----------
    objective
        Scalar with graph.
    logits
        (b, q), detached: the predictions made from the features, whose sigmoid is
        ``predict_proba``. The selection loss is computed from them.
    sample_objective
        (b,), detached: each sample's share of the model's own loss.
    terms
        The parts of the objective, detached scalars for logs.

    Examples
    --------
    >>> from tailbatch.models import MLP
    >>> step = MLP(2, 3).step(torch.rand(4, 2), torch.ones(4, 3))
    >>> step.logits.shape, step.sample_objective.shape, step.logits.requires_grad
    (torch.Size([4, 3]), torch.Size([4]), False)
    """

    objective: Tensor
    logits: Tensor
    sample_objective: Tensor
    terms: Mapping[str, Tensor]


class MultiLabelModel(nn.Module, ABC):
    """A network with an objective and label scores.

    A subclass takes ``(n_features, n_labels, *, ...)``, hands its hyperparameters to this
    constructor with every default resolved, and defines `forward` and `step`. Whatever is not
    learned but belongs to the model (a label graph, class weights) is a buffer, so
    ``cls(n_features, n_labels, **model.hyperparameters)`` and ``load_state_dict`` rebuild it
    without the training data.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y; None where a wrapped module knows better.
    **hyperparameters
        Plain values: numbers, strings, None, or sequences of them.

    Examples
    --------
    >>> from tailbatch.models import MLP
    >>> model = MLP(n_features=2, n_labels=3, hidden=[16])
    >>> model.predict_proba(torch.rand(4, 2)).shape
    torch.Size([4, 3])
    """

    name: ClassVar[str] = "model"
    presets: ClassVar[Presets] = {"reference": {}}
    """Named hyperparameters; ``reference`` imitates the code published with the paper."""

    def __init__(
        self, n_features: int | None, n_labels: int | None, **hyperparameters: object
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_labels = n_labels
        self.hyperparameters = hyperparameters

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: object) -> Self:
        """Build a model for training rows; only these rows are ever looked at."""
        return cls(train.n_features, train.n_labels, **hyperparameters)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q) for features (b, d); free of noise in eval mode."""

    @abstractmethod
    def step(self, x: Tensor, y: Tensor) -> Step:
        """Return the objective of a batch: x (b, d) floats, y (b, q) zeros and ones as floats."""

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> Tensor:
        """Return label probabilities (n, q): eval mode, no gradient, rows in bounded chunks."""
        if x.ndim != 2 or self.n_features not in (None, x.shape[1]):
            raise ModelError(
                f"x must have shape (n, {self.n_features or 'd'}) as in training, "
                f"got {tuple(x.shape)}"
            )
        with _evaluating(self):
            return torch.cat([self(part).sigmoid() for part in torch.split(x, _PREDICT_ROWS)])

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Return the optimizer's parameter groups; a model may set rates or exclude decay."""
        return [{"params": list(self.parameters()), "lr": lr, "weight_decay": weight_decay}]

    def _parameters_except(self, special: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        excluded = {id(parameter) for parameter in special}
        return [parameter for parameter in self.parameters() if id(parameter) not in excluded]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in eval mode and give every submodule its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])
        for module, mode in modes:
            module.training = mode


class WrappedModel(MultiLabelModel):
    """Any module from features to logits, trained with binary cross-entropy; see `wrap`."""

    name = "wrapped"
    positive_weights: Tensor | None

    def __init__(self, module: nn.Module, positive_weights: Tensor | None = None) -> None:
        super().__init__(None, None)
        self.module = module
        # Not a part of the trained state: it is needed for training only, by whoever gave it.
        self.register_buffer("positive_weights", positive_weights, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the module's logits."""
        logits: Tensor = self.module(x)
        return logits

    def step(self, x: Tensor, y: Tensor) -> Step:
        """Return the mean binary cross-entropy over samples and labels, weighted if so asked."""
        logits = self(x)
        if logits.shape != y.shape:
            raise ModelError(
                f"the wrapped module returned logits of shape {tuple(logits.shape)} for labels of "
                f"shape {tuple(y.shape)}; it must map (b, d) features to (b, q) logits"
            )
        weights = self.positive_weights
        if weights is not None and len(weights) != y.shape[1]:
            raise ModelError(
                f"positive_weights must have one weight for each of {y.shape[1]} labels, "
                f"got {len(weights)}"
            )
        samples = label_bce(logits, y, weights).mean(1)
        objective = samples.mean()
        return Step(objective, logits.detach(), samples.detach(), {"bce": objective.detach()})


def wrap(module: nn.Module, *, positive_weights: ArrayLike | None = None) -> MultiLabelModel:
    """Return a module from features (b, d) to logits (b, q) as a `MultiLabelModel`.

    A module that already is one is returned as it is.

    Parameters
    ----------
    module
        Trained with binary cross-entropy.
    positive_weights
        (q,) how much the positives of each label weigh in it, above 0; all 1 where None. Those of
        `tailbatch.imbalance.positive_weights` are made from the labels of the training rows.

    Examples
    --------
    >>> model = wrap(nn.Linear(2, 3), positive_weights=[1, 2, 4])
    >>> model.predict_proba(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """
    if isinstance(module, MultiLabelModel):
        if positive_weights is not None:
            raise ModelError(
                f"positive_weights is for a plain module; {type(module).__name__} has an objective "
                "of its own"
            )
        return module
    return WrappedModel(module, _checked_weights(positive_weights))


def _checked_weights(weights: ArrayLike | None) -> Tensor | None:
    if weights is None:
        return None
    values = np.asarray(weights, dtype=np.float32)
    if values.ndim != 1 or not (np.isfinite(values) & (values > 0)).all():
        raise ModelError(
            f"positive_weights must be finite numbers above 0, one a label, got {weights!r:.80}"
        )
    return torch.from_numpy(values)
