"""The front door: a strategy's name and the training data in, a ready selector out."""

import inspect
import logging
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, get_args

from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.imbalance import selection_weights
from tailbatch.selection.adaptive import AdaptiveSelector
from tailbatch.selection.base import Selector
from tailbatch.selection.chain import ChainSelector
from tailbatch.selection.hard import HardSelector
from tailbatch.selection.inputs import LabelMatrix, as_array, label_matrix, whole_number
from tailbatch.selection.minority import MinoritySelector
from tailbatch.selection.random import BalancedSelector, RandomSelector, UniformSelector
from tailbatch.selection.schedule import Schedule, as_schedule
from tailbatch.selection.warm_up import WarmUp

logger = logging.getLogger(__name__)

STRATEGIES: dict[str, type[Selector]] = {
    cls.strategy: cls
    for cls in (
        RandomSelector,
        UniformSelector,
        BalancedSelector,
        HardSelector,
        AdaptiveSelector,
        ChainSelector,
        MinoritySelector,
    )
}
"""Every strategy's class by name."""

DEFAULT_STRATEGY = MinoritySelector.strategy
"""What is used where none is named: with a plain loss it ranked first on the validation rows of
imbalanced datasets, see docs/reproduction.md."""


def make_selector(
    strategy: str = DEFAULT_STRATEGY,
    Y: object = None,
    *,
    X: object = None,
    batch_size: int = 128,
    selection_pressure: float | Schedule | str | None = None,
    warm_up_epochs: int = 3,
    seed: int = 0,
    epochs: int | None = None,
    shuffle: bool = True,
    **options: Any,
) -> Selector:
    """Return a selector for the training rows, with weights and warm-up.

    Parameters
    ----------
    strategy
        A name in `STRATEGIES`; ``make_selector(Y=labels)`` takes ``minority``, which evaluation on
        validation rows recommends.
    Y
        Label matrix (n, q) of the training rows: array, sparse matrix, frame or tensor of 0 and 1.
    X
        Features or embeddings (n, d) of the training rows, scaled as for the model: the selection
        weights of ``adaptive`` and ``chain`` come from each row's neighbors. Without X they are 1.
    batch_size
        Samples in a batch.
    selection_pressure
        s_e, a number from 1, a schedule, or ``"imbalance"``: MeanIR, at most 64, which is the default
        of ``minority``. It is 16 for ``hard``, ``adaptive`` and ``chain``; ``random``, ``uniform`` and
        ``balanced`` have none.
    warm_up_epochs
        Plain shuffled epochs first, the same batches for every strategy.
    seed
        Everything random comes from it.
    epochs
        All epochs of the training, warm-up included; schedules that anneal need it.
    shuffle
        False keeps the warm-up (and ``random``) in the order of the rows, as the authors' script.
    **options
        Further settings of the strategy's class, for instance ``weights=``, ``cap_quantile=``,
        ``power=``, ``max_lag=``, ``initial_losses=``, ``importance=``.

    Examples
    --------
    >>> Y = [[1, 0], [1, 0], [1, 1], [0, 1]]
    >>> X = [[0.0], [0.1], [0.9], [1.0]]
    >>> selector = make_selector("hard", Y, X=X, batch_size=2, warm_up_epochs=1)
    >>> for index in selector:
    ...     selector.observe([0.7, 0.2])
    >>> selector.epoch
    1
    >>> make_selector(Y=Y).strategy
    'minority'
    >>> make_selector("adaptve", Y)
    Traceback (most recent call last):
    ...
    tailbatch.errors.SelectionError: unknown strategy 'adaptve'; did you mean 'adaptive'?
    """
    if Y is None or not isinstance(strategy, str):
        raise SelectionError(
            "make_selector needs the labels of the training rows as Y, and a strategy by its name: "
            'make_selector("adaptive", labels), or make_selector(Y=labels) for the default'
        )
    _check_name("strategy", strategy, STRATEGIES)
    cls = STRATEGIES[strategy]
    known = _parameters(cls)
    for option in options:
        _check_name(f"option of {strategy}", option, known)
    labels = label_matrix(Y)
    warm_up_epochs = whole_number("warm_up_epochs", warm_up_epochs, least=0)
    offered: dict[str, Any] = {
        "n_samples": labels.shape[0],
        "Y": labels,
        "labels": labels,
        "batch_size": batch_size,
        "seed": seed,
        "shuffle": shuffle,
        "epochs": _epochs_after(warm_up_epochs, epochs),
    }
    if selection_pressure is not None:
        offered["selection_pressure"] = as_schedule(selection_pressure, labels)
    if "weights" in known and "weights" not in options:
        offered["weights"] = _weights(X, labels)
    # Each class takes what its parameters name: the signature is the declaration.
    settings = {name: value for name, value in offered.items() if name in known}
    return WarmUp(cls(**(settings | options)), epochs=warm_up_epochs, shuffle=shuffle)


def _epochs_after(warm_up_epochs: int, epochs: int | None) -> int | None:
    # A training that ends within its warm-up never asks for a pressure.
    return (
        None if epochs is None else max(whole_number("epochs", epochs, least=1) - warm_up_epochs, 1)
    )


def _weights(X: object, labels: LabelMatrix) -> Any:
    if X is None:
        logger.warning(
            "no features X were given: the imbalance weights are 1 and only the losses count"
        )
        return 1.0
    features = sparse.csr_array(X) if sparse.issparse(X) else as_array(X)
    if features.shape[0] != labels.shape[0]:
        raise SelectionError(f"X has {features.shape[0]} rows and Y has {labels.shape[0]}")
    return selection_weights(features, labels)


def _parameters(cls: type[Selector]) -> list[str]:
    """Return the names of all settings a selector class takes, those in ``**settings`` included."""
    names: list[str] = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (settings,) = get_args(parameter.annotation)
            names += settings.__annotations__
        else:
            names.append(name)
    return names


def _check_name(what: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name in known:
        return
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    raise SelectionError(f"unknown {what} {name!r}; {hint}")
