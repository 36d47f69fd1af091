"""How far the selection weights of a dataset spread: ``python -m reproduction.table_2.weights``.

The records do not hold the weights, so this reads the datasets themselves (``TAILBATCH_DATA``) and
writes ``reproduction/table_2/weights.csv``.
"""

from pathlib import Path

import pandas as pd
from reproduction.measures import weight_quantiles

from tailbatch.data import load_dataset, stratified_folds
from tailbatch.data.preparation import prepare
from tailbatch.errors import TailbatchError
from tailbatch.imbalance import selection_weights

TABLE = Path(__file__).with_name("weights.csv")
DATASETS = (
    *("debtags", "emotions", "cal500", "scene", "yeast", "enron", "llog-f", "bibtex", "corel5k"),
    *(f"rcv1subset{number}" for number in (1, 2, 3)),
    *("yahoo-arts", "yahoo-business", "tmc2007-500"),
)


def spread(name: str) -> dict[str, object]:
    """Return how the weights of the first fold's training rows spread."""
    prepared = prepare(load_dataset(name), "paper")
    train = prepared.split(stratified_folds(prepared.dataset.Y, n_folds=5, seed=0)[0]).train
    return {"dataset": name, **weight_quantiles(selection_weights(train.X, train.Y))}


def main() -> None:
    """Write the table of every dataset that is here."""
    rows = []
    for name in DATASETS:
        try:
            rows.append(spread(name))
        except TailbatchError as error:
            print(f"{name} is left out: {error}")
    pd.DataFrame(rows).to_csv(TABLE, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
