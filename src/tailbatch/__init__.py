"""Adaptive mini-batch selection for imbalanced multi-label learning."""

__version__ = "0.1.0"
