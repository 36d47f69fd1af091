"""Losses in, batches of sample indices out: exact draws at a cost that does not grow with n.

Start with `make_selector`. A selector is a ``DataLoader(batch_sampler=...)`` and learns through
`Selector.observe`. The cards in this folder's README say when to use which strategy.
"""

from tailbatch.selection.base import RandomSelector, Selector
from tailbatch.selection.chain import ChainSelector
from tailbatch.selection.importance import ImportanceSelector
from tailbatch.selection.inputs import weighted_mean
from tailbatch.selection.label_counts import LabelCounts, count_labels
from tailbatch.selection.laws import LowScoreLaw, QuantizationLaw, RankLaw
from tailbatch.selection.loss_driven import (
    AdaptiveSelector,
    Constant,
    Geometric,
    HardSelector,
    Linear,
    LossDrivenSelector,
    WeightedLoss,
    mean_loss,
)
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
from tailbatch.selection.rarity import (
    BalancedSelector,
    MinoritySelector,
    MissedRareLabels,
    UniformSelector,
)
from tailbatch.selection.rivals import (
    BoundarySelector,
    ClassAwareSelector,
    CoverageSelector,
    D2ACESelector,
    RecencySelector,
    UncertaintySelector,
)
from tailbatch.selection.shown import SelectionDiagnostics
from tailbatch.selection.stream import StreamSelector

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
    "LabelCounts",
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
    "StreamSelector",
    "UncertaintySelector",
    "UniformSelector",
    "WeightedLoss",
    "count_labels",
    "default_pressure",
    "make_selector",
    "mean_loss",
    "register_strategy",
    "strategy_place",
    "strategy_settings",
    "weighted_mean",
]
