"""A fitted classifier as plain values and tensors, and back; everything read is checked."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailbatch.data import SCALINGS, FittedColumns, Scaling
from tailbatch.errors import ModelError
from tailbatch.estimator.history import History
from tailbatch.models import ModuleFactory, restore_model
from tailbatch.results import TrainingPlan
from tailbatch.selection import STRATEGIES
from tailbatch.training import Epoch, choose_device

if TYPE_CHECKING:
    from tailbatch.estimator.classifier import TailbatchClassifier

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
        "n_features": classifier.n_features_in_
        if classifier.columns_ is None
        else len(classifier.columns_.feature_names),
        "feature_names": None if names is None else names.tolist(),
        "columns": None if classifier.columns_ is None else classifier.columns_.state(),
        "facts": classifier.facts_,
        "label_names": list(classifier.label_names_),
        "classes": classifier.classes_.tolist() if classifier._is_binary else None,
        "thresholds": classifier.thresholds_,
        "minority_labels": classifier.minority_labels_,
        "scaling": None if scaling is None else {"kind": scaling.name, **asdict(scaling)},
        "selection_pressure": classifier.selection_pressure_,
        "history": [asdict(epoch) for epoch in classifier.history_],
        "best_epoch": classifier.best_epoch_,
        "best_by": classifier.history_.best_by,
        "hyperparameters": dict(model.hyperparameters) if named else classifier._nested("model__"),
        "loss": loss,
        "weights": dict(model.state_dict()),
    }


def restore(
    kind: type[_Classifier], state: Mapping[str, Any], factory: ModuleFactory | None, device: str
) -> _Classifier:
    """Rebuild a classifier from `state_of`; nothing of it is believed before it is checked."""
    state = _in_todays_words(state)
    settings = dict(state["settings"])
    if settings["model"] is None:
        if factory is None:
            raise ModelError(
                "it was fitted with a model of your own: pass the function that builds it, "
                "load(folder, model=...)"
            )
        settings["model"] = factory
    columns = state.get("columns")  # versions before tables had none
    fitted = None if columns is None else FittedColumns.from_state(columns)
    classifier = kind(**settings, columns=None if fitted is None else fitted.columns)
    classifier.columns_ = fitted
    classifier.facts_ = dict(state.get("facts") or {})
    n_features, n_labels = int(state["n_features"]), len(state["label_names"])
    if fitted is not None and len(fitted.feature_names) != n_features:
        raise ValueError(f"its columns give {len(fitted.feature_names)} features, not {n_features}")
    if state["feature_names"] is not None:
        given = state["feature_names"]
        count = n_features if fitted is None else len(given)
        classifier.feature_names_in_ = np.array(_strings(given, count), dtype=object)
    known = fitted is not None and state["feature_names"] is not None
    classifier.n_features_in_ = len(classifier.feature_names_in_) if known else n_features
    classifier.label_names_ = _strings(state["label_names"], n_labels)
    classifier._is_binary = state["classes"] is not None
    classifier.classes_ = _classes(state["classes"], n_labels)
    classifier.thresholds_ = _numbers(state["thresholds"], n_labels)
    classifier.minority_labels_ = _numbers(state["minority_labels"], n_labels) > 0
    classifier.scaling_ = _scaling(state["scaling"], n_features)
    classifier.selection_pressure_ = state["selection_pressure"]
    classifier.best_epoch_ = int(state["best_epoch"])
    classifier.history_ = History(
        (Epoch(**epoch) for epoch in state["history"]),
        best_epoch=classifier.best_epoch_,
        best_by=str(state.get("best_by", TrainingPlan.best_by)),
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
    if not np.isfinite(classifier._logits(np.zeros((1, n_features)))).all():
        raise ModelError("its weights are not numbers")
    return classifier


def _scaling(values: Mapping[str, Any] | None, n_features: int) -> Scaling | None:
    """Return the scaling of its arrays; before there were several kinds, files did not name theirs."""
    if values is None:
        return None
    arrays = dict(values)
    kind: Any = SCALINGS[arrays.pop("kind", "minmax")]
    scaling: Scaling = kind(**{name: _numbers(arrays[name], n_features) for name in arrays})
    return scaling


def _in_todays_words(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a version without losses, whose MLP had an objective, as of this one."""
    if "loss" in state:
        return state
    settings, weights = dict(state["settings"]), dict(state["weights"])
    hyperparameters = dict(state["hyperparameters"])
    objective, loss = settings.pop("model__objective", "bce"), None
    if settings["model"] == "mlp":
        objective = hyperparameters.pop("objective", objective)
        loss = {"name": objective}
        hyperparameters |= {"reduction": "mean", "prior_bias": False}
        settings |= {"model__reduction": "mean", "model__prior_bias": False, "loss": objective}
        weight = weights.pop("positive_weight", None)
        if objective == "weighted_bce" and weight is not None:
            weights["loss.positive_weight"] = weight
    elif settings["model"] == "mpvae":
        hyperparameters.pop("lr_ratio", None)
        settings.pop("model__lr_ratio", None)
    return {
        **state,
        "settings": settings,
        "hyperparameters": hyperparameters,
        "weights": weights,
        "loss": loss,
    }


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
