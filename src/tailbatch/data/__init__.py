"""Room: any multi-label file in; a checked dataset, known facts and fair folds out."""

from tailbatch.data.arff import read_arff
from tailbatch.data.columns import Columns, FittedColumns
from tailbatch.data.corpora import TextDataset, TextParts, load_texts
from tailbatch.data.dataset import Features, LabelMatrix, MultiLabelDataset
from tailbatch.data.folds import (
    Fold,
    Parts,
    split,
    stratified_folds,
    stratified_parts,
    stratified_split,
)
from tailbatch.data.npz import save_npz
from tailbatch.data.preparation import PREPARATIONS, PreparedDataset, prepare
from tailbatch.data.readers import load_dataset
from tailbatch.data.scaling import SCALINGS, Scaling, fit_scaling, suggested_scaling
from tailbatch.seeds import IntArray

__all__ = [
    "PREPARATIONS",
    "SCALINGS",
    "Columns",
    "Features",
    "FittedColumns",
    "Fold",
    "IntArray",
    "LabelMatrix",
    "MultiLabelDataset",
    "Parts",
    "PreparedDataset",
    "Scaling",
    "TextDataset",
    "TextParts",
    "fit_scaling",
    "load_dataset",
    "load_texts",
    "prepare",
    "read_arff",
    "save_npz",
    "split",
    "stratified_folds",
    "stratified_parts",
    "stratified_split",
    "suggested_scaling",
]
