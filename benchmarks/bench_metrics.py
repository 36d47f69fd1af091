"""Ranking metrics at 5000 rows and 400 labels, against scikit-learn."""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import metrics as reference

from benchmarks.harness import interleaved, publish, table
from tailbatch.metrics import evaluate, macro_auc, ranking_loss

SHAPE = (5000, 400)


def compare(Y: npt.NDArray[np.bool_], scores: npt.NDArray[Any]) -> list[list[str]]:
    """Return the table's rows for scores of one type."""
    seconds = interleaved(
        {
            "ranking loss": lambda: ranking_loss(Y, scores),
            "ranking loss, peer": lambda: reference.label_ranking_loss(Y, scores),
            "Macro-AUC": lambda: macro_auc(Y, scores),
            "Macro-AUC, peer": lambda: reference.roc_auc_score(Y, scores, average="macro"),
            "everything": lambda: evaluate(Y, scores),
        },
        rounds=7,
    )
    rows = []
    for name in ("ranking loss", "Macro-AUC"):
        ours, peer = seconds[name], seconds[f"{name}, peer"]
        ratio = f"{peer / ours:.0f} (target: 10)"
        rows.append([f"{name}, {scores.dtype}", f"{1000 * ours:.0f}", f"{1000 * peer:.0f}", ratio])
    everything = f"{1000 * seconds['everything']:.0f}"
    rows.append([f"all metrics (`evaluate`), {scores.dtype}", everything, "", ""])
    return rows


def main() -> None:
    rng = np.random.default_rng(0)
    Y, scores = rng.random(SHAPE) < 0.02, rng.random(SHAPE)
    rows = compare(Y, scores.astype(np.float32)) + compare(Y, scores)
    header = ["5000 rows, 400 labels", "ms", "scikit-learn, ms", "times faster"]
    publish("metrics", "## Metrics\n\n" + table(header, rows))


if __name__ == "__main__":
    main()
