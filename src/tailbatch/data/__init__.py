"""Room: any multi-label file in; a checked dataset, known facts and fair folds out."""

from tailbatch.data.arff import read_arff
from tailbatch.data.dataset import Features, IntArray, LabelMatrix, MultiLabelDataset
from tailbatch.data.folds import (
    Fold,
    MinMaxScaling,
    Parts,
    split,
    stratified_folds,
    stratified_split,
)
from tailbatch.data.npz import save_npz
from tailbatch.data.readers import load_dataset

__all__ = [
    "Features",
    "Fold",
    "IntArray",
    "LabelMatrix",
    "MinMaxScaling",
    "MultiLabelDataset",
    "Parts",
    "load_dataset",
    "read_arff",
    "save_npz",
    "split",
    "stratified_folds",
    "stratified_split",
]
