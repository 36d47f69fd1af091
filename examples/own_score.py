"""Draw batches by your own score: here, how badly the model misses the positives of minority labels.

A loss-driven strategy has three parts: a score per sample, a distribution over scores (a "law"), and a
pressure schedule. Write the first and choose the others.
"""

import numpy as np

from tailbatch.imbalance import minority_labels
from tailbatch.selection import Geometric, LossDrivenSelector, RankLaw


def make_minority_selector(Y, *, batch_size, epochs, seed=0):
    minority = minority_labels(Y)

    def missed_minority(losses, index):
        """Return scores (b,), finite and >= 0, for losses (b, q) of the samples `index`."""
        return (losses * (Y[index] & minority)).sum(axis=1)

    return LossDrivenSelector(
        len(Y),
        score=missed_minority,
        law=RankLaw(),
        selection_pressure=Geometric(64, 1),
        warm_up_epochs=1,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        labels=Y,
    )


def main():
    rng = np.random.default_rng(0)
    Y = rng.random((2000, 6)) < [0.6, 0.5, 0.4, 0.3, 0.05, 0.02]
    selector = make_minority_selector(Y, batch_size=64, epochs=5)
    for _ in range(5):
        pressure = selector.diagnostics().effective_pressure
        for index in selector:
            # Stands in for binary_cross_entropy_with_logits(model(x), y, reduction="none").
            losses = np.where(Y[index], 1.5, 0.1)
            selector.observe(losses)
        report = selector.diagnostics()
        print(
            f"epoch {report.epoch - 1}: pressure {pressure:5.1f}, "
            f"{report.minority_share:.0%} of the draws carry a minority label"
        )


if __name__ == "__main__":
    main()
