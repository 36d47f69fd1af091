"""Columns of each kind, fitted on training rows and kept as plain values."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tailbatch.data.cells import (
    _amounts,
    _as_floats,
    _as_texts,
    _blanked,
    _days_since_1970,
    _decimal_mark,
    _is_number,
    _is_plain,
    _missing_value,
)
from tailbatch.data.embeddings import (
    Encoder,
    check_digest,
    embedded,
    load_encoder,
    tokenizer_of,
)
from tailbatch.data.sparse import MAX_LEVELS, Block, _CsrBuilder, _OneHot
from tailbatch.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MAX_TERMS = 20_000
"""A column of text becomes at most this many features, those of its commonest words."""

MISSING_NUMBERS = "taken for missing"
"""How a notice ends that tells of cells that are no numbers."""

#: Of 0.2, 0.3, 0.5, 1, 2 and 4 the best on validation rows of GoEmotions, where words have 1.
_EMBEDDINGS_LENGTH = 0.5
_UNCUT = 0.99  # the share of texts that are not cut
_TEXTS_AT_ONCE = 8_192
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
            decimal = "." if _is_number(column) else _decimal_mark(column)
            values = _numbers(column, name, decimal, impute=impute)
        absent = np.isnan(values)
        if absent.all():
            return "it is empty"
        if absent.any() and not impute:
            raise _missing_value(frame.iloc[:, place], name, absent)
        known = values[
            np.isfinite(values)
        ]  # infinities are refused with their row, once all is read
        return cls(name, float(known.mean() if known.size else 0) if impute else None, decimal)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name,)


def _number_block(
    frame: "pd.DataFrame", run: Sequence[NumberPart], place: Mapping[str, int]
) -> tuple[NDArray[np.float64], list[str], dict[str, int]]:
    """Return columns of numbers that stand side by side, notices, and how many each had filled in."""
    chosen = frame.iloc[:, [place[part.name] for part in run]]
    values: NDArray[np.float64]
    notices = list[str]()
    if all(map(_is_plain, set(chosen.dtypes))):
        values = chosen.to_numpy(dtype=np.float64)
    else:
        columns = [_blanked(chosen.iloc[:, j]) for j in range(len(run))]
        pairs = list(zip(columns, run, strict=True))
        values = np.column_stack(
            [
                _numbers(c, part.name, part.decimal, impute=part.fill is not None)
                for c, part in pairs
            ]
        )
        for j, (column, part) in enumerate(pairs):
            if unread := _unread_numbers(column, values[:, j]):
                notices.append(f"the column {part.name!r} has {unread}")
    absent = np.isnan(values)
    if not absent.any():
        return values, notices, {}
    values = values if values.flags.writeable else values.copy()
    for j in np.flatnonzero(absent.any(axis=0)).tolist():
        fill = run[j].fill
        if fill is None:
            raise _missing_value(chosen.iloc[:, j], run[j].name, absent[:, j])
        values[absent[:, j], j] = fill
    counts = absent.sum(axis=0)
    filled = {part.name: int(count) for part, count in zip(run, counts, strict=True) if count}
    return values, notices, filled


def _numbers(column: "pd.Series", name: str, decimal: str, *, impute: bool) -> NDArray[np.float64]:
    if _is_number(column):
        return _as_floats(column, name)
    return _amounts(column, name, decimal=decimal, lenient=impute)


def _unread_numbers(column: "pd.Series", values: NDArray[np.float64]) -> str:
    """Say which cells are no numbers though they are not empty; nothing where there are none."""
    if _is_number(column):
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
        texts = _as_texts(column)
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
        texts = _as_texts(column)
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
        return _OneHot(codes, len(self.levels)), notice


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
        days, absent = _days_since_1970(column, name, form)
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
        days, absent = _days_since_1970(column, self.name, self.format)
        _refuse_missing(column, self.name, absent, impute=self.fill is not None)
        days = np.where(absent, self.fill or 0.0, days)
        whole = np.floor(days).astype("datetime64[D]")
        months = whole.astype("datetime64[M]").astype(np.int64) % 12 + 1
        weekday = (np.floor(days) + 3) % 7  # the first of January 1970 was a Thursday
        numbers = [days, weekday, months, *([days % 1 * 24] if self.has_time else [])]
        return np.column_stack(numbers).astype(np.float64), None


@dataclass(frozen=True, eq=False)
class TextPart(_Part):
    """TF-IDF weights of the words of a column, those of scikit-learn's ``TfidfVectorizer``."""

    terms: tuple[str, ...]
    idf: NDArray[np.float64]

    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", _strings(self.terms, "words"))
        object.__setattr__(self, "idf", np.asarray(self.idf, dtype=np.float64))
        if self.idf.shape != (len(self.terms),) or not np.isfinite(self.idf).all():
            raise ValueError("a column of text needs a finite weight for each word")

    @classmethod
    def fit(cls, column: "pd.Series", name: str) -> "TextPart | str":
        """Learn the words of a column; where there are none, say so."""
        texts = _as_texts(column)
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
        return tuple(f"{self.name}:{word}" for word in self.terms)

    def encode(self, column: "pd.Series") -> tuple[Block, str | None]:
        """Return the weights (CSR) for a column of texts."""
        vectorizer = _vectorizer(vocabulary=list(self.terms))
        vectorizer.idf_ = self.idf
        return csr_array(vectorizer.transform(_as_texts(column))), None


@dataclass(frozen=True, eq=False)
class EmbeddingPart(_Part):
    """What an encoder makes of a column's texts, centered; their rows are half as long as those of words.

    The encoder is a name, a function, or ``"custom"`` for one that was not saved; `digest` tells the
    named one from others. A number x with mean m and deviation s becomes (x - m) / (2 s sqrt(k)).
    """

    encoder: str | Encoder
    digest: str | None
    mean: NDArray[np.float64]
    width: NDArray[np.float64]

    kind: ClassVar[str] = "embedding"

    def __post_init__(self) -> None:
        for field in ("mean", "width"):
            object.__setattr__(self, field, np.asarray(getattr(self, field), dtype=np.float64))
        if self.mean.shape != self.width.shape or not np.isfinite([self.mean, self.width]).all():
            raise ValueError("embeddings need a finite mean and width for each number")
        if not isinstance(self.encoder, str) and not callable(self.encoder):
            raise ValueError("a text encoder is known by its name")

    @classmethod
    def fit(cls, column: "pd.Series", name: str, encoder: str | Encoder) -> "EmbeddingPart":
        """Learn where the embeddings of a column lie, and how far apart."""
        values = embedded(encoder, _as_texts(column), name)
        digest = load_encoder(encoder).digest if isinstance(encoder, str) else None
        width = values.std(axis=0) * np.sqrt(values.shape[1]) / _EMBEDDINGS_LENGTH
        # Summing equal values may leave a rest of rounding, which is no spread.
        width[np.ptp(values, axis=0) == 0] = 0
        return cls(name, encoder, digest, values.mean(axis=0), width)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        return tuple(f"{self.name}~{number}" for number in range(len(self.mean)))

    def encode(self, column: "pd.Series") -> tuple[Block, str | None]:
        """Return the scaled embeddings of a column of texts, (n, k)."""
        texts = _as_texts(column)
        if not texts:
            return np.zeros((0, len(self.mean))), None
        if self.digest is not None and isinstance(self.encoder, str):
            check_digest(self.encoder, self.digest, self.name)
        values = embedded(self.encoder, texts, self.name)
        if values.shape[1] != len(self.mean):
            raise DataError(
                f"the text encoder gave {values.shape[1]} numbers for the column {self.name!r}, and "
                f"{len(self.mean)} when the model was fitted; use the same one"
            )
        spread = self.width > 0
        return np.where(spread, values - self.mean, 0) / np.where(spread, self.width, 1), None

    def with_encoder(self, encoder: Encoder) -> "EmbeddingPart":
        """Return the same with a function to encode with."""
        return replace(self, encoder=encoder, digest=None)


@dataclass(frozen=True, eq=False)
class TokensPart(_Part):
    """The token numbers plus 1 of a column's texts, for a model that trains its encoder.

    They are whole numbers that a float holds exactly, in the order of the text, and nothing after it.
    `tokenizer` is the encoder's as JSON, so that a saved model needs nothing else; texts are cut at
    `length` tokens.
    """

    encoder: str
    digest: str
    tokenizer: str
    length: int

    kind: ClassVar[str] = "tokens"

    def __post_init__(self) -> None:
        if not isinstance(self.length, int) or not 1 <= self.length <= MAX_TERMS:
            raise ValueError("texts must have a number of tokens at which they are cut")

    @classmethod
    def fit(cls, column: "pd.Series", name: str, encoder: str | Encoder) -> "TokensPart":
        """Learn at how many tokens to cut: hardly any of these texts is longer."""
        if not isinstance(encoder, str):
            raise DataError("only an encoder with a name can be trained, and this is a function")
        model = load_encoder(encoder)
        part = cls(name, encoder, model.digest, model.tokenizer_json, min(model.longest, MAX_TERMS))
        lengths = np.diff(part.encode(column)[0].indptr)
        least = int(np.ceil(np.quantile(lengths, _UNCUT))) if lengths.size else 1
        return replace(part, length=max(least, 1))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of its features."""
        return tuple(f"{self.name}#{number}" for number in range(self.length))

    def encode(self, column: "pd.Series") -> tuple[Any, str | None]:
        """Return the token numbers of a column of texts, CSR."""
        texts, tokenizer = _as_texts(column), tokenizer_of(self.tokenizer)
        tokenizer.enable_truncation(self.length)
        rows = _CsrBuilder(np.float64)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            found = [t.ids for t in tokenizer.encode_batch(texts[start : start + _TEXTS_AT_ONCE])]
            counts = np.array([len(numbers) for numbers in found], dtype=np.int64)
            columns = np.concatenate([np.arange(count) for count in counts])
            rows.append(counts, columns, np.concatenate(found) + 1)
        return rows.build(self.length), None


PARTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    part.kind: part.from_state
    for part in (NumberPart, CategoryPart, DatePart, TextPart, EmbeddingPart, TokensPart)
}
"""What makes a fitted column of its state, by kind."""

Part: TypeAlias = NumberPart | CategoryPart | DatePart | TextPart | EmbeddingPart | TokensPart
"""A fitted column."""


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)


def _refuse_missing(
    column: "pd.Series", name: str, absent: NDArray[np.bool_], *, impute: bool
) -> None:
    if absent.any() and not impute:
        raise _missing_value(column, name, absent)


def _strings(values: Any, what: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values) or len(set(values)) != len(values):
        raise ValueError(f"a column needs distinct {what} as text")
    return tuple(values)
