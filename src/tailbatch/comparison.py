"""Strategies, models and losses compared from Python, on arrays, frames or datasets."""

import json
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from tailbatch import defaults
from tailbatch.data import Columns, MultiLabelDataset, save_npz, stratified_folds
from tailbatch.data.dataset import stored_by_values
from tailbatch.data.preparation import is_whole, prepare
from tailbatch.data.tables import no_features
from tailbatch.errors import DataError, StudyError, require
from tailbatch.metrics import METRICS, metric_facts
from tailbatch.registry import plain_names
from tailbatch.results import NO_BATCHES, ResultStore, TrainingPlan
from tailbatch.study import Study, StudyOutcome, StudyProgress, ThisProcess, WorkerPool, run_study
from tailbatch.study.sources import FOLD_SEED, Entry, duration, facts_of

if TYPE_CHECKING:
    import pandas as pd

_CELL = ("dataset", "model", "loss", "strategy", "selection_pressure")
_ORDER = ("dataset", "model", "strategy")  # rows of the table, each in the order of the plan
_MAY_DIFFER = ("plan_lr", "plan_selection_loss")  # entries may have their own
_SHOWN = ("minority_average_precision", "tuned_minority_macro_f", "macro_auc", "tuned_micro_f")
_FEW_ROWS_A_FOLD = 20  # with more, no fold is too small to be split
_NO_FILE_NAME = re.compile(r"[^\w-]+")

_log = logging.getLogger(__name__)


def compare(
    X: Any,
    Y: Any = None,
    *,
    models: Sequence[Entry] = (defaults.MODEL,),
    strategies: Sequence[Entry] = defaults.STRATEGIES,
    losses: Sequence[Entry] | None = None,
    selection_pressures: Sequence[str | float] | None = None,
    preparations: Sequence[str] = (defaults.PREPARATION,),
    min_positives: int | None = None,
    n_folds: int = defaults.N_FOLDS,
    seeds: Sequence[int] = (defaults.SEED,),
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    plan: TrainingPlan | None = None,
    columns: Columns | None = None,
    name: str = "compare",
    store: str | Path | ResultStore | None = None,
    workers: int = 1,
    executor: Callable[[], Executor] | None = None,
    progress: bool | Callable[[StudyProgress], None] = True,
    allow_failures: bool = False,
) -> "Comparison":
    """Compare strategies, models and losses fairly on your data: same folds, weights and steps.

    Parameters
    ----------
    X, Y
        Features (n, d) and labels (n, q) as arrays, sparse matrices or data frames; or, without Y, a
        `MultiLabelDataset`, a dataset's name or file, or a list of them. With a data frame or file X, Y
        may also name its label columns, as in `MultiLabelDataset.from_frame` and `load_dataset`.
    models, strategies, losses
        Names; custom classes or functions, as `make_model`, `make_selector` and `make_loss` take
        them; or tables with such a ``name`` and its settings: ``{"name": "mlp", "hidden": [64]}``.
    selection_pressures
        Pressures to try; None is each strategy's default; see `Study`.
    preparations
        How the datasets are prepared, see `tailbatch.data.prepare`.
    min_positives
        Leave out labels with fewer positives, which cannot be learned; a log message names them.
    n_folds, seeds
        Number of cross-validation folds, and of seeds per fold.
    epochs, batch_size, lr
        Training settings; None uses the plan's.
    plan
        All training settings; None is the default for the models (`tailbatch.defaults.recipe_of`).
    columns
        How to read the columns of a data frame or file, see `tailbatch.data.Columns`.
    name
        Name of the arrays in tables and reports.
    store
        Folder to keep the runs in: the same call resumes after an interruption and never repeats a run.
        None keeps them as long as the returned comparison exists.
    workers
        Processes to train in; 1 is this one. Code that other processes cannot import, such as a
        function from a notebook, runs in this process, and a log message says so. A script that uses
        more than one puts the call below ``if __name__ == "__main__":``.
    executor
        Makes the workers instead, for instance `tailbatch.integrations.ray.RayExecutor`.
    progress
        Whether to show a progress bar, on a terminal or in a notebook; or a function that is called with
        each `StudyProgress`.
    allow_failures
        Whether to return the other runs if some fail. By default a failed run is an error.

    Returns
    -------
    Comparison
        With its `table`, the `best` row of it, and its `report`.

    Examples
    --------
    >>> import numpy as np
    >>> import tailbatch
    >>> X = np.random.default_rng(0).random((60, 4))
    >>> Y = X[:, :3] > [0.5, 0.6, 0.9]
    >>> result = tailbatch.compare(X, Y, n_folds=2, epochs=2, progress=False)
    >>> result.table()["strategy"].tolist()
    ['random', 'importance', 'balanced', 'minority']
    """
    WorkerPool.leave_if_unguarded()
    place, kept = _place(store)
    datasets = list(_datasets(X, Y, columns, name))
    names = [entry.get("name") if isinstance(entry, Mapping) else entry for entry in models]
    study = Study(
        name="compare",
        title=f"Strategies compared on {', '.join(_called(dataset) for dataset in datasets)}",
        datasets=[_entry(dataset, place.path / "data") for dataset in datasets],
        preparations=preparations if min_positives is None else [f"min-{min_positives}"],
        models=models,
        losses=losses,
        strategies=strategies,
        selection_pressures=selection_pressures,
        n_folds=n_folds,
        seeds=seeds,
        plan=(plan or TrainingPlan.suited_to(*names)).changed(
            epochs=epochs, batch_size=batch_size, lr=lr
        ),
    )
    for notice in _check_data(study, place):
        _log.warning("%s", notice)
    executor = executor or (ThisProcess if workers == 1 else partial(WorkerPool, workers))
    with _told(progress) as listen:
        outcome = run_study(study, place, executor, workers=workers, listen=listen, own_name=True)
    result = Comparison(ResultStore(place.path, outcome.plan), outcome, kept)
    if outcome.failures and not allow_failures:
        raise StudyError(
            f"{len(outcome.failures)} of {len(outcome.plan.specs)} runs failed: {result._failure()} "
            "(allow_failures=True returns the others)"
        )
    return result


def _check_data(study: Study, store: ResultStore) -> list[str]:
    """Raise if a dataset of a study cannot be read, prepared or dealt to its folds; run nothing.

    Return which labels the preparations leave out because they have too few positives.
    """
    pairs = [(source, name) for source in study.sources for name in study.preparations]
    left_out = []
    # One that does not apply to a dataset is passed over, unless nothing would be left.
    for source, preparation in [pair for pair in pairs if pair[0].has(pair[1])] or pairs:
        known = facts_of(source, study.preparations, store).facts.get(preparation, {})
        if known and not known["n_features"]:
            raise no_features(source.load())
        # Without facts it cannot be prepared, which says why.
        if known.get("n_samples", 0) < _FEW_ROWS_A_FOLD * study.n_folds:
            labels = prepare(source.load(), preparation).dataset.Y
            stratified_folds(labels, n_folds=study.n_folds, seed=FOLD_SEED)
        if preparation != "full" and is_whole(preparation):
            read = source.load()
            notices = prepare(read, preparation).dataset.notices[len(read.notices) :]
            left_out += [f"{source.name}: {notice}" for notice in notices]
    return left_out


@contextmanager
def _told(progress: bool | Callable[[StudyProgress], None]) -> Iterator[Any]:
    """Yield what `run_study` tells its progress: a function, a bar where a person looks, or nothing."""
    if callable(progress):
        yield progress
        return
    in_notebook = type(sys.stdout).__module__.startswith("ipykernel")
    stream = sys.stdout if in_notebook else sys.stderr
    if not progress or not (in_notebook or stream.isatty()):
        yield None
        return
    bar, logger = _Bar(stream), logging.getLogger("tailbatch")
    logger.handlers.insert(0, bar)
    try:
        yield bar.update
    finally:
        logger.removeHandler(bar)
        bar.clear()


class _Bar(logging.Handler):
    """One line that shows how far a comparison is; a log message first takes it away."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(logging.WARNING)
        self._stream = stream
        self._shown = 0

    def update(self, progress: StudyProgress) -> None:
        finished = progress.done + progress.failed
        text = f"{finished} of {progress.total} runs"
        if progress.seconds_left is not None:
            text += f", {duration(progress.seconds_left)} left"
        text += f", {progress.failed} failed" if progress.failed else ""
        width = shutil.get_terminal_size().columns - 1  # a full line would wrap
        room = min(30, width - len(text) - 3)
        bar = "#" * round(finished / max(1, progress.total) * room)
        line = (f"[{bar:-<{room}}] {text}" if room >= 5 else text)[:width]
        self.clear()
        self._stream.write(line)
        self._stream.flush()
        self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            self._stream.write(f"\r{' ' * self._shown}\r")
            self._stream.flush()
            self._shown = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.clear()
        # Python itself prints a warning that nobody handles, but for this handler.
        if len(logging.getLogger("tailbatch").handlers) == 1 and not logging.getLogger().handlers:
            print(record.getMessage(), file=sys.stderr)  # noqa: T201


class Comparison:
    """The result of `compare`: a table, its best row, and a report.

    `kept` is an object to keep alive as long as the store is read, such as a temporary folder.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).random((60, 4))
    >>> compare(X, X > 0.5, strategies=["random"], n_folds=2, epochs=1, progress=False)
    Comparison of 1 choice, 2 runs; best by validation ...: ensemble, random
    """

    def __init__(self, store: ResultStore, outcome: StudyOutcome, kept: object = None) -> None:
        self.store, self.outcome = store, outcome
        self._kept = kept
        for failure in outcome.failures:
            names = failure.spec.model, failure.spec.strategy
            name = ", ".join(_shown(plain_names(names)[name]) for name in names)
            _log.warning("a run of %s failed: %s", name, failure.message)

    @property
    def study(self) -> str:
        """The name of the comparison in its store."""
        return self.outcome.plan.name

    def runs(self) -> "pd.DataFrame":
        """Return one row per run, as `ResultStore.frame` gives it."""
        return self.store.frame(self.study)

    def table(self, metrics: Sequence[str] | None = None) -> "pd.DataFrame":
        """Return the mean of each test metric over folds and seeds, one row per choice.

        `metrics` are names in `tailbatch.metrics.METRICS`, None for all; each column is named after its
        metric. `best` uses the columns ``validation_macro_auc`` and so on.
        """
        runs = self.runs()
        if runs.empty:
            raise StudyError(f"no run finished: {self._failure()}")
        pd: Any = require("pandas", extra="cli")
        names = list(METRICS) if metrics is None else list(metrics)
        columns = [c for name in names for c in (name, f"validation_{name}") if c in runs]
        place = {spec.digest: position for position, spec in enumerate(self.outcome.plan.specs)}
        runs = runs.sort_values("digest", key=lambda digests: digests.map(place))
        runs = runs.iloc[np.lexsort([pd.factorize(runs[field])[0] for field in _ORDER[::-1]])]
        runs = runs.assign(
            **{key: _with_options(runs, key) for key in ("model", "loss", "strategy")}
        )
        keys = [*_CELL, *(column for column in _MAY_DIFFER if runs[column].nunique() > 1)]
        cells = runs.groupby(keys, sort=False, dropna=False)
        return cells[columns].mean().assign(runs=cells.size()).reset_index()

    def best(self, metric: str | None = None) -> "pd.Series[Any]":
        """Return the row of the table with the best mean of a metric on the validation rows.

        The mean is over all datasets if there are several. Test metrics are not used to choose.

        Parameters
        ----------
        metric
            A name in `tailbatch.metrics.METRICS`. None is the report's: minority average precision, or
            Macro-AUC where there are no minority labels.
        """
        metric = self._chosen_by() if metric is None else metric
        if metric not in METRICS:
            raise StudyError(f"unknown metric {metric!r:.60}. Known: {', '.join(METRICS)}")
        table = self.table()
        keys = [key for key in (*_CELL[1:], *_MAY_DIFFER) if key in table]
        numbers = [name for name in table.select_dtypes("number") if name not in keys]
        means = table.groupby(keys, sort=False)[numbers].mean().reset_index()
        scores = means[f"validation_{metric}"]
        chosen = scores.idxmax() if METRICS[metric].higher_is_better else scores.idxmin()
        row: pd.Series[Any] = means.loc[chosen]
        return row

    def _chosen_by(self) -> str:
        """Return the metric by which the report chooses the best setting."""
        from tailbatch.analysis.comparisons import claimed, measured

        columns = {f"validation_{name}": name for name in METRICS}
        runs = self.runs()
        known = measured(runs.drop(columns=list(METRICS), errors="ignore").rename(columns=columns))
        return claimed([name for name in METRICS if name in known] or ["macro_auc"])[0]

    def by_label(self) -> "pd.DataFrame":
        """Return one row per label: its average precision with each strategy, the rarest first."""
        from tailbatch.analysis.curves import labels_by_name

        return labels_by_name(self._label_facts()).rename(columns=str)

    def plot(self, ax: Any = None) -> Any:
        """Plot each label's gain in average precision over the baseline against its number of rows."""
        facts = self._label_facts().dropna(subset="gain")
        if facts.empty:
            raise StudyError("there is no gain to plot: compare two strategies on the same folds")
        if ax is None:
            pyplot: Any = require("matplotlib.pyplot", extra="cli")
            ax = pyplot.subplots(layout="constrained")[1]
        for arm, rows in facts.groupby("arm", sort=False):
            ax.plot(rows["positives"], rows["gain"], "o", alpha=0.6, label=str(arm))
        ax.axhline(0, color="gray", ls=":")
        ax.set(xlabel="training rows with the label", ylabel="gain in average precision")
        ax.set_xscale("log")
        ax.legend()
        return ax

    def _label_facts(self) -> "pd.DataFrame":
        from tailbatch.analysis.curves import label_facts
        from tailbatch.analysis.keys import named
        from tailbatch.results.frames import read_store

        return label_facts(named(read_store(self.store, study=self.study)))

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report: a page of tables and charts, and a folder of files beside it."""
        from tailbatch.report.page import write_report

        write_report(self.store, Path(path), study=self.study)
        return Path(path)

    def __repr__(self) -> str:
        """Summarize how much was compared, and what was best."""
        finished = self.outcome.done + self.outcome.skipped
        if not finished:
            return f"Comparison without a finished run: {self._failure()}"
        best, choices = self.best(), len(self.table())
        named = [_shown(best[key], key) for key in _CELL if best.get(key)]
        plural = "" if choices == 1 else "s"
        failed = f", {len(self.outcome.failures)} failed" if self.outcome.failures else ""
        return (
            f"Comparison of {choices} choice{plural}, {finished} runs{failed}; "
            f"best by validation {self._chosen_by()}: {', '.join(named)}"
        )

    def _repr_html_(self) -> str:
        """Return the table for a notebook, the best mean of each dataset and metric in bold."""
        if not self.outcome.done + self.outcome.skipped:
            return f"<p>{escape(repr(self))}</p>"
        table = self.table(_SHOWN)
        keys = [key for key in _CELL if table[key].astype(bool).any()]
        metrics = [name for name in _SHOWN if name in table]
        head = "".join(
            f"<th>{escape(n)}</th>" for n in [*keys, *(metric_facts(m).title for m in metrics)]
        )
        rows = []
        for _, row in table.iterrows():
            peers = table[table["dataset"] == row["dataset"]]
            cells = [f"<td>{escape(_shown(row[key], key))}</td>" for key in keys]
            cells += [_html_cell(row[name], peers[name], name) for name in metrics]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        return (
            f"<table><caption>{escape(repr(self))}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )

    def _failure(self) -> str:
        return self.outcome.failures[0].message if self.outcome.failures else "it has no runs"


def _shown(value: object, key: str = "strategy") -> str:
    """Return a value of the table for readers."""
    return "no batches" if key == "strategy" and value == NO_BATCHES else str(value)


def _html_cell(value: float, peers: "pd.Series[Any]", metric: str) -> str:
    best = peers.max() if metric_facts(metric).higher_is_better else peers.min()
    return f"<td><b>{value:.4f}</b></td>" if value == best else f"<td>{value:.4f}</td>"


def _with_options(runs: "pd.DataFrame", key: str) -> list[str]:
    """Return names with the settings that distinguish entries of the same name."""
    column = {"model": "hyperparameters"}.get(key, f"{key}_options")
    names = []
    for name, options in zip(runs[key], runs[column], strict=True):
        settings = json.loads(options) if isinstance(options, str) else {}
        given = ", ".join(f"{option}={value}" for option, value in settings.items())
        names.append(f"{name} ({given})" if given else name)
    return names


def _place(store: str | Path | ResultStore | None) -> tuple[ResultStore, object]:
    if store is not None:
        return store if isinstance(store, ResultStore) else ResultStore(store), None
    folder = tempfile.TemporaryDirectory(prefix="tailbatch-")
    return ResultStore(folder.name), folder


def _datasets(
    X: Any, Y: Any, columns: Columns | None, name: str
) -> Iterable[MultiLabelDataset | dict[str, Any] | str]:
    """Yield the datasets given to `compare`."""
    if isinstance(X, str | Path):
        given, usual = vars(columns or Columns()), vars(Columns())
        table = {key: value for key, value in given.items() if value != usual[key]}
        table |= {} if Y is None else {"labels": list(Y) if isinstance(Y, tuple) else Y}
        yield {"path": str(X), **table} if table else str(X)
    elif isinstance(X, Sequence) and all(isinstance(x, MultiLabelDataset | str | Path) for x in X):
        for item in X:
            yield from _datasets(item, Y, columns, name)
    elif isinstance(X, MultiLabelDataset) and Y is None:
        yield X
    elif Y is not None:
        yield _from_two(X, Y, columns or Columns(), name)
    else:
        raise DataError(
            "compare needs X and Y, a MultiLabelDataset, a dataset's name or file, or a list of them, "
            f"got X of type {type(X).__name__} and no Y"
        )


def _from_two(X: Any, Y: Any, columns: Columns, name: str) -> MultiLabelDataset:
    labels = getattr(Y, "columns", None)
    if not hasattr(X, "columns"):
        dataset = MultiLabelDataset.from_arrays(X, Y, name=name, label_names=labels)
        return replace(dataset, X=stored_by_values(dataset.X))
    if not hasattr(Y, "shape"):
        read = {key: value for key, value in vars(columns).items() if key != "labels"}
        if read.pop("finetune"):
            raise DataError("with finetune=True give the labels apart from the frame, as Y")
        return MultiLabelDataset.from_frame(X, labels=Y, name=name, **read)
    return MultiLabelDataset.from_columns(X, Y, columns, name=name, label_names=labels)


def _called(dataset: MultiLabelDataset | dict[str, Any] | str) -> str:
    if isinstance(dataset, MultiLabelDataset):
        return dataset.name
    return Path(dataset if isinstance(dataset, str) else dataset["path"]).name


def _entry(dataset: MultiLabelDataset | dict[str, Any] | str, folder: Path) -> Any:
    """Return a study's entry for a dataset; one in memory is written to a file, also for workers."""
    if not isinstance(dataset, MultiLabelDataset):
        return dataset
    word = _NO_FILE_NAME.sub("-", dataset.name)[:40] or "data"
    path = folder / f"{word}-{dataset.digest[:8]}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_npz(dataset, path)
    return {"path": str(path), "name": dataset.name}
