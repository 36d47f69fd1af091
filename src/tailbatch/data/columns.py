"""How the columns of a table become numbers: decided once, fitted on training rows, kept as data.

`Columns` says what to take columns for, `FittedColumns` is the outcome for some rows: what `fit` did to
a table, `predict`, `evaluate` and `compare` do again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from tailbatch.data.cells import (
    DOUBT,
    KINDS,
    _amounts,
    _blanked,
    _blanked_frame,
    _is_number,
    _is_plain,
    _refuse_many,
    _Taken,
    _taken_for,
    columns_text,
)
from tailbatch.data.column_parts import (
    MISSING_NUMBERS,
    PARTS,
    CategoryPart,
    DatePart,
    EmbeddingPart,
    NumberPart,
    Part,
    TextPart,
    TokensPart,
    _number_block,
    _unread_numbers,
)
from tailbatch.data.embeddings import CUSTOM, Encoder, encoder_place
from tailbatch.data.labels import FrameLabels, _nearly_equal
from tailbatch.data.sparse import Block, _side_by_side, first_repeated
from tailbatch.data.text import _filled_in
from tailbatch.errors import DataError, setting
from tailbatch.registry import check_known

if TYPE_CHECKING:
    import pandas as pd

Missing = Literal["error", "impute"]

_MOST_ROWS_COMPARED = 1_000
_MOST_LABELS_COMPARED = 200
_MOST_LEVELS_COMPARED = 200
_FEWEST_TOLD = 10  # rows with a label and rows without, from which on nothing tells it by chance
_FEW_ROWS = 20  # in fewer rows, many different values mean nothing
_NEAR_UNIQUE = "more than half as many as rows"
_TEXTS = ("text", "embedding", "tokens")
#: What in a column's reason makes it a notice.
_WORTH_A_NOTICE = (DOUBT, _NEAR_UNIQUE, MISSING_NUMBERS)


@dataclass(frozen=True)
class Columns:
    """What to take the columns of a table for; what is not said here is found out by their values.

    Parameters
    ----------
    text
        Names of columns of free text, which become TF-IDF weights of their words.
    kinds
        What to take columns for: ``"number"``, ``"category"``, ``"date"``, ``"text"`` or ``"ignore"``;
        ``"date:%d/%m/%Y"`` says how dates are written.
    missing
        ``"impute"`` fills in the mean of numbers and dates and the most frequent category, and says so;
        ``"error"`` refuses missing features. Missing text is empty text.
    encoder
        What turns text into numbers beside TF-IDF: ``"minilm"`` (extra ``text``), a folder or a name on
        the hub of any encoder of transformers, or a function of a list of texts that returns an array
        (n, k).
    finetune
        Whether the encoder, ``"minilm"`` if none is given, is to be trained: text becomes words
        and tokens.
    labels
        Where the table has its labels, see `MultiLabelDataset.from_frame`; kept with a model, so that
        `tailbatch evaluate` knows.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"length": [1.5, 2, 3], "color": ["red", "blue", "red"]})
    >>> fitted = Columns().fit(frame)
    >>> fitted.feature_names
    ('length', 'color=blue', 'color=red')
    >>> fitted.transform(pd.DataFrame({"color": ["green", "red"], "length": [0.5, 1.0]}))[0]
    array([[0.5, 0. , 0. ],
           [1. , 0. , 1. ]])
    """

    text: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    missing: Missing = "impute"
    encoder: str | Encoder | None = None
    finetune: bool = False
    labels: FrameLabels | None = None

    def __post_init__(self) -> None:
        if isinstance(self.text, str):
            object.__setattr__(self, "text", (self.text,))
        if self.missing not in ("error", "impute"):
            raise DataError(f"missing must be 'error' or 'impute', got {self.missing!r}")
        for column, kind in self.kinds.items():
            word = str(kind).partition(":")[0]
            check_known(f"kind of the column {column!r}:", word, KINDS, error=DataError)
        if self.finetune and self.encoder is None:
            object.__setattr__(self, "encoder", "minilm")
        if self.encoder is not None and self.encoder != CUSTOM and not callable(self.encoder):
            encoder_place(self.encoder)

    @property
    def as_text(self) -> tuple[str, ...]:
        """Columns whose cells are to be read as they are written: a ``007`` stays one."""
        return (*self.text, *(name for name, kind in self.kinds.items() if kind != "number"))

    def fit(
        self, frame: "pd.DataFrame", *, taken: Mapping[str, _Taken] | None = None
    ) -> "FittedColumns":
        """Decide what each column is, by these rows, and learn what its encoding needs."""
        names = [str(column) for column in frame.columns]
        if (repeated := first_repeated(names)) is not None:
            raise DataError(f"the column {repeated!r} occurs twice; rename one")
        for name in (*self.text, *self.kinds):
            if name not in names:
                raise DataError(f"there is no column {name!r}{columns_text(names, name)}")
        plain = np.array([_is_plain(kind) for kind in frame.dtypes], dtype=np.bool_)
        if not plain.all():
            _refuse_many(frame)
            frame = _blanked_frame(frame)
        numbers = iter(frame.loc[:, plain].to_numpy(dtype=np.float64).T)
        asked = dict(self.kinds) | dict.fromkeys(self.text, "text")
        parts, decided, filled = list[Part](), dict[str, _Taken](), dict[str, int]()
        for place, name in enumerate(names):
            values = next(numbers) if plain[place] else None
            # Making a series of each of thousands of columns of numbers would take longest of all.
            is_series = values is None or name in asked
            column: Any = frame.iloc[:, place] if is_series else values
            decided[name] = taken[name] if taken else _taken_for(column, name, asked.get(name))
            part = self._part(frame, place, values, name, decided[name])
            if isinstance(part, str):
                decided[name] = _Taken("ignore", part)
            elif part is not None:
                parts.append(part)
                if part.kind == "text" and self.encoder is not None:
                    kind = TokensPart if self.finetune else EmbeddingPart
                    parts.append(kind.fit(column, name, self.encoder))
                absent = np.isnan(values) if values is not None else column.isna()
                count = int(absent.sum())
                if count and part.kind not in _TEXTS:
                    filled[name] = count
                if not taken:
                    decided[name] = _with_near_unique(decided[name], part, len(frame))
                    decided[name] = _with_missing(decided[name], column, count, part)
        return FittedColumns(self, tuple(parts), decided, filled)

    def _part(
        self,
        frame: "pd.DataFrame",
        place: int,
        values: NDArray[np.float64] | None,
        name: str,
        taken: _Taken,
    ) -> "Part | str | None":
        """Return a fitted column; or why there is nothing to fit, or None where it is left out."""
        if taken.kind == "ignore":
            return None
        if taken.kind == "number":
            impute = self.missing == "impute"
            return NumberPart.fit(frame, place, values, name, impute=impute)
        column = frame.iloc[:, place]
        if taken.kind == "text":
            return TextPart.fit(column, name)
        if taken.kind == "date":
            return DatePart.fit(column, name, taken.format, impute=self.missing == "impute")
        return CategoryPart.fit(column, name, impute=self.missing == "impute")

    def state(self) -> dict[str, Any]:
        """Return the settings as plain values; a function of yours is named as such only."""
        return {
            "text": list(self.text),
            "kinds": dict(self.kinds),
            "missing": self.missing,
            "finetune": self.finetune,
            "encoder": CUSTOM if callable(self.encoder) else self.encoder,
            "labels": self.labels
            if isinstance(self.labels, int | str | None)
            else list(self.labels),
        }


@dataclass(frozen=True, eq=False)
class FittedColumns:
    """How the columns of some rows became numbers, to do it again with others; made by `Columns.fit`.

    Attributes
    ----------
    columns
        What was asked for.
    parts
        The columns in use, in the order of the table.
    taken
        What each column was taken for, and why.
    filled
        How many missing values each column had that were filled in.
    """

    columns: Columns
    parts: tuple[Any, ...]
    taken: Mapping[str, _Taken]
    filled: Mapping[str, int] = field(default_factory=dict)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the columns."""
        return tuple(name for part in self.parts for name in part.feature_names)

    @property
    def tokens(self) -> tuple[tuple[int, int], ...]:
        """First feature and number of features of each column of tokens."""
        widths = [len(part.feature_names) for part in self.parts]
        starts = [sum(widths[:place]) for place in range(len(widths))]
        found = zip(self.parts, starts, widths, strict=True)
        return tuple((start, width) for part, start, width in found if part.kind == "tokens")

    @property
    def has_text(self) -> bool:
        """Whether there is a column of text."""
        return any(part.kind in _TEXTS for part in self.parts)

    @property
    def depends_on_rows(self) -> bool:
        """Whether other rows may give other features: by their words, categories or means."""
        return bool(self.filled) or any(part.kind != "number" for part in self.parts)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know: which columns are left out, and which may be meant otherwise."""
        found = []
        for name, (kind, why, _) in self.taken.items():
            if kind == "ignore" and why != "as you said":
                found.append(f"left out the column {name!r}: {why}")
            elif any(mark in why for mark in _WORTH_A_NOTICE):
                found.append(f"took the column {name!r} for a {kind}: {why}")
        for part in self.parts:
            if part.kind == "category" and (
                alike := _nearly_equal(part.levels, f"in the column {part.name!r}")
            ):
                found.append(alike)
        return (*found, _filled_in(self.filled)) if self.filled else tuple(found)

    def transform(self, frame: "pd.DataFrame") -> tuple[Any, tuple[str, ...]]:
        """Return the features (n, d) of a table, dense or CSR, and notices.

        Columns are found by name, others are not looked at. Of a category only values that were there
        in `fit` have a feature; another one has none of them, and a notice says so. So does one for
        missing values that are filled in.
        """
        if not hasattr(frame, "columns"):
            raise DataError(
                "this was fitted on a table with named columns; give a data frame with the columns "
                + ", ".join(part.name for part in self.parts[:8])
            )
        names = [str(name) for name in frame.columns]
        place = {name: position for position, name in enumerate(names)}
        twice = {name for position, name in enumerate(names) if place[name] != position}
        for part in self.parts:
            if part.name in twice:
                raise DataError(f"the column {part.name!r} occurs twice; rename one")
            if part.name not in place:
                raise DataError(
                    f"the column {part.name!r} of the training data is missing"
                    f"{columns_text(list(place), part.name)}"
                )
        blocks, notices, filled = list[Block](), list[str](), dict[str, int]()
        # Numbers that stand side by side are one block: tables may have thousands of them.
        for are_numbers, run in groupby(self.parts, key=lambda part: isinstance(part, NumberPart)):
            if are_numbers:
                numbers, more, gaps = _number_block(frame, list(run), place)
                blocks.append(numbers)
                notices += more
                filled |= gaps
                continue
            for part in run:
                known = part.levels if isinstance(part, CategoryPart) else ()
                column = _blanked(frame.iloc[:, place[part.name]], keep=known)
                block, notice = part.encode(column)
                blocks.append(block)
                notices += [notice] if notice else []
                if part.kind != "text" and (count := int(column.isna().sum())):
                    filled[part.name] = count
        notices += [_filled_in(filled)] if filled else []
        return _side_by_side(blocks, len(frame)), tuple(notices)

    def refit(self, frame: "pd.DataFrame") -> "FittedColumns":
        """Return the same kinds of columns, fitted on other rows."""
        return self.columns.fit(frame, taken=self.taken)

    def with_encoder(self, encoder: Encoder) -> "FittedColumns":
        """Return the same with the function that encodes text, which no file can hold."""
        parts = tuple(
            part.with_encoder(encoder) if isinstance(part, EmbeddingPart) else part
            for part in self.parts
        )
        return replace(self, parts=parts)

    def state(self) -> dict[str, Any]:
        """Return everything as plain values and arrays, to be saved."""
        return {
            "columns": self.columns.state(),
            "parts": [part.state() for part in self.parts],
            "taken": {name: list(taken) for name, taken in self.taken.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "FittedColumns":
        """Return what `state` was made of; values of the wrong kind are an error."""
        parts = []
        for values in state["parts"]:
            kind, name = values["kind"], values["name"]
            if not isinstance(name, str) or kind not in PARTS:
                raise ValueError(f"it has a column of the unknown kind {kind!r:.40}")
            parts.append(PARTS[kind](values))
        taken = {
            str(name): _Taken(str(kind), str(why), None if form is None else str(form))
            for name, (kind, why, form) in state["taken"].items()
        }
        return cls(Columns(**state["columns"]), tuple(parts), taken)


def giveaway(fitted: FittedColumns, X: Any, Y: Any, label_names: Sequence[str]) -> str | None:
    """Say which column tells a label for every row, as only one that is written afterwards does.

    Numbers tell it by a threshold, categories by their values. Words are not looked at: in a small table
    one of them often does.
    """
    rows = np.unique(np.linspace(0, X.shape[0] - 1, _MOST_ROWS_COMPARED).astype(np.int64))
    Y = Y[rows].toarray() if issparse(Y) else Y[rows]
    chosen = np.flatnonzero(np.minimum(Y.sum(axis=0), (~Y).sum(axis=0)) >= _FEWEST_TOLD)
    chosen, start = chosen[:_MOST_LABELS_COMPARED], 0
    for part in fitted.parts:
        width = len(part.feature_names)
        if part.kind in _TEXTS or width > _MOST_LEVELS_COMPARED or not chosen.size:
            start += width
            continue
        values = X[rows, start : start + width]
        start += width
        told = chosen[_told(values.toarray() if issparse(values) else values, Y[:, chosen], part)]
        if told.size:
            more = f" and {len(told) - 1:,} more" if len(told) > 1 else ""
            return (
                f"the column {part.name!r} gives the label {label_names[told[0]]!r}{more} away: it tells "
                "which rows have it, all of them; if it is written afterwards, leave it out with "
                f"{setting('kinds', {part.name: 'ignore'})}"
            )
    return None


def _told(values: NDArray[np.float64], Y: NDArray[np.bool_], part: Part) -> NDArray[np.bool_]:
    """Return which labels a column's features tell without a mistake."""
    if part.kind == "category":
        totals = values.sum(axis=0)
        if (totals > 0).sum() > len(values) / 5:
            return np.zeros(Y.shape[1], dtype=np.bool_)  # so few rows of each tell by chance
        counts = Y.T.astype(np.float64) @ values
        return np.asarray(((counts == 0) | (counts == totals)).all(axis=1))
    numbers = values[:, :1]  # of a date, the day
    with_it, without = np.where(Y, numbers, np.nan), np.where(Y, np.nan, numbers)
    above = np.nanmin(with_it, axis=0) > np.nanmax(without, axis=0)
    return np.asarray(above | (np.nanmax(with_it, axis=0) < np.nanmin(without, axis=0)))


def _with_missing(taken: _Taken, column: "pd.Series", count: int, part: Part) -> _Taken:
    """Say how many values are missing, if any, and how many are taken for that."""
    why = f"{taken.why}; {count:,} missing" if count else taken.why
    if isinstance(part, NumberPart) and part.fill is not None and not _is_number(column):
        numbers = _amounts(column, part.name, decimal=part.decimal, lenient=True)
        if unread := _unread_numbers(column, numbers):
            why = f"{why}; {unread}"
    return taken._replace(why=why)


def _with_near_unique(taken: _Taken, part: Part, n_rows: int) -> _Taken:
    """Say so if most values of a category are seen once only."""
    if not isinstance(part, CategoryPart) or n_rows < _FEW_ROWS:
        return taken
    count = len(part.levels)
    if count <= n_rows / 2:
        return taken
    known = f"{count:,} different values"
    why = taken.why if known in taken.why else f"{taken.why}; {known}"
    return taken._replace(
        why=f"{why}, {_NEAR_UNIQUE}: it may be free text or an identifier; then write "
        f"{setting('kinds', {part.name: 'text'})} or 'ignore'"
    )
