"""What a fit leaves behind: facts, the state that is saved and restored, and the model card."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray

import tailbatch
from tailbatch.data import SCALINGS, FittedColumns, Parts, Scaling
from tailbatch.errors import ModelError, markdown_escaped, printable
from tailbatch.estimator.decisions import HeldOut, decision_said, learning_said
from tailbatch.estimator.fitting import logits_of, nested, plan_of
from tailbatch.estimator.history import History
from tailbatch.estimator.reviewed import _suggested_said
from tailbatch.estimator.texts import model_of, settings_of
from tailbatch.imbalance import label_cardinality, label_counts, mean_imbalance_ratio
from tailbatch.metrics import METRICS
from tailbatch.metrics.held_out import Calibration
from tailbatch.models import CrossFitted, ModuleFactory, MultiLabelModel, restore_model
from tailbatch.selection import STRATEGIES
from tailbatch.training import Epoch, choose_device

CARD = "README.md"
_SHOWN_COLUMNS = 50
_PLANNED = ("batch_size", "lr", "weight_decay", "warm_up_epochs")
#: What None stands for where nothing else says so.
_UNSET = {
    "class_weight": "none",
    "cross_fit": 0,
    "encoder": "none",
    "label_texts": "none",
    "loss": "the model's own",
    "selection_pressure": "the strategy's own",
}


def training_facts(
    parts: Parts,
    thresholds: NDArray[np.float64],
    held_out: HeldOut | None,
    tuned_for: Sequence[str] | None,
) -> dict[str, Any]:
    """Return what is worth keeping of the training rows, as plain values.

    Parameters
    ----------
    parts
        Training and validation rows.
    thresholds
        (q,) above which a label is predicted.
    held_out
        Rows with scores of members that have not seen them, None without such rows.
    tuned_for
        Each label's objective, None for thresholds that were given.
    """
    train = parts.train
    # What is said of the data is said of rows that nobody picked.
    unpicked = train if train.suggested is None else train.take(train.measurable)
    facts: dict[str, Any] = {
        "training_rows": train.n_samples,
        "suggested_rows": train.n_samples - unpicked.n_samples,
        "validation_rows": parts.validation.n_samples,
        "held_out_rows": 0 if held_out is None else len(held_out.rows.measurable),
        "parts": 0 if held_out is None or held_out.part is None else int(held_out.part.max()) + 1,
        "tuned_for": None if tuned_for is None else list(tuned_for),
        "features": train.n_features,
        "positives": label_counts(train.Y).tolist(),
        "label_cardinality": label_cardinality(unpicked.Y),
        "mean_imbalance_ratio": mean_imbalance_ratio(unpicked.Y),
        "versions": {
            "tailbatch": tailbatch.__version__,
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    return facts if held_out is None else facts | held_out.judged(thresholds, tuned_for)


@dataclass(eq=False, kw_only=True)
class Fitted:
    """The attributes of a fitted classifier by name: what its card tells, what is saved and restored.

    A new attribute is a field here, a value in `state` and a line in `restored`, and nothing elsewhere.
    """

    feature_names_in_: NDArray[np.object_] | None
    n_features_in_: int
    columns_: FittedColumns | None
    label_names_: tuple[str, ...]
    classes_: NDArray[Any]
    scaling_: Scaling | None
    model_: MultiLabelModel
    selection_pressure_: float | str | None
    history_: History
    best_epoch_: int
    minority_labels_: NDArray[np.bool_]
    thresholds_: NDArray[np.float64]
    calibration_: Calibration | None
    facts_: dict[str, Any]

    def state(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return all of it, and the settings, as plain values, arrays and tensors."""
        # What cannot or should not travel to another machine.
        left = ("callbacks", "checkpoint_folder", "random_state", "columns")
        kept = {name: value for name, value in settings.items() if name not in left}
        if not isinstance(kept["strategy"], str):
            # Predicting needs no strategy; to fit again it must be registered under this name.
            kept["strategy"] = STRATEGIES.name_of(kept["strategy"])
        if callable(kept["encoder"]):
            kept["encoder"] = None  # its columns say that there was one
        model, scaling, names = self.model_, self.scaling_, self.feature_names_in_
        loss = None if model.loss is None else {"name": model.loss.name, **model.loss.options}
        if not isinstance(kept["loss"], str | Mapping | None):
            kept["loss"] = loss  # what it was made by cannot travel
        hyperparameters: Mapping[str, Any] = model.hyperparameters
        if not isinstance(kept["model"], str):
            kept["model"], hyperparameters = None, nested(settings, "model__")
        is_binary = len(self.classes_) > len(self.label_names_)
        return {
            "settings": kept,
            "n_features": self.facts_["features"],
            "feature_names": None if names is None else names.tolist(),
            "columns": None if self.columns_ is None else self.columns_.state(),
            "facts": self.facts_,
            "label_names": list(self.label_names_),
            "classes": self.classes_.tolist() if is_binary else None,
            "thresholds": self.thresholds_,
            "calibration": None if self.calibration_ is None else vars(self.calibration_),
            "fits": len(model.fits) if isinstance(model, CrossFitted) else 0,
            "minority_labels": self.minority_labels_,
            "scaling": None if scaling is None else {"kind": scaling.name, **asdict(scaling)},
            "selection_pressure": self.selection_pressure_,
            "history": [asdict(epoch) for epoch in self.history_],
            "best_epoch": self.best_epoch_,
            "best_by": self.history_.best_by,
            "hyperparameters": dict(hyperparameters),
            "loss": loss,
            "weights": dict(model.state_dict()),
        }

    @classmethod
    def restored(
        cls, state: Mapping[str, Any], factory: ModuleFactory | None, device: str
    ) -> tuple[dict[str, Any], Self]:
        """Return the settings and attributes of a `state`; nothing is believed before it is checked."""
        settings = dict(state["settings"])
        if settings["model"] is None:
            if factory is None:
                raise ModelError(
                    "it was fitted with a model of your own: pass the function that builds it, "
                    "load(folder, model=...)"
                )
            settings["model"] = factory
        columns = None if state["columns"] is None else FittedColumns.from_state(state["columns"])
        settings["columns"] = None if columns is None else columns.columns
        n_features, n_labels = int(state["n_features"]), len(state["label_names"])
        if columns is not None and len(columns.feature_names) != n_features:
            raise ValueError(
                f"its columns give {len(columns.feature_names)} features, not {n_features}"
            )
        # A table's own columns, where it was one; the model sees the features they became.
        names, n_given = state["feature_names"], n_features
        if names is not None:
            n_given = (
                n_features if columns is None else len(names)
            )  # columns make their own features
            names = np.array(_strings(names, n_given), dtype=object)
        best_epoch, epochs = (
            int(state["best_epoch"]),
            (Epoch(**epoch) for epoch in state["history"]),
        )
        model = _model(model_of(settings), n_features, n_labels, state)
        model = model.to(choose_device(device)).eval()
        # One row tells: a weight that is not a number spoils every score.
        if not np.isfinite(logits_of(model, np.zeros((1, n_features)))).all():
            raise ModelError("its weights are not numbers")
        return settings, cls(
            feature_names_in_=names,
            n_features_in_=n_given,
            columns_=columns,
            label_names_=_strings(state["label_names"], n_labels),
            classes_=_classes(state["classes"], n_labels),
            scaling_=_scaling(state["scaling"], n_features),
            model_=model,
            selection_pressure_=state["selection_pressure"],
            history_=History(epochs, best_epoch=best_epoch, best_by=str(state["best_by"])),
            best_epoch_=best_epoch,
            minority_labels_=_numbers(state["minority_labels"], n_labels) > 0,
            thresholds_=_numbers(state["thresholds"], n_labels),
            calibration_=_calibration(state["calibration"], n_labels),
            facts_=dict(state["facts"]),
        )

    def card(self, settings: Mapping[str, Any]) -> str:
        """Return the card of a fitted classifier, as Markdown."""
        facts, model = self.facts_, settings["model"]
        named = markdown_escaped(model) if isinstance(model, str) else "a custom module"
        if settings["finetune"]:
            named = "a text encoder that was trained, and a linear model beside it"
        count = int(np.sum(self.minority_labels_))
        lines = [
            "# Multi-label classifier",
            "",
            f"Trained by tailbatch: {named}, {len(self.label_names_):,} labels. "
            "Load it with `TailbatchClassifier.load(folder)`, or run `tailbatch predict`.",
            "",
            "## Data",
            "",
            f"- {facts['training_rows']:,} training rows, {_held_out(facts)}",
            *_suggested_said(facts),
            f"- {facts['features']:,} features",
            f"- {facts['label_cardinality']:.2f} labels a row on average (label cardinality)",
            f"- mean imbalance ratio (MeanIR) {facts['mean_imbalance_ratio']:.1f}: the commonest label "
            f"has that many times the rows of another on average; {count:,} "
            f"label{' is' if count == 1 else 's are'} rare: fewer rows than the geometric mean and the "
            "median of all labels with five or more",
        ]
        if self.columns_ is not None:
            columns = list(self.columns_.taken.items())
            lines += ["", "| column | taken for | why |", "|---|---|---|"]
            lines += [
                f"| {markdown_escaped(name)} | {taken.kind} | {markdown_escaped(taken.why)} |"
                for name, taken in columns[:_SHOWN_COLUMNS]
            ]
            if len(columns) > _SHOWN_COLUMNS:
                lines.append(f"| {len(columns) - _SHOWN_COLUMNS:,} more | | |")
        lines += ["", "## Settings", ""]
        used = _settings_used(settings, self)
        lines += [f"- {name}: {_code(value)}" for name, value in sorted(used.items())]
        lines.append(f"- best epoch: {self.best_epoch_} of {len(self.history_)}")
        lines += ["", "## What it predicts", ""]
        is_binary = len(self.classes_) > len(self.label_names_)
        said = decision_said(facts, self.thresholds_, is_binary=is_binary)
        lines.append(said[0].upper() + said[1:])
        if "metrics" in facts:
            lines += ["", "## On held-out rows", ""]
            lines += [
                f"- {METRICS[name].title}: {value:.4f}"
                for name, value in facts["metrics"].items()
                if value == value  # there may be no rare label, or none in the validation rows
            ]
            lines += ["", *learning_said(facts, self.label_names_), "", *_label_rows(self)]
        lines += ["", "## Versions", ""]
        lines += [f"- {name} {version}" for name, version in facts["versions"].items()]
        return "\n".join(lines) + "\n"


FITTED = tuple(field.name for field in fields(Fitted))


def _model(kind: Any, n_features: int, n_labels: int, state: Mapping[str, Any]) -> MultiLabelModel:
    """Return the trained model, or the models that were each trained without a part."""
    weights, fits = state["weights"], int(state["fits"])
    each = [weights]
    if fits:
        each = [
            {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}
            for prefix in (f"fits.{number}." for number in range(fits))
        ]
    given = n_features, n_labels, state["hyperparameters"]
    models = [restore_model(kind, *given, own, state["loss"]) for own in each]
    return CrossFitted(models) if fits else models[0]


def _calibration(values: Mapping[str, Any] | None, n_labels: int) -> Calibration | None:
    if values is None:
        return None
    slope = float(values["slope"])
    if not 0 < slope < np.inf:
        raise ValueError(f"the slope of a calibration is above 0, got {slope}")
    return Calibration(slope, _numbers(values["offsets"], n_labels))


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


def _settings_used(settings: Mapping[str, Any], fitted: Fitted) -> dict[str, Any]:
    """Return the settings of a fitted classifier, with what was used where they left it open."""
    left = {"callbacks", "columns", "label_names", "checkpoint_folder", "device", "verbose"}
    left |= {name for name in ("time_limit", "validation_fraction") if settings[name] is None}
    if settings["random_state"] is None:  # which a model that was loaded does not know either
        left.add("random_state")
    plan = plan_of(settings_of(settings))
    used: dict[str, Any] = {name: getattr(plan, name) for name in _PLANNED}
    used["epochs"] = plan.n_epochs(fitted.facts_["training_rows"])
    used["selection_pressure"] = fitted.selection_pressure_
    shown = {name: value for name, value in settings.items() if name not in left}
    used["cross_fit"] = fitted.facts_["parts"]
    used["thresholds"] = "tuned" if fitted.facts_["tuned_for"] else "0.5"
    if shown["scale"] in (None, "auto"):
        shown["scale"] = False if fitted.scaling_ is None else fitted.scaling_.name
    for name, value in (_UNSET | {k: v for k, v in used.items() if v is not None}).items():
        if shown.get(name) is None:
            shown[name] = value
    return {"plan__optimizer": plan.optimizer, "plan__schedule": plan.schedule} | shown


def _held_out(facts: Mapping[str, Any]) -> str:
    """Return which rows were held out."""
    if facts["validation_rows"]:
        return f"{facts['validation_rows']:,} validation rows"
    return "each held out from a part of the members" if facts["held_out_rows"] else "none held out"


def _label_rows(fitted: Fitted) -> list[str]:
    """Return the table by label, the rarest first."""
    table, positives = fitted.facts_["by_label"], fitted.facts_["positives"]
    rows = [
        "| label | minority | training rows | held-out rows | AP | AUC | precision | recall | F | "
        "95% of F | threshold |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    # The rarest labels are what the card is read for, and a long table is read from its top.
    for label in np.argsort(positives, kind="stable").tolist():
        numbers = [table[name][label] for name in ("average_precision", "auc", "precision", "recall",
                                                   "f", "threshold")]  # fmt: skip
        cells = ["-" if value != value else f"{value:.3f}" for value in numbers]
        low, high = table["f_low"][label], table["f_high"][label]
        cells.insert(-1, "-" if low != low else f"{low:.2f} to {high:.2f}")
        rows.append(
            f"| {markdown_escaped(fitted.label_names_[label])} | "
            f"{'yes' if fitted.minority_labels_[label] else ''} | {int(positives[label]):,} | "
            f"{int(table['support'][label]):,} | {' | '.join(cells)} |"
        )
    return rows


def _code(value: Any) -> str:
    """Return a setting as code; text that code cannot hold is escaped instead."""
    plain = isinstance(value, str | int | float | bool | None)
    text = printable(" ".join((str(value) if plain else repr(value)[:80]).split()))
    return markdown_escaped(text) if "`" in text else f"`{text}`"
