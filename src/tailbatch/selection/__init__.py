"""Losses in, batches of sample indices out: exact draws at a cost that does not grow with n.

Start with `make_selector`. A selector is a ``DataLoader(batch_sampler=...)`` and learns through
`Selector.observe`. The cards in this folder's README say when to use which strategy.
"""

from tailbatch.selection.adaptive import AdaptiveSelector, WeightedLoss
from tailbatch.selection.base import Selector
from tailbatch.selection.chain import ChainSelector
from tailbatch.selection.d2ace import D2ACESelector
from tailbatch.selection.diagnostics import SelectionDiagnostics
from tailbatch.selection.doubt import BoundarySelector, RecencySelector
from tailbatch.selection.hard import HardSelector
from tailbatch.selection.importance import ImportanceSelector, gradient_norms, prior_norms
from tailbatch.selection.label_first import ClassAwareSelector, CoverageSelector
from tailbatch.selection.loss_driven import LossDrivenSelector, mean_loss
from tailbatch.selection.make import (
    STRATEGIES,
    SelectorFactory,
    StrategyLike,
    default_pressure,
    make_selector,
    register_strategy,
    strategy_place,
    strategy_settings,
)
from tailbatch.selection.minority import MinoritySelector, MissedRareLabels
from tailbatch.selection.quantization import LowScoreLaw, QuantizationLaw
from tailbatch.selection.random import BalancedSelector, RandomSelector, UniformSelector
from tailbatch.selection.ranking import RankLaw
from tailbatch.selection.schedule import Constant, Geometric, Linear
from tailbatch.selection.uncertainty import UncertaintySelector
from tailbatch.selection.warm_up import WarmUp
from tailbatch.selection.weighting import weighted_mean

__all__ = [
    "STRATEGIES",
    "AdaptiveSelector",
    "BalancedSelector",
    "BoundarySelector",
    "ChainSelector",
    "ClassAwareSelector",
    "Constant",
    "CoverageSelector",
    "D2ACESelector",
    "Geometric",
    "HardSelector",
    "ImportanceSelector",
    "Linear",
    "LossDrivenSelector",
    "LowScoreLaw",
    "MinoritySelector",
    "MissedRareLabels",
    "QuantizationLaw",
    "RandomSelector",
    "RankLaw",
    "RecencySelector",
    "SelectionDiagnostics",
    "Selector",
    "SelectorFactory",
    "StrategyLike",
    "UncertaintySelector",
    "UniformSelector",
    "WarmUp",
    "WeightedLoss",
    "default_pressure",
    "gradient_norms",
    "make_selector",
    "mean_loss",
    "prior_norms",
    "register_strategy",
    "strategy_place",
    "strategy_settings",
    "weighted_mean",
]
