"""Text corpora: comments with labels and their official parts, as texts or as weighted words."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from tailbatch.data import catalog
from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.data.folds import Fold, Parts, split
from tailbatch.data.labels import LabelMatrix
from tailbatch.data.text import _at_line, text_blocks
from tailbatch.errors import DataError

MOST_WORDS = 10_000
"""How many words `load_dataset` counts: those that occur most often in the training texts."""
_FILES = ("train.tsv", "dev.tsv", "test.tsv", "labels.txt")


@dataclass(frozen=True, eq=False)
class TextDataset:
    """Texts with any number of labels each.

    The labels `Y` (n, q) are booleans, with q distinct names.

    Examples
    --------
    >>> data = TextDataset("two", ("so happy", "so sad"), np.eye(2, dtype=bool), ("joy", "grief"))
    >>> data.take([1]).texts
    ('so sad',)
    """

    name: str
    texts: tuple[str, ...]
    Y: LabelMatrix
    label_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.texts) != self.Y.shape[0]:
            raise DataError(f"{len(self.texts):,} texts have {self.Y.shape[0]:,} rows of labels")

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, index: ArrayLike) -> Self:
        """Return the rows at `index`, in that order."""
        rows = np.asarray(index, dtype=np.int64)
        return replace(self, texts=tuple(self.texts[row] for row in rows), Y=self.Y[rows])


@dataclass(frozen=True, eq=False)
class TextParts:
    """The official parts of a corpus.

    Examples
    --------
    >>> data = TextDataset("two", ("so happy", "so sad"), np.eye(2, dtype=bool), ("joy", "grief"))
    >>> parts = TextParts(data, data, data.take([1])).tfidf(n_features=2)
    >>> parts.test
    MultiLabelDataset('two', 1 samples, 2 features, 2 labels)
    """

    train: TextDataset
    validation: TextDataset
    test: TextDataset

    def word_counts(self, n_features: int = MOST_WORDS) -> MultiLabelDataset:
        """Return how often words occur in every text: training, then validation, then test rows.

        The words are the `n_features` that occur most often in the training texts.
        """
        from sklearn.feature_extraction.text import CountVectorizer  # most callers need no words

        parts = (self.train, self.validation, self.test)
        words = CountVectorizer(max_features=n_features, dtype=np.float32).fit(self.train.texts)
        return MultiLabelDataset.from_arrays(
            sparse.vstack([words.transform(part.texts) for part in parts], format="csr"),
            sparse.vstack([sparse.csr_array(part.Y) for part in parts], format="csr"),
            name=self.train.name,
            feature_names=words.get_feature_names_out(),
            label_names=self.train.label_names,
        )

    def tfidf(self, n_features: int = MOST_WORDS) -> Parts:
        """Return the parts as weighted words (tf-idf, rows of length 1), fitted on training rows.

        The words are those of `word_counts`.
        """
        ends = np.cumsum([len(self.train), len(self.validation), len(self.test)])
        train, validation, test = np.split(np.arange(ends[-1]), ends[:-1])
        return split(self.word_counts(n_features), Fold(train, validation, test), scale="tfidf")


def load_texts(name_or_path: str | Path) -> TextParts:
    """Load the texts of a corpus in their parts: a known one, downloaded once, or one of your own.

    `tailbatch.data.load_dataset` loads the rows of a known one as word counts.

    It is named ``goemotions``, the path of its first file, ``goemotions/train.tsv``, or a folder with
    files of the same format: ``train.tsv``, ``dev.tsv`` and ``test.tsv``, whose lines have a text, its
    label numbers from 0 joined by commas, and an id, separated by tabs; and
    ``labels.txt`` with the names.

    Examples
    --------
    >>> load_texts("yeast")
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: yeast has no texts; of the known datasets only goemotions has
    """
    path = Path(name_or_path)
    if path.is_dir():
        return _read_corpus(path.name, _own_files(path))
    found = catalog.known_file(path) if path.is_file() else (catalog.known(str(name_or_path)),)
    if found is None or not found[0].is_corpus:
        corpora = [entry.name for entry in catalog.catalog().values() if entry.is_corpus]
        raise DataError(
            f"{found[0].name if found else path} has no texts; of the known datasets only "
            f"{', '.join(corpora)} has"
        )
    entry = found[0]
    files = catalog.corpus_files(path if path.is_file() else catalog.find(entry.name))
    return _read_corpus(entry.name, [files[file.name] for file in entry.files])


def _own_files(folder: Path) -> list[Path]:
    """Return the files of a corpus in a folder, plain or packed."""
    places = [(folder / name, folder / f"{name}.gz") for name in _FILES]
    lacking = [plain.name for plain, packed in places if not (plain.is_file() or packed.is_file())]
    if lacking:
        raise DataError(
            f"{folder} lacks {', '.join(lacking)}; a corpus has the files {', '.join(_FILES)}"
        )
    return [plain if plain.is_file() else packed for plain, packed in places]


def _read_corpus(name: str, files: Sequence[Path]) -> TextParts:
    *parts, labels = files
    names = tuple(_read_text(labels).split())
    return TextParts(*(_read_part(path, name, names) for path in parts))


def _read_text(path: Path) -> str:
    return b"".join(block for _, block in text_blocks(path)).decode("utf-8", "replace")


def _read_part(path: Path, name: str, label_names: tuple[str, ...]) -> TextDataset:
    """Read lines of a text, its label numbers and its id, separated by tabs."""
    texts, rows, columns = [], [], []
    for number, line in enumerate(_read_text(path).removesuffix("\n").split("\n")):
        try:
            text, labels, _ = next(csv.reader([line], delimiter="\t"))
            numbers = [int(label) for label in labels.split(",")]
        except (ValueError, csv.Error):
            raise _at_line(
                path, number + 1, "expected a text, label numbers and an id between tabs"
            ) from None
        if not all(0 <= label < len(label_names) for label in numbers):
            raise _at_line(
                path, number + 1, f"labels go from 0 to {len(label_names) - 1}: {labels}"
            )
        texts.append(text)
        rows += [number] * len(numbers)
        columns += numbers
    Y = np.zeros((len(texts), len(label_names)), dtype=bool)
    Y[rows, columns] = True
    return TextDataset(name, tuple(texts), Y, label_names)
