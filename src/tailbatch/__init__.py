"""Adaptive mini-batch selection for imbalanced multi-label learning.

The rooms, from the ground up; a room imports only from those above it in this list:

- ``errors``, ``seeds``: exceptions, and one seed in, named generators out
- ``data``: files in, checked datasets, folds and scaled parts out
- ``imbalance``: facts about labels and neighborhoods
- ``losses``: a value for each sample and label, with weights for rare labels (torch starts here)
- ``selection``: losses in, batches of indices out (no torch)
- ``models``: the five networks of the paper and a plain baseline
- ``metrics``, ``stats``, ``results``: measures, tests, and what a run is and left
- ``training``, ``classical``: the one loop, and learners without batches to compare with
- ``estimator``, ``study``, ``report``, ``integrations``: what people use
- ``comparison``, ``testing``: models, strategies and losses compared from Python; tests to inherit
- ``cli``: arguments in, one call, text out

Names of the front door are loaded when first used, so that ``import tailbatch`` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailbatch import losses
    from tailbatch.comparison import compare
    from tailbatch.data import MultiLabelDataset, load_dataset
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.selection import make_selector

__version__ = "0.1.0"

_FRONT_DOOR = {
    "MultiLabelDataset": "tailbatch.data",
    "TailbatchClassifier": "tailbatch.estimator",
    "compare": "tailbatch.comparison",
    "load_dataset": "tailbatch.data",
    "make_selector": "tailbatch.selection",
}

__all__ = [
    "MultiLabelDataset",
    "TailbatchClassifier",
    "__version__",
    "compare",
    "load_dataset",
    "losses",
    "make_selector",
]


def __getattr__(name: str) -> object:
    """Load a name of the front door when it is first asked for (PEP 562)."""
    if name == "losses":
        return import_module("tailbatch.losses")
    if name in _FRONT_DOOR:
        return getattr(import_module(_FRONT_DOOR[name]), name)
    raise AttributeError(f"module 'tailbatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_FRONT_DOOR, "losses"])
