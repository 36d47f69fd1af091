"""A text encoder that is trained, beside a linear model of all other features: deep and wide."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from tailbatch import defaults
from tailbatch.data import MultiLabelDataset
from tailbatch.data.embeddings import Pretrained, autocast, load_encoder, pool
from tailbatch.errors import ModelError, did_you_mean, require
from tailbatch.imbalance import label_counts
from tailbatch.losses import BCE, Loss
from tailbatch.models.base import MultiLabelModel, Step, over_samples
from tailbatch.models.blocks import check_dropout, check_sizes
from tailbatch.models.prior import set_prior_bias

LabelTexts = str | Mapping[str, str] | None
"""``"names"``, sentences by label, or None."""

_AT_ONCE = 64  # texts that are scored together, sorted by length
_SAMPLE = 512  # training texts that tell where embeddings lie
_REACH = 3.0  # by how much a logit moves at the start where a text means what its label's name does
_SHOWN = 5

_log = logging.getLogger(__name__)


class FineTuned(MultiLabelModel):
    """A pretrained encoder with a linear head, trained together, and a linear model of other features.

    A row of x has in some columns the token numbers plus 1 of its texts, as
    `tailbatch.data.column_parts.TokensPart` writes them; the others are words, numbers and categories,
    whose linear model adds to the head's logits. The encoder computes in bfloat16 where the processor
    has it, and pads no further than the longest text of a group of similar length.

    Parameters
    ----------
    n_features, n_labels
        Width of x and y.
    encoder
        Name, folder or hub name of the encoder that `for_dataset` starts from; for a model that is
        rebuilt, its configuration as JSON.
    tokens
        First column and number of columns of each column of text.
    label_texts
        What the head's weights start at: ``"names"``, the embeddings of the labels' names; a table from
        labels to sentences; or None, zeros.
    head_lr_ratio, wide_lr_ratio
        How many times faster the head and the linear model learn than the encoder.
    dropout
        Applied to the embedding before the head.
    length_groups
        Passes that a training batch is split into by length: the same gradient with less padding. 1 is
        fastest on an accelerator.

    Examples
    --------
    >>> from tailbatch import TailbatchClassifier
    >>> classifier = TailbatchClassifier(encoder="minilm", finetune=True)
    """

    name = defaults.FINETUNED
    takes_missing_labels = True
    loss: Loss

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        *,
        encoder: str,
        tokens: Sequence[Sequence[int]],
        pooling: str = "mean",
        label_texts: LabelTexts = None,
        head_lr_ratio: float = 50.0,
        wide_lr_ratio: float = 50.0,
        dropout: float = 0.1,
        length_groups: int = 2,
    ) -> None:
        check_sizes(length_groups=length_groups)
        check_dropout(dropout=dropout)
        blocks = [(int(start), int(width)) for start, width in tokens]
        if not blocks or any(a < 0 or b < 1 or a + b > n_features for a, b in blocks):
            raise ModelError(f"a model of texts needs columns of tokens, got {tokens!r:.60}")
        super().__init__(
            n_features,
            n_labels,
            encoder=encoder,
            tokens=[list(block) for block in blocks],
            pooling=pooling,
            label_texts=label_texts if isinstance(label_texts, str | None) else dict(label_texts),
            head_lr_ratio=head_lr_ratio,
            wide_lr_ratio=wide_lr_ratio,
            dropout=dropout,
            length_groups=length_groups,
        )
        self.encoder = _network(encoder)
        self.blocks, self.pooling, self.length_groups = blocks, pooling, length_groups
        is_wide = np.ones(n_features, dtype=np.bool_)
        for start, width in blocks:
            is_wide[start : start + width] = False
        self._wide = torch.from_numpy(np.flatnonzero(is_wide))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.encoder.config.hidden_size * len(blocks), n_labels)
        self.wide = _wide_layer(len(self._wide), n_labels)
        for layer in (self.head, self.wide):
            nn.init.zeros_(layer.weight)
        self.loss = BCE(n_labels)
        self.head_lr_ratio, self.wide_lr_ratio = head_lr_ratio, wide_lr_ratio

    @classmethod
    def for_dataset(cls, train: MultiLabelDataset, **hyperparameters: Any) -> Self:
        """Start from the pretrained encoder, with biases at the labels' frequencies."""
        pretrained = load_encoder(hyperparameters["encoder"])
        texts = label_sentences(train.label_names, hyperparameters.get("label_texts"))
        settings = hyperparameters | {
            "encoder": _configuration(pretrained.model.config),
            "pooling": pretrained.pooling,
        }
        model = super().for_dataset(train, **settings)
        model.encoder.load_state_dict(pretrained.model.state_dict())
        set_prior_bias(model.head, train.Y, model.loss, missing=train.missing)
        if texts is not None:
            model._start_at(texts, pretrained, train)
        return model

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, q)."""
        embedding = self.dropout(self.embed(x))
        logits = self.head(embedding)
        if not len(self._wide):
            return logits  # type: ignore[no-any-return]
        return logits + self.wide(x.index_select(1, self._wide.to(x.device)))  # type: ignore[no-any-return]

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings of each row's texts side by side, (b, k * texts)."""
        with autocast(x.device.type):
            columns = [self._embedded(x[:, a : a + b].long()) for a, b in self.blocks]
        return torch.cat(columns, dim=1)

    def _embedded(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of one column, in groups of similar length without further padding."""
        lengths = (tokens > 0).sum(dim=1)
        size = -(-len(tokens) // self.length_groups) if self.training else _AT_ONCE
        order = lengths.argsort(stable=True)
        groups = [
            pool(self.encoder, tokens[rows, : max(int(lengths[rows[-1]]), 1)], self.pooling)
            for rows in torch.split(order, max(size, 1))
        ]
        return torch.cat(groups)[order.argsort()]

    def step(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Step:
        """Return the loss: sum over labels, mean over rows."""
        logits = self(x)
        samples = self.loss.rows(logits, y, "sum")
        objective = over_samples(samples, weights, self.loss)
        terms = {self.loss.name: objective.detach()}
        return Step(objective, logits.detach(), samples.detach(), terms)

    def param_groups(self, lr: float, weight_decay: float) -> list[dict[str, object]]:
        """Return the encoder's matrices, its biases and norms without decay, and the faster rest."""
        matrices = [p for p in self.encoder.parameters() if p.ndim > 1]
        vectors = [p for p in self.encoder.parameters() if p.ndim <= 1]
        head, wide = list(self.head.parameters()), list(self.wide.parameters())
        return [
            {"params": matrices, "lr": lr, "weight_decay": weight_decay},
            {"params": vectors, "lr": lr, "weight_decay": 0.0},
            {"params": head, "lr": lr * self.head_lr_ratio, "weight_decay": 0.0},
            {"params": wide, "lr": lr * self.wide_lr_ratio, "weight_decay": weight_decay},
        ]

    @torch.no_grad()
    def _start_at(
        self, texts: Sequence[str], pretrained: Pretrained, train: MultiLabelDataset
    ) -> None:
        """Start the head at the centered unit embeddings of the labels' texts.

        With t_j that of label j, m the mean embedding of training texts and r their mean distance from
        it, the weights are 3 t_j / r and the bias is lowered by 3 t_j m / r: a logit moves by three times
        the cosine, on average by nothing.
        """
        rows = np.unique(np.linspace(0, train.n_samples - 1, _SAMPLE).astype(np.int64))
        X: Any = train.X[rows]
        sample = torch.from_numpy(X.toarray() if sparse.issparse(X) else X).float()
        found = pretrained.tokenizer(
            list(texts), truncation=True, max_length=pretrained.longest, padding=False
        )["input_ids"]
        tokens = torch.zeros(len(texts), max(map(len, found)), dtype=torch.long)
        for row, numbers in zip(tokens, found, strict=True):
            row[: len(numbers)] = torch.tensor(numbers) + 1
        self.eval()
        names = self._embedded(tokens)
        seen = self.embed(sample).view(len(sample), len(self.blocks), -1)
        self.train()
        names = nn.functional.normalize(names - names.mean(dim=0))
        mean = seen.mean(dim=0)  # (texts, k)
        distance = (seen - mean).norm(dim=2).mean(dim=0).clamp_min(1e-6)  # (texts,)
        weights = _REACH / len(self.blocks) * names[:, None] / distance[:, None]  # (q, texts, k)
        self.head.weight.copy_(weights.flatten(1))
        self.head.bias.sub_((weights * mean).sum((1, 2)))
        unseen = np.flatnonzero(label_counts(train.Y) == 0)
        if unseen.size:
            shown = ", ".join(repr(train.label_names[label]) for label in unseen[:_SHOWN])
            more = f" and {unseen.size - _SHOWN:,} more" if unseen.size > _SHOWN else ""
            _log.warning(
                "no training row has the label %s%s: it is scored by its text alone", shown, more
            )


def label_sentences(label_names: Sequence[str], label_texts: LabelTexts) -> list[str] | None:
    """Return the text of each label, None where none was asked for.

    Examples
    --------
    >>> label_sentences(["role::mail_server", "bug"], "names")
    ['role mail server', 'bug']
    >>> label_sentences(["bug"], {"bug": "something is broken"})
    ['something is broken']
    >>> label_sentences(["3", "7"], "names")
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: label_texts='names' needs names that are words, and '3' is none: ...
    """
    if label_texts is None:
        return None
    names = [" ".join(re.split(r"(?:::|[_\W])+", name)).strip() for name in label_names]
    if isinstance(label_texts, Mapping):
        for label, text in label_texts.items():
            if label not in label_names:
                guess = did_you_mean(str(label), label_names)
                raise ModelError(f"label_texts has the unknown label {label!r:.60}{guess}")
            if not isinstance(text, str) or not text.strip():
                raise ModelError(f"label_texts needs a text for {label!r:.60}, got {text!r:.60}")
        return [
            label_texts.get(label, name) for label, name in zip(label_names, names, strict=True)
        ]
    if label_texts != "names":
        raise ModelError(
            f"label_texts must be 'names' or a table from labels to texts, got {label_texts!r:.60}"
        )
    for label, name in zip(label_names, names, strict=True):
        if not re.search(r"[^\W\d]{2}", name):
            raise ModelError(
                f"label_texts='names' needs names that are words, and {label!r:.60} is none: give a "
                "table from labels to texts"
            )
    return names


def _wide_layer(n_features: int, n_labels: int) -> nn.Linear:
    """Return a linear layer whose weights are not drawn: one of no features would warn."""
    make: Any = nn.utils.skip_init
    layer: nn.Linear = make(nn.Linear, n_features, n_labels, bias=False)
    return layer


def _configuration(config: Any) -> str:
    """Return an encoder's configuration as JSON, without where it came from."""
    left = ("_name_or_path", "transformers_version", "architectures", "id2label", "label2id")
    settings = json.loads(config.to_json_string(use_diff=False))
    return json.dumps({name: value for name, value in settings.items() if name not in left})


def _network(encoder: str) -> Any:
    """Return an encoder of this configuration; its weights are set later."""
    transformers = require("transformers", extra="text")
    try:
        settings = json.loads(encoder)
        config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"a model of texts is built by TailbatchClassifier(finetune=True), got {encoder!r:.60}"
        ) from error
    # Not on the meta device, where a saved model is rebuilt: buffers that are not saved would stay there.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return transformers.AutoModel.from_config(config, dtype=torch.float32)
