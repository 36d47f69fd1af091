"""What chosen rows of a stream are worth: ``python -m benchmarks.stream_evidence``.

``run STORE`` trains an MLP for one epoch with weighted BCE, batches of 32, AdamW and a cosine schedule
that ends at zero, on GoEmotions' embeddings (official parts) and tmc2007-500 (one split), and writes
the scores to ``stream_evidence.json``; it resumes after an interruption. ``table`` prints them.

Set down before the first run:

- The learning rate is the best of 0.001, 0.003 and 0.01 in Macro-AP on validation rows, for random
  batches, for each dataset and number of rows by itself, over two seeds that are not used again. Every
  way to choose rows takes it over.
- A run of fewer rows has a schedule of its own, fully decayed: random batches of half of the rows are
  the control for a stream at rate 0.5.
- Streams pass in one random order, the same in each run, as shards that were shuffled when they were
  written, with the default buffer of 4,096 rows. Random batches are a perfect shuffle each time.
- Fewer rows are *enough* where the 95% interval of the relative change from random batches of all rows
  lies above -1% in Macro-AP and above -3% in minority AP, both. Rates 0.5, 0.7 and 0.85 are run.
- Ten seeds; intervals are Student's t over them. They say how a change varies with weights and order on
  these test rows, not over datasets.

Added after the first runs, because streams of GoEmotions were behind `importance` at rate 1: one fixed
order is one draw of what comes last, whatever the seed. In *stream in new orders* each seed has its own.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from benchmarks.harness import publish, table
from tailbatch.data import Parts, load_dataset, split, stratified_split
from tailbatch.files import replacing
from tailbatch.imbalance import minority_labels
from tailbatch.metrics import macro_average_precision
from tailbatch.models import MultiLabelModel, make_model
from tailbatch.selection import ImportanceSelector, StreamSelector, count_labels
from tailbatch.training import Rows, score_rows

RECORDS = Path(__file__).with_suffix(".json")
DATASETS = ("tmc2007-500", "goemotions")
ARMS = ("random", "importance", "stream", "stream in new orders")
RATES = (1.0, 0.5, 0.7, 0.85)
LEARNING_RATES = (0.001, 0.003, 0.01)
TUNING_SEEDS, SEEDS = (100, 101), tuple(range(10))
BATCH = 32
MARGINS = {"Macro-AP": -1.0, "minority AP": -3.0}
_METRICS = tuple(MARGINS)


class Run(NamedTuple):
    """One training: what chooses the rows, how many for each row there is, and the random seed."""

    dataset: str
    arm: str
    rate: float
    lr: float
    seed: int


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    runs = commands.add_parser("run")
    runs.add_argument(
        "store", type=Path, help="folder for what is computed once, such as embeddings"
    )
    commands.add_parser("table")
    given = parser.parse_args()
    if given.command == "run":
        torch.set_num_threads(1)
        for dataset in DATASETS:
            _run_all(dataset, given.store)
    publish("stream evidence", _page(_records()))


def _records() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    return found


def _run_all(dataset: str, store: Path) -> None:
    records = {Run(*record["run"]): record for record in _records()}
    parts = _parts(dataset, store)

    def done(run: Run) -> dict[str, Any]:
        if run not in records:
            records[run] = {"run": list(run), **_trained(run, parts)}
            with replacing(RECORDS) as path:
                path.write_text(json.dumps(list(records.values()), indent=0) + "\n")
        return records[run]

    for rate in RATES:
        scores = {
            lr: np.mean(
                [
                    done(Run(dataset, "random", rate, lr, seed))["validation"]["Macro-AP"]
                    for seed in TUNING_SEEDS
                ]
            )
            for lr in LEARNING_RATES
        }
        best = max(scores, key=lambda lr: float(scores[lr]))
        for seed in SEEDS:
            for arm in ARMS:
                if arm in ("random", "stream") or rate == 1:
                    done(Run(dataset, arm, rate, best, seed))


def _parts(dataset: str, store: Path) -> Parts:
    if dataset == "goemotions":
        from reproduction.finetune.runs import data_of

        store.mkdir(parents=True, exist_ok=True)
        parts = data_of("frozen-32", store)
        return replace(parts, train=parts.train.take(_order(parts.train.n_samples)))
    data = load_dataset(dataset)
    fold = stratified_split(data.Y, validation=0.1, test=0.3, seed=0)
    parts = split(data, fold, scale="minmax")
    dense = replace(parts.train, X=parts.train.X.toarray())  # type: ignore[union-attr]
    return replace(parts, train=dense.take(_order(dense.n_samples)))


def _order(n: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(n)


def _trained(run: Run, parts: Parts) -> dict[str, Any]:
    train = parts.train
    model = make_model("mlp", train, seed=run.seed, loss="weighted_bce")
    rows = Rows(train.X)
    Y = torch.tensor(np.asarray(train.Y)).float()
    steps = round(run.rate * train.n_samples / BATCH)
    started, wall = time.process_time(), time.perf_counter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.lr, weight_decay=0.01)
    passed = 0
    for step, (index, weights) in enumerate(_batches(run, parts)):
        if step == steps:  # a stream's number of rows is known to a few in a thousand
            break
        optimizer.param_groups[0]["lr"] = run.lr * (1 + math.cos(math.pi * step / steps)) / 2
        weight = None if weights is None else torch.tensor(weights, dtype=torch.float32)
        optimizer.zero_grad()
        model.step(rows.fetch(index), Y[torch.from_numpy(index)], weight).objective.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        passed += len(index)
    seconds = {"cpu": time.process_time() - started, "wall": time.perf_counter() - wall}
    return {
        "validation": _scores(model, parts, "validation"),
        "test": _scores(model, parts, "test"),
        "rows": passed,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def _batches(run: Run, parts: Parts) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of each batch and their weights; the cost of choosing them is measured, too."""
    Y, n = parts.train.Y, parts.train.n_samples
    if run.arm == "random":
        order = np.random.default_rng(run.seed).permutation(n)
        for start in range(0, round(run.rate * n), BATCH):
            yield order[start : start + BATCH], None
    elif run.arm == "importance":
        selector = ImportanceSelector(Y, batch_size=BATCH, seed=run.seed)
        weights = 1 / (n * selector.probabilities())
        for index in selector:
            selector.mean(np.ones(len(index)))  # it refuses to go on if its weights are not used
            yield index, weights[index]
    else:
        stream = StreamSelector(count_labels(Y), rate=run.rate, seed=run.seed)
        rows = range(n) if run.arm == "stream" else np.random.default_rng(run.seed).permutation(n)
        drawn = stream.select(rows, lambda row: Y[row])
        while batch := [pair for _, pair in zip(range(BATCH), drawn, strict=False)]:
            yield np.array([row for row, _ in batch]), [weight for _, weight in batch]


def _scores(model: MultiLabelModel, parts: Parts, which: str) -> dict[str, float]:
    part = getattr(parts, which)
    scores = score_rows(model.predict_proba, Rows(part.X))
    rare = minority_labels(parts.train.Y)
    return {
        "Macro-AP": macro_average_precision(part.Y, scores),
        "minority AP": macro_average_precision(part.Y, scores, only=rare),
    }


# ---- the table -------------------------------------------------------------------------------


def _page(records: list[dict[str, Any]]) -> str:
    found = {
        (*record["run"][:3], record["run"][4]): record
        for record in records
        if record["run"][4] in SEEDS
    }
    rows = []
    for dataset in DATASETS:
        pairs = [(arm, 1.0) for arm in ARMS[1:]]
        pairs += [(arm, rate) for rate in RATES[1:] for arm in ("random", "stream")]
        for arm, rate in pairs:
            if (dataset, arm, rate, SEEDS[-1]) in found:
                rows.append(_row(found, dataset, arm, rate))
    against = []
    pairs_beside = [(arm, 1.0, "importance") for arm in ARMS[2:]]
    pairs_beside += [("stream", rate, "random") for rate in RATES[1:]]
    for dataset in DATASETS:
        for arm, rate, base in pairs_beside:
            if (dataset, arm, rate, SEEDS[-1]) in found:
                cells = [_change(found, dataset, arm, rate, base, rate, m)[0] for m in _METRICS]
                against.append([dataset, f"{arm}, {rate:g}", f"{base}, {rate:g}", *cells])
    text = (
        "## Rows of a stream\n\n"
        f"One epoch of an MLP, weighted BCE, batches of {BATCH}, {len(SEEDS)} seeds; the plan is in "
        "`stream_evidence.py`. *Enough* is a 95% interval above -1% in Macro-AP and above -3% in "
        "minority AP. Rows go forward and backward equally often. Seconds are processor time on one "
        "thread, selection included, over that of random batches of all rows."
    )
    header = ["dataset", "rows", "share of rows"]
    first = [*header, "Macro-AP", "minority AP", "enough", "seconds"]
    second = ["dataset", "rows", "beside", "Macro-AP", "minority AP"]
    return "\n\n".join(
        [
            text,
            "Against random batches of all rows:\n\n" + table(first, rows),
            "Against as many rows chosen otherwise:\n\n" + table(second, against),
        ]
    )


def _row(found: dict[Any, Any], dataset: str, arm: str, rate: float) -> list[str]:
    changes = [_change(found, dataset, arm, rate, "random", 1.0, m) for m in _METRICS]
    enough = all(low > MARGINS[m] for (_, low), m in zip(changes, _METRICS, strict=True))
    share = _ratio(found, dataset, arm, rate, lambda record: record["rows"])
    seconds = _ratio(found, dataset, arm, rate, lambda record: record["seconds"]["cpu"])
    cells = [text for text, _ in changes]
    name = f"{arm}, {rate:g}"
    return [dataset, name, f"{share:.2f}", *cells, "yes" if enough else "no", f"{seconds:.2f}"]


def _ratio(found: dict[Any, Any], dataset: str, arm: str, rate: float, value: Any) -> float:
    pairs = [
        (value(found[dataset, arm, rate, seed]), value(found[dataset, "random", 1.0, seed]))
        for seed in SEEDS
    ]
    return float(np.median([one / two for one, two in pairs]))


def _change(
    found: dict[Any, Any], dataset: str, arm: str, rate: float, base: str, at: float, metric: str
) -> tuple[str, float]:
    """Return the relative change in percent with its interval, as text, and its lower end."""
    change = [
        100
        * (
            found[dataset, arm, rate, seed]["test"][metric]
            / found[dataset, base, at, seed]["test"][metric]
            - 1
        )
        for seed in SEEDS
    ]
    mean, error = float(np.mean(change)), stats.sem(change)
    half = float(stats.t.ppf(0.975, len(change) - 1) * error)
    return f"{mean:+.1f}% [{mean - half:+.1f}, {mean + half:+.1f}]", mean - half


if __name__ == "__main__":
    main()
