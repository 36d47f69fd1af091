"""Published strategies to compare with, which we do not recommend; the room's README has their cards."""

from tailbatch.selection.rivals.d2ace import D2ACESelector
from tailbatch.selection.rivals.label_first import ClassAwareSelector, CoverageSelector
from tailbatch.selection.rivals.predictions import (
    BoundarySelector,
    RecencySelector,
    UncertaintySelector,
)

__all__ = [
    "BoundarySelector",
    "ClassAwareSelector",
    "CoverageSelector",
    "D2ACESelector",
    "RecencySelector",
    "UncertaintySelector",
]
