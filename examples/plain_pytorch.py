"""A plain PyTorch loop with workers. A star marks the five lines that selection adds or changes.

Run it: python examples/plain_pytorch.py
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import TensorDataset

from tailbatch import load_dataset, make_selector
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader

EPOCHS, WORKERS, PREFETCHED = 4, 2, 2 * 2  # each worker prefetches two batches


def main():
    data = load_dataset("debtags")
    x = torch.from_numpy(data.X.toarray().astype(np.float32))
    y = torch.from_numpy(data.Y.astype(np.float32))
    selector = make_selector(
        "adaptive", data.Y, X=data.X, warm_up_epochs=1, max_lag=PREFETCHED
    )  # *
    dataset = IndexedDataset(TensorDataset(x, y))  # *
    loader = SelectiveLoader(dataset, selector, num_workers=WORKERS)  # *

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, y.shape[1]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for index, (features, labels) in loader:  # *
            losses = binary_cross_entropy_with_logits(model(features), labels, reduction="none")
            optimizer.zero_grad()
            losses.sum(1).mean().backward()
            optimizer.step()
            selector.observe(losses, index)  # *
        report = selector.diagnostics()
        print(
            f"epoch {epoch + 1}: loss of the last batch {losses.sum(1).mean():.3f}, "
            f"{report.minority_share:.0%} of the draws carry a rare label, lag {report.lag}"
        )

    # To save: torch.save({"selector": loader.state_dict(), ...}) at any step. To resume:
    # loader.load_state_dict(...) before the loop, which then starts at selector.epoch.


if __name__ == "__main__":
    main()
