"""The estimator: scikit-learn's grammar over the training loop."""

from tailbatch.estimator.classifier import PRESSURES, TailbatchClassifier

__all__ = ["PRESSURES", "TailbatchClassifier"]
