"""The estimator: scikit-learn's API over the training loop."""

from tailbatch.estimator.classifier import TailbatchClassifier
from tailbatch.estimator.fitted import History
from tailbatch.estimator.fitting import PRESSURES

__all__ = ["PRESSURES", "History", "TailbatchClassifier"]
