"""Upgrades of records that earlier versions wrote to the current schema.

Schema 1 had no field for the loss, which was the MLP's hyperparameter ``objective``; the MLP averaged it
over labels and started without a prior; MPVAE multiplied the plan's learning rate by its ``lr_ratio``.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tailbatch.errors import ResultError

SCHEMA = 2
"""Increased when the meaning of a spec or record changes, so that newer records are recognized."""

_SPEC_1: dict[str, Any] = {
    "preparation": "full",
    "n_folds": 5,
    "fold": 0,
    "model": "mlp",
    "hyperparameters": {},
    "strategy": "adaptive",
    "selection_pressure": 16.0,
    "strategy_options": {},
    "seed": 0,
}
_PLAN_1: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 128,
    "lr": 1e-4,
    "weight_decay": 1e-4,
    "warm_up_epochs": 3,
    "selection_loss": "bce",
    "best_by": "macro_auc",
    "early_stopping": None,
    "scheduler": None,
    "scheduler_options": {},
    "gradient_clip": None,
    "training_loss_every": None,
    "sample_loss_epochs": [],
}
_AVERAGED = {"prior_bias": False, "reduction": "mean"}
_LR_RATIO = 10.0

FORMER = "former_digest"
"""Where an upgraded spec keeps the digest it was written under."""


def digest_of(values: Mapping[str, Any], schema: int = SCHEMA) -> str:
    """Return the name of a run from the plain values of its spec.

    Examples
    --------
    >>> digest_of({"seed": 0}) == digest_of({"seed": 0}, schema=1)
    False
    """
    canonical = json.dumps({"schema": schema, **values}, sort_keys=True, default=refuse_option)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def refuse_option(value: object) -> object:
    """Raise for a value that JSON cannot represent."""
    raise ResultError(
        f"options must be strings, numbers, booleans, or lists and tables of them, got {value!r}"
    )


def upgraded(values: Any) -> Any:
    """Return JSON values of schema 1 with every spec upgraded; other schemas are returned unchanged.

    Examples
    --------
    >>> old = {"spec": {"dataset": "a", "dataset_digest": "", "model": "mpvae", "plan": {"lr": 0.0003}}}
    >>> upgraded(old)["spec"]["plan"]["lr"]
    0.003
    """
    if not isinstance(values, Mapping):
        return values
    known = dict(values)
    for name in ("run", "study", "failure"):
        if name in known:
            known[name] = upgraded(known[name])
    if "spec" in known:
        known["spec"] = upgraded_spec(known["spec"])
    if isinstance(known.get("specs"), list):
        known["specs"] = [upgraded_spec(spec) for spec in known["specs"]]
    return known


def upgraded_spec(spec: Any) -> Any:
    """Return an upgraded spec of schema 1, with the digest it had; anything else is returned unchanged.

    Examples
    --------
    >>> spec = upgraded_spec({"dataset": "a", "hyperparameters": {"objective": "asymmetric"}, "plan": {}})
    >>> spec["loss"], spec["hyperparameters"]
    ('asymmetric', {'prior_bias': False, 'reduction': 'mean'})
    """
    if not isinstance(spec, Mapping):
        return spec
    values, plan, settings = dict(spec), spec.get("plan", {}), spec.get("hyperparameters", {})
    if not isinstance(plan, Mapping) or not isinstance(settings, Mapping):
        return spec
    plan, settings, model = dict(plan), dict(settings), spec.get("model", "mlp")
    values[FORMER] = digest_of(_complete(values, plan), schema=1)
    if model == "mlp":
        objective = settings.pop("objective", "bce")
        settings = {**_AVERAGED, **settings}
        if objective != "bce":
            values["loss"] = objective
    elif model == "mpvae":
        ratio = settings.pop("lr_ratio", _LR_RATIO)
        plan["lr"] = _product(plan.get("lr", _PLAN_1["lr"]), ratio)
    return values | {"hyperparameters": settings, "plan": plan}


def former_digest(spec: Mapping[str, Any], usual: Mapping[str, Any]) -> str | None:
    """Return the digest that schema 1 would have given a run, or None if it could not express it.

    A field of the plan that schema 1 lacked must be as in `usual`.

    Examples
    --------
    >>> now = {"dataset": "a", "model": "mlp", "hyperparameters": _AVERAGED, "loss": "asymmetric"}
    >>> then = {"dataset": "a", "model": "mlp", "hyperparameters": {"objective": "asymmetric"}}
    >>> former_digest(now, {}) == upgraded_spec(then)[FORMER]
    True
    >>> former_digest({"dataset": "a", "model": "mlp", "loss": "focal"}, {}) is None
    True
    """
    values, plan = dict(spec), dict(spec.get("plan", {}))
    settings, model = dict(spec.get("hyperparameters", {})), spec.get("model", "mlp")
    loss, options = values.pop("loss", None), values.pop("loss_options", {})
    if model == "mlp":
        if {name: settings.pop(name, None) for name in _AVERAGED} != _AVERAGED:
            return None
        if loss in ("weighted_bce", "asymmetric") and not options:
            settings["objective"], loss = loss, None
    elif model == "mpvae":
        plan["lr"] = _product(plan.get("lr", 1e-3), 1 / _LR_RATIO)
    later = {name: plan.pop(name) for name in plan.keys() - _PLAN_1.keys()}
    if loss is not None or options or any(usual[name] != later[name] for name in later):
        return None
    return digest_of(_complete(values | {"hyperparameters": settings}, plan), schema=1)


def _complete(values: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a spec as schema 1 spelled them, defaults included."""
    complete = {**_SPEC_1, **values, "plan": {**_PLAN_1, **plan}}
    pressure = complete["selection_pressure"]
    if isinstance(pressure, int):
        complete["selection_pressure"] = _number("selection_pressure", pressure)
    elif isinstance(pressure, list | tuple):
        numbers = [_number("selection_pressure", value) for value in pressure]
        complete["selection_pressure"] = numbers
    return complete


def _product(lr: Any, factor: Any) -> float:
    """Return a product of two decimals without rounding noise: 0.003, not 0.0029999999999999996."""
    return float(f"{_number('lr', lr) * _number('lr_ratio', factor):.12g}")


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, int | float):
            return float(value)
    except OverflowError:
        pass
    raise ResultError(f"{name} must be a number, got {value!r:.40}")
