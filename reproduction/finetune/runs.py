"""The runs: a frozen encoder's embeddings with an MLP, and the encoder fine-tuned, by arm and loss.

Each run is one JSON file in a store, with the test scores beside it, so that a store can be filled in any
order and by several processes. Everything in a record but the seconds is a function of the run.

Fine-tuning was planned before any of its strategies had run, on the first 10,000 rows:

- The claims to test are four: minority AP, Macro-AP, tuned Macro-F and tuned Micro-F of importance
  against random batches, one epoch, weighted BCE, at the rate that is best for random batches on
  validation rows.
- The order of the runs, for as long as there is time: random, importance and balanced corrected with
  three seeds; two more seeds of random and importance; balanced and minority; plain BCE; two epochs.
  Where it ends does not depend on what was found, and everything that ran is shown.
- Later, after three seeds at 2e-4: a higher rate for random batches, since 2e-4 was the highest that
  had been tried and the best.

On frozen embeddings, batches of 32 and one epoch, importance gained 10.9% in minority AP over 20 seeds,
the last 15 of which had been added after the first five were seen. Seeds 20 to 39 test it again, with the
same four claims. They were planned before they ran, and are shown by themselves. Debtags' texts are a
second corpus, with the same setup and 20 seeds; nothing was tuned on it but the rate.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from reproduction.finetune.records import Record, key, read

from tailbatch.data import Fold, MultiLabelDataset, Parts, TextParts, load_texts, split
from tailbatch.files import replacing
from tailbatch.imbalance import minority_labels
from tailbatch.integrations.encoders import TextEncoder, Tokens, minilm
from tailbatch.metrics import METRICS, average_precision_by_label, evaluate, tune_thresholds
from tailbatch.models import MultiLabelModel, make_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import Selector, make_selector
from tailbatch.training import Rows, Trainer, Training, score_rows

ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "balanced": ("balanced", {}),
    "minority": ("minority", {}),
    "importance": ("importance", {}),
    "importance by gradient": ("importance", {"score": "gradient"}),
    "balanced, corrected": ("balanced", {"corrected": True}),
}
"""A name for each way of choosing batches: the strategy and its options."""

LOSSES = ("weighted_bce", "bce")
SETTINGS = (("mix", 0.1), ("mix", 0.2), ("mix", 0.5), ("mix", 0.7), ("beta", 0.5))
"""Variants of importance selection: the share of uniform draws, and how far the weights correct."""
LAGS = (0, 1, 10, 100, 1000)
"""How many steps late losses come, for importance by the gradient."""


class Study(NamedTuple):
    """What the runs of a study share, and how many seeds they have unless told otherwise."""

    batch: int
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    seeds: int = 5


STUDIES = {
    "frozen": Study(128),
    "frozen-64": Study(64),
    "frozen-32": Study(32),
    "frozen-16": Study(16),
    "debtags": Study(32),
    "finetuned": Study(32, rates=(1e-4, 2e-4, 5e-5, 5e-4), seeds=3),
}
"""Random batches are tried at every rate; the best on validation rows serves every arm."""
MAX_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run is."""

    study: str
    arm: str
    loss: str
    epochs: float
    lr: float
    seed: int
    rows: int | None = None
    options: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The name of its file."""
        parts = [
            self.study,
            self.arm,
            self.loss,
            f"{self.epochs:g}",
            f"{self.lr:g}",
            f"{self.seed}",
        ]
        parts += [f"{self.rows}"] * (self.rows is not None)
        parts += [f"{key}={value:g}" for key, value in self.options]
        return "-".join(parts).replace(" ", "_").replace(",", "")


class Store:
    """A folder with a record for each run that is done; what is committed need not be done again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._committed = {key(record["run"]): record for record in read()}
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, run: Run) -> Record | None:
        """Return a run's record, if it is done."""
        path = self.folder / f"{run.name}.json"
        if path.exists():
            found: Record = json.loads(path.read_text())
            return found
        return self._committed.get(key(asdict(run)))

    def done(self, run: Run) -> Record:
        """Return a run's record, doing it first where that is needed."""
        found = self.record(run)
        if found is None:
            found, scores = train(run, data_of(run.study, self.folder))
            np.savez_compressed(self.folder / f"{run.name}.npz", test=scores.astype(np.float16))
            with replacing(self.folder / f"{run.name}.json") as path:
                path.write_text(json.dumps(found))
            test = found["test"]
            print(run.name, {key: round(test[key], 4) for key in SHOWN}, flush=True)
        return found


SHOWN = ("minority_average_precision", "macro_average_precision", "tuned_macro_f", "tuned_micro_f")


def planned(
    study: str,
    store: Store,
    *,
    epochs: Sequence[float],
    losses: Sequence[str],
    arms: Sequence[str],
    rows: int | None = None,
    lr: float | None = None,
    seeds: int | None = None,
    settings: bool = False,
    every_rate: bool = False,
    lags: bool = False,
) -> Iterator[Run]:
    """Yield runs: random batches at every rate first, then every arm at the best of them.

    With `lr` that rate is used as it is; with `every_rate` every arm then runs at the other rates, too,
    with `settings` importance selection in its variants, and with `lags` with losses that come late.
    """
    _, rates, usual = STUDIES[study]
    seeds = seeds or usual
    for loss, budget in itertools.product(losses, epochs):
        first = Run(study=study, arm="random", loss=loss, epochs=budget, lr=0, seed=0, rows=rows)
        tried = [replace(first, lr=each) for each in (rates if lr is None else [lr])]
        yield from tried
        best = max(tried, key=lambda run: _on_validation(store.record(run)))
        for seed, arm in itertools.product(range(seeds), arms):
            yield replace(best, seed=seed, arm=arm)
        for run, seed, arm in itertools.product(tried, range(seeds), arms if every_rate else ()):
            yield replace(run, seed=seed, arm=arm)
        for seed, late in itertools.product(range(usual), LAGS if lags else ()):
            yield replace(
                best, seed=seed, arm="importance by gradient", options=(("max_lag", late),)
            )
        for seed, option in itertools.product(range(usual), SETTINGS if settings else ()):
            yield replace(best, seed=seed, arm="importance", options=(option,))


def _on_validation(record: Mapping[str, Any] | None) -> float:
    return float(record["validation"]["macro_average_precision"]) if record else -1.0


@cache
def _texts(name_or_path: str | Path = "goemotions") -> TextParts:
    return load_texts(name_or_path)


@cache
def data_of(study: str, folder: Path) -> Parts:
    """Return token numbers to fine-tune on, or embeddings of them, computed once for a store.

    The texts are GoEmotions; for the study of that name, what ``scripts/build_debtags_texts.py`` wrote
    into the store's folder ``debtags``.
    """
    corpus = "debtags" if study == "debtags" else "goemotions"
    texts = _texts(folder / corpus) if study == "debtags" else _texts()
    parts = (texts.train, texts.validation, texts.test)
    tokens = [Tokens(minilm(), MAX_TOKENS).fit(()).transform(part.texts) for part in parts]
    X = np.concatenate(tokens)
    if study != "finetuned":
        X = _embeddings(X, folder / f"{corpus}.npy")
    whole = MultiLabelDataset.from_arrays(
        X,
        np.concatenate([part.Y for part in parts]),
        name=corpus,
        label_names=texts.train.label_names,
    )
    ends = np.cumsum([len(part) for part in parts])
    fold = Fold(*np.split(np.arange(ends[-1]), ends[:-1]))
    return split(whole, fold, scale=False if study == "finetuned" else "standard")


def write_facts(path: Path) -> None:
    """Write how many training and test rows there are, in all and of each label."""
    texts = _texts()
    minority = np.flatnonzero(minority_labels(texts.train.Y))
    facts = {
        "rows": len(texts.train),
        "minority": minority.tolist(),
        "names": list(texts.train.label_names),
        "train": texts.train.Y.sum(axis=0).tolist(),
        "test": texts.test.Y.sum(axis=0).tolist(),
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(facts) + "\n")


def _embeddings(tokens: np.ndarray, path: Path) -> np.ndarray:
    if not path.exists():
        encoder = TextEncoder(MAX_TOKENS, 1, encoder=minilm()).eval()
        found = score_rows(encoder.embed, Rows(tokens))
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, found / np.linalg.norm(found, axis=1, keepdims=True))
    return np.asarray(np.load(path))


def train(run: Run, parts: Parts) -> tuple[dict[str, Any], np.ndarray]:
    """Train once on one thread; return the record and the scores of the test rows."""
    if run.rows is not None:
        parts = replace(parts, train=parts.train.take(np.arange(run.rows)))
    model, training = fitted(run, parts)
    return _record(run, parts, model, training)


def fitted(run: Run, parts: Parts) -> tuple[MultiLabelModel, Training]:
    """Return the trained model of a run, and what its training was like."""
    torch.set_num_threads(1)
    model = new_model(run, parts.train)
    strategy, options = ARMS[run.arm]
    size = STUDIES[run.study].batch
    plan = TrainingPlan(
        steps=_steps(run, parts),
        batch_size=size,
        lr=run.lr,
        weight_decay=0.01,
        optimizer="adamw",
        schedule="cosine",
        warm_up_epochs=0,
        training_loss_every=0,
    )
    selector = make_selector(
        strategy,
        parts.train.Y,
        batch_size=size,
        warm_up_epochs=0,
        epochs=plan.n_epochs(parts.train.n_samples),
        seed=run.seed,
        loss=model.loss,
        **{**options, **dict(run.options)},
    )
    if selector.max_lag:
        # The strategy stays what it is, and only hears of its losses later.
        late = type("Late", (_Late, type(selector)), {"_waiting": []})
        selector.__class__ = late
    # The last weights count, so that arms are compared at equal steps: no rows to choose an epoch by.
    rows = replace(parts, validation=parts.validation.take([]))
    return model, Trainer(plan, seed=run.seed, metrics=()).fit(model, rows, selector)


def _steps(run: Run, parts: Parts) -> int:
    return max(round(run.epochs * -(-parts.train.n_samples // STUDIES[run.study].batch)), 1)


class _Late(Selector):
    """A selector that hears of losses as late as it allows."""

    _waiting: list[tuple[Any, Any]]

    def observe(self, losses: Any, index: Any = None) -> None:
        """Hold the losses back until `max_lag` later ones are there."""
        self._waiting.append((losses, index))
        if len(self._waiting) > self.max_lag:
            super().observe(*self._waiting.pop(0))

    def _drop_pending(self) -> None:
        super()._drop_pending()  # at the end of an epoch
        self._waiting.clear()


def new_model(run: Run, train: MultiLabelDataset) -> MultiLabelModel:
    """Return the model that a run starts from."""
    if run.study != "finetuned":
        return make_model("mlp", train, seed=run.seed, loss=run.loss)
    return make_model(
        TextEncoder, train, seed=run.seed, loss=run.loss, encoder=minilm(), length_groups=4
    )


def _record(
    run: Run, parts: Parts, model: MultiLabelModel, training: Training
) -> tuple[dict[str, Any], np.ndarray]:
    validation, test = (
        score_rows(model.predict_proba, Rows(part.X)) for part in (parts.validation, parts.test)
    )
    minority = minority_labels(parts.train.Y)
    thresholds = tune_thresholds(parts.validation.Y, validation)
    exposure = training.label_exposure
    record = {
        "run": asdict(run),
        "steps": _steps(run, parts),
        "validation": _metrics(parts.validation, validation, minority, thresholds),
        "test": _metrics(parts.test, test, minority, thresholds),
        "average_precision": average_precision_by_label(parts.test.Y, test).round(6).tolist(),
        "exposure": None if exposure is None else exposure.round(4).tolist(),
        "seconds": training.epochs[-1].seconds,
        "selection_seconds": training.diagnostics.seconds,
        "gain": training.diagnostics.gain,
    }
    return record, test


def _metrics(
    rows: MultiLabelDataset, scores: np.ndarray, minority: np.ndarray, thresholds: np.ndarray
) -> dict[str, float]:
    """Return every metric, and with tuned thresholds those that depend on them."""
    found = evaluate(rows.Y, scores, minority=minority)
    tuned = evaluate(rows.Y, scores, minority=minority, thresholds=thresholds)
    found |= {f"tuned_{key}": tuned[key] for key in tuned if METRICS[key].needs == "predictions"}
    return {name: round(float(value), 6) for name, value in found.items()}
