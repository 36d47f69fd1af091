"""The estimator: scikit-learn's API over the training loop."""

from tailbatch.estimator.classifier import TailbatchClassifier
from tailbatch.estimator.fitting import PRESSURES
from tailbatch.estimator.history import History

__all__ = ["PRESSURES", "History", "TailbatchClassifier"]
