"""Train the five models with random batches and set the Macro-AUC beside the published one.

Usage: ``python -m benchmarks.published_random OUTPUT [PUBLISHED_CSV]`` with ``TAILBATCH_DATA`` naming
the folder of the real scene and yeast files. Each finished run is one line in
``OUTPUT/published_random.jsonl`` and is not repeated; two runs go on at a time, one thread each.
"""

import csv
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

from benchmarks.harness import table

DATASETS = ("yeast", "scene")
MODELS = ("c2ae", "mpvae", "clif", "dela", "paca")  # the cheapest first
FOLDS = 5
Cell = tuple[str, str, int]


def run(dataset: str, model: str, fold: int) -> float:
    """Return the test Macro-AUC of one run by the paper's plan."""
    import torch

    from tailbatch.data import load_dataset, split, stratified_folds
    from tailbatch.metrics import evaluate
    from tailbatch.models import make_model
    from tailbatch.results import TrainingPlan
    from tailbatch.selection import make_selector
    from tailbatch.training import Trainer

    torch.set_num_threads(1)
    data = load_dataset(dataset)
    parts = split(data, stratified_folds(data.Y, n_folds=FOLDS, seed=0)[fold])
    network = make_model(model, parts.train, seed=0)
    selector = make_selector("random", parts.train.Y, seed=0)
    Trainer(TrainingPlan(training_loss_every=0)).fit(network, parts, selector)
    features = torch.from_numpy(parts.test.X.astype("float32"))
    return evaluate(parts.test.Y, network.predict_proba(features).numpy())["macro_auc"]


def finished(path: Path) -> dict[Cell, float]:
    """Return the runs already written down."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = map(json.loads, lines)
    return {(row["dataset"], row["model"], row["fold"]): row["macro_auc"] for row in rows}


def cells() -> Iterator[Cell]:
    """Yield every run, the cheapest models first."""
    for model, dataset, fold in product(MODELS, DATASETS, range(FOLDS)):
        yield dataset, model, fold


def published(path: Path) -> dict[tuple[str, str], float]:
    """Return the paper's Macro-AUC with random batches by (dataset, model)."""
    with path.open(newline="") as file:
        return {
            (row["dataset"], row["model"].lower()): float(row["value"])
            for row in csv.DictReader(file)
            if row["metric"] == "macro_auc" and row["selection"] == "random"
        }


def main(output: Path, reference: Path | None) -> None:
    """Run what is missing, then print the table."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / "published_random.jsonl"
    missing = [cell for cell in cells() if cell not in finished(path)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        runs = {pool.submit(run, *cell): cell for cell in missing}
        for done in as_completed(runs):
            dataset, model, fold = runs[done]
            row = {"dataset": dataset, "model": model, "fold": fold, "macro_auc": done.result()}
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
    scores, paper = finished(path), published(reference) if reference else {}
    rows = []
    for dataset, model in product(DATASETS, MODELS):
        ours = mean(scores[dataset, model, fold] for fold in range(FOLDS))
        theirs = paper.get((dataset, model))
        beside = ["-", "-"] if theirs is None else [f"{theirs:.4f}", f"{ours - theirs:+.4f}"]
        rows.append([dataset, model, f"{ours:.4f}", *beside])
    print(table(["dataset", "model", "test Macro-AUC", "published", "difference"], rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
