"""What a fit leaves behind: its history, its model card, and the state that is saved."""

import math
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray

import tailbatch
from tailbatch.data import SCALINGS, FittedColumns, Parts, Scaling
from tailbatch.errors import ModelError, markdown_escaped, printable, require
from tailbatch.estimator.fitting import logits_of, nested, plan_of
from tailbatch.imbalance import label_cardinality, label_counts, mean_imbalance_ratio
from tailbatch.metrics import METRICS, by_label, evaluate
from tailbatch.models import ModuleFactory, restore_model
from tailbatch.selection import STRATEGIES
from tailbatch.training import Callback, Epoch, choose_device

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tailbatch.estimator.classifier import TailbatchClassifier

_SHOWN_EPOCHS = 10  # epochs that the repr shows at most


class History(tuple[Epoch, ...]):
    """The epochs of a training, a tuple of `tailbatch.training.Epoch` with a readable repr and a plot.

    Examples
    --------
    >>> numbers = {"training_objective": None, "training_bce": None, "minority_share": None}
    >>> History(
    ...     [
    ...         Epoch(number=n, steps=5 * n, seconds=0.1 * n, lr=0.01, batch_objective=1 / n,
    ...               validation={"macro_auc": 0.5 + n / 10}, distinct_share=1.0, **numbers)
    ...         for n in (1, 2)
    ...     ],
    ...     best_epoch=2,
    ...     best_by="macro_auc",
    ... )
    epoch     loss  Macro-AUC    seconds
    -----  -------  -----------  -------
        1   1.0000     0.6000        0.1
        2   0.5000     0.7000 *      0.2
    """

    best_epoch: int
    best_by: str

    def __new__(cls, epochs: Iterable[Epoch], *, best_epoch: int, best_by: str) -> "History":
        """Make a history of epochs.

        Parameters
        ----------
        epochs
            One record per epoch.
        best_epoch
            The number of the epoch whose weights were kept.
        best_by
            The validation metric that chose it.
        """
        history = super().__new__(cls, epochs)
        history.best_epoch, history.best_by = best_epoch, best_by
        return history

    def __getnewargs_ex__(self) -> tuple[tuple[tuple[Epoch, ...]], dict[str, Any]]:
        """Return what a copy or an unpickled one is made of."""
        return (tuple(self),), {"best_epoch": self.best_epoch, "best_by": self.best_by}

    def __repr__(self) -> str:
        table = EpochTable(self.best_by)
        lines = [*table.head()]
        for epoch in self._shown():
            lines.append("..." if epoch is None else table.line(epoch, self._is_best(epoch)))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        table = EpochTable(self.best_by)
        head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
        rows = []
        for epoch in self._shown():
            values = ["..."] if epoch is None else table.values(epoch, self._is_best(epoch))
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
            rows.append(f"<tr>{cells}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def _is_best(self, epoch: Epoch) -> bool:
        return epoch.number == self.best_epoch

    def _shown(self) -> Iterator[Epoch | None]:
        """Yield the first and last epochs and the best one, with None where some are left out."""
        numbers = {*range(1, _SHOWN_EPOCHS // 2 + 1), self.best_epoch}
        numbers |= set(range(len(self) - _SHOWN_EPOCHS // 2 + 1, len(self) + 1))
        last = 0
        for number in sorted(numbers & set(range(1, len(self) + 1))):
            if number > last + 1:
                yield None
            yield self[number - 1]
            last = number

    def plot(self, ax: "Axes | None" = None) -> "tuple[Axes, Axes | None]":
        """Plot the loss and the validation metric by epoch, and mark the epoch that was kept.

        Needs matplotlib.

        Parameters
        ----------
        ax
            Where to plot; None makes a new figure.

        Returns
        -------
        tuple
            The axes of the loss and, sharing the epochs, those of the metric; None for the latter where
            there were no validation rows.
        """
        if ax is None:
            left = require("matplotlib.pyplot", extra="cli").subplots(layout="constrained")[1]
        else:
            left = ax
        left.plot(
            [epoch.number for epoch in self],
            [epoch.batch_objective for epoch in self],
            color="C0",
            marker="o" if len(self) == 1 else None,
            label="loss of the batches",
        )
        left.xaxis.get_major_locator().set_params(integer=True)
        if len(self) == 1:  # one point in the middle of an axis of fractions says little
            left.set_xlim(0, 2)
            if (loss := self[0].batch_objective) > 0:
                left.set_ylim(0, 1.25 * loss)
        left.set_xlabel("epoch")
        left.set_ylabel("loss of the batches", color="C0")
        scored = [epoch for epoch in self if self.best_by in epoch.validation]
        if not scored:
            return left, None
        title = f"validation {METRICS[self.best_by].title}"
        right = left.twinx()
        scores = [epoch.validation[self.best_by] for epoch in scored]
        # A line through one point is nothing, and a point at the end of the axis is cut.
        right.plot(
            [epoch.number for epoch in scored],
            scores,
            color="C1",
            marker="o" if len(scored) == 1 else None,
            clip_on=False,
            label=title,
        )
        if (limits := _limits(scores, METRICS[self.best_by].range)) is not None:
            right.set_ylim(*limits)
        right.set_ylabel(title, color="C1")
        right.axvline(self.best_epoch, color="0.6", linestyle=":", label="epoch that was kept")
        return left, right


def _limits(
    scores: Sequence[float], most: tuple[float | None, float | None]
) -> tuple[float, float] | None:
    """Return the ends of an axis that shows these scores and no values that the metric cannot have.

    Examples
    --------
    >>> _limits([0.75], (0, 1)), _limits([0.5, 1.0], (0, 1))
    ((0.65, 0.85), (0.475, 1))
    """
    known = [score for score in scores if math.isfinite(score)]
    if not known:
        return None
    low, high = min(known), max(known)
    room = 0.05 * (high - low) or 0.1
    low, high = low - room, high + room
    return (
        low if most[0] is None else max(low, most[0]),
        high if most[1] is None else min(high, most[1]),
    )


class EpochTable(Callback):
    """Prints a line per epoch: loss, validation metric, a star where it is the best so far, seconds.

    Parameters
    ----------
    best_by
        The metric that chooses the epoch.
    """

    def __init__(self, best_by: str) -> None:
        self._best_by = best_by
        self._best = math.nan
        title = METRICS[best_by].title
        self.columns: Sequence[str] = ("epoch", "loss", title, "seconds")
        self._widths = (5, 7, max(len(title) + 2, 8), 7)

    def on_epoch(self, epoch: Epoch) -> None:
        """Print the epoch, below a header if it is the first."""
        if epoch.number == 1:  # of this training, or of the next pressure
            self._best = math.nan
            sys.stdout.write("".join(f"{line}\n" for line in self.head()))
        sys.stdout.write(f"{self.line(epoch, self._is_best(epoch))}\n")
        sys.stdout.flush()

    def head(self) -> tuple[str, str]:
        """Return the two lines above the epochs."""
        names = [
            name.ljust(width) if number == 2 else name.rjust(width)
            for number, (name, width) in enumerate(zip(self.columns, self._widths, strict=True))
        ]
        return "  ".join(names), "  ".join("-" * width for width in self._widths)

    def line(self, epoch: Epoch, is_best: bool) -> str:
        """Return an epoch as a line of the table."""
        cells = zip(self.values(epoch, is_best), self._widths, strict=True)
        return "  ".join(value.rjust(width) for value, width in cells)

    def values(self, epoch: Epoch, is_best: bool) -> tuple[str, str, str, str]:
        """Return an epoch's values as texts."""
        score = epoch.validation.get(self._best_by)
        mark = " *" if is_best else "  "
        return (
            str(epoch.number),
            f"{epoch.batch_objective:.4f}",
            "" if score is None else f"{score:.4f}{mark}",
            f"{epoch.seconds:.1f}",
        )

    def _is_best(self, epoch: Epoch) -> bool:
        """Whether no earlier epoch was better, as the training decides it."""
        score = epoch.validation.get(self._best_by, math.nan)
        if math.isnan(score):
            return False
        sign = 1 if METRICS[self._best_by].higher_is_better else -1
        if math.isnan(self._best) or sign * score >= sign * self._best:
            self._best = score
            return True
        return False


CARD = "README.md"
_SHOWN = ("macro_auc", "macro_average_precision", "macro_f", "minority_average_precision",
          "minority_macro_f", "hamming_loss")  # fmt: skip
_SHOWN_COLUMNS = 50
_PLANNED = ("batch_size", "lr", "weight_decay", "warm_up_epochs")
#: What None stands for where nothing else says so.
_UNSET = {
    "class_weight": "none",
    "loss": "the model's own",
    "selection_pressure": "the strategy's own",
}


def training_facts(
    parts: Parts, thresholds: NDArray[np.float64], scores: NDArray[np.float64] | None
) -> dict[str, Any]:
    """Return what is worth keeping of the training rows, as plain values.

    Parameters
    ----------
    parts
        Training and validation rows.
    thresholds
        (q,) above which a label is predicted.
    scores
        (m, q) probabilities of the validation rows, None without such rows.
    """
    train, validation = parts.train, parts.validation
    facts: dict[str, Any] = {
        "training_rows": train.n_samples,
        "validation_rows": validation.n_samples,
        "features": train.n_features,
        "positives": label_counts(train.Y).tolist(),
        "label_cardinality": label_cardinality(train.Y),
        "mean_imbalance_ratio": mean_imbalance_ratio(train.Y),
        "versions": {
            "tailbatch": tailbatch.__version__,
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    if scores is not None:
        table = by_label(validation.Y, scores, thresholds)
        facts["by_label"] = {name: values.tolist() for name, values in table.items()}
        facts["metrics"] = evaluate(
            validation.Y, scores, minority=parts.minority, thresholds=thresholds, only=_SHOWN
        )
    return facts


def model_card(classifier: "TailbatchClassifier") -> str:
    """Return the card of a fitted classifier, as Markdown."""
    facts = classifier.facts_
    model = classifier.model if isinstance(classifier.model, str) else "a custom module"
    lines = ["# Multi-label classifier", ""]
    lines += [
        f"Trained by tailbatch: {markdown_escaped(model)}, {len(classifier.label_names_):,} labels. "
        "Load it with `TailbatchClassifier.load(folder)`, or run `tailbatch predict`.",
        "",
        "## Data",
        "",
    ]
    count = int(np.sum(classifier.minority_labels_))
    lines += [
        f"- {facts['training_rows']:,} training rows, {facts['validation_rows']:,} validation rows",
        f"- {facts['features']:,} features",
        f"- {facts['label_cardinality']:.2f} labels a row on average (label cardinality)",
        f"- mean imbalance ratio (MeanIR) {facts['mean_imbalance_ratio']:.1f}: the commonest label "
        f"has that many times the rows of another on average; {count:,} "
        f"label{' is' if count == 1 else 's are'} rare: fewer rows than the geometric mean and the "
        "median of all labels with five or more",
    ]
    if classifier.columns_ is not None:
        lines += ["", "| column | taken for | why |", "|---|---|---|"]
        columns = list(classifier.columns_.taken.items())
        lines += [
            f"| {markdown_escaped(name)} | {taken.kind} | {markdown_escaped(taken.why)} |"
            for name, taken in columns[:_SHOWN_COLUMNS]
        ]
        if len(columns) > _SHOWN_COLUMNS:
            lines.append(f"| {len(columns) - _SHOWN_COLUMNS:,} more | | |")
    lines += ["", "## Settings", ""]
    settings = _settings_used(classifier)
    lines += [f"- {name}: {_code(value)}" for name, value in sorted(settings.items())]
    lines.append(f"- best epoch: {classifier.best_epoch_} of {len(classifier.history_)}")
    if "metrics" in facts:
        lines += ["", "## On the validation rows", ""]
        lines += [
            f"- {METRICS[name].title}: {value:.4f}"
            for name, value in facts["metrics"].items()
            if value == value  # there may be no rare label, or none in the validation rows
        ]
        lines += ["", *_label_rows(classifier, facts)]
    lines += ["", "## Versions", ""]
    lines += [f"- {name} {version}" for name, version in facts["versions"].items()]
    return "\n".join(lines) + "\n"


def _settings_used(classifier: "TailbatchClassifier") -> dict[str, Any]:
    """Return the settings of a fitted classifier, with what was used where they left it open."""
    settings = classifier.get_params(deep=False)
    for name in ("callbacks", "columns", "label_names", "checkpoint_folder", "device", "verbose"):
        settings.pop(name, None)
    if settings["random_state"] is None:  # which a model that was loaded does not know either
        settings.pop("random_state")
    plan = plan_of(settings)
    used: dict[str, Any] = {name: getattr(plan, name) for name in _PLANNED}
    used["epochs"] = plan.n_epochs(classifier.facts_["training_rows"])
    if settings["scale"] in (None, "auto"):
        settings["scale"] = False if classifier.scaling_ is None else classifier.scaling_.name
    used["selection_pressure"] = classifier.selection_pressure_
    for name, value in (_UNSET | {k: v for k, v in used.items() if v is not None}).items():
        if settings.get(name) is None:
            settings[name] = value
    return {"plan__optimizer": plan.optimizer, "plan__schedule": plan.schedule} | settings


def _label_rows(classifier: "TailbatchClassifier", facts: dict[str, Any]) -> list[str]:
    """Return the table by label, the rarest first."""
    table, positives = facts["by_label"], facts["positives"]
    rows = [
        "The validation rows chose the epoch and the thresholds, so expect a little less on new rows.",
        "",
        "| label | minority | training rows | validation rows | AP | AUC | precision | recall | F | "
        "threshold |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for label in np.argsort(positives, kind="stable").tolist():
        numbers = [table[name][label] for name in ("average_precision", "auc", "precision", "recall",
                                                   "f", "threshold")]  # fmt: skip
        cells = ["-" if value != value else f"{value:.3f}" for value in numbers]
        rows.append(
            f"| {markdown_escaped(classifier.label_names_[label])} | "
            f"{'yes' if classifier.minority_labels_[label] else ''} | {int(positives[label]):,} | "
            f"{int(table['support'][label]):,} | {' | '.join(cells)} |"
        )
    return rows


def _code(value: Any) -> str:
    """Return a setting as code; text that code cannot hold is escaped instead."""
    plain = isinstance(value, str | int | float | bool | None)
    text = printable(" ".join((str(value) if plain else repr(value)[:80]).split()))
    return markdown_escaped(text) if "`" in text else f"`{text}`"


_Classifier = TypeVar("_Classifier", bound="TailbatchClassifier")


def state_of(classifier: "TailbatchClassifier") -> dict[str, Any]:
    """Return a fitted classifier as plain values, arrays and tensors."""
    settings = classifier.get_params(deep=False)
    # What cannot or should not travel to another machine.
    for name in ("callbacks", "checkpoint_folder", "random_state", "columns"):
        settings.pop(name)
    named = isinstance(settings["model"], str)
    names = getattr(classifier, "feature_names_in_", None)
    model, scaling = classifier.model_, classifier.scaling_
    if not isinstance(settings["strategy"], str):
        # Predicting needs no strategy; to fit again it must be registered under this name.
        settings["strategy"] = STRATEGIES.name_of(settings["strategy"])
    loss = None if model.loss is None else {"name": model.loss.name, **model.loss.options}
    if not isinstance(settings["loss"], str | Mapping | None):
        settings["loss"] = loss  # what it was made by cannot travel
    return {
        "settings": settings if named else {**settings, "model": None},
        "n_features": classifier.facts_["features"],
        "feature_names": None if names is None else names.tolist(),
        "columns": None if classifier.columns_ is None else classifier.columns_.state(),
        "facts": classifier.facts_,
        "label_names": list(classifier.label_names_),
        "classes": classifier.classes_.tolist()
        if len(classifier.classes_) > len(classifier.label_names_)
        else None,
        "thresholds": classifier.thresholds_,
        "minority_labels": classifier.minority_labels_,
        "scaling": None if scaling is None else {"kind": scaling.name, **asdict(scaling)},
        "selection_pressure": classifier.selection_pressure_,
        "history": [asdict(epoch) for epoch in classifier.history_],
        "best_epoch": classifier.best_epoch_,
        "best_by": classifier.history_.best_by,
        "hyperparameters": dict(model.hyperparameters) if named else nested(settings, "model__"),
        "loss": loss,
        "weights": dict(model.state_dict()),
    }


def restore(
    kind: type[_Classifier], state: Mapping[str, Any], factory: ModuleFactory | None, device: str
) -> _Classifier:
    """Rebuild a classifier from `state_of`; nothing of it is believed before it is checked."""
    settings = dict(state["settings"])
    if settings["model"] is None:
        if factory is None:
            raise ModelError(
                "it was fitted with a model of your own: pass the function that builds it, "
                "load(folder, model=...)"
            )
        settings["model"] = factory
    fitted = None if state["columns"] is None else FittedColumns.from_state(state["columns"])
    classifier = kind(**settings, columns=None if fitted is None else fitted.columns)
    classifier.columns_ = fitted
    classifier.facts_ = dict(state["facts"])
    n_features, n_labels = int(state["n_features"]), len(state["label_names"])
    if fitted is not None and len(fitted.feature_names) != n_features:
        raise ValueError(f"its columns give {len(fitted.feature_names)} features, not {n_features}")
    classifier.n_features_in_ = n_features
    if (given := state["feature_names"]) is not None:
        count = n_features if fitted is None else len(given)  # columns make features of their own
        classifier.feature_names_in_ = np.array(_strings(given, count), dtype=object)
        classifier.n_features_in_ = count
    classifier.label_names_ = _strings(state["label_names"], n_labels)
    classifier.classes_ = _classes(state["classes"], n_labels)
    classifier.thresholds_ = _numbers(state["thresholds"], n_labels)
    classifier.minority_labels_ = _numbers(state["minority_labels"], n_labels) > 0
    classifier.scaling_ = _scaling(state["scaling"], n_features)
    classifier.selection_pressure_ = state["selection_pressure"]
    classifier.best_epoch_ = int(state["best_epoch"])
    classifier.history_ = History(
        (Epoch(**epoch) for epoch in state["history"]),
        best_epoch=classifier.best_epoch_,
        best_by=str(state["best_by"]),
    )
    model = restore_model(
        classifier.model,
        n_features,
        n_labels,
        state["hyperparameters"],
        state["weights"],
        state["loss"],
    )
    classifier.model_ = model.to(choose_device(device)).eval()
    if not np.isfinite(logits_of(classifier.model_, np.zeros((1, n_features)))).all():
        raise ModelError("its weights are not numbers")
    return classifier


def _scaling(values: Mapping[str, Any] | None, n_features: int) -> Scaling | None:
    """Return the scaling of its name and arrays."""
    if values is None:
        return None
    arrays = dict(values)
    kind: Any = SCALINGS[arrays.pop("kind")]
    scaling: Scaling = kind(**{name: _numbers(arrays[name], n_features) for name in arrays})
    return scaling


def _classes(values: Any, n_labels: int) -> NDArray[Any]:
    """Return the two classes of a binary problem, or the numbers of the labels."""
    if values is None:
        return np.arange(n_labels)
    classes = np.asarray(values)
    if classes.shape != (2,) or n_labels != 1 or classes.dtype == object:
        raise ValueError(f"a binary problem has one label and two classes, got {values!r:.60}")
    return classes


def _strings(values: Any, count: int) -> tuple[str, ...]:
    if len(values) != count or not all(isinstance(value, str) for value in values):
        raise ValueError(f"it must name {count} columns")
    return tuple(values)


def _numbers(values: Any, count: int) -> NDArray[np.float64]:
    array = np.asarray(values).astype(np.float64)
    if array.shape != (count,) or not np.isfinite(array).all():
        raise ValueError(f"it must give {count} finite numbers, got shape {array.shape}")
    return array
