"""One fit described as a value, and trained: settings, plan, parts and weights in, a model out."""

import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator

from tailbatch import defaults
from tailbatch.data import (
    Features,
    MultiLabelDataset,
    Parts,
    Scaling,
    fit_scaling,
    stratified_parts,
    stratified_split,
)
from tailbatch.errors import (
    DataError,
    ModelError,
    TrainingError,
    check_number,
    closest,
    did_you_mean,
    setting,
)
from tailbatch.estimator.reviewed import _dealt
from tailbatch.losses import Loss, loss_table
from tailbatch.losses.base import named_notice
from tailbatch.metrics import METRICS, evaluate
from tailbatch.models import MODELS, CrossFitted, MultiLabelModel, make_model
from tailbatch.registry import check_known
from tailbatch.results import TrainingPlan
from tailbatch.selection import make_selector
from tailbatch.training import (
    Rows,
    Trainer,
    Training,
    check_scheduler,
    held_out_logits,
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
    if "model__parts" in settings:
        raise TrainingError("model__parts is the setting cross_fit: write cross_fit=... instead")
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
    if settings["validation_fraction"] is not None:
        check_number("validation_fraction", settings["validation_fraction"], least=0, below=1)
    if settings["time_limit"] is not None:
        check_number("time_limit", settings["time_limit"], above=0)
    return plan


class _Division(NamedTuple):
    """Scaled rows, which of them are held out from what, and what scaled them.

    `rows` numbers the training rows among all; `part` (n,) is the part of each of them, None where
    validation rows are held out, or none.
    """

    parts: Parts
    rows: NDArray[np.int64]
    part: NDArray[np.int64] | None
    scaling: Scaling | None


def divided(
    data: MultiLabelDataset,
    held_out: MultiLabelDataset | None,
    settings: Mapping[str, Any],
    *,
    groups: Any,
    scale: bool | str | Scaling,
    seed: int,
) -> _Division:
    """Deal the rows to parts, or split off validation rows unless some are given, and scale them.

    Parameters
    ----------
    data, held_out
        All rows, and validation rows of the user's own.
    settings
        The estimator's: how many parts, or which share of the rows to split off.
    groups
        (n,) the group of each row, whose rows stay together; None for none.
    scale
        How, as for `fit_scaling`; or an earlier fit's scaling, which is then kept.
    seed
        The same seed gives the same parts.
    """
    fraction, part = settings["validation_fraction"], None
    n_parts = _n_parts(data, held_out, settings, groups)
    rows = np.arange(data.n_samples)  # in order, as a split leaves them
    if n_parts:
        if data.suggested is None or groups is not None:
            part = stratified_parts(data.Y, n_parts=n_parts, seed=seed, groups=groups)
        else:
            part = _dealt(data, n_parts, seed)
    elif held_out is None and fraction != 0 and data.measurable.size:
        fraction = defaults.VALIDATION_FRACTION if fraction is None else fraction
        share = max(fraction, 1 / data.n_samples)
        chosen = data.measurable if groups is None else rows
        fold = stratified_split(data.Y[chosen], validation=share, test=0, seed=seed, groups=groups)
        held_out = data.take(chosen[fold.validation]).measured
        rows = np.setdiff1d(rows, chosen[fold.validation])
    train, none = data.take(rows), data.take([])
    held_out = none if held_out is None else held_out
    if train.missing is not None and train.missing.sum() == np.prod(train.missing.shape):
        raise DataError(
            "every label of the training rows is missing: there is nothing to learn from; give Y zeros "
            "and ones where they are known"
        )
    # By training rows only: what held-out rows say would make their scores look better than they are.
    tokens = settings.get("model__tokens", ())
    scaling = scale if isinstance(scale, Scaling) else fit_scaling(scale, train.X, leave=tokens)
    if scaling is not None:
        train = replace(train, X=scaling.transform(train.X))
        held_out = replace(held_out, X=scaling.transform(held_out.X))
    return _Division(Parts(train, held_out, none), rows, part, scaling)


def _n_parts(
    data: MultiLabelDataset,
    held_out: MultiLabelDataset | None,
    settings: Mapping[str, Any],
    groups: Any,
) -> int:
    """Return the number of parts to cross-fit with, 0 for none."""
    asked, fraction = settings["cross_fit"], settings["validation_fraction"]
    if asked is None:
        if fraction or held_out is not None:
            return 0
        # As many as there can be: two rows make two parts.
        most = data.n_samples if groups is None else len(np.unique(np.asarray(groups)))
        wanted = min(defaults.recipe_of(settings["model"]).cross_fit, most)
        return wanted if wanted > 1 else 0
    check_number("cross_fit", asked, least=0, whole=True)
    if asked == 1:
        raise DataError(
            f"{setting('cross_fit', 1)} would hold out every row: choose 0 for none, or from 2, such as 5"
        )
    if not asked:
        return 0
    for name, given in (("validation_fraction", fraction), ("validation_data", held_out)):
        if given is not None and given != 0:
            raise DataError(
                f"{setting(name)} and {setting('cross_fit', asked)} both hold out rows: leave one out"
            )
    if asked > data.n_samples:
        raise DataError(
            f"{setting('cross_fit', asked)} needs as many rows, and there are {data.n_samples}: "
            "choose fewer parts"
        )
    return int(asked)


def logits_of(model: MultiLabelModel, X: Features) -> NDArray[np.float32]:
    """Return a model's calibrated logits for scaled features, (n, q)."""
    return score_rows(lambda x: model.calibrated(model(x)), _rows(model, X))


def _rows(model: MultiLabelModel, X: Features) -> Rows:
    device = next(model.parameters()).device
    model.eval()  # a user may have trained it further
    return Rows(X, device, model=model)


class _Attempt(NamedTuple):
    """A training, what it was trained with, and the logits of the rows that were held out, if any."""

    pressure: float | str | None
    model: MultiLabelModel
    training: Training
    logits: NDArray[np.float32] | None


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
    part
        (n,) the part of each training row, None without cross-fitting.
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
    part: NDArray[np.int64] | None
    sample_weight: NDArray[np.float64] | None
    positive_weights: NDArray[np.float64] | None
    seed: int
    start: MultiLabelModel | None

    @property
    def held_out(self) -> MultiLabelDataset:
        """The rows that some member does not learn from: validation rows, or all of them by parts."""
        return self.parts.validation if self.part is None else self.parts.train.measured

    @property
    def _seconds(self) -> float | None:
        """The time limit of each training."""
        limit, trainings = self.settings["time_limit"], 1
        if self.settings["selection_pressure"] == "auto":
            trainings = len(PRESSURES)
        if self.part is not None and not self._in_one:
            trainings *= int(self.part.max()) + 1
        return None if limit is None else limit / trainings

    @property
    def _in_one(self) -> bool:
        """Whether one training holds out all parts."""
        return getattr(_kind(self.settings["model"]), "cross_fits", False)

    def train(self) -> _Attempt:
        """Train with the pressure asked for, or with each of `PRESSURES`, and return the best."""
        # Several parts of a fit find the labels without positives; the user is told once, with names.
        with named_notice(self.parts.train.label_names):
            if self.settings["selection_pressure"] != "auto":
                return self._attempt(self.settings["selection_pressure"])
            return max(map(self._attempt, PRESSURES), key=self._score)

    def _attempt(self, pressure: Any) -> _Attempt:
        """Train one model: one that holds out the parts itself, or one for each part."""
        if self.part is None or self._in_one:
            model, training = self._trained(pressure, self.parts, self.sample_weight, self.part)
        else:
            fits = []
            for number in range(self.part.max() + 1):
                inside = self.part == number
                train, weight = self.parts.train, self.sample_weight
                parts = replace(
                    self.parts,
                    train=train.take(np.flatnonzero(~inside)),
                    validation=train.take(np.flatnonzero(inside)).measured,
                )
                weight = None if weight is None else weight[~inside] / weight[~inside].mean()
                fits.append(self._trained(pressure, parts, weight, number=number))
            model, training = CrossFitted([model for model, _ in fits]), fits[0][1]
        logits = None
        if self.part is not None:
            rows = _rows(model, self.parts.train.X)
            part = torch.from_numpy(self.part).to(rows.device)
            logits = held_out_logits(model, rows, part)
        elif self.parts.validation.n_samples:
            logits = logits_of(model, self.parts.validation.X)
        return _Attempt(pressure, model, training, logits)

    def _trained(
        self,
        pressure: Any,
        parts: Parts,
        weight: NDArray[np.float64] | None,
        part: NDArray[np.int64] | None = None,
        number: int = 0,
    ) -> tuple[MultiLabelModel, Training]:
        """Train one model on the training rows of `parts`, the `number`-th of the attempt."""
        settings, plan, train = self.settings, self.plan, parts.train
        options = nested(settings, "model__")
        if part is not None:
            options["parts"] = int(part.max()) + 1
        model = make_model(
            settings["model"], train, seed=self.seed + number, loss=self._loss(), **options
        )
        if self.start is not None:
            fits: Any = self.start.fits if isinstance(self.start, CrossFitted) else [self.start]
            _start_from(fits[min(number, len(fits) - 1)], model)
        selector = make_selector(
            settings["strategy"],
            train.Y,
            X=train.X,
            batch_size=plan.batch_size,
            selection_pressure=pressure,
            warm_up_epochs=plan.warm_up_epochs,
            epochs=plan.n_epochs(train.n_samples),
            seed=self.seed + number,
            loss=model.loss,
            **nested(settings, "strategy__"),
        )
        checkpoint = settings["checkpoint_folder"]
        if checkpoint is not None:
            # Each training resumes from a file of its own.
            tried = f"-{pressure:g}" if settings["selection_pressure"] == "auto" else ""
            tried += f"-part-{number}" if number else ""
            checkpoint = Path(checkpoint) / f"training{tried}.safetensors"
        trainer = Trainer(
            plan,
            seed=self.seed + number,
            device=settings["device"],
            callbacks=settings["callbacks"],
            checkpoint=checkpoint,
            time_limit=self._seconds,
            metrics=(),  # only the one that chooses the epoch
        )
        training = trainer.fit(model, parts, selector, sample_weight=weight, part=part)
        return model, training

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
        """Return how good an attempt is on the rows that were held out; higher is better."""
        name, rows = self.plan.best_by, self.held_out
        score = evaluate(
            rows.Y,
            expit(attempt.logits),
            minority=self.parts.minority,
            only=(name,),
            missing=rows.missing,
        )[name]
        if math.isnan(score):  # which `max` would keep if it came first
            return -math.inf
        return score if METRICS[name].higher_is_better else -score


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


def _kind(model: Any) -> Any:
    """Return the class or function that a model is named by."""
    return MODELS[model] if isinstance(model, str) else model


def _hyperparameters(model: object) -> list[str]:
    try:
        kind = _kind(model)
    except ModelError:
        return []
    if not (isinstance(kind, type) and issubclass(kind, MultiLabelModel)):
        return []
    return list(inspect.signature(kind).parameters)[2:]  # without the widths of x and y
