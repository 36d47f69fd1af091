"""Published strategies to compare with, which we do not recommend; the room's README has their cards."""

from tailbatch.selection.rivals.doubt import BoundarySelector, RecencySelector
from tailbatch.selection.rivals.label_first import ClassAwareSelector, CoverageSelector
from tailbatch.selection.rivals.uncertainty import D2ACESelector, UncertaintySelector

__all__ = [
    "BoundarySelector",
    "ClassAwareSelector",
    "CoverageSelector",
    "D2ACESelector",
    "RecencySelector",
    "UncertaintySelector",
]
