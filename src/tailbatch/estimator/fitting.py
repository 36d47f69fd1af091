"""One fit described as a value, and trained: settings, plan, parts and weights in, a model out."""

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator

from tailbatch.data import (
    Features,
    MultiLabelDataset,
    Parts,
    Scaling,
    fit_scaling,
    stratified_split,
)
from tailbatch.errors import DataError, ModelError, TrainingError, closest, did_you_mean, setting
from tailbatch.imbalance import positive_weights
from tailbatch.losses import Loss, loss_table
from tailbatch.losses.base import named_notice
from tailbatch.metrics import METRICS, tune_thresholds
from tailbatch.models import MODELS, MultiLabelModel, make_model
from tailbatch.registry import check_known
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import (
    Rows,
    Trainer,
    Training,
    check_scheduler,
    score_rows,
)

PRESSURES = (2.0, 8.0, 16.0, 64.0)
"""What ``selection_pressure="auto"`` tries, as in the paper."""

NESTED = ("model__", "loss__", "strategy__", "plan__")
"""What the names of nested settings begin with."""

_PLANNED = ("epochs", "batch_size", "lr", "weight_decay", "warm_up_epochs")
"""Fields of the training plan that are settings of the classifier, and nowhere else."""

_PLAN = tuple(field.name for field in fields(TrainingPlan))


class NestedSettings(BaseEstimator):  # type: ignore[misc] # no stubs
    """Scikit-learn's parameters, with nested ones that the constructor takes as ``**model__options``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, nested ones such as ``model__latent`` included."""
        params: dict[str, Any] = super().get_params(deep=deep)
        return params | {key: vars(self)[key] for key in vars(self) if key.startswith(NESTED)}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, nested ones such as ``model__latent`` included."""
        nested = {key: value for key, value in params.items() if key.startswith(NESTED)}
        plain = {key: value for key, value in params.items() if key not in nested}
        for key in plain:
            if key not in self._get_param_names():
                raise ValueError(self._unknown(key))
        super().set_params(**plain)
        self._set_nested(nested)
        return self

    def _set_nested(self, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            if not key.startswith(NESTED):
                raise TypeError(self._unknown(key))
            setattr(self, key, value)

    def _unknown(self, name: str) -> str:
        """Return what to say of a setting that does not exist."""
        own = list(self._get_param_names())
        guess = _suggestion(name, own, getattr(self, "model", "mlp"))
        return (
            f"{type(self).__name__} has no setting {name!r}"
            + (f"; did you mean {guess!r}?" if guess else ".")
            + f" Nested settings begin with {', '.join(NESTED)}"
        )


def nested(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the nested settings with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}


def plan_of(settings: Mapping[str, Any]) -> TrainingPlan:
    """Return the training plan that an estimator's settings ask for."""
    asked = nested(settings, "plan__")
    for name in asked:
        if name in _PLANNED:
            raise TrainingError(f"plan__{name} is the setting {name}: write {name}=... instead")
        if name not in _PLAN:
            raise TrainingError(
                f"the training plan has no field {name!r}{did_you_mean(name, _PLAN)}"
            )
    given = {name: settings[name] for name in _PLANNED}
    # A pass over all training rows for numbers that are read only where asked for.
    given["training_loss_every"] = 0
    try:
        # Not with the rest below: a number of steps lifts the recipe's least number of them.
        if "steps" in asked:
            given["steps"] = asked["steps"]
        if asked.get("early_stopping") is not None:
            asked.setdefault("evaluate_every", 1)  # nothing can be stopped by one evaluation
        plan = replace(TrainingPlan.suited_to(settings["model"], **given), **asked)
    except TypeError as error:
        raise TrainingError(f"a setting of the training plan does not fit: {error}") from error
    if plan.scheduler is not None:
        check_scheduler(plan)
    check_known("plan__best_by", plan.best_by, METRICS, error=TrainingError)
    return plan


class _Division(NamedTuple):
    """Scaled parts, the numbers of the training rows among all rows, and what scaled them."""

    parts: Parts
    rows: NDArray[np.int64]
    scaling: Scaling | None


def divided(
    data: MultiLabelDataset,
    held_out: MultiLabelDataset | None,
    *,
    fraction: float,
    scale: bool | str | Scaling,
    seed: int,
) -> _Division:
    """Split off validation rows unless some are given, and scale all by what the training rows say.

    Parameters
    ----------
    data, held_out
        All rows, and validation rows of the user's own.
    fraction
        Share of the rows to split off; at least one row, unless it is 0.
    scale
        How, as for `fit_scaling`; or an earlier fit's scaling, which is then kept.
    seed
        The same seed gives the same parts.
    """
    if fraction and held_out is None:
        fold = stratified_split(
            data.Y, validation=max(fraction, 1 / data.n_samples), test=0, seed=seed
        )
        rows, held_out = fold.train, data.take(fold.validation)
    else:
        rows = np.arange(data.n_samples)  # in order, as a split leaves them
    train, none = data.take(rows), data.take([])
    held_out = none if held_out is None else held_out
    if train.missing is not None and train.missing.sum() == np.prod(train.missing.shape):
        raise DataError(
            "every label of the training rows is missing: there is nothing to learn from; give Y zeros "
            "and ones where they are known"
        )
    # By training rows only: what held-out rows say would make their scores look better than they are.
    scaling = scale if isinstance(scale, Scaling) else fit_scaling(scale, train.X)
    if scaling is not None:
        train = replace(train, X=scaling.transform(train.X))
        held_out = replace(held_out, X=scaling.transform(held_out.X))
    return _Division(Parts(train, held_out, none), rows, scaling)


def logits_of(model: MultiLabelModel, X: Features) -> NDArray[np.float32]:
    """Return a model's calibrated logits for scaled features, (n, q)."""
    device = next(model.parameters()).device
    model.eval()  # a user may have trained it further
    rows = Rows(X, device, model=model)
    return score_rows(lambda x: model.calibrated(model(x)), rows)


def probabilities_of(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logits' sigmoid; double precision keeps confident scores apart, and below 1."""
    probabilities: NDArray[np.float64] = expit(logits.astype(np.float64))
    return probabilities


def decided_thresholds(
    given: NDArray[np.float64] | None,
    costs: NDArray[np.float64] | None,
    held_out: MultiLabelDataset,
    scores: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return the probability above which each label is predicted, (q,).

    Parameters
    ----------
    given
        What the user asked for, made cheaper by `costs`; None tunes them on held-out rows.
    costs
        (q,) how much more missing a label costs than a false alarm; None for as much.
    held_out, scores
        Rows that no weight was trained on, and their probabilities (m, q); None without such rows.
    """
    if given is not None:
        return given if costs is None else _costly_thresholds(given, costs)
    if scores is None:
        return tune_thresholds(held_out.Y, np.zeros((0, held_out.n_labels)))
    if held_out.missing is not None:
        # Probability 0 is never predicted, and a 0 in Y that is not predicted counts nowhere.
        scores = np.where(dense(held_out.missing), 0, scores)
    return tune_thresholds(held_out.Y, scores)


class _Attempt(NamedTuple):
    """A training and what it was trained with."""

    pressure: float | str | None
    model: MultiLabelModel
    training: Training


@dataclass(frozen=True, eq=False)
class Fit:
    """All that one fit is made of; training it changes none of it.

    Parameters
    ----------
    settings
        The estimator's, by name.
    plan
        How to train.
    parts
        Training and validation rows, scaled.
    sample_weight
        (n,) what each training row counts; None for all the same.
    positive_weights
        (q,) what `class_weight` says; None for nothing.
    seed
        Of weights, batches and layers.
    start
        A model whose weights to start from; None starts from new ones.
    """

    settings: Mapping[str, Any]
    plan: TrainingPlan
    parts: Parts
    sample_weight: NDArray[np.float64] | None
    positive_weights: NDArray[np.float64] | None
    seed: int
    start: MultiLabelModel | None

    def train(self) -> _Attempt:
        """Train with the pressure asked for, or with each of `PRESSURES`, and return the best."""
        # Several parts of a fit find the labels without positives; the user is told once, with names.
        with named_notice(self.parts.train.label_names):
            if self.settings["selection_pressure"] != "auto":
                return self._attempt(self.settings["selection_pressure"])
            if self.parts.validation.n_samples == 0:
                raise DataError(
                    f'{setting("selection_pressure")}="auto" needs validation rows: '
                    f"set {setting('validation_fraction')} above 0"
                )
            return max(map(self._attempt, PRESSURES), key=self._score)

    def _attempt(self, pressure: Any) -> _Attempt:
        settings, plan, train = self.settings, self.plan, self.parts.train
        checkpoint = settings["checkpoint_folder"]
        if checkpoint is not None:
            # Each pressure that is tried resumes from a file of its own.
            tried = f"-{pressure:g}" if settings["selection_pressure"] == "auto" else ""
            checkpoint = Path(checkpoint) / f"training{tried}.safetensors"
        model = make_model(
            settings["model"],
            train,
            seed=self.seed,
            loss=self._loss(),
            **nested(settings, "model__"),
        )
        if self.start is not None:
            _start_from(self.start, model)
        selector = make_selector(
            settings["strategy"],
            train.Y,
            X=train.X,
            batch_size=plan.batch_size,
            selection_pressure=pressure,
            warm_up_epochs=plan.warm_up_epochs,
            epochs=plan.n_epochs(train.n_samples),
            seed=self.seed,
            loss=model.loss,
            **nested(settings, "strategy__"),
        )
        trainer = Trainer(
            plan,
            seed=self.seed,
            device=settings["device"],
            callbacks=settings["callbacks"],
            checkpoint=checkpoint,
            metrics=(),  # only the one that chooses the epoch
        )
        training = trainer.fit(model, self.parts, selector, sample_weight=self.sample_weight)
        return _Attempt(pressure, model, training)

    def _loss(self) -> Any:
        """Return the loss with its nested options; a ready one as a copy, since it may learn, too."""
        loss, options = self.settings["loss"], nested(self.settings, "loss__")
        # Two weights on one positive would multiply, and no threshold could take both back.
        if self.positive_weights is not None:
            if options or loss not in (None, "bce"):
                raise ModelError(
                    "class_weight weights the positives of binary cross-entropy, and "
                    f"loss={loss!r:.60} has weights of its own: leave one of them out"
                )
            return {"name": "weighted_bce", "weights": self.positive_weights.tolist()}
        if not options:
            return copy.deepcopy(loss) if isinstance(loss, Loss) else loss
        if not isinstance(loss, str | Mapping):
            raise ModelError(
                f"loss__{min(options)} needs a loss by name, such as loss='weighted_bce', "
                f"got loss={loss!r:.60}"
            )
        name, given = loss_table(loss)
        return {"name": name, **given, **options}

    def _score(self, attempt: _Attempt) -> float:
        """Return how good an attempt is; higher is better."""
        score = attempt.training.best.validation[self.plan.best_by]
        if math.isnan(score):  # which `max` would keep if it came first
            return -math.inf
        return score if METRICS[self.plan.best_by].higher_is_better else -score


def weights_of_positives(
    class_weight: Any, train: MultiLabelDataset, classes: NDArray[Any] | None = None
) -> NDArray[np.float64] | None:
    """Return what the positives of each label weigh against its negatives, (q,); None for all the same.

    Parameters
    ----------
    class_weight
        None; ``"balanced"``, negatives over positives of the training rows; for many labels a table from
        names of labels (or columns) to weights of their positives, q such weights, or scikit-learn's list
        of a table ``{0: ..., 1: ...}`` per label; for two classes a table from class to weight.
    train
        The training rows.
    classes
        The two classes of a one-dimensional Y.

    Examples
    --------
    >>> Y = np.array([[1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    >>> train = MultiLabelDataset.from_arrays(np.eye(4), Y, label_names=["bug", "billing"])
    >>> weights_of_positives("balanced", train).tolist()
    [3.0, 1.0]
    >>> weights_of_positives({"bug": 5}, train).tolist()
    [5.0, 1.0]
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(
                f'class_weight must be "balanced", a table or a list, got {class_weight!r:.60}'
            )
        return positive_weights(train.Y, power=1.0, missing=train.missing)
    if classes is not None:
        names = classes.tolist()  # Python's own values, as a table has them for keys
        negative, positive = _by_name(class_weight, names, "class")
        return np.array([positive / negative])
    labels = list(train.label_names)
    if isinstance(class_weight, Mapping):
        # Scikit-learn's tables have columns for keys, ours names.
        named = {
            labels[key] if isinstance(key, int) and 0 <= key < len(labels) else key: value
            for key, value in class_weight.items()
        }
        return _by_name(named, labels, "label")
    return _by_position(class_weight, len(labels))


def _costly_thresholds(
    thresholds: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probabilities above which a label is worth predicting if missing it costs w times more.

    logit t' = logit t - log w: with t = 0.5 a label is predicted where p w > 1 - p.

    Examples
    --------
    >>> _costly_thresholds(np.array([0.5]), np.array([3.0]))
    array([0.25])
    """
    return np.asarray(expit(logit(thresholds) - np.log(weights)))


def _by_name(table: Any, names: Sequence[Any], what: str) -> NDArray[np.float64]:
    if not isinstance(table, Mapping):
        raise DataError(f"class_weight must be a table from {what} to weight, got {table!r:.60}")
    for key in table:
        if key not in names:
            raise DataError(
                f"class_weight: unknown {what} {key!r:.60}{did_you_mean(key, map(str, names))}"
            )
    return _checked([table.get(name, 1) for name in names], table)


def _by_position(values: Any, n_labels: int) -> NDArray[np.float64]:
    listed = list(values) if hasattr(values, "__iter__") else []
    if len(listed) != n_labels:
        raise DataError(
            f"class_weight must have one entry for each of {n_labels} labels, got {len(listed)}"
        )
    if all(isinstance(entry, Mapping) for entry in listed):
        # Only the ratio counts: a false alarm costs 1.
        pairs = [_by_name(entry, [0, 1], "class") for entry in listed]
        return np.array([positive / negative for negative, positive in pairs])
    return _checked(listed, values)


def _checked(values: Sequence[Any], given: Any) -> NDArray[np.float64]:
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(1)  # refused below
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(f"class_weight must hold finite numbers above 0, got {given!r:.60}")
    return weights


def dense(labels: Any) -> NDArray[np.bool_]:
    """Return a label matrix as an array."""
    values = labels.toarray() if hasattr(labels, "toarray") else np.asarray(labels)
    return values.astype(bool)


def _start_from(earlier: MultiLabelModel, model: MultiLabelModel) -> None:
    """Give a model the weights of an earlier one; its loss stays its own, made for the new rows."""
    weights = {
        name: value for name, value in earlier.state_dict().items() if not name.startswith("loss.")
    }
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    for name, value in weights.items():
        if shapes.get(name) != value.shape:
            raise ModelError(
                f"warm_start continues with the model of the earlier fit, whose {name} has shape "
                f"{tuple(value.shape)}: keep features, labels and model, or set warm_start=False"
            )
    model.load_state_dict(weights, strict=False)


def _suggestion(name: str, own: list[str], model: object) -> str | None:
    """Return the setting that a wrong name probably means, if there is one."""
    # The classifier's own settings come last and win over fields of the same name.
    known = {field: f"plan__{field}" for field in _PLAN}
    known |= {option: f"model__{option}" for option in _hyperparameters(model)}
    known |= {setting: setting for setting in own}
    near = name if name in known else closest(name, known)
    return known[near] if near else None


def _hyperparameters(model: object) -> list[str]:
    try:
        kind = MODELS[model] if isinstance(model, str) else model
    except ModelError:
        return []
    if not (isinstance(kind, type) and issubclass(kind, MultiLabelModel)):
        return []
    return list(inspect.signature(kind).parameters)[2:]  # without the widths of x and y
