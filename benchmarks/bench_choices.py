"""What each ordinary choice of a training does for rare labels: debtags, random batches, the MLP.

Starts from a short training without any of them and changes one thing at a time, then all together.
Minority AP and Macro-AP are means over the test rows of three folds, at the best validation epoch.
"""

from dataclasses import replace
from statistics import mean
from typing import Any

from benchmarks.harness import table
from tailbatch.data import load_dataset
from tailbatch.results import RunSpec, TrainingPlan
from tailbatch.study.single import run

_FOLDS = 3
_PLAN = TrainingPlan(epochs=10, warm_up_epochs=0, lr=1e-3, training_loss_every=0)
_NO_BIAS = {"prior_bias": False}
_COSINE = {"schedule": "cosine", "lr": 3e-3}

_ARMS: tuple[tuple[str, dict[str, Any], str | None, dict[str, Any]], ...] = (
    ("none of these: BCE, 1e-3 constant, zero bias, epoch by Macro-AUC", {}, None, _NO_BIAS),
    ("biases start at the labels' frequencies", {}, None, {}),
    ("rate 3e-3 with warm-up and cosine", _COSINE, None, _NO_BIAS),
    ("loss `weighted_bce`", {}, "weighted_bce", _NO_BIAS),
    ("epoch by Macro-AP", {"best_by": "macro_average_precision"}, None, _NO_BIAS),
    ("AdamW in place of coupled L2", {"optimizer": "adamw"}, None, _NO_BIAS),
    ("averaged weights, `ema=0.99`", {"ema": 0.99}, None, _NO_BIAS),
    (
        "bias, rate, loss and epoch choice together",
        {**_COSINE, "best_by": "macro_average_precision"},
        "weighted_bce",
        {},
    ),
)


def main() -> None:
    """Print a row for each choice."""
    digest = load_dataset("debtags").digest
    rows = []
    for name, fields, loss, hyperparameters in _ARMS:
        records = [
            run(
                RunSpec(
                    dataset="debtags",
                    dataset_digest=digest,
                    fold=fold,
                    strategy="random",
                    selection_pressure=None,
                    loss=loss,
                    hyperparameters=hyperparameters,
                    plan=replace(_PLAN, **fields),
                )
            )[0].test
            for fold in range(_FOLDS)
        ]
        metrics = ("minority_average_precision", "macro_average_precision")
        columns = [*metrics, "macro_f", "tuned_macro_f"]
        values = [mean(float(record[column] or 0) for record in records) for column in columns]
        rows.append([name, *(f"{value:.3f}" for value in values)])
    print(
        table(
            ["10 epochs of debtags", "minority AP", "Macro-AP", "Macro-F at 0.5", "Macro-F, tuned"],
            rows,
        )
    )


if __name__ == "__main__":
    main()
