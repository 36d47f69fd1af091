"""The front door: a strategy's name and the training data in, a ready selector out."""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, get_args

import numpy as np
from scipy import sparse

from tailbatch.defaults import BATCH_SIZE, SEED
from tailbatch.errors import SelectionError
from tailbatch.imbalance import selection_weights
from tailbatch.registry import Registry, check_known, qualified_name
from tailbatch.selection.base import (
    OwnPressure,
    RandomSelector,
    Selector,
    _whole_number,
    label_matrix,
)
from tailbatch.selection.chain import ChainSelector
from tailbatch.selection.importance import ImportanceSelector
from tailbatch.selection.inputs import LabelMatrix, _as_array
from tailbatch.selection.loss_driven import AdaptiveSelector, HardSelector, Schedule, _as_schedule
from tailbatch.selection.rarity import BalancedSelector, MinoritySelector, UniformSelector
from tailbatch.selection.rivals import (
    BoundarySelector,
    ClassAwareSelector,
    CoverageSelector,
    D2ACESelector,
    RecencySelector,
    UncertaintySelector,
)

logger = logging.getLogger(__name__)

SelectorFactory: TypeAlias = Callable[..., Selector]
"""Called with (Y, *, X, batch_size, seed, epochs, **options), as `make_selector`; returns a selector."""
StrategyLike: TypeAlias = str | type[Selector] | SelectorFactory
"""A registered name, a selector's class, or a function that makes one."""

_Kind = TypeVar("_Kind", bound=type[Selector])

STRATEGIES: Registry[type[Selector] | SelectorFactory] = Registry(
    "strategy", "tailbatch.strategies", SelectionError
)
"""Every strategy by name; those of other packages come from entry points."""


def register_strategy(kind: _Kind) -> _Kind:
    """Make a selector class of your own known by its ``strategy``, wherever a strategy is named.

    A package does the same for all its users with an entry point of the group ``tailbatch.strategies``.

    Examples
    --------
    >>> @register_strategy
    ... class Backwards(RandomSelector):
    ...     strategy = "backwards"
    ...     def _draw(self, size, epoch, number):
    ...         return super()._draw(size, epoch, number)[::-1]
    >>> make_selector("backwards", [[1, 0], [0, 1]]).strategy
    'backwards'
    >>> STRATEGIES.remove("backwards")
    """
    if not (isinstance(kind, type) and issubclass(kind, Selector)):
        raise SelectionError(
            f"a strategy is a subclass of tailbatch.selection.Selector, got {kind!r:.80}"
        )
    STRATEGIES.add(getattr(kind, "strategy", None), kind)  # type: ignore[arg-type] # add checks it
    return kind


for _kind in (
    RandomSelector,
    UniformSelector,
    BalancedSelector,
    HardSelector,
    AdaptiveSelector,
    ChainSelector,
    MinoritySelector,
    ImportanceSelector,
    ClassAwareSelector,
    CoverageSelector,
    RecencySelector,
    BoundarySelector,
    UncertaintySelector,
    D2ACESelector,
):
    register_strategy(_kind)


def make_selector(
    strategy: StrategyLike,
    Y: object,
    *,
    X: object = None,
    batch_size: int = BATCH_SIZE,
    selection_pressure: float | Schedule | str | None = None,
    warm_up_epochs: int | None = None,
    seed: int = SEED,
    epochs: int | None = None,
    shuffle: bool = True,
    loss: object = None,
    **options: Any,
) -> Selector:
    """Make a selector for the training rows, with selection weights and a warm-up.

    Parameters
    ----------
    strategy
        A name in `STRATEGIES`, a `Selector` class, or a function of ``(Y, *, X, batch_size, seed,
        epochs, **options)`` that returns a selector.
    Y
        Label matrix (n, q) of the training rows: array, sparse matrix, frame or tensor of 0 and 1.
    X
        Features or embeddings (n, d) of the training rows, scaled as for the model: the selection
        weights of ``adaptive`` and ``chain`` come from each row's neighbors. Without X they are 1.
        ``d2ace`` needs X. Strategies that use no features ignore them.
    batch_size
        Samples in a batch.
    selection_pressure
        s_e, a number from 1, a schedule, or ``"imbalance"``: MeanIR, at most 64. None is the strategy's
        own (`default_pressure`); strategies that have none refuse one.
    warm_up_epochs
        Plain shuffled epochs first, the same batches for every strategy. Where none are named: 3 for
        strategies that follow the losses (10 for ``uncertainty`` and ``d2ace``, as in their papers), at
        most a tenth of the epochs once their number is known (`epochs`, or `Selector.plan_epochs`); 0
        for those that need no losses, and ``importance``.
    seed
        Everything random comes from it.
    epochs
        All epochs of the training, warm-up included; schedules that anneal need it.
    shuffle
        False keeps the warm-up (and ``random``) in the order of the rows, as the authors' script.
    loss
        The loss that is trained on, for ``importance``: its ``positive_weights`` say how far a sample
        moves the model. None takes those of ``weighted_bce``.
    **options
        Further settings of the strategy's class, for instance ``weights=``, ``cap_quantile=``,
        ``power=``, ``max_lag=``, ``initial_losses=``, ``corrected=``, ``mix=``. One that the strategy
        does not have is an error.

    Examples
    --------
    >>> Y = [[1, 0], [1, 0], [1, 1], [0, 1]]
    >>> X = [[0.0], [0.1], [0.9], [1.0]]
    >>> selector = make_selector("hard", Y, X=X, batch_size=2, warm_up_epochs=1)
    >>> for index in selector:
    ...     selector.observe([0.7, 0.2])
    >>> selector.epoch
    1
    >>> make_selector("adaptve", Y)
    Traceback (most recent call last):
    ...
    tailbatch.errors.SelectionError: unknown strategy 'adaptve'; did you mean 'adaptive'? ...
    """
    if not (isinstance(strategy, str) or callable(strategy)):
        raise SelectionError(
            "strategy must be a name, a Selector class or a function that makes a selector, got "
            f'{type(strategy).__name__}: make_selector("minority", labels)'
        )
    maker = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
    labels = label_matrix(Y)
    offered: dict[str, Any] = {
        "Y": labels,
        "X": X,
        "n_samples": labels.shape[0],
        "labels": labels,
        "batch_size": batch_size,
        "seed": seed,
        "shuffle": shuffle,
        "epochs": epochs,
    }
    if loss is not None:
        offered["positive_weights"] = loss
    if selection_pressure is not None:
        options["selection_pressure"] = _as_schedule(selection_pressure, labels)
    selector = _made(maker, offered, options)
    # A function need not know about the warm-up, so it is set on what the function returned.
    selector._shuffle = selector._shuffle and shuffle
    if warm_up_epochs is not None:
        selector.warm_up_epochs = _whole_number("warm_up_epochs", warm_up_epochs, least=0)
    elif not selector.warm_up_epochs:
        selector.warm_up_epochs, selector._warm_up_named = selector.warm_up_by_default, False
    if epochs is not None:
        selector.plan_epochs(epochs)
    return selector


def default_pressure(strategy: StrategyLike) -> OwnPressure:
    """Return the pressure of a strategy where none is named; None where it has none.

    A pair is one that is annealed from the first number to the second. Also None for a name that is
    not known here, as in a report on records from elsewhere.

    Examples
    --------
    >>> default_pressure("minority"), default_pressure("adaptive"), default_pressure("random")
    ('imbalance', 16.0, None)
    """
    pressure: OwnPressure = _fact(strategy, "default_pressure", None)
    return pressure


def strategy_place(strategy: StrategyLike) -> int:
    """Return where a strategy stands in tables and legends; those not known here come last.

    Examples
    --------
    >>> strategy_place("random") < strategy_place("adaptive") < strategy_place("somebody_elses")
    True
    """
    place: int = _fact(strategy, "place", Selector.place)
    return place


def strategy_settings(strategy: StrategyLike) -> Mapping[str, bool]:
    """Return the names of all settings of a strategy, and whether each must be given.

    Those that a class hands on to the class below it in ``**settings`` are included.

    Examples
    --------
    >>> list(strategy_settings("hard"))[:3]
    ['n_samples', 'selection_pressure', 'batch_size']
    """
    maker: Any = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
    below = list(maker.__mro__) if isinstance(maker, type) else [maker]
    names: dict[str, bool] = {}
    kinds = inspect.Parameter
    for each in below:
        if each is not maker and "__init__" not in vars(each):
            continue
        rest = None
        for name, parameter in inspect.signature(each).parameters.items():
            if parameter.kind is kinds.VAR_KEYWORD:
                rest = parameter
            elif each is maker or parameter.kind is kinds.KEYWORD_ONLY:
                names.setdefault(name, parameter.default is kinds.empty)
        (table,) = get_args(rest.annotation) or (None,) if rest else (None,)
        if table is not None:  # a TypedDict lists all that follows
            for name in table.__annotations__:
                names.setdefault(name, False)
            return names
        if rest is None:
            break
    return names


def _fact(strategy: StrategyLike, name: str, otherwise: Any) -> Any:
    if isinstance(strategy, str) and strategy not in STRATEGIES:
        return otherwise
    maker = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
    return getattr(maker, name, otherwise)


def _made(maker: Any, offered: Mapping[str, Any], options: dict[str, Any]) -> Selector:
    """Call a class or function with what its parameters name: the signature is the declaration."""
    called = str(getattr(maker, "strategy", None) or qualified_name(maker).rpartition(".")[2])
    known, is_class = strategy_settings(maker), isinstance(maker, type)
    _check_options(called, maker, known, options)
    settings = dict(offered)
    for name in offered.keys() - known.keys():
        del settings[name]
    if "weights" in known and "weights" not in options:
        settings["weights"] = _weights(offered["X"], offered["Y"])
    pressure = getattr(maker, "default_pressure", None)
    if known.get("selection_pressure") and pressure is not None:
        settings["selection_pressure"] = _as_schedule(pressure, offered["Y"])
    # A function is called with X as its signature says, None or not.
    if is_class and known.get("X") and offered["X"] is None and "X" not in options:
        raise SelectionError(
            f"{called} needs the features of the training rows: make_selector(..., X=features)"
        )
    made: Selector = maker(**(settings | options))
    if not isinstance(made, Selector):
        raise SelectionError(
            f"{called} must return a tailbatch.selection.Selector, got {made!r:.80}"
        )
    for name in ("n_samples", "batch_size", "seed"):
        if getattr(made, name) != offered[name]:
            raise SelectionError(
                f"{called} returned a selector with {name}={getattr(made, name)}, not "
                f"{offered[name]}: hand on what it is called with"
            )
    return made


def _check_options(
    called: str, maker: Any, known: Mapping[str, bool], options: Mapping[str, object]
) -> None:
    """Refuse options that a strategy does not have; a function may take any with ``**options``."""
    if "random_state" in options and "random_state" not in known:
        raise SelectionError("unknown option 'random_state' of make_selector; did you mean 'seed'?")
    if not isinstance(maker, type):
        kinds = {each.kind for each in inspect.signature(maker).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD in kinds:
            return
    if "selection_pressure" in options and "selection_pressure" not in known:
        raise SelectionError(f"{called} has no selection_pressure: leave it out")
    for option in options:
        check_known(f"option of {called}", option, known, error=SelectionError)


def _weights(X: Any, labels: LabelMatrix) -> Any:
    if X is None:
        logger.warning(
            "no features X were given: the imbalance weights are 1 and only the losses count"
        )
        return 1.0
    features = sparse.csr_array(X) if sparse.issparse(X) else X
    if not sparse.issparse(X) and not isinstance(X, np.ndarray):
        features = _as_array(X)
    if features.shape[0] != labels.shape[0]:
        raise SelectionError(f"X has {features.shape[0]} rows and Y has {labels.shape[0]}")
    return selection_weights(features, labels)
