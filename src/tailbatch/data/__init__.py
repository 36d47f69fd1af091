"""Room: any multi-label file in; a checked dataset, known facts and fair folds out."""

from tailbatch.data.dataset import Features, IntArray, LabelMatrix, MultiLabelDataset

__all__ = [
    "Features",
    "IntArray",
    "LabelMatrix",
    "MultiLabelDataset",
]
