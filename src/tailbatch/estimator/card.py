"""The model card: what a saved classifier is, was trained on, and how well it does, for people."""

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn
import torch
from scipy.special import expit

import tailbatch
from tailbatch.data import Parts
from tailbatch.errors import markdown_escaped, printable
from tailbatch.estimator.fitting import plan_of
from tailbatch.imbalance import label_cardinality, mean_imbalance_ratio
from tailbatch.metrics import METRICS, by_label, evaluate

if TYPE_CHECKING:
    from tailbatch.estimator.classifier import TailbatchClassifier

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


def training_facts(classifier: "TailbatchClassifier", parts: Parts) -> dict[str, Any]:
    """Return what is worth keeping of the training rows, as plain values.

    Parameters
    ----------
    classifier
        Fitted, with its thresholds.
    parts
        Training and validation rows, scaled.
    """
    train, validation = parts.train, parts.validation
    facts: dict[str, Any] = {
        "training_rows": train.n_samples,
        "validation_rows": validation.n_samples,
        "features": train.n_features,
        "positives": np.asarray(train.Y.sum(axis=0)).ravel().tolist(),
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
    if validation.n_samples:
        scores = expit(classifier._logits(validation.X).astype(np.float64))
        table = by_label(validation.Y, scores, classifier.thresholds_)
        facts["by_label"] = {name: values.tolist() for name, values in table.items()}
        facts["metrics"] = evaluate(
            validation.Y,
            scores,
            minority=classifier.minority_labels_,
            thresholds=classifier.thresholds_,
            only=_SHOWN,
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
    if facts:
        lines += [
            f"- {facts['training_rows']:,} training rows, {facts['validation_rows']:,} validation rows",
            f"- {facts['features']:,} features",
        ]
    if "label_cardinality" in facts:  # earlier versions did not keep them
        count = int(np.sum(classifier.minority_labels_))
        lines += [
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
    settings = settings_used(classifier)
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
    if "versions" in facts:
        lines += ["", "## Versions", ""]
        lines += [f"- {name} {version}" for name, version in facts["versions"].items()]
    return "\n".join(lines) + "\n"


def settings_used(classifier: "TailbatchClassifier") -> dict[str, Any]:
    """Return the settings of a fitted classifier, with what was used where they left it open."""
    settings = classifier.get_params(deep=False)
    for name in ("callbacks", "columns", "label_names", "checkpoint_folder", "device", "verbose"):
        settings.pop(name, None)
    if settings["random_state"] is None:  # which a model that was loaded does not know either
        settings.pop("random_state")
    plan = plan_of(classifier)
    used = {name: getattr(plan, name) for name in _PLANNED}
    rows = classifier.facts_.get("training_rows")
    used["epochs"] = plan.epochs if rows is None else plan.n_epochs(rows)
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
