"""Review files: suggested rows that a person answers in a spreadsheet or a terminal, and back.

A review file holds the features of each row, so that a model can be trained on it, and an empty cell for
each label that is sought. Only cells with an answer count: no answer is no label, not a negative.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tailbatch.data.cells import row_name
from tailbatch.data.tables import read_frame
from tailbatch.data.text import JSON_LINES, PARQUET, suffix
from tailbatch.errors import DataError, did_you_mean, require
from tailbatch.files import replacing
from tailbatch.seeds import BoolArray, FloatArray, IntArray
from tailbatch.suggestions import Progress, Suggestions, progress, random_sample

if TYPE_CHECKING:
    import pandas as pd

LABELS, WHY, LIKELY = "review_labels", "review_why", "review_probability"
ORIGIN, DRAW, SEED, ROW = "review_origin", "review_draw", "review_seed", "review_row"
TAGS, DONE = "review_tags", "review_done"
_OWN = (LABELS, WHY, LIKELY, ORIGIN, DRAW, SEED, ROW, TAGS, DONE)

YES, NO, SKIPPED = "yes", "no", "?"
_ANSWERS = {
    **dict.fromkeys(("1", "1.0", "yes", "y", "true", "t", "x"), 1.0),
    **dict.fromkeys(("0", "0.0", "no", "n", "false", "f"), 0.0),
    **dict.fromkeys(("", "?", "skip"), math.nan),
}
#: What a spreadsheet would run, or take apart; apostrophes before it are those of an earlier rescue.
_FORMULA = re.compile(r"'*(\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])")
_GUESS = 0.5


@dataclass(frozen=True, eq=False)
class Review:
    """Rows that a person has answered.

    Parameters
    ----------
    frame
        The pool's columns of these rows.
    Y
        (n, q) 1, 0, or NaN where there is no answer.
    is_random
        (n, q) whether an answer belongs to a random sample of its pool; see `random_sample`.
    done
        (n, q) whether a cell is answered or skipped.
    rows
        (n,) row numbers in the pool, -1 where the file does not say.
    expected
        (n, q) the probabilities by which the rows were suggested, NaN where none is known.
    """

    frame: "pd.DataFrame"
    Y: FloatArray
    is_random: BoolArray
    done: BoolArray
    rows: IntArray
    expected: FloatArray

    def __len__(self) -> int:
        return len(self.Y)

    def progress(self, chosen: Suggestions, label_names: Sequence[str]) -> list[Progress]:
        """Return what was found of the labels that are sought, and how much is left in the pool.

        Parameters
        ----------
        chosen
            The rows to review next, with their probabilities.
        label_names
            Names of the columns of Y.
        """
        labels = [list(label_names).index(name) for name in chosen.label_names]
        return progress(
            self.Y[:, labels], self.expected[:, labels], self.is_random[:, labels], chosen.left,
            pool_size=chosen.pool_size, label_names=chosen.label_names,
        )  # fmt: skip

    def answered(self) -> Self:
        """Return the rows with an answer, without those of which every cell was skipped.

        Examples
        --------
        >>> import pandas as pd
        >>> Y, no = np.array([[1.0], [np.nan]]), np.zeros((2, 1), dtype=bool)
        >>> frame = pd.DataFrame({"text": ["a", "b"]})
        >>> len(Review(frame, Y, no, ~no, np.array([0, 1]), Y).answered())
        1
        """
        rows = np.flatnonzero((~np.isnan(self.Y)).any(axis=1))
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "frame"}
        return replace(self, frame=self.frame.iloc[rows].reset_index(drop=True), **arrays)


def write_review(
    frame: "pd.DataFrame", chosen: Suggestions, out: Path, *, tags: bool = False
) -> None:
    """Write the suggested rows of a table to a file with a cell for each answer.

    Parameters
    ----------
    frame
        The pool, all its rows, with the columns to write.
    chosen
        The rows to write.
    out
        A ``.csv``, ``.jsonl`` or ``.parquet`` file.
    tags
        Whether one column lists the labels, filled with the guesses, in place of a column for each;
        a row counts when its ``review_done`` says yes.

    Examples
    --------
    >>> import pandas as pd, tempfile
    >>> from tailbatch import suggest
    >>> pool = pd.DataFrame({"text": ["so sad", "=1+1"]})
    >>> chosen = suggest([[0.9], [0.2]], [[1], [0]], 2, label_names=["grief"], explore=0)
    >>> path = Path(tempfile.mkdtemp()) / "review.csv"
    >>> write_review(pool, chosen, path)
    >>> [line.split(",")[:2] for line in path.read_text(encoding="utf-8-sig").splitlines()]
    [['text', 'review_labels'], ['so sad', 'grief'], ["'=1+1", 'grief']]
    """
    pd = require("pandas", extra="cli")
    kind(out)
    labels = chosen.label_names
    own = [name for name in frame.columns if str(name) not in (*labels, *_OWN)]
    table = frame[own].iloc[chosen.rows].reset_index(drop=True)
    # The few rows are dense: no file holds sparse columns.
    kinds = {name: getattr(kind, "subtype", None) for name, kind in table.dtypes.items()}
    table = table.astype({name: kind for name, kind in kinds.items() if kind is not None})
    each = list(chosen)
    cells: dict[str, Any] = {
        LABELS: [_listed(row.labels) for row in each],
        WHY: [row.why for row in each],
        LIKELY: ["; ".join(f"{value:.4g}" for value in row.probabilities) for row in each],
    }
    if tags:
        cells[TAGS] = [
            _listed([n for n, p in zip(row.labels, row.probabilities, strict=True) if p >= _GUESS])
            for row in each
        ]
        cells[DONE] = [""] * len(each)
    else:
        cells |= {label: [""] * len(each) for label in labels}
    cells[ORIGIN] = ["random" if row.is_random else "suggested" for row in each]
    cells |= {DRAW: chosen.draws, SEED: [chosen.seed] * len(each), ROW: chosen.rows}
    table = pd.concat([table, pd.DataFrame(cells)], axis=1)
    _write(table, out)


def read_reviews(
    paths: Iterable[Path],
    label_names: Sequence[str],
    as_text: "Sequence[str] | pd.DataFrame" = (),
) -> Review:
    r"""Return the answered rows of review files, each row once.

    Parameters
    ----------
    paths
        The files.
    label_names
        All labels that there are, in their order.
    as_text
        Columns that stay text, whatever they look like; or a table, for those that are text there.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "review.csv"
    >>> _ = path.write_text("text,joy,grief\nso sad,no,yes\nso so,,\n")
    >>> review = read_reviews([path], ["joy", "grief", "pride"])
    >>> review.frame.text.tolist(), review.Y.tolist()
    (['so sad'], [[0.0, 1.0, nan]])
    """
    pd = require("pandas", extra="cli")
    if isinstance(as_text, pd.DataFrame):
        as_text = [str(name) for name, kind in as_text.dtypes.items() if kind.kind in "OUT"]
    parts = [_read(Path(path), label_names, as_text) for path in paths]
    rows = [row for part in parts for row in part]
    kept = _without_repeats(rows, label_names)
    seen = [row for row in kept if row.done.any()]
    if all(np.isnan(row.answers).all() for row in seen):
        raise DataError(
            f"{', '.join(str(path) for path in paths)}: no row has an answer yet; write yes or no into "
            "the columns of the labels"
        )
    frame = pd.DataFrame([row.cells for row in seen]).infer_objects()
    random = np.array([row.is_random for row in seen])
    draws = np.array([row.draw for row in seen])
    seeds = np.array([row.seed for row in seen])
    for seed in np.unique(seeds[seeds >= 0]):
        random[seeds == seed] = random_sample(draws[seeds == seed], random[seeds == seed])
    Y = np.array([row.answers for row in seen])
    return Review(
        frame,
        Y,
        random & ~np.isnan(Y),
        np.array([row.done for row in seen]),
        np.array([row.number for row in seen], dtype=np.int64),
        np.array([row.expected for row in seen]),
    )


def rows_in_pool(review: Review, pool: "pd.DataFrame") -> IntArray:
    """Return the row numbers of reviewed rows in their pool; raise if one is not there.

    A pool whose rows have moved is searched by their content.

    Examples
    --------
    >>> import pandas as pd
    >>> none, no = np.zeros((1, 0)), np.zeros((1, 0), dtype=bool)
    >>> review = Review(pd.DataFrame({"text": ["b"]}), none, no, no, np.array([0]), none)
    >>> rows_in_pool(review, pd.DataFrame({"text": ["a", "b"]})).tolist()
    [1]
    """
    names = [name for name in review.frame.columns if name in pool.columns]
    if not names:
        raise DataError(
            "the reviewed rows share no column with the pool: give the pool they are from"
        )
    wanted = _keys(review.frame[names])
    there = (review.rows >= 0) & (review.rows < len(pool))
    found = np.full(len(review), -1, dtype=np.int64)
    at = _keys(pool[names].iloc[review.rows[there]])
    for place, key in zip(np.flatnonzero(there).tolist(), at, strict=True):
        if wanted[place] == key:
            found[place] = review.rows[place]
    if (found < 0).any():
        known = {key: row for row, key in reversed(list(enumerate(_keys(pool[names]))))}
        for place in np.flatnonzero(found < 0).tolist():
            found[place] = known.get(wanted[place], -1)
            if found[place] < 0:
                cell = str(review.frame[names[0]].iloc[place])
                raise DataError(
                    f"the reviewed row with {names[0]} {cell!r:.60} is not in the pool: give the file "
                    "that the rows were suggested from"
                )
    return found


# ---- answers -------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """One row of a review file."""

    place: str
    cells: dict[str, Any]
    answers: FloatArray
    done: BoolArray
    expected: FloatArray
    is_random: BoolArray
    draw: float
    seed: int
    number: int


def answer_of(cell: Any) -> float | None:
    """Return a cell as 1, 0, or NaN where there is no answer; None if it says something else.

    Examples
    --------
    >>> [answer_of(cell) for cell in ("Yes", 0.0, "", "maybe")]
    [1.0, 0.0, nan, None]
    """
    if cell is None or cell != cell:
        return math.nan
    if isinstance(cell, bool | np.bool_):
        return float(cell)
    return _ANSWERS.get(str(cell).strip().casefold())


def _read(path: Path, label_names: Sequence[str], as_text: Sequence[str]) -> list[_Row]:
    frame, _ = read_frame(path, as_text=(*as_text, LABELS, WHY, LIKELY, TAGS, ORIGIN))
    if kind(path) == "csv":
        frame = frame.rename(columns=_rescued)
        for name in frame.columns:
            if frame[name].dtype.kind in "OUT":
                frame[name] = [_rescued(cell) for cell in frame[name].array]
    read = _tagged if TAGS in frame else _cell_by_cell
    answers, done = read(path, frame, label_names)
    # What a person adds without having been asked is there because it is: it is no random sample.
    random = _asked(frame, label_names)
    random &= np.array([str(o).strip() == "random" for o in _column(frame, ORIGIN, "")])[:, None]
    own = [name for name in frame.columns if str(name) not in (*label_names, *_OWN)]
    columns = {str(name): frame[name].tolist() for name in own}
    expected = _expected(frame, label_names)
    draws, seeds, rows = (_column(frame, name, math.nan) for name in (DRAW, SEED, ROW))
    return [
        _Row(
            f"{path}, {frame.index.name or 'row'} {frame.index[place]}",
            {name: cells[place] for name, cells in columns.items()},
            answers[place],
            done[place],
            expected[place],
            random[place],
            _number(draws[place], math.inf),
            int(_number(seeds[place], -1)),
            int(_number(rows[place], -1)),
        )
        for place in range(len(frame))
    ]


def _asked(frame: "pd.DataFrame", label_names: Sequence[str]) -> BoolArray:
    """Return which labels each row asks for, (n, q); all of them where the file does not say."""
    if LABELS not in frame.columns:
        return np.ones((len(frame), len(label_names)), dtype=np.bool_)
    listed = [set(_unlisted(cell)) for cell in frame[LABELS]]
    rows = [[name in names for name in label_names] for names in listed]
    return np.array(rows, dtype=np.bool_).reshape(len(frame), len(label_names))


def _cell_by_cell(
    path: Path, frame: "pd.DataFrame", label_names: Sequence[str]
) -> tuple[FloatArray, BoolArray]:
    """Return the answers (n, q), and which cells are answered or skipped."""
    named = [name for name in label_names if name in frame.columns]
    if not named:
        raise DataError(
            f"{path} has no column of a label; the labels are: {', '.join(label_names[:8])}"
        )
    Y = np.full((len(frame), len(label_names)), np.nan)
    done = np.zeros(Y.shape, dtype=np.bool_)
    for place, name in enumerate(label_names):
        if name not in named:
            continue
        values = [answer_of(cell) for cell in frame[name].array]
        wrong = np.array([value is None for value in values])
        if wrong.any():
            cell = frame[name].array[int(np.argmax(wrong))]
            raise DataError(
                f"{path}: {row_name(frame[name], wrong)}, column {name!r}: expected yes or no, found "
                f"{str(cell)!r:.40}; write yes, no, or nothing"
            )
        Y[:, place] = np.array(values, dtype=np.float64)
        done[:, place] = [not _is_open(cell) for cell in frame[name].array]
    return Y, done


def _tagged(
    path: Path, frame: "pd.DataFrame", label_names: Sequence[str]
) -> tuple[FloatArray, BoolArray]:
    """Return the answers of rows that list their labels: those asked for, and those that were added."""
    Y = np.full((len(frame), len(label_names)), np.nan)
    places = {name: place for place, name in enumerate(label_names)}
    done = _column(frame, DONE, "")
    for number, (tags, asked) in enumerate(
        zip(frame[TAGS], _column(frame, LABELS, ""), strict=True)
    ):
        answer = answer_of(done[number])
        where = f"{path}: {frame.index.name or 'row'} {frame.index[number]}, column"
        if answer is None:
            raise DataError(
                f"{where} {DONE!r}: expected yes or nothing, found {done[number]!r:.40}"
            )
        if answer != 1:
            continue
        for name in _unlisted(asked):
            if name in places:
                Y[number, places[name]] = 0
        for name in _unlisted(tags):
            if name not in places:
                known = did_you_mean(name, label_names)
                raise DataError(f"{where} {TAGS!r}: unknown label {name!r:.60}{known}")
            Y[number, places[name]] = 1
    return Y, ~np.isnan(Y)


def _expected(frame: "pd.DataFrame", label_names: Sequence[str]) -> FloatArray:
    """Return the probabilities by which rows were suggested, (n, q)."""
    table = np.full((len(frame), len(label_names)), np.nan)
    places = {name: place for place, name in enumerate(label_names)}
    names, values = (_column(frame, name, "") for name in (LABELS, LIKELY))
    for number, (listed, numbers) in enumerate(zip(names, values, strict=True)):
        shares = str(numbers).split(";")
        for name, share in zip(_unlisted(listed), shares, strict=False):
            if name in places:
                table[number, places[name]] = _number(share, math.nan)
    return table


def _without_repeats(rows: list[_Row], label_names: Sequence[str]) -> list[_Row]:
    """Return each row of a pool once; answers to different labels are put together."""
    kept: dict[Any, _Row] = {}
    for row in rows:
        key = (row.number, tuple((name, _key(cell)) for name, cell in row.cells.items()))
        if key[0] < 0 or (former := kept.get(key)) is None:
            kept[key if key[0] >= 0 else (row.place, key[1])] = row
            continue
        differ = ~np.isnan(row.answers) & ~np.isnan(former.answers)
        differ &= row.answers != former.answers
        if differ.any():
            name = label_names[int(np.argmax(differ))]
            said = [YES if each.answers[int(np.argmax(differ))] else NO for each in (former, row)]
            raise DataError(
                f"{name!r} is answered twice for one row: {said[0]} in {former.place}, {said[1]} in "
                f"{row.place}; correct one of them"
            )
        kept[key] = _together(former, row)
    return list(kept.values())


def _together(former: _Row, row: _Row) -> _Row:
    """Return a row with the answers of two; a random one stays random."""
    return former._replace(
        answers=np.where(np.isnan(former.answers), row.answers, former.answers),
        done=former.done | row.done,
        expected=np.where(np.isnan(former.expected), row.expected, former.expected),
        is_random=former.is_random | row.is_random,
        draw=min(former.draw, row.draw),
        seed=max(former.seed, row.seed),
    )


# ---- a file whose cells are answered one by one ------------------------------------------------------


class Question(NamedTuple):
    """A cell to answer: the row's place in the sheet, and the column."""

    row: int
    label: str


class Sheet:
    r"""A review file as it is written, cell by cell; every answer is saved at once.

    After a crash there is the file before the last answer or with it.

    Parameters
    ----------
    path
        A file of `write_review`, also after a spreadsheet saved it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "review.csv"
    >>> _ = path.write_text("text;review_labels;grief\nso sad;grief;\n")
    >>> sheet = Sheet(path)
    >>> sheet.answer(sheet.questions[0], "yes")
    >>> path.read_text(encoding="utf-8-sig").splitlines()[1], sheet.first_open()
    ('so sad;grief;yes', 1)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._delimiter = ","
        if kind(path) == "csv":
            self._header, self._cells = self._read_csv()
        else:
            frame, _ = read_frame(path)
            self._header = [str(name) for name in frame.columns]
            self._cells = [list(row) for row in frame.itertuples(index=False, name=None)]
        if LABELS not in self._header:
            raise DataError(
                f"{path} is no review file: it has no column {LABELS}; `tailbatch suggest` writes one"
            )
        if TAGS in self._header:
            raise DataError(f"{path} lists tags: edit its column {TAGS}, then write yes in {DONE}")
        self.questions = [
            Question(row, label)
            for row in range(len(self._cells))
            for label in _unlisted(self.cell(row, LABELS))
            if label in self._header
        ]
        for question in self.questions:
            if answer_of(self.cell(*question)) is None:
                raise DataError(
                    f"{path}: row {question.row}, column {question.label!r}: expected yes or no, found "
                    f"{str(self.cell(*question))!r:.40}; write yes, no, or nothing"
                )

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, row: int, column: str) -> Any:
        """Return a cell as the file holds it, an apostrophe before a formula aside."""
        value = self._cells[row][self._header.index(column)] if column in self._header else ""
        return _rescued(value) if kind(self.path) == "csv" else value

    def is_open(self, question: Question) -> bool:
        """Whether nobody has answered or skipped a cell."""
        return _is_open(self.cell(*question))

    def first_open(self) -> int:
        """Return the number of the first question without an answer; how many there are if none is."""
        places = (n for n, question in enumerate(self.questions) if self.is_open(question))
        return next(places, len(self.questions))

    def shown(self, row: int) -> list[tuple[str, str]]:
        """Return the columns of a row that belong to the pool, as text."""
        labels = {question.label for question in self.questions}
        names = [name for name in self._header if name not in labels and name not in _OWN]
        return [(name, str(self.cell(row, name))) for name in names]

    def answer(self, question: Question, text: str) -> None:
        """Write an answer and save the file."""
        self._cells[question.row][self._header.index(question.label)] = text
        if kind(self.path) == "csv":
            stream = io.StringIO()
            writer = csv.writer(stream, delimiter=self._delimiter, lineterminator="\n")
            writer.writerows([self._written, *self._cells])
            _replace(self.path, stream.getvalue(), bom=True)
            return
        pd = require("pandas", extra="cli")
        columns = dict(zip(self._header, zip(*self._cells, strict=True), strict=True))
        _write(pd.DataFrame({name: list(cells) for name, cells in columns.items()}), self.path)

    def _read_csv(self) -> tuple[list[str], list[list[Any]]]:
        read_frame(self.path, as_text=_OWN)  # says what is wrong with a table, as everywhere
        text = self.path.read_bytes().decode("utf-8-sig", errors="surrogateescape")
        first = text.partition("\n")[0]
        self._delimiter = max("\t,;", key=first.count)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter))
        self._written, cells = rows[0], [row for row in rows[1:] if row]
        width = len(self._written)
        header = [str(_rescued(name)) for name in self._written]
        return header, [row + [""] * (width - len(row)) for row in cells]


# ---- cells and files -----------------------------------------------------------------------------


def kind(path: Path) -> str:
    """Return what a review file is written as, by its name: csv, jsonl or parquet.

    Examples
    --------
    >>> kind(Path("review.xlsx"))
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: review.xlsx must end in .csv, .jsonl or .parquet
    """
    ending = suffix(path)
    if ending == PARQUET:
        return "parquet"
    if ending in JSON_LINES and ending != ".json":
        return "jsonl"
    if ending in (".csv", ".tsv") and path.suffix != ".gz":
        return "csv"
    raise DataError(f"{path} must end in .csv, .jsonl or .parquet")


def _write(table: "pd.DataFrame", out: Path) -> None:
    if kind(out) == "parquet":
        with replacing(out) as temporary:
            table.to_parquet(temporary, index=False)
    elif kind(out) == "jsonl":
        names = [str(name) for name in table.columns]
        rows = zip(*(table[name].tolist() for name in table.columns), strict=True)
        lines = [json.dumps(_plain(names, row), ensure_ascii=False, default=str) for row in rows]
        _replace(out, "".join(f"{line}\n" for line in lines))
    else:
        safe = table.rename(columns=_guarded)
        for name in safe.columns:
            if safe[name].dtype.kind in "OUT":
                safe[name] = [_guarded(cell) for cell in safe[name].array]
        text = safe.to_csv(
            index=False, lineterminator="\n", sep="\t" if suffix(out) == ".tsv" else ","
        )
        _replace(out, text, bom=True)


def _plain(names: Sequence[str], row: Iterable[Any]) -> Mapping[str, Any]:
    """Return a row as JSON has it; what is missing is null."""
    return {
        name: None if not isinstance(cell, list | dict) and cell != cell else cell
        for name, cell in zip(names, row, strict=True)
    }


def _replace(path: Path, text: str, *, bom: bool = False) -> None:
    """Write a text whole; the byte order mark tells spreadsheets that it is UTF-8."""
    data = text.encode("utf-8", errors="surrogateescape")
    with replacing(path) as temporary:
        temporary.write_bytes(b"\xef\xbb\xbf" + data if bom else data)


def _guarded(cell: Any) -> Any:
    """Return a text with an apostrophe before what a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _rescued(cell: Any) -> Any:
    """Return the text that `_guarded` was given."""
    if isinstance(cell, str) and cell[:1] == "'" and _FORMULA.match(cell):
        return cell[1:]
    return cell


def _listed(names: Sequence[str]) -> str:
    """Return names in one cell; as a JSON list if one contains the separator."""
    if any(";" in name or name.strip() != name or name[:1] == "[" for name in names):
        return json.dumps(list(names), ensure_ascii=False)
    return "; ".join(names)


def _unlisted(cell: Any) -> list[str]:
    if not isinstance(cell, str):
        return []
    if cell.startswith("["):
        try:
            return [str(name) for name in json.loads(cell)]
        except ValueError:
            pass
    return [name.strip() for name in cell.split(";") if name.strip()]


def _is_open(cell: Any) -> bool:
    """Whether nobody has written into a cell."""
    return cell is None or cell != cell or not str(cell).strip()


def _column(frame: "pd.DataFrame", name: str, default: Any) -> list[Any]:
    return frame[name].tolist() if name in frame.columns else [default] * len(frame)


def _number(value: Any, default: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return default
    return number if math.isfinite(number) else default


def _key(cell: Any) -> str:
    """Return a cell as text that is the same whatever type a file gave it."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, int | float | np.number | bool | np.bool_):
        return repr(float(cell))
    return str(cell).replace("\r\n", "\n").replace("\r", "\n")


def _keys(frame: "pd.DataFrame") -> list[tuple[str, ...]]:
    columns = [[_key(cell) for cell in frame[name].array] for name in frame.columns]
    return list(zip(*columns, strict=True))
