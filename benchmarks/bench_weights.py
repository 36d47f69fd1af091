"""Selection weights of tmc2007-500, compared with a brute-force neighbor search for all rows."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.harness import interleaved, peak_bytes, publish, table
from tailbatch.data import load_dataset
from tailbatch.imbalance import minority_labels, selection_weights

K = 5


def main() -> None:
    dataset = load_dataset("tmc2007-500")
    X, Y = dataset.X, dataset.Y

    def ours() -> object:
        return selection_weights(X, Y, k=K)

    def theirs() -> object:
        return NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(X).kneighbors(X)

    seconds = interleaved({"theirs": theirs, "ours": ours}, rounds=3)
    searched = int(np.count_nonzero(Y[:, minority_labels(Y)].any(axis=1)))
    n = dataset.n_samples
    peak = peak_bytes(ours) / 1e6
    rows = [
        ["scikit-learn, brute force", f"{n:,}", f"{seconds['theirs']:.2f}", "1", ""],
        [
            "tailbatch, including the weights",
            f"{searched:,}",
            f"{seconds['ours']:.2f}",
            f"{seconds['theirs'] / seconds['ours']:.1f} (target: 3)",
            f"{peak:.0f} MB (n x n would be {8 * n * n / 1e6:,.0f} MB)",
        ],
    ]
    header = ["tmc2007-500", "rows with a search", "seconds", "times faster", "peak memory"]
    publish("weights", "## Selection weights\n\n" + table(header, rows))


if __name__ == "__main__":
    main()
