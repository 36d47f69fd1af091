"""The runs behind the page: rates first, on validation rows, then the strategies at the chosen rates."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reproduction.measures import best_rate

from tailbatch.results import ResultStore, TrainingPlan
from tailbatch.results.archive import SUFFIX, open_records, write_archive
from tailbatch.results.frames import read_store
from tailbatch.study import Study, ThisProcess, run_study

RECORDS = Path(__file__).parent / "records"
BUDGETS = (1, 3, 10, 30)
LOSSES = ("weighted_bce", "bce")
# All labels of GoEmotions have positives enough; its 2,000 most frequent words train in a tenth of the
# time of 10,000. The paper's preparation leaves out labels with at most 20 positives: with two in the
# test rows or none, nothing could be said of them.
PREPARATIONS = {"goemotions": "top-2000"} | dict.fromkeys(
    (
        *("debtags", "bibtex", "rcv1subset1", "rcv1subset2", "rcv1subset3", "tmc2007-500"),
        *("yahoo-arts", "yahoo-business", "corel5k", "enron", "yeast"),
    ),
    "paper",
)
RATES = {
    1: (1e-2, 3e-2, 1e-1, 3e-1),
    3: (1e-2, 3e-2, 1e-1),
    10: (3e-3, 1e-2, 3e-2),
    30: (3e-3, 1e-2, 3e-2),
}
CORRECTED = {"name": "balanced", "corrected": True}
ADAPTIVE = {"name": "adaptive", "selection_pressures": [16]}
FEW = ("random", "importance", CORRECTED, "minority", ADAPTIVE)
ALL = (*FEW, "uniform", "balanced", "class_aware")
TWO = ("random", "importance")
#: Later selectors of the paper's authors (arXiv 2412.16521 and 2605.09400), at their papers' settings.
LATER = ("uncertainty", "d2ace")
LATER_EPOCHS = (1, 3)
#: The strategies by budget: fewer where runs take longer.
ARMS = {1: ALL, 3: ALL, 10: FEW, 30: TWO}
#: Settings of `importance` beside its defaults, to choose between on validation rows.
SETTINGS = (
    *({"name": "importance", "mix": mix} for mix in (0.1, 0.5, [0.3, 1.0])),
    {"name": "importance", "beta": 0.5},
    {"name": "importance", "score": "gradient"},
)
TRIED_ON = ("goemotions", "rcv1subset1", "bibtex", "debtags", "yahoo-arts", "tmc2007-500")


def rates(epochs: int, dataset: str, loss: str) -> Iterator[Study]:
    """Yield what the rate of a dataset is chosen by: random batches, the first fold."""
    models = [{"name": "ensemble", "lr": lr} for lr in RATES[epochs]]
    yield _study("rates", epochs, dataset, loss, models=models, folds=[0])


def budget(epochs: int, dataset: str, loss: str) -> Iterator[Study]:
    """Yield the comparison of strategies, at the rate chosen for random batches."""
    yield _at_chosen_rate("budget", epochs, dataset, loss, strategies=ARMS[epochs])


def later(epochs: int, dataset: str, loss: str) -> Iterator[Study]:
    """Yield the authors' later selectors, beside what `budget` compares."""
    yield _at_chosen_rate("later", epochs, dataset, loss, strategies=LATER)


def pair(epochs: int, dataset: str, loss: str) -> Iterator[Study]:
    """Yield `importance` and random batches on all five folds, three of which are in `budget`."""
    yield _at_chosen_rate("pair", epochs, dataset, loss, strategies=TWO, folds=range(5))


def settings(epochs: int, dataset: str, loss: str) -> Iterator[Study]:
    """Yield the settings of `importance`, with the weighted loss."""
    if dataset in TRIED_ON and loss == "weighted_bce":
        yield _at_chosen_rate("settings", epochs, dataset, loss, strategies=SETTINGS)


def levels(epochs: int, dataset: str, loss: str) -> Iterator[Study]:
    """Yield scikit-learn's logistic regression on the same folds; it has no epochs and no batches."""
    if loss == "bce":
        yield _study("levels", epochs, dataset, loss, models=["logistic"])


KINDS: dict[str, Callable[[int, str, str], Iterator[Study]]] = {
    "rates": rates,
    "budget": budget,
    "later": later,
    "pair": pair,
    "settings": settings,
    "levels": levels,
}


#: The kinds whose runs are compared with each other and share a file.
COMPARED = ("budget", "later", "pair")


def _at_chosen_rate(kind: str, epochs: int, dataset: str, loss: str, **axes: object) -> Study:
    runs = read_store(open_records(RECORDS / f"rates-{epochs}{SUFFIX}")).runs
    here = runs[(runs["dataset"] == dataset) & (runs["loss"].replace("", "bce") == loss)]
    lr = best_rate(here, "validation_macro_average_precision")
    models = [{"name": "ensemble", "lr": lr}]
    return _study(kind, epochs, dataset, loss, models=models, **axes)


def _study(kind: str, epochs: int, dataset: str, loss: str, **axes: object) -> Study:
    chosen: dict[str, object] = {"strategies": ["random"], "folds": [0, 1, 2], **axes}
    return Study(
        name=f"{kind}-{epochs}-{dataset}-{loss}",
        datasets=[dataset],
        preparations=[PREPARATIONS[dataset]],
        losses=[loss],
        scale="auto",
        plan=TrainingPlan(
            epochs=epochs,
            optimizer="adam_mini",
            weight_decay=0.03,
            schedule="cosine",
            warm_up_epochs=0,
            best_by="macro_average_precision",
            training_loss_every=0,
        ),
        **chosen,  # type: ignore[arg-type] # each kind gives its own
    )


def run(
    folder: Path, kind: str, epochs: int, datasets: Sequence[str], losses: Sequence[str]
) -> None:
    """Do the runs of one kind and budget that its store in a folder lacks."""
    # One file has all folds of a comparison.
    store = ResultStore(folder / f"{'selection' if kind in COMPARED else kind}-{epochs}")
    for dataset, loss in itertools.product(datasets, losses):
        for study in KINDS[kind](epochs, dataset, loss):
            outcome = run_study(study, store, ThisProcess, workers=1)
            print(study.name, outcome.done, "done", outcome.skipped, "skipped", flush=True)
            for failure in outcome.failures:
                print("failed:", failure.message, flush=True)


def collect(folder: Path) -> None:
    """Add the records of each store in a folder to the file of its name here."""
    for path in sorted(folder.iterdir()):
        store, file = ResultStore(path), RECORDS / f"{path.name}{SUFFIX}"
        if file.exists():
            store.add_missing(open_records(file))  # a folder may hold a part of the runs
        write_archive(store, file)
