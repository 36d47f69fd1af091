"""A fitted classifier as plain values and tensors, and back; nothing read is believed unchecked."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailbatch.data import MinMaxScaling
from tailbatch.errors import ModelError
from tailbatch.models import ModuleFactory, restore_model
from tailbatch.training import Epoch, choose_device

if TYPE_CHECKING:
    from tailbatch.estimator.classifier import TailbatchClassifier

_Classifier = TypeVar("_Classifier", bound="TailbatchClassifier")


def state_of(classifier: "TailbatchClassifier") -> dict[str, Any]:
    """Return a fitted classifier as plain values, arrays and tensors."""
    settings = classifier.get_params(deep=False)
    # What cannot or should not travel to another machine.
    for name in ("callbacks", "checkpoint_folder", "random_state"):
        settings.pop(name)
    named = isinstance(settings["model"], str)
    names = getattr(classifier, "feature_names_in_", None)
    model, scaling = classifier.model_, classifier.scaling_
    return {
        "settings": settings if named else {**settings, "model": None},
        "n_features": classifier.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
        "label_names": list(classifier.label_names_),
        "classes": classifier.classes_.tolist() if classifier._is_binary else None,
        "thresholds": classifier.thresholds_,
        "minority_labels": classifier.minority_labels_,
        "scaling": None if scaling is None else asdict(scaling),
        "selection_pressure": classifier.selection_pressure_,
        "history": [asdict(epoch) for epoch in classifier.history_],
        "best_epoch": classifier.best_epoch_,
        "hyperparameters": dict(model.hyperparameters) if named else classifier._nested("model__"),
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
    classifier = kind(**settings)
    n_features, n_labels = int(state["n_features"]), len(state["label_names"])
    classifier.n_features_in_ = n_features
    if state["feature_names"] is not None:
        names = np.array(_strings(state["feature_names"], n_features), dtype=object)
        classifier.feature_names_in_ = names
    classifier.label_names_ = _strings(state["label_names"], n_labels)
    classifier._is_binary = state["classes"] is not None
    classifier.classes_ = _classes(state["classes"], n_labels)
    classifier.thresholds_ = _numbers(state["thresholds"], n_labels)
    classifier.minority_labels_ = _numbers(state["minority_labels"], n_labels) > 0
    scaling = state["scaling"]
    classifier.scaling_ = (
        None
        if scaling is None
        else MinMaxScaling(**{name: _numbers(scaling[name], n_features) for name in scaling})
    )
    classifier.selection_pressure_ = state["selection_pressure"]
    classifier.history_ = tuple(Epoch(**epoch) for epoch in state["history"])
    classifier.best_epoch_ = int(state["best_epoch"])
    model = restore_model(
        classifier.model, n_features, n_labels, state["hyperparameters"], state["weights"]
    )
    classifier.model_ = model.to(choose_device(device)).eval()
    if not np.isfinite(classifier._logits(np.zeros((1, n_features)))).all():
        raise ModelError("its weights are not numbers")
    return classifier


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
