"""Speed of text encoders: embeddings beside sentence-transformers, training beside a plain loop.

    python -m benchmarks encoding

MiniLM on GoEmotions. The plain loop is transformers in float32, each batch padded to its longest text,
with the same batches and optimizer. Seconds are the processor's.
"""

import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.harness import interleaved, publish, table
from tailbatch.data import Columns, MultiLabelDataset, load_texts
from tailbatch.data.corpora import TextDataset
from tailbatch.data.embeddings import load_encoder, packaged, pool
from tailbatch.losses import BCE
from tailbatch.models import FineTuned, make_model
from tailbatch.training.rows import Rows

TEXTS, STEPS, BATCH = 512, 6, 32


def main() -> None:
    """Time both pairs, and publish the ratios."""
    parts = load_texts("goemotions")
    texts = list(parts.train.texts[:TEXTS])
    ours, theirs = load_encoder("minilm"), SentenceTransformer(packaged("minilm"))
    seconds = interleaved(
        {
            "ours": lambda: ours.encode(texts),
            "theirs": lambda: theirs.encode(texts, show_progress_bar=False),
        },
        rounds=3,
        clock=time.process_time,
    )
    cosine = np.einsum("ij,ij->i", ours.encode(texts), theirs.encode(texts)).min()
    encoding = [
        f"encoding {TEXTS} texts",
        "SentenceTransformer.encode",
        f"{seconds['theirs'] / seconds['ours']:.2f}",
        f"least cosine {cosine:.5f}",
    ]
    training = _training(parts.train.take(range(1_500)))
    rows = [encoding, training]
    publish(
        "encoding",
        "## Encoders of text\n\nProcessor seconds, one run, taking turns.\n\n"
        + table(["work", "beside", "times as fast", ""], rows),
    )


def _training(train: TextDataset) -> list[str]:
    frame = pd.DataFrame({"text": train.texts})
    columns = Columns(text=["text"], finetune=True).fit(frame)
    X, _ = columns.transform(frame)
    data = MultiLabelDataset.from_arrays(X, train.Y, label_names=train.label_names)
    model: Any = make_model(FineTuned, data, encoder="minilm", tokens=columns.tokens).train()
    plain: Any = make_model(FineTuned, data, encoder="minilm", tokens=columns.tokens).train()
    rows, labels, loss = Rows(data.X), Rows(data.Y), BCE(data.n_labels)
    batches = np.random.default_rng(0).integers(0, len(rows), (STEPS, BATCH))
    ((start, width),) = columns.tokens
    optimizers = {
        one: torch.optim.AdamW(one.param_groups(1e-4, 0.01), fused=True) for one in (model, plain)
    }

    def objective_of_plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        tokens = x[:, start : start + width].long()
        tokens = tokens[:, : int((tokens > 0).sum(dim=1).max())]
        return loss.rows(plain.head(pool(plain.encoder, tokens, "mean")), y, "sum").mean()

    def steps(one: Any) -> None:
        for index in batches:
            x, y = rows.fetch(index), labels.fetch(index)
            objective = one.step(x, y).objective if one is model else objective_of_plain(x, y)
            optimizers[one].zero_grad()
            torch.autograd.backward([objective])
            optimizers[one].step()

    seconds = interleaved(
        {"ours": lambda: steps(model), "theirs": lambda: steps(plain)},
        rounds=3,
        clock=time.process_time,
    )
    return [
        f"training, batches of {BATCH}",
        "a loop in float32",
        f"{seconds['theirs'] / seconds['ours']:.2f}",
        f"{STEPS * BATCH / seconds['ours']:.0f} rows a second of the processor",
    ]


if __name__ == "__main__":
    main()
