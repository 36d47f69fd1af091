"""What padding costs: tokens and seconds of a training step, by how similar lengths come together."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reproduction.finetune.runs import STUDIES, data_of

from tailbatch.integrations.encoders import TextEncoder, minilm
from tailbatch.models import make_model

RECORD = Path(__file__).parent / "padding.json"
WINDOW = 50
STEPS = 12


def measure() -> None:
    """Measure each way on the same rows, in turns, and write the record."""
    torch.set_num_threads(1)
    train = data_of("finetuned", Path()).train.take(np.arange(WINDOW * STUDIES["finetuned"].batch))
    lengths = (train.X > 0).sum(axis=1)
    order = np.random.default_rng(0).permutation(train.n_samples)
    by_length = order[np.argsort(lengths[order], kind="stable")]
    ways = {
        "padded to the longest text of the batch": (1, order),
        "in two groups by length": (2, order),
        "in four groups by length": (4, order),
        f"batches of similar length, sorted over {WINDOW} batches": (1, by_length),
    }
    size = STUDIES["finetuned"].batch
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    model: Any = make_model(TextEncoder, train, encoder=minilm(), loss="weighted_bce").train()
    optimizer = torch.optim.AdamW(model.param_groups(1e-5, 0.01))
    batches = np.random.default_rng(1).permutation(WINDOW)[:STEPS]
    for batch in batches:
        for way, (groups, rows) in ways.items():
            index = rows[batch * size : (batch + 1) * size]
            x, y = torch.from_numpy(train.X[index]), torch.from_numpy(train.Y[index]).float()
            model.length_groups = groups
            began = time.process_time()  # the processor's, not the clock's: others may run here
            optimizer.zero_grad()
            torch.autograd.backward([model.step(x, y).objective])
            optimizer.step()
            seconds[way].append(time.process_time() - began)
    found = [
        {
            "way": way,
            "tokens": round(_tokens(lengths[rows], size, groups), 1),
            "seconds": round(float(np.mean(seconds[way])), 3),
        }
        for way, (groups, rows) in ways.items()
    ]
    record = {"mean_length": round(float(lengths.mean()), 1), "ways": found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


def _tokens(lengths: np.ndarray, size: int, groups: int) -> float:
    """Return the mean number of tokens that a text is padded to."""
    padded = [
        len(part) * part.max()
        for start in range(0, len(lengths), size)
        for part in np.array_split(np.sort(lengths[start : start + size]), groups)
    ]
    return float(sum(padded) / len(lengths))
