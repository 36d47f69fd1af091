"""What every loss promises: a value for each cell, its weights, and a state that rebuilds it."""

import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor, nn

from tailbatch.data import LabelMatrix
from tailbatch.data.labels import checked_labels
from tailbatch.errors import ModelError, did_you_mean
from tailbatch.imbalance import label_counts

_CERTAIN = -1e4
"""A logit whose sigmoid is 0 in every precision."""

_log = logging.getLogger(__name__)
_naming: ContextVar[dict[str, Any] | None] = ContextVar("naming", default=None)


class Loss(nn.Module):
    """A loss of logits and labels, sum over labels and mean over samples.

    A subclass takes ``(n_labels, *, ...)``, hands its options to this constructor, and defines `cells`.
    What it needs from the training rows it reads in `learn` and keeps in buffers, so
    ``cls(n_labels, **loss.options)`` and ``load_state_dict`` rebuild it without them.

    A loss made with ``missing=`` accepts labels y with NaN: such cells cost nothing and move nothing.
    `cells` is handed certain negatives in their place (y = 0, a logit far below 0), which cost nothing in
    any sound loss.

    Parameters
    ----------
    n_labels
        How many labels there are; None for any number, where the loss keeps nothing of a label.
    **options
        Plain values: numbers, strings, None, or lists of them.

    Examples
    --------
    >>> from tailbatch import losses
    >>> Y = np.array([[1, 1], [0, 1], [0, 1], [0, 1], [0, 0]], dtype=bool)
    >>> loss = losses.weighted_bce(Y)
    >>> loss.positive_weights.tolist()
    [2.0, 0.5]
    >>> loss(torch.zeros(5, 2), torch.from_numpy(Y))
    tensor(1.2477)
    """

    name: ClassVar[str] = "loss"
    positive_weight: Tensor
    """(q,) what the positives of each label weigh."""
    compares_samples: ClassVar[str] = ""
    """How samples of a batch are compared with each other, if they are: then none can be weighted."""
    masks_missing: bool = False
    """Whether y may hold NaN for labels that nobody knows."""

    def __init__(self, n_labels: int | None, **options: object) -> None:
        super().__init__()
        if n_labels is not None and n_labels < 1:
            raise ModelError(f"n_labels must be at least 1, got {n_labels}")
        self.n_labels = n_labels
        # Plain numbers, which JSON can hold.
        self.options: dict[str, Any] = dict(options)
        for name, value in options.items():
            if isinstance(value, np.generic):
                self.options[name] = value.item()

    @classmethod
    def for_labels(cls, Y: Any, *, missing: Any = None, **options: object) -> Self:
        """Make the loss for the labels (n, q) of the training rows; no other row is looked at.

        Parameters
        ----------
        Y
            Zeros and ones: an array, sparse matrix, tensor or data frame.
        missing
            (n, q) which labels nobody knows, whatever `Y` says of them. The loss then also accepts
            batches of labels with NaN.
        **options
            See the class.
        """
        cls.check_names(options, "missing")
        labels, unknown = known_labels(Y, missing)
        loss = cls(labels.shape[1], **options)
        if unknown is None:
            loss.learn(labels)
        else:
            loss.learn(labels, unknown)
            loss.masks_missing = True
        return loss

    @classmethod
    def check_names(cls, options: Iterable[str], *others: str) -> None:
        """Raise unless the loss has these options; `others` are known where it is called from."""
        known = [*list(inspect.signature(cls).parameters)[1:], *others]
        for option in options:
            if option not in known:
                raise ModelError(
                    f"{cls.name} has no option {option!r}{did_you_mean(option, known)}"
                )

    def learn(self, Y: LabelMatrix, missing: LabelMatrix | None = None) -> None:
        """Compute what the loss needs of the known labels of the training rows; often nothing."""

    def cells(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return one value per sample and label, (b, q), for floats of one type."""
        raise NotImplementedError

    def forward(self, logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the sum over labels, averaged over samples.

        Parameters
        ----------
        logits, y
            (b, q); y holds zeros and ones of any type, and NaN where a label is missing if the loss
            `masks_missing`.
        weights
            (b,) importance weights that sum to about 1, as selectors give them: the samples' losses
            are summed with these instead of averaged. A loss that `compares_samples` refuses them.
        """
        refuse_weights(self, weights)
        rows = self.rows(logits, y)
        if weights is None:
            return rows.mean()
        weights = torch.as_tensor(weights)  # selectors give arrays
        if weights.shape != rows.shape:
            raise ModelError(
                f"weights must have one number for each of {len(rows)} samples, "
                f"got shape {tuple(weights.shape)}"
            )
        return (weights.to(rows) * rows).sum()

    def rows(self, logits: Tensor, y: Tensor, reduction: str = "sum") -> Tensor:
        """Return one value per sample, (b,): the sum over its labels, or their ``"mean"``."""
        for what, values in (("logits", logits), ("labels", y)):
            if not isinstance(values, Tensor):
                raise ModelError(
                    f"{self.name} takes tensors, got {what} of type {type(values).__name__}: hand over "
                    f"torch.as_tensor({what})"
                )
        if logits.shape != y.shape or logits.ndim != 2 or self.n_labels not in (None, y.shape[1]):
            wanted = "q" if self.n_labels is None else self.n_labels
            raise ModelError(
                f"{self.name} takes logits and labels of shape (b, {wanted}), got "
                f"{tuple(logits.shape)} and {tuple(y.shape)}"
            )
        if self.masks_missing:
            missing = y.isnan()
            logits, y = logits.masked_fill(missing, _CERTAIN), y.masked_fill(missing, 0)
        cells = self.cells(logits, y.to(logits))
        return cells.mean(1) if reduction == "mean" else cells.sum(1)

    @property
    def positive_weights(self) -> NDArray[np.float64]:
        """What the positives of each label weigh against its negatives, (q,); ones if all weigh the same.

        Weights that depend on the sample or change while training are in `cell_weights` alone.
        """
        if "positive_weight" in self._buffers:
            return self.positive_weight.detach().cpu().double().numpy()
        return np.ones(self.n_labels or 1)

    def cell_weights(self, y: Tensor) -> Tensor:
        """Return a_ij, what each sample's label weighs in the loss, (b, q)."""
        labels = y if y.is_floating_point() else y.float()
        weights = torch.from_numpy(self.positive_weights).to(labels)
        return 1 + labels * (weights - 1)

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return z - log w, the logits of the labels' probabilities, for logits (b, q).

        Weighting the positives of a label by w multiplies the odds that fit best by w; this divides them
        by it again. The order of the rows within a label does not change. Without `positive_weights` the
        logits are returned as they are: those of ``focal``, ``asymmetric`` and the like are no logits of
        probabilities, and no shift makes them so.
        """
        weights = self.positive_weights
        if (weights == 1).all():
            return logits
        return logits - torch.from_numpy(np.log(weights)).to(logits)

    def extra_repr(self) -> str:
        """Show the options."""
        return ", ".join(f"{name}={value!r:.40}" for name, value in self.options.items())


def refuse_weights(kind: Any, weights: object) -> None:
    """Refuse sample weights for a loss or model (or class) that compares samples with each other.

    Weights undo how often a sample was drawn if the objective is a mean over samples. If samples
    are compared, how often the others were drawn matters as well.

    Examples
    --------
    >>> from tailbatch.losses import TwoWay
    >>> refuse_weights(TwoWay, None)
    >>> refuse_weights(TwoWay, torch.ones(2))
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: two_way cannot be trained with corrected selection or weights of ...
    """
    if weights is not None and kind.compares_samples:
        raise ModelError(
            f"{kind.name} cannot be trained with corrected selection or weights of samples: "
            f"{kind.compares_samples}, which no weight of a sample can correct; draw with coverage or "
            "another strategy without correction, leave sample_weight out, or take another "
            "loss or model"
        )


def known_labels(Y: Any, missing: Any = None) -> tuple[LabelMatrix, LabelMatrix | None]:
    """Return labels (n, q) and which are missing, (n, q) or None, as booleans; missing labels are 0.

    Whatever `Y` holds in a missing cell is not looked at, NaN included.

    Examples
    --------
    >>> labels, unknown = known_labels([[1, np.nan]], [[0, 1]])
    >>> labels.tolist(), unknown.tolist()
    ([[True, False]], [[False, True]])
    """
    if missing is None:
        return checked_labels(Y), None
    mask = checked_labels(missing)
    values: Any = Y.detach().cpu().numpy() if isinstance(Y, Tensor) else Y
    # A copy: the caller's labels stay as they are.
    values = csr_array(values, copy=True) if issparse(values) else np.array(values)
    if values.ndim == 2 and values.shape != mask.shape:
        raise ModelError(f"missing has shape {mask.shape}, the labels {values.shape}")
    if values.ndim == 2 and issparse(values):
        rows = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
        cells = rows * values.shape[1] + values.indices
        unknown = np.ravel_multi_index(mask.nonzero(), mask.shape)
        values.data[np.isin(cells, unknown)] = 0
    elif values.ndim == 2:
        values[mask.nonzero() if issparse(mask) else mask] = 0
    return checked_labels(values), mask


@contextmanager
def named_notice(names: Sequence[str]) -> Iterator[None]:
    """Have the labels without positives named, and only once while several parts find them."""
    said = _naming.get()
    token = _naming.set({"names": names} if said is None else said)
    try:
        yield
    finally:
        _naming.reset(token)


def counts_with_notice(
    Y: LabelMatrix, name: str, so: str = "are weighted as if they had one"
) -> NDArray[np.float64]:
    """Return each label's positives, (q,), and log which labels have none and what becomes of them."""
    counts = label_counts(Y)
    absent = np.flatnonzero(counts == 0)
    if len(absent) and (naming := _naming.get()) is not None:
        if names := naming.pop("names", None):
            _log.warning(
                "%d of %d labels have no positive in the training rows, so nothing can be learned of "
                "them, among them %r",
                len(absent),
                len(counts),
                str(names[absent[0]]),
            )
    elif len(absent):
        _log.warning(
            "%s: %d of %d labels have no positive in the training rows and %s, among them column %d",
            name,
            len(absent),
            len(counts),
            so,
            absent[0],
        )
    return counts.astype(np.float64)
