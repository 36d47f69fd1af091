"""Learn the rare labels of imbalanced multi-label data, in PyTorch.

The subpackages, lowest layer first; each imports only from those above it in this list:

- ``errors``, ``files``, ``seeds``, ``defaults``: exceptions, crash-safe writing, random streams, defaults
- ``registry``: names of strategies, models and losses
- ``data``: readers, checked datasets, folds and scaling
- ``imbalance``: label and neighborhood statistics
- ``losses``: losses per sample and label, with weights for rare labels (the lowest to import torch)
- ``selection``: strategies: losses in, batches of indices out (no torch)
- ``models``: the default ensemble, the five networks of the paper and an MLP
- ``metrics``, ``stats``, ``results``: metrics, significance tests, run specifications and records
- ``suggestions``, ``review``: which rows to label next, and the files in which a person answers
- ``training``, ``analysis``, ``classical``: the training loop, run comparisons, scikit-learn baselines
- ``estimator``, ``study``, ``report``, ``integrations``: scikit-learn API, studies, reports, adapters
- ``comparison``, ``testing``: ``tailbatch.compare``, and contract tests to inherit
- ``cli``: the command line

Top-level names are loaded on first use, so that ``import tailbatch`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailbatch import losses
    from tailbatch.comparison import compare
    from tailbatch.data import MultiLabelDataset, load_dataset
    from tailbatch.estimator import TailbatchClassifier
    from tailbatch.selection import make_selector
    from tailbatch.suggestions import suggest

__version__ = "0.2.0"

_TOP_LEVEL = {
    "MultiLabelDataset": "tailbatch.data",
    "TailbatchClassifier": "tailbatch.estimator",
    "compare": "tailbatch.comparison",
    "load_dataset": "tailbatch.data",
    "make_selector": "tailbatch.selection",
    "suggest": "tailbatch.suggestions",
}

__all__ = [
    "MultiLabelDataset",
    "TailbatchClassifier",
    "__version__",
    "compare",
    "load_dataset",
    "losses",
    "make_selector",
    "suggest",
]


def __getattr__(name: str) -> object:
    """Load a top-level name on first use (PEP 562)."""
    if name == "losses":
        return import_module("tailbatch.losses")
    if name in _TOP_LEVEL:
        return getattr(import_module(_TOP_LEVEL[name]), name)
    raise AttributeError(f"module 'tailbatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_TOP_LEVEL, "losses"])
