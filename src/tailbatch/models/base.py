"""The interface of every model: an objective to train on, logits to select by, scores to serve.

A model is an ``nn.Module`` whose ``forward`` maps features to logits without looking at labels and
whose ``step`` gives the objective of one batch. It never chooses batches and never optimizes.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.losses import Loss, LossLike, make_loss
from tailbatch.losses.base import refuse_weights
from tailbatch.models.sparse_linear import csr_rows
from tailbatch.seeds import integer_seed

ModuleFactory = Callable[..., nn.Module]
"""Called with (n_features, n_labels, **hyperparameters); returns a module from x to logits."""

Presets = Mapping[str, Mapping[str, object]]
"""Named hyperparameters of a model."""

# Rows predicted at a time.
_PREDICT_ROWS = 1024

_MOST_BYTES = 8 << 30
"""Of a model's weights."""
_FEW_COLUMNS = 100_000
"""Features and labels up to which the size of a model is not checked."""


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
        The name of the stream, as in `tailbatch.seeds.stream`.
    device
        The model's device.

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
    # fork_rng also handles the CPU, but takes ten times as long.
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
    """The result of one batch: the objective to minimize, and values for selection and logs.

    Parameters
    ----------
    objective
        Scalar with graph.
    logits
        (b, q), detached: the predictions made from the features, before `MultiLabelModel.calibrated`.
        The selection loss is computed from them.
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


def check_size(
    kind: Callable[..., nn.Module],
    n_features: int,
    n_labels: int,
    hyperparameters: Mapping[str, Any],
) -> None:
    """Raise if the weights would not fit into 8 GiB or half of the machine's memory; allocate nothing.

    A file of a few bytes can claim millions of features and labels.

    Examples
    --------
    >>> from tailbatch.models import MLP
    >>> check_size(MLP, 10_000_000, 2, {"hidden": [1024]})
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: mlp with 10,000,000 features and 2 labels has weights of 41.0 GB, ...
    """
    if n_features + n_labels <= _FEW_COLUMNS:
        return
    try:
        with torch.device("meta"):
            module = kind(n_features, n_labels, **hyperparameters)
    except (RuntimeError, TypeError):
        return  # making it says what is wrong, if anything is
    size = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    limit = min(_MOST_BYTES, _memory() // 2)
    if size > limit:
        name = getattr(kind, "name", kind.__name__)
        raise ModelError(
            f"{name} with {n_features:,} features and {n_labels:,} labels "
            f"has weights of {size / 1e9:,.1f} GB, and at most {limit / 1e9:.1f} GB can be trained here: "
            "leave out features and labels that occur in no row or hardly any, or choose a smaller model"
        )


def _memory() -> int:
    """Return the bytes of this machine's memory, or more than enough if that is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2 * _MOST_BYTES


def over_samples(samples: Tensor, weights: Tensor | None, loss: Loss | None = None) -> Tensor:
    """Return the mean of the samples' objectives (b,), or their sum with importance weights (b,).

    Weights are refused if `loss`, which the objectives come from, compares samples with each other.

    Examples
    --------
    >>> samples = torch.tensor([1.0, 3.0])
    >>> over_samples(samples, None), over_samples(samples, torch.tensor([0.5, 0.25]))
    (tensor(2.), tensor(1.2500))
    """
    if loss is not None:
        refuse_weights(loss, weights)
    return samples.mean() if weights is None else (samples * weights.to(samples)).sum()


class MultiLabelModel(nn.Module, ABC):
    """A network with an objective and label scores.

    A subclass takes ``(n_features, n_labels, *, ...)``, passes its hyperparameters to this constructor
    with every default resolved, and defines `forward`. It sets `loss`, or defines its own `step`. What
    is not learned but belongs to the model (a label graph, class weights) is a buffer, so that
    ``cls(n_features, n_labels, **model.hyperparameters)`` and ``load_state_dict`` rebuild it without
    the training data.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y; None if only the wrapped module knows.
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
    without_loss: ClassVar[str] = "its objective is its own"
    """Why a model without a `loss` takes none."""
    loss: Loss | None
    """The loss over logits and labels in the objective; None if the model has no such term."""
    reduction: str = "sum"
    """Whether a sample's objective is the ``"sum"`` or the ``"mean"`` of its labels' losses."""
    compares_samples: ClassVar[str] = ""
    """How its objective compares samples of a batch with each other, if it does: see `Loss`."""
    takes_sparse: bool = False
    """Whether x may also be a sparse CSR tensor; sparse data is then passed that way in training."""
    cross_fits: ClassVar[bool] = False
    """Whether its members can hold out rows: it takes the number of ``parts``, `step` each row's
    ``part`` (b,), and `held_out` scores rows by the members that have not seen their part."""
    takes_missing_labels: ClassVar[bool] = False
    """Whether y may hold NaN in `step`: true if only the loss reads y."""

    def __init__(
        self, n_features: int | None, n_labels: int | None, **hyperparameters: object
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_labels = n_labels
        self.hyperparameters = hyperparameters
        self.loss = None

    @classmethod
    def for_dataset(
        cls, train: MultiLabelDataset, *, loss: LossLike | None = None, **hyperparameters: Any
    ) -> Self:
        """Build a model for training rows; only these rows are ever used."""
        check_size(cls, train.n_features, train.n_labels, hyperparameters)
        model = cls(train.n_features, train.n_labels, **hyperparameters)
        if loss is not None:
            model.use_loss(make_loss(loss, train.Y, missing=train.missing))
        return model

    def use_loss(self, loss: Loss) -> None:
        """Train with another loss in place of binary cross-entropy, if the model has that term."""
        if self.loss is None:
            raise ModelError(
                f"{self.name} takes no loss, {loss.name!r} or other: {self.without_loss}"
            )
        self.loss = loss

    def mask_missing_labels(self) -> None:
        """Give missing (NaN) labels no loss, or raise an error that says why this model cannot."""
        if self.loss is None or not self.takes_missing_labels:
            raise ModelError(
                f"{self.name} cannot be trained with missing labels: its objective reads all labels of a "
                "row, not one at a time. Choose mlp, clif, dela or a custom module, or leave out rows "
                "with missing labels"
            )
        self.loss.masks_missing = True

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q) for features (b, d); deterministic in eval mode."""

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the objective of a batch: the loss of the logits, unless a model has another one.

        Parameters
        ----------
        x, y
            (b, d) floats; (b, q) zeros and ones as floats, and NaN for missing labels if the model
            `takes_missing_labels` and its loss masks them.
        weights
            (b,) importance weights of corrected selection, which sum to about 1: the samples' shares
            of the objective are summed with them instead of averaged (`over_samples`). None averages.
        """
        if self.loss is None:
            raise ModelError(f"{self.name} has no loss: set self.loss, or define step")
        logits = self(x)
        samples = self.loss.rows(logits, y, self.reduction)
        objective = over_samples(samples, weights, self.loss)
        terms = {self.loss.name: objective.detach()}
        return Step(objective, logits.detach(), samples.detach(), terms)

    def held_out(self, x: Tensor, part: Tensor) -> Tensor:
        """Return the logits (b, q) of the members that each row's part (b,) is held out from."""
        raise ModelError(f"{self.name} holds out no rows")

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logits (b, q) of the labels' probabilities, without the loss's weights.

        A loss that weights positives by w shifts logits up by log w; this shifts them back. The order of
        the rows within a label stays the same.
        """
        return logits if self.loss is None else self.loss.calibrated(logits)

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> Tensor:
        """Return label probabilities (n, q): eval mode, no gradient, rows in bounded chunks.

        They are the sigmoid of the `calibrated` logits, so weighting rare labels in the loss does not
        make them look more frequent than they are.
        """
        if x.ndim != 2 or self.n_features not in (None, x.shape[1]):
            raise ModelError(
                f"x must have shape (n, {self.n_features or 'd'}) as in training, "
                f"got {tuple(x.shape)}"
            )
        with _evaluating(self):
            chunks = [self.calibrated(self(part)).sigmoid() for part in _row_chunks(x)]
            return torch.cat(chunks)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Return the optimizer's parameter groups; a model may set rates or exclude decay."""
        return [{"params": list(self.parameters()), "lr": lr, "weight_decay": weight_decay}]

    def _parameters_except(self, special: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        excluded = set(map(id, special))
        return [parameter for parameter in self.parameters() if id(parameter) not in excluded]


def _row_chunks(x: Tensor) -> Sequence[Tensor]:
    if x.layout != torch.sparse_csr:
        return torch.split(x, _PREDICT_ROWS)
    if len(x) <= _PREDICT_ROWS:
        return [x]
    return [csr_rows(x, i, i + _PREDICT_ROWS) for i in range(0, len(x), _PREDICT_ROWS)]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in eval mode inside the block, then restore the mode of every submodule."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])
        for module, mode in modes:
            module.training = mode
