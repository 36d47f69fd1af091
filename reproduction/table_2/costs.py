"""What the printed cells that were not run would cost: ``python -m reproduction.table_2.costs``.

Each missing model and dataset is trained for a few steps on one thread, with adaptive batches, and
extrapolated to what the page needs of it: 100 epochs with random and 100 with adaptive batches; a preset
needs those with random ones only. The result, ``reproduction/table_2/costs.csv``, counts processor time,
which a busy machine does not inflate. It reads the datasets (``TAILBATCH_DATA``); a cell that is in the
table already is not measured again.
"""

import csv
import math
import time
from pathlib import Path

import torch
from reproduction.cells import collected, preset_cell
from reproduction.published import STAND_INS, dataset_key, directions
from reproduction.records import PRESETS, committed, lacking

from tailbatch.data import Parts, load_dataset, stratified_folds
from tailbatch.data.preparation import prepare
from tailbatch.models import MultiLabelModel, make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import Callback, Rows, Trainer, score_rows

TABLE = Path(__file__).with_name("costs.csv")
_MEASURED = ("parameters", "steps", "step_seconds", "validation_seconds", "hours")
COLUMNS = ("model", "preset", "dataset", *_MEASURED)
PLAN = TrainingPlan()
Cell = tuple[str, str, str]  # model, preset or nothing, dataset
_STEPS, _SECONDS = 12, 20  # whichever is reached first, but two steps in any case
_ROWS = 128  # of the validation rows, whose time is extrapolated to all of them


class _Enough(Exception):
    """The training has been measured."""


class _Watch(Callback):
    """Counts steps and their processor time, the first one left out, and ends the training."""

    def __init__(self) -> None:
        self.steps, self.start, self.seconds = -1, 0.0, 0.0

    def on_batch(self, step: int, steps_per_epoch: int, objective: float) -> None:
        self.steps += 1
        if self.steps == 0:
            self.start = time.process_time()
            return
        self.seconds = time.process_time() - self.start
        if self.steps >= _STEPS or self.seconds > _SECONDS:
            raise _Enough


def missing() -> list[Cell]:
    """Return the models and datasets whose printed directions were not run, and the presets."""
    cells = directions(collected(committed()).runs)
    absent = cells[cells["verdict"] == "not run"]
    pairs = zip(absent["model"], absent["dataset"], strict=True)
    usual = [(model.casefold(), "", dataset_key(data)) for model, data in pairs]
    return list(dict.fromkeys([*usual, *map(preset_cell, lacking(PRESETS))]))


def parts_of(name: str) -> Parts:
    """Return the first fold of a dataset, prepared as the paper does."""
    prepared = prepare(load_dataset(STAND_INS.get(name, name)), "paper")
    return prepared.split(stratified_folds(prepared.dataset.Y, n_folds=5, seed=0)[0])


def cost(name: str, preset: str, dataset: str, parts: Parts) -> dict[str, object]:
    """Return what a step costs, and the runs that a cell needs, in hours of one core."""
    model = make_model(name, parts.train, seed=0, preset=preset or None)
    selector = make_selector("adaptive", parts.train.Y, batch_size=PLAN.batch_size, weights=1.0)
    watch = _Watch()
    try:
        Trainer(PLAN, callbacks=[watch]).fit(model, parts, selector)
    except _Enough:
        step, validation = watch.seconds / watch.steps, _validation_seconds(model, parts)
    epoch = math.ceil(parts.train.n_samples / PLAN.batch_size) * step + validation
    parameters = sum(weights.numel() for weights in model.parameters())
    runs = 1 if preset else 2
    values = (
        name,
        preset,
        dataset,
        parameters,
        watch.steps,
        step,
        validation,
        runs * PLAN.epochs * epoch / 3600,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _validation_seconds(model: MultiLabelModel, parts: Parts) -> float:
    rows = Rows(parts.validation.X[:_ROWS], torch.device("cpu"))
    start = time.process_time()
    score_rows(model.predict_proba, rows)
    return (time.process_time() - start) * parts.validation.n_samples / len(rows)


def main() -> None:
    """Add the cells that the table lacks, one at a time, so that it can be stopped at any point."""
    torch.set_num_threads(1)
    there = list(csv.DictReader(TABLE.open())) if TABLE.exists() else []
    known = {(row["model"], row["preset"], row["dataset"]) for row in there}
    wanted = [cell for cell in missing() if cell not in known]
    for dataset in dict.fromkeys(dataset for _, _, dataset in wanted):
        parts = parts_of(dataset)
        for model, preset in ((model, preset) for model, preset, data in wanted if data == dataset):
            row = cost(model, preset, dataset, parts)
            print(row, flush=True)
            there.append(
                {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()}
            )
            _write(there)


def _write(rows: list[dict[str, str]]) -> None:
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: float(row["hours"])))


if __name__ == "__main__":
    main()
