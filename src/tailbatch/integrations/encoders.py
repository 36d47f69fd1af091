"""Text encoders: raw texts become token numbers, and an encoder with a head a model to fine-tune.

An encoder is a folder as ``save_pretrained`` of transformers writes it, or a name on the hub.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor, nn

from tailbatch.data import MultiLabelDataset
from tailbatch.data.embeddings import packaged
from tailbatch.errors import DataError, MissingExtraError, ModelError, require
from tailbatch.losses import BCE, Loss
from tailbatch.models import MultiLabelModel, Step, over_samples, set_prior_bias

require("transformers", extra="huggingface")

from transformers import AutoConfig, AutoModel, AutoTokenizer

_AT_ONCE = 64  # texts that are scored together, sorted by length


def minilm() -> str:
    """Return the folder of all-MiniLM-L6-v2 as the extra ``encoders`` installs it; no network is used.

    Examples
    --------
    >>> from pathlib import Path
    >>> Path(minilm(), "config.json").is_file()  # doctest: +SKIP
    True
    """
    if (folder := packaged("minilm")) is None:
        raise MissingExtraError(
            'all-MiniLM-L6-v2 is not installed; run: pip install "tailbatch[encoders]"'
        )
    return folder


class Tokens(TransformerMixin, BaseEstimator):  # type: ignore[misc] # no stubs
    """Turn texts into rows of token numbers for `TextEncoder`, as a step of a scikit-learn pipeline.

    A row holds each token's number plus 1, and then zeros: whole numbers that a float holds exactly.

    Parameters
    ----------
    encoder
        Folder or name of the encoder whose tokenizer to use.
    max_length
        Tokens at which a text is cut.

    Examples
    --------
    >>> texts = ["so happy", "so very sad"]
    >>> Tokens(minilm(), max_length=6).fit_transform(texts).astype(int)  # doctest: +SKIP
    array([[ 102, 2062, 3408,  103,    0,    0],
           [ 102, 2062, 2201, 6518,  103,    0]])
    """

    def __init__(self, encoder: str, max_length: int = 64) -> None:
        self.encoder = encoder
        self.max_length = max_length

    def fit(self, X: Sequence[str], y: object = None) -> Self:
        """Load the tokenizer; there is nothing to learn."""
        self.tokenizer_: Any = AutoTokenizer.from_pretrained(self.encoder)
        return self

    def transform(self, X: Sequence[str]) -> NDArray[np.float32]:
        """Return the token numbers of texts, (n, max_length)."""
        texts = list(X)
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise DataError(
                    f"texts must be strings, got {text!r:.60} in row {number}; fill in what is missing"
                )
        if not hasattr(self, "tokenizer_"):
            self.fit(texts)
        rows = np.zeros((len(texts), self.max_length), dtype=np.float32)
        found = self.tokenizer_(texts, truncation=True, max_length=self.max_length)["input_ids"]
        for row, numbers in zip(rows, found, strict=True):
            row[: len(numbers)] = np.asarray(numbers) + 1
        return rows

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _encoder(folder: str) -> Any:
    """Return a pretrained encoder, or an empty one while a saved model is rebuilt."""
    if torch.get_default_device().type != "meta":
        return AutoModel.from_pretrained(folder, use_safetensors=True)
    # Not on the meta device: buffers that are not saved would stay there.
    with torch.device("cpu"):
        untyped: Any = AutoModel
        return untyped.from_config(AutoConfig.from_pretrained(folder))


class TextEncoder(MultiLabelModel):
    """An encoder, the mean over its tokens, and a linear head, fine-tuned together.

    The features are rows of `Tokens` and must not be scaled. Padding is cut to the longest text of a
    batch; texts that are only scored are sorted by length first.

    Parameters
    ----------
    n_features, n_labels
        Largest number of tokens, and number of labels.
    encoder
        Folder or name of the encoder.
    head_lr_ratio
        How many times faster the head, which starts untrained, learns than the encoder.
    dropout
        Applied to the mean before the head.
    length_groups
        Passes that a training batch is split into by length, for the same gradient with less padding. 1
        is fastest on an accelerator.

    Examples
    --------
    >>> from tailbatch import TailbatchClassifier
    >>> classifier = TailbatchClassifier(TextEncoder, model__encoder="my-encoder", scale=False)
    """

    name = "text_encoder"
    loss: Loss

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        encoder: str,
        head_lr_ratio: float = 20.0,
        dropout: float = 0.1,
        length_groups: int = 1,
    ) -> None:
        if not (isinstance(length_groups, int) and length_groups >= 1):
            raise ModelError(f"length_groups must be a whole number from 1, got {length_groups!r}")
        given = {"encoder": encoder, "head_lr_ratio": head_lr_ratio, "dropout": dropout}
        super().__init__(n_features, n_labels, **given, length_groups=length_groups)
        self.encoder: Any = _encoder(encoder)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.encoder.config.hidden_size, n_labels)
        self.loss = BCE(n_labels)
        self.head_lr_ratio, self.length_groups = head_lr_ratio, length_groups

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Build a model whose output biases start at the labels' frequencies."""
        model = super().for_dataset(train, **hyperparameters)
        set_prior_bias(model.head, train.Y, model.loss.positive_weights)
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q) for token numbers (b, tokens)."""
        return self.head(self.dropout(self.embed(x)))  # type: ignore[no-any-return]

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean over each text's tokens, (b, hidden)."""
        tokens = x.long()
        lengths = (tokens > 0).sum(dim=1)
        size = -(-len(x) // self.length_groups) if self.training else _AT_ONCE
        if len(x) <= size:
            return self._mean_over_tokens(tokens, lengths)
        order = lengths.argsort(stable=True)
        groups = torch.split(order, size)
        means = [self._mean_over_tokens(tokens[rows], lengths[rows]) for rows in groups]
        return torch.cat(means)[order.argsort()]

    def _mean_over_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        tokens = tokens[:, : max(int(lengths.max()), 1)]
        mask = (tokens > 0).long()
        mask[:, 0] = 1  # an empty row attends to something, so that nothing is divided by zero
        numbers = (tokens - 1).clamp_(min=0)
        hidden = self.encoder(input_ids=numbers, attention_mask=mask).last_hidden_state
        weights = mask.to(hidden)[:, :, None]
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)  # type: ignore[no-any-return]

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the loss: sum over labels, mean over samples."""
        logits = self(x)
        samples = self.loss.rows(logits, y, "sum")
        objective = over_samples(samples, weights)
        terms = {self.loss.name: objective.detach()}
        return Step(objective, logits.detach(), samples.detach(), terms)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Return the encoder's matrices, its biases and norms without decay, and the faster head."""
        matrices = [p for p in self.encoder.parameters() if p.ndim > 1]
        vectors = [p for p in self.encoder.parameters() if p.ndim <= 1]
        head, head_lr = list(self.head.parameters()), lr * self.head_lr_ratio
        return [
            {"params": matrices, "lr": lr, "weight_decay": weight_decay},
            {"params": vectors, "lr": lr, "weight_decay": 0.0},
            {"params": head, "lr": head_lr, "weight_decay": 0.0},
        ]
